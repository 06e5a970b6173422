"""The simulated world: shells over real gates, a writer with faults, a supervisor, users, virtual time."""

from __future__ import annotations

import heapq
import zlib
from collections import Counter, deque
from collections.abc import Callable
from random import Random

from attrs import Factory, define, frozen

from seriatim.batch import Now, Rules
from seriatim.commands import parse_command
from seriatim.commits import Commit, Durable, Outcome
from seriatim.effects import (
    Ack,
    AckDuplicate,
    CancelTurn,
    Deliver,
    DropDelivery,
    Effect,
    Finished,
    Nack,
    Owes,
    Permit,
    Proceed,
    ReleaseCalls,
    ReturnSlot,
    RunTurn,
    SendPart,
    WantSlot,
)
from seriatim.events import Event, lane_log, session_log
from seriatim.gate import Gate, Out
from seriatim.lane import LaneState, fold
from seriatim.mail import DrainTimedOut, Inbound, Mail, Recover, SlotGranted
from seriatim.model import MessageEvent, SessionSource, Target
from seriatim.outbox import Channel
from seriatim.storage.memory import MemoryDisk, MemoryStore
from seriatim.testing.faulty_store import Fault, FaultyStore

from .agent import Agents
from .delivery import Delivery, Platform
from .oracle import Oracle, Violation

REDELIVER_MS = 3_000
START_MS = 1_000_000


@frozen
class Plan:
    """What a run is made of. Chances are per commit (store) or per event of the world (crashes)."""

    lanes: int = 3
    actions: int = 45
    span_ms: int = 9_000
    slots: int = 2
    idempotent: bool = False
    text_max: int = 0
    rules: Rules = Factory(Rules)
    refused: float = 0.0
    unknown: float = 0.0
    slow: float = 0.0
    lane_crash: float = 0.0
    process_crash: float = 0.0
    bad_sends: bool = False
    down: bool = False


def plan_of(seed: int) -> Plan:
    """A random plan; a third of them without crashes, so that Unknown is seen alone too."""
    rng = Random(f"plan {seed}")
    crashes = rng.random() < 0.66
    return Plan(
        lanes=rng.choice((1, 2, 3)),
        actions=rng.choice((20, 45, 80)),
        span_ms=rng.choice((2_000, 9_000)),
        slots=rng.choice((1, 2, 8)),
        idempotent=rng.random() < 0.2,
        text_max=rng.choice((0, 0, 140)),
        rules=Rules(
            collapse=rng.choice(("merge", "merge", "replace")),
            separate_attempt=rng.random() < 0.3,
            stop_suspends=rng.random() < 0.8,
            freshness_ms=rng.choice((3_600_000, 3_600_000, 700)),
        ),
        refused=rng.choice((0.0, 0.05, 0.2)),
        unknown=rng.choice((0.0, 0.05, 0.2)),
        slow=rng.choice((0.0, 0.1, 0.3)),
        lane_crash=rng.choice((0.0, 0.004, 0.015)) if crashes else 0.0,
        process_crash=rng.choice((0.001, 0.003, 0.008)) if crashes else 0.0,
        bad_sends=rng.random() < 0.6,
        down=rng.random() < 0.3,
    )


@define
class UserMessage:
    """A message at the platform: given again until it is acknowledged."""

    lane: str
    key: str
    text: str
    acked: bool = False


@define
class Shell:
    """A lane's incarnation: what the session actor is in the product."""

    key: str
    gate: Gate
    mailbox: deque[Mail] = Factory(deque)
    granted: int = 0
    alive: bool = True
    active: bool = False


@define
class Slots:
    """Turn slots, fair; as actors/slots."""

    free: int
    held: Counter[str] = Factory(Counter)
    queue: deque[str] = Factory(deque)

    def try_take(self, lane: str) -> bool:
        """A slot without waiting."""
        if self.free <= 0 or self.queue:
            return False
        self.free -= 1
        self.held[lane] += 1
        return True

    def give_back(self, lane: str, count: int = 1) -> None:
        """Return some; more than the lane holds is a violation."""
        self.held[lane] -= count
        self.free += count
        if self.held[lane] < 0:
            raise Violation("a lane gave back a slot that it didn't hold")


class World:
    """One run. ``step`` does the next event; ``run`` goes on to quiescence and judges."""

    def __init__(self, seed: int, plan: Plan | None = None) -> None:
        self.seed = seed
        self.plan = plan_of(seed) if plan is None else plan
        self.rng = Random(f"world {seed}")
        self.time = START_MS
        self.faults = True
        self.life = 0
        self.counts: Counter[str] = Counter()
        self.crc = 0
        self._heap: list[tuple[int, float, int, int | None, Callable[[], None]]] = []
        self._events = 0
        self._ids = 0
        self.disk = MemoryDisk()
        self.platform = Platform(self.plan.idempotent, self.plan.text_max)
        self.users: dict[str, UserMessage] = {}
        self.inbox: dict[str, UserMessage] = {}
        self.lanes = [f"lane-{n}" for n in range(self.plan.lanes)]
        self.crashes: Counter[str] = Counter()
        self.oracle = Oracle(self)
        self._boot()

    # --- time ------------------------------------------------------------------------------------------

    def later(self, delay_ms: int, do: Callable[[], None]) -> None:
        """Do something later, unless the process has crashed by then."""
        self._push(delay_ms, do, self.life)

    def outside(self, delay_ms: int, do: Callable[[], None]) -> None:
        """Do something later, whatever happens to the process."""
        self._push(delay_ms, do, None)

    def _push(self, delay_ms: int, do: Callable[[], None], life: int | None) -> None:
        self._events += 1
        heapq.heappush(self._heap, (self.time + delay_ms, self.rng.random(), self._events, life, do))

    def trace(self, *what: object) -> None:
        """Part of the run's checksum."""
        self.crc = zlib.crc32(repr((self.time, *what)).encode(), self.crc)

    def fresh(self, kind: str) -> str:
        """A new id."""
        self._ids += 1
        return f"{kind}{self._ids}"

    # --- a process's life ------------------------------------------------------------------------------

    def _boot(self) -> None:
        self.serving = True
        self.store = FaultyStore(MemoryStore(self.disk), script=self._fault)
        self.reader = self.store.reader()
        self.shells: dict[str, Shell] = {}
        self.held: dict[str, deque[Mail]] = {}
        self.incarnations: Counter[str] = Counter()
        self.slots = Slots(self.plan.slots)
        self.writer: list[tuple[Commit, Shell]] = []
        self.writing = False
        self.draining = False
        self.delivery = Delivery(
            self.platform,
            self.rng,
            self.post,
            self.later,
            lambda: self.time,
            lambda: self.faults and self.plan.bad_sends,
        )
        self.agents = Agents(self.rng, self.post, self.later)
        for log, _ in self.reader.open_work():
            self._activate(log.removeprefix("lane:"))

    def crash_process(self) -> None:
        """Everything that isn't durable is gone; a new process starts a while later."""
        self.counts["process_crashes"] += 1
        self.trace("process crash")
        for key in self.lanes:
            self.crashes[key] += 1
        self.life += 1
        self.shells = {}
        self.held = {}
        self.serving = False
        self.outside(self.rng.choice((5, 300, 2_500)), self._boot)
        self.writer = []

    def drain(self) -> None:
        """A graceful stop that runs into its time-out: running turns are marked, then the process ends."""
        self.draining = True
        for key in self.shells:
            self.post(key, DrainTimedOut("restart_timeout"))
        self.later(200, self.crash_process)

    def _activate(self, key: str, live_generation: int = 0) -> None:
        self.incarnations[key] += 1
        incarnation = self.incarnations[key]
        self.held.setdefault(key, deque())
        self.later(self.rng.choice((1, 30)), lambda: self._start(key, incarnation, live_generation))

    def _start(self, key: str, incarnation: int, live_generation: int) -> None:
        self.store.fence(lane_log(key), incarnation)
        state, found = self.fold(key)
        gate = Gate(incarnation, state, self.plan.rules, lambda: self.fresh("k"))
        shell = self.shells[key] = Shell(key, gate)
        shell.mailbox.append(Recover(live_generation))
        for mail in self.held.pop(key):
            if not (type(mail) is Inbound and not mail.key and mail.id in found):
                shell.mailbox.append(mail)
        self._activate_shell(shell)

    def fold(self, key: str) -> tuple[LaneState, set[str]]:
        """The lane as its logs tell it, and the inbox ids that they hold."""
        events = self.reader.read(lane_log(key))
        return fold(key, events, self.session_events), {
            event.data["id"] for event in events if event.type == "inbox/accepted"
        }

    def session_events(self, session: str) -> list[Event]:
        """A session's log."""
        return self.reader.read(session_log(session))

    def crash_lane(self, shell: Shell) -> None:
        """An incarnation dies between two steps: its turn is cancelled, its mail goes to the successor."""
        self.counts["lane_crashes"] += 1
        self.crashes[shell.key] += 1
        self.trace("lane crash", shell.key)
        self._bury(shell, 0)

    def _bury(self, shell: Shell, live_generation: int) -> None:
        key = shell.key
        shell.alive = False
        del self.shells[key]
        for run in self.agents.live(key):
            if run.effect.generation != live_generation:
                self.agents.cancel(key, run.effect.generation)
        keep = 1 if live_generation else 0
        if key in self.slots.queue:
            self.slots.queue.remove(key)
        self.slots.give_back(key, self.slots.held[key] - keep)
        mail = [*shell.gate.leftover(), *(m for m in shell.mailbox if type(m) not in (Recover, SlotGranted))]
        self.held[key] = deque(mail)
        self._activate(key, live_generation)
        self._serve()

    # --- the writer ------------------------------------------------------------------------------------

    def _fault(self, number: int, commit: Commit) -> Fault | None:
        if not self.faults:
            return None
        dice = self.rng.random()
        if dice < self.plan.refused:
            # A store looks id and keys up before anything else can refuse.
            known = commit.id in self.disk.ids or not self.disk.keys.keys().isdisjoint(commit.unique)
            return None if known else Fault.REFUSED
        if dice < self.plan.refused + self.plan.unknown:
            return self.rng.choice((Fault.UNKNOWN_DONE, Fault.UNKNOWN_LOST))
        return None

    def _write_soon(self) -> None:
        if not self.writing and self.writer:
            self.writing = True
            slow = self.faults and self.rng.random() < self.plan.slow
            self.later(self.rng.choice((80, 700)) if slow else self.rng.randint(1, 4), self._write)

    def _write(self) -> None:
        self.writing = False
        group = self.writer[: self.rng.randint(1, 4)]
        del self.writer[: len(group)]
        outcomes = self.store.commit([commit for commit, _ in group])
        for (commit, shell), outcome in zip(group, outcomes, strict=True):
            self.counts[f"commits_{type(outcome).__name__.lower()}"] += 1
            self.trace("commit", commit.id, type(outcome).__name__)
            self.later(self.rng.choice((0, 0, 5)), lambda s=shell, o=outcome: self._settled(s, o))  # type: ignore[misc]
        self._write_soon()

    def _settled(self, shell: Shell, outcome: Outcome) -> None:
        if shell.alive:
            self._act(shell, shell.gate.settled(outcome, self.now(shell)))
            if type(outcome) is Durable:
                self.oracle.durable(shell)

    # --- shells ----------------------------------------------------------------------------------------

    def now(self, shell: Shell) -> Now:
        """What the world brings to a decision."""

        def take() -> bool:
            if shell.granted:
                shell.granted -= 1
                return True
            return self.slots.try_take(shell.key)

        def channel(target: Target) -> Channel:
            return self.platform.channel()

        return Now(self.time, lambda: self.fresh("d"), lambda: self.fresh("s"), take, channel, draining=self.draining)

    def post(self, key: str, mail: Mail) -> None:
        """Mail for whichever incarnation of a lane serves."""
        shell = self.shells.get(key)
        if shell is not None:
            shell.mailbox.append(mail)
            self._activate_shell(shell)
        elif key in self.held:
            self.held[key].append(mail)
        else:
            self._activate(key)
            self.held[key].append(mail)

    def _activate_shell(self, shell: Shell) -> None:
        if not shell.active and shell.mailbox:
            shell.active = True
            self.later(self.rng.choice((0, 0, 1, 8)), lambda: self._serve_mail(shell))

    def _serve_mail(self, shell: Shell) -> None:
        shell.active = False
        for _ in range(self.rng.choice((1, 1, 4))):
            if shell.alive and shell.mailbox:
                mail = shell.mailbox.popleft()
                if type(mail) is SlotGranted:
                    shell.granted += 1
                self._act(shell, shell.gate.offer(mail, self.now(shell)))
        if shell.alive:
            self._activate_shell(shell)

    def _tick(self, shell: Shell) -> None:
        if shell.alive:
            self._act(shell, shell.gate.tick(self.now(shell)))

    def _act(self, shell: Shell, out: Out) -> None:
        for permit, effect in out.effects:
            self.trace("effect", permit.commit, effect)
            self.oracle.leaves(shell, permit, effect)
            self._leave(shell, permit, effect)
        for effect in out.internal:
            self.trace("internal", effect)
            self._leave(shell, None, effect)
        if out.slots_back:
            self.slots.give_back(shell.key, out.slots_back)
        if shell.granted and not shell.gate.holds(SlotGranted):
            self.slots.give_back(shell.key, shell.granted)
            shell.granted = 0
        if out.commit is not None:
            self.writer.append((out.commit, shell))
            self._write_soon()
        if out.wake_at is not None:
            self.later(max(0, out.wake_at - self.time), lambda: self._tick(shell))
        if out.failed is not None:
            raise Violation(f"a message raised: {out.failed!r}")
        if out.stale or out.lost:
            self.counts["stale"] += 1
            running = shell.gate.durable.running
            self._bury(shell, running.generation if running is not None and out.stale else 0)
        self._serve()
        self.oracle.after(shell)

    def _serve(self) -> None:
        while self.slots.free > 0 and self.slots.queue:
            lane = self.slots.queue.popleft()
            shell = self.shells.get(lane)
            if shell is not None:
                self.slots.free -= 1
                self.slots.held[lane] += 1
                shell.mailbox.append(SlotGranted())
                self._activate_shell(shell)

    def _leave(self, shell: Shell, permit: Permit | None, effect: Effect) -> None:  # noqa: C901 - a table
        key = shell.key
        match effect:
            case Ack() | AckDuplicate():
                user = self.inbox.get(effect.id)
                if user is not None:
                    user.acked = True
            case Nack():
                self.counts["nacks"] += 1
                self.oracle.nack(effect)
            case Finished():
                self.counts["finished"] += 1
            case RunTurn():
                self.counts["turns"] += 1
                self.agents.start(key, effect)
            case CancelTurn():
                self.agents.cancel(key, effect.generation)
            case ReleaseCalls():
                self.agents.release(key, effect)
            case Proceed():
                self.agents.proceed(key, effect)
            case Owes():
                self.delivery.owes(key, effect)
            case Deliver():
                self.delivery.take_up(key, effect)
            case SendPart():
                self.delivery.permitted(effect)
            case DropDelivery():
                self.delivery.drop(effect)
            case WantSlot():
                if key not in self.slots.queue:
                    self.slots.queue.append(key)
            case ReturnSlot():
                self.slots.give_back(key)

    # --- users -----------------------------------------------------------------------------------------

    def say(self, lane: str, text: str) -> UserMessage:
        """A user writes; the platform delivers until it is acknowledged."""
        user = UserMessage(lane, self.fresh("u"), text)
        self.users[user.key] = user
        self.counts["messages"] += 1
        self._deliver(user)
        return user

    def _deliver(self, user: UserMessage) -> None:
        if user.acked and self.rng.random() < 0.9:
            return
        self.arrive(user)
        if self.faults and self.rng.random() < 0.1:
            self.outside(self.rng.choice((0, 3, 400)), lambda: self.arrive(user))
        self.outside(REDELIVER_MS, lambda: self._deliver(user))

    def arrive(self, user: UserMessage) -> None:
        """One delivery of a message reaches the gateway, if it is there."""
        if not self.serving:
            return
        message = Inbound(self.fresh("i"), user.key, self._event(user.lane, user.text), len(user.text))
        command = parse_command(user.text, "/")
        if command is not None:
            message = Inbound(message.id, user.key, message.event, message.size, *command)
        self.inbox[message.id] = user
        self.post(user.lane, message)

    def wake(self, lane: str, text: str) -> None:
        """The host itself has something to say; nobody gives it again."""
        if self.serving:
            self.post(lane, Inbound(self.fresh("w"), "", self._event(lane, text, internal=True), len(text)))

    def _event(self, lane: str, text: str, *, internal: bool = False) -> MessageEvent:
        source = SessionSource("sim", lane, chat_type="dm", user_id="u" + lane)
        return MessageEvent(text, source, internal=internal)

    def _user_acts(self) -> None:
        lane = self.rng.choice(self.lanes)
        dice = self.rng.random()
        if dice < 0.5:
            for _ in range(self.rng.choice((1, 1, 1, 3, 9))):
                self.say(lane, "hello")
        elif dice < 0.65:
            self.say(lane, "/queue item")
        elif dice < 0.75:
            self.say(lane, "/stop")
        elif dice < 0.82:
            self.say(lane, self.rng.choice(("/new", "/reset")))
        elif dice < 0.87:
            self.say(lane, self.rng.choice(("/status", "/help", "/what", "/queue")))
        elif dice < 0.95:
            self.wake(lane, "wake")
        elif self.plan.down:
            self.platform.up = not self.platform.up

    # --- a run -----------------------------------------------------------------------------------------

    def step(self) -> bool:
        """Do the next event; False when nothing is left."""
        while self._heap:
            self.time, _, _, life, do = heapq.heappop(self._heap)
            if life is None or life == self.life:
                do()
                self.counts["events"] += 1
                self._maybe_crash()
                return True
        return False

    def _maybe_crash(self) -> None:
        if not self.faults or not self.serving:
            return
        dice = self.rng.random()
        if dice < self.plan.lane_crash and self.shells:
            self.crash_lane(self.rng.choice(list(self.shells.values())))
        elif dice > 1 - self.plan.process_crash:
            if self.rng.random() < 0.3:
                self.drain()
            else:
                self.crash_process()

    def run(self) -> World:
        """The whole run: users act under faults, then everything calms down and is judged."""
        for _ in range(self.plan.actions):
            self.outside(self.rng.randint(0, self.plan.span_ms), self._user_acts)
        end = START_MS + self.plan.span_ms
        while self._heap and self.time <= end and self.step():
            pass
        self.calm()
        for lane in self.lanes:
            self.say(lane, "last")
        self.settle()
        return self

    def calm(self) -> None:
        """No more faults."""
        self.faults = False
        self.platform.up = True

    def settle(self, events_max: int = 20_000) -> None:
        """Go on until nothing happens any more, then judge."""
        for _ in range(events_max):
            if not self.step():
                break
        else:
            raise Violation("the world never comes to rest")
        self.oracle.judge()
