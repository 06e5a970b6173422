"""The state home has one owner."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from seriatim.errors import FormatUnsupportedError, HomeBusyError, HomeError, InvalidInputError
from seriatim.storage.home import CLEAN, LOCK, Home
from seriatim.storage.sqlite import SqliteStore
from seriatim.testing.store_contract import born

OWNER = """
import sys, time
from seriatim.storage.home import Home
home = Home.own(sys.argv[1])
print("owned", flush=True)
time.sleep(60)
"""


def owner(path: Path) -> subprocess.Popen[str]:
    """Another process that owns the home by now."""
    child = subprocess.Popen([sys.executable, "-c", OWNER, str(path)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "owned\n"
    return child


def end(child: subprocess.Popen[str]) -> None:
    """Kill and reap it."""
    child.kill()
    child.communicate()


def test_a_home_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    """The folder is 0700, the lock 0600."""
    home = Home.own(tmp_path / "home")
    assert oct((tmp_path / "home").stat().st_mode & 0o777) == "0o700"
    assert oct((tmp_path / "home" / LOCK).stat().st_mode & 0o777) == "0o600"
    home.close(clean=False)


def test_a_second_opener_is_told_who_owns_it(tmp_path: Path) -> None:
    """HomeBusyError names the owning process, and nothing in the home has changed."""
    child = owner(tmp_path)
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    with pytest.raises(HomeBusyError) as caught:
        Home.own(tmp_path)
    assert str(child.pid) in str(caught.value)
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before
    end(child)


def test_a_stopped_owner_keeps_its_home(tmp_path: Path) -> None:
    """SIGSTOP doesn't free the lock."""
    child = owner(tmp_path)
    os.kill(child.pid, signal.SIGSTOP)
    with pytest.raises(HomeBusyError, match="stopped"):
        Home.own(tmp_path)
    end(child)


def test_a_dead_owner_leaves_nothing_to_clean(tmp_path: Path) -> None:
    """After SIGKILL the next owner takes the home at once (B127)."""
    end(owner(tmp_path))
    Home.own(tmp_path).close(clean=False)


def test_a_forked_child_neither_owns_nor_unlocks(tmp_path: Path) -> None:
    """The child's copy is dead; when the child has gone the parent still owns, and a late child holds nothing."""
    home = Home.own(tmp_path)
    child = os.fork()
    if child == 0:
        home.close(clean=True)
        os._exit(0)
    os.waitpid(child, 0)
    probe = "from seriatim.storage.home import Home; import sys; Home.own(sys.argv[1])"
    assert (
        subprocess.run([sys.executable, "-c", probe, str(tmp_path)], capture_output=True, check=False).returncode != 0
    )
    read, write = os.pipe()
    late = os.fork()
    if late == 0:
        os.close(write)
        os.read(read, 1)  # outlive the owner's hold
        os._exit(0)
    os.close(read)
    home.close(clean=False)
    assert (
        subprocess.run([sys.executable, "-c", probe, str(tmp_path)], capture_output=True, check=False).returncode == 0
    )
    os.close(write)
    os.waitpid(late, 0)
    assert not (tmp_path / CLEAN).exists()


def test_a_clean_stop_is_known_once(tmp_path: Path) -> None:
    """The marker is read by the next owner and gone after that."""
    home = Home.own(tmp_path)
    SqliteStore(home.database).close()
    home.close(clean=True)
    home = Home.own(tmp_path)
    assert home.was_clean
    assert not (tmp_path / CLEAN).exists()
    home.close(clean=False)
    home = Home.own(tmp_path)
    assert not home.was_clean
    home.close(clean=False)


@pytest.mark.parametrize("clean", [True, False])
def test_tending_a_home_leaves_its_stop_what_it_was(tmp_path: Path, clean: bool) -> None:
    """Work between two lives, also one that fails, makes no stop clean and none unclean; and it makes no home."""
    home = Home.own(tmp_path)
    SqliteStore(home.database).close()
    home.close(clean=clean)
    for work in (lambda: None, lambda: 1 / 0):
        with contextlib.suppress(ZeroDivisionError), Home.tended(tmp_path) as tended:
            SqliteStore(tended.database).close()
            work()
    home = Home.own(tmp_path)
    assert home.was_clean is clean
    home.close(clean=False)
    with pytest.raises(HomeError, match="no state"), Home.tended(tmp_path / "none"):
        pass
    assert not (tmp_path / "none").exists()


def test_a_marker_of_another_life_says_nothing(tmp_path: Path) -> None:
    """Beside a database that has moved on, or a damaged one, the marker isn't believed; it is deleted all the same."""
    for change in ("opened", "written", "garbled"):
        home = Home.own(tmp_path)
        SqliteStore(home.database).close()
        home.close(clean=True)
        store = SqliteStore(tmp_path / "state.db") if change != "garbled" else None
        if store is not None:
            if change == "written":
                store.commit([born()])
            store.close()
        else:
            (tmp_path / CLEAN).write_bytes(b"\xff\x00")
        home = Home.own(tmp_path)
        assert not home.was_clean, change
        assert not (tmp_path / CLEAN).exists()
        home.close(clean=False)


def test_a_newer_format_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    """A home whose database is newer stays as it is: no lock, no marker taken."""
    (tmp_path / "state.db").write_bytes(b"hello " * 100)
    (tmp_path / CLEAN).write_bytes(b"x")
    with pytest.raises(FormatUnsupportedError):
        Home.own(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == [CLEAN, "state.db"]


def test_places_that_cannot_be_a_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file in the way, and a folder that may not be written, are HomeErrors; nothing is made."""
    (tmp_path / "file").touch()
    with pytest.raises(HomeError):
        Home.own(tmp_path / "file")
    with pytest.raises(HomeError):
        Home.own(tmp_path / "file" / "home")
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(HomeError):
        Home.own(tmp_path / "new")
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("place", [5, None, b"home", "", "a\0b", "bytes that are no text \udcff"])
def test_what_is_no_path_is_the_callers_error(place: Any) -> None:
    """Told by its name, whether the home is to be owned or read."""
    for use in (Home.own, Home.database_of):
        with pytest.raises(InvalidInputError, match="home"):
            use(place)


def test_a_name_that_no_folder_can_have_is_a_home_error(tmp_path: Path) -> None:
    """What the system says of it is told."""
    with pytest.raises(HomeError, match="File name too long"):
        Home.own(tmp_path / ("a" * 300))


def test_a_pipe_in_the_markers_place_is_refused(tmp_path: Path) -> None:
    """No start waits for what may come of it."""
    os.mkfifo(tmp_path / CLEAN)
    with pytest.raises(HomeError, match="not a file"):
        Home.own(tmp_path)
    (tmp_path / CLEAN).unlink()
    Home.own(tmp_path).close(clean=False)


def test_closing_twice(tmp_path: Path) -> None:
    """A second close does nothing, not even mark the stop as clean."""
    home = Home.own(tmp_path)
    SqliteStore(home.database).close()
    home.close(clean=False)
    home.close(clean=True)
    assert not (tmp_path / CLEAN).exists()
