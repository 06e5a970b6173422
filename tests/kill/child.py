"""The child: a gateway on a home, whose platform is the harness at the other end of a socket.

``python -m tests.kill.child HOME SOCKET [--separate-attempt] [--spool] [--hurry] [--sin NAME]``; --hurry: whatever
failed is tried again after a moment, not after seconds. Lines of JSON; from the platform:
``{"say": {id, chat, user, type, text}}``, ``{"posted": n, "id": ...}`` and ``{"ask": "at rest"}``; to it:
``{"ack": id}``, ``{"refused": id}``, ``{"post": n, "chat": ..., "text": ...}``, and the notes of the agent.
A ``--sin`` is a gateway that breaks a law, to see that the harness notices.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import random
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Literal
from unittest import mock

import seriatim.actors.spooling
import seriatim.gate
import seriatim.opening
from seriatim import Gateway, GatewayConfig, MessageEvent, Platform, SessionSource
from seriatim.adapters.base import Capabilities, Inbox
from seriatim.config import DeliveryConfig, StorageConfig
from seriatim.errors import SendError
from seriatim.model import Outbound, Sent, Target
from seriatim.storage.sqlite import SqliteStore
from tests.kill.agent import echoing
from tests.kill.failpoints import Failpoints, HaltingStore, die_with_parent
from tests.kill.judge import unmarked

Sin = Literal["", "ack-first", "strip-mark", "post-twice"]
RECONNECT_S = 0.02
THINK_S_MAX = 0.03
AMBIGUOUS_MAX = 100
"""A recorded attempt that a kill cut off is ambiguous; no reply is to be given up here for having met many kills."""


class SocketAdapter:
    """A platform that keeps what it gave until it is acked; see `seriatim.adapters.base.Adapter`."""

    platform = "socket"
    account = "bot"
    capabilities = Capabilities(replay="ack", multiline=False)
    command_prefix = None

    def __init__(self, socket: Path, points: Failpoints, sin: Sin = "") -> None:
        self._socket = socket
        self._points = points
        self._sin = sin
        self._writer: asyncio.StreamWriter | None = None
        self._numbers = itertools.count(1)
        self.at_rest: Callable[[], bool] = lambda: False
        self._unconfirmed: dict[int, asyncio.Future[str]] = {}

    @property
    def connected(self) -> bool:
        """Whether the platform is there."""
        return self._writer is not None

    def text_max(self, target: Target) -> int:
        """No limit."""
        return 0

    async def typing(self, target: Target) -> None:
        """Not shown."""

    async def run(self, inbox: Inbox) -> None:
        """Connect, take in what is given, connect again when the platform hangs up."""
        while True:
            try:
                reader, self._writer = await asyncio.open_unix_connection(self._socket)
                await self._receive(reader, inbox)
            except OSError:
                pass
            finally:
                self._hung_up()
            await asyncio.sleep(RECONNECT_S)

    async def _receive(self, reader: asyncio.StreamReader, inbox: Inbox) -> None:
        async with asyncio.TaskGroup() as accepting:
            while line := await reader.readline():
                data = json.loads(line)
                if "say" in data:
                    # Tasks begin in the order in which they are made, and accept hands over before it first waits.
                    accepting.create_task(self._accept(inbox, data["say"]))
                elif "ask" in data:
                    self.note({"at rest": self.at_rest()})
                else:
                    confirmed = self._unconfirmed.pop(data["posted"], None)
                    if confirmed is not None and not confirmed.done():
                        confirmed.set_result(data["id"])

    async def _accept(self, inbox: Inbox, said: dict[str, str]) -> None:
        source = SessionSource(
            platform=Platform(self.platform), chat_id=said["chat"], chat_type=said["type"], user_id=said["user"]
        )
        if self._sin == "ack-first":
            self.note({"ack": said["id"]})
            await asyncio.sleep(THINK_S_MAX)
        event = MessageEvent(said["text"], source, account=self.account, message_id=said["id"])
        receipt = await inbox.accept(event)
        self._points.hit("accepted-unacked")
        self.note({"refused" if receipt.outcome == "refused" else "ack": said["id"]})

    async def send(self, out: Outbound) -> Sent:
        """Post one part; returns when the platform has confirmed it."""
        self._points.hit("reply-unsent")
        if self._writer is None:
            raise SendError("not connected")
        text = unmarked(out.text) if self._sin == "strip-mark" else out.text
        message_id = ""
        for _ in range(2 if self._sin == "post-twice" else 1):
            number = next(self._numbers)
            confirmed = self._unconfirmed[number] = asyncio.get_running_loop().create_future()
            self.note({"post": number, "chat": out.target.chat_id, "text": text})
            self._points.hit("sent-unconfirmed")
            message_id = await confirmed
        self._points.hit("sent-unsettled")
        return Sent(message_id)

    def note(self, data: dict[str, Any]) -> None:
        """Tell the platform something, if it is there."""
        if self._writer is not None:
            self._writer.write(json.dumps(data).encode() + b"\n")

    def _hung_up(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()
        for confirmed in self._unconfirmed.values():
            if not confirmed.done():
                confirmed.set_exception(SendError("the platform hung up", ambiguous=True))
        self._unconfirmed.clear()


def main() -> int:
    """Serve until SIGTERM or death."""
    die_with_parent()
    parser = argparse.ArgumentParser()
    parser.add_argument("home", type=Path)
    parser.add_argument("socket", type=Path)
    parser.add_argument("--separate-attempt", action="store_true")
    parser.add_argument("--spool", action="store_true")
    parser.add_argument("--hurry", action="store_true")
    parser.add_argument("--sin", default="")
    options = parser.parse_args()
    points = Failpoints.from_environment()
    adapter = SocketAdapter(options.socket, points, options.sin)
    agent = echoing(points, adapter.note, THINK_S_MAX, random.Random())
    config = GatewayConfig(
        storage=StorageConfig(on_unavailable="spool" if options.spool else "refuse"),
        delivery=DeliveryConfig(separate_attempt=options.separate_attempt, attempts_ambiguous_max=AMBIGUOUS_MAX),
    )
    gateway = Gateway(agent, home=options.home, config=config, adapters=[adapter])
    adapter.at_rest = lambda: gateway.balance()["waiting"] == 0 and gateway.health()["replies_pending"] == 0
    if options.hurry:
        for module, waits in ((seriatim.gate, "COMMIT_RETRY_MS"), (seriatim.actors.spooling, "SPOOL_RETRY_MS")):
            setattr(module, waits, (20, 50, 50, 50))
    with mock.patch.object(seriatim.opening, "SqliteStore", partial(_open, points)):
        return 0 if gateway.run() else 1


def _open(points: Failpoints, path: Path) -> HaltingStore:
    return HaltingStore(SqliteStore(path), points)


if __name__ == "__main__":
    sys.exit(main())
