"""What a database file is, found out without changing a byte of it; and what the owner may do to a file.

No code of ours opens the database but SQLite's own: a file descriptor that is opened and closed beside it drops
every lock that this process has on the file, and the next program to close it takes the write-ahead log along.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import sqlite3
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import psutil

from seriatim.errors import (
    CorruptionError,
    FormatUnsupportedError,
    HomeError,
    InvalidInputError,
    ReadOnlyError,
    StoreUnhealthyError,
)

from .schema import APPLICATION_ID, FORMAT, FORMAT_MIN

SQLITE_MIN: Final = (3, 37, 0)
"""STRICT tables came with it; UPDATE FROM and the json functions are older."""

NETWORK: Final = frozenset({
    "9p", "afs", "ceph", "cifs", "coda", "davfs", "glusterfs", "lustre", "ncpfs", "nfs", "nfs4", "prl_fs", "smb3",
    "smbfs", "vboxsf", "fuse.ceph-fuse", "fuse.davfs2", "fuse.gcsfuse", "fuse.glusterfs", "fuse.grpcfuse",
    "fuse.juicefs", "fuse.rclone", "fuse.s3fs", "fuse.sshfs", "fuse.vmhgfs-fuse",
})  # fmt: skip
"""File systems, by the kernel's names, that another machine (or a host of this one) serves: their locks and shared
memory don't hold what SQLite's write-ahead log needs, and a second owner there would go unseen."""

_HEADER_BYTES: Final = 100
_LOCK_POLL_S: Final = 0.01


def check_path(name: str, given: Any) -> None:
    """What names a place in the file system: text or a path of text, not empty, that SQLite's addresses can carry.

    Raises InvalidInputError for the argument ``name``.
    """
    try:
        text = os.fspath(given)
    except TypeError:
        text = None
    if not isinstance(text, str) or not text:
        raise InvalidInputError(name, "a path is needed")
    if "\0" in text or any("\ud800" <= char <= "\udfff" for char in text):
        raise InvalidInputError(name, "is a path that can't be: it holds NUL, or bytes that are no UTF-8")


def uri_of(path: str, parameters: str) -> str:
    """The address of a file for ``sqlite3.connect(uri=True)``."""
    return f"file:{quote(str(Path(path).absolute()))}?{parameters}"


def connect_readonly(path: str, busy_ms: int) -> sqlite3.Connection:
    """A connection that can't write, take over or checkpoint. Raises sqlite3.Error."""
    connection = sqlite3.connect(
        uri_of(path, "mode=ro"),
        uri=True,
        timeout=busy_ms / 1000,
        isolation_level=None,
        check_same_thread=False,
    )
    connection.execute("PRAGMA query_only = 1")
    connection.execute("PRAGMA temp_store = MEMORY")
    return connection


def read_file(path: Path, bytes_max: int) -> bytes:
    """What a file holds, up to ``bytes_max``. Raises OSError, also for a pipe, which would be waited for."""

    def at_once(name: str, flags: int) -> int:
        return os.open(name, flags | os.O_NONBLOCK)

    with open(path, "rb", opener=at_once) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "is not a file", str(path))
        return file.read(bytes_max)


def inspect_file(path: str, *, write: bool, busy_ms: int) -> int:
    """The format of the file at ``path``; 0 when there is none yet, or an empty one.

    Raises HomeError (no such folder, not a file, on the network), ReadOnlyError (may not be written),
    FormatUnsupportedError (another program's, a newer format, or one too old), CorruptionError (damaged) and
    StoreUnhealthyError (locked). The file is not touched.
    """
    if sqlite3.sqlite_version_info < SQLITE_MIN:
        raise FormatUnsupportedError(path, "upgrade", "needs SQLite 3.37 or newer in this Python")
    file = Path(path).absolute()
    folder = file.parent
    if write and folder.is_dir():
        refuse_network(folder)
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
        raise HomeError(path, "is not a file; move it away, or choose another home")
    if not os.access(path, os.R_OK):
        raise HomeError(path, "may not be read by this user")
    version = 0
    if status.st_size:
        _peek(path, status.st_size)
        version = _inspect_tables(path, busy_ms)
    if write and not (os.access(path, os.W_OK) and os.access(folder, os.W_OK | os.X_OK)):
        raise ReadOnlyError(f"{path}: may not be written by this user")
    return version


def _peek(path: str, size: int) -> None:
    """Raise for a file whose first page says that it isn't ours, or not of our time; that page alone is read.

    ``immutable`` keeps SQLite from making its files beside one that may be another program's.
    """
    try:
        connection = sqlite3.connect(uri_of(path, "mode=ro&immutable=1"), uri=True)
        try:
            application, version = _marks(connection)
        finally:
            connection.close()
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
        if code == sqlite3.SQLITE_NOTADB:
            raise FormatUnsupportedError(path, "foreign", "is not a SQLite database, or no longer one") from None
        # Whatever else is wrong may be the checkpoint of a living owner, or one that a kill broke off: a look without
        # locks can't tell, and the next one, under SQLite's locks, does.
        return
    if size < _HEADER_BYTES:
        raise CorruptionError(path, "is cut inside its header")
    if application not in (APPLICATION_ID, 0) or (application == 0 and version != 0):
        raise FormatUnsupportedError(path, "foreign", "is another program's SQLite database")
    if application == APPLICATION_ID:
        _check_version(path, version)


def _marks(connection: sqlite3.Connection) -> tuple[int, int]:
    connection.execute("BEGIN")  # all that is read is of one moment: another may be making the tables just now
    application: int = connection.execute("PRAGMA application_id").fetchone()[0]
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    return application, version


def _check_version(path: str, version: int) -> None:
    if version > FORMAT:
        known = f"this version of Seriatim knows up to {FORMAT}; use a newer one"
        raise FormatUnsupportedError(path, "upgrade", f"has format {version}; {known}")
    if version < FORMAT_MIN:
        known = f"this version of Seriatim reads from {FORMAT_MIN} on; migrate it with an older one first"
        raise FormatUnsupportedError(path, "no path", f"has format {version}; {known}")


def _inspect_tables(path: str, busy_ms: int) -> int:
    """The format as SQLite sees it, a WAL left behind included."""
    try:
        connection = connect_readonly(path, busy_ms)
        try:
            application, version = _marks(connection)
            tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_schema")}
            if application == APPLICATION_ID:
                _check_version(path, version)
                connection.execute("SELECT store_id, epoch, owner FROM meta WHERE one = 1").fetchall()
        finally:
            connection.close()
    except sqlite3.Error as error:
        raise open_error(path, error) from None
    if application == 0 and version == 0 and not tables:
        return 0  # made by a process that died before its first commit
    if application != APPLICATION_ID:
        raise FormatUnsupportedError(path, "foreign", "is another program's SQLite database")
    if not {"meta", "logs", "events", "commits", "keys", "lanes"} <= tables:
        raise CorruptionError(path, "lacks some of its tables")
    return version


def file_system_of(path: Path) -> str:
    """The kernel's name for the kind of file system that holds ``path``; "" where it doesn't tell."""
    real, found, kind = os.path.realpath(path), "", ""
    for mount in psutil.disk_partitions(all=True):
        point = mount.mountpoint
        # Of two mounts at one place the later one is seen.
        if len(point) >= len(found) and (real == point or real.startswith(point.rstrip("/") + "/")):
            found, kind = point, mount.fstype
    return kind


def refuse_network(folder: Path) -> None:
    """Raise HomeError where another machine serves the file system."""
    kind = file_system_of(folder)
    if kind in NETWORK:
        raise HomeError(str(folder), f"lies on a network file system ({kind}); choose a home on a local disk")


def mend_mode(path: str, mode: int) -> None:
    """Take away what ``mode`` doesn't grant to others. Raises HomeError where the file isn't ours to change."""
    try:
        file = Path(path)
        if file.stat().st_mode & 0o077 & ~mode:
            file.chmod(mode)
    except FileNotFoundError:
        return
    except OSError as error:
        advice = f"chmod {mode:o} it as its owner"
        raise HomeError(path, f"may be read by others, and can't be mended ({error.strerror}); {advice}") from None


def create_private(path: str) -> None:
    """Make an empty file for the owner's eyes, if there is none at ``path``; never opens one that others may have.

    Raises OSError.
    """
    descriptor, name = tempfile.mkstemp(dir=Path(path).absolute().parent)
    os.close(descriptor)
    made = Path(name)
    try:
        with contextlib.suppress(FileExistsError):
            Path(path).hardlink_to(made)
    finally:
        made.unlink()


def sync_folder(folder: Path) -> None:
    """Make the folder's entries durable. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def alone_in(folder: str, budget_ms: int) -> Iterator[None]:
    """Keep every other opener out of the folder's databases, threads and processes alike, while ours is made.

    Waits for ``budget_ms``, then raises StoreUnhealthyError. Raises OSError where the folder can't be locked.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        until = time.monotonic() + budget_ms / 1000
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= until:
                    raise StoreUnhealthyError(f"{folder}: another opener is still making the database") from None
                time.sleep(_LOCK_POLL_S)
        yield
    finally:
        os.close(descriptor)


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
        return CorruptionError(
            path, f"is damaged ({name}), and was left as it is; restore a backup, or see `seriatim repair`"
        )
    if code == sqlite3.SQLITE_READONLY:
        return ReadOnlyError(f"{path}: may not be written ({name})")
    return StoreUnhealthyError(f"{path}: can't be opened ({name})")


def error_name(error: sqlite3.Error) -> str:
    """SQLite's name of an error; its message may quote values, so it is never shown."""
    return str(getattr(error, "sqlite_errorname", type(error).__name__))
