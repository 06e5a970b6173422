"""The simulation replays from its seed, and finds what it was made to find."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from seriatim.actors.pooled import PooledActor
from seriatim.actors.simulation import Envelope, SimulationDispatcher
from seriatim.actors.system import ActorSystem, Crash, Ref
from seriatim.errors import BlockingAskError, SimulationDeadlockError, SimulationEndlessError
from seriatim.testing.clock import VirtualClock

from .worlds import Recorder

GOLDEN = 1621439101  # of seed 7: the same on Python 3.11, 3.12 and 3.13; changes only when the engine's order changes


class Sim:
    """A system in simulation, with what crashed."""

    def __init__(self, seed: int, **options: Any) -> None:
        self.clock = VirtualClock()
        self.crashes: list[Crash] = []
        self.system = ActorSystem(clock=self.clock, on_crash=self.crashes.append)
        self.dispatcher = SimulationDispatcher(seed, self.clock, **options)

    def start(self, actor_class: type[PooledActor], *args: Any, name: str) -> Ref[Any]:
        """Start an actor in simulation."""
        return self.system.start(actor_class, *args, dispatcher=self.dispatcher, name=name)


class Gossip(PooledActor):
    """Passes a number on, counting down; now and then through a timer."""

    def __init__(self, sim: Sim, refs: list[Ref[Any]], n: int) -> None:
        super().__init__()
        self.sim, self.refs, self.n = sim, refs, n

    def on_receive(self, message: int) -> None:
        """Tell the next one."""
        if message <= 0:
            return
        self.refs[(self.n * 7 + message) % len(self.refs)].tell(message - 1)
        if message % 5 == 0:
            self.sim.clock.call_later(message, lambda: self.own_ref.signal(0))


def gossip(seed: int, **options: Any) -> Sim:
    """Twenty gossips, run to the end."""
    sim = Sim(seed, **options)
    refs: list[Ref[Any]] = []
    refs.extend(sim.start(Gossip, sim, refs, n, name=f"g{n}") for n in range(20))
    for ref in refs:
        ref.tell(30)
    sim.dispatcher.run_until_idle()
    return sim


def test_the_same_seed_gives_the_same_run() -> None:
    """Runs of one seed agree step by step; another seed's differ."""
    first, second, other = (gossip(seed, keep_trace=True).dispatcher for seed in (7, 7, 8))
    assert first.trace == second.trace
    assert (first.checksum, first.steps) == (second.checksum, second.steps)
    assert first.checksum != other.checksum
    assert first.checksum == GOLDEN


@pytest.mark.parametrize("hash_seed", ["0", "1", "random"])
def test_the_hash_seed_changes_nothing(hash_seed: str) -> None:
    """A run in a fresh process gives the golden checksum whatever PYTHONHASHSEED is."""
    code = "from tests.actors.test_simulation import gossip; print(gossip(7).dispatcher.checksum)"
    environment = {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": "."}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert int(done.stdout) == GOLDEN


class Cache(PooledActor):
    """Has a planted bug: it evicts on a timer although an append may be in flight."""

    def __init__(self, sim: Sim, disk: list[Any]) -> None:
        super().__init__()
        self.sim, self.disk, self.value, self.flushed = sim, disk, 0, True

    def on_start(self) -> None:
        """Think of eviction later."""
        self.sim.clock.call_later(100, lambda: self.own_ref.signal("evict"))

    def on_receive(self, message: Any) -> None:
        """Write, learn that it is written, or evict."""
        if message == "write":
            self.value, self.flushed = 1, False
            self.disk[0].tell((self.own_ref, self.value))
        elif message == "written":
            self.flushed = True
        elif message == "evict" and not self.flushed:
            raise AssertionError("evicted while an append was in flight")


class Disk(PooledActor):
    """Answers by message."""

    def on_receive(self, message: Any) -> None:
        """Say that it is written."""
        message[0].signal("written")


def evictions(timer_bias: float) -> int:
    """In how many of a hundred seeds the planted bug shows."""
    found = 0
    for seed in range(100):
        sim = Sim(seed, timer_bias=timer_bias)
        disk: list[Any] = []
        cache = sim.start(Cache, sim, disk, name="cache")
        disk.append(sim.start(Disk, name="disk"))
        cache.tell("write")
        sim.dispatcher.run_until_idle()
        found += bool(sim.crashes)
    return found


def test_timers_must_fire_while_actors_are_runnable() -> None:
    """The planted eviction bug is found with timer_bias, and in no seed without it."""
    assert evictions(0.2) > 5
    assert evictions(0.0) == 0


def test_each_step_is_one_envelope() -> None:
    """The hook sees every envelope, on_start and the stop mark included, before it is handled."""
    seen: list[tuple[str, Any, bool]] = []

    def look(envelope: Envelope) -> None:
        seen.append((envelope.phase, envelope.message, envelope.runtime))

    sim = Sim(1, before_envelope=look)
    ref = sim.start(Recorder, name="r")
    ref.tell("a")
    ref.signal("s")
    ref.stop()
    sim.dispatcher.run_until_idle()
    assert seen == [("start", None, False), ("receive", "s", True), ("receive", "a", False), ("stop", None, False)]


@pytest.mark.parametrize("at", range(4))
def test_an_actor_can_be_killed_at_any_envelope(at: int) -> None:
    """The error that the hook returns kills the actor there, in its phase, with the rest of its mail in the crash."""
    error = RuntimeError("killed")
    sim = Sim(1, before_envelope=lambda envelope: error if envelope.step == at else None)
    ref = sim.start(Recorder, name="r")
    ref.tell("a")
    ref.tell("b")
    stopped = ref.stop()
    sim.dispatcher.run_until_idle()
    (crash,) = sim.crashes
    expected = [
        ("start", None, ("a", "b")),
        ("receive", "a", ("b",)),
        ("receive", "b", ()),
        ("stop", None, ()),
    ]
    assert (crash.phase, crash.message, crash.mail) == expected[at]
    assert crash.error is error
    assert stopped.get() is True
    assert len(sim.system) == 0


def test_an_asker_learns_of_a_killed_actor() -> None:
    """An ask that is being handled when the actor is killed gets the error."""
    sim = Sim(1, before_envelope=lambda envelope: KeyError("killed") if envelope.phase == "receive" else None)
    with pytest.raises(KeyError):
        sim.start(Recorder, name="r").ask("log")


def test_what_the_hook_raises_ends_the_run() -> None:
    """A raise out of the hook reaches the caller, for tests in which the whole process dies."""

    class ProcessDied(BaseException):
        pass

    def die(envelope: Envelope) -> None:
        raise ProcessDied

    sim = Sim(1, before_envelope=die)
    sim.start(Recorder, name="r")
    with pytest.raises(ProcessDied):
        sim.dispatcher.run_until_idle()


def test_a_wait_that_nobody_can_end_is_a_deadlock() -> None:
    """A blocking get outside all actors pumps the simulation, and raises when nothing is left to run."""
    sim = Sim(1)
    ref = sim.start(Recorder, name="r")
    assert ref.ask("pumped") == "pumped"
    future = ref.ask("x", block=False)
    sim.dispatcher.run_until_idle()
    future.get()
    future = type(future)()
    future.target = ref._box
    with pytest.raises(SimulationDeadlockError, match="seed 1"):
        future.get()


def test_a_self_ask_is_found_at_once() -> None:
    """An actor that asks itself is refused, not hung."""
    sim = Sim(1)
    ref = sim.start(Recorder, name="r")
    ref.tell(lambda me: ref.ask("log"))
    sim.dispatcher.run_until_idle()
    assert isinstance(sim.crashes[0].error, BlockingAskError)


def test_an_endless_run_is_reported() -> None:
    """Actors that never rest end in an error with the seed, not in a hang."""
    sim = Sim(3)
    ref = sim.start(Recorder, name="r")

    def again(me: Any) -> None:
        ref.tell(again)

    ref.tell(again)
    with pytest.raises(SimulationEndlessError, match="seed 3"):
        sim.dispatcher.run_until_idle(steps_max=100)


def test_time_goes_no_further_than_asked() -> None:
    """run_until_idle(until_ms=...) leaves later timers set."""
    sim = Sim(1)
    fired: list[int] = []
    for ms in (10, 20, 30):
        sim.clock.call_later(ms, lambda ms=ms: fired.append(ms))  # type: ignore[misc]  # the usual default-argument idiom
    sim.dispatcher.run_until_idle(until_ms=20)
    assert fired == [10, 20]
    assert sim.clock.next_due_ms() == 30
