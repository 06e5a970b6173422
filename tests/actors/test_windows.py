"""Race windows of one bytecode, forced open: stress tests hit them too rarely to guard them."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any, SupportsIndex

import pykka
import pytest

from seriatim.actors.dispatch import LoopDispatcher, PoolDispatcher, Runnable
from seriatim.actors.futures import PooledFuture
from seriatim.actors.mailbox import take
from seriatim.actors.pooled import PooledActor
from seriatim.actors.system import ActorSystem, Crash, DeadLetter
from seriatim.testing.clock import VirtualClock

from .worlds import WAIT_S, Recorder, raiser


class ByHand:
    """A dispatcher that only remembers; the test activates."""

    name = "by hand"

    def __init__(self) -> None:
        self.ready: list[Runnable] = []

    def schedule(self, *mailboxes: Runnable) -> None:
        """Remember them."""
        self.ready.extend(mailboxes)

    def before_wait(self, future: PooledFuture[Any], /) -> None:
        """Nobody waits here."""

    def close(self) -> None:
        """Nothing to close."""

    def run(self) -> None:
        """Activate what is ready, once each."""
        ready, self.ready = self.ready, []
        self.ready += [mailbox for mailbox in ready if mailbox.activate(8)]


class OpenLock:
    """A lock that lets something happen just before it is released."""

    def __init__(self, lock: Any, meanwhile: Callable[[], None]) -> None:
        self.lock, self.meanwhile = lock, meanwhile

    def acquire(self, blocking: bool = True) -> bool:
        """As a lock."""
        return bool(self.lock.acquire(blocking))

    def release(self) -> None:
        """As a lock, but late."""
        meanwhile, self.meanwhile = self.meanwhile, lambda: None
        meanwhile()
        self.lock.release()


class Bench:
    """A system on a dispatcher by hand."""

    def __init__(self) -> None:
        self.crashes: list[Crash] = []
        self.letters: list[DeadLetter] = []
        self.dispatcher = ByHand()
        self.system = ActorSystem(
            clock=VirtualClock(), on_crash=self.crashes.append, on_dead_letter=self.letters.append
        )

    def start(self, actor_class: type[PooledActor] = Recorder, name: str = "a") -> Any:
        """Start an actor and run its on_start."""
        ref = self.system.start(actor_class, dispatcher=self.dispatcher, name=name)
        self.dispatcher.run()
        return ref


def test_mail_sent_while_the_mailbox_goes_to_rest_is_served() -> None:
    """A sender that still finds the flag held, just before its release, schedules nothing: the mailbox looks again."""
    bench = Bench()
    ref = bench.start()
    box = ref._box
    actor = box.actor
    ref.tell("first")
    box.idle = OpenLock(box.idle, lambda: ref.tell("just now"))
    bench.dispatcher.run()
    bench.dispatcher.run()
    assert actor.log == ["first", "just now"]


def test_mail_sent_while_the_queue_is_taken_over_stays() -> None:
    """take() removes exactly what it copied."""

    class Racing(list[Any]):
        def __getitem__(self, key: SupportsIndex | slice) -> Any:
            copy = super().__getitem__(key)
            self.append("meanwhile")
            return copy

    fresh = Racing(["a", "b"])
    assert take(fresh) == ["b", "a"]
    assert list(fresh) == ["meanwhile"]


def test_mail_that_raced_with_the_death_is_a_dead_letter() -> None:
    """A sender that passed the check before the death and appended after it loses nothing silently."""
    bench = Bench()
    ref = bench.start()
    ref.tell(raiser(ValueError()))
    bench.dispatcher.run()
    box = ref._box
    box.fresh.append("late")
    assert box.idle.acquire(False)
    box.wake()
    bench.dispatcher.run()
    assert [(letter.message, letter.reason) for letter in bench.letters] == [("late", "late")]
    assert bench.system.dead_letters["late"] == 1


def test_a_pass_looks_again_before_it_rests() -> None:
    """A mailbox scheduled while the loop's pass ends is run by another pass."""

    async def main() -> None:
        system = ActorSystem(clock=VirtualClock(), on_crash=lambda crash: None)
        dispatcher = LoopDispatcher(asyncio.get_running_loop())
        first = system.start(Recorder, dispatcher=dispatcher, name="first")
        second = system.start(Recorder, dispatcher=dispatcher, name="second")
        await second.ask("log", block=False)
        await asyncio.sleep(0)
        open_lock: Any = OpenLock(dispatcher._resting, lambda: second.tell("just now"))
        dispatcher._resting = open_lock
        await first.ask("log", block=False)
        for _ in range(3):
            await asyncio.sleep(0)
        assert second._box.actor.log == ["just now"]
        await system.stop_all()

    asyncio.run(asyncio.wait_for(main(), WAIT_S))


def test_a_crash_in_on_drained_names_no_message() -> None:
    """The message handled before on_drained was handled: a crash there must not offer it again."""

    class Grouping(Recorder):
        def on_drained(self) -> None:
            if self.log:
                raise ValueError

    bench = Bench()
    bench.start(Grouping).tell("handled")
    bench.dispatcher.run()
    (crash,) = bench.crashes
    assert (crash.message, crash.phase) == (None, "receive")


def test_an_interrupted_activation_leaves_the_thread_as_it_was() -> None:
    """After a Ctrl-C out of an activation this thread is in no actor, and mail that came meanwhile is scheduled."""
    bench = Bench()
    ref = bench.start()
    ref.tell(raiser(KeyboardInterrupt()))
    box = ref._box
    box.idle = OpenLock(box.idle, lambda: box.fresh.append("late"))
    with pytest.raises(KeyboardInterrupt):
        bench.dispatcher.run()
    with pytest.raises(pykka.Timeout):
        PooledFuture[Any]().get(timeout=0)
    bench.dispatcher.run()
    assert [letter.message for letter in bench.letters] == ["late"]


def test_settling_after_a_cancelled_await_upsets_no_loop() -> None:
    """A future settled after its awaiting task was cancelled leaves no error on the loop."""

    async def main() -> None:
        upset: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: upset.append(context))
        future: PooledFuture[int] = PooledFuture()

        async def wait() -> int:
            return await future

        task = asyncio.ensure_future(wait())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        future.set(1)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert upset == []

    asyncio.run(asyncio.wait_for(main(), WAIT_S))


def gone(actor: weakref.ref[Any]) -> bool:
    """Whether the actor is freed within the bound; its worker may need a moment to let go."""
    deadline_s = time.monotonic() + WAIT_S
    while actor() is not None and time.monotonic() < deadline_s:
        gc.collect()
        threading.Event().wait(0.001)
    return actor() is None


class OnePool(Recorder):
    """A plain actor with a pool of its own class."""

    dispatcher = PoolDispatcher(workers=1, name="one")


def test_a_stopped_plain_actor_is_freed_while_its_ref_lives() -> None:
    """The inbox lets go of the actor at its death, though the ref still holds the inbox."""
    ref = OnePool.start()
    actor = ref._actor_weakref
    ref.stop()
    assert gone(actor)
    assert not ref.is_alive()


def test_an_idle_worker_holds_no_actor() -> None:
    """A plain actor neither registered nor referenced goes, even if it was the last that a worker ran (trap 2)."""
    ref = OnePool.start()
    assert ref.ask("x", timeout=WAIT_S) == "x"
    actor = ref._actor_weakref
    pykka.ActorRegistry.unregister(ref)
    del ref
    assert gone(actor)
