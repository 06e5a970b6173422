"""A real gateway in a child process on a failing disk, and the platform that talks to it (both as in tests.kill)."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Self

from seriatim.actors.notices import KEPT, REFUSED
from seriatim.storage.audit import audit
from seriatim.storage.sqlite_reader import SqliteReader
from tests.faultfs.disk import Disk
from tests.kill.judge import Said, Verdict, judge, read_logs
from tests.kill.platform import Platform
from tests.kill.process import Child

WAIT_S = 60.0
"""A bound, not a pause."""


class Service:
    """One home, its platform, and the child that serves it now."""

    def __init__(self, folder: Path, disk: Disk, *arguments: str) -> None:
        self.home = folder / "home"
        self.platform = Platform()
        self.disk = disk
        self.notices: set[str] = set()
        self._said_again: set[str] = set()
        self._folder = folder
        self._arguments = arguments
        self._child: Child | None = None

    async def __aenter__(self) -> Self:
        await self.platform.open(self._folder / "platform")
        return self

    async def __aexit__(self, *error: object) -> None:
        if self._child is not None:
            await self._child.kill()
        await self.platform.close()

    async def start(self) -> None:
        """Start a child and wait until it has connected."""
        arguments = [str(self.home), str(self._folder / "platform"), "--hurry", *self._arguments]
        with self.disk.under():
            self._child = await Child.start("tests.kill.child", arguments, self._folder / "child.log")
        await self.until(lambda: self.platform.connected, "the child doesn't connect")

    async def kill(self) -> None:
        """SIGKILL, from outside; law 1 holds in what is left behind."""
        assert self._child is not None
        await self._child.kill()
        await self.gone()

    async def gone(self) -> None:
        """Wait until the child has died and hung up; law 1 holds in what is left behind."""
        assert self._child is not None
        await asyncio.wait_for(self._child.process.wait(), WAIT_S)
        await self.until(lambda: not self.platform.connected, "the dead child's connection is open")
        reader = SqliteReader(self.home / "state.db")
        found = audit(reader)
        reader.close()
        assert found.holds, found

    def say(self, lane: str, words: str = "") -> str:
        """Somebody says something; the message's name."""
        name = f"m{len(self.platform.world.said) + 1}"
        said = Said(name, f"{lane}/{lane}", lane)
        self.platform.say(said, user=lane, chat_type="dm", text=f"{name} {words}".strip())
        return name

    def say_again(self) -> bool:
        """Who was refused says it again in a new message; whether anybody had to."""
        refused = [said for said in self.platform.world.said if said.id in self.platform.world.refused]
        due = [said for said in refused if said.id not in self._said_again]
        for said in due:
            self._said_again.add(said.id)
            self.say(said.chat)
        return bool(due)

    async def done(self) -> None:
        """The platform gives again what wasn't acked; wait until all of it is acked, answered and delivered."""
        self.platform.hang_up()
        await self.until(lambda: not self.platform.connected, "it doesn't notice that the platform hung up")
        await self.until(lambda: self.platform.connected, "it doesn't connect again")
        assert await self.platform.all_done(WAIT_S), f"not all was answered:\n{self.log()}"

    async def until(self, wanted: Callable[[], bool], what: str) -> None:
        """Wait for something in the child that gives no event."""
        try:
            async with asyncio.timeout(WAIT_S):
                while not wanted():  # noqa: ASYNC110  (the shared memory of another process gives no event)
                    await asyncio.sleep(0.005)
        except TimeoutError:
            raise AssertionError(f"{what}:\n{self.log()}") from None

    @property
    def all_acked(self) -> bool:
        """Whether everything said was acked."""
        return len(self.platform.world.acked) == len(self.platform.world.said)

    async def ended_well(self) -> Verdict:
        """SIGTERM, a clean end, and nothing in what came of it all that should not be."""
        assert self._child is not None
        self._child.process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(self._child.process.wait(), WAIT_S) == 0, self.log()
        verdict = self._verdict()
        assert verdict.good, verdict.findings
        return verdict

    def _verdict(self) -> Verdict:
        """By the platform's memory and the logs; notices are not replies."""
        world = self.platform.world
        self.notices = {post.text for post in world.posts if post.text in (KEPT, REFUSED)}
        world.posts = [post for post in world.posts if post.text not in (KEPT, REFUSED)]
        return judge(world, read_logs(self.home / "state.db"))

    def log(self) -> str:
        """The end of what the children said."""
        return (self._folder / "child.log").read_text(errors="replace")[-4000:]
