"""When a lane's incarnation dies or can't go on: who inherits its mail, when it is followed, and when it is given up.

A part of the supervisor, in whose actor all of it runs. A successor begins after a wait that grows, and behind a fence.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from attrs import frozen

from seriatim.actors.clockwork import signal_later
from seriatim.actors.directory import key_of
from seriatim.actors.lane_record import LaneRecord
from seriatim.actors.loading import LaneUnreadable
from seriatim.actors.refs import Crash, Ref
from seriatim.actors.session import Ending
from seriatim.errors import OwnershipLostError, SeriatimError, WriteUnknownError
from seriatim.gate import REPEATABLE
from seriatim.limits import CRASHES_FORGOTTEN_MS, CRASHES_MAX, RESTART_MS, UNWIND_MS_MAX
from seriatim.mail import Ask, Inbound, Mail, PartFailed, at_the_door
from seriatim.turn import TurnEnded

if TYPE_CHECKING:
    from seriatim.actors.supervisor import SupervisorPorts

_log = logging.getLogger("seriatim.supervisor")
_FORWARDED = REPEATABLE | {PartFailed}
"""What the dead incarnation's turn has no part in. What else is told of it, its recovery has from the log."""


@frozen
class LaneCrashed:
    """A lane's actor died of an error."""

    crash: Crash


@frozen
class RestartDue:
    """The time has come to begin a lane's next incarnation."""

    key: str
    incarnation: int
    at_last: bool = False
    """Whether the turn before has had its time to unwind."""


def _end_of(generation: int, mail: Iterable[Any]) -> TurnEnded | None:
    """The end of that turn, if it is among *mail*."""
    return next((m for m in mail if type(m) is TurnEnded and m.generation == generation), None)


class Deaths:
    """Deaths of one supervisor's lanes. ``lanes`` is its table; ``fence`` begins a successor; ``stays`` tells whoever
    waits for a lane's rest that it doesn't; ``given_up`` hears of a lane that isn't served any more.
    """

    def __init__(
        self,
        ports: SupervisorPorts,
        me: Ref[Any],
        lanes: dict[str, LaneRecord],
        fence: Callable[[LaneRecord], None],
        stays: Callable[[LaneRecord], None],
        given_up: Callable[[str], None],
    ) -> None:
        self._ports = ports
        self._me = me
        self._lanes = lanes
        self._fence = fence
        self._tell_stays = stays
        self._given_up = given_up

    def unreadable(self, message: LaneUnreadable) -> None:
        """Its logs can't be read: tried again later, or given up."""
        lane = self._lanes.get(message.key)
        if lane is None or lane.state != "reading" or lane.incarnation != message.incarnation:
            return
        self._ports.on_error("lane", message.error)
        if getattr(message.error, "repeatable", False):
            lane.unread += 1
            self._back_off(lane, lane.unread)
        else:
            self._quarantine(lane)

    def _quarantine(self, lane: LaneRecord) -> None:
        """The lane can't be served, nor its user told: refuse, touch nothing, hold nobody else up."""
        lane.state = "quarantined"
        self._ports.directory.starting.discard(lane.key)
        self._ports.directory.quarantined.add(lane.key)
        held, lane.held = lane.held, []
        for mail in held:
            self.refuse(lane, mail)
        self._given_up(lane.key)

    def crashed(self, message: LaneCrashed) -> None:
        """Its actor died of an error: who waits is told what can be told, the successor gets the rest."""
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

    def _judge(self, lane: LaneRecord, message: Inbound, error: BaseException) -> list[Any]:
        """A message that kills its lane is tried once more, then refused with its reason."""
        if lane.poison is None:
            lane.poison = {}
        seen = lane.poison.get(message.id, 0)
        lane.poison[message.id] = seen + 1
        if seen:
            self._ports.receipts.refuse(message.id, f"error: {type(error).__name__}")
            return []
        return [message]

    def ending(self, message: Ending) -> None:
        """The incarnation itself says that it can't go on."""
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

    def _restart(self, lane: LaneRecord) -> None:
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

    def _back_off(self, lane: LaneRecord, times: int) -> None:
        lane.state = "backing off"
        wait = RESTART_MS[min(times, len(RESTART_MS)) - 1]
        signal_later(self._ports.clock, wait, self._me, RestartDue(lane.key, lane.incarnation))

    def _bury(self, lane: LaneRecord) -> None:
        self._tell_stays(lane)
        self._ports.directory.remove(lane.key)
        self._ports.directory.starting.add(lane.key)
        lane.ref = None
        self._ports.directory.restarts += 1

    def _leftover(self, lane: LaneRecord) -> list[Any]:
        self._tell_unsure(lane)
        gate, lane.gate = lane.gate, None
        return [] if gate is None else list(gate.leftover())

    def _tell_unsure(self, lane: LaneRecord) -> None:
        for token in () if lane.gate is None else lane.gate.unsure():
            self._ports.asks.fail(token, WriteUnknownError("the lane died while this was being written; look again"))

    def _inherit(self, lane: LaneRecord, mail: list[Any]) -> None:
        lane.held[:0] = [m for m in mail if type(m) in _FORWARDED]

    def restart_due(self, message: RestartDue) -> None:
        """The wait is over; a turn that was cancelled gets its time to unwind first."""
        lane = self._lanes.get(message.key)
        if lane is None or lane.incarnation != message.incarnation or lane.state not in ("backing off", "unwinding"):
            return
        if lane.unwinding and not message.at_last:
            lane.state = "unwinding"
            due = RestartDue(lane.key, lane.incarnation, at_last=True)
            signal_later(self._ports.clock, UNWIND_MS_MAX, self._me, due)
        else:
            self._fence(lane)

    def refuse(self, lane: LaneRecord, mail: Mail) -> None:
        """Mail for a lane in quarantine: people hear no, and reports go to who still settles the notice."""
        if (inbound := at_the_door(mail)) is not None:
            self._ports.receipts.refuse(inbound.id, "quarantined")
        elif type(mail) is Ask:
            self._ports.asks.fail(mail.token, SeriatimError("the lane is given up until the next start"))
        elif lane.ref is not None:
            lane.ref.signal(mail)
