"""A gateway on a machine of ours, with agents that note their hooks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from seriatim import GatewayConfig, Turn
from seriatim.config import AgentCacheConfig, AgentConfig
from seriatim.gate import LAZY_WINDOW_MS
from seriatim.keys import parse_session_key
from seriatim.testing.clock import VirtualClock
from tests.gateway.bots import Bot, bot, until
from tests.pressure.machine import ScriptedMachine

SIZE = 1000


class Agent:
    """Counts its turns; a turn that says "hold" goes on until it is let. Notes its hooks."""

    def __init__(self, session: str, world: World) -> None:
        self.session = session
        self.world = world
        world.made.append(len(world.hooks))

    async def run(self, turn: Turn) -> str:
        """How much it remembers, and how many turns this agent has had."""
        self.world.served.append(turn.session)
        if turn.text == "hold":
            await self.world.go.wait()
        return "x" * 70_000 if turn.text == "at length" else f"{len(turn.history)}"

    def memory_bytes(self) -> int:
        """Its logical size."""
        return SIZE

    async def commit_memory(self) -> None:
        """Before it goes."""
        self.world.hooks.append(("commit", self.session))

    async def release(self) -> None:
        """Softly; as slow as the world wants it."""
        await self.world.may_release.wait()
        self.world.hooks.append(("release", self.session))

    async def cleanup(self) -> None:
        """For good."""
        self.world.hooks.append(("cleanup", self.session))


class World:
    """A bot, its machine, its clock and what its agents did."""

    def __init__(self, machine: ScriptedMachine) -> None:
        self.machine = machine
        self.clock = VirtualClock()
        self.go = asyncio.Event()
        self.may_release = asyncio.Event()
        self.may_release.set()
        self.hooks: list[tuple[str, str]] = []
        self.served: list[str] = []
        self.made: list[int] = []
        """How many hooks had run when each agent was made."""
        self.it: Bot

    @property
    def runtime(self) -> Any:
        """The actors."""
        return self.it.gateway._runtime

    @property
    def memory(self) -> Any:
        """As health tells it."""
        return self.it.health["memory"]

    @property
    def live(self) -> set[str]:
        """The chats whose lanes are live."""
        return {parse_session_key(key).chat_id for key in self.runtime.directory.live}

    async def fill(self, *lanes: str) -> None:
        """A turn for each, in this order, and all at rest."""
        for lane in lanes:
            assert (await self.it.ask("hi", lane)).text is not None
        await self.flushed()

    async def flushed(self) -> None:
        """What is written late is written."""
        self.clock.advance(LAZY_WINDOW_MS)
        await until(lambda: self.runtime.directory.at_rest)

    async def look(self) -> None:
        """The warden looks, and is through with what comes of it."""
        looks = self.machine.looks
        self.runtime.look_at_memory()
        await until(lambda: self.machine.looks > looks)
        await self.passed()

    async def passed(self) -> None:
        """No pass is under way."""
        await until(lambda: self.memory["doing"] == "nothing" and not self.runtime.system.get("warden").pending)


@asynccontextmanager
async def world(
    home: Path, monkeypatch: pytest.MonkeyPatch, machine: ScriptedMachine | None = None, **cache: Any
) -> AsyncIterator[World]:
    """A gateway with a budget of 100 MiB on a machine of ours, unless ``cache`` says otherwise."""
    made = World(machine or ScriptedMachine())
    monkeypatch.setattr("seriatim.opening.ThisMachine", lambda: made.machine)
    cache = {"memory_high_mb": 100, "protect_recent": 0, **cache}
    config = GatewayConfig(agent=AgentConfig(agent_cache=AgentCacheConfig(**cache)))
    async with bot(
        None, home, config=config, clock=made.clock, agent_factory=lambda session: Agent(session, made)
    ) as made.it:
        try:
            yield made
        finally:
            made.go.set()
            made.may_release.set()
