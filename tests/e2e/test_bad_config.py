"""What can't work is said in one line that names it, with exit code 2, and nothing is written."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from seriatim.cli import main
from seriatim.storage.home import Home
from seriatim.storage.schema import FORMAT
from seriatim.storage.sqlite import SqliteStore
from tests.e2e.command import seriatim

ADAPTER = '[adapters.chat]\ntype = "irc"\nhost = "127.0.0.1"\nport = 1\nnick = "Bot"\n'

Tree = dict[str, tuple[int, bytes]]


def tree(folder: Path) -> Tree:
    """Every file and folder below ``folder``, with when it was changed and what is in it."""
    found = sorted(folder.rglob("*"))
    return {
        str(path.relative_to(folder)): (path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else b"")
        for path in found
    }


def refused(folder: Path, *arguments: str) -> str:
    """Run a command that must be refused, and give its one line."""
    before = tree(folder)
    done = seriatim(folder, *arguments)
    assert (done.returncode, done.stdout) == (2, ""), done
    assert tree(folder) == before
    line, rest = done.stderr.split("\n", 1)
    assert rest == ""
    return line


@pytest.fixture(params=["serve", "chat"])
def command(request: pytest.FixtureRequest) -> str:
    """Both commands that run a gateway."""
    name: str = request.param
    return name


def configured(folder: Path, text: str = "") -> str:
    """Path of a configuration that is good but for ``text`` before its adapter."""
    path = folder / "bot.toml"
    path.write_text(text + ADAPTER)
    return str(path)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("hom = 'state'\n", "hom"),
        ("[agent]\nmodle = 'x'\n", "agent.modle"),
        ("[stop]\ndrain_s = 'soon'\n", "stop.drain_s"),
        ("[agent]\nfactory = 'nowhere_at_all:make'\n", "agent.factory"),
        ("[adapters.other]\n", "adapters.other.type"),
    ],
)
def test_a_wrong_key_is_named(tmp_path: Path, text: str, key: str) -> None:
    """Unknown keys and bad values, with their dotted key."""
    line = refused(tmp_path, "serve", "--config", configured(tmp_path, text), "--home", str(tmp_path / "home"))
    assert key in line.replace(":", " ").split()


@pytest.mark.parametrize(
    ("text", "key"), [("nik = 'x'\n", "adapters.chat.nik"), ("burst = 0\n", "adapters.chat.burst")]
)
def test_a_wrong_option_of_an_adapter_is_named(tmp_path: Path, text: str, key: str) -> None:
    """Adapters' own options are checked before anything starts."""
    path = configured(tmp_path)
    Path(path).write_text(ADAPTER + text)
    assert f"{key}:" in refused(tmp_path, "serve", "--config", path, "--home", str(tmp_path / "home"))


def test_a_missing_file_is_named(tmp_path: Path, command: str) -> None:
    """It doesn't fall back on the defaults."""
    missing = str(tmp_path / "missing.toml")
    assert missing in refused(tmp_path, command, "--config", missing, "--home", str(tmp_path / "home"))


def _file(folder: Path) -> Path:
    (folder / "home").write_text("not a folder")
    return folder / "home"


def _under_a_file(folder: Path) -> Path:
    return _file(folder) / "deeper"


def _in_proc(folder: Path) -> Path:
    return Path("/proc/seriatim-home")


def _newer(folder: Path) -> Path:
    home = folder / "home"
    home.mkdir()
    SqliteStore(home / "state.db").close()
    connection = sqlite3.connect(home / "state.db")
    connection.execute(f"PRAGMA user_version = {FORMAT + 1}")
    connection.close()
    return home


def _foreign(folder: Path) -> Path:
    home = folder / "home"
    home.mkdir()
    connection = sqlite3.connect(home / "state.db")
    connection.execute("CREATE TABLE recipes(name)")
    connection.close()
    return home


def _too_long(folder: Path) -> Path:
    return folder / ("a" * 300)


@pytest.mark.parametrize("make", [_file, _under_a_file, _in_proc, _newer, _foreign, _too_long])
def test_a_home_that_cant_be_used_is_named(tmp_path: Path, make: Callable[[Path], Path]) -> None:
    """A file in its place or above it, no place at all, a newer format, another program's database, a long name."""
    config, home = configured(tmp_path), make(tmp_path)
    line = refused(tmp_path, "serve", "--config", config, "--home", str(home))
    assert str(home) in line
    if make is _newer:
        assert f"format {FORMAT + 1}" in line


@pytest.mark.parametrize(
    "command",
    [
        *("balance", "rebuild", "sweep", "undelivered", "export files", "verify files", "repair --to new"),
        *("import files", "import files --dry-run"),
    ],
)
@pytest.mark.parametrize("home", ["a" * 300, "\udcff"])
def test_no_command_takes_a_home_whose_name_cannot_be(
    tmp_path: Path, command: str, home: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Too long for the file system, or bytes that are no text: told in one line by those that run no gateway, too."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "files").mkdir()
    before = tree(tmp_path)
    assert main([*command.split(), "--home", home]) == 2
    told = capsys.readouterr()
    assert (told.out, told.err.count("\n")) == ("", 1)
    assert told.err.startswith("seriatim: ")
    assert tree(tmp_path) == before


@pytest.mark.parametrize("command", ["import {}", "repair --to {}"])
def test_nor_another_folder_whose_name_cannot_be(
    tmp_path: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The folder to read from, the folder to repair into."""
    SqliteStore(tmp_path / "state.db").close()
    before = tree(tmp_path)
    assert main([*command.format("a" * 300).split(), "--home", str(tmp_path)]) == 2
    told = capsys.readouterr()
    assert (told.out, told.err.count("\n")) == ("", 1)
    assert tree(tmp_path) == before


def test_the_owner_of_a_home_is_named(tmp_path: Path, command: str) -> None:
    """Another live process owns it: the line holds its number, and the owner goes on."""
    config = configured(tmp_path)
    home = Home.own(tmp_path / "home")
    try:
        line = refused(tmp_path, command, "--config", config, "--home", str(tmp_path / "home"))
        assert f"process {os.getpid()} " in line
    finally:
        home.close(clean=False)
