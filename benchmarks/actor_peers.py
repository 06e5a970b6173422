"""The contenders of ``benchmarks.actors``: the same work on other people's actors.

Each function starts *actors* actors, sends each of them *per_actor* messages that it counts, waits until all are
handled, and gives back messages a second. What isn't installed (`pip install -e '.[bench]'`) is left out and said so.
"""

from __future__ import annotations

import asyncio
import importlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pykka

BENCH_EXTRA = "not installed: pip install -e '.[bench]'"
BURST = 4


class MissingError(Exception):
    """A contender can't run here; the text says why."""


def optional(name: str) -> Any:
    """A module of the bench extra. Raises MissingError."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MissingError(f"{name.partition('.')[0]} is {BENCH_EXTRA}") from error


class Threaded(pykka.ThreadingActor):
    """Counts on a thread of its own."""

    use_daemon_thread = True
    handled = 0

    def on_receive(self, message: Any) -> Any:
        """Count and echo."""
        self.handled += 1
        return message


def threading_actors(actors: int, per_actor: int) -> float:
    """Pykka's ThreadingActor, as it comes."""
    refs = [Threaded.start() for _ in range(actors)]
    try:
        begun = time.perf_counter()
        for _ in range(per_actor):
            for ref in refs:
                ref.tell(1)
        for answer in [ref.ask(0, block=False) for ref in refs]:
            answer.get()
        return actors * per_actor / (time.perf_counter() - begun)
    finally:
        for ref in reversed(refs):
            ref.stop(block=False)
        pykka.ActorRegistry.stop_all()


def asyncio_tasks(actors: int, per_actor: int) -> float:
    """The usual way without actors: per key a queue and a task that serves it, on one loop, told from that loop."""

    class Counter:
        handled = 0

        def on_receive(self, message: Any) -> None:
            self.handled += 1

    async def serve(inbox: asyncio.Queue[Any], counter: Counter) -> None:
        while (message := await inbox.get()) is not None:
            counter.on_receive(message)

    async def main() -> float:
        counters = [Counter() for _ in range(actors)]
        inboxes: list[asyncio.Queue[Any]] = [asyncio.Queue() for _ in range(actors)]
        tasks = [asyncio.create_task(serve(*pair)) for pair in zip(inboxes, counters, strict=True)]
        await asyncio.sleep(0)
        begun = time.perf_counter()
        for _ in range(per_actor // BURST):
            for inbox in inboxes:
                for _ in range(BURST):
                    inbox.put_nowait(1)
            await asyncio.sleep(0)
        for inbox in inboxes:
            inbox.put_nowait(None)
        await asyncio.gather(*tasks)
        took_s = time.perf_counter() - begun
        assert sum(counter.handled for counter in counters) == actors * (per_actor // BURST) * BURST
        return actors * (per_actor // BURST) * BURST / took_s

    return asyncio.run(main())


@dataclass
class Tell:
    """A message that autogen can serialise."""

    n: int


def autogen(actors: int, per_actor: int) -> float:
    """autogen-core's SingleThreadedAgentRuntime: an agent per key, messages published to it."""
    core = optional("autogen_core")
    handled = 0

    async def count(self: object, message: Tell, ctx: Any) -> None:
        nonlocal handled
        handled += 1

    count.__annotations__ = {"message": Tell, "ctx": core.MessageContext, "return": type(None)}
    counter: Any = type("Counter", (core.RoutedAgent,), {"count": core.message_handler(count)})

    async def main() -> float:
        runtime = core.SingleThreadedAgentRuntime()
        await counter.register(runtime, "counter", lambda: counter("counts"))
        await runtime.add_subscription(core.TypeSubscription("counter", "counter"))
        topics = [core.TopicId("counter", str(n)) for n in range(actors)]
        runtime.start()
        for topic in topics:  # an agent is made at its first message
            await runtime.publish_message(Tell(0), topic)
        while handled < actors:  # noqa: ASYNC110  (another library's progress)
            await asyncio.sleep(0)
        begun = time.perf_counter()
        for n in range(per_actor):
            for topic in topics:
                await runtime.publish_message(Tell(n), topic)
        await runtime.stop_when_idle()
        took_s = time.perf_counter() - begun
        assert handled == actors * (per_actor + 1)
        return actors * per_actor / took_s

    return asyncio.run(main())


def thespian(actors: int, per_actor: int) -> float:
    """Thespian's simpleSystemBase, the fastest of its systems: in this thread, one after the other."""
    thespian_actors = optional("thespian.actors")

    def receive(self: Any, message: Any, sender: Any) -> None:
        if message is None:
            self.send(sender, self.handled)
        else:
            self.handled += 1

    counter = type("Counter", (thespian_actors.Actor,), {"handled": 0, "receiveMessage": receive})
    system = thespian_actors.ActorSystem("simpleSystemBase")
    try:
        refs = [system.createActor(counter) for _ in range(actors)]
        begun = time.perf_counter()
        for n in range(per_actor):
            for ref in refs:
                system.tell(ref, n)
        took_s = time.perf_counter() - begun
        assert system.ask(refs[-1], None) == per_actor
        return actors * per_actor / took_s
    finally:
        system.shutdown()


PEERS: dict[str, tuple[Callable[[int, int], float], int]] = {
    "threading": (threading_actors, 10),
    "asyncio": (asyncio_tasks, 1),
    "autogen": (autogen, 100),
    "thespian": (thespian, 10),
}
"""Contender, and by how much fewer messages it gets than the fastest, so that a round doesn't last minutes."""
