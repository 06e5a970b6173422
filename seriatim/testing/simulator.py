"""The simulator: the shipped actors in a small world that a seed decides, until an invariant breaks or all is at rest.

Supervisor, lanes, writer, reader, deliveries and warden are the real ones, put together by the real runtime, on one
thread with virtual time. A run is a seed: it gives the same steps, hence the same checksum, on every Python from 3.11
on and under every hash seed.

Fault model. At every step, which is one envelope of one actor, one timer or one act of the world, chance may decide

- who goes next. Lanes, writer and reader are chosen apart, as their threads would be, so the store may be slow: an
  outcome comes later than any other envelope. A timer may fire while actors are runnable, so an actor may be slow
  against any deadline. Turns, sends and people act in between;
- that an actor dies before its envelope, of an error, a cancellation or a SystemExit. A lane's is restarted by its
  supervisor; with any other the process ends. A message may be poison: whichever incarnation takes it up dies;
- that the process dies: between two steps, or right before or after a commit. The next one finds the same disk. Sends
  on their way arrive or don't. Or it is stopped in good order, with a drain that runs into its time-out;
- that a lane is asked to rest, besides what the warden asks when too many are warm or memory is short, which chance
  makes it; that its logs get checkpoints and are compacted;
- that the store refuses a commit (surely absent), or many in a row; answers Unknown, and the commit is there or isn't;
  raises; can't read a lane's log;
- that the platform gives a message again, acked or not; is down for a while; takes a send at once or later, refuses it
  for now or for good, or leaves open whether it arrived;
- that an agent runs tools, fails, stays silent, is long-winded, never ends, answers although it was cancelled, or
  neither answers nor ends then; so that results come late, of turns that are fenced;
- that the wall clock steps forward or back.

Outside of it: real threads and what they share (directory and receipts are seen by one thread only), an actor
interrupted within a handler, time that passes within one, the loop dispatcher's passes and hand-offs, mail lost or
doubled between actors, a send that arrives after its process has died and another has sent, real files (torn writes,
damage, power loss), two processes on one home, commits and replies too large, the turn runner's own errors.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final

from attrs import define

from seriatim.actors.deaths import LaneCrashed
from seriatim.actors.directory import key_of
from seriatim.actors.runtime import Settings
from seriatim.actors.session import Ending, Passivated
from seriatim.actors.simulation import Envelope
from seriatim.actors.supervisor import PassivateLane
from seriatim.config import GatewayConfig
from seriatim.events import Event, LogId
from seriatim.keys import canonical_key
from seriatim.mail import Inbound
from seriatim.pressure import MIB, Pressure
from seriatim.storage.contract import StoreReader
from seriatim.testing.chance import Dice, Plan, plan_of
from seriatim.testing.clock import START_MS
from seriatim.testing.judge import judge, judge_live
from seriatim.testing.outside import Outside
from seriatim.testing.process import BY_US, MEMORY_BYTES, SimulatedProcess, describe
from seriatim.testing.scripted import WORDS, Ran, Script, by_first_word, echoes
from seriatim.testing.unsure import UnsureDisk
from seriatim.testing.witness import Effects, Witness
from seriatim.turn import TurnJob

STEPS_MAX: Final = 20_000
"""Steps after which a world that has been left in peace must be at rest."""
ERRORS: Final = (RuntimeError, MemoryError, asyncio.CancelledError, SystemExit)


class Violation(AssertionError):  # noqa: N818 - a finding about the product, no error of this program
    """An invariant is broken. ``wrong``: what doesn't hold, in the order in which it was found."""

    def __init__(self, seed: int, step: int, wrong: Sequence[str]) -> None:
        super().__init__(f"seed {seed}, step {step}: " + "; ".join(wrong[:3]))
        self.wrong = tuple(wrong)


@define
class Report:
    """What a run was. ``checked``: how often each invariant was judged, ``checksum``: over all its steps."""

    seed: int
    steps: int
    crashes: int
    unknowns: int
    timers_while_runnable: int
    checksum: int
    checked: dict[str, int]


class Simulator:
    """One run. ``run()`` goes through chaos to rest and judges; it raises Violation, with the seed, if anything breaks.

    A host may give its own ``agent`` (a script for each turn), ``words`` (what people say, besides commands) and
    ``settings``; ``Simulator(seed, agent=mine, words=("hello",)).run()``. ``story``: what happened, as lines, if
    *keep_story*. Not for several threads; silences the library's log while it runs.
    """

    def __init__(
        self,
        seed: int,
        plan: Plan | None = None,
        *,
        agent: Callable[[TurnJob], Script] | None = None,
        words: Sequence[str] = WORDS,
        settings: Settings | None = None,
        keep_story: bool = False,
    ) -> None:
        self.seed = seed
        self.plan = plan = plan_of(seed) if plan is None else plan
        self.dice = Dice(seed)
        self.faults = True
        self.wrong: list[str] = []
        self.witness = Witness(self.complain, Effects(), idempotent=plan.able.idempotent_send)
        self.disk = UnsureDisk(self)
        self.outside = Outside(self, words)
        self.process: SimulatedProcess
        # What the judge looks at.
        self.platform = self.outside.platform
        self.refused = self.outside.refused
        self.given = self.outside.given
        self.joined: dict[LogId, list[int]] = {}  # nobody's id changes here
        self.checked = self.witness.checked
        self.tools: list[Ran] = []
        self.deaths = 0
        # What the run amounts to.
        self.steps = self.unknowns = self.timers_while_runnable = self.checksum = 0
        self.story: list[tuple[str, str]] = []
        self._keep_story = keep_story
        self._agent = agent or by_first_word
        self._echoes = agent is None
        self._settings = settings or Settings(
            keys=GatewayConfig(group_sessions_per_user=not plan.shared),
            rules=plan.rules,
            slots_max=plan.slots,
            warm_max=plan.warm,
            age_ms_max=plan.age_ms,
            dm_without_ids=False,
            growth=plan.growth,
            silence_ms=plan.silence_ms,
            pressure=Pressure(memory_high=MEMORY_BYTES // MIB, per_pass=2, protect_recent=1),
        )
        self.names = {
            canonical_key(source, self._settings.keys, "" if source.platform.name == "host" else "fake"): source.chat_id
            for source in self.outside.sources
        }
        self._poison: set[str] = set()
        self._dead = ""
        self._stopping: Iterator[None] | None = None
        self._serving: dict[str, str] = {}
        self._now_ms = START_MS
        self._life = 0

    # --- a run -----------------------------------------------------------------------------------------

    def run(self) -> Report:
        """Chaos, peace, judgement. Raises Violation."""
        with _heard(self):
            self._boot()
            while self.steps < self.plan.steps and self._step():
                pass
            self._make_peace()
            judge(self, self.process)
            self._hold()
        return self.report()

    def report(self) -> Report:
        """What the run was up to now."""
        return Report(
            self.seed,
            self.steps,
            self.deaths,
            self.unknowns,
            self.timers_while_runnable,
            self.checksum,
            dict(self.checked),
        )

    def _make_peace(self) -> None:
        """No more faults. What was left undone is done, running turns are stopped, and each lane still answers."""
        self.faults = False
        self.outside.acts = 0
        self.platform.come_back()
        if self.process.runtime.directory.quarantined:
            self._end("an operator restarts it")
        self._settle()
        self._everywhere("plain last")
        while self.process.runner.live:
            self._everywhere("/stop")
            self._everywhere("plain last")

    def _everywhere(self, text: str) -> None:
        for source in self.outside.sources:
            self.outside.say(source, text)
        self._settle()

    def _settle(self) -> None:
        """Go on until nothing is left to do and everything that was given is acked."""
        end = self.steps + STEPS_MAX
        while self._step() or self.outside.give_again():
            if self.steps > end:
                self.complain("the world doesn't come to rest")
                self._hold()

    def _step(self) -> bool:
        """Let one thing happen; False when all is at rest and people have nothing to say."""
        self.steps += 1
        if self.faults:
            self._strike()
        process = self.process
        choices = self._choices(process)
        due_ms = process.clock.next_due_ms()
        if due_ms is not None and (not choices or self.dice.roll("timer") < self.plan.timers):
            self.timers_while_runnable += not process.idle
            self.note("", f"timer at {due_ms:.3f}")
            process.clock.fire_next()
        elif choices:
            self._choose(choices)
        else:
            self._at_rest()
            if not self.outside.acts:
                return False
            self.outside.act()
        if self._dead:
            self._end(self._dead)
        self._hold()
        return True

    def _choices(self, process: SimulatedProcess) -> list[tuple[float, Callable[[], Any]]]:
        """Who may act, with weights."""
        plan = self.plan
        choices: list[tuple[float, Callable[[], Any]]] = []
        if not process.lanes.idle:
            choices.append((6.0, process.lanes.step))
        if not process.writer.idle:
            choices.append((plan.writer, process.writer.step))
        if not process.reading.idle:
            choices.append((plan.reader, process.reading.step))
        if process.machine.is_asked:
            choices.append((1.0, process.machine.answer))
        choices += [(1.0, partial(process.watched.advance, *turn)) for turn in process.runner.ready()]
        if self._stopping is not None:
            choices.append((0.5, partial(next, self._stopping, None)))
        return choices + self.outside.choices()

    def _choose(self, choices: list[tuple[float, Callable[[], Any]]]) -> None:
        left = self.dice.roll("next") * sum(weight for weight, _ in choices)
        at = 0
        while at + 1 < len(choices) and left >= choices[at][0]:
            left -= choices[at][0]
            at += 1
        choices[at][1]()

    def _at_rest(self) -> None:
        """Nothing can happen any more unless people act: what holds at any rest is judged."""
        self.outside.lull = False
        self.note("", "all is at rest")
        judge_live(self, self.process, self.process.reader())
        self._hold()

    def _hold(self) -> None:
        if self.wrong:
            raise Violation(self.seed, self.steps, self.wrong)

    # --- the process -----------------------------------------------------------------------------------

    def _boot(self) -> None:
        self._life += 1
        self._dead = ""
        self._stopping = None
        self._serving.clear()
        self.witness.reborn()
        self.given.append({})
        self.note("", f"process {self._life} starts")
        self.process = SimulatedProcess(self, self._settings, self.seed, self._life, self._now_ms)
        self.process.start("fake", "fake")

    def _end(self, why: str) -> None:
        """The process is gone, with all that isn't durable; the next one starts a while later on the same disk."""
        self.note("", f"the process ends: {why}")
        self.deaths += 1
        for sending in self.process.sending:
            if sending.came is None and self.dice.hits("late arrival", 0.5):
                self.outside.arrive(sending)
        self._now_ms = self.process.clock.now_ms() + self.dice.pick("away", (5, 300, 2_500, 2_500, 90_000))
        self._boot()

    def _stop_in_order(self, process: SimulatedProcess) -> Iterator[None]:
        """A stop as the gateway makes it; anything may happen between two of its steps."""
        self.note("", "a stop begins")
        runtime = process.runtime
        runtime.drain()
        yield
        if runtime.slots.held:
            runtime.drain_timed_out("restart_timeout")
            yield
        process.close_runner()
        yield
        runtime.flush_lanes()
        for _ in range(40):
            if runtime.settled():
                break
            yield
        stopped = runtime.stop()
        while not stopped.ready:
            yield
        self._end("it was stopped")

    # --- what strikes ----------------------------------------------------------------------------------

    def _strike(self) -> None:
        """Faults that are no single actor's."""
        hits, plan, process = self.dice.hits, self.plan, self.process
        if hits("process crash", plan.process_crash):
            self._end("killed")
            return
        if hits("rest", plan.rests):
            number = int(self.dice.roll("which") * 12)
            process.rest(number, lambda key: PassivateLane(key, BY_US))
        if hits("pressure", plan.pressure):
            process.runtime.look_at_memory()
        if hits("repeat", plan.repeats):
            self.outside.repeat()
        if hits("down", plan.down):
            self.note("", "the platform is down")
            self.platform.go_down()
        if hits("jump", plan.jumps):
            process.clock.jump_wall(self.dice.pick("which", (-3_600_000, -700, 900, 3_600_000)))
        if self._stopping is None and hits("stop", plan.stops):
            self._stopping = self._stop_in_order(process)

    def before_envelope(self, envelope: Envelope) -> BaseException | None:
        """Called before each envelope: the error that its actor dies of, if it does."""
        message, name = envelope.message, envelope.ref.name
        key = key_of(name)
        told = describe(message) if envelope.phase == "receive" else str(envelope.phase)
        self.note("" if key is None else key, f"{name.rpartition('#')[2] if key else name} gets {told}")
        self._watch_lives(envelope, key)
        self._watch_memory()
        if not self.faults:
            return None
        if key is None:
            struck = envelope.phase == "receive" and self.dice.hits("other crash", self.plan.other_crash)
        else:
            poisonous = type(message) is Inbound and message.event.message_id in self._poison
            struck = poisonous or self.dice.hits("lane crash", self.plan.lane_crash)
            if struck and type(message) is Inbound and self.dice.hits("poison", self.plan.poison):
                self._poison.add(message.event.message_id or "")
        if not struck:
            return None
        self.deaths += 1
        error = self.dice.pick("error", ERRORS)
        self.note("" if key is None else key, f"{name} dies of {error.__name__}")
        return error(BY_US)

    def _watch_lives(self, envelope: Envelope, key: str | None) -> None:
        """No lane's actor starts before the one before it has died, or has told the supervisor that it is over."""
        message = envelope.message
        if isinstance(message, (Passivated, Ending)):
            self._serving.pop(message.key, None)
        elif isinstance(message, LaneCrashed):
            self._serving.pop(key_of(message.crash.name) or "", None)
        elif key is not None and envelope.phase == "start":
            self.checked["one_actor_per_key"] += 1
            if key in self._serving:
                self.complain(f"{key}: {envelope.ref.name} starts while {self._serving[key]} serves")
            self._serving[key] = envelope.ref.name

    def _watch_memory(self) -> None:
        """No lane answers the warden that wasn't asked, or answers twice."""
        memory = self.process.runtime.memory
        self.checked["who_was_asked_answers"] += 1
        if memory.released + memory.refused > memory.asked:
            self.complain(f"more lanes answered the warden than were asked: {memory}")

    def script(self, job: TurnJob) -> Script:
        """What the agent does in a turn."""
        return self._agent(job)

    # --- what the process tells ------------------------------------------------------------------------

    def note(self, key: str, text: str) -> None:
        """Something has happened, to a lane (by key or chat) or ("") to all."""
        line = f"{self.names.get(key, key)}: {text}"
        self.checksum = zlib.crc32(line.encode(), self.checksum)
        if self._keep_story:
            self.story.append((self.names.get(key, key), f"{self.steps:5} {self.names.get(key, key):3} {text}"))

    def complain(self, text: str) -> None:
        """Something doesn't hold; the run ends after this step."""
        if text not in self.wrong:
            self.wrong.append(text)

    def failed(self, where: str, error: BaseException) -> None:
        """What the runtime tells its host: only what we did to it ourselves may go wrong."""
        if BY_US not in str(error) and where != "store":
            self.complain(f"unexpected: {where}: {type(error).__name__}: {error}")

    def died(self, where: str) -> None:
        """An actor that all lanes need has died, and the process with it."""
        self._dead = f"{where} has died"

    # --- what the judge asks ---------------------------------------------------------------------------

    def echoed(self, text: str) -> bool:
        """Whether the agent repeats this text."""
        return self._echoes and echoes(text)

    def whole(self, reader: StoreReader, log: LogId) -> list[Event]:
        """All events of a log, those that its archive stands for included."""
        return self.disk.whole(reader, log)


@contextlib.contextmanager
def _heard(world: Simulator) -> Iterator[None]:
    """The engine's own complaints are the world's; nothing else is logged."""
    logger = logging.getLogger("seriatim")
    before = logger.propagate, logger.level
    handler = _Complaints(world)
    logger.addHandler(handler)
    logger.propagate = False
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = before[0]
        logger.setLevel(before[1])


class _Complaints(logging.Handler):
    """Errors in the engine's log are findings."""

    def __init__(self, world: Simulator) -> None:
        super().__init__(logging.ERROR)
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        """See ``logging.Handler``."""
        if record.name != "seriatim.persistence":  # a store that raises is one of our faults
            self._world.complain(f"logged: {record.getMessage()}: {record.exc_info and record.exc_info[1]!r}")
