"""The database is locked by another program, or damaged: what the gateway says and does."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path
from typing import Literal
from unittest import mock

import pytest

from seriatim.commits import Commit, Durable, Part
from seriatim.errors import CorruptionError
from seriatim.events import Event, LogId
from seriatim.model import MessageEvent, SessionSource
from seriatim.storage.home import Home
from seriatim.storage.spool import Spool, Spooled, spooled
from seriatim.storage.sqlite import SqliteStore
from seriatim.storage.sqlite_reader import SqliteReader
from tests.outage.world import World

BUDGET_MS = 100
"""A twentieth of the usual budget of 2 s, as are the times below of 0.5, 5 and 40 s."""


@pytest.mark.parametrize("held_s", [0.025, 0.25, 2.0])
def test_a_lock_at_the_first_message(tmp_path: Path, held_s: float) -> None:
    """A lock shorter than the budget is waited for; a longer one refuses that message aloud, no more (B90)."""
    world = World(tmp_path, "refuse")

    async def scenario() -> None:
        async with world.gateway() as gateway:
            other = sqlite3.connect(tmp_path / "state.db", isolation_level=None, check_same_thread=False)
            other.execute("BEGIN IMMEDIATE")
            locked = time.monotonic()
            release = threading.Timer(held_s, other.execute, ["ROLLBACK"])
            release.start()
            outcomes: list[tuple[str, str | None]] = []
            while True:
                event = world.platform.say(f"m{len(outcomes)}").event
                began = time.monotonic()
                receipt = await gateway.accept(event)
                outcomes.append((receipt.outcome, receipt.reason))
                if receipt.outcome != "refused":
                    break
                assert receipt.reason == "storage_unavailable"
                assert time.monotonic() - began >= BUDGET_MS / 1000 * 0.9
                assert "locked" in gateway.health()["store"]
            assert time.monotonic() - locked >= held_s * 0.9
            refused = len(outcomes) - 1
            # It waits by the clock: no more tries than the time has budgets.
            assert refused <= held_s * 1000 / BUDGET_MS + 1
            if held_s == 2.0:
                assert refused >= 1
            release.join()
            other.close()
            end = await asyncio.wait_for(receipt.answered(), 60)
            assert end.outcome in ("answered", "duplicate")
            assert gateway.health()["store"] == "works"

    with mock.patch.object(world.medium, "open", partial(SqliteStore, busy_ms=BUDGET_MS)):
        world.run(scenario)


def damage(path: Path, which: Literal["min", "max"]) -> None:
    """Overwrite the oldest or the newest leaf page of the events."""
    connection = sqlite3.connect(path)
    page_size = connection.execute("PRAGMA page_size").fetchone()[0]
    (root,) = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'events'").fetchone()
    connection.close()
    data = bytearray(path.read_bytes())

    def page(number: int) -> memoryview:
        return memoryview(data)[(number - 1) * page_size : number * page_size]

    number = root
    while page(number)[0] == 5:  # an interior page of a table: its children lie in the order of its cells
        held = page(number)
        cell = int.from_bytes(held[12:14])
        number = int.from_bytes(held[cell : cell + 4] if which == "min" else held[8:12])
    assert number != root
    page(number)[:] = b"\xa5" * page_size
    path.write_bytes(data)


def seriatim(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The command line."""
    return subprocess.run([sys.executable, "-m", "seriatim", *arguments], capture_output=True, text=True, check=False)


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A stopped home with some history in two lanes, several pages of it."""
    made = World(tmp_path / "home", "refuse")

    async def before() -> None:
        async with made.gateway() as gateway:
            for number, chat in enumerate("111222"):
                made.platform.say(f"m{number} " + "x" * 3000, chat_id=chat, user_id=chat)
                await made.until(lambda number=number: len(made.replies) == number + 1)  # type: ignore[misc]
            await made.until(lambda: gateway.health()["replies_pending"] == 0)

    made.run(before)
    return made


def test_a_damaged_page_that_the_start_needs(world: World) -> None:
    """The gateway doesn't start on it, says damage and what to do, and changes no byte (B93)."""
    database = world.home / "state.db"
    damage(database, "max")
    before = database.read_bytes()

    async def start() -> None:
        with pytest.raises(CorruptionError, match=r"damaged \(SQLITE_CORRUPT\).*backup"):
            await world.made().start()

    world.run(start)
    assert database.read_bytes() == before


def test_a_damaged_page_of_one_lane(world: World) -> None:
    """That lane fails closed with a reason, the others are served, and nobody is told that all is well (B93)."""
    damage(world.home / "state.db", "min")

    async def after() -> None:
        async with world.gateway() as gateway:
            old = await gateway.accept(world.platform.say("again").event)
            assert (old.outcome, old.reason) == ("refused", "quarantined")
            new = await gateway.accept(world.platform.say("new", chat_id="3", user_id="3").event)
            assert new.outcome in ("accepted", "duplicate")
            await world.until(lambda: world.replies[-1] == "re new")

    world.run(after)
    (error,) = {str(error) for where, error in world.errors if where == "lane"}
    assert "SQLITE_CORRUPT" in error
    assert world.notices == []
    told = seriatim("balance", "--json", "--home", str(world.home))
    assert told.returncode == 1
    assert any("SQLITE_CORRUPT" in problem for problem in json.loads(told.stdout)["problems"])


def test_recovery_goes_to_a_new_file(world: World, tmp_path: Path) -> None:
    """A repair only reads the damaged file; the new home holds every log that is whole, the others are named (B93)."""
    database = world.home / "state.db"
    damage(database, "min")
    before = database.read_bytes()
    done = seriatim("repair", "--home", str(world.home), "--to", str(tmp_path / "new"))
    assert done.returncode == 1, done.stderr
    assert "lost: lane:v1:fake:dm::fake:1::" in done.stdout
    assert database.read_bytes() == before
    again = seriatim("repair", "--home", str(world.home), "--to", str(tmp_path / "new"))
    assert again.returncode == 2
    world.home = tmp_path / "new"

    async def after() -> None:
        async with world.gateway() as gateway:
            assert gateway.balance()["accepted"] == 3
            old = await gateway.accept(world.platform.posted[-1].event)
            assert old.outcome == "duplicate"
            world.platform.say("on", chat_id="2", user_id="2")
            world.platform.say("anew", chat_id="1", user_id="1")
            await world.until(lambda: {"re on", "re anew"} <= set(world.replies))

    world.run(after)
    assert seriatim("balance", "--home", str(world.home)).returncode == 0


def test_a_repair_of_a_whole_home_loses_nothing(world: World, tmp_path: Path) -> None:
    """What isn't damaged is copied to the last event."""
    done = seriatim("repair", "--home", str(world.home), "--to", str(tmp_path / "new"))
    assert done.returncode == 0, done.stdout + done.stderr
    tables = ("logs", "events", "commits", "lanes", "keys", "archives")
    held = []
    for home in (world.home, tmp_path / "new"):
        connection = sqlite3.connect(home / "state.db")
        held.append([sorted(connection.execute(f"SELECT * FROM {table}").fetchall(), key=repr) for table in tables])
        connection.close()
    assert held[0] == held[1]


def test_a_repair_carries_the_spool(world: World, tmp_path: Path) -> None:
    """What was accepted into the spool waits in the new home's; a damaged line is told by balance and by repair."""
    kept = [Spooled(f"i{n}", f"k{n}", "/", n, MessageEvent(f"m{n}", SOURCE, "0", f"id{n}")) for n in range(3)]
    spool = Spool(world.home)
    spool.open()
    spool.append(kept)
    done = seriatim("repair", "--home", str(world.home), "--to", str(tmp_path / "new"))
    assert (done.returncode, spooled(tmp_path / "new")) == (0, kept), done.stdout + done.stderr
    assert "3 messages" in done.stdout
    assert seriatim("balance", "--home", str(world.home)).returncode == 0
    spool.file.write_bytes(spool.file.read_bytes().replace(b'"m1"', b'"m9"'))
    for _ in range(2):
        told = seriatim("balance", "--home", str(world.home))
        assert told.returncode == 1
        assert "problem: 1 lines of the spool are damaged" in told.stdout
        Spool(world.home).open()  # sets it aside, which makes it no better
    done = seriatim("repair", "--home", str(world.home), "--to", str(tmp_path / "other"))
    assert done.returncode == 1
    assert "lost: spool: 1 of its lines" in done.stdout
    assert spooled(tmp_path / "other") == [kept[0], kept[2]]


def test_a_repair_carries_blobs(world: World, tmp_path: Path) -> None:
    """Blobs that a copied log refers to come along; one that isn't there is named."""
    store = SqliteStore(world.home / "state.db")
    names = [store.put_blob(data, 1) for data in (b"one", b"two")]
    log = LogId("session:s")
    note = Event("session/note", 0, 1, {})
    commit = Commit("c", log, 0, (Part(log, 0, (note,), header={"id": log}),), blobs=tuple(names))
    assert [type(outcome) for outcome in store.commit([commit])] == [Durable]
    store.close()
    done = seriatim("repair", "--home", str(world.home), "--to", str(tmp_path / "new"))
    assert done.returncode == 0, done.stdout + done.stderr
    reader = SqliteReader(tmp_path / "new" / "state.db")
    assert [reader.blob(name) for name in names] == [b"one", b"two"]
    reader.close()
    (world.home / "blobs" / names[1][:2] / names[1]).unlink()
    done = seriatim("repair", "--home", str(world.home), "--to", str(tmp_path / "other"))
    assert done.returncode == 1
    assert f"lost: blob {names[1]}: is not there" in done.stdout


def test_a_repair_makes_an_unreadable_index_anew(world: World, tmp_path: Path) -> None:
    """Where only the index of open work is damaged, all logs are whole and nothing is lost."""
    wreck(world.home / "state.db", "lanes")
    done = seriatim("repair", "--home", str(world.home), "--to", str(tmp_path / "new"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "made anew" in done.stdout
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["lock", "state.db"]
    balance = seriatim("balance", "--json", "--home", str(tmp_path / "new"))
    assert json.loads(balance.stdout)["counters"]["answered"] == 6


def test_a_repair_of_a_home_without_its_list_of_logs(world: World, tmp_path: Path) -> None:
    """It says in one line what can't be read, and makes nothing that looks like a home."""
    wreck(world.home / "state.db", "logs")
    done = seriatim("repair", "--home", str(world.home), "--to", str(tmp_path / "new"))
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "list of logs can't be read (SQLITE_CORRUPT)" in done.stderr
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["lock"]


def test_a_repair_onto_a_full_disk(world: World, tmp_path: Path) -> None:
    """A full disk is told as such, not as the loss of a log, and leaves no half of a home; there may be a next try."""
    full = "import sys, resource, signal; from seriatim.cli import main; signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
    full += "resource.setrlimit(resource.RLIMIT_FSIZE, (130000, 130000)); sys.exit(main(sys.argv[1:]))"
    arguments = ("repair", "--home", str(world.home), "--to", str(tmp_path / "new"))
    done = subprocess.run([sys.executable, "-c", full, *arguments], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
    assert "can't be written" in done.stderr
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["lock"]
    assert seriatim(*arguments).returncode == 0


def test_a_repair_of_a_home_that_is_served(world: World, tmp_path: Path) -> None:
    """What its owner accepts meanwhile would be missing in the new one: refused, with the owner named."""
    home = Home.own(world.home)
    done = seriatim("repair", "--home", str(world.home), "--to", str(tmp_path / "new"))
    home.close(clean=False)
    assert done.returncode == 2
    assert f"process {os.getpid()}" in done.stderr
    assert not (tmp_path / "new").exists()


def test_a_rebuild_makes_no_home(tmp_path: Path) -> None:
    """A wrong folder is refused and not made."""
    assert seriatim("rebuild", "--home", str(tmp_path / "wrong")).returncode == 2
    assert not (tmp_path / "wrong").exists()


SOURCE = SessionSource("fake", chat_id="9", user_id="9")


def wreck(database: Path, table: str) -> None:
    """Overwrite the root page of a table."""
    connection = sqlite3.connect(database)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    (root,) = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = ?", [table]).fetchone()
    (size,) = connection.execute("PRAGMA page_size").fetchone()
    connection.close()
    with database.open("r+b") as file:
        file.seek((root - 1) * size)
        file.write(b"\xa5" * size)
