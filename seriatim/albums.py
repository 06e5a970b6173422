"""Albums: items that a platform gives one by one and people sent as one message.

Each is accepted by itself. Items with one ``album`` share a turn, which waits until the album has been quiet for a
while; to the agent they are one event, in the platform's order, with their captions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from seriatim.events import Data
from seriatim.limits import ALBUM_MS_MAX
from seriatim.queueing import authority

if TYPE_CHECKING:
    from seriatim.batch import Batch
    from seriatim.lane import LaneState

Timed = tuple[Data, int]
"""An accepted message's data, and when it was accepted (epoch ms)."""


def album_target(state: LaneState, data: Data) -> int | None:
    """The index of the waiting entry that holds the album's other items; only equals share one."""
    album, auth = data["album"], authority(data)
    for at, entry in enumerate(state.queue):
        if entry.auth == auth and any(state.waiting[i].data.get("album") == album for i in entry.ids):
            return at
    return None


def quiet_at(batch: Batch, ids: Sequence[str]) -> int | None:
    """When the albums among these messages will have been quiet for long enough (epoch ms); None: they are by now.

    Counted from the process's start at the earliest: after it, platforms give again what wasn't acknowledged.
    """
    state = batch.state
    if len(ids) == 1 and "album" not in state.waiting[ids[0]].data:
        return None  # nearly always
    now, window = batch.now, batch.rules.album_window_ms
    albums: dict[str, list[int]] = {}
    for inbox_id in ids:
        held = state.waiting[inbox_id]
        if (album := held.data.get("album")) is not None:
            albums.setdefault(album, []).append(held.time)
    due: int | None = None
    for album, times in albums.items():
        until = max(times[-1], now.started) + window
        end = max(times[0], now.started) + ALBUM_MS_MAX
        if until <= now.time < end and now.expects(state.key, album):
            until = now.time + max(window, 1)
        until = min(until, end)
        # A clock that was set back must not hold anybody for longer than the window.
        if now.time < until <= now.time + max(window, 1):
            due = until if due is None else max(due, until)
    return due


def grouped(claims: Sequence[Timed]) -> list[Timed]:
    """The claims with each album as one message, which stands where its first item stood."""
    if not any("album" in data for data, _ in claims):
        return list(claims)
    albums: dict[Any, list[Timed]] = {}
    for place, claim in enumerate(claims):
        album = claim[0].get("album")
        albums.setdefault(("alone", place) if album is None else (album, authority(claim[0])), []).append(claim)
    return [_as_one(items) for items in albums.values()]


def _as_one(items: list[Timed]) -> Timed:
    first, time = items[0]
    if len(items) == 1:
        return items[0]
    ordered = sorted(items, key=_rank(items))
    captions = dict.fromkeys(text for data, _ in ordered if (text := data["text"].strip()))
    media = [entry for data, _ in ordered for entry in data.get("media", ())]
    one: Data = {**first, "text": "\n\n".join(captions), "items": [data["id"] for data, _ in ordered]}
    if media:
        one["media"] = media
    return one, time


def _rank(items: list[Timed]) -> Any:
    """Platforms count their messages up; where they don't, the order of acceptance is all there is."""
    numbers = {data["id"]: data.get("messageId", "") for data, _ in items}
    if all(number.isascii() and number.isdecimal() for number in numbers.values()):
        return lambda item: int(numbers[item[0]["id"]])
    places = {data["id"]: place for place, (data, _) in enumerate(items)}
    return lambda item: places[item[0]["id"]]
