"""What the loop dispatcher promises the host's loop, and the writer behind the hand-off."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from seriatim.actors import dispatch
from seriatim.actors.dispatch import LoopDispatcher, PoolDispatcher
from seriatim.actors.pooled import PooledActor
from seriatim.actors.refs import signal_all
from seriatim.actors.system import ActorSystem, Ref
from seriatim.errors import ActorDeadError, BlockingAskError
from seriatim.testing.clock import VirtualClock

from .worlds import WAIT_S, Recorder


def new_system() -> ActorSystem:
    """A system in which nothing may crash."""

    def unexpected(crash: Any) -> None:
        raise AssertionError(crash)

    return ActorSystem(clock=VirtualClock(), on_crash=unexpected)


def on_loop(body: Callable[[ActorSystem], Coroutine[Any, Any, None]]) -> None:
    """Run *body* on a fresh loop with a system, and stop the system."""

    async def main() -> None:
        system = new_system()
        await body(system)
        await system.stop_all()

    asyncio.run(asyncio.wait_for(main(), WAIT_S))


def steady(**options: Any) -> LoopDispatcher:
    """A dispatcher whose passes end for no machine's slowness: for tests that count them."""
    return LoopDispatcher(asyncio.get_running_loop(), pass_ms_max=1e9, **options)


def start_many(system: ActorSystem, dispatcher: LoopDispatcher, count: int) -> list[Ref[Any]]:
    """Recorders by the dozen."""
    return [system.start(Recorder, dispatcher=dispatcher, name=f"r{n}") for n in range(count)]


def test_wake_ups_are_coalesced() -> None:
    """However many actors get mail at once on the loop, one pass serves them."""

    async def body(system: ActorSystem) -> None:
        dispatcher = steady()
        refs = start_many(system, dispatcher, 50)
        await refs[-1].ask("log", block=False)
        before = dispatcher.passes
        for n in range(10):
            for ref in refs:
                ref.tell(n)
        assert await refs[-1].ask("log", block=False) == list(range(10))
        assert dispatcher.passes == before + 1

    on_loop(body)


def test_a_pass_is_bounded() -> None:
    """With more ready actors than a pass may run, the loop's other callbacks get their turn in between."""

    async def body(system: ActorSystem) -> None:
        dispatcher = LoopDispatcher(asyncio.get_running_loop(), pass_max=64)
        refs = start_many(system, dispatcher, 640)
        ticks = 0
        answer = refs[-1].ask("log", block=False)
        while not answer.ready:
            await asyncio.sleep(0)
            ticks += 1
        assert ticks >= 10
        assert dispatcher.activations <= 64 * dispatcher.passes

    on_loop(body)


def test_a_slow_pass_ends_early() -> None:
    """A pass that has taken its time ends after the next activation, however few it has made."""

    async def body(system: ActorSystem) -> None:
        dispatcher = LoopDispatcher(asyncio.get_running_loop(), pass_ms_max=0.0)
        refs = start_many(system, dispatcher, 5)
        await refs[-1].ask("log", block=False)
        assert dispatcher.passes == dispatcher.activations

    on_loop(body)


def test_the_hand_off_comes_in_a_pass_and_at_its_end() -> None:
    """Every other activation a whole group is asked for, at the end of each pass whatever there is; on the loop."""

    async def body(system: ActorSystem) -> None:
        calls: list[tuple[bool, int]] = []

        def handoff(whole_group: bool) -> bool:
            calls.append((whole_group, threading.get_ident()))
            return len(calls) == 2

        dispatcher = steady(handoff=handoff)
        refs = start_many(system, dispatcher, 5)
        await refs[-1].ask("log", block=False)
        assert calls == [(whole, threading.get_ident()) for whole in (True, True, False)]
        assert dispatcher.handoffs == 1

    on_loop(body)


def test_a_failing_hand_off_does_not_stop_the_pass(caplog: pytest.LogCaptureFixture) -> None:
    """Handoff may raise: it is logged, and the actors go on."""

    def clumsy(_whole_group: bool) -> bool:
        raise RuntimeError("clumsy")

    async def body(system: ActorSystem) -> None:
        dispatcher = LoopDispatcher(asyncio.get_running_loop(), handoff=clumsy)
        for ref in start_many(system, dispatcher, 40):
            assert await ref.ask("x", block=False) == "x"

    on_loop(body)
    assert "hand-off" in caplog.text


def test_mail_for_many_is_handed_over_as_one() -> None:
    """A group's messages from another thread reach their actors, each in order, in a few activations altogether."""

    async def body(system: ActorSystem) -> None:
        dispatcher = LoopDispatcher(asyncio.get_running_loop(), envelopes_max=16)
        refs = start_many(system, dispatcher, 40)
        await refs[-1].ask("log", block=False)
        before = dispatcher.activations
        mail = [(ref, number) for number, ref in enumerate(refs)] + [(refs[0], "last")]
        await asyncio.to_thread(signal_all, mail)
        assert await refs[0].ask("log", block=False) == [0, "last"]
        assert dispatcher.activations - before <= 3 + 1  # and the ask
        assert [await ref.ask("log", block=False) for ref in refs[1:]] == [[number] for number in range(1, 40)]

    on_loop(body)


def test_mail_for_many_on_a_closed_loop_is_buried() -> None:
    """Each message that will never be served is a dead letter, none is lost without a word."""
    letters: list[Any] = []

    async def body(_: ActorSystem) -> None:
        dispatcher = LoopDispatcher(asyncio.get_running_loop())
        system = ActorSystem(clock=VirtualClock(), on_crash=letters.append, on_dead_letter=letters.append)
        refs = start_many(system, dispatcher, 2)
        await refs[-1].ask("log", block=False)
        dispatcher.close()
        signal_all([(ref, "late") for ref in refs])

    on_loop(body)
    assert [letter.message for letter in letters] == ["late", "late"]


def test_slow_yields_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where offering the GIL costs a switch interval, the offer is skipped for a while, longer each time."""

    class SlowTime:
        now = 0.0
        sleeps = 0

        def perf_counter(self) -> float:
            return self.now

        def offer(self) -> None:
            self.sleeps += 1
            self.now += 0.005

    slow = SlowTime()
    monkeypatch.setattr(dispatch, "time", slow)
    monkeypatch.setattr(dispatch, "yield_gil", slow.offer)

    async def body(system: ActorSystem) -> None:
        dispatcher = steady(handoff=lambda _: True)
        skipped = dispatch.YIELDS_SKIPPED_MIN
        for number in range(1, 6):
            for _ in range(1 + skipped):
                dispatcher._offer_gil()
            assert slow.sleeps == number
            skipped *= 2
        assert dispatcher.slow_yields == 5

    on_loop(body)


def test_threads_wake_the_loop() -> None:
    """Tells from other threads reach actors on the loop, in each thread's order."""

    async def body(system: ActorSystem) -> None:
        dispatcher = LoopDispatcher(asyncio.get_running_loop())
        ref = system.start(Recorder, dispatcher=dispatcher, name="r")

        def send(k: int) -> None:
            for n in range(500):
                ref.tell((k, n))

        await asyncio.gather(*(asyncio.to_thread(send, k) for k in range(4)))
        log = await ref.ask("log", block=False)
        assert len(log) == 2000
        for k in range(4):
            assert [n for sender, n in log if sender == k] == list(range(500))

    on_loop(body)


def test_blocking_the_loop_on_its_own_actor_is_refused() -> None:
    """A blocking ask on the loop's thread could never be answered, so it raises; a pool's actor may be waited for."""

    async def body(system: ActorSystem) -> None:
        ref = system.start(Recorder, dispatcher=LoopDispatcher(asyncio.get_running_loop()), name="r")
        with pytest.raises(BlockingAskError, match="event loop"):
            ref.ask("log")
        pool = PoolDispatcher()
        assert system.start(Recorder, dispatcher=pool, name="p").ask("pooled", timeout=WAIT_S) == "pooled"

    on_loop(body)


def test_a_closed_loop_is_a_dead_actor() -> None:
    """A tell to an actor whose event loop is closed raises ActorDeadError."""
    system = new_system()

    async def start() -> Ref[Any]:
        ref = system.start(Recorder, dispatcher=LoopDispatcher(asyncio.get_running_loop()), name="r")
        await ref.ask("log", block=False)
        await asyncio.sleep(0)
        return ref

    ref = asyncio.run(start())
    with pytest.raises(ActorDeadError, match="closed"):
        ref.tell("nobody")
    assert len(system) == 0


def test_all_hooks_run_on_the_loops_thread() -> None:
    """on_start, on_receive and on_stop run where the loop runs, never on the sender's thread."""
    threads: list[int] = []

    class Hooked(PooledActor):
        def on_start(self) -> None:
            threads.append(threading.get_ident())

        def on_receive(self, message: Any) -> None:
            threads.append(threading.get_ident())

        def on_stop(self) -> None:
            threads.append(threading.get_ident())

    async def body(system: ActorSystem) -> None:
        dispatcher = LoopDispatcher(asyncio.get_running_loop())
        ref = await asyncio.to_thread(system.start, Hooked, dispatcher=dispatcher, name="h")
        await asyncio.to_thread(ref.tell, 1)
        await ref.stop()
        assert threads == [threading.get_ident()] * 3

    on_loop(body)
