"""The state home: one folder, one owning process.

The lock is an OS lock on ``lock``, held for life; the file tells who took it. It is the kernel that decides,
never the text: a stopped owner keeps its lock, a dead one has lost it, and nothing has to be cleaned up.
Nothing is written before the lock is held and the home's format is known to be ours.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
import weakref
from typing import Any, Final

import psutil

from seriatim.errors import FormatUnsupportedError, HomeBusyError, HomeError

from .files import inspect_file

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

HOME_FORMAT: Final = 1
_LOCK: Final = "lock"
_FORMAT: Final = "format"
_CLEAN: Final = ".clean_shutdown"
_COMMAND_CHARS_MAX: Final = 200
_OWNER_BYTES_MAX: Final = 4096


class Home:
    """The owner's hold on the folder ``path``; made (0700) when it isn't there.

    Raises HomeBusyError (naming the owner), HomeError (can't be used) and FormatUnsupportedError (a newer
    version's). ``was_clean``: what ``.clean_shutdown`` said, or None; the marker is gone by now. Any thread
    may call; a forked child's copy is dead (``is_owner`` is False) and never touches the owner's lock.
    """

    def __init__(self, path: str | os.PathLike[str], *, busy_ms: int = 2000) -> None:
        self.path = os.path.abspath(os.fspath(path))
        self._process = os.getpid()
        self._descriptor: int | None = None
        self.was_clean: dict[str, Any] | None = None
        made = _make_folder(self.path)
        try:
            _check_format(self.path, busy_ms)
            self._descriptor = _take_lock(self.path)
        except BaseException:
            if made:
                _remove_if_empty(self.path)
            raise
        _open_homes.add(self)
        try:
            _check_format(self.path, busy_ms)  # again: it may have been upgraded while we waited
            self._write_owner()
            _write_atomic(self.file(_FORMAT), f"{HOME_FORMAT}\n")
            self.was_clean = self._take_clean_marker()
        except OSError as error:
            self.close()
            raise HomeError(self.path, f"can't be written ({error.strerror})") from None
        except BaseException:
            self.close()
            raise

    @property
    def database(self) -> str:
        """Path of the gateway's store."""
        return self.file("state.db")

    @property
    def is_owner(self) -> bool:
        """Whether this process holds the lock through this object."""
        return self._descriptor is not None and os.getpid() == self._process

    def file(self, name: str) -> str:
        """Path of a file or folder of the home; ``name`` is ours, never a user's."""
        return os.path.join(self.path, name)

    def mark_clean(self, epoch: int, system_head: int) -> None:
        """Write ``.clean_shutdown``, durably; the caller has stopped and no turn is open.

        Bound to the store's ``epoch`` and the head of the system log, so that a marker left over from
        another life says nothing. Raises HomeError when the disk refuses.
        """
        if not self.is_owner:
            return
        text = json.dumps({"epoch": epoch, "system_head": system_head, "time": int(time.time() * 1000)})
        try:
            _write_atomic(self.file(_CLEAN), text)
        except OSError as error:
            raise HomeError(self.path, f"the clean marker can't be written ({error.strerror})") from None

    def close(self) -> None:
        """Give the home up by closing the descriptor; in a forked child forget it. Idempotent."""
        descriptor, self._descriptor = self._descriptor, None
        _open_homes.discard(self)
        if descriptor is not None:
            os.close(descriptor)

    def _write_owner(self) -> None:
        assert self._descriptor is not None
        process = psutil.Process()
        owner = {
            "pid": process.pid,
            "started": process.create_time(),
            "host": socket.gethostname(),
            "command": " ".join(process.cmdline())[:_COMMAND_CHARS_MAX],
        }
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, json.dumps(owner).encode("utf-8", "replace"), 0)

    def _take_clean_marker(self) -> dict[str, Any] | None:
        """Read and delete the marker; a damaged one says nothing."""
        path = self.file(_CLEAN)
        try:
            with open(path, "rb") as file:
                raw = file.read(_OWNER_BYTES_MAX)
        except FileNotFoundError:
            return None
        os.unlink(path)
        _sync_folder(self.path)
        try:
            found = json.loads(raw)
        except ValueError:
            return None
        return found if isinstance(found, dict) else None


def read_owner(path: str | os.PathLike[str]) -> str | None:
    """Who owns the home, in words, for people; None when nobody does. Takes and changes nothing lasting."""
    lock = os.path.join(os.fspath(path), _LOCK)
    try:
        descriptor = os.open(lock, os.O_RDWR | _CLOEXEC)
    except OSError:
        return None
    try:
        return None if _try_lock(descriptor) else _describe(descriptor)
    finally:
        os.close(descriptor)


_CLOEXEC: Final = getattr(os, "O_CLOEXEC", 0)
_open_homes: Final[weakref.WeakSet[Home]] = weakref.WeakSet()


def _forget_in_child() -> None:
    # An unlock in the child would free the owner's lock, which both descriptors share; a close doesn't.
    for home in list(_open_homes):
        home.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_in_child)


def _make_folder(path: str) -> bool:
    """Make the folder when it is missing; whether it was made. Its parent must be there."""
    try:
        os.mkdir(path, 0o700)
        return True
    except FileExistsError:
        if not os.path.isdir(path):
            raise HomeError(path, "is not a folder") from None
    except FileNotFoundError:
        raise HomeError(path, "its parent folder doesn't exist; make that first") from None
    except OSError as error:
        raise HomeError(path, f"can't be made ({error.strerror})") from None
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        raise HomeError(path, "may not be read and written by this user")
    return False


def _remove_if_empty(path: str) -> None:
    try:
        os.rmdir(path)
    except OSError:
        pass  # somebody has put something there


def _check_format(path: str, busy_ms: int) -> None:
    """Refuse a newer home or database; reads only."""
    marker = os.path.join(path, _FORMAT)
    try:
        with open(marker, encoding="ascii", errors="replace") as file:
            text = file.read(32).strip()
    except FileNotFoundError:
        text = "0"
    except OSError as error:
        raise HomeError(path, f"can't be read ({error.strerror})") from None
    if not (text.isascii() and text.isdigit()):
        raise FormatUnsupportedError(marker, "foreign", "doesn't say a format")
    if int(text) > HOME_FORMAT:
        raise FormatUnsupportedError(
            path, "upgrade", f"has format {int(text)}; this version knows up to {HOME_FORMAT}"
        )
    inspect_file(os.path.join(path, "state.db"), write=True, busy_ms=busy_ms)


def _take_lock(path: str) -> int:
    try:
        descriptor = os.open(os.path.join(path, _LOCK), os.O_RDWR | os.O_CREAT | _CLOEXEC, 0o600)
    except OSError as error:
        raise HomeError(path, f"its lock can't be opened ({error.strerror})") from None
    try:
        if not _try_lock(descriptor):
            raise HomeBusyError(path, _describe(descriptor))
    except OSError as error:
        os.close(descriptor)
        raise HomeError(path, f"its file system has no locks ({error.strerror})") from None
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _try_lock(descriptor: int) -> bool:
    """Take the lock without waiting; whether it was free. Raises OSError where locks don't work."""
    try:
        if sys.platform == "win32":
            # Far behind the text, so that others may read who the owner is.
            os.lseek(descriptor, 1 << 30, os.SEEK_SET)
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        else:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    return True


def _describe(descriptor: int) -> str:
    """The owner in words, from what it wrote; it may be writing just now."""
    os.lseek(descriptor, 0, os.SEEK_SET)
    try:
        owner = json.loads(os.read(descriptor, _OWNER_BYTES_MAX))
        pid, host, started = int(owner["pid"]), str(owner["host"]), float(owner["started"])
        since = time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(started))
        return f"process {pid} on {host}, started {since}: {owner['command']}"
    except (ValueError, KeyError, TypeError, OverflowError):
        return "another process"


def _write_atomic(path: str, text: str) -> None:
    """Replace the file durably. Raises OSError."""
    temporary = f"{path}.new"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | _CLOEXEC, 0o600)
    try:
        os.write(descriptor, text.encode())
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.replace(temporary, path)
    _sync_folder(os.path.dirname(path))


def _sync_folder(path: str) -> None:
    if sys.platform == "win32":
        return
    descriptor = os.open(path, os.O_RDONLY | _CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
