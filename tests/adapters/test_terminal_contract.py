"""The terminal keeps the adapter contract: one person, one chat, nothing is ever given again."""

from __future__ import annotations

import asyncio
import io
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from attrs import define

from seriatim.adapters.terminal import TerminalAdapter
from seriatim.testing.adapter_contract import AdapterContract, Place

REMARK = "("


class Screen(io.StringIO):
    """Keeps what was written, each write by itself: a message may have several lines."""

    def __init__(self) -> None:
        super().__init__()
        self.shown: list[str] = []

    def write(self, text: str) -> int:
        """Keep it."""
        self.shown.append(text)
        return len(text)


@define
class TerminalWorld:
    """A person at a terminal whose lines come through a pipe."""

    adapter: TerminalAdapter
    keyboard: int
    screen: Screen
    places: tuple[Place, ...] = ("dm",)
    missing: str | None = None
    can_go_down: bool = False
    _seen: int = 0

    async def ready(self) -> None:
        """It reads from the first turn of the loop on."""
        await asyncio.sleep(0)

    async def say(self, place: Place, *texts: str) -> None:
        """Type them."""
        del place
        data = "".join(f"{text}\n" for text in texts).encode()
        while data:
            data = data[os.write(self.keyboard, data) :]
            await asyncio.sleep(0)

    async def hear(self, count: int) -> list[str]:
        """What was printed since the last time, without the terminal's own remarks."""
        said = [text.removesuffix("\n") for text in self.screen.shown if not text.startswith(REMARK)]
        found = said[self._seen : self._seen + count]
        assert len(found) == count
        self._seen += count
        return found

    async def go_down(self) -> None:
        """It can't."""

    async def come_back(self) -> None:
        """It can't."""


class TestTerminal(AdapterContract):
    """A terminal, as a pipe and a screen."""

    @asynccontextmanager
    async def world(self) -> AsyncIterator[TerminalWorld]:
        """A new pipe."""
        reading, writing = os.pipe()
        os.set_blocking(reading, False)
        screen = Screen()
        try:
            yield TerminalWorld(TerminalAdapter(stdin=reading, stdout=screen), writing, screen)
        finally:
            os.close(writing)
            os.close(reading)
