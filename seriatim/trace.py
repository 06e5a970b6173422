"""What a session's log may go on with: turns, steps and calls in their order (event-log seed's invariants).

A live session asks before each append. Stored logs are only followed: what was accepted once is never refused.
"""

from __future__ import annotations

from typing import Final

import attrs

from seriatim.errors import InvalidInputError
from seriatim.events import Event
from seriatim.surface import MESSAGE_TYPES, is_replace

_IN_TURN: Final = frozenset({"todo/write", "request/header", "request/context"})
_IN_STEP: Final = frozenset({"assistant/chunk", "assistant/message", "tool/call", "tool/result"})


@attrs.define
class Trace:
    """Where a log stands. ``turns``, ``steps``: the last number; ``turn``, ``step``: the open one, 0 for none.

    ``calls``: ids that the open step recorded (True) or only asked for (False), without those that were answered.
    """

    head: int = 0
    turns: int = 0
    turn: int = 0
    steps: int = 0
    step: int = 0
    calls: dict[str, bool] = attrs.Factory(dict)

    def fork(self) -> Trace:
        """A private copy."""
        return Trace(self.head, self.turns, self.turn, self.steps, self.step, dict(self.calls))

    def check(self, event: Event) -> None:
        """Raise InvalidInputError where ``event`` can't come next; changes nothing.

        Turns are numbered from 1 and one is open at a time; steps likewise inside a turn. What a step holds names it.
        A result answers a call of its own step; one that says "not started", a call that was only asked for. Messages
        that take others' places need no step.
        """
        if event.seq != self.head:
            raise InvalidInputError("seq", f"{event.type} is numbered {event.seq}, the log goes on at {self.head}")
        _check_marks(event)
        said = self._objection(event)
        if said is not None:
            raise InvalidInputError(event.type, said)

    def follow(self, event: Event) -> None:
        """Take the event, whatever it is."""
        data, self.head = event.data, event.seq + 1
        match event.type:
            case "turn/start":
                self.turn = self.turns = _number(data.get("turn"), self.turns + 1)
                self.steps = self.step = 0
                self.calls.clear()
            case "turn/end":
                self.turn = self.steps = self.step = 0
                self.calls.clear()
            case "step/start":
                self.step = self.steps = _number(data.get("step"), self.steps + 1)
                self.calls.clear()
            case "step/end":
                self.step = 0
                self.calls.clear()
            case "assistant/message" if not is_replace(event):
                self.calls.update((call, False) for call in _asked(data.get("calls")) if call not in self.calls)
            case "tool/call":
                self.calls[str(data.get("id"))] = True
            case "tool/result" if not is_replace(event):
                self.calls.pop(str(data.get("id")), None)
            case _:
                pass

    def _objection(self, event: Event) -> str | None:
        """Why the event can't come next."""
        data, kind = event.data, event.type
        if kind == "turn/start":
            if self.turn:
                return f"turn {self.turn} is open"
            return _unless(data.get("turn") == self.turns + 1, f"is not turn {self.turns + 1}")
        if kind == "turn/end":
            if self.step:
                return f"step {self.step} is open"
            return _unless(self.turn != 0 and data.get("turn") == self.turn, f"is not the open turn {self.turn}")
        if kind == "step/start":
            if not self.turn or self.step:
                return f"step {self.step} is open" if self.step else "no turn is open"
            fits = (data.get("turn"), data.get("step")) == (self.turn, self.steps + 1)
            return _unless(fits, f"is not step {self.steps + 1} of turn {self.turn}")
        if kind == "step/end" or (kind in _IN_STEP and not is_replace(event)):
            here = (data.get("turn"), data.get("step")) == (self.turn, self.step)
            if not self.step or not here:
                return f"does not belong to the open step ({self.step or 'none'} of turn {self.turn or 'none'})"
            return self._call_objection(event)
        if kind in _IN_TURN:
            return _unless(self.turn != 0, "no turn is open")
        return None

    def _call_objection(self, event: Event) -> str | None:
        if event.type == "tool/call":
            return _unless(type(event.data.get("id")) is str, "its call has no id")
        if event.type != "tool/result":
            return None
        recorded = self.calls.get(str(event.data.get("id")))
        if recorded is None:
            return "answers no call of this step"
        not_started = event.data.get("outcome") == "not started"
        return _unless(recorded or not_started, "answers a call that was only asked for")


def _check_marks(event: Event) -> None:
    """Surface fields stand on messages alone, and sources are earlier events, each once."""
    sources, operation = event.source_event_seqs, event.surface_op
    if event.type not in MESSAGE_TYPES:
        if sources is not None or operation is not None:
            raise InvalidInputError(event.type, "only messages carry a surface operation and sources")
        return
    if sources is None:
        return
    if len(set(sources)) < len(sources) or not all(type(seq) is int and 0 <= seq < event.seq for seq in sources):
        raise InvalidInputError(event.type, "its sources are not earlier events, each once")
    if not sources and event.type != "assistant/message":
        raise InvalidInputError(event.type, "only an assistant's message may have no source at all")


def _asked(calls: object) -> list[str]:
    found = calls if isinstance(calls, list) else []
    return [call["id"] for call in found if isinstance(call, dict) and type(call.get("id")) is str]


def _number(told: object, otherwise: int) -> int:
    return told if type(told) is int else otherwise


def _unless(fits: bool, said: str) -> str | None:
    return None if fits else said
