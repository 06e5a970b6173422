"""Sessions go from one backend to another and back, and what arrived is what left."""

from __future__ import annotations

import asyncio
import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from seriatim.cli import main
from seriatim.errors import (
    LogExistsError,
    LogNotFoundError,
    SessionPersistenceCorruptionError,
    StoreUnhealthyError,
)
from seriatim.storage.event_log.backend import LogBackend
from seriatim.storage.event_log.header import SessionHeader
from seriatim.storage.event_log.jsonl import JsonlLogs
from seriatim.storage.event_log.persistence import SessionPersistence
from seriatim.storage.event_log.store_logs import StoreLogs
from seriatim.storage.event_log.transfer import copy, salvage, verify
from seriatim.storage.event_log.values import SessionEvent, SessionInspection
from seriatim.storage.home import Home
from seriatim.storage.sqlite import SqliteStore
from seriatim.testing.log_contract import ID, event, header, opened, turn
from seriatim.testing.log_gates import Gated

from . import seed_fixtures as seed
from .worlds import MEDIA, JsonlWorld, Medium


def fill(backend: LogBackend) -> list[str]:
    """Three sessions: one with every field, one open, one large."""
    rich = header("rich", cwd="/srv/é", parent_session="p", seed_length=1, origin="subagent", agent_preset="x")
    backend.append("rich", rich, 0, [SessionEvent("user/message", 0, 1, {"text": "é"}, False, (), "append")])
    backend.append("rich", rich, 1, turn(1))
    backend.append("open/1", header("open/1"), 0, opened(0))
    large = [event("x/y", n, text="x" * 1_500_000) for n in range(4)]  # more than one batch of a transfer
    for first in (0, 2):
        backend.append("large", header("large"), first, large[first : first + 2])
    return ["large", "open/1", "rich"]


@pytest.mark.parametrize(("one", "other"), list(itertools.permutations(MEDIA, 2)), ids=lambda medium: medium.name)
def test_what_leaves_arrives(tmp_path: Path, one: Medium, other: Medium) -> None:
    """Between any two backends every session is copied equal, once, and verified; an open turn stays open."""
    (tmp_path / "one").mkdir()
    (tmp_path / "other").mkdir()
    source, target = one.make(tmp_path / "one").open(), other.make(tmp_path / "other").open()
    names = fill(source)
    assert verify(source, target).results == dict.fromkeys(names, "missing")
    assert copy(source, target, dry_run=True).results == dict.fromkeys(names, "copied")
    assert verify(source, target).results == dict.fromkeys(names, "missing")

    report = copy(source, target)

    assert (report.results, report.problems, report.events) == (dict.fromkeys(names, "copied"), [], 14)
    assert report.holds
    again = copy(source, target)
    assert (again.results, again.events) == (dict.fromkeys(names, "same"), 0)
    assert verify(source, target).holds
    assert verify(target, source).holds
    source.close()
    target.close()


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    """Another header, another event or a longer log in the target stays, and is told; a beginning is gone on with."""
    source, target = JsonlLogs(tmp_path / "a"), JsonlLogs(tmp_path / "b", "raw")
    for name in ("head", "event", "longer", "begun"):
        source.append(name, header(name), 0, [*turn(0), *turn(6, 2)])
    target.append("head", header("head", agent_preset="x"), 0, turn(0))
    target.append("event", header("event"), 0, turn(0, text="other"))
    target.append("longer", header("longer"), 0, [*turn(0), *turn(6, 2), *turn(12, 3)])
    target.append("begun", header("begun"), 0, turn(0))

    report = copy(source, target)

    assert report.results == {"head": "differs", "event": "differs", "longer": "differs", "begun": "copied"}
    assert not report.holds
    assert verify(source, target).results == {**report.results, "begun": "same"}


def test_a_bad_session_holds_up_no_other(tmp_path: Path) -> None:
    """A damaged log is a problem of the report; the others are copied."""
    world = JsonlWorld(tmp_path, "raw")
    source = world.open()
    for name in ("a", "b", "c"):
        source.append(name, header(name), 0, turn(0, text="damage"))
        source.append(name, header(name), 6, turn(6, 2))
    world.damage("b")

    report = copy(world.open(), StoreLogs(SqliteStore(tmp_path / "t.db")), ["a", "b", "c", "nobody"])

    assert report.results == {"a": "copied", "c": "copied"}
    assert {p.where: type(p.error) for p in report.problems} == {
        "b": SessionPersistenceCorruptionError, "nobody": LogNotFoundError,
    }  # fmt: skip


def test_what_was_not_written_is_not_counted(tmp_path: Path) -> None:
    """Where the target takes nothing, every session is a problem of the report, and no event counts as carried."""
    source = JsonlLogs(tmp_path / "a")
    names = fill(source)
    target = Gated(JsonlLogs(tmp_path / "b"))
    target.fail("append", *(StoreUnhealthyError("the disk is full") for _ in names))

    report = copy(source, target)

    assert ([problem.where for problem in report.problems], report.results, report.events) == (names, {}, 0)


@pytest.mark.parametrize("medium", MEDIA, ids=lambda medium: medium.name)
def test_a_damaged_session_is_salvaged(tmp_path: Path, medium: Medium) -> None:
    """What comes before damage, or an unknown event, becomes a new session with lineage; the old one stays as it is."""
    world = medium.make(tmp_path)
    backend = world.open()
    backend.append(ID, header(cwd="/srv/x"), 0, opened(0))
    backend.append(ID, header(cwd="/srv/x"), 3, [event("x/y", 3, text="damage")])
    if medium.name.startswith("jsonl"):
        whole = _place(backend).read_bytes()
        at = len(whole) - 12
        _place(backend).write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        backend = world.open()
    before = backend.salvage(ID)
    assert before is not None

    made, problems = salvage(backend, ID, "new", 5)

    assert made == SessionHeader(id="new", created_at=5, cwd="/srv/x", parent_session=ID, seed_length=3)
    assert len(problems) == 1
    after = backend.salvage(ID)
    assert after is not None
    assert after[0] == before[0]
    found = _load(backend, "new")
    assert [e.type for e in found.events[3:]] == ["step/end", "turn/end", "session/end-seed"]
    with pytest.raises(LogExistsError):
        salvage(backend, ID, "new", 5)
    with pytest.raises(LogNotFoundError):
        salvage(backend, "nobody", "other", 5)


def _place(backend: LogBackend) -> Path:
    location = backend.locate(header(cwd="/srv/x"))
    assert location is not None
    return Path(location.path)


def _load(backend: LogBackend, session_id: str) -> SessionInspection:
    async def story() -> SessionInspection:
        return await SessionPersistence(backend).load(session_id)

    return asyncio.run(story())


def run(*arguments: object) -> int:
    """The command's exit code."""
    return main([str(argument) for argument in arguments])


def test_a_home_is_exported_and_taken_in(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """export, verify and import carry a home's sessions to files and into another home; a dry run writes nothing."""
    home, copied, files = tmp_path / "home", tmp_path / "copied", tmp_path / "files"
    owned = Home.own(home)
    store = StoreLogs(SqliteStore(owned.database))
    names = fill(store)
    store.close()
    owned.close(clean=True)

    assert run("export", "--home", home, files, "--dry-run") == 0
    assert not files.exists()
    assert run("verify", "--home", home, files) == 1
    capsys.readouterr()
    assert run("export", "--home", home, files, "--json") == 0
    told: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert told == {"holds": True, "sessions": dict.fromkeys(names, "copied"), "events": 14, "problems": []}
    assert run("verify", "--home", home, files) == 0
    assert run("import", "--home", copied, files, "--dry-run") == 0
    copied.mkdir()
    assert run("import", "--home", copied, files, "--dry-run") == 0
    assert run("import", "--home", copied, files / "_no-cwd" / "rich" / "session.jsonl.zst") == 2
    assert list(copied.iterdir()) == []
    assert run("import", "--home", copied, files) == 0
    assert "3 copied" in capsys.readouterr().out
    assert run("verify", "--home", copied, files) == 0
    assert run("export", "--home", home, tmp_path / "raw", "--encoding", "raw", "--session", "rich") == 0
    assert [s.header.id for s in JsonlLogs(tmp_path / "raw", "raw").page(None, 9).snapshots] == ["rich"]


def test_the_seed_s_files_are_taken_in(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Import --seed takes the seed system's JSONL root or database; what can't be taken is told, exit code 1."""
    seed.write_jsonl(tmp_path / "seed", seed.header("a"), seed.conversation())
    database = seed.write_sqlite(tmp_path / "seed.db", [(seed.header("b"), seed.pre_loop())])
    home = tmp_path / "home"

    assert run("import", "--home", home, "--seed", tmp_path / "seed") == 0
    assert run("import", "--home", home, "--seed", database) == 0
    seed.write_jsonl(tmp_path / "bad", {**seed.header("c"), "version": 9}, seed.pre_loop())
    capsys.readouterr()
    assert run("import", "--home", home, "--seed", tmp_path / "bad") == 1
    assert "has format 9" in capsys.readouterr().out
    assert run("export", "--home", home, tmp_path / "out") == 0
    found = {s.header.id for s in JsonlLogs(tmp_path / "out").page(None, 9).snapshots}
    assert found == {"a", "b"}
