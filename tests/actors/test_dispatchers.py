"""The contract of every dispatcher: loop, pool, pinned and simulation."""

from __future__ import annotations

import gc
import threading
import weakref
from typing import Any

import pytest

from seriatim.actors.pooled import PooledActor
from seriatim.errors import (
    ActorDeadError,
    BlockingAskError,
    DispatcherClosedError,
    MailboxFullError,
    NameTakenError,
    SystemStoppingError,
)

from .worlds import WAIT_S, Recorder, World, log_of, raiser


def test_mail_of_one_sender_is_handled_in_order(world: World) -> None:
    """Data mail is handled in the order in which it was told."""
    ref = world.start(Recorder)
    for n in range(1000):
        ref.tell(n)
    assert log_of(ref) == list(range(1000))


def test_none_is_a_message(world: World) -> None:
    """None and other false values are messages like any other."""
    ref = world.start(Recorder)
    for message in (None, 0, "", ()):
        ref.tell(message)
    assert log_of(ref) == [None, 0, "", ()]


def test_runtime_mail_goes_before_data(world: World) -> None:
    """A signal is served before data mail that was told earlier, signals among themselves in order."""
    ref = world.start(Recorder)

    def send(actor: Recorder) -> None:
        ref.tell("data 1")
        ref.tell("data 2")
        assert ref.signal("signal 1")
        assert ref.signal("signal 2")

    ref.tell(send)
    ref.ask("log", timeout=WAIT_S)
    assert log_of(ref) == ["signal 1", "signal 2", "data 1", "data 2"]


def test_a_full_mailbox_says_what_it_refused(world: World) -> None:
    """At the bound, tell raises with the capacity and the refused message's number; signals still pass."""
    ref = world.start(Recorder, mailbox_max=3)
    refusals: list[MailboxFullError] = []
    handled = threading.Event()

    def overflow(actor: Recorder) -> None:
        ref.tell(0)
        ref.tell(1)
        ref.tell(lambda me: handled.set())
        with pytest.raises(MailboxFullError) as refused:
            ref.tell("too much")
        refusals.append(refused.value)
        ref.signal("passes")

    ref.ask(overflow, timeout=WAIT_S)  # message number 1
    world.wait(handled)
    assert log_of(ref) == ["passes", 0, 1]
    assert (refusals[0].capacity, refusals[0].sequence) == (3, 5)


def test_hooks_run_in_order_and_off_the_starter(world: World) -> None:
    """on_start comes before the first message, on_stop after the last; only __init__ runs on the starter's thread."""
    seen: list[tuple[str, bool]] = []
    here = threading.get_ident()

    class Hooked(PooledActor):
        def __init__(self) -> None:
            super().__init__()
            self.note("init")
            self.actor_ref.tell("from init")

        def note(self, what: str) -> None:
            seen.append((what, threading.get_ident() == here))

        def on_start(self) -> None:
            self.note("start")

        def on_receive(self, message: Any) -> None:
            self.note(message)

        def on_stop(self) -> None:
            self.note("stop")

    ref = world.start(Hooked)
    ref.tell("told")
    assert ref.stop(block=True, timeout=WAIT_S) is True
    on_starter = world.kind == "simulation"
    assert seen == [("init", True), *((what, on_starter) for what in ("start", "from init", "told", "stop"))]


def test_on_drained_runs_when_no_mail_is_left(world: World) -> None:
    """on_drained runs after the last waiting message, once, however many activations that took."""
    seen: list[Any] = []
    drained = threading.Event()

    class Grouping(PooledActor):
        def on_receive(self, message: Any) -> None:
            if message == "fill":
                for n in range(100):
                    self.actor_ref.tell(n)
                seen.clear()
            else:
                seen.append(message)

        def on_drained(self) -> None:
            if len(seen) == 100:
                seen.append("drained")
                drained.set()

    world.start(Grouping).tell("fill")
    world.wait(drained)
    assert seen == [*range(100), "drained"]


def test_stop_comes_after_the_mail_before_it(world: World) -> None:
    """stop() lets waiting mail be handled; a later tell raises and is counted."""
    ref = world.start(Recorder)
    seen: list[Any] = []

    def stop(actor: Recorder) -> None:
        ref.tell(lambda me: seen.append("before"))
        ref.stop()
        with pytest.raises(ActorDeadError, match="stopping"):
            ref.tell("after")

    ref.ask(stop, timeout=WAIT_S)
    assert ref.stop(block=True, timeout=WAIT_S) in (True, False)
    assert seen == ["before"]
    assert not ref.is_alive()
    with pytest.raises(ActorDeadError, match="dead"):
        ref.tell("later still")
    assert world.system.dead_letters["refused"] == 2
    assert ref.stop(block=True, timeout=WAIT_S) is False


def test_stop_now_turns_waiting_mail_into_dead_letters(world: World) -> None:
    """stop_now() handles nothing more; what waited is reported and counted, an ask is answered with ActorDeadError."""
    ref = world.start(Recorder)
    asked: list[Any] = []

    def stop(actor: Recorder) -> None:
        ref.tell("lost")
        asked.append(ref.ask("lost too", block=False))
        ref.stop_now()

    ref.tell(stop)
    letter = world.letter()
    assert (letter.message, letter.reason, letter.ref) == ("lost", "stopped", ref)
    assert world.system.dead_letters["stopped"] == 1
    with pytest.raises(ActorDeadError):
        asked[0].get(timeout=WAIT_S)


def test_a_signal_to_the_dead_is_counted_and_raises_nothing(world: World) -> None:
    """signal() to a dead actor answers False."""
    ref = world.start(Recorder)
    ref.stop(block=True, timeout=WAIT_S)
    assert ref.signal("gone") is False
    assert world.system.dead_letters["signal"] == 1


def test_pykkas_own_stop_works_from_inside(world: World) -> None:
    """self.stop() and self.actor_ref are Pykka's: an actor may stop itself, even twice."""
    ref = world.start(Recorder)

    def stop(actor: Recorder) -> None:
        actor.stop()
        actor.stop()

    ref.ask(stop, timeout=WAIT_S)
    ref.stop(block=True, timeout=WAIT_S)
    assert world.crashes.empty()


def test_a_proxy_works(world: World) -> None:
    """Pykka's proxies reach a system's actor."""
    proxy = world.start(Recorder).proxy()
    assert proxy.on_receive("by proxy").get(timeout=WAIT_S) == "by proxy"
    assert proxy.log.get(timeout=WAIT_S) == ["by proxy"]


def test_blocking_inside_an_actor_is_refused_at_once(world: World) -> None:
    """A blocking ask inside an actor raises an error that names both actors, and costs no waiting."""
    other = world.start(Recorder, name="other")
    ref = world.start(Recorder, name="asker")
    errors: list[BlockingAskError] = []

    def ask(actor: Recorder) -> None:
        with pytest.raises(BlockingAskError) as refused:
            other.ask("log")
        errors.append(refused.value)

    ref.ask(ask, timeout=WAIT_S)
    assert "'asker'" in str(errors[0])
    assert "'other'" in str(errors[0])


def test_names_are_unique_among_the_living(world: World) -> None:
    """A live name is taken; a dead actor's is free."""
    ref = world.start(Recorder, name="lane")
    with pytest.raises(NameTakenError):
        world.start(Recorder, name="lane")
    assert world.system.get("lane") is ref
    ref.stop(block=True, timeout=WAIT_S)
    assert "lane" not in world.system
    assert world.start(Recorder, name="lane") is not ref


def test_a_failing_init_leaves_nothing_behind(world: World) -> None:
    """What __init__ raises reaches the starter, and no ghost is registered."""

    class Broken(PooledActor):
        def __init__(self) -> None:
            super().__init__()
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        world.start(Broken, name="ghost")
    assert len(world.system) == 0


def test_a_closed_dispatcher_leaves_no_ghost(world: World) -> None:
    """A start on a closed dispatcher raises, and registers nothing; a tell to an actor of it raises and is counted."""
    ref = world.start(Recorder)
    log_of(ref)
    world.run()
    stopped = world.system.stop_all
    ref.ask("log", timeout=WAIT_S)
    while world.kind != "simulation" and ref._box.idle.locked():  # the answer comes just before the actor rests
        threading.Event().wait(0.001)
    world.dispatcher.close()
    with pytest.raises(DispatcherClosedError):
        world.start(Recorder, name="ghost")
    assert "ghost" not in world.system
    with pytest.raises(ActorDeadError, match="closed"):
        ref.tell("nobody hears")
    assert ref.signal("nor this") is False
    assert not ref.is_alive()
    assert stopped().get(timeout=WAIT_S) is None


def test_stop_all_goes_from_the_last_started_to_the_first(world: World) -> None:
    """stop_all stops in reverse order, each after the one started later is gone, and lets nothing be started."""
    order: list[int] = []

    class Last(PooledActor):
        def __init__(self, n: int) -> None:
            super().__init__()
            self.n = n

        def on_stop(self) -> None:
            order.append(self.n)

    for n in range(20):
        world.start(Last, n)
    world.system.stop_all().get(timeout=WAIT_S)
    assert order == list(range(20))[::-1]
    assert len(world.system) == 0
    with pytest.raises(SystemStoppingError):
        world.start(Last, 21)


def test_a_dead_actor_is_freed_while_its_ref_lives(world: World) -> None:
    """Death drops the strong reference, whether by stop or by crash; nothing pins the last actor that a worker ran."""
    ref, crashed = world.start(Recorder), world.start(Recorder)
    actors = [weakref.ref(one._box.actor) for one in (ref, crashed)]
    crashed.tell(raiser(ValueError()))
    assert str(world.crash().ref) == str(crashed)
    ref.stop(block=True, timeout=WAIT_S)
    log_of(world.start(Recorder))  # a turn of the worker later
    gc.collect()
    assert [actor() for actor in actors] == [None, None]


def test_an_unreferenced_actor_lives_while_it_is_registered(world: World) -> None:
    """Nobody has to keep a ref: registry and waiting mail hold the actor."""
    handled = threading.Event()
    world.start(Recorder, name="alone")
    gc.collect()
    found = world.system.get("alone")
    assert found is not None
    found.tell(lambda me: handled.set())
    del found
    gc.collect()
    world.wait(handled)
