"""SupervisorActor: alone starts, restarts, passivates and stops lanes.

It is the only way for mail to a lane that isn't live; a live lane is told directly (``Directory.post``). A
restart fences first, and reads the log only after the fence stands. Runs on the loop dispatcher.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from typing import Any, Literal

from attrs import Factory, define, frozen

from seriatim.actors.asks import Asks
from seriatim.actors.clockwork import signal_later
from seriatim.actors.loading import BindingRead, LaneRead, LaneReader, LaneUnreadable, ReadLane
from seriatim.actors.merging import OUTCOMES, Again, LearnAlias, Merger, MoveSession
from seriatim.actors.persistence import Fence, Fenced
from seriatim.actors.pooled import PooledActor
from seriatim.actors.quarantine import QuarantinedLane
from seriatim.actors.receipts import Receipts
from seriatim.actors.refs import Crash, Ref
from seriatim.actors.session import (
    FOR_SUCCESSOR,
    Calm,
    Calmed,
    Ending,
    Halted,
    LanePorts,
    MidTurn,
    Passivate,
    Passivated,
    SessionActor,
    Stay,
    Switches,
)
from seriatim.actors.slots import TurnSlots
from seriatim.actors.system import ActorSystem
from seriatim.actors.turns import TurnRunner
from seriatim.aliases import AliasTable
from seriatim.batch import Rules
from seriatim.clock import Clock
from seriatim.errors import (
    ActorDeadError,
    ActorError,
    MailboxFullError,
    OwnershipLostError,
    SeriatimError,
    WriteUnknownError,
)
from seriatim.events import lane_log
from seriatim.gate import Gate
from seriatim.keys import parse_session_key
from seriatim.limits import CRASHES_FORGOTTEN_MS, CRASHES_MAX, HELD_MAX, MAILBOX_MAX, RESTART_MS, UNWIND_MS_MAX
from seriatim.mail import (
    Ask,
    DrainTimedOut,
    Inbound,
    Mail,
    PartAbandoned,
    PartFailed,
    PartSettled,
    Quarantine,
    Recover,
)
from seriatim.pressure import Why, stays
from seriatim.turn import DelegationEnded, TurnEnded

_log = logging.getLogger("seriatim.supervisor")
_FORWARDED = frozenset({Inbound, Ask, PartSettled, PartFailed, PartAbandoned, DelegationEnded})

State = Literal[
    "fencing", "reading", "live", "halting", "parked", "passivating", "backing off", "unwinding", "quarantined"
]


@frozen
class Route:
    """Mail for a lane that was not live when it was sent; made by the directory, which counts them."""

    key: str
    mail: Mail


@frozen
class Awaken:
    """Make a lane live because it has open work."""

    key: str


@frozen
class PassivateLane:
    """Put the lane to rest if it has no open work; ``reason`` goes to its log line.

    ``asked_by`` hears Rested, once its agent's hooks are over, or StaysWarm.
    """

    key: str
    reason: str
    asked_by: Ref[Any] | None = None


@frozen
class Rested:
    """The lane has gone to rest; ``bytes`` of transcript and agent went with it."""

    key: str
    bytes: int


@frozen
class StaysWarm:
    """The lane doesn't rest now."""

    key: str


@frozen
class LaneCrashed:
    """A lane's actor died of an error."""

    crash: Crash


@frozen
class _RestartDue:
    key: str
    incarnation: int
    at_last: bool = False
    """Whether the turn before has had its time to unwind."""


def name_of(key: str, incarnation: int) -> str:
    """The name of a lane's actor."""
    return f"{lane_log(key)}#{incarnation}"


def key_of(name: str) -> str | None:
    """The lane whose actor has this name; None when it is another kind of actor."""
    return name.removeprefix("lane:").rpartition("#")[0] if name.startswith("lane:") else None


def _end_of(generation: int, mail: Iterable[Any]) -> TurnEnded | None:
    """The end of that turn, if it is among *mail*."""
    return next((m for m in mail if type(m) is TurnEnded and m.generation == generation), None)


@define
class _Lane:
    """What the supervisor knows of one lane."""

    key: str
    incarnation: int
    state: State
    held: list[Mail] = Factory(list)
    ref: Ref[Any] | None = None
    gate: Gate | None = None
    live_generation: int = 0
    crashes: int = 0
    unread: int = 0
    restarted_at: float = 0.0
    poison: dict[str, int] | None = None
    """How often it died at which message; nearly no lane ever does."""
    last: Inbound | None = None
    """The message at which it died last, if it was one."""
    failing: bool = False
    """Its next incarnation, or the one that lives, only tells the user that it is given up."""
    unwinding: int = 0
    """The generation of a cancelled turn that may still run; 0 when there is none."""
    asked_by: Ref[Any] | None = None
    """Who waits for the end of its passivation."""
    cancelled: int = 0
    """The generation that was cancelled last because its lane died: its end is no turn's end."""

    def take_over(self) -> bool:
        """End the incarnation that says it is over; what it leaves unserved stands before what came here meanwhile.

        False: it has died since it said so, and its crash, which has its mail, is on the way.
        """
        assert self.ref is not None
        assert self.gate is not None
        left = self.ref.dismiss()
        if left is None:
            return False
        self.held[:0] = [*self.gate.leftover(), *(mail for mail in left if isinstance(mail, FOR_SUCCESSOR))]
        self.ref = self.gate = None
        return True


class Directory:
    """The live lanes, and the way to any lane. Changed on the loop's thread only; ``post`` may come from any."""

    def __init__(self) -> None:
        self.live: dict[str, Ref[Any]] = {}
        self.restarts = 0
        """Incarnations that died, or had to be followed by another, in this process."""
        self.quarantined: set[str] = set()
        """Lanes that are given up until the next start."""
        self.supervisor: Ref[Any]
        self.starting: set[str] = set()
        """Lanes that are being read, fenced, or backing off."""
        self._routed: dict[str, int] = {}
        self._guard = threading.Lock()
        self._gates: dict[str, Gate] = {}

    def add(self, key: str, ref: Ref[Any], gate: Gate) -> None:
        """The lane is live: its mail goes to ``ref``."""
        self.live[key] = ref
        self._gates[key] = gate
        self.starting.discard(key)

    def remove(self, key: str) -> None:
        """The lane is not live: its mail goes to the supervisor."""
        self.live.pop(key, None)
        self._gates.pop(key, None)

    def gates(self) -> list[Gate]:
        """The live lanes' gates, to look at."""
        return list(self._gates.values())

    def stays(self, key: str) -> Why | None:
        """Why a lane wouldn't rest if it were asked now; None where it would, unless it has got mail by then."""
        gate = self._gates.get(key)
        return "not live" if gate is None else stays(gate)

    @property
    def at_rest(self) -> bool:
        """Whether no lane is starting, and no live one has mail, or anything that is not durable."""
        return (
            not self.starting
            and all(gate.quiescent() for gate in self._gates.values())
            and not any(ref.pending for ref in self.live.values())
        )

    def post(self, key: str, mail: Any) -> None:
        """Mail that reports what has happened: never refused. Any thread."""
        ref = self.live.get(key)
        # None may overtake what is still on its way through the supervisor: a call's result, say, its call.
        if ref is None or key in self._routed or not ref.signal(mail):
            self.route(key, mail)

    def submit(self, key: str, mail: Inbound | Ask) -> None:
        """Mail that keeps its order of arrival. Raises MailboxFullError."""
        ref = self.live.get(key)
        if ref is not None and key not in self._routed:
            try:
                ref.tell(mail)
            except ActorDeadError:
                pass
            else:
                return
        self._count(key, 1)
        try:
            self.supervisor.tell(Route(key, mail))
        except ActorError:
            self._count(key, -1)
            raise

    def route(self, key: str, mail: Any) -> None:
        """Mail that the supervisor has to place. Any thread."""
        self._count(key, 1)
        self.supervisor.signal(Route(key, mail))

    def routed(self, key: str) -> None:
        """The supervisor has placed a piece of it."""
        self._count(key, -1)

    def _count(self, key: str, more: int) -> None:
        with self._guard:
            count = self._routed.pop(key, 0) + more
            if count:
                self._routed[key] = count


@frozen
class SupervisorPorts:
    """What the supervisor works with. ``lane_ports`` is called once, with the supervisor's own ref."""

    system: ActorSystem
    directory: Directory
    writer: Ref[Any]
    reader: Ref[LaneReader]
    receipts: Receipts
    asks: Asks
    runner: TurnRunner
    slots: TurnSlots
    switches: Switches
    clock: Clock
    dispatcher: Any
    rules: Rules
    fresh_id: Callable[[], str]
    lane_ports: Callable[[Ref[Any]], LanePorts]
    on_error: Callable[[str, BaseException], None]
    gone: Callable[[str], None]
    """Called when a lane was put to rest."""
    aliases: AliasTable
    on_lost: Callable[[BaseException], None]
    """Called when another process has taken the store over: stop, nothing can be written any more."""


class SupervisorActor(PooledActor):
    """The directory's keeper."""

    def __init__(self, ports: SupervisorPorts) -> None:
        super().__init__()
        self._ports = ports
        self._lanes: dict[str, _Lane] = {}
        self._incarnations = 0
        self._lane_ports: LanePorts | None = None
        self._merger: Merger
        self._rules: dict[type[Any], Callable[[Any], None]] = {
            Route: self._route,
            Awaken: self._awaken,
            Fenced: self._fenced,
            LaneRead: self._read,
            LaneUnreadable: self._unreadable,
            LaneCrashed: self._crashed,
            Ending: self._ending,
            PassivateLane: self._passivate,
            Passivated: self._passivated,
            Stay: self._stay,
            _RestartDue: self._restart_due,
            DrainTimedOut: self._to_all,
            **dict.fromkeys(
                (LearnAlias, MoveSession, BindingRead, Halted, MidTurn, Calmed, Again, *OUTCOMES), self._pairs
            ),
        }

    def on_start(self) -> None:
        """Get the lanes' ports, which need this actor's ref."""
        self._lane_ports = self._ports.lane_ports(self.own_ref)
        self._merger = Merger(
            self._ports,
            self._lane_ports,
            self.own_ref,
            self._lanes,
            self._bring_up,
            self._place,
            self._go_live,
            self._next,
        )

    def on_receive(self, message: Any) -> None:
        """Each message has its method."""
        self._rules[type(message)](message)

    def _awaken(self, message: Awaken) -> None:
        if message.key not in self._lanes:
            self._activate(_Lane(message.key, 0, "reading"))
            self._merger.consider(message.key)

    def _pairs(self, message: Any) -> None:
        self._merger.take(message)

    def _next(self) -> int:
        self._incarnations += 1
        return self._incarnations

    def _bring_up(self, key: str) -> None:
        """Begin an incarnation of a lane that a job needs, or is through with."""
        self._activate(self._lanes.get(key) or _Lane(key, 0, "reading"))

    def _restart_due(self, message: _RestartDue) -> None:
        lane = self._lanes.get(message.key)
        if lane is None or lane.incarnation != message.incarnation or lane.state not in ("backing off", "unwinding"):
            return
        if lane.unwinding and not message.at_last:
            lane.state = "unwinding"
            due = _RestartDue(lane.key, lane.incarnation, at_last=True)
            signal_later(self._ports.clock, UNWIND_MS_MAX, self.own_ref, due)
        else:
            self._fence(lane)

    def _to_all(self, message: DrainTimedOut) -> None:
        for ref in self._ports.directory.live.values():
            ref.signal(message)

    # --- mail to lanes that are not live ---------------------------------------------------------------

    def _route(self, message: Route) -> None:
        self._ports.directory.routed(message.key)
        self._place(message.key, message.mail)

    def _place(self, key: str, mail: Mail) -> None:
        key = self._merger.serving(key)
        lane = self._lanes.get(key)
        if lane is None:
            lane = _Lane(key, 0, "reading")
            lane.held.append(mail)
            self._activate(lane)
            self._merger.consider(key)
        elif lane.state == "live":
            assert lane.ref is not None
            self._forward(lane, mail)
        elif lane.state == "quarantined":
            self._refuse(lane, mail)
        elif type(mail) is Inbound and len(lane.held) >= HELD_MAX:
            self._ports.receipts.refuse(mail.id, "lane_busy")
        elif type(mail) is Ask and len(lane.held) >= HELD_MAX:
            self._ports.asks.fail(mail.token, SeriatimError("the lane is busy; ask again later"))
        else:
            lane.held.append(mail)
            if type(mail) is TurnEnded and mail.generation == lane.unwinding:
                lane.unwinding = 0
                if lane.state == "unwinding":
                    self._fence(lane)

    def _refuse(self, lane: _Lane, mail: Mail) -> None:
        """Mail for a lane in quarantine: people hear no, and reports go to who still settles the notice."""
        if type(mail) is Inbound:
            self._ports.receipts.refuse(mail.id, "quarantined")
        elif type(mail) is Ask:
            self._ports.asks.fail(mail.token, SeriatimError("the lane is given up until the next start"))
        elif lane.ref is not None:
            lane.ref.signal(mail)

    def _forward(self, lane: _Lane, mail: Mail) -> None:
        assert lane.ref is not None
        if not isinstance(mail, (Inbound, Ask)):
            lane.ref.signal(mail)
            return
        try:
            lane.ref.tell(mail)
        except MailboxFullError:
            if isinstance(mail, Ask):
                self._ports.asks.fail(mail.token, SeriatimError("the lane is busy; ask again later"))
            else:
                self._ports.receipts.refuse(mail.id, "lane_busy")
        except ActorDeadError:
            lane.held.append(mail)  # its crash is on the way to us

    # --- life ------------------------------------------------------------------------------------------

    def _activate(self, lane: _Lane) -> None:
        """Begin an incarnation. The first in this process needs no fence: nobody has written before it."""
        if self._ports.switches.stopped:
            return
        self._lanes[lane.key] = lane
        self._ports.directory.starting.add(lane.key)
        lane.incarnation = self._next()
        self._ask_to_read(lane)

    def _fence(self, lane: _Lane) -> None:
        if self._ports.switches.stopped:
            return
        lane.incarnation = self._next()
        lane.state = "fencing"
        self._ports.writer.tell(Fence(lane_log(lane.key), lane.incarnation, self.own_ref))

    def _fenced(self, message: Fenced) -> None:
        lane = self._lanes.get(message.lane.removeprefix("lane:"))
        if lane is None or lane.incarnation != message.incarnation:
            return
        if lane.state == "fencing":
            self._ask_to_read(lane)
        elif lane.state == "parked":
            self._merger.fenced(lane.key)

    def _ask_to_read(self, lane: _Lane) -> None:
        lane.state = "reading"
        # After a restart some wait for effects that died with an incarnation: the log has what they told.
        ids: frozenset[str] = frozenset()
        if self._ports.directory.restarts:
            held = (mail.id for mail in lane.held if type(mail) is Inbound)
            ids = frozenset((*held, *self._ports.receipts.of_lane(lane.key, self._merger.serving)))
        self._ports.reader.tell(ReadLane(lane.key, lane.incarnation, ids, self.own_ref))

    def _read(self, message: LaneRead) -> None:
        lane = self._lanes.get(message.key)
        stale = lane is None or lane.state != "reading" or lane.incarnation != message.incarnation
        if lane is None or stale or self._ports.switches.stopped:
            return
        ports = self._ports
        wanted = self._merger.wants(lane.key)
        if message.state.merged_into is not None and not wanted:
            self._merger.follow(lane, message.state.merged_into)
            return
        lane.unread = 0
        running = message.state.running
        kept = lane.live_generation
        if kept and (lane.failing or running is None or running.generation != kept):
            ports.slots.give_back(lane.key)  # what was in flight has ended that turn: nobody else returns its slot
        assert self._lane_ports is not None
        shared = parse_session_key(lane.key).shared
        gate = Gate(lane.incarnation, message.state, ports.rules, ports.fresh_id)
        lane.gate = gate
        lane.ref = ports.system.start(
            QuarantinedLane if lane.failing else SessionActor,
            lane.key,
            gate,
            message.transcript,
            message.bookmarks,
            shared,
            self._lane_ports,
            dispatcher=ports.dispatcher,
            name=name_of(lane.key, lane.incarnation),
            mailbox_max=MAILBOX_MAX,
        )
        # One that a job only wants to rest takes no mail, unless a turn runs that its mail may concern.
        halts = wanted and not kept and not lane.failing and not self._merger.serves(lane.key)
        lane.state = "quarantined" if lane.failing else "halting"
        if wanted and not lane.failing:
            self._merger.reborn(lane.key)
            lane.ref.signal(Calm(lane.incarnation, starting=True))
        if lane.failing:
            lane.ref.signal(Quarantine(lane.last))
        else:
            # What has ended meanwhile says so itself, by mail that is held.
            ended = {mail.id for mail in lane.held if type(mail) is DelegationEnded}
            works = ports.runner.delegations(lane.key) | ended
            lane.ref.signal(Recover(live_generation=lane.live_generation, delegations=works))
        lane.live_generation = 0
        self._tell_found(message)
        lane.held = [mail for mail in lane.held if type(mail) is not Inbound or mail.id not in message.found]
        if not halts:
            self._go_live(lane)
        if lane.failing:
            self._merger.quarantined(lane.key)

    def _go_live(self, lane: _Lane) -> None:
        """Its mail goes to its actor from now on."""
        assert lane.ref is not None
        assert lane.gate is not None
        if lane.state != "quarantined":
            lane.state = "live"
        self._ports.directory.add(lane.key, lane.ref, lane.gate)
        held, lane.held = lane.held, []
        for mail in held:
            self._forward(lane, mail)

    def _tell_found(self, message: LaneRead) -> None:
        for inbox_id, end in message.found.items():
            self._ports.receipts.found(inbox_id, message.state.bound, end)

    def _unreadable(self, message: LaneUnreadable) -> None:
        lane = self._lanes.get(message.key)
        if lane is None or lane.state != "reading" or lane.incarnation != message.incarnation:
            return
        self._ports.on_error("lane", message.error)
        if getattr(message.error, "repeatable", False):
            lane.unread += 1
            self._back_off(lane, lane.unread)
        else:
            self._quarantine(lane)

    def _quarantine(self, lane: _Lane) -> None:
        """The lane can't be served, nor its user told: refuse, touch nothing, hold nobody else up."""
        lane.state = "quarantined"
        self._ports.directory.starting.discard(lane.key)
        self._ports.directory.quarantined.add(lane.key)
        held, lane.held = lane.held, []
        for mail in held:
            self._refuse(lane, mail)
        self._merger.quarantined(lane.key)

    # --- death -----------------------------------------------------------------------------------------

    def _crashed(self, message: LaneCrashed) -> None:
        crash = message.crash
        self._ports.on_error(crash.name, crash.error)
        lane = self._lanes.get(key_of(crash.name) or "")
        if lane is None or lane.ref is not crash.ref:
            return
        running = lane.gate.durable.running if lane.gate is not None else None
        wanted = running is not None and running.generation != lane.cancelled
        ended = _end_of(running.generation, crash.signals) if running is not None and wanted else None
        if running is not None and ended is not None:
            lane.live_generation = running.generation  # its end is kept: nothing runs a second time
        elif running is not None:
            assert lane.gate is not None
            told = type(crash.message) is TurnEnded or lane.gate.heard(TurnEnded)
            if wanted:
                lane.cancelled, lane.unwinding = running.generation, 0 if told else running.generation
            self._ports.runner.cancel(lane.key, running.generation, "the lane's actor crashed")
        self._bury(lane)
        self._ports.slots.give_back_all(lane.key, but=0 if ended is None else 1)
        struck = [crash.message]
        if type(crash.message) is Inbound:
            lane.last = crash.message
            struck = self._judge(lane, crash.message, crash.error)
        elif type(crash.message) is Ask and lane.gate is not None and crash.message.token in lane.gate.unsure():
            struck = []  # told by its commit's fate, below
        elif type(crash.message) is Ask:
            self._ports.asks.fail(crash.message.token, SeriatimError(f"the lane died of it: {crash.error!r}"))
            struck = []
        # As it came in: what the gate had taken, what was being handled, what still waited.
        self._inherit(lane, [*self._leftover(lane), *struck, *crash.signals, *crash.mail])
        if ended is not None:
            lane.held.append(ended)
        self._restart(lane)

    def _judge(self, lane: _Lane, message: Inbound, error: BaseException) -> list[Any]:
        """A message that kills its lane is tried once more, then refused with its reason."""
        if lane.poison is None:
            lane.poison = {}
        seen = lane.poison.get(message.id, 0)
        lane.poison[message.id] = seen + 1
        if seen:
            self._ports.receipts.refuse(message.id, f"error: {type(error).__name__}")
            return []
        return [message]

    def _ending(self, message: Ending) -> None:
        lane = self._lanes.get(message.key)
        if lane is None or lane.incarnation != message.incarnation or lane.ref is None:
            return
        self._tell_unsure(lane)
        if not lane.take_over():  # the turn goes on, so its words count too
            return
        self._bury(lane)
        lane.live_generation = message.live_generation
        self._ports.slots.give_back_all(lane.key, but=1 if message.live_generation else 0)
        if message.lost:
            if message.live_generation:
                self._ports.runner.cancel(lane.key, message.live_generation, "another process has taken over")
            self._ports.runner.evict(lane.key)
            self._quarantine(lane)
            self._ports.on_lost(OwnershipLostError("another process writes to this store; this one has to stop"))
        else:
            _log.warning("a lane's logs are not where it believed; they are folded again")
            self._restart(lane)

    def _restart(self, lane: _Lane) -> None:
        """Fence and read again, after a wait that grows; a lane that keeps dying is given up, and its user told."""
        if lane.failing:
            self._quarantine(lane)
            return
        now = self._ports.clock.monotonic_ms()
        if now - lane.restarted_at > CRASHES_FORGOTTEN_MS:
            lane.crashes = 0
        lane.restarted_at = now
        lane.crashes += 1
        if lane.crashes > CRASHES_MAX:
            # Read once more all the same: what the last incarnation had in flight may be durable.
            lane.failing = True
            self._ports.directory.quarantined.add(lane.key)
        self._back_off(lane, lane.crashes)

    def _back_off(self, lane: _Lane, times: int) -> None:
        lane.state = "backing off"
        wait = RESTART_MS[min(times, len(RESTART_MS)) - 1]
        signal_later(self._ports.clock, wait, self.own_ref, _RestartDue(lane.key, lane.incarnation))

    def _bury(self, lane: _Lane) -> None:
        self._tell_stays(lane)
        self._ports.directory.remove(lane.key)
        self._ports.directory.starting.add(lane.key)
        lane.ref = None
        self._ports.directory.restarts += 1

    def _leftover(self, lane: _Lane) -> list[Any]:
        self._tell_unsure(lane)
        gate, lane.gate = lane.gate, None
        return [] if gate is None else list(gate.leftover())

    def _tell_unsure(self, lane: _Lane) -> None:
        for token in () if lane.gate is None else lane.gate.unsure():
            self._ports.asks.fail(token, WriteUnknownError("the lane died while this was being written; look again"))

    def _inherit(self, lane: _Lane, mail: list[Any]) -> None:
        lane.held[:0] = [m for m in mail if type(m) in _FORWARDED]

    # --- rest ------------------------------------------------------------------------------------------

    def _passivate(self, message: PassivateLane) -> None:
        lane = self._lanes.get(message.key)
        if lane is None or lane.state != "live" or lane.ref is None or self._merger.wants(lane.key):
            if message.asked_by is not None:
                message.asked_by.signal(StaysWarm(message.key))
            return
        lane.asked_by = message.asked_by
        try:
            # Behind the data mail that is already there, so that none of it is left unserved.
            lane.ref.tell(Passivate(lane.incarnation, message.reason))
        except (MailboxFullError, ActorDeadError):
            self._tell_stays(lane)
            return
        lane.state = "passivating"
        self._ports.directory.remove(lane.key)

    def _passivated(self, message: Passivated) -> None:
        lane = self._lanes.get(message.key)
        if lane is None or lane.incarnation != message.incarnation or lane.ref is None:
            return
        if not lane.take_over():
            return
        # It may still wait for a slot that it no longer needs; a grant to the dead would wake nobody.
        self._ports.slots.give_back_all(lane.key)
        asked_by, warm_bytes = lane.asked_by, message.bytes
        self._ports.runner.evict(
            lane.key,
            None if asked_by is None else lambda agent: asked_by.signal(Rested(lane.key, warm_bytes + agent)),
        )
        self._ports.gone(lane.key)
        del self._lanes[lane.key]
        if lane.held or self._merger.wants(lane.key):
            fresh = _Lane(lane.key, 0, "reading", lane.held)
            self._activate(fresh)

    def _stay(self, message: Stay) -> None:
        lane = self._lanes.get(message.key)
        if lane is None or lane.incarnation != message.incarnation or lane.ref is None or lane.gate is None:
            return
        self._tell_stays(lane)
        lane.state = "live"
        self._ports.directory.add(lane.key, lane.ref, lane.gate)
        held, lane.held = lane.held, []
        for mail in held:
            self._forward(lane, mail)

    def _tell_stays(self, lane: _Lane) -> None:
        asked_by, lane.asked_by = lane.asked_by, None
        if asked_by is not None:
            asked_by.signal(StaysWarm(lane.key))
