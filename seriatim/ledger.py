"""The rules of the delivery ledger: what each attempt, end and draft of an owed reply makes true."""

from __future__ import annotations

from typing import Final

from seriatim.batch import Batch
from seriatim.effects import DropDelivery, SendPart
from seriatim.events import Data, mend_text
from seriatim.inbox import abandon
from seriatim.lane import LaneState, Owed, Running
from seriatim.limits import DETAIL_CHARS_MAX
from seriatim.mail import AttemptWanted, Bounced, DraftGone, DraftShown, PartAbandoned, PartFailed, PartSettled
from seriatim.model import Target
from seriatim.outbox import Channel
from seriatim.recovery import take_up

TOO_MANY_DOUBTS: Final = "too many attempts of unknown outcome"
TOO_OLD: Final = "too old"

UNREACHED_TEXT: Final = "An earlier reply could not be delivered ({why})."
UNREACHED_MANY_TEXT: Final = "{count} earlier replies could not be delivered ({why})."


# --- attempts and ends -----------------------------------------------------------------------------------


def attempt_wanted(batch: Batch, m: AttemptWanted) -> None:
    """T5: record the attempt, then let the part be sent; marked when an earlier one may have arrived."""
    owed = batch.state.owed.get(m.delivery)
    if owed is None:
        batch.internal.append(DropDelivery(None, m.delivery))
        return
    part = owed.states[m.part]
    if part.done:
        batch.after.append(take_up(owed))  # this part is through, others are still due
        return
    # Where the debt itself counts as an attempt, doubt may mean nothing but crashes before a send: age bounds those.
    if not part.first and part.doubts >= batch.rules.attempts_ambiguous_max:
        abandon(batch, owed, m.part, TOO_MANY_DOUBTS)
        return
    data: Data = {"id": m.delivery, "part": m.part, "n": part.attempts + 1 + part.first}
    channel = batch.now.channel(owed.target)
    doubtful = part.doubts > 0 and not _repeats_unseen(owed, m.part, channel)
    look = doubtful and channel.lookup
    marked = doubtful and not channel.lookup
    if marked:
        data["marked"] = True
    batch.lane("delivery/attempt", data)
    batch.after.append(SendPart(owed.target, m.delivery, m.part, data["n"], marked, look))


def _repeats_unseen(owed: Owed, part: int, channel: Channel) -> bool:
    """Whether nobody sees that a part is sent again: the platform takes one of them, or it is one edit twice."""
    return channel.idempotent or bool(owed.draft and not part and channel.edits)


def part_settled(batch: Batch, m: PartSettled) -> None:
    """T6: the platform has the part."""
    owed = batch.state.owed.get(m.delivery)
    if owed is None or owed.states[m.part].done:
        return
    data: Data = {"id": m.delivery, "part": m.part}
    if m.message_id is not None:
        data["messageId"] = m.message_id
    batch.lane("delivery/settled", data)
    state = batch.state
    # A mark that the host set, say: its reply has arrived, so it is not to be made again. An open or interrupted turn
    # is another matter: it keeps its mark.
    if (
        state.resume_reason is not None
        and state.running is None
        and not state.interrupted
        and owed.id not in state.owed
    ):
        batch.lane("resume/cleared", {})


def part_failed(batch: Batch, m: PartFailed) -> None:
    """An attempt surely did not arrive: there is one doubt less, and perhaps a time to wait for."""
    owed = batch.state.owed.get(m.delivery)
    if owed is None:
        return
    part = owed.states[m.part]
    # Told twice, or of an attempt that has no record: it must not clear the doubt about another one.
    if not part.done and not part.last_failed and part.doubts > 0:
        batch.lane("delivery/failed", {"id": m.delivery, "part": m.part, "reason": m.reason})
    if m.until > owed.until:
        batch.lane("delivery/waits", {"id": m.delivery, "until": m.until})


def part_abandoned(batch: Batch, m: PartAbandoned) -> None:
    """The part can't be delivered; with it goes what follows."""
    owed = batch.state.owed.get(m.delivery)
    if owed is not None and not owed.states[m.part].done:
        abandon(batch, owed, m.part, m.reason, m.detail)


def part_bounced(batch: Batch, m: Bounced) -> None:
    """A late failure, recorded once for a reply: nothing is sent again by itself, and the next turn tells of it."""
    if m.delivery not in batch.state.bounced:
        reason = mend_text(m.reason[:DETAIL_CHARS_MAX])[0]
        batch.lane("delivery/bounced", {"id": m.delivery, "part": m.part, "reason": reason})


def tell_unreached(batch: Batch, running: Running, to: Target | None) -> None:
    """Ahead of a person's reply, say which earlier ones never reached them. A wake is no occasion for it."""
    lost = batch.state.unreached
    if to is None or running.kind == "wake":
        return
    why = ", ".join(dict.fromkeys(reply.reason for reply in lost))
    text = UNREACHED_TEXT if len(lost) == 1 else UNREACHED_MANY_TEXT
    batch.owe(text.format(count=len(lost), why=why), to, told=tuple(reply.delivery for reply in lost))


# --- drafts ------------------------------------------------------------------------------------------------


def draft_of(state: LaneState, running: Running) -> str:
    """The platform's message that shows the turn's reply so far, also from before an interruption."""
    return next((message_id for claim, message_id in state.drafts if claim in running.ids), "")


def draft_shown(batch: Batch, m: DraftShown) -> None:
    """The platform has a message of the reply in the making; recorded, so that the final text edits it."""
    state = batch.state
    running = state.running
    data: Data = {"claim": m.claim, "messageId": m.message_id}
    if running is not None and running.generation == m.generation:
        if (m.claim, m.message_id) in state.drafts:
            return
    else:
        # The turn has ended meanwhile. Its debt, where there is one, has the draft to edit.
        owed = state.owed.get(m.delivery)
        if owed is None or owed.draft == m.message_id:
            return
        data["delivery"] = owed.id
    batch.lane("delivery/draft", data)


def draft_gone(batch: Batch, m: DraftGone) -> None:
    """The draft can't be edited any more: the reply becomes a message of its own."""
    owed = batch.state.owed.get(m.delivery)
    if owed is not None and owed.draft:
        batch.lane("delivery/draft", {"claim": "", "messageId": "", "delivery": owed.id})
