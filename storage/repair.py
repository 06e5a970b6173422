"""Salvage of a damaged database into a new file. The damaged one is only read.

Log by log: what can't be read whole stays behind, and is named. Nothing is mended, guessed or cut short, so that what
is in the new file is what was written, checksums included. The new file gets its name when it is complete: one that a
kill or a full disk cut short is never taken for a home.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from attrs import Factory, define

from seriatim.errors import (
    BlobNotFoundError,
    CorruptionError,
    HomeError,
    SeriatimError,
    StoreError,
    StoreUnhealthyError,
)
from seriatim.events import LogId

from .blobs import BlobFolder, blobs_of
from .checkpoints import read_whole
from .files import connect_readonly, error_name, inspect_file, sync_folder
from .projections import rebuild
from .schema import FORMAT
from .spool import Spool, look
from .sqlite import SqliteStore
from .sqlite_reader import SqliteReader

_BUSY_MS: Final = 2000
_PART: Final = ".part"
_TRUTH: Final = ("commits", "archives")
"""Tables whose rows belong to a log. ``lanes`` and ``checkpoints`` only repeat what others hold: the one is made anew
where it can't be read, the other is left behind."""


@define
class Salvaged:
    """What came of it. ``logs``: copied whole. ``lost``: log (or number of one without a name), blob or spool, and why.

    ``keys``: known messages copied; ``keys_whole``: whether these are all, else an old message that is given again may
    be taken for a new one. ``index_whole``: whether the index of open work could be read; else it was made anew.
    ``spooled``: messages that waited beside the database.
    """

    logs: int = 0
    events: int = 0
    keys: int = 0
    keys_whole: bool = True
    index_whole: bool = True
    spooled: int = 0
    lost: dict[str, str] = Factory(dict)

    @property
    def whole(self) -> bool:
        """Whether nothing was lost."""
        return self.keys_whole and not self.lost


class _UnreadableError(Exception):
    """Rows of the damaged file can't be read; its text is SQLite's name of the reason."""


def salvage(damaged: str | os.PathLike[str], into: str | os.PathLike[str]) -> Salvaged:
    """Copy what is whole in the database ``damaged``, and in the blobs and the spool beside it, into a new one.

    Raises HomeError (there is a file at ``into`` already), FormatUnsupportedError (not ours, or to be migrated first),
    CorruptionError where not even the list of logs can be read, and StoreUnhealthyError where the new one can't be
    written; there is no file at ``into`` then.
    """
    source, target = os.fspath(damaged), os.fspath(into)
    if Path(target).exists():
        raise HomeError(target, "is there already; choose a new place")
    version = inspect_file(source, write=False, busy_ms=_BUSY_MS)
    if version != FORMAT:
        raise HomeError(source, f"has format {version}; start a gateway on a copy of it first")
    part = target + _PART
    _remove(part)  # what a killed one left
    told = Salvaged()
    try:
        SqliteStore(part).close()
        hashes = _copy(source, part, told)
        _verify(part, told)
        if not told.index_whole:
            rebuild(part)
        _copy_blobs(source, target, hashes, told)
        _copy_spool(Path(source).parent, Path(target).parent, told)
        _settle(part)
        Path(part).rename(target)
        sync_folder(Path(target).parent)
    except sqlite3.Error as error:
        raise StoreUnhealthyError(f"{target}: can't be written ({error_name(error)})") from None
    except OSError as error:
        raise StoreUnhealthyError(f"{target}: can't be written ({error.strerror})") from None
    finally:
        _remove(part)
    return told


def _settle(path: str) -> None:
    """Bring all into the file itself: a write-ahead log of its old name would be lost with that name."""
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        ((busy, _, _),) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        if busy:
            raise StoreUnhealthyError(f"{path}: is in use by another program")
    finally:
        connection.close()


def _remove(path: str) -> None:
    for name in (path, f"{path}-wal", f"{path}-shm"):
        Path(name).unlink(missing_ok=True)


def _copy(source: str, target: str, told: Salvaged) -> list[str]:
    """Copy the tables; the hashes of the blobs that they refer to."""
    old, new = connect_readonly(source, _BUSY_MS), sqlite3.connect(target, isolation_level=None)
    try:
        try:
            ((most,),) = _rows(old, "SELECT coalesce(max(n), 0) FROM logs")
        except _UnreadableError as error:
            raise CorruptionError(source, f"its list of logs can't be read ({error}); restore a backup") from None
        for number in range(1, most + 1):
            _copy_log(old, new, number, told)
        _copy_keys(old, new, told)
        return _copy_references(old, new, told)
    finally:
        old.close()
        new.close()


def _rows(old: sqlite3.Connection, sql: str, values: Sequence[int] = ()) -> list[tuple[Any, ...]]:
    try:
        return old.execute(sql, values).fetchall()
    except sqlite3.DatabaseError as error:
        raise _UnreadableError(error_name(error)) from None


def _insert(new: sqlite3.Connection, table: str, rows: Sequence[tuple[Any, ...]]) -> None:
    if rows:
        new.executemany(f"INSERT INTO {table} VALUES ({','.join('?' * len(rows[0]))})", rows)  # noqa: S608 - own names


def _copy_log(old: sqlite3.Connection, new: sqlite3.Connection, number: int, told: Salvaged) -> None:
    name = f"log {number}"
    new.execute("BEGIN IMMEDIATE")
    try:
        found = _rows(old, "SELECT n, id, header, lane FROM logs WHERE n = ?", [number])
        if not found:
            new.execute("ROLLBACK")
            return
        name = found[0][1]
        _insert(new, "logs", found)
        for table in _TRUTH:
            _insert(new, table, _rows(old, f"SELECT * FROM {table} WHERE log = ?", [number]))  # noqa: S608 - own names
        try:
            _insert(new, "lanes", _rows(old, "SELECT * FROM lanes WHERE log = ?", [number]))
        except _UnreadableError:
            told.index_whole = False
        ranges = _rows(old, "SELECT at, at + count - 1 FROM commits WHERE log = ? ORDER BY first", [number])
        for first, last in ranges:
            # By place: a search for the log's number would meet every damaged page of every log.
            _insert(new, "events", _rows(old, "SELECT * FROM events WHERE at BETWEEN ? AND ?", [first, last]))
        new.execute("COMMIT")
    except (_UnreadableError, sqlite3.IntegrityError) as error:
        # IntegrityError: what a damaged page made of its rows fits no table. All else that the new file says is its own
        # trouble, a full disk, and no loss of this log's.
        new.execute("ROLLBACK")
        why = error_name(error) if isinstance(error, sqlite3.Error) else str(error)
        told.lost[name] = f"can't be read ({why})"


def _copy_keys(old: sqlite3.Connection, new: sqlite3.Connection, told: Salvaged) -> None:
    new.execute("BEGIN IMMEDIATE")
    for row in _as_far_as_it_goes(old, told):
        _insert(new, "keys", [row])
        told.keys += 1
    with contextlib.suppress(_UnreadableError):  # without them keys are kept for longer, no more
        _insert(new, "key_marks", _rows(old, "SELECT * FROM key_marks"))
    new.execute("COMMIT")


def _as_far_as_it_goes(old: sqlite3.Connection, told: Salvaged) -> Iterator[tuple[Any, ...]]:
    try:
        yield from old.execute("SELECT * FROM keys ORDER BY key")
    except sqlite3.DatabaseError:
        told.keys_whole = False


def _copy_references(old: sqlite3.Connection, new: sqlite3.Connection, told: Salvaged) -> list[str]:
    try:
        rows = _rows(old, "SELECT hash, log FROM blob_refs ORDER BY hash")
    except _UnreadableError as error:
        told.lost["blobs"] = f"which ones are in use can't be read ({error})"
        return []
    copied = {number for (number,) in new.execute("SELECT n FROM logs")}
    rows = [row for row in rows if row[1] in copied]
    new.execute("BEGIN IMMEDIATE")
    _insert(new, "blob_refs", rows)
    new.execute("COMMIT")
    return list(dict.fromkeys(row[0] for row in rows))


def _copy_blobs(source: str, target: str, hashes: Sequence[str], told: Salvaged) -> None:
    old, new = BlobFolder(blobs_of(source)), BlobFolder(blobs_of(target))
    for name in hashes:
        try:
            data = old.read(name)
        except BlobNotFoundError:
            told.lost[f"blob {name}"] = "is not there"
        except StoreError as error:
            told.lost[f"blob {name}"] = str(error)
        else:
            new.put(data, 0)  # a log refers to it: its age is nobody's question


def _copy_spool(source: Path, target: Path, told: Salvaged) -> None:
    """Carry what was accepted and waits for a database: the new home's next start takes it in."""
    found = look(source)
    if found.messages:
        spool = Spool(target)
        spool.open()
        # Those that a killed repair has carried already are there.
        spool.append([message for message in found.messages if message.key not in spool.keys])
    told.spooled = len(found.messages)
    if found.damaged:
        told.lost["spool"] = f"{found.damaged} of its lines are damaged"


def _verify(target: str, told: Salvaged) -> None:
    """Read each copied log by its checksums; one that fails is taken out again."""
    reader = SqliteReader(target)
    bad: dict[LogId, str] = {}
    try:
        after = ""
        while page := reader.logs("", after):
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
        for table in (*_TRUTH, "lanes", "blob_refs"):
            connection.execute(f"DELETE FROM {table} WHERE log = ?", [number])  # noqa: S608 - own names
        connection.execute("DELETE FROM logs WHERE n = ?", [number])
        connection.execute("COMMIT")
        told.lost[log] = why
    connection.close()
