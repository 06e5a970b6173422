"""What this machine says of memory: the tightest limit that this process is under, and how much is in use.

Control groups are read from their files, of version 2, of version 1, or of both at once; the chain goes from the
group that the process is in up to the highest one that can be seen, and whoever is tightest counts. Whatever can't be
read is as if it weren't there: a limit that isn't seen costs memory, an error in its place would cost a gateway.
"""

from __future__ import annotations

import ctypes
import gc
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, Final, Literal, Protocol, TypeVar

import psutil
from attrs import frozen
from cgroupspy.controllers import Controller, MemoryController
from cgroupspy.interfaces import DictFile, IntegerFile
from cgroupspy.nodes import Node

from seriatim.actors.calling import on_thread
from seriatim.pressure import tightest

T = TypeVar("T")

_OCTAL: Final = re.compile(r"\\([0-7]{3})")


@frozen
class Reading:
    """What was found. ``limit``: bytes, the machine's own memory where nothing tighter is set.

    ``used``: anonymous bytes, of the group whose limit that is and of all that runs in it (``scope`` "cgroup"), or of
    this process alone.
    """

    limit: int
    used: int
    scope: Literal["cgroup", "process"]


class Machine(Protocol):
    """The port. Both return at once; ``done`` is called once, from any thread, with an error where it didn't work."""

    def look(self, done: Callable[[Reading | BaseException], object]) -> None:
        """Read limit and use."""
        ...

    def trim(self, done: Callable[[Reading | BaseException], object]) -> None:
        """Give back to the machine what is no longer used; then read again."""
        ...


class ThisMachine:
    """The machine that this process runs on, read on a thread of its own each time. ``root``: where /proc and /sys are.

    A thread, because files of the kernel may take their time, and because giving memory back does: while unreachable
    objects are collected nothing else runs in this process, which is worth it only where memory is short.
    """

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root

    def look(self, done: Callable[[Reading | BaseException], object]) -> None:
        """See Machine.look."""
        _beside(self.read, done)

    def trim(self, done: Callable[[Reading | BaseException], object]) -> None:
        """See Machine.trim."""
        _beside(self._trimmed, done)

    def _trimmed(self) -> Reading:
        gc.collect()
        malloc_trim()
        return self.read()

    def read(self) -> Reading:
        """Read limit and use now, on this thread. Raises psutil.Error, OSError where the process itself can't be."""
        ram: int = psutil.virtual_memory().total
        levels = [(level, level.limit()) for level in groups(self._root)]
        limit = tightest((limit for _, limit in levels), ram)
        for level, its in levels:
            if limit is not None and its == limit and (anon := level.anon()) is not None:
                return Reading(limit, anon, "cgroup")
        return Reading(limit or ram, own_anon_bytes(), "process")


def own_anon_bytes() -> int:
    """Anonymous memory of this process: what is resident, without what files and shared memory account for."""
    info = psutil.Process().memory_info()
    return int(info.rss - info.shared)


def malloc_trim() -> bool:
    """Have the C library give free memory back; whether it gave any. Only glibc can."""
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):
        return False
    return bool(trim(ctypes.c_size_t(0)))


# --- control groups ------------------------------------------------------------------------------------


class _Limit(IntegerFile):  # type: ignore[misc]  # cgroupspy ships no types; so below
    """A limit of version 2, where "max" stands for none."""

    def sanitize_get(self, value: str) -> int | None:
        return None if value == "max" else int(value)


class _Unified(Controller):  # type: ignore[misc]
    """A group of version 2, which cgroupspy doesn't know."""

    high = _Limit("memory.high")
    max = _Limit("memory.max")
    stat = DictFile("memory.stat", readonly=True)


class Group:
    """One control group, by the folder that stands for it and the version of its files."""

    def __init__(self, folder: Path, version: Literal[1, 2]) -> None:
        self.folder = folder
        self.version = version
        self._files: Any = (MemoryController if version == 1 else _Unified)(Node(str(folder)))

    def limit(self) -> int | None:
        """Its limit in bytes: where it begins to throttle, else where it stops; None for none."""
        if self.version == 1:
            return self._number("limit_in_bytes")
        high = self._number("high")
        return self._number("max") if high is None else high

    def anon(self) -> int | None:
        """Anonymous bytes of all that runs in it and below it; None where they can't be read."""
        stat: dict[str, int] = _read(lambda: self._files.stat, {})
        return stat.get("total_rss", stat.get("rss")) if self.version == 1 else stat.get("anon")

    def _number(self, name: str) -> int | None:
        found: int | None = _read(lambda: getattr(self._files, name), None)
        return found


def groups(root: Path) -> Iterator[Group]:
    """The groups that bound this process's memory, each hierarchy from the innermost one up."""
    memberships = dict(_memberships(root))
    for version, mount_root, mount_point in _mounts(root):
        path = memberships.get(version)
        if path is None:
            continue
        top = root / mount_point.lstrip("/")
        folder = top.joinpath(*_below(path, mount_root))
        while True:
            yield Group(folder, version)
            if folder == top:
                break
            folder = folder.parent


def _below(path: str, mount_root: str) -> tuple[str, ...]:
    """A group's path as seen below its mount. In a container either may be told as the machine outside sees it; then
    what is mounted is the container's own group.
    """
    try:
        parts = PurePosixPath(path).relative_to(mount_root).parts
    except ValueError:
        return ()
    return () if ".." in parts else parts


def _memberships(root: Path) -> Iterator[tuple[Literal[1, 2], str]]:
    for line in _lines(root / "proc/self/cgroup"):
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            yield 2, path
        elif "memory" in controllers.split(","):
            yield 1, path


def _mounts(root: Path) -> Iterator[tuple[Literal[1, 2], str, str]]:
    """Version, root and place of each mount that may hold limits of memory."""
    for line in _lines(root / "proc/self/mountinfo"):
        about, _, rest = line.partition(" - ")
        fields, kind = about.split(" "), rest.split(" ")
        if len(fields) < 5 or len(kind) < 3:
            continue
        if kind[0] == "cgroup2":
            yield 2, _plain(fields[3]), _plain(fields[4])
        elif kind[0] == "cgroup" and "memory" in kind[2].split(","):
            yield 1, _plain(fields[3]), _plain(fields[4])


def _plain(told: str) -> str:
    """A path of mountinfo, where spaces and the like are told in octal."""
    return _OCTAL.sub(lambda found: chr(int(found[1], 8)), told)


def _lines(file: Path) -> list[str]:
    return _read(file.read_text, "").splitlines()


def _read(read: Callable[[], T], or_else: T) -> T:
    """What a file of the kernel says; groups come and go, and not everybody may read everything."""
    try:
        return read()
    except (OSError, ValueError):
        return or_else


def _beside(work: Callable[[], Reading], done: Callable[[Reading | BaseException], object]) -> None:
    on_thread("seriatim-memory", work).add_done_callback(partial(_tell, done))


def _tell(done: Callable[[Reading | BaseException], object], ended: Any) -> None:
    done(ended.exception() or ended.result())
