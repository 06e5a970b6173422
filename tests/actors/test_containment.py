"""A failing actor of a system harms nobody else, and its mail is not lost."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pykka
import pytest

from seriatim.actors.dispatch import LoopDispatcher, PoolDispatcher
from seriatim.actors.pooled import PooledActor
from seriatim.actors.system import ActorSystem, Crash
from seriatim.errors import ActorDeadError
from seriatim.testing.clock import VirtualClock

from .worlds import WAIT_S, Recorder, World, log_of, raiser


class OddExit(BaseException):
    """Not an Exception."""


@pytest.mark.parametrize(
    "error", [ValueError("x"), asyncio.CancelledError(), SystemExit(3), OddExit(), GeneratorExit()]
)
def test_whatever_escapes_becomes_a_crash(world: World, error: BaseException) -> None:
    """Any BaseException out of a handler is a Crash with its message and the waiting mail; other actors go on."""
    other = world.start(Recorder)
    ref = world.start(Recorder, name="poisoned")
    fail = raiser(error)

    def load(actor: Recorder) -> None:
        ref.tell(fail)
        ref.tell("m1")
        ref.tell("m2")

    def late_signal(actor: Recorder) -> None:
        mine: Any = actor.actor_ref
        mine.signal("s1")
        mine.signal("s2")
        raise error

    ref.ask(load, timeout=WAIT_S)
    crash = world.crash()
    assert (crash.ref, crash.name, crash.error, crash.phase) == (ref, "poisoned", error, "receive")
    assert crash.message is fail
    assert (crash.mail, crash.signals) == (("m1", "m2"), ())
    assert crash.at_ms == world.clock.now_ms()
    world.start(Recorder, name="poisoned").tell(late_signal)
    second = world.crash()
    assert (second.mail, second.signals) == ((), ("s1", "s2"))
    assert log_of(other) == []
    with pytest.raises(ActorDeadError):
        ref.tell("m3")


@pytest.mark.parametrize("error", [ValueError("x"), asyncio.CancelledError(), SystemExit(3), OddExit()])
def test_the_hosts_own_actors_go_on(world: World, error: BaseException) -> None:
    """Pykka's "stop all actors" is never reached: a host's ThreadingActor outlives any crash of ours."""

    class Host(pykka.ThreadingActor):
        def on_receive(self, message: Any) -> Any:
            return message

    host = Host.start()
    try:
        registered = pykka.ActorRegistry.get_all()
        world.start(Recorder).tell(raiser(error))
        world.crash()
        assert host.ask("still there", timeout=WAIT_S) == "still there"
        assert pykka.ActorRegistry.get_all() == registered
    finally:
        host.stop()


def test_a_crash_in_on_start_carries_all_mail(world: World) -> None:
    """An actor whose on_start raises dies with phase "start", and what was told to it is in the crash."""

    class Stillborn(Recorder):
        def __init__(self) -> None:
            super().__init__()
            self.actor_ref.tell("early")

        def on_start(self) -> None:
            raise ValueError("no start")

    ref = world.start(Stillborn)
    crash = world.crash()
    assert (crash.phase, crash.message, crash.mail) == ("start", None, ("early",))
    assert not ref.is_alive()
    assert len(world.system) == 0


def test_a_crash_in_on_stop_still_ends_the_actor(world: World) -> None:
    """on_stop may raise: the stop is answered, the crash has phase "stop"."""

    class Unwilling(Recorder):
        def on_stop(self) -> None:
            raise ValueError("no stop")

    ref = world.start(Unwilling)
    assert ref.stop(block=True, timeout=WAIT_S) is True
    assert world.crash().phase == "stop"
    assert len(world.system) == 0


def test_on_failure_is_called_before_the_crash_is_reported(world: World) -> None:
    """on_failure runs on the actor for its clean-up, on_stop does not; an error in it changes nothing."""
    seen: list[str] = []

    class Cleaning(Recorder):
        def on_failure(self, exception_type: Any, exception_value: Any, traceback: Any) -> None:
            seen.append(exception_type.__name__)
            raise RuntimeError("clumsy")

        def on_stop(self) -> None:
            seen.append("on_stop")

    world.start(Cleaning).tell(raiser(KeyError("x")))
    assert isinstance(world.crash().error, KeyError)
    assert seen == ["KeyError"]


def test_a_failing_ask_reaches_the_asker_and_kills_the_actor(world: World) -> None:
    """Unlike Pykka, an actor whose handler raised under ask is not kept alive half changed."""
    ref = world.start(Recorder)
    with pytest.raises(KeyError):
        ref.ask(raiser(KeyError("x")), timeout=WAIT_S)
    assert isinstance(world.crash().error, KeyError)
    assert not ref.is_alive()


def test_asks_that_wait_at_a_crash_are_answered(world: World) -> None:
    """An ask behind a crash fails with ActorDeadError instead of waiting for ever, and is not among the mail."""
    ref = world.start(Recorder)
    asked: list[Any] = []

    def fail(actor: Recorder) -> None:
        asked.append(ref.ask("never", block=False))
        ref.tell("rest")
        asked.append(ref.stop())
        raise ValueError

    ref.tell(fail)
    assert world.crash().mail == ("rest",)
    with pytest.raises(ActorDeadError):
        asked[0].get(timeout=WAIT_S)
    assert asked[1].get(timeout=WAIT_S) is True


def test_the_name_is_free_inside_on_crash(world: World) -> None:
    """A supervisor may restart an actor under its name from on_crash itself."""
    restarted = threading.Event()
    refs: list[Any] = []

    def restart(crash: Crash) -> None:
        refs.append(system.start(Recorder, dispatcher=world.dispatcher, name=crash.name))
        for message in crash.mail:
            refs[0].tell(message)
        restarted.set()

    system = ActorSystem(clock=world.clock, on_crash=restart)
    ref = system.start(Recorder, dispatcher=world.dispatcher, name="lane")

    def fail(actor: Recorder) -> None:
        ref.tell("kept")
        raise ValueError

    ref.tell(fail)
    world.wait(restarted)
    assert log_of(refs[0]) == ["kept"]
    system.stop_all().get(timeout=WAIT_S)


def test_a_failing_on_crash_stops_nothing(world: World) -> None:
    """An on_crash that raises is logged; the dispatcher goes on."""

    def clumsy(_: Crash) -> None:
        raise RuntimeError("clumsy")

    system = ActorSystem(clock=world.clock, on_crash=clumsy)
    first = system.start(Recorder, dispatcher=world.dispatcher, name="a")
    second = system.start(Recorder, dispatcher=world.dispatcher, name="b")
    first.tell(raiser(ValueError()))
    second.tell("fine")
    assert log_of(second) == ["fine"]
    system.stop_all().get(timeout=WAIT_S)


def test_ctrl_c_on_the_loop_is_contained_and_then_the_hosts() -> None:
    """A KeyboardInterrupt on the main thread crashes the actor and then ends the host's loop; no other mail is lost."""
    loop = asyncio.new_event_loop()
    crashes: list[Crash] = []
    system = ActorSystem(clock=VirtualClock(), on_crash=crashes.append)
    dispatcher = LoopDispatcher(loop)
    ref = system.start(Recorder, dispatcher=dispatcher, name="interrupted")
    other = system.start(Recorder, dispatcher=dispatcher, name="other")
    ref.tell(raiser(KeyboardInterrupt()))
    ref.tell("rest")
    other.tell("kept")
    with pytest.raises(KeyboardInterrupt):
        loop.run_until_complete(asyncio.sleep(WAIT_S))

    async def end() -> Any:
        log = await other.ask("log", block=False)
        await system.stop_all()
        return log

    assert [(crash.name, crash.mail) for crash in crashes] == [("interrupted", ("rest",))]
    assert loop.run_until_complete(end()) == ["kept"]
    for task in asyncio.all_tasks(loop):
        task.cancel()
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()


def test_a_keyboard_interrupt_on_a_worker_is_only_a_crash() -> None:
    """Off the main thread no Ctrl-C arrives, so a KeyboardInterrupt there is the handler's own."""
    crashed = threading.Event()
    pool = PoolDispatcher(workers=1)
    system = ActorSystem(clock=VirtualClock(), on_crash=lambda crash: crashed.set())
    system.start(Recorder, dispatcher=pool, name="a").tell(raiser(KeyboardInterrupt()))
    assert crashed.wait(WAIT_S)
    assert log_of(system.start(Recorder, dispatcher=pool, name="b")) == []
    system.stop_all().get(timeout=WAIT_S)
    pool.close()


def test_actors_need_their_superclass_init() -> None:
    """An actor that forgets super().__init__() is refused with a text that says so."""

    class Forgetful(PooledActor):
        def __init__(self) -> None:
            pass

    system = ActorSystem(clock=VirtualClock(), on_crash=lambda crash: None)
    with pytest.raises(TypeError, match=r"super\(\).__init__"):
        system.start(Forgetful, dispatcher=PoolDispatcher(), name="x")
