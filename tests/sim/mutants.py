"""Broken variants of the shipped code: what the simulator is worth is that it finds each of them.

See ``tests.planted`` for how.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from attrs import frozen

from seriatim import batch, commands, decide, gate, lane, pressure, queueing
from seriatim.actors import deaths, delivery, directory, persistence, receipts, slots, supervisor, transcript
from seriatim.testing.chance import Plan, plan_of
from tests.planted import early


@frozen
class Bug:
    """``function`` with each ``old`` text replaced by its ``new``; ``likely``: plans under which it should show."""

    name: str
    function: Any
    changes: tuple[tuple[str, str], ...]
    likely: Callable[[Plan], object] = lambda plan: True

    def seeds(self, count: int) -> list[int]:
        """The first ``count`` seeds, likely ones first."""
        return sorted(range(count), key=lambda seed: not self.likely(plan_of(seed)))


_doubts: Any = lane.PartState.doubts


def _crashes(plan: Plan) -> bool:
    return plan.lane_crash > 0


def _rests(plan: Plan) -> bool:
    return plan.rests > 0 or plan.warm == 1


def _refusals(plan: Plan) -> bool:
    return plan.refused > 0 or plan.outage > 0


def _unknowns(plan: Plan) -> bool:
    return plan.unknown > 0 and not plan.lane_crash


def _slow(plan: Plan) -> bool:
    return plan.writer < 1


def _few_slots(plan: Plan) -> bool:
    return plan.slots == 1 and plan.lanes > 1


def _bad_sends(plan: Plan) -> bool:
    return plan.bad_send > 0 and not plan.able.idempotent_send


BUGS: Final = (
    # The eight that every simulator of such a runtime has to find.
    Bug(
        "lost update",
        persistence.PersistenceActor._write,
        (
            (
                "self._store.commit(commits)",
                "self._store.commit(commits[:1]) + [Durable(commit.id) for commit in commits[1:]]",
            ),
        ),
        lambda plan: plan.writer < 1 and plan.lanes > 1,
    ),
    Bug("stale revive", gate.Gate.quiescent, (("self._in_flight or ", ""),), _rests),
    Bug(
        "double activation",
        supervisor.SupervisorActor._place,
        (
            (
                'elif lane.state == "live":',
                (
                    'elif lane.state == "passivating":\n'
                    '        self._activate(_Lane(key, 0, "reading", deque([*lane.held, mail])))\n'
                    '    elif lane.state == "live":'
                ),
            ),
        ),
        _rests,
    ),
    Bug("promote race", decide.start_next, (("state.running is not None or ", ""),)),
    Bug("missed wake", slots.TurnSlots.give_back, (("self._serve()", "pass"),), _few_slots),
    Bug("overtaking", directory.Directory.submit, ((" and key not in self._routed", ""),)),
    Bug(
        "late finish of a fenced turn",
        decide._turn_ended,
        (("running is None or running.generation != m.generation", "running is None"),),
    ),
    Bug("ack before durable", gate.Gate._stage, early("Ack"), _slow),
    # The rest of law 2.
    Bug("turn before durable", gate.Gate._stage, early("RunTurn"), _slow),
    Bug("send before durable", gate.Gate._stage, early("Deliver"), _slow),
    Bug("cancel before durable", gate.Gate._stage, early("CancelTurn"), _slow),
    # The gate.
    Bug(
        "turn result treated as refusable",
        gate.Gate._unavailable,
        (("self._kept.append(message)", "type(message) is TurnEnded or self._kept.append(message)"),),
        _refusals,
    ),
    Bug(
        "Unknown taken for refused",
        gate.Gate.settled,
        (
            ("elif type(outcome) is Unknown:", "elif False:"),
            (
                "assert type(outcome) is Refused",
                (
                    "from seriatim.errors import StoreUnhealthyError; "
                    "outcome = outcome if type(outcome) is Refused else Refused(commit.id, StoreUnhealthyError(''))"
                ),
            ),
        ),
        _unknowns,
    ),
    Bug("Unknown taken for a crash", gate.Gate.settled, (("self._unknown = True", "out.stale = True"),), _unknowns),
    Bug(
        "duplicate nacked",
        gate.Gate._refused,
        (("AckDuplicate(message.id)", "Nack(message.id, 'duplicate')"),),
        lambda plan: plan.repeats,
    ),
    Bug(
        "refusal stops the stash",
        gate.Gate._refused,
        (("self._hopeless(mail, error, out)\n    self._advance(now, out)", "self._hopeless(mail, error, out)"),),
        lambda plan: plan.refused and plan.writer < 1,
    ),
    Bug("kept mail is overtaken", gate.Gate._gather, (("elif self._kept:", "elif False:"),), _refusals),
    Bug(
        "slot kept on refusal",
        gate.Gate.settled,
        (("out.slots_back += batch.slots_taken", "pass"),),
        lambda plan: plan.refused and plan.slots == 1,
    ),
    Bug("slot kept at a turn's end", batch.Batch.return_slot, (("self.after.append(ReturnSlot(silent))", "pass"),)),
    # The rules.
    Bug(
        "duplicate accepted in a batch",
        decide._inbound,
        (("if m.key and m.key in batch.keys:", "if False:"),),
        lambda plan: plan.repeats and plan.writer < 1,
    ),
    Bug("/queue items merged", queueing.join_target, (('if entry.kind == "human"', "if True"),)),
    Bug(
        "second interruption forgets the first",
        lane._interrupted,
        (("state.interrupted += (state.running,)", "state.interrupted = (state.running,)"),),
        lambda plan: plan.rules.freshness_ms < 1_000 and plan.process_crash,
    ),
    Bug(
        "/stop abandons what was sent",
        commands._abandon_unsent,
        ((" and not part.first", ""),),
        _bad_sends,
    ),
    Bug(
        "queue changed without an event",
        commands._stop,
        (
            (
                "accept_command(batch, m)",
                "accept_command(batch, m); state.queue and state.queue[0].kind == 'wake' and state.queue.pop(0)",
            ),
        ),
    ),
    Bug("doubt about an earlier send forgotten", _doubts, (("return self", "return 0 if self.last_failed else self"),)),
    Bug("third attempt unmarked", _doubts, (("return self", "return 0 if self.attempts > 1 else self"),), _bad_sends),
    # Lives of lanes.
    Bug(
        "no fence",
        supervisor.SupervisorActor._fence,
        (
            (
                "self._ports.writer.tell(Fence(lane_log(lane.key), lane.incarnation, self.own_ref))",
                "self._ask_to_read(lane)",
            ),
        ),
        lambda plan: plan.lane_crash and plan.writer < 1,
    ),
    Bug(
        "a dead lane's mail is forgotten",
        deaths.Deaths.crashed,
        (("[*self._leftover(lane), *struck, *crash.signals, *crash.mail]", "[]"),),
        _crashes,
    ),
    Bug(
        "a dead lane's last message goes first",
        deaths.Deaths.crashed,
        (("*self._leftover(lane), *struck,", "*struck, *self._leftover(lane),"),),
        _crashes,
    ),
    Bug(
        "a dead lane's turn runs on",
        deaths.Deaths.crashed,
        (("if running is not None:", "if False:"),),
        _crashes,
    ),
    Bug(
        "a turn that a crash cut short counts as ended",
        deaths.Deaths.crashed,
        ((" and running.generation != lane.cancelled", ""),),
        _crashes,
    ),
    Bug(
        "a dead lane keeps its slots",
        deaths.Deaths.crashed,
        (("self._ports.slots.give_back_all(lane.key, but=0 if ended is None else 1)", "pass"),),
        _crashes,
    ),
    Bug(
        "quarantined before the truth is known",
        deaths.Deaths._restart,
        (
            (
                "self._back_off(lane, lane.crashes)",
                "self._quarantine(lane) if lane.failing else self._back_off(lane, lane.crashes)",
            ),
        ),
        lambda plan: plan.lane_crash > 0.03 and plan.writer < 1,
    ),
    Bug(
        "mail held while a lane goes to rest is forgotten",
        supervisor.SupervisorActor._passivated,
        (("if lane.held or", "if"),),
        _rests,
    ),
    Bug("rests with open work", pressure.stays, (("state.waiting or ", ""),), _rests),
    Bug("a new conversation keeps the old transcript", transcript.Transcript.take, (("self.begin(", "id("),)),
    Bug(
        "refused because it stops, though it may be durable",
        receipts.Receipts.close,
        (("receipt._finish(error)\n        _", "receipt.outcome = 'refused'; receipt._finish(error)\n        _"),),
        lambda plan: plan.stops,
    ),
    # The way out.
    Bug(
        "a delivery waits for a dead lane's word",
        delivery.DeliveryActor._take_up,
        (("known.asked = False", "pass"),),
        lambda plan: plan.lane_crash and plan.rules.separate_attempt,
    ),
    Bug("newest reply first", delivery.DeliveryActor._file, ((".jobs.append(job)", ".jobs.insert(0, job)"),)),
    Bug(
        "a reply overtakes what its chat owes",
        delivery.DeliveryActor._take_up,
        (("_chat_of(target) not in self._chats", "True"),),
    ),
    Bug("two sends at once in a chat", delivery.DeliveryActor._advance, (("job.sending or ", ""),)),
)
