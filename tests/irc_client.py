"""A plain-socket IRC client for tests: it connects, joins, speaks, and waits for lines; it never sleeps."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

WAIT_S_MAX = 60.0


class IrcClient:
    """One person on IRC. ``lines`` holds everything received, as text without CR LF, PINGs answered."""

    def __init__(self, nick: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.nick = nick
        self.lines: list[str] = []
        self._reader = reader
        self._writer = writer
        self._arrived = asyncio.Condition()
        self._seen = 0
        self._pings = 0
        self._task = asyncio.ensure_future(self._read())

    @classmethod
    @asynccontextmanager
    async def connect(cls, host: str, port: int, nick: str, *channels: str) -> AsyncIterator[IrcClient]:
        """Connect, register and join; close at the end."""
        client = cls(nick, *await asyncio.open_connection(host, port))
        try:
            client.write(f"NICK {nick}", f"USER {nick} 0 * :{nick}")
            await client.wait_for(lambda line: f" 001 {nick} " in line)
            for channel in channels:
                await client.join(channel)
            yield client
        finally:
            await client.close()

    def write(self, *lines: str) -> None:
        """Write raw lines."""
        self._writer.write("".join(line + "\r\n" for line in lines).encode())

    def say(self, target: str, *texts: str) -> None:
        """One PRIVMSG for each text."""
        self.write(*(f"PRIVMSG {target} :{text}" for text in texts))

    async def join(self, channel: str) -> None:
        """Join and return once the server has let us in."""
        self.write(f"JOIN {channel}")
        await self.wait_for(lambda line: f" 366 {self.nick} {channel} " in line)

    async def settled(self) -> None:
        """Return once the server has processed everything written so far."""
        self._pings += 1
        token = f"settled{self._pings}"
        self.write(f"PING {token}")
        await self.wait_for(lambda line: " PONG " in line and line.endswith(token))

    async def wait_for(self, wanted: Callable[[str], bool]) -> str:
        """The first line, after those that earlier waits returned or passed over, that is ``wanted``."""
        async with asyncio.timeout(WAIT_S_MAX), self._arrived:
            while True:
                while self._seen < len(self.lines):
                    line = self.lines[self._seen]
                    self._seen += 1
                    if wanted(line):
                        return line
                if self._task.done():
                    raise ConnectionError(f"{self.nick}: the server closed; last lines {self.lines[-3:]}")
                await self._arrived.wait()

    async def hear(self, sender: str, count: int = 1) -> list[str]:
        """The texts of the next ``count`` PRIVMSGs of ``sender``, in order."""
        heard = [await self.wait_for(lambda line: _is_from(line, sender)) for _ in range(count)]
        return [line.split(" ", 3)[3].removeprefix(":") for line in heard]

    async def close(self) -> None:
        """Drop the connection."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._writer.transport.abort()

    async def _read(self) -> None:
        try:
            while raw := await self._reader.readline():
                line = raw.decode("utf-8", "replace").rstrip("\r\n")
                if line.startswith("PING "):
                    self.write("PONG " + line[5:])
                async with self._arrived:
                    self.lines.append(line)
                    self._arrived.notify_all()
        except OSError as error:
            self.lines.append(f"closed: {error}")
        finally:
            async with self._arrived:
                self._arrived.notify_all()


def _is_from(line: str, sender: str) -> bool:
    words = line.split(" ", 3)
    return len(words) == 4 and words[0].startswith(f":{sender}!") and words[1] == "PRIVMSG"
