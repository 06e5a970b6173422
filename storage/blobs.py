"""Blobs: what is too large or too odd for an event's data, kept once under the hash of its content.

A blob is durable before its hash is told, so a commit can only name what is there. It stays while a log refers to
it; what no log refers to is swept after a grace period, during which whoever put it may still commit.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import tempfile
import threading
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Final

from seriatim.errors import BlobNotFoundError, BlobTooLargeError, CorruptionError, StoreUnhealthyError
from seriatim.limits import BLOB_BYTES_MAX

from .contract import BlobsSwept

_HASH: Final = re.compile("[0-9a-f]{64}")
_PART: Final = ".part"

Referenced = Callable[[Collection[str]], set[str]]
"""Those of some hashes that a log refers to."""


def hash_of(data: bytes) -> str:
    """The blob's name: SHA-256 in hexadecimal. Raises BlobTooLargeError."""
    if len(data) > BLOB_BYTES_MAX:
        raise BlobTooLargeError(len(data), BLOB_BYTES_MAX)
    return hashlib.sha256(data).hexdigest()


def is_hash(text: object) -> bool:
    """Whether it can be a blob's name; nothing else may become part of a path."""
    return isinstance(text, str) and _HASH.fullmatch(text) is not None


def blobs_of(database: str) -> Path:
    """The folder of a database's blobs: ``blobs`` beside a home's, one of its own beside any other file's."""
    path = Path(database)
    return path.with_name("blobs" if path.name == "state.db" else f"{path.name}-blobs")


class BlobFolder:
    """Blobs as files, ``ab/abcd…`` in ``folder``, which is made with the first. Any thread may call any method."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock = threading.Lock()  # between "is it there?" and "it is used again", no sweep

    def put(self, data: bytes, time: int) -> str:
        """See ``Store.put_blob``."""
        name = hash_of(data)
        path = self._path(name)
        try:
            self._make(path.parent)
            with self._lock:
                if _holds(path, data):
                    _touch(path, time)
                    return name
            self._write(path, data, time)
        except OSError as error:
            raise StoreUnhealthyError(f"a blob can't be written ({error.strerror})") from None
        return name

    def read(self, name: str) -> bytes:
        """See ``StoreReader.blob``."""
        if not is_hash(name):
            raise BlobNotFoundError(name)
        path = self._path(name)
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            raise BlobNotFoundError(name) from None
        except OSError as error:
            raise StoreUnhealthyError(f"a blob can't be read ({error.strerror})") from None
        if hashlib.sha256(data).hexdigest() != name:
            raise CorruptionError(f"blob {name}", "its content is not what its name says", file=str(path))
        return data

    def has(self, name: str) -> bool:
        """Whether there is such a blob."""
        return is_hash(name) and self._path(name).is_file()

    def sweep(self, before: int, referenced: Referenced, limit: int, *, dry_run: bool) -> BlobsSwept:
        """See ``Store.sweep_blobs``. Removes what a killed ``put`` left as well."""
        count = size = 0
        more = False
        for shard in self._shards():
            old = [path for path in sorted(shard.iterdir()) if _time_of(path) < before]
            used = referenced([path.name for path in old if is_hash(path.name)])
            for path in old:
                if path.name in used:
                    continue
                if count == limit:
                    more = True
                    break
                with self._lock:
                    held = _size_if_older(path, before)
                    if held is None:
                        continue
                    if not dry_run:
                        path.unlink()
                count, size = count + 1, size + held
            if more:
                break
        return BlobsSwept(count, size, more)

    def _shards(self) -> Iterator[Path]:
        with contextlib.suppress(FileNotFoundError):
            yield from sorted(path for path in self.folder.iterdir() if path.is_dir())

    def _path(self, name: str) -> Path:
        return self.folder / name[:2] / name

    def _make(self, shard: Path) -> None:
        for folder in (self.folder, shard):
            if not folder.is_dir():
                folder.mkdir(mode=0o700, exist_ok=True)
                _sync(folder.parent)

    def _write(self, path: Path, data: bytes, time: int) -> None:
        descriptor, part = tempfile.mkstemp(dir=path.parent, suffix=_PART)
        try:
            with open(descriptor, "wb") as file:  # noqa: PTH123  (a descriptor, not a path)
                file.write(data)
                file.flush()
                os.utime(file.fileno(), ns=(time * 1_000_000, time * 1_000_000))
                os.fsync(file.fileno())
            with self._lock:
                Path(part).replace(path)
                _sync(path.parent)
        except BaseException:
            Path(part).unlink(missing_ok=True)
            raise


def _holds(path: Path, data: bytes) -> bool:
    """Whether the file is there with just this content; a damaged one is written anew."""
    try:
        return path.stat().st_size == len(data) and path.read_bytes() == data
    except FileNotFoundError:
        return False


def _touch(path: Path, time: int) -> None:
    """Make a file that is in use again young, and durable: whoever wrote it may have been killed before its sync."""
    stamp = max(time * 1_000_000, path.stat().st_mtime_ns)
    os.utime(path, ns=(stamp, stamp))
    _sync(path)
    _sync(path.parent)


def _time_of(path: Path) -> int:
    with contextlib.suppress(FileNotFoundError):
        return path.stat().st_mtime_ns // 1_000_000
    return 0


def _size_if_older(path: Path, before: int) -> int | None:
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_size if status.st_mtime_ns // 1_000_000 < before else None


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
