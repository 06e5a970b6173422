"""SupervisorActor: alone starts, restarts, passivates and stops lanes.

It is the only way for mail to a lane that isn't live; a live lane is told directly (``Directory.post``). A
restart fences first, and reads the log only after the fence stands. What follows a lane's death is in ``deaths``, what
concerns two lanes at once in ``merging``. Runs on the loop dispatcher.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from attrs import frozen

from seriatim.actors.asks import Asks
from seriatim.actors.deaths import Deaths, LaneCrashed, RestartDue
from seriatim.actors.directory import Directory, Route, name_of
from seriatim.actors.lane_record import LaneRecord
from seriatim.actors.loading import BindingRead, LaneRead, LaneReader, LaneUnreadable, ReadLane
from seriatim.actors.merging import OUTCOMES, Again, AllPlaced, LearnAlias, Merger, MoveSession
from seriatim.actors.persistence import Fence, Fenced
from seriatim.actors.pooled import PooledActor
from seriatim.actors.quarantine import QuarantinedLane
from seriatim.actors.receipts import Receipts
from seriatim.actors.refs import Ref
from seriatim.actors.session import (
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
    MailboxFullError,
    SeriatimError,
)
from seriatim.events import lane_log
from seriatim.gate import Gate
from seriatim.keys import parse_session_key
from seriatim.limits import HELD_MAX, MAILBOX_MAX
from seriatim.mail import (
    Ask,
    DrainTimedOut,
    Inbound,
    Mail,
    Quarantine,
    Recover,
    at_the_door,
)
from seriatim.turn import DelegationEnded, TurnEnded


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
        self._lanes: dict[str, LaneRecord] = {}
        self._incarnations = 0
        self._lane_ports: LanePorts | None = None
        self._merger: Merger
        self._deaths = Deaths(
            ports,
            self.own_ref,
            self._lanes,
            self._fence,
            self._tell_stays,
            lambda key: self._merger.quarantined(key),  # noqa: PLW0108  (the merger is made at the start)
        )
        self._rules: dict[type[Any], Callable[[Any], None]] = {
            Route: self._route,
            Awaken: self._awaken,
            Fenced: self._fenced,
            LaneRead: self._read,
            LaneUnreadable: self._deaths.unreadable,
            LaneCrashed: self._deaths.crashed,
            Ending: self._deaths.ending,
            PassivateLane: self._passivate,
            Passivated: self._passivated,
            Stay: self._stay,
            RestartDue: self._deaths.restart_due,
            DrainTimedOut: self._to_all,
            **dict.fromkeys(
                (LearnAlias, MoveSession, BindingRead, Halted, MidTurn, Calmed, Again, AllPlaced, *OUTCOMES),
                self._pairs,
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
            self._activate(LaneRecord(message.key, 0, "reading"))
            self._merger.consider(message.key)

    def _pairs(self, message: Any) -> None:
        self._merger.take(message)

    def _next(self) -> int:
        self._incarnations += 1
        return self._incarnations

    def _bring_up(self, key: str) -> None:
        """Begin an incarnation of a lane that a job needs, or is through with."""
        self._activate(self._lanes.get(key) or LaneRecord(key, 0, "reading"))

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
            lane = LaneRecord(key, 0, "reading")
            lane.held.append(mail)
            self._activate(lane)
            self._merger.consider(key)
        elif lane.state == "live":
            assert lane.ref is not None
            self._forward(lane, mail)
        elif lane.state == "quarantined":
            self._deaths.refuse(lane, mail)
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

    def _forward(self, lane: LaneRecord, mail: Mail) -> None:
        assert lane.ref is not None
        if not isinstance(mail, (Inbound, Ask)):
            if not lane.ref.signal(mail):
                lane.held.append(mail)  # its crash is on the way to us
            return
        try:
            lane.ref.tell(mail)
        except MailboxFullError:
            if isinstance(mail, Ask):
                self._ports.asks.fail(mail.token, SeriatimError("the lane is busy; ask again later"))
            else:
                self._ports.receipts.refuse(mail.id, "lane_busy")
        except ActorDeadError:
            lane.held.append(mail)

    # --- life ------------------------------------------------------------------------------------------

    def _activate(self, lane: LaneRecord) -> None:
        """Begin an incarnation. The first in this process needs no fence: nobody has written before it."""
        if self._ports.switches.stopped:
            return
        self._lanes[lane.key] = lane
        self._ports.directory.starting.add(lane.key)
        lane.incarnation = self._next()
        self._ask_to_read(lane)

    def _fence(self, lane: LaneRecord) -> None:
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

    def _ask_to_read(self, lane: LaneRecord) -> None:
        lane.state = "reading"
        # After a restart some wait for effects that died with an incarnation: the log has what they told.
        ids: frozenset[str] = frozenset()
        if self._ports.directory.restarts:
            held = (inbound.id for mail in lane.held if (inbound := at_the_door(mail)) is not None)
            ids = frozenset((*held, *self._ports.receipts.of_lane(lane.key, self._merger.serving)))
        self._ports.reader.tell(ReadLane(lane.key, lane.incarnation, ids, self.own_ref))

    def _read(self, message: LaneRead) -> None:
        lane = self._lanes.get(message.key)
        stale = lane is None or lane.state != "reading" or lane.incarnation != message.incarnation
        if lane is None or stale or self._ports.switches.stopped:
            return
        ports = self._ports
        wanted = self._merger.wants(lane.key)
        if message.state.merged_into is not None and (not wanted or self._merger.absorbs(lane.key)):
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
        waits = not self._merger.serves(lane.key) if wanted else self._merger.is_answering(lane.key)
        halts = waits and not kept and not lane.failing
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
        told = message.found
        lane.held = [mail for mail in lane.held if (door := at_the_door(mail)) is None or door.id not in told]
        if not halts:
            self._go_live(lane)
        if lane.failing:
            self._merger.quarantined(lane.key)

    def _go_live(self, lane: LaneRecord) -> None:
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
            fresh = LaneRecord(lane.key, 0, "reading", lane.held)
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

    def _tell_stays(self, lane: LaneRecord) -> None:
        asked_by, lane.asked_by = lane.asked_by, None
        if asked_by is not None:
            asked_by.signal(StaysWarm(lane.key))
