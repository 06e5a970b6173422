"""The store in memory: the whole contract without a disk, for tests and simulation.

``MemoryDisk`` is what survives a crash of the process: open another ``MemoryStore`` on it and the epoch
rises, what was committed is there, and the earlier handle has lost the ownership.
"""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import attrs

from seriatim.commits import Commit, Hot, Outcome, Refused
from seriatim.errors import (
    CorruptionError,
    HeadMismatchError,
    LogCompactedError,
    LogNotFoundError,
    OwnershipLostError,
    StoreError,
    StoreUnhealthyError,
)
from seriatim.events import Event, LogId

from .checkpoints import archive_sum, archive_text, checkpoint_sum, checkpoint_text
from .contract import Archive, Balance, Checkpoint, LogInfo
from .encoding import Rare, chain, chain_start, decode_event, sum_text
from .staging import LogState, StagedCommit, StagedPart, Staging, stage


@attrs.define
class _Log:
    header: str
    state: LogState
    parts: list[tuple[str, StagedPart]]  # commit id, what it appended
    archive: _Archive | None = None
    checkpoints: dict[str, tuple[int, int, int, int, str]] = attrs.Factory(dict)  # seq, version, chain, crc, text

    @property
    def base(self) -> int:
        """Where it begins."""
        return 0 if self.archive is None else self.archive.base

    def crc_at(self, seq: int) -> int | None:
        """The checksum along the log at the end of a part, None elsewhere."""
        return next((part.crc for _, part in self.parts if part.count and part.first + part.count == seq), None)


@attrs.frozen
class _Archive:
    base: int
    chain: int
    version: int
    counts: Balance
    crc: int
    text: str


class MemoryDisk:
    """What a process crash leaves behind. Shared by the handles opened on it, under one lock."""

    def __init__(self) -> None:
        self.store_id = uuid.uuid4().hex
        self.epoch = 0
        self.lock = threading.RLock()
        self.logs: dict[LogId, _Log] = {}
        self.hot: dict[LogId, Hot] = {}
        self.keys: set[str] = set()
        self.ids: set[str] = set()

    def state(self, log: LogId, new: bool = False) -> LogState | None:
        """The durable state of a log."""
        found = self.logs.get(log)
        return None if found is None else found.state

    def write(self, staging: Staging) -> None:
        """Make a checked group durable."""
        for staged in staging.staged:
            self._write_one(staged)
        for log, state in staging.logs.items():
            self.logs[log].state = state

    def _write_one(self, staged: StagedCommit) -> None:
        commit = staged.commit
        for part in staged.parts:
            if part.header is not None:
                self.logs[part.log] = _Log(part.header, LogState(part.number, 0, 0, None), [])
            self.logs[part.log].parts.append((commit.id, part))
            if part.hot is not None:
                self.hot[part.log] = part.hot
        self.ids.add(commit.id)
        self.keys.update(commit.unique)


class MemoryStore:
    """One owner's handle. All calls come from the writer's thread, as with any store."""

    def __init__(self, disk: MemoryDisk | None = None) -> None:
        self.disk = MemoryDisk() if disk is None else disk
        self._fences: dict[LogId, int] = {}
        self._closed = False
        with self.disk.lock:
            self.disk.epoch += 1
            self._epoch = self.disk.epoch

    @property
    def epoch(self) -> int:
        """The epoch that this handle opened with."""
        return self._epoch

    def commit(self, commits: Sequence[Commit]) -> list[Outcome]:
        """See ``Store.commit``. Never Unknown: wrap it in ``FaultyStore`` for that."""
        outcomes: list[Outcome] = []
        with self.disk.lock:
            refusal = self._ready()
            if refusal is not None:
                return [Refused(c.id, refusal) for c in commits]
            while len(outcomes) < len(commits):
                disk = self.disk
                staging = Staging(disk.state, self._fences, len(disk.logs) + 1, disk.ids, disk.keys)
                stage(staging, commits[len(outcomes) :])
                disk.write(staging)
                outcomes += staging.finish(None)
        return outcomes

    def fence(self, lane: LogId, incarnation: int) -> None:
        """See ``Store.fence``; a fence never goes back."""
        self._fences[lane] = max(incarnation, self._fences.get(lane, incarnation))

    def keep(self, checkpoints: Sequence[Checkpoint]) -> int:
        """See ``Store.keep``."""
        kept = 0
        with self.disk.lock:
            for checkpoint in checkpoints:
                text, crc = checkpoint_text(checkpoint)
                log = self.disk.logs.get(checkpoint.log)
                chain_there = None if log is None else log.crc_at(checkpoint.seq)
                if self._ready() is None and log is not None and chain_there is not None:
                    log.checkpoints[checkpoint.of] = (checkpoint.seq, checkpoint.version, chain_there, crc, text)
                    kept += 1
        return kept

    def compact(self, archive: Archive, parts_max: int) -> bool:
        """See ``Store.compact``."""
        text = archive_text(archive)
        with self.disk.lock:
            refusal = self._ready()
            if refusal is not None:
                raise refusal
            log = self.disk.logs.get(archive.log)
            if log is None:
                raise LogNotFoundError(archive.log)
            base = archive.base
            if base != log.base:
                chain_there = log.crc_at(base)
                if base < log.base or chain_there is None:
                    raise HeadMismatchError(archive.log, base, log.base)
                crc = archive_sum(archive.log, base, chain_there, archive.version, archive.counts, text)
                log.archive = _Archive(base, chain_there, archive.version, archive.counts, crc, text)
            hidden = sum(1 for _, part in log.parts[:-1] if part.first < base)
            del log.parts[: min(hidden, parts_max)]
            return hidden > parts_max

    def reader(self) -> MemoryReader:
        """A reader over the disk."""
        return MemoryReader(self.disk)

    def _ready(self) -> StoreError | None:
        """Why nothing can be written."""
        if self._closed:
            return StoreUnhealthyError("the store is closed")
        if self._epoch != self.disk.epoch:
            return OwnershipLostError(f"epoch {self._epoch} has given way to {self.disk.epoch}")
        return None

    def close(self) -> None:
        """End the handle; what it committed stays on the disk. Idempotent."""
        self._closed = True


class MemoryReader:
    """See ``StoreReader``."""

    def __init__(self, disk: MemoryDisk) -> None:
        self._disk = disk

    @property
    def store_id(self) -> str:
        """The disk's."""
        return self._disk.store_id

    def read(self, log: LogId, from_seq: int = 0, limit: int | None = None) -> list[Event]:
        """See ``StoreReader.read``; fresh objects at each call."""
        with self._disk.lock:
            found = self._disk.logs.get(log)
            if found is None:
                return []
            parts, final = list(found.parts), found.state.crc
            archive = found.archive
        events: list[Event] = []
        crc = chain_start(log, found.header) if archive is None else archive.chain
        if archive is not None and from_seq < archive.base and (limit is None or limit > 0):
            raise LogCompactedError(log, archive.base)
        for commit, part in parts:
            if archive is not None and part.first < archive.base:
                continue
            kinds, times, texts = part.columns[0::3], part.columns[1::3], part.columns[2::3]
            crc = chain(crc, commit, sum_text(part.number, part.first, kinds, times, texts, part.rare))
            if crc != part.crc:
                where = f"{log} at {part.first}"
                raise CorruptionError(where, "the checksum along the log is broken", log=log, seq=part.first)
            if part.first + part.count > from_seq and (limit is None or len(events) < limit):
                rows = list(zip(kinds, times, texts, strict=True))
                events += _decode(part, rows, from_seq)
        if crc != final:
            raise CorruptionError(log, "the log ends before its last commit", log=log)
        return events if limit is None else events[: max(limit, 0)]

    def archive(self, log: LogId) -> Archive | None:
        """See ``StoreReader.archive``."""
        with self._disk.lock:
            found = self._disk.logs.get(log)
            kept = None if found is None else found.archive
        if kept is None:
            return None
        if kept.crc != archive_sum(log, kept.base, kept.chain, kept.version, kept.counts, kept.text):
            raise CorruptionError(f"{log} before {kept.base}", "the archive's checksum is broken", log=log, seq=0)
        return Archive(log, kept.base, kept.version, kept.counts, json.loads(kept.text))

    def checkpoint(self, log: LogId, of: Literal["state", "surface"]) -> Checkpoint | None:
        """See ``StoreReader.checkpoint``."""
        with self._disk.lock:
            found = self._disk.logs.get(log)
            kept = None if found is None else found.checkpoints.get(of)
            if found is None or kept is None:
                return None
            seq, version, chain_there, crc, text = kept
            if found.crc_at(seq) != chain_there or crc != checkpoint_sum(log, of, seq, version, text):
                return None
        return Checkpoint(log, of, seq, version, json.loads(text))

    def header(self, log: LogId) -> dict[str, Any] | None:
        """The header that created the log."""
        with self._disk.lock:
            found = self._disk.logs.get(log)
            if found is None:
                return None
            header: dict[str, Any] = json.loads(found.header)
            return header

    def binding(self, session: LogId) -> LogId | None:
        """The lane that the session is bound to."""
        with self._disk.lock:
            found = self._disk.logs.get(session)
            return None if found is None else found.state.lane

    def logs(self, prefix: str, after: str = "", limit: int = 1000) -> list[LogId]:
        """A page of log ids, in the order of their code points."""
        with self._disk.lock:
            return sorted(log for log in self._disk.logs if log.startswith(prefix) and log > after)[: max(limit, 0)]

    def scan(self, prefix: str, after: str = "", limit: int = 1000) -> list[LogInfo]:
        """A page of logs with what is known of each."""
        with self._disk.lock:
            return [self._info(log) for log in self.logs(prefix, after, limit)]

    def info(self, log: LogId) -> LogInfo | None:
        """What is known of one log."""
        with self._disk.lock:
            return self._info(log) if log in self._disk.logs else None

    def _info(self, log: LogId) -> LogInfo:
        found = self._disk.logs[log]
        state, last = found.state, found.parts[-1][1] if found.parts else None
        time = last.columns[-2] if last is not None and last.count else None
        return LogInfo(
            log, json.loads(found.header), state.number, state.head, time, state.lane, self._disk.hot.get(log)
        )

    def open_work(self, after: LogId | None = None, limit: int | None = None) -> list[tuple[LogId, Hot]]:
        """Lanes whose hot row is open, oldest first."""
        with self._disk.lock:
            logs = self._disk.logs
            if after is not None and after not in logs:
                raise LogNotFoundError(after)
            behind = 0 if after is None else logs[after].state.number
            found = [(logs[log].state.number, log, hot) for log, hot in self._disk.hot.items() if hot.is_open]
            page = [(log, hot) for number, log, hot in sorted(found, key=lambda row: row[0]) if number > behind]
            return page if limit is None else page[: max(limit, 0)]

    def counters(self) -> Balance:
        """The sum over all lanes."""
        with self._disk.lock:
            hots = list(self._disk.hot.values())
        return Balance(
            sum(h.accepted for h in hots),
            sum(h.answered for h in hots),
            sum(h.merged for h in hots),
            sum(h.dropped for h in hots),
            sum(h.waiting for h in hots),
        )

    def has_keys(self, keys: Iterable[str]) -> set[str]:
        """Those that were committed."""
        with self._disk.lock:
            return {key for key in keys if key in self._disk.keys}

    def close(self) -> None:
        """Nothing to release."""


def _decode(part: StagedPart, rows: list[tuple[str, int, str]], from_seq: int) -> list[Event]:
    rare: dict[int, Rare] = {fields.place: fields for fields in part.rare}
    return [
        decode_event(kind, part.first + i, time, json.loads(data), rare.get(i))
        for i, (kind, time, data) in enumerate(rows)
        if part.first + i >= from_seq
    ]
