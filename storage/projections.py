"""Making anew what only repeats the logs: the index of open work, its counters, the checkpoints (law 3).

For a home that nobody serves; the caller owns it. Logs, archives and unique keys are read and never written.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator

from seriatim.commits import Hot
from seriatim.events import LogId
from seriatim.lane import LaneState, apply_lane, hot
from seriatim.snapshots import lane_from_snapshot

from .checkpoints import read_whole
from .contract import StoreReader
from .files import open_error
from .schema import HOT
from .sqlite_reader import SqliteReader


def rebuild(path: str | os.PathLike[str], *, busy_ms: int = 2000) -> int:
    """Fold each lane log, write its row of the index anew, drop every checkpoint; how many rows were wrong or missing.

    Memory in proportion to one lane. All or nothing. Raises CorruptionError for a log that can't be read: its lane's
    row may be all that is known of it.
    """
    reader = SqliteReader(path, busy_ms=busy_ms)
    try:
        connection = sqlite3.connect(path, timeout=busy_ms / 1000, isolation_level=None)
        try:
            return _rebuild(connection, reader)
        except sqlite3.Error as error:
            raise open_error(os.fspath(path), error) from None
        finally:
            connection.close()
    finally:
        reader.close()


def _rebuild(connection: sqlite3.Connection, reader: StoreReader) -> int:
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("BEGIN IMMEDIATE")
    try:
        wrong = 0
        for log in _lanes(reader):
            told = _row(folded(reader, log))
            found = connection.execute(_FIND, [log]).fetchone()
            if found != told:
                wrong += 1
                connection.execute(_WRITE, [*told, log])
        connection.execute("DELETE FROM checkpoints")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return wrong


def folded(reader: StoreReader, log: LogId) -> LaneState:
    """The lane part of a lane's state by archive and events, whatever checkpoints say. Raises CorruptionError."""
    key = log.removeprefix("lane:")
    archive, events = read_whole(reader, log)
    state = LaneState(key) if archive is None else lane_from_snapshot(key, archive.version, archive.data)
    for event in events:
        apply_lane(state, event)
    return state


def _lanes(reader: StoreReader) -> Iterator[LogId]:
    after = ""
    while page := reader.logs("lane:", after):
        yield from page
        after = page[-1]


def _row(state: LaneState) -> tuple[object, ...]:
    row: Hot = hot(state)
    return tuple(getattr(row, name) for name in HOT)


_FIND = f"SELECT {', '.join(HOT)} FROM lanes WHERE log = (SELECT n FROM logs WHERE id = ?)"  # noqa: S608 - own names
_WRITE = f"""
INSERT OR REPLACE INTO lanes({", ".join(HOT)}, log)
SELECT {", ".join("?" * len(HOT))}, n FROM logs WHERE id = ?"""  # noqa: S608 - own names
