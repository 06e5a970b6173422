"""The rules of a lane: what each message makes true, and what may leave afterwards.

Each rule works in place on the batch's private fork. Nothing here knows threads, clocks or disks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from msgspec.structs import replace

from seriatim.albums import album_target, grouped, quiet_at
from seriatim.approvals import answer_again, approval_expired, approval_wanted, asks_people
from seriatim.asking import ask
from seriatim.batch import Batch
from seriatim.bots import too_many_bots
from seriatim.budgets import person_of
from seriatim.busy import BUSY, interrupt, refuses, steer, user_message
from seriatim.closers import OpenTurn
from seriatim.commands import COMMANDS, unknown_command
from seriatim.compressing import close_compressions, compression_due, is_crowded, summary_made
from seriatim.delegations import close_lost, delegation_ended, delegation_wanted
from seriatim.effects import (
    Ack,
    AckDuplicate,
    CancelTurn,
    Finished,
    Nack,
    Proceed,
    ReleaseCalls,
    RunTurn,
)
from seriatim.events import Data, mend_text
from seriatim.inbox import accepted_data, end_claims, reply_target, target_of
from seriatim.lane import Running
from seriatim.ledger import (
    attempt_wanted,
    draft_gone,
    draft_of,
    draft_shown,
    part_abandoned,
    part_bounced,
    part_failed,
    part_settled,
    tell_unreached,
)
from seriatim.mail import (
    ApprovalExpired,
    Ask,
    AttemptWanted,
    Bounced,
    CompressionDue,
    DraftGone,
    DraftShown,
    DrainTimedOut,
    HoldOver,
    Inbound,
    MoveRefused,
    PartAbandoned,
    PartFailed,
    PartSettled,
    Quarantine,
    Recover,
    SlotGranted,
    SummaryMade,
    TurnBroken,
)
from seriatim.media import blobs_of
from seriatim.moving import move_refused
from seriatim.queue_commands import queued_text, tell_queued
from seriatim.queueing import Place, authority, entry_of, fits, place, size_of, turns_before
from seriatim.recovery import WAITED, close_turn, recover, take_up_all, with_shown
from seriatim.retrying import claims_of, stands_in
from seriatim.revisions import NOTES_FULL, displace, revise, revision_of
from seriatim.silence import MARKER_REASON, SILENCE_NOTICE, judged
from seriatim.stale import is_stale, turn_away
from seriatim.turn import (
    Approve,
    Delegate,
    DelegationEnded,
    Steer,
    StepOffered,
    ToolCall,
    ToolFinished,
    TurnAsks,
    TurnEnded,
)
from seriatim.wakes import drop_left, refuse_pin

FAILED_TEXT: Final = "This message could not be answered: the agent {how}."
"""Neutral on purpose: an error's own text may hold what is nobody's business in a chat."""

QUARANTINED_TEXT: Final = (
    "Something keeps failing in this conversation, so it is stopped for now. "
    "What was received is kept; it is taken up when the bot has been started again."
)


# --- inbound -------------------------------------------------------------------------------------------


def _inbound(batch: Batch, m: Inbound) -> None:
    if m.key and m.key in batch.keys:
        batch.after.append(AckDuplicate(m.id))
        return
    event = m.event
    if event.source.is_bot and too_many_bots(batch, m):
        return
    edit = None
    if event.edit_of is not None:
        edit = revision_of(batch, m)
        if edit.how == "refused":
            batch.internal.append(Nack(m.id, NOTES_FULL))
            return
        if edit.how != "turn":
            if m.key:
                batch.keys[m.key] = None
            batch.size += m.size
            revise(batch, m, edit)
            return
    if batch.rules.busy == "refuse" and refuses(batch, m):
        batch.internal.append(Nack(m.id, BUSY))
        return
    queued = queued_text(m.args) if m.command == "queue" else None
    waits = not m.command or queued is not None
    if waits and len(batch.state.waiting) >= batch.rules.waiting_max:
        batch.internal.append(Nack(m.id, "queue_full"))
        return
    if m.key:
        batch.keys[m.key] = None
    batch.size += m.size
    if event.received_at is not None and is_stale(batch, m):
        turn_away(batch, m)
    elif edit is not None and edit.target:
        _accept(batch, *displace(batch, m, edit))
    elif not m.command:
        _accept(batch, m, "wake" if event.internal else "human")
    elif queued is not None:
        _accept(batch, m if queued == m.args else replace(m, args=queued), "queue")
        tell_queued(batch, m)
    else:
        COMMANDS.get(m.command, unknown_command)(batch, m)
        start_next(batch)


def _accept(batch: Batch, m: Inbound, kind: str) -> None:
    state = batch.state
    data = accepted_data(m, kind)
    if kind == "wake" and refuse_pin(batch, data):
        return
    if state.session is None:
        batch.bind_new("first")
    at = None if m.event.album_id is None else album_target(state, data)
    if at is not None and fits(state.queue[at], entry_of(data)):
        where: Place = "album"
        data["kind"] = state.queue[at].kind  # one that began as a /queue item goes on as one
    elif not state.queue:
        where = "slot"  # nearly always
    else:
        where = place(state.queue, entry_of(data), batch.rules.collapse)
    if where == "replace":
        older = state.queue[0].ids
        batch.lane("inbox/dropped", {"ids": list(older), "reason": "superseded"})
        batch.after.extend(Finished(inbox_id, "dropped", None, "superseded") for inbox_id in older)
        where = "slot"
    data["place"] = where
    batch.lane("inbox/accepted", data)
    if m.event.media:
        batch.blobs += tuple(blobs_of(data))
    assert state.bound is not None
    joined = where in ("join", "album")
    before = turns_before(state.queue, m.id, state.running is not None)
    batch.after.append(Ack(m.id, "merged" if joined else "accepted", state.bound, before))
    if kind == "human" and batch.rules.busy == "interrupt":
        interrupt(batch, m.id)
    start_next(batch)


# --- turns ---------------------------------------------------------------------------------------------


def start_next(batch: Batch) -> None:
    """Start the next turn if the lane is idle, has work, and gets a slot (T1)."""
    state = batch.state
    if state.running is not None or not (state.queue or state.interrupted) or batch.now.draining:
        return
    if state.interrupted or state.queue[0].kind == "wake":
        drop_left(batch)
    batch.hold_at = None
    claim = _next_claim(batch)
    if claim is None:
        return
    kind, ids, held = claim
    if (at := quiet_at(batch, ids if held is None else ids[len(held.ids) :])) is not None:
        batch.hold_at = at  # an album that was claimed before takes no more items
        return
    rules = batch.rules
    person = person_of(state.waiting[ids[0]].data["source"]) if kind != "wake" else ""
    tell = ""
    if rules.budgets and held is None:
        standing = batch.now.standing(person, batch.time)
        if standing.wait_until > batch.time:
            batch.hold_at = standing.wait_until
            return
        tell = standing.tell
    if rules.compress_above_tokens and is_crowded(batch):
        return
    if batch.take_slot(person, held is not None and not state.queue):
        if tell:
            batch.owe(tell, reply_target(batch, ids[0]))
        _start(batch, kind, ids, held)


def _next_claim(batch: Batch) -> tuple[str, tuple[str, ...], Running | None] | None:
    """Kind, claims, and the interrupted turn that they take up again; None when nothing should run."""
    state = batch.state
    first = state.queue[0] if state.queue else None
    if state.interrupted:
        oldest_fresh = batch.now.time - batch.rules.freshness_ms
        for held in state.interrupted:
            # One that is too old to go on by itself waits for the next message.
            if held.since >= oldest_fresh or (first is not None and held.kind != "human"):
                return held.kind, held.ids, held
        if first is not None and first.kind == "human":
            # Then it is claimed together with that message, unless that is someone else's to speak for.
            held = state.interrupted[0]
            equal = authority(state.waiting[held.ids[0]].data) == first.auth
            return "human", held.ids + first.ids if equal else held.ids, held
    return None if first is None else (first.kind, first.ids, None)


def _start(batch: Batch, kind: str, ids: tuple[str, ...], held: Running | None) -> None:
    state = batch.state
    if state.suspended_at is not None and _lifts_suspension(batch, kind, ids):
        batch.bind_new("suspended", "suspended")
    elif state.session is None:
        batch.bind_new("first")  # another lane has taken the session that this was accepted for
    session = state.session
    assert session is not None
    number, generation = session.turns + 1, state.generation + 1
    attempt = held.attempt + 1 if held is not None else 1
    boundary, had_activity, notes = state.boundary, state.had_activity, state.notes
    claims = claims_of(state, ids)
    batch.lane(
        "inbox/claimed",
        {
            "ids": list(ids),
            "kind": kind,
            "session": session.id,
            "turn": number,
            "generation": generation,
            "attempt": attempt,
        },
    )
    start: Data = {"turn": number, "claims": list(ids)}
    resumed_from = None
    told: tuple[str, ...] = ()
    if held is not None and held.session == session.id:
        start["resumedFrom"] = resumed_from = held.turn
        told = held.ids
    if "again" in claims[0][0]:
        if resumed_from is None and (again := stands_in(state, ids, session.id)) is not None:
            start["resumedFrom"] = resumed_from = again
        if resumed_from is not None:
            told = tuple(data["id"] for data, _ in claims)
    batch.session("turn/start", start)
    for data, time in notes:
        batch.session("user/message", {**user_message(number, data, time), "note": True})
    # A resumed turn repeats no user message.
    said = [claim for claim in claims if claim[0]["id"] not in told] if told else claims
    for data, time in said if len(said) < 2 else grouped(said):
        batch.size += size_of(data)
        if "media" in data:
            batch.blobs += tuple(blobs_of(data))
        batch.session("user/message", user_message(number, data, time))
    batch.session("step/start", {"turn": number, "step": 1})
    claims += notes
    batch.after.append(RunTurn(session.id, number, generation, attempt, claims, boundary, had_activity, resumed_from))


def _lifts_suspension(batch: Batch, kind: str, ids: tuple[str, ...]) -> bool:
    state = batch.state
    at = state.suspended_at
    assert at is not None
    # A wake, and whatever was accepted before the /stop, still runs in the suspended session.
    return at < 0 or (kind != "wake" and max(state.waiting[i].seq for i in ids) > at)


def _open_turn(batch: Batch, generation: int) -> OpenTurn | None:
    """The session's open turn, if it is the one that ``generation`` means; late words touch nothing."""
    running, part = batch.state.running, batch.state.session
    if running is None or running.generation != generation or part is None:
        return None
    return part.open


def _step_offered(batch: Batch, m: StepOffered) -> None:
    """T2: the model's message with its calls; those that start now are recorded before they run."""
    turn = _open_turn(batch, m.generation)
    if turn is None:
        return
    asked = [{"id": call.id} for call in (*m.calls, *m.later)]
    batch.session("assistant/message", {"turn": turn.number, "step": turn.step, "text": m.text, "calls": asked})
    _record_calls(batch, turn, m.calls)
    batch.after.append(ReleaseCalls(m.generation, tuple(call.id for call in m.calls)))


def _turn_asks(batch: Batch, m: TurnAsks) -> None:
    """What the running agent wants of its lane; nobody waits for the answer of one that is over."""
    if _open_turn(batch, m.generation) is not None:
        _WISHES[type(m.wish)](batch, m)


def _delegation_ended(batch: Batch, m: DelegationEnded) -> None:
    delegation_ended(batch, m)
    start_next(batch)


def _record_calls(batch: Batch, turn: OpenTurn, calls: tuple[ToolCall, ...]) -> None:
    for call in calls:
        batch.session(
            "tool/call",
            {
                "turn": turn.number,
                "step": turn.step,
                "id": call.id,
                "name": call.name,
                "args": call.args,
                "effects": call.effects,
            },
        )


def _tool_finished(batch: Batch, m: ToolFinished) -> None:
    """T3: one call's result (and the next serial call); the step's last one opens the next step."""
    turn = _open_turn(batch, m.generation)
    if turn is None or m.call_id not in turn.calls:
        return
    data: Data = {"turn": turn.number, "step": turn.step, "id": m.call_id, "content": m.content}
    if m.error:
        data["error"] = True
    if m.mended:
        data["mended"] = True
    batch.session("tool/result", data)
    _record_calls(batch, turn, m.next)
    if not turn.calls:
        step = turn.step
        batch.session("step/end", {"turn": turn.number, "step": step})
        batch.session("step/start", {"turn": turn.number, "step": step + 1})
    batch.after.append(Proceed(m.generation, m.call_id))
    if m.next:
        batch.after.append(ReleaseCalls(m.generation, tuple(call.id for call in m.next)))


def _turn_ended(batch: Batch, m: TurnEnded) -> None:
    """T4: the reply, the end of the turn, the outcome of each claim and the debt, in one commit."""
    state = batch.state
    running = state.running
    reason = m.reason
    if running is None or running.generation != m.generation:
        batch.lane("turn/late", {"turn": m.turn, "generation": m.generation, "reason": reason})
        return
    if reason == "interrupted":
        return  # the runner went away with the process: the turn stays open for the next start
    claim = running.ids[0]
    to = target_of(state.waiting[claim].data)
    text: str | None = None
    detail = None if m.detail is None else mend_text(m.detail)[0]
    if reason == "completed" and m.text is not None:
        text, mended = mend_text(m.text)
        if state.session is not None and state.session.open is not None:
            _final_message(batch, m, state.session.open, text, mended)
        # The conversation keeps what the model wrote; people get what it meant.
        text = judged(text, internal=running.kind == "wake")
        if text is None or text is SILENCE_NOTICE:
            detail = MARKER_REASON
    shown = close_turn(batch, reason, detail)
    draft = draft_of(state, running) if state.drafts else ""
    end_claims(batch, reason, text)
    if state.unreached:
        tell_unreached(batch, running, to)
    silent = False
    if reason in ("failed", "timeout"):
        how = "took too long" if reason == "timeout" else "failed"
        failure = with_shown(batch, shown, FAILED_TEXT.format(how=how))
        batch.owe(failure, to, running.turn, claim=claim, draft=draft)
    else:
        owes = batch.owe(text or "", to, running.turn, detail or "empty", claim, draft)
        silent = not owes and reason == "completed"
    batch.return_slot(silent)
    if state.queue or state.interrupted:
        start_next(batch)


def _turn_broken(batch: Batch, m: TurnBroken) -> None:
    running = batch.state.running
    if running is not None and running.generation == m.generation:
        batch.after.append(CancelTurn(m.generation, m.detail))
        _turn_ended(batch, TurnEnded(m.turn, m.generation, m.reason, None, detail=m.detail))


def _final_message(batch: Batch, m: TurnEnded, turn: OpenTurn, text: str, mended: bool) -> None:
    data: Data = {"turn": turn.number, "step": turn.step, "text": text}
    if mended:
        data["mended"] = True
    if m.usage is not None:
        data["usage"] = _usage(m.usage)
    if m.finish is not None:
        data["finish"] = m.finish
    batch.session("assistant/message", data)


def _usage(usage: Any) -> Data:
    names = ("input", "output", "cache_read", "cache_write", "total", "last_prompt_tokens", "estimated_cost_usd")
    told: Data = {_camel(name): count for name in names if (count := getattr(usage, name))}
    if usage.cost_status != "unknown":
        told["costStatus"] = usage.cost_status
    return told


def _camel(name: str) -> str:
    head, *tail = name.split("_")
    return head + "".join(word.capitalize() for word in tail)


# --- life ----------------------------------------------------------------------------------------------


def _recover(batch: Batch, m: Recover) -> None:
    recover(batch, m)
    if batch.state.approvals:
        answer_again(batch)
    if batch.state.delegations:
        close_lost(batch, m)
    if batch.state.waiting:
        close_compressions(batch)
    start_next(batch)


def _compression_due(batch: Batch, m: CompressionDue) -> None:
    compression_due(batch, m)
    start_next(batch)


def _summary_made(batch: Batch, m: SummaryMade) -> None:
    summary_made(batch, m)
    start_next(batch)


def _ask(batch: Batch, m: Ask) -> None:
    ask(batch, m)
    start_next(batch)


def _slot_granted(batch: Batch, m: SlotGranted | HoldOver) -> None:
    start_next(batch)


def _move_refused(batch: Batch, m: MoveRefused) -> None:
    move_refused(batch, m)
    start_next(batch)


def _drain_timed_out(batch: Batch, m: DrainTimedOut) -> None:
    state = batch.state
    if state.running is not None:
        # A turn that waits for a person has done nothing too slowly.
        reason = WAITED.get(m.reason, m.reason) if state.approvals and asks_people(state) else m.reason
        batch.lane("resume/marked", {"reason": reason})


def _quarantine(batch: Batch, m: Quarantine) -> None:
    """The conversation ends here; what waits is left to a later start, which takes it up in a fresh one."""
    state = batch.state
    take_up_all(batch)  # what is owed from before goes first
    batch.lane("route/suspended", {"reason": "quarantined"})
    if state.waiting:
        to = reply_target(batch, next(iter(state.waiting)))
    else:
        to = None if m.last is None else target_of(accepted_data(m.last, "human"))
    batch.owe(QUARANTINED_TEXT, to)


_WISHES: Final[dict[type[Any], Callable[[Batch, TurnAsks], None]]] = {
    Steer: steer,
    Approve: approval_wanted,
    Delegate: delegation_wanted,
}

RULES: Final[dict[type[Any], Callable[[Batch, Any], None]]] = {
    Inbound: _inbound,
    Recover: _recover,
    SlotGranted: _slot_granted,
    HoldOver: _slot_granted,
    StepOffered: _step_offered,
    ToolFinished: _tool_finished,
    TurnEnded: _turn_ended,
    TurnBroken: _turn_broken,
    TurnAsks: _turn_asks,
    DelegationEnded: _delegation_ended,
    ApprovalExpired: approval_expired,
    AttemptWanted: attempt_wanted,
    PartSettled: part_settled,
    PartFailed: part_failed,
    PartAbandoned: part_abandoned,
    Bounced: part_bounced,
    DraftShown: draft_shown,
    DraftGone: draft_gone,
    DrainTimedOut: _drain_timed_out,
    Quarantine: _quarantine,
    MoveRefused: _move_refused,
    Ask: _ask,
    CompressionDue: _compression_due,
    SummaryMade: _summary_made,
}
"""What adds to a batch what a message of this type makes true."""
