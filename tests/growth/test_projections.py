"""What only repeats the logs can be deleted, and comes to the same again."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from seriatim.actors.upkeep import Growth
from seriatim.errors import CorruptionError
from seriatim.storage.audit import audit
from seriatim.storage.projections import rebuild
from seriatim.storage.sqlite import SqliteStore
from seriatim.storage.sqlite_reader import SqliteReader
from tests.e2e.command import seriatim
from tests.growth.worlds import Life

SMALL = Growth(events=10, rest_events=1, compact_events=40)
WIPE = ("DELETE FROM lanes", "DELETE FROM checkpoints", "DROP VIEW messages", "DROP VIEW sessions")


def facts(path: Path) -> Any:
    """What the projections say."""
    reader = SqliteReader(path)
    connection = sqlite3.connect(path)
    found = (
        sorted(reader.open_work(), key=lambda work: work[0]),
        reader.counters(),
        connection.execute("SELECT * FROM messages ORDER BY id").fetchall(),
        connection.execute("SELECT * FROM sessions ORDER BY id").fetchall(),
    )
    connection.close()
    reader.close()
    return found


def sql(path: Path, *statements: str) -> None:
    """Change the file."""
    connection = sqlite3.connect(path, isolation_level=None)
    for statement in statements:
        connection.execute(statement)
    connection.close()


@pytest.fixture
def lived(tmp_path: Path) -> Path:
    """A home in which lanes rest, wait, and are compacted."""
    path = tmp_path / "state.db"
    tmp_path.chmod(0o700)
    life = Life(lambda: SqliteStore(path), SMALL)
    life.talk(12, "1")
    life.talk(2, "2")
    life.say("/stop", "2")
    life.runtime.slots._free = 0
    life.say("one", "3")
    life.say("two", "3")
    life.say("three", "1")
    assert life.look.archive(life.look.logs("lane:")[0]) is not None
    life.end()
    return path


@pytest.mark.parametrize("do", [rebuild, lambda path: seriatim(path.parent, "rebuild", "--home", str(path.parent))])
def test_every_projection_deleted_at_once_comes_back(lived: Path, do: Callable[[Path], Any]) -> None:
    """Index of open work, counters, checkpoints and views: by the function, by the command, and in the next life."""
    before = facts(lived)
    assert len(before[0]) == 2
    sql(lived, *WIPE)
    do(lived)
    life = Life(lambda: SqliteStore(lived), SMALL)
    assert audit(life.look).holds
    assert audit(life.look).counters.accepted == before[1].accepted
    assert life.runtime.slots.held == 0
    assert sorted(claim.text for job in life.jobs for claim in job.claims) == ["one", "three", "two"]
    life.end()
    assert facts(lived)[0] == []


def test_what_was_right_stays(lived: Path) -> None:
    """A rebuild of a sound file finds nothing wrong; of one with odd rows, those."""
    before = facts(lived)
    assert rebuild(lived) == 0
    sql(lived, "UPDATE lanes SET waiting = 0, accepted = accepted + 1 WHERE log = (SELECT min(log) FROM lanes)")
    assert rebuild(lived) == 1
    assert facts(lived) == before


def test_a_damaged_log_is_not_rebuilt_over(lived: Path) -> None:
    """The row may be all that is left: nothing is changed."""
    sql(lived, "UPDATE events SET data = '{}' WHERE type = 'inbox/claimed'", "UPDATE lanes SET accepted = 99")
    with pytest.raises(CorruptionError):
        rebuild(lived)
    reader = SqliteReader(lived)
    assert reader.counters().accepted % 99 == 0
    reader.close()
