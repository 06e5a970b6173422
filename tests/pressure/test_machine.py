"""Limits and use of memory, read from trees of control groups that are laid into a folder."""

from __future__ import annotations

import ctypes
import mmap
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest

from seriatim.actors.machine import Reading, ThisMachine, malloc_trim, own_anon_bytes

GIB = 1024**3
RAM = 64 * GIB
V2 = "31 24 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate"
V1 = "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory"
CPU = "32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu"
BESIDE = "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw"
UNLIMITED_V1 = str(2**63 - 4096)


class Tree:
    """A machine's /proc and /sys in a folder."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def lay(self, memberships: str, mounts: list[str], files: Mapping[str, object]) -> None:
        """``files``: paths below the root, with what they say."""
        told: dict[str, object] = {
            "proc/self/cgroup": memberships + "\n",
            "proc/self/mountinfo": "\n".join(mounts) + "\n",
            **files,
        }
        for name, text in told.items():
            file = self.root / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"{text}\n")

    def read(self) -> tuple[int, int, str]:
        """What is found: limit, use (-1: this process's own), scope."""
        found = ThisMachine(self.root).read()
        return found.limit, -1 if found.scope == "process" else found.used, found.scope


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tree:
    """A machine of 64 GiB without any control group."""
    memory = psutil.virtual_memory()._replace(total=RAM)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory)
    return Tree(tmp_path)


UNIT = "sys/fs/cgroup/system.slice/bot.service"
NESTED = {
    f"{UNIT}/memory.high": "max",
    f"{UNIT}/memory.max": 8 * GIB,
    f"{UNIT}/memory.stat": f"anon {GIB}\nfile 5\ninactive_file 3",
    "sys/fs/cgroup/system.slice/memory.high": 4 * GIB,
    "sys/fs/cgroup/system.slice/memory.max": 5 * GIB,
    "sys/fs/cgroup/system.slice/memory.stat": f"anon {3 * GIB}\nfile 5",
    "sys/fs/cgroup/memory.stat": "anon 7",
}


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({}, (4 * GIB, 3 * GIB, "cgroup")),
        ({f"{UNIT}/memory.high": 2 * GIB}, (2 * GIB, GIB, "cgroup")),
        ({f"{UNIT}/memory.max": 3 * GIB}, (3 * GIB, GIB, "cgroup")),
        ({"sys/fs/cgroup/system.slice/memory.high": "max"}, (5 * GIB, 3 * GIB, "cgroup")),
    ],
)
def test_version_2_counts_the_tightest_level(
    tree: Tree, change: dict[str, object], found: tuple[int, int, str]
) -> None:
    """Per level memory.high, else memory.max; the least of them along the chain, with that level's anonymous memory."""
    tree.lay("0::/system.slice/bot.service", [V2], {**NESTED, **change})

    assert tree.read() == found


def test_version_1_counts_the_tightest_level(tree: Tree) -> None:
    """The limit of each level; use is all that the group and those below it hold."""
    files = {
        "sys/fs/cgroup/memory/a/b/memory.limit_in_bytes": UNLIMITED_V1,
        "sys/fs/cgroup/memory/a/b/memory.stat": "cache 1\nrss 2\ntotal_cache 3\ntotal_rss 4",
        "sys/fs/cgroup/memory/a/memory.limit_in_bytes": 2 * GIB,
        "sys/fs/cgroup/memory/a/memory.stat": "cache 1\nrss 20\ntotal_cache 3\ntotal_rss 40",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": UNLIMITED_V1,
    }
    tree.lay("5:cpu,cpuacct:/elsewhere\n4:memory:/a/b\n0::/", [CPU, V1], files)

    assert tree.read() == (2 * GIB, 40, "cgroup")


def test_a_hybrid_has_its_limit_where_the_controller_is(tree: Tree) -> None:
    """Version 2 is mounted beside version 1 and holds no memory files: the limit of version 1 counts."""
    files = {
        "sys/fs/cgroup/memory/a/memory.limit_in_bytes": GIB,
        "sys/fs/cgroup/memory/a/memory.stat": "rss 20",
        "sys/fs/cgroup/unified/a/cgroup.procs": "1",
    }
    tree.lay("4:memory:/a\n0::/a", [V1, BESIDE], files)

    assert tree.read() == (GIB, 20, "cgroup")


@pytest.mark.parametrize("high", ["max", str(RAM), str(2**70)])
def test_without_a_limit_the_machine_counts(tree: Tree, high: str) -> None:
    """No level has a limit below the machine's own memory: that is the limit, and this process's memory the use."""
    files = {f"{UNIT}/memory.high": high, f"{UNIT}/memory.max": "max", f"{UNIT}/memory.stat": "anon 5"}
    tree.lay("0::/system.slice/bot.service", [V2], files)

    assert tree.read() == (RAM, -1, "process")


@pytest.mark.parametrize(
    ("membership", "mount"),
    [
        ("0::/", V2),
        ("0::/docker/abc", V2.replace("0:26 / ", "0:26 /docker/abc ")),
        ("0::/../host.slice", V2),
        ("0::/docker/abc", V2.replace("0:26 / ", "0:26 /docker/other ")),
        ("4:memory:/docker/abc", V1.replace("0:32 / ", "0:32 /docker/abc ").replace("/memory ", " ")),
    ],
)
def test_a_container_sees_only_its_own_level(tree: Tree, membership: str, mount: str) -> None:
    """With or without a namespace of its own, and whatever path it is told: what is mounted is its own group."""
    files = {
        "sys/fs/cgroup/memory.max": GIB,
        "sys/fs/cgroup/memory.limit_in_bytes": GIB,
        "sys/fs/cgroup/memory.stat": "anon 9\ntotal_rss 9",
    }
    tree.lay(membership, [mount], files)

    assert tree.read() == (GIB, 9, "cgroup")


@pytest.mark.parametrize("says", ["", "no number", "anon 5\n\nbroken", "anon"])
def test_what_cannot_be_read_is_as_if_it_were_not_there(tree: Tree, says: str) -> None:
    """A level without a readable limit is passed over; where its use can't be read, this process's own counts."""
    tree.lay("0::/system.slice/bot.service", [V2], {**NESTED, "sys/fs/cgroup/system.slice/memory.stat": says})
    assert tree.read() == (4 * GIB, -1, "process")

    (tree.root / "sys/fs/cgroup/system.slice/memory.high").write_text("what?")
    (tree.root / "sys/fs/cgroup/system.slice/memory.max").unlink()
    assert tree.read() == (8 * GIB, GIB, "cgroup")


def test_a_file_may_be_forbidden(tree: Tree) -> None:
    """A folder in a file's place stands for every error of the system, which root would not see for a mode."""
    tree.lay("0::/system.slice/bot.service", [V2], NESTED)
    for name in ("memory.high", "memory.max"):
        (tree.root / "sys/fs/cgroup/system.slice" / name).unlink()
        (tree.root / "sys/fs/cgroup/system.slice" / name).mkdir()

    assert tree.read() == (8 * GIB, GIB, "cgroup")


@pytest.mark.parametrize("mounts", [[], ["nonsense"], ["1 2 3 - cgroup2"], [V1]])
def test_a_machine_without_control_groups(tree: Tree, mounts: list[str]) -> None:
    """Neither a missing file nor a strange line is an error."""
    assert tree.read() == (RAM, -1, "process")

    tree.lay("strange\n0::/a", mounts, {})
    assert tree.read() == (RAM, -1, "process")


def test_a_mount_may_have_a_strange_name(tree: Tree) -> None:
    """Spaces in a mount's place are told in octal."""
    files = {"sys/my groups/memory.max": GIB, "sys/my groups/memory.stat": "anon 3"}
    tree.lay("0::/", [V2.replace("/sys/fs/cgroup", "/sys/my\\040groups")], files)

    assert tree.read() == (GIB, 3, "cgroup")


def test_what_a_process_uses_is_seen(tmp_path: Path) -> None:
    """Sixteen MiB more that it writes to are at least twelve MiB more of anonymous memory; a file's pages are none."""
    size, page, most, few = 16 * 1024**2, mmap.PAGESIZE, 12 * 1024**2, 4 * 1024**2
    (tmp_path / "file").write_bytes(bytes(size))
    private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS  # surely new: the heap may hold as much that was freed before
    with (
        (tmp_path / "file").open("rb") as file,
        mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) as mapped,
        mmap.mmap(-1, size, flags=private) as fresh,
    ):
        before = own_anon_bytes()
        for at in range(0, size, page):
            fresh[at] = 1
        written = own_anon_bytes()
        for at in range(0, size, page):
            assert not mapped[at]
        read = own_anon_bytes()

    assert written - before > most
    assert read - written < few


def test_without_glibc_there_is_nothing_to_trim(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other C libraries have no malloc_trim: then memory isn't given back, and that is no error."""

    def without(_: object) -> Any:
        return object()

    monkeypatch.setattr(ctypes, "CDLL", without)
    assert malloc_trim() is False


@pytest.mark.parametrize("what", ["look", "trim"])
def test_the_machine_is_read_beside_the_caller(tmp_path: Path, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both read on a thread of their own, and answer with what was read."""
    told: list[Any] = []
    readers: list[threading.Thread] = []
    came = threading.Event()
    read = ThisMachine.read

    def noted(self: ThisMachine) -> Reading:
        readers.append(threading.current_thread())
        return read(self)

    def done(found: Reading | BaseException) -> None:
        told.append(found)
        came.set()

    monkeypatch.setattr(ThisMachine, "read", noted)
    getattr(ThisMachine(tmp_path), what)(done)
    assert came.wait(60)
    [found], [reader] = told, readers
    assert isinstance(found, Reading)
    assert found.used > 0
    assert reader is not threading.current_thread()


def test_an_error_is_an_answer_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where not even the process can be read, whoever asked hears of it."""
    told: list[object] = []
    came = threading.Event()
    trouble = psutil.AccessDenied()

    def refuse() -> Any:
        raise trouble

    monkeypatch.setattr(psutil, "virtual_memory", refuse)

    def done(found: object) -> None:
        told.append(found)
        came.set()

    ThisMachine(tmp_path).look(done)
    assert came.wait(60)
    assert told == [trouble]
