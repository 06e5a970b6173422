"""The state home: one folder, one owner.

Owning it means holding an OS lock for the life of the process. The lock dies with its holder, so no file
that is left behind can look alive. Whatever refuses the home does so before a byte in it is written.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import stat
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Self
from weakref import WeakSet

import psutil

from seriatim.errors import CorruptionError, HomeBusyError, HomeError, ReadOnlyError, StoreUnhealthyError

from .files import check_path, inspect_file, last_place, mend_mode, read_file, refuse_network, sync_folder

DATABASE: Final = "state.db"
LOCK: Final = "lock"
CLEAN: Final = ".clean_shutdown"
_OWNER_BYTES_MAX: Final = 4096
_BUSY_MS: Final = 2000


class Home:
    """An owned state home. ``was_clean``: the owner before had stopped with no turn left open.

    Made by ``own``; ``close`` gives it up. A forked child's copy is dead: it neither owns nor unlocks.
    """

    def __init__(self, folder: Path, descriptor: int, was_clean: bool) -> None:
        self.folder = folder
        self.was_clean = was_clean
        self._descriptor: int | None = descriptor
        _owned.add(self)

    @classmethod
    def own(cls, folder: str | os.PathLike[str], *, database_may_fail: bool = False) -> Self:
        """Take the home, making the folder if there is none.

        ``database_may_fail``: take it also while its database is damaged or can't be read (the spool needs a home).

        Raises HomeError (no folder, may not be written, on the network, open to others), HomeBusyError (names the
        owner), FormatUnsupportedError and CorruptionError (its database), InvalidInputError (no path); nothing was
        written then.
        """
        check_path("home", folder)
        path = Path(folder).absolute()
        try:
            _check_folder(path)
        except OSError as error:
            raise HomeError(str(path), f"can't be looked at ({error.strerror}); choose another home") from error
        if (path / DATABASE).exists():
            try:
                inspect_file(str(path / DATABASE), write=True, busy_ms=_BUSY_MS)
            except (CorruptionError, ReadOnlyError, StoreUnhealthyError):
                if not database_may_fail:
                    raise
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            _mend_folder(path)
            descriptor = os.open(path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise HomeError(str(path), f"can't be written ({error.strerror}); choose another home") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            owner = _read_owner(descriptor)
            os.close(descriptor)
            raise HomeBusyError(str(path), owner) from error
        except OSError as error:
            os.close(descriptor)
            raise HomeError(str(path), f"its file system gives no locks ({error.strerror})") from error
        try:
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, _describe_self(), 0)
            return cls(path, descriptor, _take_marker(path))
        except OSError as error:
            os.close(descriptor)
            raise HomeError(str(path), f"can't be written ({error.strerror}); free some space") from error

    @classmethod
    @contextlib.contextmanager
    def tended(cls, folder: str | os.PathLike[str]) -> Iterator[Self]:
        """Own a home that is there, for work in which no turn begins or ends: a clean stop before stays one.

        Raises HomeError where it holds no state, and as ``own``.
        """
        cls.database_of(folder)  # owning would make what isn't there
        home = cls.own(folder)
        try:
            yield home
        finally:
            home.close(clean=home.was_clean)

    @staticmethod
    def database_of(folder: str | os.PathLike[str]) -> str:
        """The database of a home that is only to be read. Raises HomeError when there is none, InvalidInputError."""
        check_path("home", folder)
        path = Path(folder).absolute()
        try:
            there = (path / DATABASE).is_file()
        except OSError as error:
            raise HomeError(str(path), f"can't be looked at ({error.strerror}); is it the right home?") from error
        if not there:
            raise HomeError(str(path), "holds no state yet; is it the right home?")
        return str(path / DATABASE)

    @staticmethod
    def refuse_served(folder: str | os.PathLike[str]) -> None:
        """Raise HomeBusyError (names the owner) while somebody owns a home that is to be read as it stands.

        Writes nothing, and tells only of now.
        """
        try:
            descriptor = os.open(Path(folder) / LOCK, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return  # a copy without a lock, or not ours to look at
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise HomeBusyError(str(Path(folder).absolute()), _read_owner(descriptor)) from error
        finally:
            os.close(descriptor)

    @property
    def database(self) -> str:
        """Where the database is, or will be."""
        return str(self.folder / DATABASE)

    def close(self, *, clean: bool) -> None:
        """Give the home up; ``clean``: no turn was left open. Idempotent. Call it last, after the store is closed.

        The marker names the place where the database ended; beside any other database it says nothing.
        """
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is None:
            return
        if clean:
            with contextlib.suppress(OSError):  # without it the next start only looks a little longer
                _write_marker(self.folder)
        os.close(descriptor)

    def abandon(self) -> None:
        """Close the descriptor without unlocking: the parent of this forked process goes on owning."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


_owned: WeakSet[Home] = WeakSet()


def _after_fork() -> None:
    # A copy of the descriptor would keep the lock after the owner's death; closing a copy doesn't unlock.
    for home in list(_owned):
        home.abandon()


os.register_at_fork(after_in_child=_after_fork)


def _take_marker(path: Path) -> bool:
    """Whether the stop before was clean. The marker is deleted: a crash of ours must not find it."""
    marker = path / CLEAN
    try:
        text = read_file(marker, _OWNER_BYTES_MAX)
    except FileNotFoundError:
        return False
    marker.unlink()
    sync_folder(path)
    place = last_place(str(path / DATABASE), busy_ms=_BUSY_MS)
    return place is not None and text.decode(errors="replace") == place


def _write_marker(path: Path) -> None:
    place = last_place(str(path / DATABASE), busy_ms=_BUSY_MS)
    if place is None:
        return
    marker = os.open(path / CLEAN, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        os.write(marker, place.encode())
        os.fsync(marker)
    finally:
        os.close(marker)
    sync_folder(path)


def _check_folder(path: Path) -> None:
    nearest = path
    while not nearest.exists() and nearest != nearest.parent:
        nearest = nearest.parent
    if not nearest.is_dir():
        raise HomeError(str(path), f"{nearest} is not a folder")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise HomeError(str(path), f"{nearest} may not be written by this user; choose another home")
    refuse_network(nearest)
    if nearest == path and not _is_ours(path) and stat.S_IMODE(path.stat().st_mode) & 0o022:
        raise HomeError(
            str(path), "others may write to it, and it holds other things; choose a folder of its own, or chmod go-w it"
        )


def _is_ours(path: Path) -> bool:
    """Whether the folder is a home already or could become one: ours to close to others, unlike a shared one."""
    if path.stat().st_uid != os.geteuid():
        return False
    return (path / DATABASE).exists() or (path / LOCK).exists() or not any(path.iterdir())


def _mend_folder(path: Path) -> None:
    """A home is for its owner's eyes. In a folder that holds other things, each of our files is, by its own mode."""
    if _is_ours(path) and stat.S_IMODE(path.stat().st_mode) & 0o077:
        path.chmod(0o700)
    mend_mode(str(path / LOCK), 0o600)


def _describe_self() -> bytes:
    process = psutil.Process()
    about = {
        "pid": process.pid,
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(process.create_time())),
        "host": socket.gethostname(),
        "command": Path(sys.argv[0]).name or "python",
    }
    return json.dumps(about).encode()


def _read_owner(descriptor: int) -> str:
    try:
        about = json.loads(os.pread(descriptor, _OWNER_BYTES_MAX, 0))
        text = f"process {about['pid']} on {about['host']} ({about['command']}, running since {about['started']})"
    except (OSError, ValueError, KeyError, TypeError):
        return "another live process"
    with contextlib.suppress(psutil.Error):
        if about["host"] == socket.gethostname() and psutil.Process(about["pid"]).status() == psutil.STATUS_STOPPED:
            text += ", which is stopped (SIGSTOP)"
    return text
