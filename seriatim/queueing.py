"""Slot and overflow: where an accepted message waits, and which claims the next turn takes.

The queue is one list: its first entry is the slot, the rest is the overflow. So "slot empty" means
"overflow empty", and promotion is nothing but taking the first entry.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from seriatim.events import Data
from seriatim.limits import COMMIT_BYTES_MAX, COMMIT_MESSAGES_MAX, MEDIA_WEIGHT

Place = Literal["slot", "join", "replace", "tail", "album"]


class Entry(Struct, frozen=True, gc=False):
    """One place in the queue: the messages that one turn will claim together.

    ``kind``: human, queue (from /queue: always a turn of its own) or wake. ``auth``: what the members
    are authorised for; only equals are merged. ``size``: characters of their texts.
    """

    kind: str
    ids: tuple[str, ...]
    auth: str
    size: int = 0

    def joined(self, other: Entry) -> Entry:
        """Both as one."""
        return Entry(self.kind, self.ids + other.ids, self.auth, self.size + other.size)


def size_of(data: Data) -> int:
    """What an accepted message counts for in a commit, roughly in bytes."""
    media = data.get("media")
    return len(data["text"]) + (MEDIA_WEIGHT * len(media) if media else 0)


def entry_of(data: Data) -> Entry:
    """The entry that an accepted message makes by itself, from its event's data."""
    size = size_of(data) if "media" in data else len(data["text"])
    return Entry(data["kind"], (data["id"],), authority(data), size)


def authority(data: Data) -> str:
    """What the author is authorised for, as a text to compare."""
    source = data["source"]
    if "role_authorized" not in source and "is_bot" not in source:
        return ""
    return ("role" if source.get("role_authorized") else "") + ("bot" if source.get("is_bot") else "")


def join_target(queue: list[Entry], entry: Entry) -> int:
    """The index of the follow-up that ``entry`` joins: the slot's or the tail's; -2 when there is none.

    Only the last follow-up of its kind can be joined, so that no message overtakes an earlier one of equals.
    """
    if entry.kind == "human":
        for at in range(len(queue) - 1, -1, -1):
            held = queue[at]
            if held.kind == "human" and held.auth == entry.auth:
                return at if at in (0, len(queue) - 1) else -2
    return -2


def turns_before(queue: list[Entry], inbox_id: str, running: bool) -> int:
    """How many turns come before that of a waiting message: the running one, and an entry each."""
    at = len(queue) - 1
    while at > 0 and inbox_id not in queue[at].ids:  # it came last, so it stands at the back but for a few
        at -= 1
    return at + running


def fits(held: Entry, entry: Entry) -> bool:
    """Whether a turn may claim both: its commit has bounds, so a merged entry has them too."""
    return len(held.ids) + len(entry.ids) <= COMMIT_MESSAGES_MAX and held.size + entry.size <= COMMIT_BYTES_MAX


def place(queue: list[Entry], entry: Entry, collapse: str) -> Place:
    """Where a newly accepted message goes; recorded with it, so that settings can't alter replay."""
    if not queue:
        return "slot"
    at = join_target(queue, entry)
    if at < 0:
        return "tail"
    if collapse == "replace" and at == 0:
        return "replace"
    return "join" if fits(queue[at], entry) else "tail"
