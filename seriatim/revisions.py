"""Edits and deletions of what people said: while it waits, while its turn runs, or when that is over.

What waits is changed in place or taken out. For the rest ``queue.edit_running`` and ``queue.edit_after`` decide:
nothing ("ignore"), a note that the next turn is told ("note"), or a turn of its own ("turn"). An edit
never starts a command, whatever it says, and one that changes no word does nothing. Each is accepted and has its
outcome in the log.
"""

from __future__ import annotations

from typing import Literal

from attrs import frozen

from seriatim.batch import Batch
from seriatim.commands import parse_command
from seriatim.effects import Ack, Finished
from seriatim.events import Data, mend_text
from seriatim.inbox import accepted_data
from seriatim.lane import Waiting
from seriatim.limits import COMMIT_BYTES_MAX, NOTES_MAX
from seriatim.mail import Inbound
from seriatim.media import blobs_of
from seriatim.queue_commands import queued_text
from seriatim.queue_edits import drop, find

Policy = Literal["ignore", "note", "turn"]


@frozen
class Revision:
    """What an edit comes to. ``how``: replaced, removed, noted, turn or ignored. ``target``: the waiting message."""

    how: Literal["replaced", "removed", "noted", "turn", "ignored"]
    target: str = ""
    text: str = ""


def revision_of(batch: Batch, m: Inbound) -> Revision:
    """Look at what is edited; drafts nothing. May ask for what the session shows (``Batch.shown``)."""
    event, state = m.event, batch.state
    text = mend_text(event.text)[0]
    held = _waiting(batch, m)
    if held is None:
        if batch.rules.edit_after == "ignore" or (old := _said(batch, event.edit_of or "")) is None:
            return Revision("ignored")
        return _by_policy(batch, m, batch.rules.edit_after, text, old)
    inbox_id, old = held.data["id"], held.data["text"]
    at = find(state, inbox_id)
    if at is None:
        return _by_policy(batch, m, batch.rules.edit_running, text, old)
    if event.deleted:
        return Revision("removed", inbox_id)
    if held.data["kind"] == "queue":
        command = parse_command(text, m.prefix)
        if command is not None and command[0] == "queue":
            text = queued_text(command[1]) or text
    grown = len(text) - len(old) + state.queue[at].size
    if (text == old and not event.media) or not (text.strip() or _media(m, held)) or grown > COMMIT_BYTES_MAX:
        return Revision("ignored", inbox_id)
    return Revision("replaced", inbox_id, text)


def revise(batch: Batch, m: Inbound, found: Revision) -> None:
    """Accept the edit, do what it comes to, give it its outcome; all but a turn of its own, which is a message's."""
    data = accepted_data(m, "edit")
    batch.lane("inbox/accepted", data)
    if found.how == "removed":
        drop(batch, (found.target,), "deleted")
    elif found.how == "replaced":
        change: Data = {"id": found.target, "text": found.text, "by": m.id}
        if m.event.media:
            change["media"] = [media.to_data() for media in m.event.media]
            batch.blobs += tuple(blobs_of(change))
        batch.lane("inbox/edited", change)
    elif found.how == "noted":
        batch.lane("inbox/noted", {"id": m.id, "text": found.text})
    batch.lane("inbox/answered", {"id": m.id, "by": "edit", "end": found.how})
    batch.after.append(Ack(m.id, "accepted", batch.state.bound or "", 0))
    batch.after.append(Finished(m.id, "answered", None, found.how))


def _by_policy(batch: Batch, m: Inbound, policy: Policy, text: str, old: str) -> Revision:
    deleted = m.event.deleted
    if policy == "ignore" or (not deleted and (text == old or not text.strip())):
        return Revision("ignored")
    if policy == "turn" and not deleted:
        return Revision("turn")
    if len(batch.state.notes) >= NOTES_MAX:
        return Revision("ignored")
    return Revision("noted", text=f"[deleted] {old}" if deleted else f"[edited] {text}")


def _waiting(batch: Batch, m: Inbound) -> Waiting | None:
    """The person's waiting message that is meant; what its platform calls by that name."""
    event = m.event
    for held in batch.state.waiting.values():
        data = held.data
        named = data.get("messageId") == event.edit_of and data.get("account", "") == event.account
        if named and data["kind"] in ("human", "queue"):
            return held
    return None


def _said(batch: Batch, message_id: str) -> str | None:
    """What the message said, as the conversation shows it; None where it doesn't (any more)."""
    shown = batch.shown()
    if shown is None:
        return None
    for node in reversed(shown.surface.nodes()):
        event = shown.events[node.seq]
        if event.type == "user/message" and event.data.get("messageId") == message_id:
            text: str = event.data["text"]
            return text
    return None


def _media(m: Inbound, held: Waiting) -> bool:
    return bool(m.event.media or held.data.get("media"))
