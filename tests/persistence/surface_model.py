"""The surface by its definition: plain lists, computed anew from the whole log. Slow, short, and the judge."""

from __future__ import annotations

from typing import NamedTuple

from seriatim.events import Event

MESSAGES = ("user/message", "assistant/message", "tool/result")


class Turn(NamedTuple):
    """A visible turn: seq of its start, its number, and the event count just after its last user message."""

    start: int
    number: int
    asked: int


class Shown(NamedTuple):
    """Surface and visible turns after some events."""

    seqs: tuple[int, ...]
    turns: tuple[Turn, ...]


def shown(log: list[Event], count: int) -> Shown:
    """``Surface(count)``, by recursion: what the last event that matters says of the moment before it."""
    seqs: list[int] = []
    turns: list[Turn] = []
    running = 0
    for event in log[:count]:
        data = event.data
        if event.type == "surface/reset":
            then = shown(log, data["asOf"])
            seqs, turns = list(then.seqs), list(then.turns)
        elif event.type == "turn/start":
            running = data["turn"]
            if turns and data.get("resumedFrom") == turns[-1].number:
                turns[-1] = turns[-1]._replace(number=running)
            else:
                turns.append(Turn(event.seq, running, 0))
        elif event.type == "turn/end":
            running = 0
        elif event.type in MESSAGES and event.surface_op is not None:
            first, last = seqs.index(event.surface_op["start"]), seqs.index(event.surface_op["end"])
            seqs[first : last + 1] = [event.seq]
        elif event.type in MESSAGES:
            seqs.append(event.seq)
            if event.type == "user/message" and running and turns and turns[-1].number == running:
                turns[-1] = turns[-1]._replace(asked=event.seq + 1)
    return Shown(tuple(seqs), tuple(turns))


def redoable(log: list[Event]) -> list[int]:
    """Seqs of the undos that a redo can take back, oldest first."""
    stack: list[int] = []
    for event in log:
        reason = event.data.get("reason") if event.type == "surface/reset" else None
        if reason == "undo":
            stack.append(event.seq)
        elif reason == "redo":
            stack = stack[: stack.index(event.data["asOf"])]
        elif reason is not None or event.type in (*MESSAGES, "turn/start"):
            stack = []
    return stack


def states(log: list[Event]) -> dict[int, str]:
    """Visibility of every message, asked of each alone: on the surface, covered by one that is, or neither."""
    current = set(shown(log, len(log)).seqs)
    covers = {e.seq: set(e.source_event_seqs or ()) for e in log if e.type in MESSAGES and e.surface_op is not None}

    def covered(seq: int) -> bool:
        above = [by for by, what in covers.items() if seq in what]
        return any(by in current or covered(by) for by in above)

    return {
        e.seq: "current" if e.seq in current else "shadowed" if covered(e.seq) else "undone"
        for e in log
        if e.type in MESSAGES
    }
