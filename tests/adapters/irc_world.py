"""An IRC adapter, a real server and Alice: the contract's world, for each server that we can start."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from seriatim.adapters.irc import IrcAdapter, IrcOptions
from seriatim.testing.adapter_contract import WAIT_S_MAX, Place
from tests.irc_client import IrcClient
from tests.servers import Server

ROOM = "#room"
NICK = "Bot"


def irc_options(server: Server, **changed: object) -> IrcOptions:
    """Options for a test: no pace to speak of, quick to come back."""
    settings: dict[str, object] = {
        "host": server.host,
        "port": server.port,
        "tls": False,
        "nick": NICK,
        "channels": (ROOM,),
        "lines_per_s": 1e6,
        "burst": 1000,
        "reconnect_min_ms": 20,
        "reconnect_max_ms": 200,
        "regain_s": 0.05,
    }
    return IrcOptions(**settings | changed)  # type: ignore[arg-type]


class IrcWorld:
    """Alice and the bot in one room of one server."""

    places: tuple[Place, ...] = ("dm", "channel")
    missing: str | None = "nobody"
    can_go_down = True

    def __init__(self, server: Server, adapter: IrcAdapter, stack: AsyncExitStack) -> None:
        self.server = server
        self.adapter = adapter
        self._stack = stack
        self._alice: IrcClient | None = None

    async def ready(self) -> None:
        """Both are in the room."""
        async with asyncio.timeout(WAIT_S_MAX):
            await self.adapter.wait_ready()
        if self._alice is None:
            client = IrcClient.connect(self.server.host, self.server.port, "Alice", ROOM)
            self._alice = await self._stack.enter_async_context(client)

    @property
    def alice(self) -> IrcClient:
        """Alice's client."""
        assert self._alice is not None
        return self._alice

    async def say(self, place: Place, *texts: str) -> None:
        """Say it to the bot alone, or in the room with the bot's nick in front."""
        if place == "dm":
            self.alice.say(self.adapter.nick, *texts)
        else:
            self.alice.say(ROOM, *(f"{self.adapter.nick}: {text}" for text in texts))
        await self.alice.settled()

    async def hear(self, count: int) -> list[str]:
        """What the bot said next."""
        return await self.alice.hear(self.adapter.nick, count)

    async def go_down(self) -> None:
        """SIGKILL the server; the adapter has seen the end of its stream when this returns."""
        self.server.kill()
        await self.adapter.wait_lost()

    async def come_back(self) -> None:
        """Start it again on the same port; Alice and the bot come back."""
        self._alice = None
        self.server.start()
        await self.ready()


@asynccontextmanager
async def irc_world(server: Server) -> AsyncIterator[IrcWorld]:
    """A world on a server that runs."""
    async with AsyncExitStack() as stack:
        yield IrcWorld(server, IrcAdapter(irc_options(server)), stack)
