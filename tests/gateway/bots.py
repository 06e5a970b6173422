"""A gateway on files of its own, with a platform that people type into, for tests of the whole on one loop."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from seriatim import Gateway, GatewayConfig, MessageEvent, Platform, SessionSource, Turn
from seriatim.actors.receipts import End, Receipt
from seriatim.config import StopConfig
from seriatim.storage.audit import audit
from seriatim.storage.sqlite_reader import SqliteReader
from seriatim.testing.fake_platform import FakePlatform

T = TypeVar("T")
WAIT_S = 60.0  # a bound, not a pause: whatever takes this long has failed
LOOK_AGAIN_S = 0.001


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a scenario on a loop of its own, within the bound; what it leaves to the collector is collected here."""

    async def bounded() -> T:
        async with asyncio.timeout(WAIT_S):  # before 3.12 wait_for makes a task, which a Ctrl-C then cancels twice
            return await main

    try:
        return asyncio.run(bounded())
    finally:
        gc.collect()


async def until(holds: Callable[[], object]) -> None:
    """Let the loop go on until something holds; ``run`` bounds it."""
    while not holds():  # noqa: ASYNC110  (what is looked at has no event: state of actors, of files, of a platform)
        await asyncio.sleep(LOOK_AGAIN_S)


class Bot:
    """A running gateway, its platform, and what it reported."""

    def __init__(self, gateway: Gateway, platform: FakePlatform, errors: list[tuple[str, BaseException]]) -> None:
        self.gateway = gateway
        self.platform = platform
        self.errors = errors

    def say(self, text: str, chat_id: str = "1") -> None:
        """Somebody types."""
        self.platform.say(text, chat_id=chat_id)

    async def heard(self, count: int, chat_id: str | None = None) -> list[str]:
        """The platform's texts, once there are so many."""
        await until(lambda: len(self.platform.texts(chat_id)) >= count)
        return self.platform.texts(chat_id)

    async def accept(self, text: str, lane: str = "1", message_id: str | None = None) -> Receipt:
        """Through the host's own door: the answer is the receipt's."""
        return await self.gateway.accept(event(text, lane, message_id))

    async def ask(self, text: str, lane: str = "1") -> End:
        """The end of it."""
        return await (await self.accept(text, lane)).answered()

    async def at_rest(self) -> None:
        """Nothing runs, waits or is on its way."""
        runtime = self.gateway._runtime
        assert runtime is not None
        await until(lambda: not runtime.busy)

    @property
    def health(self) -> Any:
        """As the operator sees it."""
        return self.gateway.health()


def event(text: str, lane: str = "1", message_id: str | None = None) -> MessageEvent:
    """A message of a host that has no adapter."""
    source = SessionSource(platform=Platform("host"), chat_id=lane, user_id="7")
    return MessageEvent(text=text, source=source, message_id=message_id)


@asynccontextmanager
async def bot(
    answer: Any, home: Path, platform: FakePlatform | None = None, *, stop: StopConfig | None = None, **options: Any
) -> AsyncIterator[Bot]:
    """A gateway that runs while the block lasts."""
    errors: list[tuple[str, BaseException]] = []
    platform = FakePlatform() if platform is None else platform
    config = options.pop("config", None) or GatewayConfig(stop=stop or StopConfig(drain_s=5.0, watchdog_s=10.0))
    gateway = Gateway(
        answer,
        home=home,
        config=config,
        adapters=[platform],
        on_error=lambda where, error: errors.append((where, error)),
        **options,
    )
    async with gateway:
        yield Bot(gateway, platform, errors)


def balance_holds(home: Path) -> bool:
    """Law 1, over the counters and over the logs."""
    reader = SqliteReader(home / "state.db")
    try:
        return audit(reader).holds
    finally:
        reader.close()


async def echo(turn: Any) -> str:
    """The plainest agent."""
    return f"echo {turn.text}"


async def interrupted(home: Path, reason: Any = "shutdown") -> bool:
    """A life that stops in the middle of a turn; whether the stop was clean."""
    begun = asyncio.Event()

    async def long(turn: Turn) -> str:
        begun.set()
        await asyncio.Event().wait()
        return ""

    async with bot(long, home, stop=StopConfig(drain_s=0.0)) as it:
        it.say("long")
        await begun.wait()
        return await it.gateway.stop(reason=reason)
