"""What rules share about an accepted message: its record, its outcome, where its answer goes."""

from __future__ import annotations

from seriatim.batch import Batch
from seriatim.effects import DropDelivery, Finished
from seriatim.events import Data, mend_text
from seriatim.lane import Owed
from seriatim.limits import DETAIL_CHARS_MAX
from seriatim.mail import Inbound
from seriatim.model import Target


def accepted_data(m: Inbound, kind: str, place: str = "none") -> Data:
    """The data of the message's inbox/accepted event."""
    event = m.event
    text, mended = mend_text(m.args if m.command else event.text)
    data: Data = {"id": m.id, "kind": kind, "place": place, "text": text, "source": event.source.to_dict()}
    if mended or event.source.mended:
        data["mended"] = True
    if event.account:
        data["account"] = event.account
    if event.message_id is not None:
        data["messageId"] = event.message_id
    if event.reply_to_id is not None:
        data["replyTo"] = event.reply_to_id
    if event.received_at is not None:
        data["receivedAt"] = event.received_at
    if m.by_receipt:
        data["door"] = "receipt"
    if event.wake_session_id is not None:
        data["wakeSession"] = event.wake_session_id
    if event.wake_kind:
        data["wakeKind"] = event.wake_kind
    if event.album_id is not None:
        data["album"] = event.album_id
    if event.media:
        data["media"] = [media.to_data() for media in event.media]
    if event.edit_of is not None:
        data["editOf"] = event.edit_of
        if event.deleted:
            data["deleted"] = True
    if m.command:
        data["command"] = mend_text(m.command)[0]
    return data


def reply_target(batch: Batch, inbox_id: str) -> Target | None:
    """Where the answer to a waiting message goes: its own origin, recorded when it was accepted."""
    return target_of(batch.state.waiting[inbox_id].data)


def target_of(data: Data) -> Target | None:
    """The origin of an accepted message; None when the host takes the answer from the receipt."""
    get = data.get
    if get("door") == "receipt":
        return None
    source = data["source"]
    further = source.get
    return Target(
        source["platform"],
        get("account", ""),
        source["chat_id"],
        source["chat_type"],
        further("thread_id"),
        further("user_id"),
        get("messageId"),
    )


def end_claims(batch: Batch, end: str, text: str | None) -> None:
    """Give each claim of the running turn its terminal outcome: the first answered, the others merged."""
    state = batch.state
    running = state.running
    assert running is not None
    first = running.ids[0]
    if state.approvals:
        deny_open(batch, first, end)
    batch.lane("inbox/answered", {"id": first, "by": "turn", "end": end})
    batch.after.append(Finished(first, "answered", text, end))
    if len(running.ids) > 1:
        others = list(running.ids[1:])
        batch.lane("inbox/merged", {"ids": others, "into": first})
        batch.after.extend(Finished(inbox_id, "merged", text, end) for inbox_id in others)
    # What fails or times out was no resuming: the mark stands for the next turn (gateway seed §2).
    if end == "completed" and state.resume_reason is not None:
        batch.lane("resume/cleared", {})


def deny_open(batch: Batch, claim: str, by: str) -> None:
    """Answer what a turn still asks with no: whatever ended it, its questions go with it."""
    for asked in batch.state.approvals:
        if asked.claim == claim and not asked.answer:
            batch.lane("approval/resolved", {"id": asked.id, "answer": "denied", "by": by})


def abandon(batch: Batch, owed: Owed, first: int, reason: str, detail: str = "") -> None:
    """Give up a part and those behind it: a reply's tail makes no sense without its middle."""
    for part in range(first, len(owed.states)):
        if not owed.states[part].done:
            data: Data = {"id": owed.id, "part": part, "reason": reason}
            if detail:
                data["detail"] = mend_text(detail[:DETAIL_CHARS_MAX])[0]
            batch.lane("delivery/abandoned", data)
    begun = owed.id in batch.state.owed  # an earlier part is on its way
    batch.after.append(DropDelivery(owed.target, owed.id, first if begun else 0))
