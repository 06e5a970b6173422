"""The database is locked by another program, or damaged: what the gateway says and does."""

from __future__ import annotations

import asyncio
import json
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

from seriatim.errors import CorruptionError
from seriatim.storage.sqlite import SqliteStore
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
            end = await asyncio.wait_for(receipt.answered(), 10)
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
