"""What was settled before, found again in the logs: receipts of an earlier process, answers to questions long past.

A host whose messages come through no adapter takes their answers from receipts, which die with their process. Reading
only; on whichever thread the caller chose.
"""

from __future__ import annotations

from attrs import frozen

from seriatim.actors.loading import ends_of
from seriatim.actors.receipts import End
from seriatim.events import lane_log
from seriatim.model import MessageEvent
from seriatim.storage.checkpoints import read_whole
from seriatim.storage.contract import StoreReader

MERGES_MAX = 16
"""Lanes that are followed from one to the next; a longer chain would be a circle."""


@frozen
class Accepted:
    """What the logs know of a message: its inbox id, the lane that has it now, and its end, None while it waits."""

    inbox_id: str
    lane: str
    end: End | None


def accepted_before(reader: StoreReader, lane: str, event: MessageEvent) -> str | None:
    """The inbox id under which ``event`` was accepted in ``lane``; None where that lane's log doesn't know it.

    What a compaction has taken away is not known any more. Raises StoreError.
    """
    found = None
    for told in read_whole(reader, lane_log(lane))[1]:
        if told.type == "inbox/accepted" and _is_same(told.data, event):
            found = told.data["id"]
        elif told.type == "lane/merged" and "from" in told.data:
            for data, *_ in told.data["waiting"]:
                if _is_same(data, event):
                    found = data["id"]
    return found


def end_of(reader: StoreReader, lane: str, inbox_id: str) -> Accepted:
    """What has become of it, in the lane that has it now. Raises StoreError."""
    known: dict[str, End | None] = {inbox_id: None}
    for _ in range(MERGES_MAX):
        events = read_whole(reader, lane_log(lane))[1]
        known |= ends_of(reader, events, inbox_id)
        left = next((e.data["into"] for e in events if e.type == "lane/merged" and "into" in e.data), None)
        if left is None or known[inbox_id] is not None:
            break
        lane = left
    return Accepted(inbox_id, lane, known[inbox_id])


def answer_given(reader: StoreReader, lane: str, approval: str) -> str | None:
    """How a turn's question was answered ("approved", "denied"), though its turn is over; None where no log knows it.

    Looks into the lane that has taken this one over, too. Raises StoreError.
    """
    for _ in range(MERGES_MAX):
        left = None
        for told in reversed(read_whole(reader, lane_log(lane))[1]):
            if told.type == "approval/resolved" and told.data["id"] == approval:
                return str(told.data["answer"])
            if told.type == "lane/merged" and "into" in told.data:
                left = told.data["into"]
        if left is None:
            break
        lane = left
    return None


def _is_same(data: dict[str, object], event: MessageEvent) -> bool:
    if data.get("messageId") != event.message_id or data.get("account", "") != event.account:
        return False
    source = data["source"]
    return isinstance(source, dict) and source.get("chat_id", "") == event.source.chat_id
