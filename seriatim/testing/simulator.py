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
- that a lane is asked to rest, besides what the warden asks when too many are warm; that its logs get checkpoints and
  are compacted;
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
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final, cast

from attrs import define

from seriatim.actors.delivery import SendDone
from seriatim.actors.receipts import Receipt
from seriatim.actors.runtime import Settings
from seriatim.actors.simulation import Envelope
from seriatim.actors.supervisor import PassivateLane, key_of
from seriatim.commits import Commit, Outcome, Unknown
from seriatim.config import GatewayConfig
from seriatim.errors import SendError, StoreUnhealthyError
from seriatim.events import Event, LogId
from seriatim.keys import canonical_key
from seriatim.limits import CRASHES_MAX
from seriatim.mail import Inbound
from seriatim.model import MessageEvent, Outbound, Platform, SessionSource, Target
from seriatim.outbox import Channel
from seriatim.storage.contract import Store, StoreReader
from seriatim.storage.memory import MemoryDisk, MemoryStore
from seriatim.testing.chance import Dice, Plan, plan_of
from seriatim.testing.clock import START_MS
from seriatim.testing.fake_platform import FakePlatform, FaultKind, Posted
from seriatim.testing.faulty_store import Fault, FaultyStore, SimulatedCrash
from seriatim.testing.judge import judge, judge_live
from seriatim.testing.process import Sending, SimulatedProcess
from seriatim.testing.scripted import WORDS, Ran, Script, by_first_word, echoes
from seriatim.testing.witness import Effects, Witness, WitnessedStore, whole
from seriatim.turn import TurnJob

BY_US: Final = "by the simulator"
STEPS_MAX: Final = 20_000
"""Steps after which a world that has been left in peace must be at rest."""
_SEND_FAULTS: Final[tuple[FaultKind, ...]] = ("plain", "plain", "arrived", "arrived", "lost", "permanent")
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
        self.platform = FakePlatform(capabilities=plan.able)
        self.disk = MemoryDisk()
        self.story: list[tuple[str, str]] = []
        self.tools: list[Ran] = []
        self.refused: set[str] = set()
        self.given: list[list[str]] = []
        self.deaths = 0
        self.wrong: list[str] = []
        self.witness = Witness(self.complain, Effects(), idempotent=plan.able.idempotent_send)
        self.checked = self.witness.checked
        self.counts: Counter[str] = Counter()
        self.steps = 0
        self.checksum = 0
        self._keep_story = keep_story
        self._agent = agent or by_first_word
        self._echoes = agent is None
        self._words = words
        self._settings = settings or Settings(
            keys=GatewayConfig(group_sessions_per_user=not plan.shared),
            rules=plan.rules,
            slots_max=plan.slots,
            warm_max=plan.warm,
            age_ms_max=plan.age_ms,
            dm_without_ids=False,
            growth=plan.growth,
        )
        self.sources = _people(plan.lanes)
        self.names = {
            canonical_key(source, self._settings.keys, "" if source.platform.name == "host" else "fake"): source.chat_id
            for source in self.sources
        }
        self._faults = True
        self._acts = plan.acts
        self._lull = False
        self._said = 0
        self._giving: deque[Posted] = deque()
        self._poison: set[str] = set()
        self._archived: dict[LogId, list[Event]] = {}
        self._barred: set[str] = set()
        self._outage = 0
        self._dead = ""
        self._stopping: Iterator[None] | None = None
        self._crashes_of: Counter[str] = Counter()
        self._maimed = False
        self._now_ms = START_MS
        self._life = 0
        self.process: SimulatedProcess

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
            self.counts["unknowns"],
            self.counts["timers_while_runnable"],
            self.checksum,
            dict(self.checked),
        )

    def _make_peace(self) -> None:
        """No more faults. What was left undone is done, running turns are stopped, and each lane still answers."""
        self._faults = False
        self._acts = self._outage = 0
        self._poison.clear()
        self._come_back()
        if self._maimed:
            self._end("an operator restarts it")
        self._settle()
        self._everywhere("plain last")
        while self.process.runner.live:
            self._everywhere("/stop")
            self._everywhere("plain last")

    def _everywhere(self, text: str) -> None:
        for source in self.sources:
            self.say(source, text)
        self._settle()

    def _settle(self) -> None:
        """Go on until nothing is left to do and everything that was given is acked."""
        end = self.steps + STEPS_MAX
        while self._step() or self._give_again():
            if self.steps > end:
                self.complain("the world doesn't come to rest")
                self._hold()

    def _give_again(self) -> bool:
        waiting = [posted for posted in self.platform.pending() if posted not in self._giving]
        self._giving.extend(waiting)
        return bool(waiting)

    def _step(self) -> bool:
        """Let one thing happen; False when all is at rest and people have nothing to say."""
        self.steps += 1
        if self._faults:
            self._strike()
        process = self.process
        choices = self._choices(process)
        due_ms = process.clock.next_due_ms()
        if due_ms is not None and (not choices or self.dice.roll("timer") < self.plan.timers):
            self.counts["timers_while_runnable"] += not process.idle
            self.note("", f"timer at {due_ms:.3f}")
            process.clock.fire_next()
        elif choices:
            self._choose(choices)
        else:
            self._at_rest()
            if not self._acts:
                return False
            self._act()
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
        choices += [(1.0, partial(self._advance, *turn)) for turn in process.runner.ready()]
        choices += [(1.0, partial(self._carry, sending)) for sending in process.sending]
        if self._giving and self.platform.connected:
            choices.append((2.0, self._give))
        if not self.platform.connected:
            choices.append((0.1, self._come_back))
        if self._stopping is not None:
            choices.append((0.5, self._go_on_stopping))
        if self._acts and not self._lull:
            choices.append((plan.people, self._act))
        return choices

    def _choose(self, choices: list[tuple[float, Callable[[], Any]]]) -> None:
        left = self.dice.roll("next") * sum(weight for weight, _ in choices)
        at = 0
        while at + 1 < len(choices) and left >= choices[at][0]:
            left -= choices[at][0]
            at += 1
        choices[at][1]()

    def _at_rest(self) -> None:
        """Nothing can happen any more unless people act: what holds at any rest is judged."""
        self._lull = False
        self.note("", "all is at rest")
        reader = self.process.reader()
        judge_live(self, self.process, reader, all_serve=not self._maimed)
        self._hold()

    def _hold(self) -> None:
        if self.wrong:
            raise Violation(self.seed, self.steps, self.wrong)

    # --- the process -----------------------------------------------------------------------------------

    def _boot(self) -> None:
        self._life += 1
        self._dead = ""
        self._stopping = None
        self._crashes_of.clear()
        self._maimed = False
        self.witness.reborn()
        self.given.append([])
        self.note("", f"process {self._life} starts")
        self.process = SimulatedProcess(self, self._settings, self.seed, self._life, self._now_ms)
        self.process.start("fake", "fake")

    def _end(self, why: str) -> None:
        """The process is gone, with all that isn't durable; the next one starts a while later on the same disk."""
        self.note("", f"the process ends: {why}")
        self.deaths += 1
        for sending in self.process.sending:
            if sending.came is None and self.dice.hits("late arrival", 0.5):
                self._arrive(sending)
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

    def _go_on_stopping(self) -> None:
        assert self._stopping is not None
        next(self._stopping, None)

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
        if hits("repeat", plan.repeats) and self.platform.posted:
            self._giving.append(self.dice.pick("which", self.platform.posted))
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
        if not self._faults:
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
        self._crashes_of[name if key is None else key] += 1
        self._maimed = self._maimed or max(self._crashes_of.values()) > CRASHES_MAX
        error = self.dice.pick("error", ERRORS)
        self.note("" if key is None else key, f"{name} dies of {error.__name__}")
        return error(BY_US)

    def open_store(self) -> Store:
        """The store on the disk that outlives the process."""
        store = WitnessedStore(MemoryStore(self.disk), self.witness, lambda _, upkeep: upkeep(), self._archived)
        return FaultyStore(store, script=self._fault, before=self._before_commit, after=self._after_commit)

    def open_reader(self, store: Store) -> StoreReader:
        """The lanes' way to read it."""
        return cast("StoreReader", _UnsureReader(store.reader(), self.unreadable))

    def _fault(self, number: int, commit: Commit) -> Fault | None:
        if not self._faults:
            return None
        # A store looks id and keys up before anything else can refuse.
        known = commit.id in self.disk.ids or not self.disk.keys.keys().isdisjoint(commit.unique)
        if self._outage or self.dice.hits("outage", self.plan.outage):
            self._outage = self._outage - 1 if self._outage else 12
            return None if known else Fault.REFUSED
        if self.dice.hits("refused", self.plan.refused):
            return None if known else Fault.REFUSED
        if self.dice.hits("unknown", self.plan.unknown):
            return self.dice.pick("which unknown", (Fault.UNKNOWN_DONE, Fault.UNKNOWN_LOST))
        return None

    def _before_commit(self, commits: Sequence[Commit]) -> None:
        self._may_tear("before a commit")

    def _after_commit(self, commits: Sequence[Commit], outcomes: Sequence[Outcome]) -> None:
        for commit, outcome in zip(commits, outcomes, strict=True):
            self.counts["unknowns"] += type(outcome) is Unknown
            events = [event.type for part in commit.parts for event in part.events]
            self.note(commit.lane.removeprefix("lane:"), f"commit {commit.id} {type(outcome).__name__}: {events}")
        self._may_tear("after a commit")

    def _may_tear(self, where: str) -> None:
        if not self._faults:
            return
        if self.dice.hits("torn", self.plan.torn):
            raise SimulatedCrash(where)
        if self.dice.hits("torn", self.plan.torn):
            self.counts["unknowns"] += 1
            raise OSError(BY_US)

    def unreadable(self, log: LogId) -> None:
        """A lane's log is about to be read. Raises StoreUnhealthyError."""
        if self._faults and self.dice.hits("unreadable", self.plan.unreadable):
            raise StoreUnhealthyError(f"{log}: {BY_US}")

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

    def whole(self, reader: StoreReader, log: LogId) -> list[Event]:
        """All events of a log, those that its archive stands for included."""
        return whole(reader, log, self._archived)

    # --- agents and the way out ------------------------------------------------------------------------

    def script(self, job: TurnJob) -> Script:
        """What the agent does in a turn."""
        return self._agent(job)

    def ran(self, ran: Ran) -> None:
        """A tool runs."""
        self.tools.append(ran)

    def echoed(self, text: str) -> bool:
        """Whether the agent repeats this text."""
        return self._echoes and echoes(text)

    def _advance(self, lane: str, generation: int) -> None:
        self.note(lane, f"turn {generation} goes on")
        self.process.watched.advance(lane, generation)

    def at_once(self, out: Outbound) -> SendDone | None:
        """What came of a send that ends without waiting; None when it is on its way."""
        if not self.dice.hits("instant", self.plan.instant):
            return None
        sending = Sending(out, lambda _: None)
        self._arrive(sending)
        return sending.came

    def _carry(self, sending: Sending) -> None:
        """A send arrives; or, later, the news of it."""
        if sending.came is None:
            self._arrive(sending)
        else:
            self.process.sending.remove(sending)
            sending.done(sending.came)

    def _arrive(self, sending: Sending) -> None:
        out = sending.out
        fault: FaultKind | None = None
        if self._faults and self.dice.hits("bad send", self.plan.bad_send):
            fault = self.dice.pick("which send", _SEND_FAULTS)
        if fault == "permanent":
            self._barred.add(out.idempotency_key)
        if out.idempotency_key in self._barred:
            fault = "permanent"  # what is refused for good stays so
        if fault is not None:
            self.platform.fail_next(fault)
        message_id: str | None = None
        error: SendError | None = None
        try:
            message_id = self.platform.receive(out).message_id
        except SendError as refused:
            error = refused
        self.note(out.target.chat_id, f"send {out.delivery}.{out.part} came to {error or message_id}")
        sending.came = SendDone(out.delivery, out.part, message_id, error)

    def channel(self, target: Target) -> Channel:
        """The way to ``target`` as of now."""
        able = self.plan.able
        return Channel(self.platform.connected, able.idempotent_send, able.text_max, able.text_unit, able.multiline)

    def _come_back(self) -> None:
        self.platform.come_back()

    # --- people ----------------------------------------------------------------------------------------

    def _act(self) -> None:
        """Somebody does something; perhaps then they all wait."""
        self._acts -= 1
        self._lull = self.dice.hits("lull", self.plan.lulls)
        source = self.dice.pick("who", self.sources)
        what = self.dice.roll("what")
        if what < 0.55:
            for _ in range(self.dice.pick("burst", (1, 1, 1, 2, 5))):
                self.say(source, self.dice.pick("word", self._words))
        elif what < 0.7:
            self.say(source, "/queue " + self.dice.pick("word", self._words))
        elif what < 0.8:
            self.say(source, "/stop")
        elif what < 0.87:
            self.say(source, self.dice.pick("word", ("/new", "/reset")))
        elif what < 0.92:
            self.say(source, self.dice.pick("word", ("/status", "/help", "/what", "/queue")))
        else:
            self.say(source, "plain wake", wake=True)

    def say(self, source: SessionSource, text: str, *, wake: bool = False) -> None:
        """Somebody writes ``text``; a number behind it tells it from others."""
        self._said += 1
        if not text.startswith("/") or " " in text:
            text = f"{text} {self._said}"
        self.note(source.chat_id, f"{source.user_id} says {text!r}")
        if source.platform.name == "host":  # nobody gives it again, and the reply is taken from the receipt
            self._hand_in(MessageEvent(text, source, internal=wake), self._told)
            return
        event = MessageEvent(text, source, account="fake", message_id=f"in{self._said}", internal=wake)
        self._giving.append(self.platform.post(event))

    def _give(self) -> None:
        posted = self._giving.popleft()
        posted.given += 1
        self._hand_in(posted.event, partial(self._settled, posted))

    def _hand_in(self, event: MessageEvent, settled: Callable[[Receipt], None]) -> None:
        self.given[-1].append(self.process.accept(event, settled).message_id)

    def _settled(self, posted: Posted, receipt: Receipt) -> None:
        """The adapter's side of accept: what was taken is acked, what was refused is given again."""
        self._told(receipt)
        if receipt.outcome == "pending":
            return  # the gateway stops, and nobody knows: given again, it will be told
        if receipt.outcome != "refused":
            self.witness.acks(posted.event.message_id or "")
            self.platform.ack(posted)
        elif self._faults and self.dice.hits("again", 0.5):
            self._giving.append(posted)

    def _told(self, receipt: Receipt) -> None:
        self.note(receipt.session_key, f"{receipt.message_id} is {receipt.outcome} {receipt.reason or ''}")
        if receipt.outcome == "refused":
            self.refused.add(receipt.message_id)


def _people(lanes: int) -> list[SessionSource]:
    """Who writes where: a private chat; two in a group, of whom a role lets one in; the host itself."""
    private = SessionSource(platform=Platform("fake"), chat_id="1", user_id="ann")
    group = [
        SessionSource(platform=Platform("fake"), chat_id="2", chat_type="group", user_id="bob"),
        SessionSource(platform=Platform("fake"), chat_id="2", chat_type="group", user_id="cy", role_authorized=True),
    ]
    host = SessionSource(platform=Platform("host"), chat_id="3", user_id="dee")
    return [private, *(group if lanes > 1 else ()), *([host] if lanes > 2 else ())]


class _UnsureReader:
    """A reader that calls ``before`` at each log, and raises what that raises."""

    def __init__(self, inner: StoreReader, before: Callable[[LogId], None]) -> None:
        self._inner = inner
        self._before = before

    def read(self, log: LogId, from_seq: int = 0, limit: int | None = None) -> list[Event]:
        """See ``StoreReader.read``."""
        self._before(log)
        return self._inner.read(log, from_seq, limit)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


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
