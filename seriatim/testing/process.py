"""One life of a simulated gateway process: the shipped actors on one thread, every port of theirs in the world's hands.

It does nothing by itself: the simulator steps it, and judges each effect as it leaves.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from attrs import define

from seriatim.actors.delivery import SendDone
from seriatim.actors.ids import Ids
from seriatim.actors.machine import Reading
from seriatim.actors.outlet import Tell
from seriatim.actors.receipts import Receipt
from seriatim.actors.runtime import Dispatchers, Opened, Runtime, Settings
from seriatim.actors.simulation import SimulationDispatcher
from seriatim.actors.summaries import Summed
from seriatim.model import MessageEvent, Outbound, Target
from seriatim.outbox import Channel
from seriatim.pressure import MIB
from seriatim.storage.contract import Store, StoreReader
from seriatim.testing.clock import VirtualClock
from seriatim.testing.scripted import Ran, ScriptedRunner
from seriatim.turn import Message, Told, TurnEnded, TurnJob

if TYPE_CHECKING:
    from seriatim.testing.simulator import Simulator


MEMORY_BYTES: Final = MIB
"""The budget of a simulated process."""

BY_US: Final = "by the simulator"
"""Stands in every error that is a wish of the plan."""


@define(eq=False)
class Sending:
    """A send on its way; ``came``: what came of it at the platform, None while it has not arrived."""

    out: Outbound
    done: Callable[[SendDone], None]
    came: SendDone | None = None


class SimulatedProcess:
    """The runtime on three simulation dispatchers, as the real one has three threads; the world steps each.

    ``number`` counts the lives of a run; ``start_ms``: wall time at its birth.
    """

    def __init__(self, world: Simulator, settings: Settings, seed: int, number: int, start_ms: int) -> None:
        self.world = world
        self.number = number
        self.clock = VirtualClock(start_ms)
        self.sending: list[Sending] = []
        self.machine = SimulatedMachine(world)
        self.receipts: list[Receipt] = []
        self.runner = ScriptedRunner(world.script)
        self.runner.ran = _Tools(world)
        self.watched = WatchedRunner(self)
        self.store: Store
        self.lanes, self.writer, self.reading = (
            self._dispatcher(zlib.crc32(f"{seed} {number} {name}".encode())) for name in ("lanes", "writer", "reader")
        )
        token = random.Random(f"ids {seed} {number}").random
        self.runtime = Runtime(
            clock=self.clock,
            ids=Ids(self.clock, lambda digits: f"{int(token() * 16**digits):0{digits}x}"),
            dispatchers=Dispatchers(self.lanes, self.writer, self.reading),
            settings=settings,
            runner=self.watched,
            rng=random.Random(f"jitter {seed} {number}"),
            on_error=world.failed,
            on_fatal=lambda where, error: world.died(where),
            at_once=True,
            machine=self.machine,
        )

    def _dispatcher(self, seed: int) -> SimulationDispatcher:
        return SimulationDispatcher(seed, self.clock, timer_bias=0.0, before_envelope=self.world.before_envelope)

    def start(self, platform: str, account: str) -> None:
        """Open the store, start the actors, look at the lanes with open work."""
        opened: list[Opened | BaseException] = []
        self.runtime.open(self.world.disk.open, opened.append)
        while not opened:
            self.writer.step()
        found = opened[0]
        assert isinstance(found, Opened), found
        self.store = found.store
        self.runtime.begin(partial(self.world.disk.reader, found.store))
        self.runtime.add_account(platform, account, WatchedSender(self))
        self.runtime.recover(found.open_work)

    def reader(self) -> StoreReader:
        """A reader of its store that no fault strikes."""
        return self.store.reader()

    @property
    def idle(self) -> bool:
        """Whether no actor is runnable."""
        return self.lanes.idle and self.writer.idle and self.reading.idle

    def accept(self, event: MessageEvent, settled: Callable[[Receipt], None]) -> Receipt:
        """A message at the door."""
        receipt = self.runtime.accept(event, "/", settled)
        self.receipts.append(receipt)
        return receipt

    def rest(self, number: int, ask: Callable[[str], Any]) -> str | None:
        """Have one of the live lanes asked to go to rest; its key."""
        live = sorted(self.runtime.directory.live)
        if not live:
            return None
        key = live[number % len(live)]
        self.runtime.directory.supervisor.signal(ask(key))
        return key

    def close_runner(self) -> None:
        """Interrupt the turns, as a stop does."""
        closing = self.runner.close(0.0)
        try:
            closing.send(None)
        except StopIteration:
            return
        raise AssertionError("the scripted runner never waits")


class WatchedRunner:
    """The scripted runner, each effect on it judged: durable first, and one turn at a time on each lane."""

    def __init__(self, process: SimulatedProcess) -> None:
        self._world = process.world
        self._inner = process.runner
        self._wanted: dict[str, int] = {}
        self._new: dict[tuple[str, int], TurnJob] = {}

    def start(self, job: TurnJob, tell: Tell) -> None:
        """See TurnRunner.start."""
        world = self._world
        world.note(job.lane, f"turn {job.generation} starts: {[claim.text for claim in job.claims]}")
        world.witness.starts(job)
        world.witness.checked["one_turn_per_lane"] += 1
        if job.lane in self._wanted:
            world.complain(f"{job.lane}: turn {job.generation} starts while {self._wanted[job.lane]} runs")
        self._wanted[job.lane] = job.generation
        self._new[job.lane, job.generation] = job
        self._inner.start(job, partial(self._heard, job, tell))

    def advance(self, lane: str, generation: int) -> None:
        """Let a turn do one thing."""
        self._world.note(lane, f"turn {generation} goes on")
        job = self._new.pop((lane, generation), None)
        if job is not None and self._wanted.get(lane) == generation:
            self._world.witness.begins(job)
        self._inner.advance(lane, generation)

    def _heard(self, job: TurnJob, tell: Tell, told: Told) -> None:
        if type(told) is TurnEnded:
            self._over(job.lane, job.generation)
            self._world.note(job.lane, f"turn {job.generation} has ended: {told.reason}")
        tell(told)

    def cancel(self, lane: str, generation: int, why: str) -> None:
        """See TurnRunner.cancel."""
        self._world.note(lane, f"turn {generation} is cancelled: {why}")
        self._world.witness.cancels(lane, generation, why)
        self._over(lane, generation)
        self._inner.cancel(lane, generation, why)

    def _over(self, lane: str, generation: int) -> None:
        if self._wanted.get(lane) == generation:
            del self._wanted[lane]

    def release(self, lane: str, generation: int, calls: tuple[str, ...]) -> None:
        """See TurnRunner.release."""
        self._inner.release(lane, generation, calls)

    def proceed(self, lane: str, generation: int, calls: tuple[str, ...]) -> None:
        """See TurnRunner.proceed."""
        self._world.witness.proceeds(lane, calls)
        self._inner.proceed(lane, generation, calls)

    def answered(self, lane: str, generation: int, token: str, value: Any) -> None:
        """See TurnRunner.answered."""
        self._world.note(lane, f"turn {generation} gets an answer: {token}")
        self._world.witness.answers(lane, value)
        self._inner.answered(lane, generation, token, value)

    def end_delegations(self, lane: str, names: tuple[str, ...]) -> None:
        """See TurnRunner.end_delegations."""
        self._world.note(lane, f"background work is ended: {len(names)}")
        self._world.witness.ends_work(names)
        self._inner.end_delegations(lane, names)

    def delegations(self, lane: str) -> frozenset[str]:
        """See TurnRunner.delegations."""
        return self._inner.delegations(lane)

    def output(self, lane: str, name: str) -> str:
        """See TurnRunner.output."""
        return self._inner.output(lane, name)

    def compress(self, lane: str, session: str, history: Sequence[Message], done: Summed) -> None:
        """See TurnRunner.compress."""
        self._inner.compress(lane, session, history, done)

    def evict(self, lane: str, done: Callable[[int], object] | None = None) -> int:
        """See TurnRunner.evict."""
        return self._inner.evict(lane, done)

    async def close(self, grace_s: float) -> None:
        """See TurnRunner.close."""
        await self._inner.close(grace_s)


class SimulatedMachine:
    """The machine under the process: it says what is in use when the world lets it.

    ``used``: bytes, or -1 where they can't be seen; None leaves it to chance.
    """

    def __init__(self, world: Simulator) -> None:
        self._world = world
        self.used: int | None = None
        self._asked: list[Callable[[Reading | BaseException], object]] = []

    def look(self, done: Callable[[Reading | BaseException], object]) -> None:
        """See Machine.look."""
        self._asked.append(done)

    def trim(self, done: Callable[[Reading | BaseException], object]) -> None:
        """See Machine.trim."""
        self._asked.append(done)

    @property
    def is_asked(self) -> bool:
        """Whether somebody waits for it."""
        return bool(self._asked)

    def answer(self) -> None:
        """Say what is in use, or that it can't be seen."""
        used = self.used
        if used is None:
            used = self._world.dice.pick("memory", (0, 0, 2 * MEMORY_BYTES, 20 * MEMORY_BYTES, -1))
        self._world.note("", f"the machine says {used}")
        found = OSError(BY_US) if used < 0 else Reading(20 * MEMORY_BYTES, used, "process")
        self._asked.pop(0)(found)


class _Tools(list[Ran]):
    """Where the scripted runner notes a tool that runs."""

    def __init__(self, world: Simulator) -> None:
        super().__init__()
        self._world = world

    def append(self, ran: Ran) -> None:
        """Judge it at once."""
        self._world.note(ran.lane, f"tool call {ran.call} runs")
        self._world.witness.runs(ran)
        self._world.tools.append(ran)
        super().append(ran)


class WatchedSender:
    """The delivery's port: a send ends at once, or is on its way until the world lets it arrive."""

    def __init__(self, process: SimulatedProcess) -> None:
        self._process = process

    def send(self, out: Outbound, done: Callable[[SendDone], None]) -> SendDone | None:
        """See Sender.send."""
        world = self._process.world
        world.note(out.target.chat_id, f"send {out.delivery}.{out.part}, attempt {out.attempt}: {out.text[:40]!r}")
        world.witness.sends(out)
        came = world.outside.at_once(out)
        if came is None:
            self._process.sending.append(Sending(out, done))
        return came

    def channel(self, target: Target) -> Channel:
        """See Sender.channel."""
        return self._process.world.outside.channel(target)


_SHOWN = ("id", "key", "commit", "entries", "generation", "reason", "delivery", "part", "lane", "incarnation", "why")
_shown: dict[type[Any], tuple[str, ...]] = {}


def describe(message: Any) -> str:
    """A message in few words, the same in every process."""
    kind = type(message)
    names = _shown.get(kind)
    if names is None:
        names = _shown[kind] = tuple(name for name in _SHOWN if hasattr(kind, name))
    words = [_word(getattr(message, name)) for name in names]
    return " ".join((kind.__name__, *words))


def _word(value: Any) -> str:
    if isinstance(value, tuple):
        return ",".join(entry[0].id for entry in value)
    return str(value)
