"""One life of the process: the product's runtime on one thread, its ports watched, driven to rest or to its death."""

from __future__ import annotations

import logging
import random
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from seriatim.actors.delivery import SendDone
from seriatim.actors.ids import Ids
from seriatim.actors.merging import MoveAnswer, MoveSession
from seriatim.actors.outlet import Tell
from seriatim.actors.receipts import Receipt
from seriatim.actors.runtime import Dispatchers, Opened, Runtime, Settings
from seriatim.actors.showing import Drafts
from seriatim.actors.simulation import Envelope, SimulationDispatcher
from seriatim.actors.summaries import UNABLE, Summed
from seriatim.actors.supervisor import PassivateLane
from seriatim.aliases import Alias
from seriatim.commits import Commit
from seriatim.config import GatewayConfig
from seriatim.errors import SendError
from seriatim.events import lane_log
from seriatim.keys import canonical_key
from seriatim.model import Outbound, SessionSource, Target
from seriatim.outbox import Channel
from seriatim.storage.contract import Store
from seriatim.storage.sqlite import SqliteStore
from seriatim.testing.clock import VirtualClock
from seriatim.testing.fake_platform import Posted
from seriatim.testing.faulty_store import Fault, FaultyStore
from seriatim.testing.scripted import Ran, ScriptedRunner, by_first_word
from seriatim.testing.snapshot import wal_frames
from seriatim.testing.witness import Witness, WitnessedStore
from seriatim.turn import Message, Told, TurnEnded, TurnJob
from tests.crash.ground import Ground
from tests.crash.points import KILLED, Fate, Points, SimulatedCrash
from tests.crash.scenario import Stop

STEPS_MAX = 20_000
REDELIVERIES_MAX = 40
HURRY_MS = 100.0
SETTLE_MS = 5_000.0
"""How long a stop waits for what is soon due."""


class Life:
    """Made on the files that the life before left. ``run`` ends at rest, at its stop, or where the process dies."""

    def __init__(self, ground: Ground, path: Path, fate: Fate, seed: int, start_ms: int) -> None:
        scenario = ground.scenario
        ground.given.append({})
        self.ground = ground
        self.path = path
        self.points = Points(fate)
        self.clock = VirtualClock(start_ms)
        able = scenario.capabilities
        self.witness = Witness(ground.complain, ground.effects, idempotent=able.idempotent_send)
        self.runner = ScriptedRunner(by_first_word)
        self.runner.ran = _Tools(self)
        self.sending: deque[tuple[Outbound, Callable[[SendDone], None]]] = deque()
        self.frames: dict[int, tuple[int, int]] = {}
        """Of each point after a commit: the WAL's frames before and after it."""
        self.steps = 0
        self.stopped = False
        """Whether it ended by a stop."""
        self._stop: Stop | None = None
        self._drained = False
        self.receipts: list[Receipt] = []
        self._serving: dict[str, str] = {}
        """The lane of each message, by the word of its receipt."""
        self.durable: dict[str, int] = {}
        """How far each log went by the word of the store of the life before."""
        self.errors: list[str] = []
        self._random = random.Random(seed)
        self._given: set[int] = set()
        self._telling: set[Alias] = set()
        self._again = 0
        self._told_ends = 0
        self._rests = 0
        self._seen = (0, 0, 0, 0, 0)
        self._frames = 0
        self._store: WitnessedStore | None = None
        self._opened: Opened | None = None
        make = _SlowWriter if scenario.slow_writer else SimulationDispatcher
        self.dispatcher = make(seed, self.clock, timer_bias=0.0, before_envelope=self._before_envelope)
        token = random.Random(f"{seed} {ground.life}")
        self.runtime = Runtime(
            clock=self.clock,
            ids=Ids(self.clock, lambda digits: f"{token.getrandbits(4 * digits):0{digits}x}"),
            dispatchers=Dispatchers(self.dispatcher, self.dispatcher, self.dispatcher),
            settings=Settings(
                keys=GatewayConfig(),
                rules=scenario.rules,
                slots_max=scenario.slots_max,
                warm_max=scenario.warm_max,
                age_ms_max=scenario.age_ms_max,
                dm_without_ids=False,
                growth=scenario.growth,
            ),
            runner=WatchedRunner(self),
            rng=random.Random(seed),
            on_error=self._on_error,
            on_fatal=self._on_fatal,
            at_once=True,
        )

    # --- life and death --------------------------------------------------------------------------------

    def run(self, steps: int = STEPS_MAX) -> None:
        """Start, recover, and go on until nothing is left to do or the process is dead.

        ``steps``: stop there as a process does that is told to (SIGSTOP); the next call lets it go on.
        """
        log = logging.getLogger("seriatim")
        level = log.level
        log.setLevel(logging.CRITICAL)  # crashes are what happens here
        self.ground.platform._listening = True
        try:
            if self._opened is None:
                self._start()
            until = self.steps + steps
            while not self.points.dead and self.steps < until and self._step():
                self.steps += 1
                self._look_who_serves()
                if self.steps >= STEPS_MAX:
                    self.ground.complain("the run doesn't come to rest")
                    break
        except SimulatedCrash:
            assert self.points.dead
        finally:
            log.setLevel(level)
        self.ground.platform._listening = False

    def _start(self) -> None:
        self.runtime.open(self._open_store, self._take_opened)
        while self._opened is None:
            self.dispatcher.step()
        assert self._store is not None
        self.runtime.begin(self._opened.store.reader)
        sender, drafts = WatchedSender(self), None
        if self.ground.platform.capabilities.edit:
            drafts = Drafts(sender, self.runtime.directory.post, self.clock, edits=True, types=False)
        self.runtime.add_account("fake", "fake", sender, drafts)
        self.runtime.recover(self._opened.open_work)

    def close(self) -> None:
        """Give the connections back; the files stay as they are copied."""
        if self._store is not None:
            self._store.close()

    def reader(self) -> Any:
        """A reader of the live store."""
        assert self._store is not None
        return self._store.reader()

    def _open_store(self) -> Store:
        store = self._store = WitnessedStore(SqliteStore(self.path), self.witness, self._watched, self.ground.archived)
        reader = store.reader()
        self.witness.read(reader, self.ground.whole)
        for log, head in self.durable.items():
            if self.witness.heads.get(log, 0) < head:
                self.ground.complain(f"{log} had {head} durable events before the kill and has lost some")
        return FaultyStore(store, script=self._strike, before=self._before, after=self._after)

    def _take_opened(self, opened: Opened | BaseException) -> None:
        assert isinstance(opened, Opened), opened
        self._opened = opened

    def _strike(self, number: int, commit: Commit) -> Fault | None:
        strike = self.ground.scenario.strike
        return None if strike is None else strike(self.ground.struck, commit)

    def _before(self, commits: Any) -> None:
        self.points.hit(f"before commit {_kinds(commits)}")
        self._frames = wal_frames(f"{self.path}-wal")

    def _after(self, commits: Any, outcomes: Any) -> None:
        self.frames[len(self.points.labels)] = (self._frames, wal_frames(f"{self.path}-wal"))
        self.points.hit(f"after commit {_kinds(commits)}")

    def _watched(self, what: str, do: Callable[[], Any]) -> Any:
        """A step of upkeep: a point before it, one after it, and its frames."""
        self.points.hit(f"before {what}")
        before = wal_frames(f"{self.path}-wal")
        done = do()
        self.frames[len(self.points.labels)] = (before, wal_frames(f"{self.path}-wal"))
        self.points.hit(f"after {what}")
        return done

    def _before_envelope(self, envelope: Envelope) -> BaseException | None:
        lane = envelope.ref.name.startswith("lane:")
        if envelope.phase != "receive":
            return None
        self._rests += type(envelope.message) is PassivateLane
        error = self.points.envelope(lane=lane)
        self.ground.deaths += lane and error is not None
        return error

    def _on_error(self, where: str, error: BaseException) -> None:
        scripted = KILLED in str(error) or where == "store"  # that the store fails is told, and was the script's wish
        if not self.points.dead and not scripted:
            self.errors.append(f"{where}: {type(error).__name__}: {error}")

    def _on_fatal(self, where: str, error: BaseException) -> None:
        """The gateway would stop and be started again; here it dies at once, which leaves more undone."""
        self._on_error(where, error)
        self.points.dead = True

    # --- the driver ------------------------------------------------------------------------------------

    def _step(self) -> bool:
        """Let somebody do one thing; False when nobody has anything to do."""
        ready = self._ready()
        due = self.clock.next_due_ms()
        if self._stop is not None and self._goes_on_stopping(bool(ready)):
            return True
        if self.stopped:
            return False
        if ready:
            if due is not None and self._random.random() < 0.02:
                self.clock.fire_next()
            else:
                ready[int(self._random.random() * len(ready))]()
            return True
        if due is not None:
            self.clock.fire_next()
            return True
        if self.ground.next_step is not None:
            self._user_step()
            return True
        return self._redeliver()

    def _ready(self) -> list[Callable[[], Any]]:
        ready: list[Callable[[], Any]] = [partial(self.runner.advance, *name) for name in self.runner.ready()]
        if self.sending:
            ready.append(self._arrive)
        if alias := next((a for a in self.ground.untold if a not in self._telling), None):
            ready.append(partial(self._tell, alias))
        if self.ground.switches:
            ready.append(self._switch)
        if (posted := self._to_give()) is not None:
            ready.append(partial(self._give, posted))
        if self._user_may():
            step = self.ground.next_step
            if step is not None and step.when == "resting":
                return [self._user_step_now]  # the window is short
            ready.append(self._user_step)
        if not self.dispatcher.idle and not (self._writer_alone() and (ready or self._soon())):
            ready += [self.dispatcher.step] * 4
        return ready

    def _writer_alone(self) -> bool:
        """Whether of the actors only the slow writer has something to do: then he waits for everybody else."""
        return isinstance(self.dispatcher, _SlowWriter) and self.dispatcher.only_writer

    def _soon(self) -> bool:
        due = self.clock.next_due_ms()
        return due is not None and due - self.clock.monotonic_ms() <= HURRY_MS

    # --- people and platform ---------------------------------------------------------------------------

    def _marks(self) -> tuple[int, int, int, int, int]:
        ground = self.ground
        return (
            sum(ground.effects.started.values()),
            len(ground.tools),
            self._told_ends,
            len(ground.platform.received),
            self._rests,
        )

    def _user_may(self) -> bool:
        step = self.ground.next_step
        if step is None or step.when == "quiet" or self._stop is not None:
            return False
        if step.when == "now":
            return True
        if step.when == "running":
            return bool(self.runner.running())
        which = ("started", "tool", "ended", "sent", "resting").index(step.when)
        return self._marks()[which] > self._seen[which]

    def _user_step(self) -> None:
        self._seen = self._marks()
        step = self.ground.next_step
        self.ground.take_step()
        if isinstance(step, Stop):
            self._stop = step
            self.points.hit("before drain")
            self.runtime.drain()
            self.points.hit("after drain")

    def _goes_on_stopping(self, ready: bool) -> bool:
        """As the gateway's stop: let turns end or interrupt them, settle, end. True when it has done a step of that."""
        assert self._stop is not None
        if not self._drained:
            if self._stop.waits and self.runtime.slots.held:
                return False
            self._drained = True
            if self.runtime.slots.held:
                self.ground.deaths += 1
                self.runtime.drain_timed_out(f"{self._stop.reason}_timeout")
                self._close_runner()
            self.runtime.flush_lanes()
            return True
        due = self.clock.next_due_ms()
        soon = due is not None and due - self.clock.monotonic_ms() <= SETTLE_MS
        self.stopped = not ready and not soon
        return False

    def _close_runner(self) -> None:
        closing = self.runner.close(0.0)
        try:
            closing.send(None)
        except StopIteration:
            return
        raise AssertionError("the scripted runner never waits")

    def _user_step_now(self) -> None:
        """What is said now is given now."""
        self._user_step()
        while (posted := self._to_give()) is not None:
            self._give(posted)

    def _tell(self, alias: Alias) -> None:
        """The platform's word on a chat's id."""

        def learnt(error: BaseException | None) -> None:
            self._telling.discard(alias)
            if error is None and alias in self.ground.untold:
                self.ground.untold.remove(alias)
            self.points.hit(f"told {alias.new}")

        self._telling.add(alias)
        self.runtime.learn_alias(alias, learnt)

    def _switch(self) -> None:
        """The host moves a conversation; whatever becomes of it."""
        step = self.ground.switches.pop()
        sources = [SessionSource("fake", chat, user_id=f"u{chat}") for chat in (step.of, step.to)]
        of, to = (canonical_key(source, GatewayConfig(), "fake") for source in sources)
        reader = self.reader()
        bound = [event for event in reader.read(lane_log(of)) if event.type == "route/bound"]
        reader.close()
        if bound:
            self.runtime.move_session(MoveSession(bound[-1].data["session"], to, "switch", done=self._switched))

    def _switched(self, answer: MoveAnswer) -> None:
        self.points.hit(f"switched: {answer.outcome}")

    def _to_give(self) -> Posted | None:
        for posted in self.ground.platform.pending():
            if id(posted) not in self._given:
                return posted
        return None

    def _give(self, posted: Posted) -> None:
        self._given.add(id(posted))
        posted.given += 1
        receipt = self.runtime.accept(posted.event, "/", partial(self._settled, posted))
        self.receipts.append(receipt)
        self.ground.given[-1][receipt.message_id] = receipt.session_key

    def _look_who_serves(self) -> None:
        """Note where the lane that has a message now stood when it got what had been said to another."""
        for receipt in self.receipts:
            key, known = receipt.session_key, self._serving.get(receipt.message_id)
            if key != known:
                self._serving[receipt.message_id] = key
                if known is not None:
                    log = lane_log(key)
                    self.ground.joined.setdefault(log, []).append(self.witness.heads.get(log, 0))

    def _settled(self, posted: Posted, receipt: Receipt) -> None:
        """The adapter's side of ``accept``: ack what was taken; what was refused comes again."""
        if receipt.outcome == "refused":
            self.ground.refused.add(receipt.message_id)
            return
        self.points.hit(f"before ack {posted.event.message_id}")
        self.witness.acks(posted.event.message_id or "")
        self.ground.ack(posted)
        self.points.hit(f"after ack {posted.event.message_id}")

    def _redeliver(self) -> bool:
        waiting = [posted for posted in self.ground.platform.pending() if not posted.acked]
        if not waiting or self._again >= REDELIVERIES_MAX:
            return False
        self._again += 1
        self._given.difference_update(map(id, waiting))
        return True

    def _arrive(self) -> None:
        """The oldest send on its way reaches the platform, and its end is told."""
        out, done = self.sending.popleft()
        name = f"{out.delivery}.{out.part}#{out.attempt}"
        self.points.hit(f"before arrival {name}")
        try:
            message_id, error = self.ground.platform.receive(out).message_id, None
        except SendError as refused:
            message_id, error = None, refused
        self.points.hit(f"after arrival {name}")
        done(SendDone(out.delivery, out.part, message_id, error))
        self.points.hit(f"after news {name}")

    def heard(self, tell: Tell, told: Told) -> None:
        """What a turn says on its way to its lane."""
        if self.points.dead:
            return
        tell(told)
        if type(told) is TurnEnded:
            self._told_ends += 1


class WatchedRunner:
    """The scripted runner, each effect on it a point and judged by the witness."""

    def __init__(self, life: Life) -> None:
        self._life = life
        self._inner = life.runner

    def start(self, job: TurnJob, tell: Tell) -> None:
        """See TurnRunner.start."""
        life = self._life
        life.points.hit(f"before start {job.generation}")
        life.witness.starts(job)
        self._inner.start(job, partial(life.heard, tell))
        life.points.hit(f"after start {job.generation}")

    def cancel(self, lane: str, generation: int, why: str) -> None:
        """See TurnRunner.cancel."""
        life = self._life
        life.points.hit(f"before cancel {generation}")
        life.witness.cancels(lane, generation, why)
        self._inner.cancel(lane, generation, why)
        life.points.hit(f"after cancel {generation}")

    def release(self, lane: str, generation: int, calls: tuple[str, ...]) -> None:
        """See TurnRunner.release."""
        self._life.points.hit(f"before release {calls}")
        self._inner.release(lane, generation, calls)
        self._life.points.hit(f"after release {calls}")

    def proceed(self, lane: str, generation: int, calls: tuple[str, ...]) -> None:
        """See TurnRunner.proceed."""
        life = self._life
        life.points.hit(f"before proceed {calls}")
        life.witness.proceeds(lane, calls)
        self._inner.proceed(lane, generation, calls)
        life.points.hit(f"after proceed {calls}")

    def answered(self, lane: str, generation: int, token: str, value: Any) -> None:
        """See TurnRunner.answered."""
        life = self._life
        life.points.hit(f"before answer {token}")
        life.witness.answers(lane, value)
        self._inner.answered(lane, generation, token, value)
        life.points.hit(f"after answer {token}")

    def end_delegations(self, lane: str, names: tuple[str, ...]) -> None:
        """See TurnRunner.end_delegations."""
        life = self._life
        life.points.hit("before the end of work")
        life.witness.ends_work(names)
        self._inner.end_delegations(lane, names)
        life.points.hit("after the end of work")

    def delegations(self, lane: str) -> frozenset[str]:
        """See TurnRunner.delegations."""
        return self._inner.delegations(lane)

    def output(self, lane: str, name: str) -> str:
        """See TurnRunner.output."""
        return self._inner.output(lane, name)

    def compress(self, lane: str, session: str, history: Sequence[Message], done: Summed) -> None:
        """See TurnRunner.compress: no script can."""
        done(None, UNABLE)

    def evict(self, lane: str, done: Callable[[int], object] | None = None) -> int:
        """See TurnRunner.evict."""
        return self._inner.evict(lane, done)

    async def close(self, grace_s: float) -> None:
        """See TurnRunner.close."""
        await self._inner.close(grace_s)


class _Tools(list[Ran]):
    """Where the scripted runner notes a tool that runs: points before and after it."""

    def __init__(self, life: Life) -> None:
        super().__init__()
        self._life = life

    def append(self, ran: Ran) -> None:
        life = self._life
        life.points.hit(f"before tool {ran.call}")
        life.witness.runs(ran)
        life.ground.tools.append(ran)
        super().append(ran)
        life.points.hit(f"after tool {ran.call}")


class WatchedSender:
    """The delivery's port: a send is on its way until the driver lets it arrive."""

    def __init__(self, life: Life) -> None:
        self._life = life

    def send(self, out: Outbound, done: Callable[[SendDone], None]) -> None:
        """See Sender.send."""
        life = self._life
        life.points.hit(f"before send {out.delivery}.{out.part}#{out.attempt}")
        life.witness.sends(out)
        life.sending.append((out, done))
        life.points.hit(f"after send {out.delivery}.{out.part}#{out.attempt}")

    def channel(self, target: Target) -> Channel:
        """See Sender.channel."""
        able = self._life.ground.platform.capabilities
        return Channel(
            True, able.idempotent_send, able.text_max, able.text_unit, able.multiline, able.lookup, able.edit
        )

    def typing(self, target: Target) -> None:
        """See showing.Shower.typing: no scenario's platform can."""


class _SlowWriter(SimulationDispatcher):
    """Lets the writer's actor go only when nobody else can."""

    @property
    def only_writer(self) -> bool:
        """Whether he alone has something to do."""
        return all(box.name == "persistence" for box in self._ready)

    def _draw(self) -> Any:
        ready = self._ready
        others = [at for at, box in enumerate(ready) if box.name != "persistence"]
        chosen = others[int(self._random() * len(others))] if others else 0
        return ready.pop(chosen)


def _kinds(commits: Any) -> str:
    events = [event.type for commit in commits for part in commit.parts for event in part.events]
    return " ".join(dict.fromkeys(events))
