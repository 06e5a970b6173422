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
from unittest import mock

import pytest

import seriatim.gateway
from seriatim.storage.sqlite import SqliteStore
from tests.outage.world import World

BUDGET_MS = 100
"""A twentieth of the usual budget of 2 s, as are the times below of 0.5, 5 and 40 s."""


@pytest.mark.parametrize("held_s", [0.025, 0.25, 2.0])
def test_a_lock_at_the_first_message(tmp_path: Path, held_s: float) -> None:
    """A lock shorter than the budget is waited for; a longer one refuses that message aloud, and the next works (B90)."""
    world = World(tmp_path, "refuse")

    async def scenario() -> None:
        async with world.gateway() as gateway:
            other = sqlite3.connect(tmp_path / "state.db", isolation_level=None, check_same_thread=False)
            other.execute("BEGIN IMMEDIATE")
            locked = time.monotonic()
            release = threading.Timer(held_s, other.execute, ["ROLLBACK"])
            release.start()
            outcomes = []
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


def damage(path: Path, table: str) -> None:
    """Overwrite the table's last leaf page."""
    connection = sqlite3.connect(path)
    page_size = connection.execute("PRAGMA page_size").fetchone()[0]
    ((page,),) = (
        connection.execute("SELECT max(pageno) FROM dbstat WHERE name = ? AND pagetype = 'leaf'", [table]).fetchall()
        if _has_dbstat(connection)
        else [(_root(connection, table),)]
    )
    connection.close()
    with path.open("r+b") as file:
        file.seek((page - 1) * page_size)
        file.write(b"\xa5" * page_size)


def _has_dbstat(connection: sqlite3.Connection) -> bool:
    try:
        connection.execute("SELECT 1 FROM dbstat LIMIT 1").fetchall()
    except sqlite3.OperationalError:
        return False
    return True


def _root(connection: sqlite3.Connection, table: str) -> int:
    page: int = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = ?", [table]).fetchone()[0]
    return page


def test_a_damaged_page_of_the_main_tables(tmp_path: Path) -> None:
    """Nothing is accepted on damaged ground: refusals with a reason, health and the balance command say damage (B93)."""
    world = World(tmp_path, "refuse")

    async def before() -> None:
        async with world.gateway():
            for number in range(3):
                world.platform.say(f"m{number} " + "x" * 3000)
                await world.until(lambda number=number: len(world.replies) == number + 1)  # type: ignore[misc]

    world.run(before)
    damage(tmp_path / "state.db", "events")
    damaged = (tmp_path / "state.db").read_bytes()

    async def after() -> None:
        async with world.gateway() as gateway:
            old = await gateway.accept(world.platform.say("old lane").event)
            new = await gateway.accept(world.platform.say("new lane", chat_id="2", user_id="2").event)
            assert {old.outcome, new.outcome} == {"refused"}
            assert old.reason == "quarantined"
            assert new.reason in ("storage_unavailable", "quarantined")
            assert gateway.balance()["accepted"] == 3

    with mock.patch.object(seriatim.gateway, "SqliteStore", SqliteStore):
        try:
            asyncio.run(after())
        except seriatim.gateway.CorruptionError as error:
            assert "damage" in str(error) or "can't be read" in str(error)
    for text in world.notices:
        assert "history" not in text
        assert "safe" not in text
    command = [sys.executable, "-m", "seriatim", "balance", "--json", "--home", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode in (1, 2)
    assert "SQLITE_CORRUPT" in done.stdout + done.stderr
    if done.returncode == 1:
        assert json.loads(done.stdout)["problems"]
    assert (tmp_path / "state.db").stat().st_size >= len(damaged)
