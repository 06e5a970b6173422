"""Reading the SQLite store: by the gateway beside its writer, or by tools while another process owns it."""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final, Literal

from seriatim.commits import Hot
from seriatim.errors import CorruptionError, LogCompactedError, LogNotFoundError, StoreUnhealthyError
from seriatim.events import Event, LogId
from seriatim.limits import STORE_READ_MS_MAX

from .blobs import BlobFolder, blobs_of
from .contract import Archive, Balance, Checkpoint, LogInfo
from .encoding import chain_start, from_json
from .files import connect_readonly, inspect_file, open_error
from .reading import Reading
from .schema import FORMAT, HOT
from .sqlite_growth import read_archive, read_checkpoint
from .staging import is_name


class _Hold:
    """How long a read has held its snapshot. ``since``: when it began, None without one."""

    since: float | None = None

    @property
    def ms(self) -> int:
        """Milliseconds, 0 without one; any thread."""
        since = self.since
        return 0 if since is None else int((time.monotonic() - since) * 1000)

    def is_overdue(self) -> int:
        """Called by SQLite's machine every so many steps; a snapshot held for long lets the WAL grow."""
        return int(self.ms > STORE_READ_MS_MAX)


class SqliteReader:
    """A read-only connection to the database at ``path``; it never takes over, repairs or checkpoints.

    Each call reads one consistent state and ends its transaction; one that takes longer than STORE_READ_MS_MAX fails
    with StoreUnhealthyError (held longer, it would let the WAL grow).
    Raises at open: HomeError, FormatUnsupportedError, CorruptionError, StoreUnhealthyError. Used by one
    thread at a time, which may be another than the constructor's.
    """

    def __init__(self, path: str | os.PathLike[str], *, busy_ms: int = 2000) -> None:
        self.path = os.fspath(path)
        version = inspect_file(self.path, write=False, busy_ms=busy_ms)
        if version != FORMAT:
            raise StoreUnhealthyError(f"{self.path}: has format {version}; its owner must open it first")
        self._connection: sqlite3.Connection | None = connect_readonly(self.path, busy_ms)
        self._store_id: str | None = None
        self._hold = _Hold()  # apart from the reader: the connection refers to it, and a circle would outlive its use
        self._connection.set_progress_handler(self._hold.is_overdue, _STEPS_BETWEEN_LOOKS)

    @property
    def store_id(self) -> str:
        """See ``StoreReader.store_id``."""
        if self._store_id is None:
            row = self._one("SELECT store_id FROM meta", [])
            assert row is not None
            self._store_id = str(row[0])
        return self._store_id

    def read(self, log: LogId, from_seq: int = 0, limit: int | None = None) -> list[Event]:
        """See ``StoreReader.read``. Checks each part that it touches, and the chain from the one before."""
        if limit is not None and limit <= 0:
            return []
        with self._reading() as connection:
            row = connection.execute(_LOG, [_name(log)]).fetchone()
            if row is None:
                return []
            number, header, base, chain_there = row
            if from_seq < base:
                raise LogCompactedError(log, base)
            parts = connection.execute(_BEFORE, [number, from_seq, base]).fetchall() if from_seq > base else []
            first = parts[0][0] if parts else base
            begin = chain_there if base else chain_start(log, header)
            crc = parts[1][2] if len(parts) > 1 else begin
            reading = Reading(self.path, log, number, first, crc, max(from_seq, 0))
            if len(parts) > 1 and parts[1][0] + parts[1][1] != first:
                raise reading.damaged(first, "a part is missing")
            place = [number, first, 1 if parts or base else 0]
            return reading.read(connection.execute(_PARTS, place), connection.execute(_EVENTS, place), limit)

    def archive(self, log: LogId) -> Archive | None:
        """See ``StoreReader.archive``."""
        with self._reading() as connection:
            return read_archive(connection, log)

    def checkpoint(self, log: LogId, of: Literal["state", "surface"]) -> Checkpoint | None:
        """See ``StoreReader.checkpoint``."""
        with self._reading() as connection:
            return read_checkpoint(connection, log, of)

    def header(self, log: LogId) -> dict[str, Any] | None:
        """See ``StoreReader.header``."""
        row = self._one("SELECT header FROM logs WHERE id = ?", [_name(log)])
        return None if row is None else self._parse_header(log, row[0])

    def binding(self, session: LogId) -> LogId | None:
        """See ``StoreReader.binding``."""
        row = self._one("SELECT lane FROM logs WHERE id = ?", [_name(session)])
        return None if row is None or row[0] is None else LogId(row[0])

    def logs(self, prefix: str, after: str = "", limit: int = 1000) -> list[LogId]:
        """See ``StoreReader.logs``; ordered by code point."""
        if limit <= 0 or not (prefix == "" or is_name(prefix)):
            return []
        with self._reading() as connection:
            rows = connection.execute(_PAGE, [max(prefix, after), after, _behind(prefix), limit])
            return [LogId(row[0]) for row in rows]

    def scan(self, prefix: str, after: str = "", limit: int = 1000) -> list[LogInfo]:
        """See ``StoreReader.scan``."""
        if limit <= 0 or not (prefix == "" or is_name(prefix)):
            return []
        with self._reading() as connection:
            rows = connection.execute(_SCAN, [max(prefix, after), after, _behind(prefix), limit])
            return [self._info(row) for row in rows]

    def info(self, log: LogId) -> LogInfo | None:
        """See ``StoreReader.info``."""
        row = self._one(_INFO, [_name(log)])
        return None if row is None else self._info(row)

    def _info(self, row: tuple[Any, ...]) -> LogInfo:
        log, header, number, lane, head, time, *hot = row
        counts = None if hot[0] is None else Hot(*hot)
        return LogInfo(LogId(log), self._parse_header(log, header), number, head or 0, time, lane, counts)

    def _parse_header(self, log: LogId, text: str) -> dict[str, Any]:
        try:
            header: dict[str, Any] = from_json(text)
        except ValueError:
            raise CorruptionError(log, "its header is not JSON", log=log, file=self.path) from None
        return header

    def open_work(self, after: LogId | None = None, limit: int | None = None) -> list[tuple[LogId, Hot]]:
        """See ``StoreReader.open_work``; answered from the partial index."""
        with self._reading() as connection:
            behind = 0
            if after is not None:
                found = connection.execute("SELECT n FROM logs WHERE id = ?", [_name(after)]).fetchone()
                if found is None:
                    raise LogNotFoundError(after)
                behind = found[0]
            rows = connection.execute(_OPEN_WORK, [behind, -1 if limit is None else max(limit, 0)])
            return [(LogId(row[0]), Hot(*row[1:])) for row in rows]

    def counters(self) -> Balance:
        """See ``StoreReader.counters``."""
        row = self._one(_COUNTERS, [])
        assert row is not None
        return Balance(*row)

    def has_keys(self, keys: Iterable[str]) -> set[str]:
        """See ``StoreReader.has_keys``."""
        names = json.dumps([key for key in keys if is_name(key)])
        with self._reading() as connection:
            rows = connection.execute("SELECT k.key FROM json_each(?) j JOIN keys k ON k.key = j.value", [names])
            return {row[0] for row in rows}

    def blob(self, hash: str) -> bytes:  # noqa: A002  (as in the contract)
        """See ``StoreReader.blob``."""
        return BlobFolder(blobs_of(self.path)).read(hash)

    @property
    def is_open(self) -> bool:
        """Whether it was not closed yet; any thread."""
        return self._connection is not None

    @property
    def held_ms(self) -> int:
        """How long the read that is under way has held its snapshot, 0 without one; any thread."""
        return self._hold.ms

    def close(self) -> None:
        """See ``StoreReader.close``."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _one(self, sql: str, values: list[Any]) -> tuple[Any, ...] | None:
        with self._reading() as connection:
            row: tuple[Any, ...] | None = connection.execute(sql, values).fetchone()
            return row

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        connection = self._connection
        if connection is None:
            raise StoreUnhealthyError("the reader is closed")
        try:
            self._hold.since = time.monotonic()
            try:
                connection.execute("BEGIN")
                yield connection
            finally:
                self._hold.since = None
                if connection.in_transaction:  # an I/O error has ended it already, and is the error to tell
                    connection.execute("ROLLBACK")
        except sqlite3.Error as error:
            if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_INTERRUPT:
                raise StoreUnhealthyError(f"a read took longer than {STORE_READ_MS_MAX} ms; read in pages") from None
            raise open_error(self.path, error) from None


_STEPS_BETWEEN_LOOKS: Final = 20_000
"""Of SQLite's machine: about a millisecond."""

_LOG: Final = """
SELECT l.n, l.header, coalesce(a.base, 0), a.chain FROM logs l LEFT JOIN archives a ON a.log = l.n WHERE l.id = ?"""
_BEFORE: Final = """
SELECT first, count, crc FROM commits WHERE log = ? AND first <= ? AND first >= ?
ORDER BY first DESC, count DESC LIMIT 2"""
_PARTS: Final = """
SELECT first, count, crc, id FROM commits
WHERE log = ? AND (first, count) >= (?, ?) ORDER BY first, count"""
_EVENTS: Final = """
SELECT e.log, e.seq, e.type, e.time, e.data, e.source_event_seqs, e.surface_op, e.ignorable
FROM commits c JOIN events e ON e.at BETWEEN c.at AND c.at + c.count - 1
WHERE c.log = ? AND (c.first, c.count) >= (?, ?) ORDER BY c.first, c.count, e.at"""
_OPEN_WORK: Final = f"""
SELECT l.id, {", ".join("h." + name for name in HOT)}
FROM lanes h INDEXED BY lanes_open JOIN logs l ON l.n = h.log
WHERE h.open_turn + h.waiting + h.owed > 0 AND h.log > ? ORDER BY h.log LIMIT ?"""  # noqa: S608 - the schema's own names
_INFOS: Final = f"""
SELECT l.id, l.header, l.n, l.lane, c.first + c.count, e.time, {", ".join("h." + name for name in HOT)}
FROM logs l
LEFT JOIN commits c ON c.log = l.n AND (c.first, c.count) = (
  SELECT first, count FROM commits WHERE log = l.n ORDER BY first DESC, count DESC LIMIT 1)
LEFT JOIN events e ON e.at = c.at + c.count - 1 AND c.count > 0
LEFT JOIN lanes h ON h.log = l.n"""  # noqa: S608 - the schema's own names
_INFO: Final = f"{_INFOS} WHERE l.id = ?"
# The plus keeps the index off the second bound: it would start at the first, and walk all pages before this one.
_SCAN: Final = f"{_INFOS} WHERE l.id >= ? AND +l.id > ? AND l.id < ? ORDER BY l.id LIMIT ?"
_PAGE: Final = "SELECT id FROM logs WHERE id >= ? AND +id > ? AND id < ? ORDER BY id LIMIT ?"
_COUNTERS: Final = f"""
SELECT {", ".join(f"coalesce(sum({n}), 0)" for n in ("accepted", "answered", "merged", "dropped", "waiting"))}
FROM lanes"""  # noqa: S608 - own names


def _behind(prefix: str) -> str | bytes:
    """The first text that sorts behind all that begin with ``prefix``; SQLite puts a blob behind every text."""
    stem = prefix.rstrip("\U0010ffff")
    if not stem:
        return b""
    following = ord(stem[-1]) + 1
    return stem[:-1] + chr(0xE000 if following == 0xD800 else following)


def _name(log: LogId) -> str | None:
    # What can't be a name can't be in the store; SQLite would fail on a lone surrogate.
    return log if is_name(log) else None
