"""An IRC server that does what a test tells it, line by line."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

WAIT_S_MAX = 60.0


class Visit:
    """One connection of the bot, seen from the server. ``lines`` is all that the bot wrote."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.lines: list[str] = []
        self._reader = reader
        self._writer = writer

    async def read(self, wanted: Callable[[str], bool] = bool) -> str:
        """The next line that is ``wanted``."""
        async with asyncio.timeout(WAIT_S_MAX):
            while raw := await self._reader.readline():
                self.lines.append(raw.decode().rstrip("\r\n"))
                if wanted(self.lines[-1]):
                    return self.lines[-1]
        raise ConnectionError(f"the bot closed; it wrote {self.lines[-3:]}")

    async def read_command(self, command: str) -> str:
        """The next line with that command."""
        return await self.read(lambda line: line.split(" ")[0] == command)

    async def sync(self) -> list[str]:
        """What the bot wrote until it answered a PING of ours."""
        before = len(self.lines)
        self.write("PING :sync")
        await self.read(lambda line: line == "PONG :sync")
        return self.lines[before:-1]

    def write(self, *lines: str) -> None:
        """Write lines of the server."""
        self._writer.write("".join(line + "\r\n" for line in lines).encode())

    async def flush(self) -> None:
        """Return once the bot's side has taken what we wrote."""
        await self._writer.drain()

    async def register(self, *caps: str) -> None:
        """Let the bot in as "Bot", in the channels that it asks for, with ``caps`` if it wants them."""
        await self.read(lambda line: line.startswith("USER "))
        if caps:
            self.write(f":s CAP * LS :{' '.join(caps)}")
            await self.read(lambda line: line.startswith("CAP REQ"))
            self.write(f":s CAP Bot ACK :{' '.join(caps)}")
        self.write(
            ":s 001 Bot :Welcome Bot!u@h",
            ":s 005 Bot CASEMAPPING=rfc1459 CHANTYPES=# STATUSMSG=@+ :are supported",
            ":s 376 Bot :End of MOTD",
        )
        await self.sync()
        for line in self.lines:
            if line.startswith("JOIN "):
                self.write(f":Bot!u@h JOIN {line.removeprefix('JOIN :')}")
        await self.sync()

    def cut(self) -> None:
        """Drop the connection."""
        self._writer.transport.abort()


class ScriptedIrc:
    """Listens on a free port; ``visit`` is the next connection."""

    def __init__(self) -> None:
        self.host = "127.0.0.1"
        self.port = 0
        self._visits: asyncio.Queue[Visit] = asyncio.Queue()
        self._open: list[Visit] = []

    async def visit(self) -> Visit:
        """The bot's next connection."""
        async with asyncio.timeout(WAIT_S_MAX):
            return await self._visits.get()

    @asynccontextmanager
    async def listening(self, tls: ssl.SSLContext | None = None) -> AsyncIterator[ScriptedIrc]:
        """Listen; drop everything at the end."""
        server = await asyncio.start_server(self._greet, self.host, 0, limit=1 << 20, ssl=tls)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            for visit in self._open:
                visit.cut()

    async def _greet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        visit = Visit(reader, writer)
        self._open.append(visit)
        self._visits.put_nowait(visit)
