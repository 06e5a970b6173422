"""What a turn costs on disk doesn't depend on how many came before it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from seriatim.actors.upkeep import Growth
from seriatim.storage.sqlite import SqliteStore
from tests.growth.worlds import Life

LIVES, TURNS = 4, 250


@pytest.fixture
def path() -> Iterator[Path]:
    """A database in memory if there is such a place: nothing here asks what a sync costs."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        yield Path(folder) / "state.db"


def bytes_of(life: Life) -> int:
    """The database's size, what is still in the WAL included."""
    connection = life.look._connection  # type: ignore[attr-defined]
    pages, size = connection.execute("SELECT * FROM pragma_page_count, pragma_page_size").fetchone()
    return int(pages * size)


def test_bytes_per_turn_stay_the_same_over_a_thousand_turns(path: Path) -> None:
    """Checkpoints and snapshots of what is shown included, and with restarts in between, growth is linear (B110)."""
    grown, kept = [], (0, 0)
    for number in range(LIVES):
        life = Life(lambda: SqliteStore(path), Growth(events=256, compact_events=0))
        if not number:
            life.talk(1)  # the lane, its session, and a page for each table
        before = bytes_of(life)
        life.talk(TURNS)
        grown.append(bytes_of(life) - before)
        connection = life.look._connection  # type: ignore[attr-defined]
        kept = connection.execute("SELECT count(*), sum(length(data)) FROM checkpoints").fetchone()
        life.end()
    assert max(grown) <= 1.1 * min(grown), grown
    assert kept[0] == 3, "one of each fold, however long the logs are"
    assert kept[1] < 0.05 * sum(grown)
