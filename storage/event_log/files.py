"""The durable steps on a JSONL file: make it whole or not at all, append or leave it as it was, cut a torn end.

Each step ends with a sync. A kill between two of them leaves what the next call carries on from to the same bytes.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final
from zlib import crc32

from seriatim.errors import (
    LogExistsError,
    SessionPersistenceCorruptionError,
    StoreUnhealthyError,
    WriteUnknownError,
)
from seriatim.storage.files import sync_folder

_CHUNK: Final = 1 << 20
TEMPORARY: Final = ".new"


def create(path: Path, content: bytes) -> None:
    """Make ``<root>/<project>/<session>/<file>`` with this content, mode 0600, durably; never over another.

    Raises LogExistsError, StoreUnhealthyError when it surely isn't there, WriteUnknownError when that can't be said.
    """
    made = _make_folders(path.parent)
    temporary = path.with_name(TEMPORARY)
    try:
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)  # so what lies under the temporary name belongs to nobody who lives
            _write_new(temporary, [content])
            try:
                os.link(temporary, path)  # unlike a rename it never replaces
            except FileExistsError:
                temporary.unlink()
                raise LogExistsError(path.name) from None
            temporary.unlink()
            os.fsync(folder)
        finally:
            os.close(folder)
        # Also where nothing was made: whoever made them may have been killed, or be another thread, before its syncs.
        for parent in dict.fromkeys([*path.parents[1:3], *made]):
            sync_folder(parent)
    except OSError as error:
        if path.exists():
            raise WriteUnknownError(f"{path}: was made, but not surely for good ({_name(error)})") from None
        raise _unhealthy(path, error) from None


@contextlib.contextmanager
def locked(path: Path) -> Iterator[int]:
    """A descriptor of the file, held alone: other processes that append or repair wait."""
    descriptor = open_file(path, os.O_RDWR)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        except OSError as error:
            raise _unhealthy(path, error) from None
        yield descriptor
    finally:
        os.close(descriptor)


def open_file(path: Path, flags: int = os.O_RDONLY) -> int:
    """A descriptor of a regular file. Raises FileNotFoundError, SessionPersistenceCorruptionError, StoreUnhealthyError.

    A link is not followed: whoever can place one could lead us to another file. A pipe in a file's place must not keep
    us waiting for its other end.
    """
    try:
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EISDIR, errno.ENXIO, errno.ENOTDIR):
            raise SessionPersistenceCorruptionError(str(path), "is no file") from None
        raise _unhealthy(path, error) from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise SessionPersistenceCorruptionError(str(path), "is no file")
    return descriptor


def append(descriptor: int, path: Path, size: int, content: bytes) -> None:
    """Add ``content`` at ``size``, the file's end, durably.

    Raises StoreUnhealthyError when the file is surely as it was, WriteUnknownError when that can't be said.
    """
    try:
        _write_all(descriptor, content, size)
        os.fsync(descriptor)
    except OSError as error:
        try:
            os.ftruncate(descriptor, size)
            os.fsync(descriptor)
        except OSError as again:
            raise WriteUnknownError(
                f"{path}: can't be written ({_name(error)}) nor put back ({_name(again)})"
            ) from None
        raise _unhealthy(path, error) from None


def cut(descriptor: int, path: Path, end: int, size: int) -> Path:
    """Cut the file back to ``end``, after what follows has been put aside durably; returns where it lies.

    The name is made of place and content, so a kill in between ends in the same files.
    """
    crc = 0
    for chunk in _chunks(descriptor, end, size):
        crc = crc32(chunk, crc)
    aside = path.with_name(f"{path.name}.torn-{end}-{size - end}-{crc:08x}")
    try:
        temporary = path.with_name(TEMPORARY)
        _write_new(temporary, _chunks(descriptor, end, size))
        temporary.replace(aside)
        sync_folder(path.parent)
        os.ftruncate(descriptor, end)
        os.fsync(descriptor)
    except OSError as error:
        raise _unhealthy(path, error) from None
    return aside


def _chunks(descriptor: int, start: int, end: int) -> Iterator[bytes]:
    while start < end and (chunk := os.pread(descriptor, min(_CHUNK, end - start), start)):
        start += len(chunk)
        yield chunk


def _write_new(path: Path, chunks: Iterable[bytes]) -> None:
    """A file of ours alone, durably; over what a dead process may have left under its name."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        at = 0
        for chunk in chunks:
            at = _write_all(descriptor, chunk, at)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_all(descriptor: int, content: bytes, at: int) -> int:
    rest = memoryview(content)
    while rest:
        written = os.pwrite(descriptor, rest, at)  # a full disk or a signal may take less than all
        at += written
        rest = rest[written:]
    return at


def _make_folders(folder: Path) -> list[Path]:
    """Make what is missing, 0700; the folders that hold a new one and must be synced."""
    missing = []
    while not folder.is_dir():
        missing.append(folder)
        folder = folder.parent
    for new in reversed(missing):
        try:
            new.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise _unhealthy(new, error) from None
    return [new.parent for new in missing]


def _unhealthy(path: Path, error: OSError) -> StoreUnhealthyError:
    return StoreUnhealthyError(f"{path}: can't be read or written ({_name(error)})")


def _name(error: OSError) -> str:
    return errno.errorcode.get(error.errno or 0, "unknown")
