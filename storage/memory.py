"""The store in memory: the whole contract without a disk, for tests and simulation.

``MemoryDisk`` is what survives a crash of the process: open another ``MemoryStore`` on it and the epoch
rises, what was committed is there, and the earlier handle has lost the ownership.
"""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import attrs

from seriatim.commits import Commit, Durable, Hot, Outcome, Refused, Unknown
from seriatim.errors import (
    BlobNotFoundError,
    CorruptionError,
    FormatUnsupportedError,
    HeadMismatchError,
    InvalidInputError,
    LogCompactedError,
    LogNotFoundError,
    OwnershipLostError,
    StoreError,
    StoreUnhealthyError,
)
from seriatim.events import Event, LogId
from seriatim.limits import BLOBS_SWEPT_MAX, KEY_MARKS_MAX, KEYS_PRUNED_MAX

from .blobs import hash_of
from .checkpoints import archive_sum, archive_text, checkpoint_sum, checkpoint_text
from .contract import Archive, Balance, BlobsSwept, Checkpoint, Erasure, KeysPruned, LogInfo, StoreHealth
from .encoding import Rare, chain, chain_start, decode_event, sum_text
from .erasing import SYSTEM, check_erasure, tombstone
from .schema import FORMAT
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
        self.format: int | None = FORMAT  # None: another program's
        self.epoch = 0
        self.lock = threading.RLock()
        self.logs: dict[LogId, _Log] = {}
        self.next_log = 1
        self.events = 0
        self.hot: dict[LogId, Hot] = {}
        self.keys: dict[str, tuple[int, int]] = {}  # number of the log, how many events there were before
        self.key_marks: dict[int, int] = {}  # time, how many events there were then
        self.ids: set[str] = set()
        self.blobs: dict[str, tuple[bytes, int]] = {}  # content, when it was put
        self.blob_refs: set[tuple[str, int]] = set()
        self.faults: list[bool] = []

    def fail_next(self, *, done: bool) -> None:
        """Let the next write fail with an I/O error, after it was done or before."""
        self.faults.append(done)

    def state(self, log: LogId, new: bool = False) -> LogState | None:
        """The durable state of a log."""
        found = self.logs.get(log)
        return None if found is None else found.state

    def write(self, staging: Staging) -> None:
        """Make a checked group durable. Raises OSError where a fault was asked for."""
        fault = self.faults.pop(0) if self.faults and staging.staged else None
        if fault is not False:
            for staged in staging.staged:
                self._write_one(staged)
            for log, state in staging.logs.items():
                self.logs[log].state = state
            self.next_log = staging.next_log
        if fault is not None:
            raise OSError("scripted")

    def _write_one(self, staged: StagedCommit) -> None:
        commit = staged.commit
        self.ids.add(commit.id)
        self.keys.update(dict.fromkeys(commit.unique, (staged.parts[0].number, self.events)))
        for part in staged.parts:
            self.events += part.count
            self.blob_refs.update((blob, part.number) for blob in commit.blobs)
            if part.header is not None:
                self.logs[part.log] = _Log(part.header, LogState(part.number, 0, 0, None), [])
            self.logs[part.log].parts.append((commit.id, part))
            if part.hot is not None:
                self.hot[part.log] = part.hot

    def remove(self, log: LogId, *, drop_keys: bool) -> int:
        """Remove what a log holds; how many unique keys went with it."""
        number = self.logs.pop(log).state.number
        self.hot.pop(log, None)
        self.blob_refs = {ref for ref in self.blob_refs if ref[1] != number}
        for other in self.logs.values():
            if other.state.lane == log:
                other.state = attrs.evolve(other.state, lane=None)
        dropped = [key for key, (of, _) in self.keys.items() if of == number] if drop_keys else []
        for key in dropped:
            del self.keys[key]
        return len(dropped)

    def prune(self, now: int, window_ms: int, after: str, limit: int, *, dry_run: bool) -> KeysPruned:
        """Forget keys that were there at a mark as old as the window."""
        marks = self.key_marks
        if not dry_run:
            marks = self.key_marks = {time: at for time, at in marks.items() if time <= now}
            if not marks or now - max(marks) >= max(window_ms // KEY_MARKS_MAX, 1):
                marks[now] = self.events
        old = max((time for time in marks if time <= now - window_ms), default=None)
        seen = sorted(key for key in self.keys if key > after)[:limit]
        dropped = [key for key in seen if old is not None and self.keys[key][1] < marks[old]]
        if old is not None and not dry_run:
            for key in dropped:
                del self.keys[key]
            self.key_marks = {time: at for time, at in marks.items() if time >= old}
        return KeysPruned(len(dropped), len(seen), seen[-1] if len(seen) == limit else None)


def _check_format(version: int | None) -> None:
    if version is None:
        raise FormatUnsupportedError("memory", "foreign", "is another program's")
    if version != FORMAT:
        direction = "upgrade" if version > FORMAT else "no path"
        raise FormatUnsupportedError("memory", direction, f"has format {version}; this version knows {FORMAT}")


class MemoryStore:
    """One owner's handle. All calls come from the writer's thread, as with any store.

    Raises FormatUnsupportedError for a disk of another format.
    """

    def __init__(self, disk: MemoryDisk | None = None) -> None:
        self.disk = MemoryDisk() if disk is None else disk
        self._fences: dict[LogId, int] = {}
        self._unknown: set[str] = set()
        self._in_doubt = False
        self._closed = False
        with self.disk.lock:
            _check_format(self.disk.format)
            self.disk.epoch += 1
            self._epoch = self.disk.epoch

    @property
    def epoch(self) -> int:
        """The epoch that this handle opened with."""
        return self._epoch

    def commit(self, commits: Sequence[Commit]) -> list[Outcome]:
        """See ``Store.commit``."""
        outcomes: list[Outcome] = []
        with self.disk.lock:
            while len(outcomes) < len(commits):
                group = commits[len(outcomes) :]
                refusal = self._ready()
                if refusal is not None:
                    outcomes += [self._refuse(c.id, refusal) for c in group]
                    break
                staging = self._stage()
                stage(staging, group)
                outcomes += self._write(staging)
        return outcomes

    def _stage(self) -> Staging:
        disk = self.disk
        return Staging(disk.state, self._fences, disk.next_log, disk.ids, disk.keys, disk.blobs.__contains__)

    def _write(self, staging: Staging) -> list[Outcome]:
        ids = [staged.commit.id for staged in staging.staged]
        try:
            self.disk.write(staging)
        except OSError as error:
            self._in_doubt = True
            self._unknown.update(ids)
            return staging.finish(str(error))
        outcomes = staging.finish(None)
        self._unknown.difference_update(outcome.commit for outcome in outcomes)
        return outcomes

    def _refuse(self, commit: str, refusal: StoreError) -> Outcome:
        """The outcome while nothing can be written; a newer owner has made the fate of a commit in doubt final."""
        if commit not in self._unknown:
            return Refused(commit, refusal)
        if not isinstance(refusal, OwnershipLostError):
            return Unknown(commit, "still failing")
        return Durable(commit) if commit in self.disk.ids else Refused(commit, refusal)

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

    def erase(self, erasure: Erasure) -> Outcome:
        """See ``Store.erase``."""
        with self.disk.lock:
            refusal = self._ready()
            if refusal is not None:
                return self._refuse(erasure.id, refusal)
            disk = self.disk
            try:
                check_erasure(erasure)
            except InvalidInputError as error:
                return Refused(erasure.id, error)
            if erasure.id not in disk.ids:
                erased = disk.state(erasure.log)
                if erased is None:
                    return Refused(erasure.id, LogNotFoundError(erasure.log))
                if disk.faults and not disk.faults[0]:
                    disk.faults.pop(0)
                    self._in_doubt = True
                    self._unknown.add(erasure.id)
                    return Unknown(erasure.id, "scripted")
                dropped = disk.remove(erasure.log, drop_keys=erasure.drop_keys)
                staging = self._stage()
                staging.add(tombstone(erasure, erased, disk.state(SYSTEM), disk.store_id, dropped))
                (outcome,) = self._write(staging)
                if type(outcome) is Unknown:
                    return outcome
            self.fence(erasure.log, erasure.incarnation)
            return Durable(erasure.id)

    def prune_keys(
        self, now: int, window_ms: int, *, after: str = "", limit: int = KEYS_PRUNED_MAX, dry_run: bool = False
    ) -> KeysPruned:
        """See ``Store.prune_keys``."""
        with self._upkeep() as disk:
            return disk.prune(now, window_ms, after, max(limit, 1), dry_run=dry_run)

    def put_blob(self, data: bytes, time: int) -> str:
        """See ``Store.put_blob``."""
        name = hash_of(data)
        with self._upkeep() as disk:
            _, before = disk.blobs.get(name, (b"", time))
            disk.blobs[name] = data, max(time, before)
        return name

    def sweep_blobs(self, before: int, *, limit: int = BLOBS_SWEPT_MAX, dry_run: bool = False) -> BlobsSwept:
        """See ``Store.sweep_blobs``."""
        with self._upkeep() as disk:
            used = {name for name, _ in disk.blob_refs}
            old = [name for name, (_, time) in sorted(disk.blobs.items()) if time < before and name not in used]
            size = sum(len(disk.blobs[name][0]) for name in old[:limit])
            if not dry_run:
                for name in old[:limit]:
                    del disk.blobs[name]
            return BlobsSwept(len(old[:limit]), size, len(old) > limit)

    def health(self) -> StoreHealth:
        """See ``Store.health``; there is nothing on disk."""
        return StoreHealth(self._epoch, 0, "none", 0, 0, scrubbing=False, paths=())

    @contextmanager
    def _upkeep(self) -> Iterator[MemoryDisk]:
        """The disk, locked. Raises StoreError."""
        with self.disk.lock:
            refusal = self._ready()
            if refusal is not None:
                raise refusal
            yield self.disk

    def reader(self) -> MemoryReader:
        """A reader over the disk."""
        return MemoryReader(self.disk)

    def _ready(self) -> StoreError | None:
        """Why nothing can be written."""
        if self._closed:
            return StoreUnhealthyError("the store is closed")
        if self._epoch != self.disk.epoch:
            return OwnershipLostError(f"epoch {self._epoch} has given way to {self.disk.epoch}")
        if self._in_doubt:  # as on a fresh handle
            self.disk.epoch += 1
            self._epoch, self._in_doubt = self.disk.epoch, False
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

    def blob(self, hash: str) -> bytes:  # noqa: A002  (as in the contract)
        """See ``StoreReader.blob``."""
        with self._disk.lock:
            data = self._disk.blobs.get(hash, (None,))[0]
        if data is None:
            raise BlobNotFoundError(hash)
        if hash_of(data) != hash:
            raise CorruptionError(f"blob {hash}", "its content is not what its name says")
        return data

    def close(self) -> None:
        """Nothing to release."""


def _decode(part: StagedPart, rows: list[tuple[str, int, str]], from_seq: int) -> list[Event]:
    rare: dict[int, Rare] = {fields.place: fields for fields in part.rare}
    return [
        decode_event(kind, part.first + i, time, json.loads(data), rare.get(i))
        for i, (kind, time, data) in enumerate(rows)
        if part.first + i >= from_seq
    ]
