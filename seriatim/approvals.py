"""Approvals: a turn asks its people, waits for a yes or a no, and never asks the same twice.

The question is durable and has an id; only ``/approve ID``, ``/deny ID`` and the host answer it, no word like "yes". A
turn that is run again after a crash asks again with the same token: it gets the answer that there is, or goes on
waiting without a second message. What ends the turn, or drops its messages, answers what is open with no.
"""

from __future__ import annotations

from typing import Final

from attrs import frozen

from seriatim.answering import accept_command, answer_command
from seriatim.batch import Batch
from seriatim.effects import ApprovalDue, WishAnswered
from seriatim.events import Data, mend_text
from seriatim.inbox import reply_target
from seriatim.lane import Approval, LaneState
from seriatim.mail import ApprovalExpired, Inbound
from seriatim.operators import is_operator
from seriatim.turn import Approve, TurnAsks

ASKED_TEXT: Final = "{question}\n\nTo allow it: {prefix}approve {id}\nTo refuse it: {prefix}deny {id}"
APPROVED_TEXT: Final = "Allowed."
DENIED_TEXT: Final = "Refused."
UNKNOWN_TEXT: Final = "There is no open question {0}."
ALIKE_TEXT: Final = "Two conversations with a question {0} have become one. Say which: {1}{2} ID"
NOT_YOURS_TEXT: Final = "That is for those to decide whose message the bot is answering."
USAGE_TEXT: Final = "Say which question: {prefix}{command} ID"
NOTHING_OPEN_TEXT: Final = "Nothing is asked at the moment."


@frozen
class ListApprovals:
    """Question to a lane: what its turns ask, and nobody has answered; as a tuple of ``lane.Approval``."""


@frozen
class ResolveApproval:
    """Question to a lane: answer one for its people; whether it was open. Answering it twice alike is harmless."""

    id: str
    approved: bool


def approval_wanted(batch: Batch, m: TurnAsks) -> None:
    """The running turn asks: now, or before it was interrupted."""
    running = batch.state.running
    assert running is not None
    assert isinstance(m.wish, Approve)
    claim = running.ids[0]
    asked = next((a for a in batch.state.approvals if a.claim == claim and a.token == m.token), None)
    if asked is not None and asked.answer:
        batch.after.append(WishAnswered(m.generation, m.token, asked.answer == "approved"))
        return
    if asked is None:
        question = mend_text(m.wish.question)[0]
        prefix = f"{m.generation}-"
        count = sum(1 for other in batch.state.approvals if other.id.startswith(prefix))
        name = f"{prefix}{count + 1}"
        batch.lane("approval/asked", {"id": name, "claim": claim, "token": m.token, "question": question})
        to = reply_target(batch, claim)
        typed = "/" if to is None else batch.now.channel(to).prefix
        batch.owe(ASKED_TEXT.format(question=question, prefix=typed, id=name), to)
        asked = batch.state.approvals[-1]
    if batch.rules.approval_ms:
        batch.after.append(ApprovalDue(asked.id, asked.since + batch.rules.approval_ms))


def asks_people(state: LaneState) -> bool:
    """Whether the running turn waits for somebody's answer."""
    running = state.running
    return running is not None and any(not a.answer and a.claim == running.ids[0] for a in state.approvals)


def approval_expired(batch: Batch, m: ApprovalExpired) -> None:
    """Nobody answered in time: that is a no."""
    asked = _open(batch, m.id)
    if asked is not None:
        _resolve(batch, asked, "denied", "timeout")


def answer_again(batch: Batch) -> None:
    """A new incarnation beside a turn that goes on: what it is to hear may have been lost with the one before."""
    running = batch.state.running
    for asked in batch.state.approvals:
        if running is not None and asked.answer and asked.claim == running.ids[0]:
            batch.after.append(WishAnswered(running.generation, asked.token, asked.answer == "approved"))


def approve(batch: Batch, m: Inbound) -> None:
    """The command: allow what is asked."""
    _command(batch, m, "approved", APPROVED_TEXT)


def deny(batch: Batch, m: Inbound) -> None:
    """The command: refuse what is asked."""
    _command(batch, m, "denied", DENIED_TEXT)


def list_approvals(batch: Batch, question: ListApprovals) -> tuple[Approval, ...]:
    """See ListApprovals."""
    return tuple(asked for asked in batch.state.approvals if not asked.answer)


def resolve_approval(batch: Batch, question: ResolveApproval) -> bool:
    """See ResolveApproval."""
    answer = "approved" if question.approved else "denied"
    asked = _open(batch, question.id)
    if asked is None:
        return any(a.id == question.id and a.answer == answer for a in batch.state.approvals)
    _resolve(batch, asked, answer, "host")
    return True


def _command(batch: Batch, m: Inbound, answer: str, said: str) -> None:
    accept_command(batch, m)
    name = (m.args.split() or ("",))[0]
    asked = _open(batch, name)
    if not name:
        usage = USAGE_TEXT.format(prefix=m.prefix, command=m.command)
        text = _listed(usage, [a for a in batch.state.approvals if not a.answer]) or NOTHING_OPEN_TEXT
    elif asked is None:
        which = ALIKE_TEXT.format(name[:40], m.prefix, m.command)
        text = _listed(which, _once_called(batch, name)) or UNKNOWN_TEXT.format(name[:40])
    elif not _may(batch, asked, m):
        text = NOT_YOURS_TEXT
    else:
        _resolve(batch, asked, answer, _who(m.event.source.to_dict()) or "")
        text = said
    answer_command(batch, m, text)


def _listed(heading: str, asked: list[Approval]) -> str:
    return "\n".join([heading, *(f"{a.id}: {a.question}" for a in asked)]) if asked else ""


def _once_called(batch: Batch, name: str) -> list[Approval]:
    """Open questions that people have read by this name, before there was another one of it (``absorb.questions``)."""
    return [a for a in batch.state.approvals if not a.answer and a.id.startswith(name) and a.id[len(name) :].isalpha()]


def _open(batch: Batch, name: str) -> Approval | None:
    return next((asked for asked in batch.state.approvals if asked.id == name and not asked.answer), None)


def _may(batch: Batch, asked: Approval, m: Inbound) -> bool:
    """Whether the sender is one of those whose messages the asking turn answers, by stable ids, or an operator."""
    state = batch.state
    if is_operator(m.event.source, batch.rules.operators):
        return True
    turns = (*([state.running] if state.running is not None else []), *state.interrupted)
    ids = next((turn.ids for turn in turns if turn.ids[0] == asked.claim), ())
    sources = [state.waiting[i].data["source"] for i in ids]
    who = _who(m.event.source.to_dict())
    if who is None:  # only where there is nobody else
        return m.event.source.chat_type == "dm" and all(_who(source) is None for source in sources)
    return any(_who(source) == who for source in sources)


def _who(source: Data) -> str | None:
    told: str | None = source.get("user_id_alt") or source.get("user_id")
    return told


def _resolve(batch: Batch, asked: Approval, answer: str, by: str) -> None:
    batch.lane("approval/resolved", {"id": asked.id, "answer": answer, "by": by})
    running = batch.state.running
    if running is not None and running.ids[0] == asked.claim:
        batch.after.append(WishAnswered(running.generation, asked.token, answer == "approved"))
