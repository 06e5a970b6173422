"""A bot with one room on a real IRC server: its file and its home, served by a process of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from seriatim.storage.sqlite_reader import SqliteReader
from tests.kill.process import Armed, Child
from tests.servers import Server

BOT: Final = "Bot"
ROOM: Final = "#room"
WAIT_S_MAX: Final = 60.0
LOOK_AGAIN_S: Final = 0.02

CONFIG: Final = """
home = "{home}"
{settings}
[agent]
factory = "{agent}"
[adapters.irc]
type = "irc"
host = "{host}"
port = {port}
tls = false
nick = "{bot}"
channels = ["{room}"]
addressed = "always"
lines_per_s = 100000.0
burst = 1000
{account}
"""


class IrcBot:
    """Made in ``folder``. ``agent``: its factory; ``settings``: sections of its file; ``account``: IRC keys."""

    def __init__(self, folder: Path, server: Server, agent: str, *, settings: str = "", account: str = "") -> None:
        self.home = folder / "home"
        self.log = folder / "child.log"
        self.config = folder / "seriatim.toml"
        self.config.write_text(
            CONFIG.format(
                home=self.home, settings=settings, agent=agent, host=server.host, port=server.port, bot=BOT, room=ROOM,
                account=account,
            )
        )  # fmt: skip

    @asynccontextmanager
    async def serving(self, armed: Armed | None = None) -> AsyncIterator[Child]:
        """``seriatim serve`` on that file, killed at the end if it lives."""
        child = await Child.start("tests.e2e.child", ["serve", "--config", str(self.config)], self.log, armed)
        try:
            yield child
        finally:
            await child.kill()

    async def in_store(self, phase: str) -> None:
        """Return once a lane of the home is in that phase."""
        await self._until(lambda phases: phase in phases)

    async def at_rest(self) -> None:
        """Return once nothing is open in the home; the gateway goes on."""
        await self._until(lambda phases: not phases)

    async def _until(self, wanted: Callable[[list[str]], bool]) -> None:
        for _ in range(int(WAIT_S_MAX / LOOK_AGAIN_S)):
            if wanted(self._phases()):
                return
            await asyncio.sleep(LOOK_AGAIN_S)  # another process's store gives no event to wait for
        raise TimeoutError(f"the home's lanes are {self._phases()}")

    def _phases(self) -> list[str]:
        reader = SqliteReader(self.home / "state.db")
        try:
            return [hot.phase for _, hot in reader.open_work()]
        finally:
            reader.close()
