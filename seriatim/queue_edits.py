"""What people and hosts may do to what waits in a lane: see it, change a message, its place, or take it out.

Only what waits can be changed: a message that a turn has claimed is the turn's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal

from attrs import frozen

from seriatim.batch import Batch
from seriatim.effects import Finished
from seriatim.errors import InvalidInputError
from seriatim.events import Data, mend_text
from seriatim.lane import LaneState, Waiting
from seriatim.limits import COMMIT_BYTES_MAX, TEXT_BYTES_MAX

CancelOutcome = Literal["cancelled", "running", "gone"]


@frozen
class QueuedMessage:
    """One waiting message. ``id``: its inbox id; ``message_id``: the platform's; ``accepted_at``: epoch ms."""

    id: str
    text: str
    author: str | None
    message_id: str | None
    accepted_at: int


@frozen
class QueuedTurn:
    """What one coming turn will answer. ``position``: 1 is next. ``kind``: human, queue or wake."""

    position: int
    kind: str
    messages: tuple[QueuedMessage, ...]


@frozen
class ListQueue:
    """Tell what waits, next first."""


@frozen
class EditMessage:
    """Let a waiting message say ``text``; False when it doesn't wait."""

    id: str
    text: str


@frozen
class MoveMessage:
    """Put the turn of a waiting message at ``position`` (1: next; beyond the end: last); False when it doesn't wait."""

    id: str
    position: int


@frozen
class CancelMessage:
    """Drop a waiting message; a CancelOutcome."""

    id: str


@frozen
class ClearQueue:
    """Drop every waiting message of people; how many."""


@frozen
class ExpireQueue:
    """Drop every waiting message of people that was accepted before ``before`` (epoch ms); how many."""

    before: int


def list_queue(batch: Batch, q: ListQueue) -> tuple[QueuedTurn, ...]:
    """The queue as it is."""
    del q
    state = batch.state
    return tuple(
        QueuedTurn(at + 1, entry.kind, tuple(_told(state.waiting[i]) for i in entry.ids))
        for at, entry in enumerate(state.queue)
    )


def edit_message(batch: Batch, q: EditMessage) -> bool:
    """Replace a text in place. Raises InvalidInputError for one that no message may have."""
    text = mend_text(q.text)[0]
    if not text.strip() or len(text.encode()) > TEXT_BYTES_MAX:
        raise InvalidInputError("text", f"text of at most {TEXT_BYTES_MAX} bytes is needed")
    at = find(batch.state, q.id)
    if at is None:
        return False
    replace_text(batch, q.id, text)
    return True


def move_message(batch: Batch, q: MoveMessage) -> bool:
    """Move an entry. Raises InvalidInputError for a position below 1."""
    if q.position < 1:
        raise InvalidInputError("position", "counts from 1, the next turn")
    state = batch.state
    at = find(state, q.id)
    if at is None:
        return False
    to = min(q.position, len(state.queue)) - 1
    if to != at:
        batch.lane("queue/moved", {"id": q.id, "to": to})
    return True


def cancel_message(batch: Batch, q: CancelMessage) -> CancelOutcome:
    """Drop one message; its entry's others stay."""
    state = batch.state
    if find(state, q.id) is not None or any(q.id in turn.ids for turn in state.interrupted):
        drop(batch, (q.id,), "cancelled")
        return "cancelled"
    return "running" if q.id in state.waiting else "gone"


def clear_queue(batch: Batch, q: ClearQueue) -> int:
    """Drop all that people said; wakes stay."""
    del q
    return drop_those(batch, lambda waiting: True, "cleared")


def expire_queue(batch: Batch, q: ExpireQueue) -> int:
    """Drop what has waited too long."""
    return drop_those(batch, lambda waiting: waiting.time < q.before, "expired")


def find(state: LaneState, inbox_id: str) -> int | None:
    """The index of the entry that holds a message."""
    return next((at for at, entry in enumerate(state.queue) if inbox_id in entry.ids), None)


def replace_text(batch: Batch, inbox_id: str, text: str) -> bool:
    """Draft a waiting message's new text; False where it says so already. Raises InvalidInputError, if it can't fit."""
    state = batch.state
    at = find(state, inbox_id)
    assert at is not None
    old = state.waiting[inbox_id].data["text"]
    if text == old:
        return False
    if state.queue[at].size - len(old) + len(text) > COMMIT_BYTES_MAX:
        raise InvalidInputError("text", "too large for the turn that answers it together with others")
    batch.size += len(text)
    batch.lane("inbox/edited", {"id": inbox_id, "text": text})
    return True


def drop_those(batch: Batch, chosen: Callable[[Waiting], bool], reason: str) -> int:
    """Drop the queued messages of people that are chosen; how many."""
    state = batch.state
    ids = [i for entry in state.queue if entry.kind != "wake" for i in entry.ids if chosen(state.waiting[i])]
    if ids:
        drop(batch, ids, reason)
    return len(ids)


def drop(batch: Batch, ids: Iterable[str], reason: str) -> None:
    """Draft the end of waiting messages, and tell who waits for it."""
    data: Data = {"ids": list(ids), "reason": reason}
    batch.lane("inbox/dropped", data)
    batch.after.extend(Finished(inbox_id, "dropped", None, reason) for inbox_id in data["ids"])


def _told(waiting: Waiting) -> QueuedMessage:
    data = waiting.data
    source = data["source"]
    author = source.get("user_name") or source.get("user_id")
    return QueuedMessage(data["id"], data["text"], author, data.get("messageId"), waiting.time)
