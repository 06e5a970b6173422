"""A stopped turn: every kind of agent ends at its next point, what it had shown is kept, the next message is whole."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from seriatim import GatewayConfig
from seriatim.config import CommandsConfig
from tests.gateway.bots import bot, run, until

KINDS = ("async", "plain", "generator", "async generator", "object")


class Agents:
    """An agent of each kind: for "long" it shows "so far" and goes on until stopped, else it tells its history."""

    def __init__(self) -> None:
        self.shown = threading.Event()
        self.ended: list[str] = []

    def of(self, kind: str) -> Any:
        """The agent of that kind."""
        if kind == "object":
            return self
        made = {"async": self.run, "plain": self.plain, "generator": self.steps, "async generator": self.async_steps}
        return made[kind]

    def _answer(self, turn: Any) -> str:
        return " | ".join([*(message.text for message in turn.history), turn.text])

    async def run(self, turn: Any) -> str:
        """A coroutine function."""
        if turn.text != "long":
            return self._answer(turn)
        turn.emit("so far")
        self.shown.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.ended.append("run")
        return "never"

    def plain(self, turn: Any) -> str:
        """A function on a thread: it looks at ``turn.cancelled``."""
        if turn.text != "long":
            return self._answer(turn)
        turn.emit("so far")
        self.shown.set()
        turn.cancelled.wait()
        self.ended.append("plain")
        return "too late"

    def steps(self, turn: Any) -> Iterator[str]:
        """A generator: it ends at its next yield."""
        if turn.text != "long":
            yield self._answer(turn)
            return
        try:
            yield "so far"
            self.shown.set()
            while True:
                turn.cancelled.wait()
                yield "more"
        finally:
            self.ended.append("steps")

    async def async_steps(self, turn: Any) -> AsyncIterator[str]:
        """An async generator: cancelled where it waits."""
        if turn.text != "long":
            yield self._answer(turn)
            return
        try:
            yield "so far"
            self.shown.set()
            await asyncio.Event().wait()
        finally:
            self.ended.append("async steps")


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_agent_stops_and_the_next_message_is_whole(kind: str, tmp_path: Path) -> None:
    """Cancellation belongs to a turn: a message right behind /stop has a full turn, and sees what was said."""

    async def scenario() -> None:
        agents = Agents()
        config = GatewayConfig(commands=CommandsConfig(stop_suspends=False))
        async with bot(agents.of(kind), tmp_path, config=config) as world:
            world.say("long")
            await until(agents.shown.is_set)
            runtime = world.gateway._runtime
            assert runtime is not None
            [lane] = runtime.directory.live
            await until(lambda: runtime.running.shown(lane, 1))
            world.say("/stop")
            world.say("hi")
            texts = await world.heard(2)
            assert texts == ["Stopped.", "long | so far | hi"]
            await until(lambda: agents.ended)
            await world.at_rest()
            assert world.platform.texts() == texts
            assert world.errors == []

    run(scenario())
