"""A /retry that waits: what its turn claims, and where that turn belongs in the conversation."""

from __future__ import annotations

from seriatim.events import Data
from seriatim.lane import LaneState

Claims = tuple[tuple[Data, int], ...]


def claims_of(state: LaneState, ids: tuple[str, ...]) -> Claims:
    """Data and time of what a turn claims: waiting messages, or for a /retry the questions that it asks again."""
    first = state.waiting[ids[0]]
    if "asks" not in first.data:
        if len(ids) == 1:  # nearly always
            return ((first.data, first.time),)
        return tuple((w.data, w.time) for w in map(state.waiting.__getitem__, ids))
    return tuple(({**ask, "again": ids[0]}, ask["at"]) for ask in first.data["asks"])


def stands_in(state: LaneState, ids: tuple[str, ...], session: str) -> int | None:
    """The turn that a /retry takes up again, if its questions stand in ``session`` already."""
    data = state.waiting[ids[0]].data
    turn: int | None = data["asksTurn"] if data.get("asksSession") == session else None
    return turn
