"""Stopping: who waits for what, what is still served, and what is started too late."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from seriatim.actors.dispatch import LoopDispatcher
from seriatim.actors.futures import PooledFuture
from seriatim.actors.pooled import PooledActor
from seriatim.errors import ActorDeadError, SystemStoppingError
from seriatim.limits import RUNTIME_MAIL_AHEAD_MAX
from seriatim.testing.clock import VirtualClock

from .worlds import WAIT_S, Recorder, World, log_of, world_of


class Flushing(PooledActor):
    """Takes its time to stop."""

    def __init__(self, flushed: list[str], slow: threading.Event | None = None) -> None:
        super().__init__()
        self.flushed = flushed
        self.slow = slow

    def on_receive(self, message: Any) -> None:
        """Save."""
        self.flushed.append(message)

    def on_stop(self) -> None:
        """Flush, slowly."""
        if self.slow is not None:
            assert self.slow.wait(WAIT_S)
        self.flushed.append("flushed")


@pytest.mark.parametrize("how", ["stop", "stop_now", "stop_all"])
def test_waiting_for_a_stop_means_that_the_hook_has_run(world: World, how: str) -> None:
    """The future of a stop is settled after on_stop has returned, on every way to stop (B138)."""
    flushed: list[str] = []
    ref = world.start(Flushing, flushed)
    world.run()
    ways: dict[str, Callable[[], PooledFuture[Any]]] = {
        "stop": ref.stop,
        "stop_now": ref.stop_now,
        "stop_all": world.system.stop_all,
    }
    stopped = ways[how]()
    seen: list[list[str]] = []
    stopped.add_done_callback(lambda _: seen.append(list(flushed)))
    world.run()
    stopped.get(timeout=WAIT_S)
    assert flushed == ["flushed"]
    assert seen == [["flushed"]], "a callback ran before the hook had"


def test_a_slow_stop_hook_is_waited_for() -> None:
    """While on_stop runs on a worker, whoever waits goes on waiting (B138)."""
    with world_of("pool") as world:
        flushed: list[str] = []
        slow = threading.Event()
        ref = world.start(Flushing, flushed, slow)
        stopped = ref.stop()
        told = threading.Event()
        stopped.add_done_callback(lambda _: told.set())
        assert not told.wait(0.05)  # shorter would miss a fault, never make one up
        assert not flushed
        slow.set()
        assert stopped.get(timeout=WAIT_S) is True
        assert flushed == ["flushed"]


def test_an_ordered_stop_serves_what_was_told_before_it(world: World) -> None:
    """A thousand saves, then a stop: all are handled before the hook, in order (B139)."""
    flushed: list[Any] = []
    ref = world.start(Flushing, flushed)
    for n in range(1000):
        ref.tell(n)
    stopped = ref.stop()
    world.run()
    assert stopped.get(timeout=WAIT_S) is True
    assert flushed == [*range(1000), "flushed"]


@pytest.mark.parametrize("world", ["loop", "simulation"], indirect=True)
def test_who_dismisses_an_actor_gets_the_mail_that_it_has_not_begun(world: World) -> None:
    """Runtime mail first, each kind in its order, and nothing of it is handled or a dead letter; then it is dead."""
    done = threading.Event()
    flushed: list[Any] = []
    ref, other = world.start(Flushing, flushed), world.start(Recorder)
    world.run()
    got: list[Any] = []

    def dismiss(_: Any) -> None:  # on the thread of both
        for n in range(3):
            ref.tell(n)
            ref.signal(f"report {n}")
        asked = ref.ask("log", block=False)
        got.extend((ref.dismiss(), ref.dismiss(), asked))
        with pytest.raises(ActorDeadError):
            ref.tell("late")
        done.set()

    other.tell(dismiss)
    world.wait(done)
    assert got[:2] == [["report 0", "report 1", "report 2", 0, 1, 2], None]
    with pytest.raises(ActorDeadError):
        got[2].get(timeout=WAIT_S)
    assert log_of(other) == []
    assert flushed == []
    assert ref.name not in [left.name for left in world.system]
    assert world.system.dead_letters == {"refused": 1, "signal": 0, "stopped": 0, "late": 0, "closed": 0}


class Restless(PooledActor):
    """Wakes itself with runtime mail, for ever."""

    def on_start(self) -> None:
        """The first of them."""
        self.own_ref.signal("wake")

    def on_receive(self, message: Any) -> None:
        """The next one."""
        self.own_ref.signal("wake")


def test_a_flood_of_runtime_mail_starves_no_stop(world: World) -> None:
    """An actor that keeps waking itself handles its data mail and its stop all the same (B139)."""
    if world.kind == "simulation":
        ref = world.start(Restless)
        stopped = ref.stop()
        for _ in range(RUNTIME_MAIL_AHEAD_MAX + 10):
            world.dispatcher.step()  # type: ignore[attr-defined]  # the simulation's
        assert stopped.ready
        return
    ref = world.start(Restless)
    assert ref.stop().get(timeout=WAIT_S) is True


def test_runtime_mail_goes_first_up_to_its_bound(world: World) -> None:
    """Up to the bound runtime mail is served before data; then one data message gets its turn (B139)."""
    inside, gate, done = threading.Event(), threading.Event(), threading.Event()
    ref = world.start(Recorder)

    def block(_: Any) -> None:
        inside.set()
        assert world.kind == "simulation" or gate.wait(WAIT_S)

    ref.tell(block)
    world.wait(inside)
    ref.tell("data")
    for n in range(2 * RUNTIME_MAIL_AHEAD_MAX):
        ref.signal(n)
    ref.signal(lambda me: done.set())
    gate.set()
    world.wait(done)
    log = ref.ask("log", timeout=WAIT_S)
    assert log.index("data") == RUNTIME_MAIL_AHEAD_MAX
    assert [entry for entry in log if entry != "data"] == list(range(2 * RUNTIME_MAIL_AHEAD_MAX))


def test_nothing_started_during_a_shutdown_is_left_behind(world: World) -> None:
    """An actor that starts others from on_stop, on_receive and on_failure while all stop gets an error each time,
    and when the stop is over nobody lives (B139).
    """
    refusals: list[str] = []

    class Fertile(PooledActor):
        def _try(self, where: str) -> None:
            try:
                world.system.start(Recorder, dispatcher=world.dispatcher, name=f"child of {where}")
            except SystemStoppingError:
                refusals.append(where)

        def on_receive(self, message: Any) -> None:
            self._try("receive")

        def on_stop(self) -> None:
            self._try("stop")
            raise RuntimeError

        def on_failure(self, exception_type: Any, exception_value: Any, traceback: Any) -> None:
            self._try("failure")

    gate = threading.Event()
    ref = world.start(Fertile)
    world.run()
    if world.kind != "simulation":
        busy = world.start(Recorder)
        busy.tell(lambda me: gate.wait(WAIT_S) and None)
    ref.tell("x")
    stopped = world.system.stop_all()
    gate.set()
    world.run()
    stopped.get(timeout=WAIT_S)
    assert refusals[-1] == "stop"
    assert len(world.system) == 0


def test_a_start_that_races_with_the_shutdown_is_refused_or_stopped() -> None:
    """However starts and a shutdown interleave on real threads, no actor outlives it (B139)."""
    for _ in range(30):
        with world_of("pool") as world:
            begun = threading.Barrier(3)

            def start_many(world: World = world, begun: threading.Barrier = begun) -> None:
                begun.wait(WAIT_S)
                try:
                    for _ in range(200):
                        world.start(Recorder)
                except SystemStoppingError:
                    return

            threads = [threading.Thread(target=start_many) for _ in range(2)]
            for thread in threads:
                thread.start()
            begun.wait(WAIT_S)
            world.system.stop_all().get(timeout=WAIT_S)
            for thread in threads:
                thread.join(WAIT_S)
            world.system.stop_all().get(timeout=WAIT_S)  # waits for nobody: there is nobody
            assert list(world.system) == []


def test_a_stop_of_actors_whose_loop_was_closed_ends() -> None:
    """A user who closes the loop under living actors gets their stop answered, and their mail counted as lost."""

    async def begin() -> tuple[World, Any]:
        world = World("loop", LoopDispatcher(asyncio.get_running_loop()), VirtualClock())
        ref = world.start(Recorder)
        await ref.ask("x", block=False)
        return world, ref

    world, ref = asyncio.run(begin())
    assert world.system.stop_all().get(timeout=WAIT_S) is None
    assert not ref.is_alive()
    assert len(world.system) == 0
