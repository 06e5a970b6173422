"""The harness's side of the socket: people who say things, and a platform that keeps what it got."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.kill.judge import Post, Said, World, reply_of

ASK_AGAIN_S = 0.5
"""How long to wait for news before the bot is asked again whether it is at rest."""


class Platform:
    """It gives each message to the bot until the bot acks it, and never forgets a post.

    ``world`` is its memory. It outlives the children that connect, one at a time.
    """

    def __init__(self) -> None:
        self.world = World()
        self._texts: dict[str, dict[str, str]] = {}
        self._unacked: dict[str, Said] = {}
        self._unanswered: set[str] = set()
        self._writer: asyncio.StreamWriter | None = None
        self._changed = asyncio.Condition()
        self._answer: bool | None = None
        self._taken = 0
        self._server: asyncio.Server | None = None

    async def open(self, socket: Path) -> None:
        """Listen."""
        self._server = await asyncio.start_unix_server(self._connected, socket)

    async def close(self) -> None:
        """Hang up and listen no more."""
        if self._server is not None:
            self._server.close()
        self.hang_up()
        await self.until(lambda: self._writer is None, 5.0)

    def say(self, said: Said, *, user: str, chat_type: str, text: str) -> None:
        """Somebody says something."""
        self.world.said.append(said)
        self._texts[said.id] = {"id": said.id, "chat": said.chat, "user": user, "type": chat_type, "text": text}
        self._unacked[said.id] = said
        self._unanswered.add(said.id)
        self._give(said)

    def hang_up(self) -> None:
        """Drop the connection: what wasn't confirmed to the bot may or may not have arrived, for all it knows."""
        if self._writer is not None:
            self._writer.transport.abort()

    @property
    def open_count(self) -> int:
        """Messages that wait for an ack or an answer."""
        return len(self._unanswered)

    async def all_done(self, seconds: float) -> bool:
        """Wait until everything said was acked and the bot says that nothing waits and nothing is owed."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if await self._is_at_rest() and not self._unacked:
                return True
            await self._news()
        return False

    async def _is_at_rest(self) -> bool:
        self._answer = None
        self._tell({"ask": "at rest"})
        await self.until(lambda: self._answer is not None, ASK_AGAIN_S)
        return bool(self._answer)

    async def _news(self) -> None:
        seen = self._taken
        await self.until(lambda: self._taken > seen, ASK_AGAIN_S)

    @property
    def connected(self) -> bool:
        """Whether a bot is there."""
        return self._writer is not None

    async def until(self, wanted: Callable[[], bool], seconds: float) -> bool:
        """Wait until something makes ``wanted`` true; False when the time is up."""
        try:
            async with asyncio.timeout(seconds), self._changed:
                await self._changed.wait_for(wanted)
        except TimeoutError:
            return False
        return True

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        for said in list(self._unacked.values()):
            self._give(said)
        try:
            async with self._changed:
                self._changed.notify_all()
            while line := await reader.readline():
                if line.endswith(b"\n"):  # what a killed bot wrote in part was not said
                    self._take(json.loads(line))
                async with self._changed:
                    self._changed.notify_all()
        except ConnectionError:
            pass
        finally:
            writer.close()
            self._writer = None
            async with self._changed:
                self._changed.notify_all()

    def _give(self, said: Said) -> None:
        self._tell({"say": self._texts[said.id]})

    def _tell(self, data: dict[str, Any]) -> None:
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(json.dumps(data).encode() + b"\n")

    def _take(self, data: dict[str, Any]) -> None:
        world = self.world
        self._taken += 1
        match data:
            case {"at rest": at_rest}:
                self._answer = at_rest
            case {"ack": name}:
                world.acked.add(name)
                self._unacked.pop(name, None)
            case {"refused": name}:
                world.refused[name] += 1
                if not world.keeps_refused:
                    self._unacked.pop(name, None)
                    self._unanswered.discard(name)
            case {"post": number, "chat": chat, "text": text}:
                world.posts.append(Post(chat, text))
                reply = reply_of(text)
                if reply is not None and reply[1] == reply[2]:
                    self._unanswered.difference_update(reply[0])
                self._tell({"posted": number, "id": f"out{len(world.posts)}"})
            case {"effect": {"message": name}}:
                world.effects.append(name)
            case {"began": {"session": session, "turn": turn}}:
                world.began.append((session, turn))
            case _:
                raise ValueError(data)
