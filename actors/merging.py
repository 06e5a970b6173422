"""The supervisor's work on two lanes at once: merging them when their ids turn out to be one, and moving a session.

Each job halts the lanes that it concerns (no turn starts there any more, a running one is waited for), fences them,
writes one commit over both logs, and lets them live again from what the logs then tell. Mail for a halted lane waits
with the supervisor; that for a lane which has gone into another follows it. All of it runs in the supervisor's actor.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, Literal

from attrs import Factory, define, evolve, frozen

from seriatim.actors.clockwork import signal_later
from seriatim.actors.loading import BindingRead, ReadBinding
from seriatim.actors.persistence import Fence
from seriatim.actors.refs import Ref
from seriatim.actors.session import Calm, Calmed, Halt, Halted, MidTurn, Unhalt
from seriatim.aliases import ALIASES, Alias
from seriatim.batch import Now
from seriatim.commits import Commit, Durable, Outcome, Part, Refused, Unknown
from seriatim.effects import Ack, Finished
from seriatim.errors import SeriatimError, StoreUnhealthyError
from seriatim.events import FORMAT_VERSION, Event, lane_log
from seriatim.lane import LaneState
from seriatim.limits import COMMIT_RETRY_MS
from seriatim.mail import Inbound, Mail, MoveRefused
from seriatim.merging import Pair, merge, move
from seriatim.model import Target
from seriatim.outbox import Channel

if TYPE_CHECKING:
    from seriatim.actors.lane_record import LaneRecord
    from seriatim.actors.session import LanePorts
    from seriatim.actors.supervisor import SupervisorPorts

_log = logging.getLogger("seriatim.merging")

MoveOutcome = Literal["moved", "same", "busy", "changed", "unknown", "unavailable"]


@frozen
class LearnAlias:
    """Record that two ids mean the same, and merge the lanes that this makes one.

    ``done`` is called when it is durable (the merges may take longer: a running turn is waited for), or with the error.
    """

    alias: Alias
    done: Callable[[BaseException | None], None]


@frozen
class MoveAnswer:
    """What became of a move. ``session``: the one that the lane is bound to now; ``previous``: the one before."""

    outcome: MoveOutcome
    session: str | None = None
    previous: str | None = None


@frozen
class MoveSession:
    """Bind ``session`` to the lane ``to``, whichever lane has it now.

    Neither lane may be mid-turn: then the answer is busy, at once. Moves of one lane are made one after another.
    ``expected_session``: the move is refused as changed unless ``to`` is bound to it. ``command``: a message that no
    lane has accepted yet; the commit accepts it and answers it with ``text``. Where nothing is moved, ``to`` gets
    MoveRefused with it.
    """

    session: str
    to: str
    reason: str
    expected_session: str | None = None
    command: Inbound | None = None
    text: str = ""
    done: Callable[[MoveAnswer], None] | None = None


@frozen
class Again:
    """The time has come to offer a commit once more."""

    commit: str


@frozen
class AllPlaced:
    """All that was said before a merge was through is placed."""

    into: str


OUTCOMES: Final = (Durable, Refused, Unknown)
"""What the writer tells of commits."""


@define(eq=False)
class _Job:
    """One job. ``keys``: its lanes; ``rest``: lanes that are still to go into ``into``; ``order``: a move instead."""

    into: str
    keys: tuple[str, ...]
    rest: list[str] = Factory(list)
    order: MoveSession | None = None
    holder: str | None = None
    serving: bool = False
    """A turn runs in one of them: until it has ended, all of them take mail."""
    calm: set[str] = Factory(set)
    halting: bool = False
    states: dict[str, LaneState] = Factory(dict)
    fenced: set[str] = Factory(set)
    pair: Pair | None = None
    tries: int = 0


class Merger:
    """Merges and moves for one supervisor. ``lanes`` is its table; ``place`` gives mail to a lane by key."""

    def __init__(
        self,
        ports: SupervisorPorts,
        lane_ports: LanePorts,
        me: Ref[Any],
        lanes: dict[str, LaneRecord],
        activate: Callable[[str], None],
        place: Callable[[str, Any], None],
        go_live: Callable[[LaneRecord], None],
        incarnation: Callable[[], int],
    ) -> None:
        self.aliases = ports.aliases
        self.moved: dict[str, str] = {}
        """Lanes that are known to have gone into another, or never to have been."""
        self._ports = ports
        self._lane_ports = lane_ports
        self._me = me
        self._lanes = lanes
        self._activate = activate
        self._place = place
        self._go_live = go_live
        self._incarnation = incarnation
        self._jobs: dict[str, _Job] = {}
        self._waiting: list[_Job] = []
        self._reading: dict[str, list[MoveSession]] = {}
        self._unanswered: dict[str, MoveSession] = {}
        """Moves that a lane's command asked for, by its id."""
        self._behind: list[MoveSession] = []
        """Moves whose lanes another job has: when one has ended they look again who has the session."""
        self._learning: list[LearnAlias] = []
        self._alias_commit: Commit | None = None
        self._alias_tries = 0

    def take(self, message: Any) -> None:
        """Mail to the supervisor that is this one's."""
        match message:
            case LearnAlias():
                self.learn(message)
            case MoveSession():
                if message.command is not None:
                    self._unanswered[message.command.id] = message
                self.move(message)
            case BindingRead():
                self.binding_read(message)
            case Halted():
                self.halted(message)
            case MidTurn():
                self.mid_turn(message)
            case Calmed():
                self.calmed(message)
            case Again():
                self.again(message)
            case AllPlaced(into) if into in self._jobs:
                self._end(self._jobs[into])
            case AllPlaced():
                pass
            case _:
                self.settled(message)

    def serving(self, key: str) -> str:
        """The lane that has what belongs to ``key`` now."""
        seen = {key}
        while (into := self.moved.get(key, key)) not in seen:
            seen.add(into)
            key = into
        return key

    def follow(self, lane: LaneRecord, into: str) -> None:
        """A lane turns out to have gone into another, in an earlier process: it is never served, by no job either."""
        self._goes_into(lane.key, into)
        job = self._jobs.pop(lane.key, None)
        if job is not None:
            job.keys = tuple(key for key in job.keys if key != lane.key)
            job.rest.remove(lane.key)
        self._hand_on(lane)
        if job is not None and job.rest:
            self._halt_calm(job)
        elif job is not None:
            self._end(job)

    def _goes_into(self, gone: str, into: str) -> None:
        """Another lane has what is said under ``gone``; who waits for a message of it waits for that lane's word."""
        self.moved[gone] = into
        self._ports.receipts.moved(gone, into)

    # --- aliases ---------------------------------------------------------------------------------------

    def learn(self, message: LearnAlias) -> None:
        """Make an alias durable; one at a time, so that the table's log has one writer and one head."""
        self._learning.append(message)
        if self._alias_commit is None:
            self._next_alias()

    def _next_alias(self) -> None:
        while self._learning and self.aliases.knows(self._learning[0].alias):
            self._learning.pop(0).done(None)
        if not self._learning:
            return
        message = self._learning[0]
        event = Event("alias/learnt", self.aliases.head, self._ports.clock.now_ms(), message.alias.to_data())
        header = None if event.seq else {"version": FORMAT_VERSION, "id": ALIASES}
        part = Part(ALIASES, event.seq, (event,), None, header)
        self._alias_commit = Commit(self._ports.fresh_id(), ALIASES, self._incarnation(), (part,))
        self._offer(self._alias_commit)

    def _alias_settled(self, outcome: Outcome) -> None:
        commit, message = self._alias_commit, self._learning[0]
        assert commit is not None
        if type(outcome) is Durable:
            self.aliases.apply(commit.parts[0].events[0])
            self._alias_tries = 0
            for key in list(self._lanes):
                self.consider(key)
            error = None
        elif type(outcome) is Unknown:
            self._retry(commit, self._alias_tries)
            self._alias_tries += 1
            return
        else:
            assert type(outcome) is Refused
            error = outcome.error
        self._learning.pop(0)
        self._alias_commit = None
        message.done(error)
        self._next_alias()

    def consider(self, key: str) -> None:
        """A lane begins to live, or an alias is new: what the table says of it is made true."""
        if not self.aliases or key in self.moved:
            return
        present = self.aliases.present(key)
        gone = [key] if present != key else [v for v in self.aliases.variants(key) if v not in self.moved]
        known = {v for job in (*self._jobs.values(), *self._waiting) if job.into == present for v in job.rest}
        if gone := [v for v in gone if v not in known]:
            self._begin(_Job(present, (present, *gone), gone))

    # --- jobs ------------------------------------------------------------------------------------------

    def wants(self, key: str) -> bool:
        """Whether a job waits for the lane to come to rest."""
        job = self._jobs.get(key)
        return job is not None and key not in job.states

    def absorbs(self, key: str) -> bool:
        """Whether a job waits for the lane in order to have it go into another."""
        job = self._jobs.get(key)
        return job is not None and key in job.rest

    def is_answering(self, key: str) -> bool:
        """Whether a command of the lane is here: what came behind it waits, also for a lane that begins anew."""
        return any(self.serving(order.to) == key for order in self._unanswered.values())

    def serves(self, key: str) -> bool:
        """Whether a lane that a job waits for takes mail meanwhile."""
        return self._jobs[key].serving

    def reborn(self, key: str) -> None:
        """A lane that a job waits for has a new incarnation."""
        self._jobs[key].calm.discard(key)

    def move(self, message: MoveSession) -> None:
        """Begin a move: ask who has the session."""
        self._reading.setdefault(message.session, []).append(message)
        self._ports.reader.tell(ReadBinding(message.session, self._me))

    def binding_read(self, message: BindingRead) -> None:
        """Go on with the moves that waited for it."""
        for order in self._reading.pop(message.session, []):
            if message.error is not None:
                self._ports.on_error("session", message.error)
                self._refuse(order, "unavailable")
            elif not message.exists:
                self._refuse(order, "unknown")
            else:
                holder = None if message.lane is None else message.lane.removeprefix("lane:")
                to = self.serving(order.to)
                away = holder is not None and holder != to and holder not in self.moved
                keys = (to, holder) if away and holder is not None else (to,)
                before = [self._jobs[key] for key in keys if key in self._jobs]
                if any(job.serving for job in before):
                    self._refuse(order, "busy")  # that one waits for the end of a turn, and a move doesn't
                elif before:
                    self._behind.append(order)
                else:
                    self._begin(_Job(to, keys, order=evolve(order, to=to), holder=holder))

    def _begin(self, job: _Job) -> None:
        if any(key in self._jobs for key in job.keys):
            self._waiting.append(job)
            return
        for key in job.keys:
            self._jobs[key] = job
        for key in job.keys:
            self._bring(key)

    def _bring(self, key: str) -> None:
        lane = self._lanes.get(key)
        if lane is None:
            self._activate(key)
        elif lane.state == "quarantined":
            self._give_up(self._jobs[key], "a lane of it is given up")
        elif lane.ref is not None:
            lane.ref.signal(Calm(lane.incarnation))

    def halted(self, message: Halted) -> None:
        """A lane has nothing left but what is durable; its actor ends."""
        lane, job = self._lanes.get(message.key), self._jobs.get(message.key)
        if lane is None or lane.ref is None or lane.incarnation != message.incarnation:
            return
        if not lane.take_over():
            return
        ports = self._ports
        ports.directory.remove(lane.key)
        ports.directory.starting.add(lane.key)
        ports.slots.give_back_all(lane.key)
        ports.runner.evict(lane.key)
        ports.gone(lane.key)
        lane.state = "parked"
        if job is None:
            self._free(lane.key, message.state)
            return
        job.states[lane.key] = message.state
        if len(job.states) == len(job.keys):
            for key in job.keys:
                held = self._lanes[key]
                held.incarnation = self._incarnation()
                ports.writer.tell(Fence(lane_log(key), held.incarnation, self._me))

    def mid_turn(self, message: MidTurn) -> None:
        """A lane can't rest yet: a move is off, a merge waits, and its lanes serve meanwhile."""
        job = self._job_of(message)
        if job is None:
            return
        if job.order is not None:
            self._end(job, MoveAnswer("busy"))
            return
        job.serving = True
        for key in job.keys:
            lane = self._lanes.get(key)
            if lane is not None and lane.state == "halting":
                self._go_live(lane)
        self._look_again()

    def calmed(self, message: Calmed) -> None:
        """A lane runs no turn any more. When none does, all are halted."""
        job = self._job_of(message)
        if job is None:
            return
        job.calm.add(message.key)
        self._halt_calm(job)

    def _halt_calm(self, job: _Job) -> None:
        """Once all of its lanes are calm, they are halted; one that comes later, at once."""
        if not job.halting and len(job.calm) == len(job.keys):
            job.halting, job.serving = True, False
        for key in job.keys if job.halting else ():
            lane = self._lanes.get(key)
            if lane is not None and lane.ref is not None and key in job.calm:
                lane.ref.signal(Halt(lane.incarnation))

    def _job_of(self, message: MidTurn | Calmed) -> _Job | None:
        lane = self._lanes.get(message.key)
        current = lane is not None and lane.incarnation == message.incarnation
        return self._jobs.get(message.key) if current else None

    def fenced(self, key: str) -> None:
        """A lane's fence stands."""
        job = self._jobs.get(key)
        if job is not None and key in job.states:
            job.fenced.add(key)
            if len(job.fenced) == len(job.keys):
                self._write(job)

    def quarantined(self, key: str) -> None:
        """A lane is given up; nobody waits for it."""
        job = self._jobs.get(key)
        if job is not None:
            self._give_up(job, "a lane of it is given up")

    def _write(self, job: _Job) -> None:
        """Offer the next commit of the job, or end it."""
        if job.order is not None:
            self._write_move(job, job.order)
            return
        while job.rest:
            gone = job.states[job.rest[0]]
            if gone.head and gone.merged_into is None:
                job.pair = merge(
                    job.states[job.into],
                    gone,
                    now_ms=self._ports.clock.now_ms(),
                    commit_id=self._ports.fresh_id(),
                    incarnation=self._lanes[job.into].incarnation,
                    chats=self.aliases.replacements(job.into),
                )
                self._offer(job.pair.commit)
                return
            self._goes_into(job.rest.pop(0), job.into)
        # Behind what was said before, and waits with the supervisor: what the lanes held stands among it as it came.
        self._me.tell(AllPlaced(job.into))

    def _write_move(self, job: _Job, order: MoveSession) -> None:
        to = job.states[job.into]
        if order.expected_session is not None and to.bound != order.expected_session:
            self._end(job, MoveAnswer("changed", to.bound))
        elif to.bound == order.session:
            self._end(job, MoveAnswer("same", to.bound))
        else:
            ports = self._lane_ports
            now = Now(ports.clock.now_ms(), ports.fresh_id, ports.session_id, lambda: False, self._later, draining=True)
            job.pair = move(
                to,
                order.session,
                job.holder,
                next((job.states[key] for key in job.keys if key != job.into), None),
                reason=order.reason,
                rules=self._ports.rules,
                now=now,
                commit_id=self._ports.fresh_id(),
                incarnation=self._lanes[job.into].incarnation,
                command=order.command,
                text=order.text,
            )
            self._offer(job.pair.commit)

    def _later(self, target: Target) -> Channel:
        """The way to a target for what is owed by a commit of ours: nobody sends it before its lane lives again."""
        return evolve(self._lane_ports.channel(target), up=False)

    def _offer(self, commit: Commit) -> None:
        self._lane_ports.writer.offer(commit, self._me)

    def _retry(self, commit: Commit, tries: int) -> None:
        wait = COMMIT_RETRY_MS[min(tries, len(COMMIT_RETRY_MS) - 1)]
        signal_later(self._ports.clock, wait, self._me, Again(commit.id))

    def again(self, message: Again) -> None:
        """Offer a commit whose fate is open, or that was refused for now, once more."""
        if self._ports.switches.stopped:
            return
        for commit in (self._alias_commit, *(job.pair.commit for job in self._active() if job.pair is not None)):
            if commit is not None and commit.id == message.commit:
                self._offer(commit)

    def settled(self, outcome: Outcome) -> None:
        """The writer's answer to a commit."""
        if self._alias_commit is not None and outcome.commit == self._alias_commit.id:
            self._alias_settled(outcome)
            return
        for job in self._active():
            if job.pair is not None and job.pair.commit.id == outcome.commit:
                self._job_settled(job, job.pair, outcome)

    def _job_settled(self, job: _Job, pair: Pair, outcome: Outcome) -> None:
        if type(outcome) is Durable:
            job.pair, job.tries = None, 0
            job.states[job.into] = pair.lane
            if job.order is None:
                gone = job.rest.pop(0)
                assert pair.other is not None
                job.states[gone] = pair.other
                self._goes_into(gone, job.into)
                _log.info("two lanes were one person's or one chat's: they are merged")
                self._write(job)
            else:
                self._moved(job, job.order, pair)
            return
        repeatable = type(outcome) is Unknown or (type(outcome) is Refused and bool(outcome.error.repeatable))
        if job.order is not None and type(outcome) is Refused:
            self._end(job, MoveAnswer("unavailable" if repeatable else "changed"))
        elif repeatable:
            self._retry(pair.commit, job.tries)
            job.tries += 1
        else:
            assert type(outcome) is Refused
            self._give_up(job, type(outcome.error).__name__, outcome.error)

    def _moved(self, job: _Job, order: MoveSession, pair: Pair) -> None:
        if pair.other is not None:
            job.states[pair.other.key] = pair.other
        if order.command is not None:
            receipts = self._ports.receipts
            receipts.accepted(Ack(order.command.id, "accepted", order.session, 0))
            receipts.finished(Finished(order.command.id, "answered", order.text, "completed"))
        previous = next((e.data.get("previous") for e in pair.commit.parts[0].events if e.type == "route/bound"), None)
        self._end(job, MoveAnswer("moved", order.session, previous))

    # --- the end of a job ------------------------------------------------------------------------------

    def _give_up(self, job: _Job, why: str, error: SeriatimError | None = None) -> None:
        if job.order is not None:
            self._end(job, MoveAnswer("unavailable"))
            return
        self._ports.on_error("merge", error or StoreUnhealthyError(f"two lanes stay apart until the next start: {why}"))
        # Not again in this process: what keeps them apart would again.
        self.moved.update({key: key for key in job.rest})
        self._end(job)

    def _end(self, job: _Job, answer: MoveAnswer | None = None) -> None:
        for key in job.keys:
            del self._jobs[key]
        # The lane that stays comes last: the mail of the others joins what it holds.
        for key in reversed(job.keys):
            lane = self._lanes.get(key)
            if lane is None:
                continue
            if lane.state == "parked":
                self._free(key, job.states[key])
            elif lane.ref is not None:
                lane.ref.signal(Unhalt(lane.incarnation))
                if lane.state == "halting":
                    self._go_live(lane)
        if job.order is not None and answer is not None:
            self._answer(job.order, answer)
        waiting, self._waiting = self._waiting, []
        for other in waiting:
            self._begin(other)
        self._look_again()

    def _look_again(self) -> None:
        behind, self._behind = self._behind, []
        for order in behind:
            self.move(order)

    def _free(self, key: str, state: LaneState) -> None:
        """A halted lane lives again if it has work or mail; one that has gone into another hands its mail on."""
        lane = self._lanes[key]
        into = self.moved.get(key, key)
        if into == key and (lane.held or state.waiting or state.owed or state.interrupted):
            lane.state = "reading"
            self._activate(key)
            return
        self._hand_on(lane)

    def _hand_on(self, lane: LaneRecord) -> None:
        """The lane isn't served any more under its key; its mail goes to who serves it."""
        held, lane.held = lane.held, []
        del self._lanes[lane.key]
        self._ports.directory.starting.discard(lane.key)
        into = self._lanes.get(self.serving(lane.key))
        if into is not None and into.state not in ("live", "quarantined"):
            into.held[:] = woven(held, into.held)  # since a lane isn't live, mail for it is told to the other
            return
        for mail in held:
            self._place(lane.key, mail)

    def _refuse(self, order: MoveSession, outcome: MoveOutcome) -> None:
        self._answer(order, MoveAnswer(outcome))

    def _answer(self, order: MoveSession, answer: MoveAnswer) -> None:
        if order.command is not None:
            self._unanswered.pop(order.command.id, None)
            if answer.outcome != "moved":
                self._place(order.to, MoveRefused(order.command, answer.outcome))
            lane = self._lanes.get(self.serving(order.to))
            if lane is not None and lane.state == "halting" and lane.key not in self._jobs:
                self._go_live(lane)
        if order.done is not None:
            order.done(answer)

    def _active(self) -> Iterable[_Job]:
        return list(dict.fromkeys(self._jobs.values()))


def woven(one: Sequence[Mail], other: Sequence[Mail]) -> list[Mail]:
    """The mail of two lanes as one's: each in its own order, and between them in that of arrival at the door.

    A report has no place in that order; it stays behind what its own lane was told before it.
    """
    return [mail for _, mail in heapq.merge(_placed(one), _placed(other), key=itemgetter(0))]


def _placed(mails: Sequence[Mail]) -> Iterator[tuple[int, Mail]]:
    latest = 0
    for mail in mails:
        if type(mail) is Inbound:
            latest = max(latest, mail.arrival)
        yield latest, mail
