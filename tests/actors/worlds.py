"""One actor system over each dispatcher, with the same few verbs, so that a contract can be written once."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from seriatim.actors.dispatch import Dispatcher, LoopDispatcher, PinnedDispatcher, PoolDispatcher
from seriatim.actors.pooled import PooledActor
from seriatim.actors.simulation import SimulationDispatcher
from seriatim.actors.system import ActorSystem, Crash, DeadLetter, Ref
from seriatim.testing.clock import VirtualClock

WAIT_S = 60.0  # a bound, not a pause: whatever takes this long has failed
KINDS = ("loop", "pool", "pinned", "simulation")


class World:
    """A system, its dispatcher, and what they reported."""

    def __init__(self, kind: str, dispatcher: Dispatcher, clock: VirtualClock) -> None:
        self.kind = kind
        self.clock = clock
        self.dispatcher = dispatcher
        self.crashes: queue.SimpleQueue[Crash] = queue.SimpleQueue()
        self.letters: queue.SimpleQueue[DeadLetter] = queue.SimpleQueue()
        self.system = ActorSystem(clock=clock, on_crash=self.crashes.put, on_dead_letter=self.letters.put)
        self._names = iter(range(1_000_000))

    def start(self, actor_class: type[PooledActor], *args: Any, name: str = "", **kwargs: Any) -> Ref[Any]:
        """Start an actor on the world's dispatcher."""
        name = name or f"actor-{next(self._names)}"
        return self.system.start(actor_class, *args, dispatcher=self.dispatcher, name=name, **kwargs)

    def run(self) -> None:
        """Where nobody else runs the actors, run them."""
        if isinstance(self.dispatcher, SimulationDispatcher):
            self.dispatcher.run_until_idle()

    def crash(self) -> Crash:
        """The next crash."""
        self.run()
        return self.crashes.get(timeout=WAIT_S)

    def letter(self) -> DeadLetter:
        """The next dead letter."""
        self.run()
        return self.letters.get(timeout=WAIT_S)

    def wait(self, event: threading.Event) -> None:
        """Until *event* is set."""
        self.run()
        assert event.wait(WAIT_S), "nothing happened"


class Recorder(PooledActor):
    """Keeps what it receives; does what a function asks of it; answers "log" with what it has seen."""

    def __init__(self) -> None:
        super().__init__()
        self.log: list[Any] = []
        self.threads: set[int] = set()

    def on_start(self) -> None:
        """Note the thread."""
        self.threads.add(threading.get_ident())

    def on_receive(self, message: Any) -> Any:
        """Answer, obey or keep."""
        self.threads.add(threading.get_ident())
        if message == "log":
            return list(self.log)
        if callable(message):
            return message(self)
        self.log.append(message)
        return message


def log_of(ref: Ref[Any]) -> list[Any]:
    """All that a Recorder has seen up to now."""
    seen: list[Any] = ref.ask("log", timeout=WAIT_S)
    return seen


def raiser(error: BaseException) -> Callable[[Any], None]:
    """A message that makes a Recorder raise *error*."""

    def fail(_: Any) -> None:
        raise error

    return fail


@contextmanager
def running_loop() -> Iterator[asyncio.AbstractEventLoop]:
    """An event loop on a thread of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield loop
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(WAIT_S)
        loop.close()


@contextmanager
def world_of(kind: str) -> Iterator[World]:
    """A world of that kind, stopped afterwards."""
    clock = VirtualClock()
    if kind == "loop":
        with running_loop() as loop:
            world = World(kind, LoopDispatcher(loop), clock)
            yield world
            world.system.stop_all(now=True).get(timeout=WAIT_S)
        return
    if kind == "simulation":
        world = World(kind, SimulationDispatcher(1, clock), clock)
        yield world
        world.system.stop_all(now=True).get()
        return
    pool = PoolDispatcher(workers=2) if kind == "pool" else PinnedDispatcher("pinned")
    world = World(kind, pool, clock)
    yield world
    world.system.stop_all(now=True).get(timeout=WAIT_S)
    pool.close()
    assert pool.join(WAIT_S), "a worker did not end"
