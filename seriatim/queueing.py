"""Slot and overflow: where an accepted message waits, and which claims the next turn takes (DESIGN §7).

The queue is one list: its first entry is the slot, the rest is the overflow. So "slot empty" means
"overflow empty", and promotion is nothing but taking the first entry.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import attrs

from seriatim.events import Data

if TYPE_CHECKING:
    from attrs import frozen as value
else:
    value = attrs.define

Place = Literal["slot", "join", "replace", "tail"]


@value
class Entry:
    """One place in the queue: the messages that one turn will claim together.

    ``kind``: human, queue (from /queue: always a turn of its own) or wake. ``auth``: what the members
    are authorised for; only equals are merged.
    """

    kind: str
    ids: tuple[str, ...]
    auth: str


def entry_of(data: Data) -> Entry:
    """The entry that an accepted message makes by itself, from its event's data."""
    return Entry(data["kind"], (data["id"],), authority(data))


def authority(data: Data) -> str:
    """What the author is authorised for, as a text to compare."""
    source = data["source"]
    return ("role" if source.get("role_authorized") else "") + ("bot" if source.get("is_bot") else "")


def join_target(queue: list[Entry], entry: Entry) -> int:
    """The index of the follow-up that ``entry`` joins: the slot's, else the tail's; -2 when there is none."""
    if queue and entry.kind == "human":
        if queue[0].kind == "human" and queue[0].auth == entry.auth:
            return 0
        if queue[-1].kind == "human" and queue[-1].auth == entry.auth:
            return len(queue) - 1
    return -2


def place(queue: list[Entry], entry: Entry, collapse: str) -> Place:
    """Where a newly accepted message goes; recorded with it, so that settings can't alter replay."""
    if not queue:
        return "slot"
    at = join_target(queue, entry)
    if at < 0:
        return "tail"
    if collapse == "replace":
        return "replace" if at == 0 else "join"
    return "join"
