"""Carrying whole sessions from one backend to another, and proving that they arrived.

Runs offline, on one thread, over the backends' ports. Nothing is ever overwritten: what is there already is compared,
and a session that was carried in part, by a run that was stopped, is gone on with.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, Literal

from attrs import Factory, define

from seriatim.closers import closers
from seriatim.errors import (
    LogNotFoundError,
    SeriatimError,
    SessionFormatUnsupportedError,
    SessionPersistenceCorruptionError,
)
from seriatim.limits import LIST_PAGE, TRANSFER_BATCH_BYTES
from seriatim.vocabulary import KNOWN_SESSION_EVENT_TYPES

from .backend import LogBackend, StoredLog
from .formats import check_known
from .header import SessionHeader, make_header
from .lines import encode_events
from .seed_events import translate
from .seed_logs import SeedLog, read_jsonl, read_sqlite
from .values import Problem, SessionEvent, freeze_event, freeze_events

Result = Literal["copied", "same", "missing", "differs"]
_END_SEED: Final = "session/end-seed"


@define
class Report:
    """What came of each session, by id, and what couldn't be read. ``events``: carried or compared."""

    results: dict[str, Result] = Factory(dict)
    problems: list[Problem] = Factory(list)
    events: int = 0

    @property
    def holds(self) -> bool:
        """Whether every session is there, equal."""
        return not self.problems and all(result in ("copied", "same") for result in self.results.values())


def copy(source: LogBackend, target: LogBackend, ids: Iterable[str] | None = None, *, dry_run: bool = False) -> Report:
    """Carry all sessions of ``source``, or those named, and read each back. With ``dry_run`` nothing is written."""
    report = Report()
    for stored in all_logs(source, ids, report):
        _carry(stored.header, stored.events, target, report, dry_run=dry_run)
    return report


def verify(source: LogBackend, target: LogBackend, ids: Iterable[str] | None = None) -> Report:
    """Compare the sessions of ``source`` with those of ``target``, header and every event."""
    report = Report()
    for stored in all_logs(source, ids, report):
        try:
            there = target.read(stored.header.id)
        except SeriatimError as error:
            report.problems.append(Problem(stored.header.id, error))
            continue
        report.events += stored.head
        report.results[stored.header.id] = "missing" if there is None else _compare(stored, there)
    return report


def import_seed(path: Path, target: LogBackend, *, dry_run: bool = False) -> Report:
    """Carry over every session of the event-log seed's own system: a root of JSONL files, or its SQLite file."""
    report = Report()
    for found in read_jsonl(path) if path.is_dir() else read_sqlite(path):
        if isinstance(found, Problem):
            report.problems.append(found)
            continue
        try:
            events = _translated(str(path), found)
        except SeriatimError as error:
            report.problems.append(Problem(found.header.id, error))
            continue
        if events:
            _carry(found.header, events, target, report, dry_run=dry_run)
    return report


def salvage(backend: LogBackend, session_id: str, new_id: str, now: int) -> tuple[SessionHeader, tuple[Problem, ...]]:
    """Make a new session of what can be trusted of a damaged one, from its beginning to the first thing missing.

    The new one names the old one as its parent, has its turns closed and ends in ``session/end-seed``; the old one
    stays as it is. ``now``: epoch ms. Returns the new header, and what is wrong with the old log. Raises
    LogNotFoundError when there is nothing to save, LogExistsError for an id that is taken.
    """
    found = backend.salvage(session_id)
    if found is None:
        raise LogNotFoundError(session_id)
    stored, problems = found
    sound, problem = _sound(stored)
    problems += problem
    if not sound:
        raise LogNotFoundError(session_id)
    events = (*sound, *freeze_events(closers(sound)))
    last = events[-1]
    if last.type != _END_SEED:
        events = (*events, freeze_event(SessionEvent(_END_SEED, last.seq + 1, last.time, {})))
    old = stored.header
    header = make_header(new_id, now, {
        "cwd": old.cwd, "parent_session": old.id, "seed_length": len(sound), "origin": old.origin,
        "delegation_depth": old.delegation_depth, "agent_preset": old.agent_preset,
    })  # fmt: skip
    _write(header, events, 0, backend)
    return header, problems


def _sound(stored: StoredLog) -> tuple[list[SessionEvent], tuple[Problem, ...]]:
    """The events up to the first that is missing, or that this version must understand and doesn't."""
    sound = [event for place, event in enumerate(stored.events) if event.seq == place]
    for place, event in enumerate(sound):
        try:
            check_known(stored.header.id, [event], KNOWN_SESSION_EVENT_TYPES)
        except SessionFormatUnsupportedError as error:
            return sound[:place], (Problem(stored.header.id, error),)
    return sound, ()


def all_logs(source: LogBackend, ids: Iterable[str] | None, report: Report) -> Iterator[StoredLog]:
    """Every session that can be read whole; the others become problems."""
    for session_id in _listed(source, report) if ids is None else ids:
        try:
            stored = source.read(session_id)
        except SeriatimError as error:
            report.problems.append(Problem(session_id, error))
            continue
        if stored is None:
            report.problems.append(Problem(session_id, LogNotFoundError(session_id)))
        elif stored.head:
            yield stored


def _listed(source: LogBackend, report: Report) -> Iterator[str]:
    after: str | None = None
    while True:
        page = source.page(after, LIST_PAGE)
        report.problems += page.problems
        yield from [snapshot.header.id for snapshot in page.snapshots]
        if page.next is None:
            return
        after = page.next


def _carry(
    header: SessionHeader, events: tuple[SessionEvent, ...], target: LogBackend, report: Report, *, dry_run: bool
) -> None:
    session_id = header.id
    try:
        there = target.read(session_id)
        head = 0
        if there is not None and there.head:
            if there.header != header or there.events != events[: there.head]:
                report.results[session_id] = "differs"
                return
            head = there.head
        if head < len(events) and not dry_run:
            _write(header, events, head, target)
            again = target.read(session_id)
            if again is None or (again.header, again.events) != (header, events):
                raise SessionPersistenceCorruptionError(session_id, "doesn't read as it was written")
        report.results[session_id] = "same" if head == len(events) else "copied"
        report.events += len(events) - head
    except SeriatimError as error:
        report.problems.append(Problem(session_id, error))


def _write(header: SessionHeader, events: Sequence[SessionEvent], head: int, target: LogBackend) -> None:
    for batch in _batches(events[head:], head):
        target.append(header.id, header, batch[0].seq, batch)


def _batches(events: Sequence[SessionEvent], first: int) -> Iterator[Sequence[SessionEvent]]:
    start = size = 0
    for place, line in enumerate(encode_events(events, first)):
        if size and size + len(line) > TRANSFER_BATCH_BYTES:
            yield events[start:place]
            start, size = place, 0
        size += len(line)
    if start < len(events):
        yield events[start:]


def _compare(stored: StoredLog, there: StoredLog) -> Result:
    return "same" if (stored.header, stored.events) == (there.header, there.events) else "differs"


def _translated(where: str, log: SeedLog) -> tuple[SessionEvent, ...]:
    return translate(where, log.header.id, log.events)
