"""Edits and deletions of what people said: while it waits, while its turn runs, or when that is over.

What waits is changed in place or taken out. For the rest ``queue.edit_running`` and ``queue.edit_after`` decide:
nothing ("ignore"), a note that the next turn is told ("note"), or a turn of its own ("turn"). An edit
never starts a command, whatever it says, and one that changes no word does nothing. Each is accepted and has its
outcome in the log.

New words count only from who wrote the message: platforms hand on whatever a client calls an edit, and leave it to the
reader to check. A deletion is the platform's word, whoever asked for it: moderators may. What would break a bound is
never passed over: words that the waiting turn has no room for wait anew, as a message in the old one's stead, and what
can't be noted any more is refused.
"""

from __future__ import annotations

from typing import Final, Literal

from attrs import frozen
from msgspec.structs import replace

from seriatim.batch import Batch
from seriatim.commands import parse_command
from seriatim.effects import Ack, Finished
from seriatim.events import Data, mend_text
from seriatim.inbox import accepted_data
from seriatim.lane import Waiting
from seriatim.limits import COMMIT_BYTES_MAX, NOTES_MAX
from seriatim.mail import Inbound
from seriatim.media import Media, blobs_of
from seriatim.queue_commands import queued_text
from seriatim.queue_edits import drop, find
from seriatim.queueing import size_of

Policy = Literal["ignore", "note", "turn"]

NOTES_FULL: Final = "notes_full"
"""Why an edit is refused that could only be noted, while as many as may be wait to be told."""


@frozen
class Revision:
    """What an edit comes to. ``how``: replaced, removed, noted, turn, ignored, not_author or refused. ``target``: the
    waiting message; of a turn, the one whose place it takes.
    """

    how: Literal["replaced", "removed", "noted", "turn", "ignored", "not_author", "refused"]
    target: str = ""
    text: str = ""


def revision_of(batch: Batch, m: Inbound) -> Revision:
    """Look at what is edited; drafts nothing. May ask for what the session shows (``Batch.shown``)."""
    event, state = m.event, batch.state
    text = mend_text(event.text)[0]
    held, foreign = _waiting(batch, m)
    if held is None:
        old = None
        if batch.rules.edit_after != "ignore":
            old, anothers = _said(batch, m)
            foreign = foreign or anothers
        if old is None:
            return Revision("not_author" if foreign else "ignored")
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
    if (text == old and not event.media) or not (text.strip() or _media(m, held)):
        return Revision("ignored", inbox_id)
    told = {**held.data, "text": text, **({"media": event.media} if event.media else {})}
    if state.queue[at].size + size_of(told) - size_of(held.data) > COMMIT_BYTES_MAX:
        return Revision("turn", inbox_id, text)
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


def displace(batch: Batch, m: Inbound, found: Revision) -> tuple[Inbound, str]:
    """Drop the waiting message that the edit takes the place of; the edit as a message, and its kind.

    It bears the old one's name, so that the next edit finds it, and what the old one carried.
    """
    data = batch.state.waiting[found.target].data
    media = m.event.media or tuple(map(Media.from_data, data.get("media", ())))
    drop(batch, (found.target,), "superseded")
    event = replace(m.event, text=found.text, media=media, message_id=m.event.edit_of)
    return replace(m, event=event), data["kind"]


def _by_policy(batch: Batch, m: Inbound, policy: Policy, text: str, old: str) -> Revision:
    deleted = m.event.deleted
    if policy == "ignore" or (not deleted and (text == old or not text.strip())):
        return Revision("ignored")
    if policy == "turn" and not deleted:
        return Revision("turn")
    if len(batch.state.notes) >= NOTES_MAX:
        return Revision("refused")
    return Revision("noted", text=f"[deleted] {old}" if deleted else f"[edited] {text}")


def _waiting(batch: Batch, m: Inbound) -> tuple[Waiting | None, bool]:
    """The person's waiting message that is meant, what its platform calls by that name; whether others' bear it."""
    event = m.event
    foreign = False
    for held in batch.state.waiting.values():
        data = held.data
        named = data.get("messageId") == event.edit_of and data.get("account", "") == event.account
        if named and data["kind"] in ("human", "queue"):
            source = data["source"]
            if _may(m, source.get("user_id"), source.get("user_id_alt")):
                return held, False
            foreign = True
    return None, foreign


def _said(batch: Batch, m: Inbound) -> tuple[str | None, bool]:
    """What the message said, as the conversation shows it, None where it doesn't (any more); whether it shows others'
    of that name.
    """
    shown = batch.shown()
    if shown is None:
        return None, False
    foreign = False
    for node in reversed(shown.surface.nodes()):
        event = shown.events[node.seq]
        if event.type == "user/message" and event.data.get("messageId") == m.event.edit_of:
            # A direct chat's messages are kept by name only; nobody else writes there.
            if m.event.source.chat_type == "dm" or _may(m, event.data.get("speaker", event.data.get("author"))):
                text: str = event.data["text"]
                return text, False
            foreign = True
    return None, foreign


def _may(m: Inbound, *author: str | None) -> bool:
    """Whether a message whose author has these ids may be changed so: by its author, or where nobody can know."""
    source = m.event.source
    editor = {source.user_id, source.user_id_alt} - {None}
    return m.event.deleted or not editor or not editor.isdisjoint(author)


def _media(m: Inbound, held: Waiting) -> bool:
    return bool(m.event.media or held.data.get("media"))
