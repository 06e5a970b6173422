"""What a database file is, found out without changing a byte of it."""

from __future__ import annotations

import os
import sqlite3
import stat
import struct
from pathlib import Path
from typing import Final
from urllib.parse import quote

from seriatim.errors import CorruptionError, FormatUnsupportedError, HomeError, ReadOnlyError, StoreUnhealthyError

from .schema import APPLICATION_ID, FORMAT

_MAGIC: Final = b"SQLite format 3\0"
SQLITE_MIN: Final = (3, 37, 0)
"""STRICT tables came with it; UPDATE FROM and the json functions are older."""


def connect_readonly(path: str, busy_ms: int) -> sqlite3.Connection:
    """A connection that can't write, take over or checkpoint. Raises sqlite3.Error."""
    connection = sqlite3.connect(
        f"file:{quote(str(Path(path).absolute()))}?mode=ro",
        uri=True,
        timeout=busy_ms / 1000,
        isolation_level=None,
        check_same_thread=False,
    )
    connection.execute("PRAGMA query_only = 1")
    connection.execute("PRAGMA temp_store = MEMORY")
    return connection


def inspect_file(path: str, *, write: bool, busy_ms: int) -> int:
    """The format of the file at ``path``; 0 when there is none yet, or an empty one.

    Raises HomeError (no such folder, not a file), ReadOnlyError (may not be written), FormatUnsupportedError
    (another program's, or a newer format), CorruptionError (damaged) and StoreUnhealthyError (locked). The
    file is not touched.
    """
    if sqlite3.sqlite_version_info < SQLITE_MIN:
        raise FormatUnsupportedError(path, "upgrade", "needs SQLite 3.37 or newer in this Python")
    file = Path(path).absolute()
    folder = file.parent
    try:
        status = file.stat()
    except FileNotFoundError:
        if not folder.is_dir():
            raise HomeError(str(folder), "there is no such folder") from None
        if not write:
            raise HomeError(str(folder), f"there is no {file.name}") from None
        if not os.access(folder, os.W_OK | os.X_OK):
            raise HomeError(str(folder), "may not be written by this user") from None
        return 0
    except OSError as error:
        raise HomeError(str(folder), f"can't be read ({error.strerror})") from None
    if not stat.S_ISREG(status.st_mode):
        raise HomeError(path, "is not a file")
    version = _read_header(path, status.st_size)
    if version is None:
        version = _inspect_tables(path, busy_ms)
    if write and not (os.access(path, os.W_OK) and os.access(folder, os.W_OK | os.X_OK)):
        raise ReadOnlyError(f"{path}: may not be written by this user")
    return version


def _read_header(path: str, size: int) -> int | None:
    """0 for an empty file, None for one whose first bytes are ours or nobody's; raises for all others."""
    if size == 0:
        return 0
    try:
        with Path(path).open("rb") as file:
            head = file.read(100)
    except OSError as error:
        raise HomeError(path, f"can't be read ({error.strerror})") from None
    if head[: len(_MAGIC)] != _MAGIC:
        raise FormatUnsupportedError(path, "foreign", "is not a SQLite database")
    if len(head) < 100:
        raise CorruptionError(path, "is cut inside its header")
    (version,) = struct.unpack(">I", head[60:64])
    (application,) = struct.unpack(">I", head[68:72])
    if application not in (APPLICATION_ID, 0) or (application == 0 and version != 0):
        raise FormatUnsupportedError(path, "foreign", "is another program's SQLite database")
    _refuse_newer(path, version)
    page = struct.unpack(">H", head[16:18])[0]
    page = 65536 if page == 1 else page
    changes, pages = struct.unpack(">I", head[24:28])[0], struct.unpack(">I", head[28:32])[0]
    valid_for = struct.unpack(">I", head[92:96])[0]
    wal = Path(path + "-wal")
    has_wal = wal.exists() and wal.stat().st_size > 0
    # With a WAL the file may rightly be shorter: a kill inside a checkpoint leaves page 1 written first.
    if changes == valid_for and not has_wal and size < pages * page:
        raise CorruptionError(path, f"is cut: {size} bytes of {pages * page}")
    return None


def _refuse_newer(path: str, version: int) -> None:
    if version > FORMAT:
        raise FormatUnsupportedError(path, "upgrade", f"has format {version}; this version knows up to {FORMAT}")


def _inspect_tables(path: str, busy_ms: int) -> int:
    """The format as SQLite sees it, a WAL left behind included."""
    try:
        connection = connect_readonly(path, busy_ms)
        try:
            version: int = connection.execute("PRAGMA user_version").fetchone()[0]
            application: int = connection.execute("PRAGMA application_id").fetchone()[0]
            tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_schema")}
            if application == APPLICATION_ID:
                _refuse_newer(path, version)
                connection.execute("SELECT store_id, epoch, owner FROM meta WHERE one = 1").fetchall()
        finally:
            connection.close()
    except sqlite3.Error as error:
        raise open_error(path, error) from None
    if application == 0 and version == 0 and not tables:
        return 0  # made by a process that died before its first commit
    if application != APPLICATION_ID or version == 0:
        raise FormatUnsupportedError(path, "foreign", "is another program's SQLite database")
    if not {"meta", "logs", "events", "commits", "keys", "lanes"} <= tables:
        raise CorruptionError(path, "lacks some of its tables")
    return version


def last_place(path: str, *, busy_ms: int) -> str | None:
    """Store, epoch and last event of a database in one line; None where it can't be read. Touches nothing."""
    try:
        connection = connect_readonly(path, busy_ms)
        try:
            row = connection.execute(
                "SELECT store_id, epoch, (SELECT coalesce(max(at), 0) FROM events) FROM meta"
            ).fetchone()
        finally:
            connection.close()
    except sqlite3.Error:
        return None
    return None if row is None else f"store {row[0]} epoch {row[1]} event {row[2]}"


def open_error(path: str, error: sqlite3.Error) -> CorruptionError | ReadOnlyError | StoreUnhealthyError:
    """Our error for one of SQLite's at open."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    name = error_name(error)
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR):
        return CorruptionError(path, f"can't be read as a database ({name})")
    if code == sqlite3.SQLITE_READONLY:
        return ReadOnlyError(f"{path}: may not be written ({name})")
    return StoreUnhealthyError(f"{path}: can't be opened ({name})")


def error_name(error: sqlite3.Error) -> str:
    """SQLite's name of an error; its message may quote values, so it is never shown."""
    return str(getattr(error, "sqlite_errorname", type(error).__name__))
