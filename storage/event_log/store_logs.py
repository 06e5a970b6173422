"""A store's session logs as a backend: SQLite and memory.

A session that belongs to no lane writes for itself: its commits name its own log as their lane. One that is bound to
a lane can only be read here; its lane is the one that writes it.
"""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from seriatim.commits import Commit, Durable, Outcome, Part, Unknown
from seriatim.errors import (
    BindingMismatchError,
    CorruptionError,
    RawArtifactsUnsupportedError,
    SessionLiveError,
    SessionPersistenceCorruptionError,
    StoreError,
    StoreUnhealthyError,
    WriteUnknownError,
)
from seriatim.events import Event, LogId, session_log
from seriatim.frozen import freeze
from seriatim.limits import PREPARE_TRIES_MAX
from seriatim.storage.contract import LogInfo, StoreReader
from seriatim.storage.encoding import to_json

from .backend import StoredLog, StoredPage
from .formats import read_header
from .header import SessionHeader
from .values import Problem, Revision, SessionEvent, SessionPersistenceSnapshot, SessionRawArtifact

_PREFIX = "session:"
_RESCUED_AT_A_TIME = 256
_OFFERS = 3


class SomeStore(Protocol):
    """What of a store is needed here; see ``Store``."""

    def commit(self, commits: Sequence[Commit]) -> list[Outcome]:
        """Make them durable together."""
        ...

    def reader(self) -> StoreReader:
        """A new reader."""
        ...

    def close(self) -> None:
        """Release it."""
        ...


class StoreLogs:
    """The session logs of ``store``. Commits take turns; each thread that reads has a reader to itself."""

    supports_raw_artifacts = False

    def __init__(self, store: SomeStore) -> None:
        self._store = store
        self._commits = threading.Lock()
        self._readers: list[StoreReader] = []
        self._closed = False

    def locate(self, header: SessionHeader) -> None:
        """None: all sessions share one file."""

    def read(self, session_id: str, from_seq: int = 0) -> StoredLog | None:
        """See ``LogBackend.read``; seeks to ``from_seq``."""
        log = session_log(session_id)
        with self._reading() as reader:
            for _ in range(PREPARE_TRIES_MAX):
                info = reader.info(log)
                if info is None:
                    return None
                header = self._header(info)
                events = reader.read(log, from_seq) if info.head > from_seq else []
                if from_seq >= info.head or from_seq + len(events) == info.head:
                    revision = _revision(reader.store_id, info)
                    return StoredLog(header, tuple(map(_frozen, events)), info.head, revision, str(info.incarnation))
            raise StoreUnhealthyError(f"{session_id!r} changes faster than it can be read")

    def revision(self, session_id: str) -> Revision | None:
        """See ``LogBackend.revision``: store, incarnation of the log, and how many events it holds."""
        with self._reading() as reader:
            info = reader.info(session_log(session_id))
            return None if info is None else _revision(reader.store_id, info)

    def append(self, session_id: str, header: SessionHeader, head: int, events: Sequence[Event]) -> Revision:
        """See ``LogBackend.append``."""
        log = session_log(session_id)
        with self._reading() as reader:
            info = reader.info(log)
        if events or info is None:
            made = None if head or (info is not None and not info.head) else header.to_json()
            part = Part(log, head, tuple(map(_plain, events)), None, made)
            self._commit(Commit(uuid.uuid4().hex, log, 0, (part,)))
        revision = self.revision(session_id)
        assert revision is not None
        return revision

    def page(self, after: str | None, limit: int) -> StoredPage:
        """See ``LogBackend.page``; one indexed query, however many sessions there are."""
        start = "" if after is None else _PREFIX + after
        with self._reading() as reader:
            found: list[SessionPersistenceSnapshot] = []
            problems: list[Problem] = []
            try:
                infos = reader.scan(_PREFIX, start, limit)
                names = [info.log for info in infos]
            except CorruptionError:  # one of them; ask for each alone
                infos, names = [], reader.logs(_PREFIX, start, limit)
                for name in names:
                    try:
                        infos += [info for info in (reader.info(name),) if info is not None]
                    except CorruptionError as error:
                        problems.append(Problem(_id(name), _as_corruption(error)))
            for info in infos:
                try:
                    if info.head:
                        found.append(SessionPersistenceSnapshot(self._header(info), _revision(reader.store_id, info)))
                except StoreError as error:
                    problems.append(Problem(_id(info.log), error))
        return StoredPage(tuple(found), tuple(problems), _id(names[-1]) if len(names) == limit else None)

    def read_raw(self, session_id: str) -> SessionRawArtifact | None:
        """Refused: no session has an artifact of its own here."""
        raise RawArtifactsUnsupportedError("a store keeps no artifact per session")

    def salvage(self, session_id: str) -> tuple[StoredLog, tuple[Problem, ...]] | None:
        """See ``LogBackend.salvage``: events from both ends of what can't be read."""
        log = session_log(session_id)
        with self._reading() as reader:
            info = reader.info(log)
            if info is None:
                return None
            header = self._header(info)
            events, problems = _rescue(reader, log, info.head)
            revision = _revision(reader.store_id, info)
            return StoredLog(header, events, len(events), revision, str(info.incarnation)), problems

    def close(self) -> None:
        """Close the readers and the store. Idempotent."""
        with self._commits:
            self._closed = True
            readers, self._readers = self._readers, []
            for reader in readers:
                reader.close()
            self._store.close()

    def _commit(self, commit: Commit) -> None:
        """Offer until it is settled; the same commit again is never written twice."""
        with self._commits:
            outcome: Outcome = Unknown(commit.id, "")
            for _ in range(_OFFERS):
                (outcome,) = self._store.commit([commit])
                if type(outcome) is not Unknown:
                    break
        if type(outcome) is Durable:
            return
        if isinstance(outcome, Unknown):
            raise WriteUnknownError(f"{commit.lane}: the store can't say what it wrote ({outcome.reason})")
        assert not isinstance(outcome, Durable)
        if isinstance(outcome.error, BindingMismatchError):
            raise SessionLiveError(_id(commit.lane), f"belongs to {outcome.error.actual}") from outcome.error
        raise outcome.error

    def _header(self, info: LogInfo) -> SessionHeader:
        header = read_header(info.log, info.header)
        if session_log(header.id) != info.log:
            raise SessionPersistenceCorruptionError(info.log, "has another session's header")
        return header

    @contextmanager
    def _reading(self) -> Iterator[StoreReader]:
        if self._closed:
            raise StoreUnhealthyError("the store is closed")
        try:
            reader = self._readers.pop()  # one step under the interpreter's lock
        except IndexError:
            reader = self._store.reader()
        try:
            yield reader
        except CorruptionError as error:
            raise _as_corruption(error) from error
        finally:
            self._give_back(reader)

    def _give_back(self, reader: StoreReader) -> None:
        if self._closed:
            reader.close()
        else:
            self._readers.append(reader)


def _rescue(reader: StoreReader, log: LogId, head: int) -> tuple[tuple[SessionEvent, ...], tuple[Problem, ...]]:
    """What can be read, skipping forward over what can't: a store checks the parts that a read touches."""
    events: list[SessionEvent] = []
    problems: list[Problem] = []
    at, step = 0, _RESCUED_AT_A_TIME
    while at < head:
        try:
            found = reader.read(log, at, step)
        except CorruptionError as error:
            if step > 1:
                step //= 2
                continue
            if not problems or (events and events[-1].seq == at - 1):
                problems.append(Problem(log, _as_corruption(error)))
            at += 1
            continue
        if not found:
            break
        events += map(_frozen, found)
        at += len(found)
        step = min(step * 2, _RESCUED_AT_A_TIME)
    return tuple(events), tuple(problems)


def _frozen(event: Event) -> SessionEvent:
    return SessionEvent(
        event.type,
        event.seq,
        event.time,
        freeze(event.data),
        event.ignorable,
        event.source_event_seqs,
        freeze(event.surface_op),
    )


def _plain(event: Event) -> Event:
    """The store takes JSON's own types only; a frozen snapshot becomes them by way of its text."""
    operation = event.surface_op
    return Event(
        event.type,
        event.seq,
        event.time,
        json.loads(to_json(event.data)),
        event.ignorable,
        event.source_event_seqs,
        operation if operation is None else json.loads(to_json([operation]))[0],
    )


def _revision(store_id: str, info: LogInfo) -> Revision:
    return Revision(f"store:{store_id}:{info.incarnation}:{info.head}")


def _id(log: LogId) -> str:
    return log.removeprefix(_PREFIX)


def _as_corruption(error: CorruptionError) -> SessionPersistenceCorruptionError:
    if isinstance(error, SessionPersistenceCorruptionError):
        return error
    return SessionPersistenceCorruptionError(error.where, error.reason)
