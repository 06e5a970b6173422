"""A gateway on a home whose store fails on demand, in virtual time.

Fault model: each commit of the store is refused, or left open (written or lost), or the store can't be opened, from
one moment to another. The spool's own disk fails on its own. Time passes only when the test says so; threads and the
loop are real.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal
from unittest import mock

import seriatim.opening
from seriatim import Gateway, GatewayConfig, Turn
from seriatim.commits import Commit
from seriatim.config import StopConfig, StorageConfig
from seriatim.errors import StoreUnhealthyError
from seriatim.limits import COMMIT_RETRY_MS
from seriatim.storage.contract import Store
from seriatim.storage.sqlite import SqliteStore
from seriatim.testing.clock import VirtualClock
from seriatim.testing.fake_platform import FakePlatform
from seriatim.testing.faulty_store import Fault, FaultyStore

WAIT_S = 60.0
"""A bound, not a pause."""


class Medium:
    """The home's store. ``fault``: what commits meet now, ``left`` of them (None: all); ``shut``: it doesn't open."""

    def __init__(self) -> None:
        self.fault: Fault | None = None
        self.left: int | None = None
        self.shut = False
        self.opened = 0

    def open(self, path: str) -> Store:
        """What the gateway calls to open its store."""
        if self.shut:
            raise StoreUnhealthyError(f"{path}: can't be opened (scripted)")
        self.opened += 1
        return FaultyStore(SqliteStore(path), script=self._script)

    def _script(self, number: int, commit: Commit) -> Fault | None:
        if self.left is not None:
            if not self.left:
                return None
            self.left -= 1
        return self.fault


async def echo(turn: Turn) -> str:
    """Name what is answered."""
    return "re " + ",".join(claim.text for claim in turn.events)


class World:
    """One home over the lives of its gateways."""

    def __init__(self, home: Path, mode: Literal["refuse", "spool"] = "spool") -> None:
        self.home = home
        self.clock = VirtualClock()
        self.medium = Medium()
        self.platform = FakePlatform()
        self.errors: list[tuple[str, BaseException]] = []
        self.config = GatewayConfig(storage=StorageConfig(on_unavailable=mode), stop=StopConfig(drain_s=1))

    @asynccontextmanager
    async def gateway(self, answer: Callable[[Turn], Any] = echo) -> AsyncIterator[Gateway]:
        """A new gateway on the home, for a while; time passes until what it still owes has left."""
        async with self.made(answer) as gateway:
            yield gateway
            await self.until(lambda: gateway.health().get("replies_pending", 0) == 0)
            until_ms = self.clock.monotonic_ms() + COMMIT_RETRY_MS[-1]  # what a lane has to try once more
            await self.until(lambda: self.clock.monotonic_ms() > until_ms, step_ms=500)

    def made(self, answer: Callable[[Turn], Any] = echo) -> Gateway:
        """A new gateway on the home, not started."""
        return Gateway(
            answer,
            home=self.home,
            config=self.config,
            adapters=[self.platform],
            clock=self.clock,
            on_error=lambda where, error: self.errors.append((where, error)),
        )

    def run(self, scenario: Callable[[], Awaitable[None]]) -> None:
        """Run a scenario with the store failing as scripted."""

        async def whole() -> None:
            async with asyncio.timeout(WAIT_S * 3):
                await scenario()

        with mock.patch.object(seriatim.opening, "SqliteStore", self.medium.open):
            asyncio.run(whole())

    async def until(self, wanted: Callable[[], bool], *, step_ms: int = 50) -> None:
        """Let virtual time pass until ``wanted``."""
        async with asyncio.timeout(WAIT_S):
            while not wanted():
                await asyncio.sleep(0.002)
                self.clock.advance(step_ms)

    @property
    def replies(self) -> list[str]:
        """What the platform got, notices left out."""
        return [text for text in self.platform.texts() if text.startswith("re ")]

    @property
    def notices(self) -> list[str]:
        """What the platform got besides."""
        return [text for text in self.platform.texts() if not text.startswith("re ")]

    @property
    def spool_file(self) -> Path:
        """Where the spool is."""
        return self.home / "spool" / "inbound.jsonl"
