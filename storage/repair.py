"""Salvage of a damaged database into a new file. The damaged one is only read.

Log by log: what can't be read whole stays behind, and is named. Nothing is mended, guessed or cut short, so that what
is in the new file is what was written, checksums included.
"""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import Final

from attrs import Factory, define

from seriatim.errors import HomeError, SeriatimError
from seriatim.events import LogId

from .checkpoints import read_whole
from .files import connect_readonly, error_name, inspect_file
from .schema import FORMAT
from .sqlite import SqliteStore
from .sqlite_reader import SqliteReader

_BUSY_MS: Final = 2000
_BY_LOG: Final = ("commits", "lanes", "archives")
"""Tables whose rows belong to a log; ``checkpoints`` only repeat what others hold, and are left behind."""


@define
class Salvaged:
    """What came of it. ``logs``: copied whole. ``lost``: log (or number of one without a name) and why.

    ``keys``: known messages copied; ``keys_whole``: whether these are all, else an old message that is given again may
    be taken for a new one.
    """

    logs: int = 0
    events: int = 0
    keys: int = 0
    keys_whole: bool = True
    lost: dict[str, str] = Factory(dict)

    @property
    def whole(self) -> bool:
        """Whether nothing was lost."""
        return self.keys_whole and not self.lost


def salvage(damaged: str | os.PathLike[str], into: str | os.PathLike[str]) -> Salvaged:
    """Copy what is whole in the database ``damaged`` into a new one.

    Raises HomeError (there is a file at ``into`` already), FormatUnsupportedError (not ours, or to be migrated first),
    and CorruptionError where not even the list of logs can be read.
    """
    source, target = os.fspath(damaged), os.fspath(into)
    if Path(target).exists():
        raise HomeError(target, "is there already; choose a new place")
    version = inspect_file(source, write=False, busy_ms=_BUSY_MS)
    if version != FORMAT:
        raise HomeError(source, f"has format {version}; start a gateway on a copy of it first")
    SqliteStore(target).close()
    told = Salvaged()
    old, new = connect_readonly(source, _BUSY_MS), sqlite3.connect(target, isolation_level=None)
    try:
        (most,) = old.execute("SELECT coalesce(max(n), 0) FROM logs").fetchone()
        for number in range(1, most + 1):
            _copy_log(old, new, number, told)
        _copy_keys(old, new, told)
    finally:
        old.close()
        new.close()
    _verify(target, told)
    return told


def _copy_log(old: sqlite3.Connection, new: sqlite3.Connection, number: int, told: Salvaged) -> None:
    name = f"log {number}"
    new.execute("BEGIN IMMEDIATE")
    try:
        row = old.execute("SELECT n, id, header, lane FROM logs WHERE n = ?", [number]).fetchone()
        if row is None:
            new.execute("ROLLBACK")
            return
        name = row[1]
        new.execute("INSERT INTO logs VALUES (?, ?, ?, ?)", row)
        for table in _BY_LOG:
            rows = old.execute(f"SELECT * FROM {table} WHERE log = ?", [number]).fetchall()  # noqa: S608 - own names
            if rows:
                new.executemany(f"INSERT INTO {table} VALUES ({','.join('?' * len(rows[0]))})", rows)  # noqa: S608
        ranges = old.execute("SELECT at, at + count - 1 FROM commits WHERE log = ? ORDER BY first", [number])
        for first, last in ranges.fetchall():
            # By place: a search for the log's number would meet every damaged page of every log.
            rows = old.execute("SELECT * FROM events WHERE at BETWEEN ? AND ?", [first, last]).fetchall()
            new.executemany("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
        new.execute("COMMIT")
    except sqlite3.DatabaseError as error:
        new.execute("ROLLBACK")
        told.lost[name] = f"can't be read ({error_name(error)})"


def _copy_keys(old: sqlite3.Connection, new: sqlite3.Connection, told: Salvaged) -> None:
    new.execute("BEGIN IMMEDIATE")
    try:
        for row in old.execute("SELECT * FROM keys ORDER BY key"):
            new.execute(f"INSERT INTO keys VALUES ({','.join('?' * len(row))})", row)  # noqa: S608
            told.keys += 1
    except sqlite3.DatabaseError:
        told.keys_whole = False
    new.execute("COMMIT")


def _verify(target: str, told: Salvaged) -> None:
    """Read each copied log by its checksums; one that fails is taken out again."""
    reader = SqliteReader(target)
    bad: dict[LogId, str] = {}
    try:
        for prefix in ("lane:", "session:"):
            after = ""
            while page := reader.logs(prefix, after):
                after = page[-1]
                for log in page:
                    try:
                        told.events += len(read_whole(reader, log)[1])
                        told.logs += 1
                    except SeriatimError as error:
                        bad[log] = str(error)
    finally:
        reader.close()
    connection = sqlite3.connect(target, isolation_level=None)
    for log, why in bad.items():
        connection.execute("BEGIN IMMEDIATE")
        (number,) = connection.execute("SELECT n FROM logs WHERE id = ?", [log]).fetchone()
        connection.execute("DELETE FROM events WHERE log = ?", [number])
        for table in _BY_LOG:
            connection.execute(f"DELETE FROM {table} WHERE log = ?", [number])  # noqa: S608 - own names
        connection.execute("DELETE FROM logs WHERE n = ?", [number])
        connection.execute("COMMIT")
        told.lost[log] = why
    connection.close()
