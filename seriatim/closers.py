"""Closers: the events that end a turn which nobody will end any more (event-log seed, "Crash recovery").

The interrupted turn is kept whole; what it left open is closed after it, in the order of the log: a result for each
call of the open step that has none, the step's end, the turn's end. A call that was recorded may have run, so its
outcome is unknown; one that the model only asked for was not started. Applied twice they do what they do once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from msgspec import Struct

from seriatim.events import Data, Event

NOT_STARTED_TEXT: Final = "This call was not started: the turn was cut off before it. It is safe to make it again."
UNKNOWN_TEXT: Final = (
    "The outcome of this call is unknown: the turn was cut off after the call was recorded, and it may have run. Make "
    "it again only if it just reads or can be repeated without harm; otherwise look first at what it would have "
    "changed, or ask the user."
)


class OpenTurn(Struct, gc=False):
    """A turn without its end: number, open step (0 between steps) and the open step's calls without a result.

    ``calls`` maps a call's id to the seq of its ``tool/call``, None while it was only asked for.
    """

    number: int
    step: int = 0
    calls: dict[str, int | None] = {}


Draft = Callable[[str, Data, tuple[int, ...] | None], None]
"""Takes one event to append: its type, data, and the event that it is about."""


def closing(turn: OpenTurn, draft: Draft, kind: str, detail: str | None = None, shown: str = "") -> None:
    """Draft the end of ``turn`` for the reason ``kind``; "interrupted" is recovery's alone.

    ``shown``: what people may have seen of an answer that broke off; it stands behind the results, as a model reads it.
    """
    number, step = turn.number, turn.step
    for call, recorded in tuple(turn.calls.items()):
        outcome, text = ("not started", NOT_STARTED_TEXT) if recorded is None else ("unknown", UNKNOWN_TEXT)
        data: Data = {"turn": number, "step": step, "id": call, "outcome": outcome, "content": text}
        data.update(error=True, synthetic=True)
        draft("tool/result", data, None if recorded is None else (recorded,))
    if step and shown:
        draft("assistant/message", {"turn": number, "step": step, "text": shown, "partial": kind}, None)
    if step:
        draft("step/end", {"turn": number, "step": step}, None)
    reason = {"kind": kind} if detail is None else {"kind": kind, "detail": detail}
    draft("turn/end", {"turn": number, "reason": reason}, None)


def closers(events: Sequence[Event]) -> tuple[Event, ...]:
    """What to append to a log so that no turn is open; empty when none is.

    Only the last turn can be open. Their time is that of the last event, so that whoever makes them makes the same.
    Takes any payload: a call that can't be named gets no result.
    """
    turn = open_turn(events)
    if turn is None:
        return ()
    made: list[Event] = []
    seq, time = events[-1].seq + 1, events[-1].time
    closing(
        turn,
        lambda kind, data, about: made.append(Event(kind, seq + len(made), time, data, False, about)),
        "interrupted",
    )
    return tuple(made)


def open_turn(events: Sequence[Event]) -> OpenTurn | None:
    """The turn that is open after ``events``, None between turns."""
    at = len(events)
    while at and events[at - 1].type != "turn/start":
        at -= 1
        if events[at].type == "turn/end":
            return None
    if not at:
        return None
    turn = OpenTurn(_count(events[at - 1].data, "turn"))
    for event in events[at:]:
        _follow(turn, event)
    return turn


def _follow(turn: OpenTurn, event: Event) -> None:
    data = event.data
    match event.type:
        case "step/start":
            turn.step = _count(data, "step")
        case "step/end":
            turn.step = 0
            turn.calls.clear()  # what a step left unanswered stays so
        case "assistant/message" if isinstance(asked := data.get("calls"), Sequence) and not isinstance(asked, str):
            turn.calls.update((call["id"], None) for call in asked if isinstance(call, dict) and _named(call))
        case "tool/call" if _named(data):
            turn.calls[data["id"]] = event.seq
        case "tool/result" if event.surface_op in (None, "append") and _named(data):
            turn.calls.pop(data["id"], None)
        case _:
            pass


def _count(data: Data, name: str) -> int:
    number = data.get(name)
    return number if type(number) is int else 0


def _named(data: Data) -> bool:
    return type(data.get("id")) is str
