"""Other programs put their hands on the live database: locks that get lost, files that are taken away."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from seriatim.storage.sqlite import SqliteStore
from seriatim.storage.sqlite_reader import SqliteReader
from seriatim.testing.store_contract import LANE, born, commit, kinds, part
from tests.storage.worlds import SqliteWorld

INTRUDER = """
import sqlite3, sys
for n in range(100):
    connection = sqlite3.connect(sys.argv[1], timeout=30)
    connection.execute("CREATE TABLE IF NOT EXISTS intruder(n)")
    connection.execute("INSERT INTO intruder VALUES (?)", [n])
    connection.commit()
    connection.close()
"""


@pytest.fixture
def world(tmp_path: Path) -> Iterator[SqliteWorld]:
    """A folder of its own."""
    made = SqliteWorld(tmp_path)
    yield made
    made.close()


FRESH = """
import sqlite3, sys
from seriatim.storage.sqlite import SqliteStore
from seriatim.testing.store_contract import LANE
store = SqliteStore(sys.argv[1])
print(len(store.reader().read(LANE)))
store.close()
connection = sqlite3.connect(sys.argv[1])
print(*connection.execute("PRAGMA integrity_check").fetchone())
"""


def found_by_the_next_start(path: Path) -> int:
    """How many events a process finds that has seen nothing of this one's files; SQLite finds nothing wrong."""
    done = subprocess.run([sys.executable, "-c", FRESH, str(path)], capture_output=True, text=True, check=True)
    count, verdict = done.stdout.splitlines()
    assert verdict == "ok"
    return int(count)


@pytest.mark.parametrize("raw", [False, True], ids=["", "raw open and close in this process"])
def test_a_hundred_visits_of_another_writer(world: SqliteWorld, raw: bool) -> None:
    """A foreign program opens, writes and closes a hundred times: what is told durable is there, the file whole (B91).

    ``raw``: some code of the host's own process reads the file besides, which drops this process's locks on it. The
    visitor's close then takes the WAL away; the store notices, and stops. What it wrote in just that moment nothing
    can save, but the file is whole and nothing goes on writing.
    """
    store = world.open()
    store.commit([born()])
    durable, told = 1, "Durable"
    with subprocess.Popen([sys.executable, "-c", INTRUDER, str(world.path)]) as intruder:
        while intruder.poll() is None and told == "Durable":
            if raw:
                world.path.read_bytes()
            (told,) = kinds(store.commit([commit(f"c{durable}", part(LANE, durable))]))
            durable += told == "Durable"
        assert intruder.wait() == 0
    if raw:
        assert told == "Unknown"
        assert kinds(store.commit([commit("x", part(LANE, durable))])) == ["OwnershipLostError"]
    else:
        assert told == "Durable"
    store.close()
    found = found_by_the_next_start(world.path)
    assert found <= durable if raw else found == durable


def test_our_own_readers_drop_no_lock(world: SqliteWorld) -> None:
    """A reader of the owner's own process leaves its locks, so that nobody's close takes the WAL away (B91)."""
    store = world.open()
    store.commit([born()])
    wal = world.path.with_name("state.db-wal")
    before = wal.stat().st_ino
    SqliteReader(world.path).close()
    visit = (
        "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('SELECT * FROM meta').fetchall(); c.close()"
    )
    subprocess.run([sys.executable, "-c", visit, str(world.path)], check=True)
    assert wal.stat().st_ino == before


@pytest.mark.parametrize("what", ["state.db", "state.db-wal"])
def test_a_file_taken_away_stops_the_writing(world: SqliteWorld, what: str) -> None:
    """With database or WAL removed nothing is told durable that nobody would find again, nor made anew (B91)."""
    store = world.open()
    store.commit([born()])
    taken, aside = world.path.with_name(what), world.path.with_name("aside")
    taken.rename(aside)
    offered = commit("c", part(LANE, 1))
    assert kinds(store.commit([offered])) == ["Unknown"]
    assert kinds(store.commit([offered, commit("d", part(LANE, 1))])) == ["Unknown", "OwnershipLostError"]
    store.close()
    assert not taken.exists()
    aside.rename(taken)
    assert found_by_the_next_start(world.path) in (1, 2)


def test_another_database_in_its_place_is_never_written(world: SqliteWorld) -> None:
    """A different store put where ours was is left as it is; the owner has lost."""
    store = world.open()
    store.commit([born()])
    other = world.path.with_name("other.db")
    SqliteStore(other).close()
    bytes_before = other.read_bytes()
    for suffix in ("-wal", "-shm"):
        world.path.with_name(f"state.db{suffix}").unlink()
    other.rename(world.path)
    assert kinds(store.commit([commit("c", part(LANE, 1))])) == ["Unknown"]
    assert kinds(store.commit([commit("d", part(LANE, 1))])) == ["OwnershipLostError"]
    store.close()
    assert world.path.read_bytes() == bytes_before
