"""Broken variants of the shipped core, each by patching a module: what watches the core must catch every one.

The crash enumerator on SQLite uses the same list. Inside ``planted(name)`` the core is broken that way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from attrs import evolve, frozen

import seriatim.commands
import seriatim.decide
import seriatim.lane
import seriatim.queueing
from seriatim.batch import Batch, Now
from seriatim.commits import Outcome, Refused, Unknown
from seriatim.effects import Nack, Permit
from seriatim.errors import KeysTakenError, StoreUnhealthyError
from seriatim.events import Data, Event
from seriatim.gate import Gate, Out
from seriatim.lane import LaneState, PartState
from seriatim.mail import Inbound, Mail
from seriatim.queueing import Entry
from seriatim.storage.memory import MemoryStore
from seriatim.turn import TurnEnded


@frozen
class Patch:
    """One attribute (or one entry of a table) that is replaced."""

    owner: Any
    name: Any
    value: Any

    def swap(self) -> Patch:
        """Put it in; what was there before, for putting it back."""
        if isinstance(self.owner, dict):
            before = self.owner[self.name]
            self.owner[self.name] = self.value
        else:
            before = self.owner.__dict__[self.name]
            setattr(self.owner, self.name, self.value)
        return evolve(self, value=before)


Mutant = Callable[[], list[Patch]]


@contextmanager
def planted(name: str) -> Iterator[None]:
    """The core with the mutant ``name`` in it."""
    before = [patch.swap() for patch in MUTANTS[name]()]
    try:
        yield
    finally:
        for patch in reversed(before):
            patch.swap()


# --- the three that review.md calls weakly caught ---------------------------------------------------------


def _doubt_forgotten() -> list[Patch]:
    """A sure failure of the latest attempt makes the next one unmarked, whatever came before."""

    def doubts(part: PartState) -> int:
        return 0 if part.last_failed else part.attempts + part.first - part.failures

    return [Patch(PartState, "doubts", property(doubts))]


def _turn_result_refusable() -> list[Patch]:
    """A refused commit loses the turn's end in it."""
    whole = Gate._unavailable

    def unavailable(gate: Gate, mail: list[Mail], now: Now, out: Out) -> None:
        whole(gate, [m for m in mail if type(m) is not TurnEnded], now, out)

    return [Patch(Gate, "_unavailable", unavailable)]


def _no_fence() -> list[Patch]:
    """A dead incarnation's queued commit may land after its successor has read the log."""

    def fence(store: MemoryStore, lane: str, incarnation: int) -> None:
        """Nothing."""

    return [Patch(MemoryStore, "fence", fence)]


# --- the gate ---------------------------------------------------------------------------------------------


def _effects_before_durable() -> list[Patch]:
    """Effects leave when their commit is offered."""
    whole = Gate._advance

    def advance(gate: Gate, now: Now, out: Out) -> None:
        whole(gate, now, out)
        if out.commit is not None and gate._batch is not None:
            permit = Permit(out.commit.id, gate.lane, gate.incarnation)
            out.effects.extend((permit, effect) for effect in gate._batch.after)
            gate._batch.after = []

    return [Patch(Gate, "_advance", advance)]


def _unknown_as_refused() -> list[Patch]:
    """Unknown is taken for surely absent."""
    whole = Gate.settled

    def settled(gate: Gate, outcome: Outcome, now: Now) -> Out:
        if isinstance(outcome, Unknown):
            outcome = Refused(outcome.commit, StoreUnhealthyError(outcome.reason))
        return whole(gate, outcome, now)

    return [Patch(Gate, "settled", settled)]


def _unknown_as_crash() -> list[Patch]:
    """Unknown ends the incarnation, and its turn with it."""
    whole = Gate.settled

    def settled(gate: Gate, outcome: Outcome, now: Now) -> Out:
        out = whole(gate, outcome, now)
        if isinstance(outcome, Unknown):
            out.lost = True
        return out

    return [Patch(Gate, "settled", settled)]


def _duplicate_as_nack() -> list[Patch]:
    """A message that was accepted before is refused instead of acknowledged."""
    whole = Gate._refused

    def refused(gate: Gate, outcome: Refused, now: Now, out: Out) -> None:
        if isinstance(outcome.error, KeysTakenError):
            taken = set(outcome.keys_found)
            for m in gate._mail:
                if isinstance(m, Inbound) and m.key in taken:
                    out.internal.append(Nack(m.id, "duplicate"))
            gate._mail = [m for m in gate._mail if not (isinstance(m, Inbound) and m.key in taken)]
            outcome = Refused(outcome.commit, StoreUnhealthyError("again"))
        whole(gate, outcome, now, out)

    return [Patch(Gate, "_refused", refused)]


def _refusal_stops_the_stash() -> list[Patch]:
    """After a refusal what waits in the stash is left lying."""
    whole = Gate._refused

    def refused(gate: Gate, outcome: Refused, now: Now, out: Out) -> None:
        over, gate._over = gate._over, True
        whole(gate, outcome, now, out)
        gate._over = over or out.stale or out.lost or out.failed is not None

    return [Patch(Gate, "_refused", refused)]


def _offered_twice() -> list[Patch]:
    """A commit in flight is offered again by any tick, not only after Unknown."""

    def tick(gate: Gate, now: Now) -> Out:
        out = Out()
        if gate._in_flight is not None:
            out.commit = gate._in_flight
        else:
            gate._advance(now, out)
        out.wake_at = gate._wake_at()
        return out

    def wake_at(gate: Gate) -> int | None:
        if gate._in_flight is not None and gate._retry_at is not None:
            gate._retry_at += 60
            return gate._retry_at
        return gate._retry_at if gate._lazy_at is None else min(gate._lazy_at, gate._retry_at or gate._lazy_at)

    return [Patch(Gate, "tick", tick), Patch(Gate, "_wake_at", wake_at)]


def _slot_kept_on_refusal() -> list[Patch]:
    """A refused commit keeps the turn slot that it took."""
    whole = Gate.settled

    def settled(gate: Gate, outcome: Outcome, now: Now) -> Out:
        if isinstance(outcome, Refused) and gate._batch is not None:
            gate._batch.slots_taken = 0
        return whole(gate, outcome, now)

    return [Patch(Gate, "settled", settled)]


def _slot_kept_at_the_end() -> list[Patch]:
    """A turn's end doesn't return its slot."""

    def return_slot(batch: Batch) -> None:
        """Nothing."""

    return [Patch(Batch, "return_slot", return_slot)]


# --- the rules --------------------------------------------------------------------------------------------


def _duplicate_in_a_batch() -> list[Patch]:
    """The same message twice in one commit is accepted twice."""
    whole = seriatim.decide._RULES[Inbound]

    def inbound(batch: Batch, m: Inbound) -> None:
        batch.keys.pop(m.key, None)
        whole(batch, m)

    return [Patch(seriatim.decide._RULES, Inbound, inbound)]


def _late_result_taken() -> list[Patch]:
    """A stopped turn's result ends whichever turn runs now."""
    whole = seriatim.decide._RULES[TurnEnded]

    def turn_ended(batch: Batch, m: TurnEnded) -> None:
        running = batch.state.running
        whole(batch, m if running is None else evolve(m, generation=running.generation))

    return [Patch(seriatim.decide._RULES, TurnEnded, turn_ended)]


def _queue_items_merged() -> list[Patch]:
    """A /queue item joins another one."""

    def join_target(queue: list[Entry], entry: Entry) -> int:
        return len(queue) - 1 if queue and queue[-1].kind == entry.kind else -2

    return [
        Patch(seriatim.queueing, "join_target", join_target),
        Patch(seriatim.lane, "join_target", join_target),
    ]


def _second_interruption_forgets_the_first() -> list[Patch]:
    """An interrupted turn that waits for the next message is forgotten when another is interrupted."""

    def interrupted(state: LaneState, data: Data, event: Event) -> None:
        state.interrupted = () if state.running is None else (state.running,)
        state.running = None
        state.interruptions += 1

    return [Patch(seriatim.lane._LANE_RULES, "inbox/interrupted", interrupted)]


def _stop_abandons_what_was_sent() -> list[Patch]:
    """/stop gives up parts whose first attempt was recorded with the debt."""
    whole = seriatim.commands._abandon_unsent

    def abandon_unsent(batch: Batch) -> None:
        state = batch.state
        for owed in list(state.owed.values()):
            state.owed[owed.id] = evolve(owed, states=tuple(evolve(part, first=False) for part in owed.states))
        whole(batch)

    return [Patch(seriatim.commands, "_abandon_unsent", abandon_unsent)]


def _wakes_dropped_by_stop() -> list[Patch]:
    """The queue loses its head at /stop without a word in the log."""
    whole = seriatim.commands.COMMANDS["stop"]

    def stop(batch: Batch, m: Inbound) -> None:
        if batch.state.queue and batch.state.queue[0].kind == "wake":
            del batch.state.queue[0]
        whole(batch, m)

    return [Patch(seriatim.commands.COMMANDS, "stop", stop)]


def _never_given_up() -> list[Patch]:
    """Doubtful attempts go on without bound, unmarked after the first."""

    def doubts(part: PartState) -> int:
        return min(part.attempts + part.first - part.failures, 1) if part.attempts < 2 else 0

    return [Patch(PartState, "doubts", property(doubts))]


MUTANTS: Final[dict[str, Mutant]] = {
    "doubt about an earlier send forgotten": _doubt_forgotten,
    "turn result treated as refusable": _turn_result_refusable,
    "no fence": _no_fence,
    "effects before their commit": _effects_before_durable,
    "Unknown taken for refused": _unknown_as_refused,
    "Unknown taken for a crash": _unknown_as_crash,
    "duplicate nacked": _duplicate_as_nack,
    "refusal stops the stash": _refusal_stops_the_stash,
    "commit in flight offered twice": _offered_twice,
    "slot kept on refusal": _slot_kept_on_refusal,
    "slot kept at a turn's end": _slot_kept_at_the_end,
    "duplicate accepted in a batch": _duplicate_in_a_batch,
    "late result taken": _late_result_taken,
    "/queue items merged": _queue_items_merged,
    "second interruption forgets the first": _second_interruption_forgets_the_first,
    "/stop abandons what was sent": _stop_abandons_what_was_sent,
    "queue changed without an event": _wakes_dropped_by_stop,
    "third attempt unmarked": _never_given_up,
}
"""By name. The first three are the ones that review.md found hard to catch."""
