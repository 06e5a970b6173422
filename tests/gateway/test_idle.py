"""Sessions that nobody uses are let go of from memory, and nothing else of them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from seriatim import GatewayConfig
from seriatim.actors.warden import IDLE_TICKS, WarmLanes
from seriatim.config import AgentCacheConfig, AgentConfig
from tests.gateway.bots import bot, run, until


def test_idle_lanes_are_the_oldest_ones() -> None:
    """One that has begun a turn since is not idle; order is by the last turn."""
    lanes = WarmLanes(99, lambda: None)
    lanes.touched("a", 1)
    lanes.touched("b", 1)
    for _ in range(IDLE_TICKS):
        assert lanes.idle() == []
    lanes.touched("a", 1)
    assert lanes.idle() == ["b"]
    lanes.gone("b")
    for _ in range(IDLE_TICKS - 1):
        assert lanes.idle() == []
    assert lanes.idle() == ["a"]


def test_a_turns_end_is_use() -> None:
    """A lane whose turn ran for as long as idle ones are let is as recent as one that has just begun."""
    lanes = WarmLanes(99, lambda: None)
    lanes.touched("long", 1)
    for _ in range(IDLE_TICKS):
        lanes.idle()
    lanes.touched("b", 1)
    lanes.turned("long", 5)
    assert lanes.idle() == []
    assert list(lanes.each()) == [("b", 1), ("long", 5)]


def test_growth_is_told_once_until_it_is_watched_again() -> None:
    """By the bytes that all lanes together have gained; what one loses is no room for another."""
    grown: list[None] = []
    lanes = WarmLanes(99, lambda: None, lambda: grown.append(None))
    lanes.touched("a", 1000)
    lanes.watch(10)
    lanes.turned("a", 1006)
    lanes.turned("a", 0)
    lanes.turned("b", 4)
    assert grown == []
    lanes.turned("b", 5)
    lanes.turned("b", 500)
    assert grown == [None]
    lanes.watch(0)
    lanes.turned("b", 10**12)
    assert len(grown) == 1


def test_an_idle_session_rests_and_goes_on(tmp_path: Path) -> None:
    """After idle_ttl_secs without a turn a lane isn't live; a running turn is never let go of; the next message goes on
    in the same session, with its history.
    """
    config = GatewayConfig(agent=AgentConfig(agent_cache=AgentCacheConfig(idle_ttl_secs=1)))
    go = asyncio.Event()
    sessions: list[str] = []

    async def answer(turn: Any) -> str:
        sessions.append(turn.session)
        if turn.text == "hold":
            await go.wait()
        return str(len(turn.history))

    async def main() -> None:
        async with bot(answer, tmp_path, config=config) as it:
            held = await it.accept("hold", "2")
            assert (await it.ask("hi")).text == "0"
            runtime = it.gateway._runtime
            assert runtime is not None
            busy = held.session_key
            await until(lambda: set(runtime.directory.live) == {busy})
            go.set()
            assert (await held.answered()).text == "0"
            assert (await it.ask("again")).text == "2"
            assert len(set(sessions)) == 2

    run(main())
