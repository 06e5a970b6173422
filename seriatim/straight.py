"""A session's log without detours: the events that its surface still rests on, as if nothing had ever been undone.

For readers that know ``append`` and ``replace`` but no ``surface/reset``, such as the event-log seed's own system.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from seriatim.closers import closing, open_turn
from seriatim.events import Data, Event
from seriatim.surface import RESET


def surviving(events: Sequence[Event]) -> list[int]:
    """The numbers of the events that no reset has left behind, resets not among them; ``events`` is a whole log."""
    kept: list[int] = []
    at = len(events)
    while at:
        event = events[at - 1]
        if event.type == RESET:
            at = event.data["asOf"]
        else:
            at -= 1
            kept.append(at)
    kept.reverse()
    return kept


def straightened(events: Sequence[Event]) -> tuple[Event, ...]:
    """The surviving events as a log of their own: numbered from 0, turns from 1, with the same surface.

    A turn whose answer was left behind ends as aborted. What cites an event that is gone cites it no more.
    """
    made: list[Event] = []
    seqs: dict[int, int] = {}
    turns: dict[Any, int] = {}
    for event in (events[seq] for seq in surviving(events)):
        if event.type == "turn/start":
            _end(made, event.time)
            turns[event.data.get("turn")] = len(turns) + 1
        seqs[event.seq] = len(made)
        made.append(_moved(event, len(made), seqs, turns))
    return tuple(made)


def _end(made: list[Event], time: int) -> None:
    """Append the end of the turn that a retry left open."""
    turn = open_turn(made)
    if turn is not None:
        closing(
            turn,
            lambda kind, data, about: made.append(Event(kind, len(made), time, data, False, about)),
            "aborted",
            "retry",
        )


def _moved(event: Event, seq: int, seqs: dict[int, int], turns: dict[Any, int]) -> Event:
    data: Data = event.data
    if "turn" in data:
        data = {**data, "turn": turns.get(data["turn"], 0)}
    if "resumedFrom" in data:
        data = {key: value for key, value in data.items() if key != "resumedFrom" or value in turns}
        if "resumedFrom" in data:
            data["resumedFrom"] = turns[data["resumedFrom"]]
    sources, operation = event.source_event_seqs, event.surface_op
    if sources is not None:
        sources = tuple(seqs[source] for source in sources if source in seqs)
        if not sources and event.type != "assistant/message":
            sources = None
    if isinstance(operation, dict):
        operation = {**operation, "start": seqs[operation["start"]], "end": seqs[operation["end"]]}
    return replace(event, seq=seq, data=data, source_event_seqs=sources, surface_op=operation)
