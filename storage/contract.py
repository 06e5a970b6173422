"""The store port: what any backend of the gateway gives.

A store is driven by one thread, the writer's. Readers come from ``reader()`` and live on another thread.
``tests/storage`` and ``seriatim.testing.store_contract`` hold every backend to the same claims.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal, Protocol

from attrs import frozen

from seriatim.commits import Commit, Hot, Outcome
from seriatim.events import Data, Event, LogId
from seriatim.limits import BLOBS_SWEPT_MAX, KEYS_PRUNED_MAX


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
class Erasure:
    """The order to erase a log: its events, header, counters, checkpoints and bindings, for good.

    ``id``: as a commit's; the same again succeeds without erasing twice. ``incarnation``: the smallest of the log's own
    writer that may write a log of this name afterwards. ``time``: epoch ms. ``drop_keys``: whether the unique keys of
    commits whose first part went to the log are free again; else a redelivery of what was erased stays a duplicate.
    ``reason``: a few words of ours for the system log, which never names the log itself (its name may be a person's).
    """

    id: str
    log: LogId
    incarnation: int
    time: int
    drop_keys: bool = False
    reason: str = ""


@frozen
class KeysPruned:
    """What one call of a prune did. ``dropped`` of ``seen`` keys; go on with ``after`` unless it is None."""

    dropped: int
    seen: int
    after: str | None


@frozen
class BlobsSwept:
    """What one call of a sweep removed (or would have). ``more``: it stopped at its limit."""

    count: int
    bytes: int
    more: bool


@frozen
class StoreHealth:
    """How the medium is. Sizes in bytes, ages in ms.

    ``checkpoint``: what came of the last one: "none" yet, "complete", "partial" or "blocked" (a reader still needs
    what is in the write-ahead log). ``readers``: open ones of this store; ``oldest_reader_ms``: how long the longest
    read that is under way has held its snapshot. ``scrubbing``: erased content still waits to be cut from the
    write-ahead log. ``paths``: all that belongs to the store on disk, absolute and without links; a host should deny
    them to its agents' tools.
    """

    epoch: int
    wal_bytes: int
    checkpoint: str
    readers: int
    oldest_reader_ms: int
    scrubbing: bool
    paths: tuple[str, ...]


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

    def blob(self, hash: str) -> bytes:  # noqa: A002  (the blob's name, as everywhere)
        """The blob's content, checked. Raises BlobNotFoundError, CorruptionError, StoreUnhealthyError."""
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

    def erase(self, erasure: Erasure) -> Outcome:
        """Erase a log, and say so in the system log (``log/erased``), in one transaction.

        Afterwards the log isn't there, and one made again under its name has a new incarnation (``LogInfo``); the ids
        of the old commits stay known, so that offering one again brings nothing back. The content is gone from the
        medium as far as the medium permits; ``StoreHealth.scrubbing`` says when a reader still holds it. Blobs that
        only this log referred to go with the next sweep. Never raises; Refused with LogNotFoundError,
        OwnershipLostError, InvalidInputError or StoreUnhealthyError.
        """
        ...

    def prune_keys(
        self, now: int, window_ms: int, *, after: str = "", limit: int = KEYS_PRUNED_MAX, dry_run: bool = False
    ) -> KeysPruned:
        """Forget unique keys that are surely older than ``window_ms``; looks at ``limit`` of them behind ``after``.

        ``now``: epoch ms of the caller's clock. A key goes only if a call made at least a window earlier had already
        seen the store hold it, so event times play no part; call it again and again (``after`` None: from the start).
        Of wall clocks only this much is believed: one that leaps forward by more than a window makes all keys look
        old. Raises StoreError; nothing was dropped then, or what was dropped was due.
        """
        ...

    def put_blob(self, data: bytes, time: int) -> str:
        """Keep a blob and return its hash (SHA-256, hexadecimal), durable by then; the same content is kept once.

        ``time``: epoch ms, now; the blob counts as young for the sweep from then on. Any thread. Raises
        BlobTooLargeError, StoreUnhealthyError, OwnershipLostError.
        """
        ...

    def sweep_blobs(self, before: int, *, limit: int = BLOBS_SWEPT_MAX, dry_run: bool = False) -> BlobsSwept:
        """Remove blobs to which no log refers and that were last put before ``before`` (epoch ms), at most ``limit``.

        Leave a grace period of hours: who has put a blob may not have committed yet. Raises StoreError.
        """
        ...

    def health(self) -> StoreHealth:
        """How the medium is; any thread, no I/O but a look at a file's size."""
        ...

    def reader(self) -> StoreReader:
        """A new reader that sees everything durable at each call."""
        ...

    def close(self) -> None:
        """Checkpoint and release. Idempotent; never raises for a store that is already broken."""
        ...
