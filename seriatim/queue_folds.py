"""How the queue's own events change a lane: rules of the fold, like those of ``seriatim.lane``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from seriatim.albums import album_target
from seriatim.events import Data, Event
from seriatim.queueing import Entry, size_of

if TYPE_CHECKING:
    from seriatim.lane import LaneState


def join_album(state: LaneState, data: Data, entry: Entry) -> None:
    """A message placed "album" shares the turn of its album's other items."""
    at = album_target(state, data)
    if at is not None:
        state.queue[at] = state.queue[at].joined(entry)


def moved(state: LaneState, data: Data, event: Event) -> None:
    """``queue/moved``: the entry that holds a message stands elsewhere."""
    for at, entry in enumerate(state.queue):
        if data["id"] in entry.ids:
            del state.queue[at]
            state.queue.insert(data["to"], entry)
            return


def edited(state: LaneState, data: Data, event: Event) -> None:
    """``inbox/edited``: a waiting message says something else; its place is its own."""
    inbox_id = data["id"]
    held = state.waiting.get(inbox_id)
    if held is None:
        return
    text = data["text"]
    told = {**held.data, "text": text}
    if "media" in data:
        told["media"] = data["media"]
    more = size_of(told) - size_of(held.data)
    state.waiting[inbox_id] = replace(held, data=told)
    for at, entry in enumerate(state.queue):
        if inbox_id in entry.ids:
            state.queue[at] = replace(entry, size=entry.size + more)


def noted(state: LaneState, data: Data, event: Event) -> None:
    """``inbox/noted``: the next turn is told of an edit, which doesn't wait itself."""
    held = state.waiting.get(data["id"])
    if held is not None:
        told: Data = {"id": data["id"], "kind": "note", "text": data["text"], "source": held.data["source"]}
        state.notes += ((told, event.time),)
