"""The product under a closed-loop load: what ``benchmarks.turn`` counts and times.

A lane is one person in one direct chat, who writes the next message when the reply to the one before was sent. The
gateway, its actors and its SQLite store are the shipped ones; the platform sends at once and the agent is empty.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Final

from attrs import frozen

from seriatim.actors.live_turn import Turn
from seriatim.adapters.base import Capabilities, Inbox
from seriatim.config import DeliveryConfig, GatewayConfig
from seriatim.gateway import Gateway
from seriatim.model import MessageEvent, Outbound, Platform, Sent, SessionSource, Target
from seriatim.storage.sqlite import SqliteStore

TEXT: Final = "Could you look at the log of last night's run and tell me why the second job was late? "
REPLY: Final = "The second job waited for the first one's lock; that was released at 02:14, forty minutes late."


@frozen
class Variant:
    """A kind of platform and of configuration; ``name`` is its place in the result, "" for the plain one."""

    name: str
    idempotent: bool = False
    separate_attempt: bool = False


PLAIN: Final = Variant("")
VARIANTS: Final = (PLAIN, Variant("idempotent", idempotent=True), Variant("separate_attempt", separate_attempt=True))


Script = Callable[["Load"], Awaitable[None]]


class Load:
    """The platform, and the people on it. Loop thread only.

    ``script``: what the people do; when it ends, so does the source. ``sent``: messages that they sent, all told.
    """

    platform = "bench"
    account = "bot"
    connected = True
    command_prefix = None

    def __init__(self, variant: Variant, script: Script | None = None) -> None:
        self.capabilities = Capabilities(replay="ack", idempotent_send=variant.idempotent)
        self._script = script
        self._inbox: Inbox | None = None
        self._listening = asyncio.Event()
        self._replied: dict[str, asyncio.Future[None]] = {}
        self.sent = 0

    # --- the adapter -----------------------------------------------------------------------------------

    async def run(self, inbox: Inbox) -> None:
        """Lend the door to ``turns``, until the script has ended or, without one, until cancelled."""
        self._inbox = inbox
        self._listening.set()
        await (self._script(self) if self._script is not None else asyncio.Event().wait())

    def text_max(self, target: Target) -> int:
        """No limit."""
        del target
        return 0

    async def send(self, out: Outbound) -> Sent:
        """Have it at once."""
        self._replied[out.target.chat_id].set_result(None)
        return Sent(out.idempotency_key)

    async def typing(self, target: Target) -> None:
        """Nothing to show."""

    # --- the people ------------------------------------------------------------------------------------

    async def turns(self, lanes: int, each: int) -> float:
        """Have so many lanes hold so many turns each; seconds from the first message to the last reply."""
        await self._listening.wait()
        inbox = self._inbox
        assert inbox is not None
        begun = time.perf_counter()
        await asyncio.gather(*(self._converse(inbox, f"chat{lane}", each) for lane in range(lanes)))
        return time.perf_counter() - begun

    async def _converse(self, inbox: Inbox, chat: str, turns: int) -> None:
        loop = asyncio.get_running_loop()
        source = SessionSource(platform=Platform(self.platform), chat_id=chat, user_id=chat, user_name="Alice")
        for _ in range(turns):
            replied = self._replied[chat] = loop.create_future()
            self.sent += 1
            event = MessageEvent(TEXT, source, account=self.account, message_id=f"{self.sent:09}")
            receipt = await inbox.accept(event)
            if receipt.outcome != "accepted":
                raise RuntimeError(f"a message was not accepted: {receipt}")
            await replied


async def answer(turn: Turn) -> str:
    """The agent: it has nothing to think about."""
    del turn
    return REPLY


@asynccontextmanager
async def product(path: Path, variant: Variant, store: Callable[[Path], SqliteStore]) -> AsyncIterator[Load]:
    """A gateway over the database at ``path``, embedded in the running loop. Raises what went wrong inside it."""
    load = Load(variant)
    errors: list[BaseException] = []
    gateway = _gateway(path, variant, store, load, errors)
    async with gateway:
        # Message ids of an earlier run over the same file would be redeliveries.
        load.sent = gateway.balance()["accepted"]
        yield load
    if errors:
        raise errors[0]


def serve(path: Path, variant: Variant, script: Script) -> None:
    """A gateway that owns the process's loop, as ``seriatim serve`` does, until the script has ended."""
    errors: list[BaseException] = []
    gateway: Gateway

    async def begin(load: Load) -> None:
        load.sent = gateway.balance()["accepted"]
        await script(load)

    gateway = _gateway(path, variant, SqliteStore, Load(variant, begin), errors)
    gateway.run()
    if errors:
        raise errors[0]


def _gateway(
    path: Path, variant: Variant, store: Callable[[Path], SqliteStore], load: Load, errors: list[BaseException]
) -> Gateway:
    return Gateway(
        answer,
        config=GatewayConfig(delivery=DeliveryConfig(separate_attempt=variant.separate_attempt)),
        adapters=[load],
        store=lambda: store(path),
        on_error=lambda _, error: errors.append(error),
    )


@contextmanager
def busy_thread() -> Iterator[None]:
    """One thread of this process computes in pure Python meanwhile."""
    stop = threading.Event()

    def burn() -> None:
        n = 0
        while not stop.is_set():
            for _ in range(1000):
                n += 1

    thread = threading.Thread(target=burn, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
