"""The SQLite store's rare work beside group commits: erasing logs, forgetting old unique keys, who refers to blobs.

Each function runs inside a transaction that the writer has begun and under whose epoch it has looked. They know the
tables, and nothing of handles and failures.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection
from typing import Final

from seriatim.limits import KEY_MARKS_MAX

from .contract import KeysPruned

_OF_A_LOG: Final = ("lanes", "checkpoints", "archives", "blob_refs")
"""Tables with a column ``log`` whose rows go with it. A new one of the kind belongs here."""


def remove_log(connection: sqlite3.Connection, number: int, name: str, *, drop_keys: bool) -> int:
    """Remove what a log holds; how many unique keys went with it.

    Its rows in ``commits`` stay, without their checksums: a commit's id must stay known, and the number must not be
    given again. One pass over all keys if they are to be dropped: they have no index by log, which would cost every
    commit.
    """
    connection.execute(
        "DELETE FROM events WHERE at IN (SELECT e.at FROM commits c JOIN events e"
        " ON e.at BETWEEN c.at AND c.at + c.count - 1 WHERE c.log = ? AND e.log = c.log)",
        [number],
    )
    connection.execute("UPDATE commits SET crc = 0 WHERE log = ?", [number])
    for table in _OF_A_LOG:
        connection.execute(f"DELETE FROM {table} WHERE log = ?", [number])  # noqa: S608 - own names
    connection.execute("DELETE FROM logs WHERE n = ?", [number])
    connection.execute("UPDATE logs SET lane = NULL WHERE lane = ?", [name])
    return connection.execute("DELETE FROM keys WHERE log = ?", [number]).rowcount if drop_keys else 0


def prune(
    connection: sqlite3.Connection, next_at: int, now: int, window_ms: int, after: str, limit: int, *, dry_run: bool
) -> KeysPruned:
    """See ``Store.prune_keys``. ``next_at``: where the events end now."""
    if not dry_run:
        _mark(connection, next_at, now, window_ms)
    mark = connection.execute(_MARK, [now - window_ms]).fetchone()
    rows = connection.execute(_KEYS, [after, limit]).fetchall()
    old = [key for key, at in rows if mark is not None and at < mark[1]]
    if mark is not None and not dry_run:
        connection.execute("DELETE FROM keys WHERE key IN (SELECT value FROM json_each(?))", [json.dumps(old)])
        connection.execute("DELETE FROM key_marks WHERE time < ?", [mark[0]])  # they say nothing any more
    return KeysPruned(len(old), len(rows), rows[-1][0] if len(rows) == limit else None)


def _mark(connection: sqlite3.Connection, next_at: int, now: int, window_ms: int) -> None:
    """Remember where the events end at this time, unless that was done a moment ago."""
    connection.execute("DELETE FROM key_marks WHERE time > ?", [now])  # made by a clock that was ahead
    (newest,) = connection.execute("SELECT max(time) FROM key_marks").fetchone()
    if newest is None or now - newest >= max(window_ms // KEY_MARKS_MAX, 1):
        connection.execute("INSERT INTO key_marks VALUES (?, ?)", [now, next_at])


def referenced(connection: sqlite3.Connection, hashes: Collection[str]) -> set[str]:
    """Those of the blobs to which a log refers."""
    names = json.dumps(list(hashes))
    return {row[0] for row in connection.execute(_REFERENCED, [names])}


_MARK: Final = "SELECT time, at FROM key_marks WHERE time <= ? ORDER BY time DESC LIMIT 1"
_REFERENCED: Final = "SELECT hash FROM blob_refs WHERE hash IN (SELECT value FROM json_each(?))"
_KEYS: Final = "SELECT key, at FROM keys WHERE key > ? ORDER BY key LIMIT ?"
