"""The store port: what any backend of the gateway gives (DESIGN §5).

A store is driven by one thread, the writer's. Readers come from ``reader()`` and live on another thread.
``tests/storage`` and ``seriatim.testing.store_contract`` hold every backend to the same claims.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal, Protocol

from attrs import frozen

from seriatim.commits import Commit, Hot, Outcome
from seriatim.events import Data, Event, LogId


@frozen
class Balance:
    """Law 1 in numbers: accepted = answered + merged + dropped + waiting (message counts)."""

    accepted: int
    answered: int
    merged: int
    dropped: int
    waiting: int

    @property
    def holds(self) -> bool:
        """Whether every accepted message is accounted for."""
        return self.accepted == self.answered + self.merged + self.dropped + self.waiting


@frozen
class Checkpoint:
    """The fold of the first ``seq`` events of ``log``, as lossless JSON: a cache.

    Whoever finds one folds only what came after; whoever finds none, or one that looks odd, folds everything. Losing
    all of them costs time and nothing else. ``of``: the rules' state, or the session's surface. ``version``: of the
    fold and of its form; who knows another one ignores the checkpoint.
    """

    log: LogId
    of: Literal["state", "surface"]
    seq: int
    version: int
    data: Data


@frozen
class Archive:
    """Stands for the events below ``base`` of a compacted log, which are gone: part of the truth.

    ``data``: their fold, in the form of ``version``. ``counts``: what they count for in law 1; nothing of them waits.
    """

    log: LogId
    base: int
    version: int
    counts: Balance
    data: Data


@frozen
class LogInfo:
    """What a list shows of a log, known without reading its events.

    ``header``: what created it. ``incarnation``: a number that no other log of the store had or will have; a log
    made again after an erasure has another one. ``head``: how many events it holds. ``last_time``: epoch ms of the
    last of them, None where there is none. ``lane``: whose session it is. ``hot``: a lane's open work and counters.

    ``(store_id, incarnation, head)`` changes if and only if what the log holds changes.
    """

    log: LogId
    header: dict[str, Any]
    incarnation: int
    head: int
    last_time: int | None
    lane: LogId | None
    hot: Hot | None


class StoreReader(Protocol):
    """Reads whole committed batches. Used by one thread at a time, never the writer's."""

    @property
    def store_id(self) -> str:
        """The store's own id, made once; no two stores have the same."""
        ...

    def read(self, log: LogId, from_seq: int = 0, limit: int | None = None) -> list[Event]:
        """Events of ``log`` with ``seq >= from_seq``, oldest first; empty when there is no such log.

        Raises CorruptionError where a checksum or the numbering is broken, and LogCompactedError where events below
        the archive's base are asked for: nobody shall take a suffix for the whole.
        """
        ...

    def archive(self, log: LogId) -> Archive | None:
        """What stands for the beginning of a compacted log; None for all others. Raises CorruptionError."""
        ...

    def checkpoint(self, log: LogId, of: Literal["state", "surface"]) -> Checkpoint | None:
        """The newest one of the log. None also for one whose checksum, or place in the log, isn't what it should be."""
        ...

    def header(self, log: LogId) -> dict[str, Any] | None:
        """The header that created the log, or None when there is no such log."""
        ...

    def binding(self, session: LogId) -> LogId | None:
        """The lane that the session is bound to."""
        ...

    def logs(self, prefix: str, after: str = "", limit: int = 1000) -> list[LogId]:
        """A page of log ids that begin with ``prefix`` and sort after ``after``."""
        ...

    def scan(self, prefix: str, after: str = "", limit: int = 1000) -> list[LogInfo]:
        """A page of the same as ``logs``, each with what is known of it. Decodes no event and checks none.

        Raises CorruptionError where a header can't be read.
        """
        ...

    def info(self, log: LogId) -> LogInfo | None:
        """``scan`` for one log; None when there is no such log."""
        ...

    def open_work(self, after: LogId | None = None, limit: int | None = None) -> list[tuple[LogId, Hot]]:
        """Lanes whose hot row is open, in the order in which they were made; cost in proportion to these, not to all.

        A page begins behind ``after``, a lane of the page before. Raises LogNotFoundError when that is no log.
        """
        ...

    def counters(self) -> Balance:
        """The sum of every lane's hot row."""
        ...

    def has_keys(self, keys: Iterable[str]) -> set[str]:
        """Those of ``keys`` that were committed as unique keys."""
        ...

    def close(self) -> None:
        """Release the reader. Idempotent."""
        ...


class Store(Protocol):
    """One owner's handle. All calls come from the writer's thread."""

    @property
    def epoch(self) -> int:
        """The owner's epoch, raised by each opening for writing (and after each Unknown)."""
        ...

    def commit(self, commits: Sequence[Commit]) -> list[Outcome]:
        """Make the commits durable together, each all or nothing; answer in the same order.

        Never raises for what a commit holds: checks refuse (heads, fences, bindings, keys, ids, lossless
        JSON), I/O errors answer Unknown. After an Unknown the next call works on a fresh handle, under a
        new epoch, and looks the commit's id up before writing it. A commit whose id is present is Durable
        without a second write. Keys and the id are checked before anything else can refuse.
        """
        ...

    def fence(self, lane: LogId, incarnation: int) -> None:
        """Refuse from now on commits of ``lane`` by a smaller incarnation."""
        ...

    def keep(self, checkpoints: Sequence[Checkpoint]) -> int:
        """Keep those that belong to the end of a commit of their log, each instead of an older one; how many.

        Never raises for trouble with the medium: then none is kept. Raises InvalidInputError for malformed data.
        """
        ...

    def compact(self, archive: Archive, parts_max: int) -> bool:
        """Let ``archive`` stand for the beginning of its log, and remove what is then hidden; whether any is left.

        The archive is durable before the first event goes, and the work of a call is bounded by ``parts_max`` commits:
        call it again with the same archive until it returns False. Unique keys stay for ever; ids of the removed
        commits don't (offered again, those fail on heads and keys). Raises StoreError, then nothing has changed or is
        unknown: HeadMismatchError for a base that is not the end of a commit or lies below the present one,
        InvalidInputError for an archive that hides open work.
        """
        ...

    def reader(self) -> StoreReader:
        """A new reader that sees everything durable at each call."""
        ...

    def close(self) -> None:
        """Checkpoint and release. Idempotent; never raises for a store that is already broken."""
        ...
