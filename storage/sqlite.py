"""The gateway's store on SQLite: the writer. ``sqlite_reader`` has the reader, ``schema`` the tables.

One handle owns the file: it raised the epoch when it opened, and the trigger that writes a group compares
it. A group is staged in Python (``staging``) against cached heads, then written by one SQL step. What the
cache can't know, whether keys and commit ids are in the store already, the tables' own uniqueness says; only
then, or when a check has refused something, are they looked up.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import threading
import uuid
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final
from weakref import WeakSet

from seriatim.commits import Commit, Durable, Outcome, Refused, Unknown
from seriatim.errors import (
    HomeError,
    InvalidInputError,
    LogNotFoundError,
    OwnershipLostError,
    StoreError,
    StoreUnhealthyError,
)
from seriatim.events import LogId
from seriatim.limits import BLOBS_SWEPT_MAX, KEYS_PRUNED_MAX, STORE_LOGS_CACHED_MAX, WAL_CUT_BYTES

from .blobs import BlobFolder, blobs_of
from .contract import Archive, BlobsSwept, Checkpoint, Erasure, KeysPruned, StoreHealth
from .encoding import chain_start
from .erasing import SYSTEM, check_erasure, tombstone
from .files import alone_in, connect_readonly, create_private, error_name, inspect_file, mend_mode, open_error, uri_of
from .places import Place, place_of
from .plain import PlainGroup, stage_plain
from .rows import NO_ROW, lay_out, padded, statement
from .schema import COLUMNS, FORMAT, migrate, restore_writer
from .sqlite_growth import compact, keep
from .sqlite_reader import SqliteReader
from .sqlite_upkeep import prune, referenced, remove_log
from .staging import LogState, Staging, is_name, stage
from .views import restore_views
from .wal import WalWatch

_LOCKED: Final = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL)
_DAMAGED: Final = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_STATEMENTS_CACHED: Final = 32

_LEFT: Final[list[sqlite3.Connection]] = []
"""Connections never to be closed, because closing checkpoints: those that a fork copied (under the owner's feet), and
those whose files were taken away (over newer ones)."""


class SqliteStore:
    """Owner of the database at ``path``; opening takes over and creates what is missing.

    ``busy_ms``: how long to wait for a lock that another program holds on the file. Raises, before a byte is
    changed: HomeError, ReadOnlyError, FormatUnsupportedError, CorruptionError, StoreUnhealthyError.
    All calls come from one thread at a time; the constructor may run on another.
    """

    def __init__(self, path: str | os.PathLike[str], *, busy_ms: int = 2000) -> None:
        self.path = os.fspath(path)
        self._busy_ms = busy_ms
        self._owner = uuid.uuid4().hex
        self._process = os.getpid()
        self._connection: sqlite3.Connection | None = None
        self._epoch = 0
        self._fences: dict[LogId, int] = {}
        self._logs: dict[LogId, LogState] = {}
        self._unknown: set[str] = set()
        self._next_log = self._next_at = 1
        self._lost: OwnershipLostError | None = None
        self._findable = True
        self._closed = False
        self._rows_max = 0
        self._blobs = BlobFolder(blobs_of(self.path))
        self._wal = WalWatch(self.path)
        self._readers: WeakSet[SqliteReader] = WeakSet()
        self._readers_lock = threading.Lock()
        real = os.path.realpath(self.path)
        self._paths = (real, real + "-wal", real + "-shm", os.path.realpath(self._blobs.folder))
        self._files: tuple[Place, Place] = (None, None)
        version = inspect_file(self.path, write=True, busy_ms=busy_ms)
        try:
            for suffix in ("", "-wal", "-shm"):
                mend_mode(self.path + suffix, 0o600)
            if version < FORMAT:
                self._make()
            self._open(first=True)
        except sqlite3.Error as error:
            raise open_error(self.path, error) from None
        except OSError as error:
            raise HomeError(self.path, f"can't be made ({error.strerror})") from None

    @property
    def epoch(self) -> int:
        """See ``Store.epoch``."""
        return self._epoch

    def commit(self, commits: Sequence[Commit]) -> list[Outcome]:
        """See ``Store.commit``."""
        outcomes: list[Outcome] = []
        while len(outcomes) < len(commits):
            group = commits[len(outcomes) :] if outcomes else commits
            refusal = self._ready()
            if refusal is None:
                answered = self._group(group)
                if self._unknown:
                    self._unknown.difference_update(o.commit for o in answered if type(o) is not Unknown)
                outcomes += answered
                self._tend()
            else:
                outcomes += [
                    self._doubt(c.id, refusal) if c.id in self._unknown else Refused(c.id, refusal) for c in group
                ]
        return outcomes

    def fence(self, lane: LogId, incarnation: int) -> None:
        """See ``Store.fence``; a fence never goes back."""
        self._fences[lane] = max(incarnation, self._fences.get(lane, incarnation))

    def keep(self, checkpoints: Sequence[Checkpoint]) -> int:
        """See ``Store.keep``."""
        if self._ready() is not None or self._connection is None:
            return 0
        try:
            return keep(self._connection, self._epoch, checkpoints)
        except sqlite3.Error as error:
            self._distrust(error)
            return 0

    def compact(self, archive: Archive, parts_max: int) -> bool:
        """See ``Store.compact``."""
        refusal = self._ready()
        if refusal is not None:
            raise refusal
        assert self._connection is not None
        try:
            return compact(self._connection, self._epoch, archive, parts_max)
        except sqlite3.Error as error:
            self._distrust(error)
            raise StoreUnhealthyError(f"the log can't be compacted ({error_name(error)})") from None

    def erase(self, erasure: Erasure) -> Outcome:
        """See ``Store.erase``."""
        refusal = self._ready()
        if refusal is not None:
            return self._doubt(erasure.id, refusal) if erasure.id in self._unknown else Refused(erasure.id, refusal)
        try:
            check_erasure(erasure)
            self._erase(erasure)
        except (StoreError, InvalidInputError) as error:
            return Refused(erasure.id, error)
        except sqlite3.Error as error:
            if error.sqlite_errorcode & 0xFF in _LOCKED and erasure.id not in self._unknown:
                return Refused(erasure.id, StoreUnhealthyError("the database is locked by another program"))
            self._poison([erasure])
            return Unknown(erasure.id, error_name(error))
        self._unknown.discard(erasure.id)
        self.fence(erasure.log, erasure.incarnation)
        return Durable(erasure.id)

    def prune_keys(
        self, now: int, window_ms: int, *, after: str = "", limit: int = KEYS_PRUNED_MAX, dry_run: bool = False
    ) -> KeysPruned:
        """See ``Store.prune_keys``."""
        with self._upkeep() as connection:
            return prune(connection, self._next_at, now, window_ms, after, max(limit, 1), dry_run=dry_run)

    def put_blob(self, data: bytes, time: int) -> str:
        """See ``Store.put_blob``."""
        if os.getpid() != self._process:
            raise OwnershipLostError("the store belongs to the process that forked this one")
        if self._lost is not None:
            raise self._lost
        if self._closed:
            raise StoreUnhealthyError("the store is closed")
        return self._blobs.put(data, time)

    def sweep_blobs(self, before: int, *, limit: int = BLOBS_SWEPT_MAX, dry_run: bool = False) -> BlobsSwept:
        """See ``Store.sweep_blobs``."""

        def ask(hashes: Collection[str]) -> set[str]:
            with self._upkeep() as connection:
                return referenced(connection, hashes)

        ask(())  # whoever has lost the store must not sweep it
        try:
            return self._blobs.sweep(before, ask, limit, dry_run=dry_run)
        except OSError as error:
            raise StoreUnhealthyError(f"blobs can't be swept ({error.strerror})") from None

    def health(self) -> StoreHealth:
        """See ``Store.health``."""
        with self._readers_lock:
            held = [reader.held_ms for reader in self._readers if reader.is_open]
        wal = self._wal
        return StoreHealth(
            self._epoch, wal.bytes, wal.result, len(held), max(held, default=0), wal.must_cut, self._paths
        )

    def reader(self) -> SqliteReader:
        """A read-only connection of its own. Raises StoreUnhealthyError or CorruptionError."""
        reader = SqliteReader(self.path, busy_ms=self._busy_ms)
        with self._readers_lock:
            self._readers.add(reader)
        return reader

    def close(self) -> None:
        """Checkpoint and release; in a forked child only forget. Idempotent, never raises."""
        self._closed = True
        connection, self._connection = self._connection, None
        if connection is None:
            return
        if os.getpid() != self._process or self._moved():
            _LEFT.append(connection)
            return
        with contextlib.suppress(sqlite3.Error):  # else the WAL stays and is read at the next open
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        _close(connection)

    # Opening

    def _make(self) -> None:
        """Make the file, or bring it to today's format; one opener at a time."""
        with alone_in(str(Path(self.path).absolute().parent), self._busy_ms):
            version = inspect_file(self.path, write=True, busy_ms=self._busy_ms)
            if version < FORMAT:  # else somebody did it while we waited
                create_private(self.path)
                migrate(self.path, uuid.uuid4().hex, self._busy_ms)

    def _ready(self) -> StoreError | None:
        """Why nothing can be committed now; reopens after an I/O error."""
        if self._lost is not None:
            return self._lost
        if os.getpid() != self._process:
            return OwnershipLostError("the store belongs to the process that forked this one")
        if self._closed:
            return StoreUnhealthyError("the store is closed")
        if self._connection is not None:
            return None
        try:
            if inspect_file(self.path, write=True, busy_ms=self._busy_ms) != FORMAT:
                return StoreUnhealthyError(f"{self.path}: the database is gone; put it back, or start again")
            self._open(first=False)
        except OwnershipLostError as error:
            self._lost = error
            return error
        except StoreError as error:
            return error
        except HomeError as error:
            return StoreUnhealthyError(str(error))
        except sqlite3.Error as error:
            return open_error(self.path, error)
        return None

    def _open(self, *, first: bool) -> None:
        """Connect, checkpoint, raise the epoch durably; only then is anything read from the file trusted.

        Frames that an earlier failed sync left in the WAL look absent now and present after a crash; the
        new epoch's frame overwrites them.
        """
        connection = sqlite3.connect(
            uri_of(self.path, "mode=rw"),  # never makes a file
            uri=True,
            timeout=self._busy_ms / 1000,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=_STATEMENTS_CACHED,
        )
        try:
            _configure(connection, self.path)
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            connection.execute("BEGIN IMMEDIATE")
            if not first:
                self._check_owner(connection)
            self._load_numbers(connection)  # first of all: damage there is found before a byte is changed
            connection.execute("UPDATE meta SET epoch = epoch + 1, owner = ?", [self._owner])
            (epoch,) = connection.execute("SELECT epoch FROM meta").fetchone()
            restore_views(connection)
            restore_writer(connection)
            connection.execute("COMMIT")
            self._files = (place_of(self.path), place_of(self.path + "-wal"))
        except BaseException:
            _close(connection)
            raise
        self._connection, self._epoch = connection, epoch
        # All of a statement's parameters at once: 32,766 in a plain build of SQLite.
        self._rows_max = connection.getlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER) // len(COLUMNS)

    def _check_owner(self, connection: sqlite3.Connection) -> None:
        """An owner that comes back after an I/O error must not take the store from a newer one."""
        (owner,) = connection.execute("SELECT owner FROM meta").fetchone()
        if owner != self._owner:
            raise OwnershipLostError(f"epoch {self._epoch} has given way to another owner")

    def _check_epoch(self, connection: sqlite3.Connection) -> None:
        if connection.execute("SELECT epoch FROM meta").fetchone() != (self._epoch,):
            raise self._lose()

    def _lose(self) -> OwnershipLostError:
        self._lost = OwnershipLostError(f"epoch {self._epoch} has given way to another owner")
        return self._lost

    def _load_numbers(self, connection: sqlite3.Connection) -> None:
        self._logs.clear()
        # An erased log's number is known from its commits alone.
        (self._next_log,) = connection.execute(_NEXT_LOG).fetchone()
        (self._next_at,) = connection.execute("SELECT coalesce(max(at), 0) + 1 FROM events").fetchone()

    # A group

    def _group(self, commits: Sequence[Commit]) -> list[Outcome]:
        count = 0
        try:
            plain = stage_plain(commits, self._logs, self._fences, self._epoch, self._next_at)
            if plain is not None:
                count = len(commits)
                return self._write_plain(commits, plain)
            self._prefetch(commits)
            staging = Staging(self._view_cached, self._fences, self._next_log, has_blob=self._blobs.has)
            count = stage(staging, commits)
            refused = staging.refused()
            if refused:
                staging.correct(*self._find(refused))
            return self._write_staged(staging)
        except sqlite3.IntegrityError as error:
            return self._group_exact(commits[:count], error)
        except sqlite3.Error as error:
            return self._failed(commits, error)
        except BaseException:
            self._poison(commits)  # an interrupt may have come between the step and its bookkeeping
            raise

    def _group_exact(self, commits: Sequence[Commit], error: sqlite3.IntegrityError) -> list[Outcome]:
        """Something is in the store already, or the epoch is old: look up what, offer the rest again."""
        if error.sqlite_errorcode == sqlite3.SQLITE_CONSTRAINT_TRIGGER:
            lost = self._lose()
            return [Refused(c.id, lost) for c in commits]
        try:
            connection = self._connection
            assert connection is not None
            self._load_numbers(connection)
            ids, keys = self._find(commits)
            staging = Staging(self._view, self._fences, self._next_log, ids, keys, self._blobs.has)
            for commit in commits:
                staging.add(commit)
            return self._write_staged(staging)
        except sqlite3.IntegrityError as again:
            if len(commits) > 1:  # one of them carries a value that the tables don't take
                return [outcome for c in commits for outcome in self._group_exact([c], error)]
            refusal = InvalidInputError("commit", f"the database refuses it ({error_name(again)})")
            return [Refused(commits[0].id, refusal)]
        except sqlite3.Error as again:
            return self._failed(commits, again)

    def _write_staged(self, staging: Staging) -> list[Outcome]:
        """Write what a staging took, and answer its commits. Raises sqlite3.IntegrityError; nothing is written then."""
        if not staging.staged:
            return staging.finish(None)
        values, rows, at = lay_out(staging.staged, self._epoch, self._next_at)
        fate = self._write([staged.commit for staged in staging.staged], values, rows, at)
        if fate is None:
            self._next_log = staging.next_log
            logs = self._logs
            logs.update(staging.logs)
            if len(logs) > STORE_LOGS_CACHED_MAX:
                for log in list(logs)[: len(logs) - STORE_LOGS_CACHED_MAX * 3 // 4]:
                    del logs[log]
        return staging.finish(fate)

    def _write_plain(self, commits: Sequence[Commit], group: PlainGroup) -> list[Outcome]:
        """The same for a plain group."""
        fate = self._write(commits, group.values, group.rows, group.at)
        if fate is None:
            group.settle()
        return group.finish(fate)

    def _write(self, commits: Sequence[Commit], values: list[Any], rows: int, at: int) -> StoreError | str | None:
        """One SQL step for all rows; the commits' fate, as ``Staging.finish`` takes it.

        ``at``: where the next event goes. Raises sqlite3.IntegrityError; nothing is written then.
        """
        connection = self._connection
        assert connection is not None
        # Before, since a write might go over a newer file; and after, since nobody would find it.
        taken_away = place_of(self.path + "-wal") != self._files[1]
        try:
            if not taken_away:
                self._insert(connection, values, rows)
        except sqlite3.IntegrityError:
            raise
        except sqlite3.Error as error:
            return self._failed_write(commits, error)
        if taken_away or self._moved():
            return self._taken_away(commits)
        self._next_at = at
        return None

    def _insert(self, connection: sqlite3.Connection, values: list[Any], rows: int) -> None:
        size = padded(rows)
        if size > self._rows_max >= rows:
            size = self._rows_max
        if size > self._rows_max:
            self._insert_steps(connection, values, rows)
        else:
            values += NO_ROW * (size - rows)
            connection.execute(statement(size), values)

    def _insert_steps(self, connection: sqlite3.Connection, values: list[Any], rows: int) -> None:
        """More rows than one statement takes parameters (over 300 turns in a plain build): several steps."""
        width = len(COLUMNS)
        connection.execute("BEGIN IMMEDIATE")
        try:
            for start in range(0, rows, self._rows_max):
                chunk = values[start * width : (start + self._rows_max) * width]
                chunk += NO_ROW * (self._rows_max - len(chunk) // width)
                connection.execute(statement(self._rows_max), chunk)
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise

    # Upkeep

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """A transaction beside group commits, under this epoch. Raises StoreError and sqlite3.Error."""
        refusal = self._ready()
        if refusal is not None:
            raise refusal
        connection = self._connection
        assert connection is not None
        if self._moved():
            self._poison(())
            raise StoreUnhealthyError("the database's files were taken away")
        connection.execute("BEGIN IMMEDIATE")
        try:
            self._check_epoch(connection)
            yield connection
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise

    @contextlib.contextmanager
    def _upkeep(self) -> Iterator[sqlite3.Connection]:
        """The same for work that may be done again whatever became of it. Raises StoreError."""
        try:
            with self._transaction() as connection:
                yield connection
        except sqlite3.Error as error:
            self._distrust(error)
            raise StoreUnhealthyError(f"upkeep failed ({error_name(error)})") from None

    def _erase(self, erasure: Erasure) -> None:
        """Raises sqlite3.Error besides StoreError."""
        connection = self._connection
        assert connection is not None
        (usual,) = connection.execute("PRAGMA secure_delete").fetchone()
        connection.execute("PRAGMA secure_delete = 1")  # freed bytes become zeros in the pages that are written
        try:
            with self._transaction():
                if connection.execute(_FIND_IDS, [json.dumps([erasure.id])]).fetchone() is not None:
                    return
                erased = self._view(erasure.log, False)
                if erased is None:
                    raise LogNotFoundError(erasure.log)
                dropped = remove_log(connection, erased.number, erasure.log, drop_keys=erasure.drop_keys)
                staging = Staging(self._view, {}, self._next_log)
                (store_id,) = connection.execute("SELECT store_id FROM meta").fetchone()
                staging.add(tombstone(erasure, erased, self._view(SYSTEM, False), store_id, dropped))
                values, rows, at = lay_out(staging.staged, self._epoch, self._next_at)
                self._insert(connection, values, rows)
        finally:
            connection.execute(f"PRAGMA secure_delete = {usual}")
        self._next_log, self._next_at = staging.next_log, at
        self._logs.clear()  # bindings have changed
        self._wal.must_cut = True
        with contextlib.suppress(sqlite3.Error):  # tried again with later commits
            self._wal.cut(connection)

    def _tend(self) -> None:
        """Keep the write-ahead log short."""
        if self._connection is not None:
            try:
                self._wal.tend(self._connection, self._next_at)
            except sqlite3.Error as error:
                self._distrust(error)

    # Failing

    def _failed_write(self, commits: Sequence[Commit], error: sqlite3.Error) -> StoreError | str:
        """The fate of commits whose write failed: surely absent (an error), or unknown (a text)."""
        code = error.sqlite_errorcode & 0xFF
        if self._unknown.isdisjoint(c.id for c in commits):  # else an earlier try may have been durable
            if code in _LOCKED:
                return StoreUnhealthyError("the database is locked by another program")
            if code in _DAMAGED:
                # Found while pages were read, before any was written. Nothing more is accepted on such ground.
                self._poison(())
                return StoreUnhealthyError(f"the database is damaged ({error_name(error)}); it needs to be repaired")
            if code == sqlite3.SQLITE_FULL and self._ends_whole():
                self._poison(())
                return StoreUnhealthyError(f"the disk is full ({error_name(error)})")
        self._poison(commits)
        return error_name(error)

    def _ends_whole(self) -> bool:
        """Whether a commit that found no room is surely absent, now and after a crash.

        SQLite says FULL of a write alone (a sync that finds no room is an I/O error), and writes a transaction's commit
        frame last: what stopped short of it is never found. Unless this build pads the log behind that frame.
        """
        connection = self._connection
        try:
            assert connection is not None
            asked = connection.execute("SELECT sqlite_compileoption_used('POWERSAFE_OVERWRITE=0')")
            return bool(asked.fetchone() == (0,))
        except sqlite3.Error:
            return False

    def _failed(self, commits: Sequence[Commit], error: sqlite3.Error) -> list[Outcome]:
        """A look-up failed before anything was written; an earlier doubt about a commit stays."""
        refusal = StoreUnhealthyError(f"the database can't be read ({error_name(error)})")
        if getattr(error, "sqlite_errorcode", 0) & 0xFF not in _LOCKED:
            self._poison(())
        return [Unknown(c.id, str(refusal)) if c.id in self._unknown else Refused(c.id, refusal) for c in commits]

    def _distrust(self, error: sqlite3.Error) -> None:
        """Upkeep failed: unless it only found the file locked, the handle goes, as after a failed commit."""
        if getattr(error, "sqlite_errorcode", 0) & 0xFF not in _LOCKED:
            self._poison(())

    def _doubt(self, commit: str, refusal: StoreError) -> Outcome:
        """The outcome of a commit once unknown while this handle can't write.

        A newer owner's epoch has made it final, so it can be looked up; otherwise the doubt stays.
        """
        if refusal is not self._lost or not self._findable:
            return Unknown(commit, "still failing")
        try:
            connection = connect_readonly(self.path, self._busy_ms)
            try:
                found = connection.execute(_FIND_IDS, [json.dumps([commit])]).fetchone()
            finally:
                connection.close()
        except sqlite3.Error as error:
            return Unknown(commit, error_name(error))
        return Refused(commit, refusal) if found is None else Durable(commit)

    def _poison(self, commits: Iterable[Commit | Erasure]) -> None:
        """Drop the handle: after a failed write or sync nothing that it says can be trusted."""
        self._unknown.update(c.id for c in commits)
        connection, self._connection = self._connection, None
        self._logs.clear()
        if connection is None:
            return
        if self._moved():
            _LEFT.append(connection)
        else:
            _close(connection)

    def _taken_away(self, commits: Sequence[Commit]) -> str:
        """Stop writing for good: this process goes on seeing the old files, and a new handle would see them too.

        What was just written may lie in a file that nobody finds again, so it stays unknown until the next start.
        """
        self._poison(commits)
        self._lost = OwnershipLostError("the database's files were removed or replaced while it was open; start again")
        self._findable = False
        return str(self._lost)

    def _moved(self) -> bool:
        """Whether the database or its WAL is no longer the file that this handle opened."""
        return self._files != (place_of(self.path), place_of(self.path + "-wal"))

    # Looking up

    def _view_cached(self, log: LogId, new: bool) -> LogState | None:
        state = self._logs.get(log)
        # A log believed new is left to the uniqueness of logs.id: no look-up on the common path.
        return state if state is not None or new else self._view(log, new)

    def _view(self, log: LogId, new: bool) -> LogState | None:
        if log not in self._logs:
            self._load([log])
        return self._logs.get(log)

    def _prefetch(self, commits: Sequence[Commit]) -> None:
        """Look up in one step the logs of the group that aren't cached."""
        known = self._logs
        missing = {
            part.log for commit in commits for part in commit.parts if part.log not in known and part.header is None
        }
        for commit in commits:
            if commit.bindings:
                missing.update(b.session for b in commit.bindings if b.session not in known)
        if missing:
            self._load(missing)

    def _load(self, logs: Iterable[LogId]) -> None:
        connection = self._connection
        assert connection is not None
        names = json.dumps([log for log in logs if is_name(log)])
        for log, number, lane, header, head, crc in connection.execute(_LOAD, [names]):
            start = chain_start(log, header) if crc is None else crc
            self._logs[log] = LogState(number, head or 0, start, lane)

    def _find(self, commits: Sequence[Commit]) -> tuple[set[str], set[str]]:
        """Ids and keys of ``commits`` that are in the store."""
        connection = self._connection
        assert connection is not None
        ids = json.dumps([c.id for c in commits if is_name(c.id)])
        keys = json.dumps([key for c in commits for key in c.unique if is_name(key)])
        found_ids = {row[0] for row in connection.execute(_FIND_IDS, [ids])}
        return found_ids, {row[0] for row in connection.execute(_FIND_KEYS, [keys])}


_LOAD: Final = """
SELECT l.id, l.n, l.lane, l.header, c.first + c.count, c.crc
FROM json_each(?) j JOIN logs l ON l.id = j.value LEFT JOIN commits c ON c.log = l.n
  AND (c.first, c.count) = (
    SELECT first, count FROM commits WHERE log = l.n ORDER BY first DESC, count DESC LIMIT 1)"""
_NEXT_LOG: Final = """
SELECT max((SELECT coalesce(max(n), 0) FROM logs), (SELECT coalesce(max(log), 0) FROM commits)) + 1"""
_FIND_IDS: Final = "SELECT c.id FROM json_each(?) j JOIN commits c ON c.id = j.value AND c.part = 0"
_FIND_KEYS: Final = "SELECT k.key FROM json_each(?) j JOIN keys k ON k.key = j.value"


def _configure(connection: sqlite3.Connection, path: str) -> None:
    """Settings of a writing connection; raises where one didn't take."""
    (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise HomeError(path, f"the file system gives no write-ahead log ({mode})")
    connection.execute("PRAGMA synchronous = FULL")
    (level,) = connection.execute("PRAGMA synchronous").fetchone()
    if level != 2:
        raise HomeError(path, "synchronous=FULL didn't take")
    for setting in (
        "temp_store = MEMORY",  # spilled text must not leave the home
        "fullfsync = 1",  # macOS: fsync alone stops at the drive's cache
        "checkpoint_fullfsync = 1",
        "cell_size_check = 1",
        "cache_size = -16000",
        f"journal_size_limit = {WAL_CUT_BYTES}",
        "wal_autocheckpoint = 0",  # ``wal`` does it
    ):
        connection.execute(f"PRAGMA {setting}")


def _close(connection: sqlite3.Connection) -> None:
    with contextlib.suppress(sqlite3.Error):  # nothing more can be done, and the file says what is durable
        connection.close()
