"""Closers: how a turn ends that nobody will end any more."""

from __future__ import annotations

import random

import pytest

from seriatim.closers import NOT_STARTED_TEXT, UNKNOWN_TEXT, closers
from seriatim.events import Data, Event
from seriatim.lane import SessionPart, apply_session
from seriatim.surface import fold
from tests.persistence.histories import History


def log_of(*said: tuple[str, Data]) -> list[Event]:
    """A log of these types and data, each a millisecond later."""
    return [Event(kind, seq, 1000 + seq, data) for seq, (kind, data) in enumerate(said)]


OPEN = log_of(
    ("turn/start", {"turn": 1, "claims": []}),
    ("user/message", {"turn": 1, "id": "m", "text": "hi", "at": 0}),
    ("step/start", {"turn": 1, "step": 1}),
    ("assistant/message", {"turn": 1, "step": 1, "text": "", "calls": [{"id": "a"}, {"id": "b"}, {"id": "c"}]}),
    ("tool/call", {"turn": 1, "step": 1, "id": "a", "name": "look", "args": {}}),
    ("tool/call", {"turn": 1, "step": 1, "id": "b", "name": "send", "args": {}}),
    ("tool/result", {"turn": 1, "step": 1, "id": "a", "content": "seen"}),
)


def test_an_open_turn_is_closed_in_the_order_of_its_log() -> None:
    """A recorded call's outcome is unknown and cites its record, a requested one wasn't started, then the ends."""
    made = closers(OPEN)

    assert [(e.type, e.data.get("id"), e.data.get("outcome")) for e in made] == [
        ("tool/result", "b", "unknown"),
        ("tool/result", "c", "not started"),
        ("step/end", None, None),
        ("turn/end", None, None),
    ]
    assert [e.data.get("content") for e in made[:2]] == [UNKNOWN_TEXT, NOT_STARTED_TEXT]
    assert [e.source_event_seqs for e in made[:2]] == [(5,), None]
    assert [e.seq for e in made] == [7, 8, 9, 10]
    assert {e.time for e in made} == {OPEN[-1].time}
    assert made[-1].data == {"turn": 1, "reason": {"kind": "interrupted"}}


@pytest.mark.parametrize("seed", range(20))
def test_closing_twice_is_closing_once(seed: int) -> None:
    """Cut anywhere, a closed log needs no more closers, and what folds it finds nothing open (random histories)."""
    history = History(seed)
    for _ in range(5):
        history.turn()
    cut = random.Random(seed).sample(range(1, len(history.log) + 1), min(40, len(history.log)))
    for length in cut:
        log = history.log[:length]
        closed = [*log, *closers(log)]

        assert closers(closed) == ()
        assert closed[:length] == log
        part = SessionPart("s")
        for event in closed:
            apply_session(part, event)
        assert part.open is None
        surface = fold(closed)
        asked = [call for n in surface.nodes() if n.type == "assistant/message" for call in n.calls]
        answered = [call for n in surface.nodes() if n.type == "tool/result" for call in n.calls]
        assert sorted(asked) == sorted(answered)


def test_what_an_earlier_step_left_unanswered_gets_nothing() -> None:
    """Only the open step's calls are closed; a step that ended is over."""
    log = [*OPEN, *log_of(*[("x", {})] * 7, ("step/end", {"turn": 1, "step": 1}))[7:]]

    assert [e.type for e in closers(log)] == ["turn/end"]


def test_a_call_that_no_message_asked_for_is_closed_too() -> None:
    """A call record alone is enough to say that its outcome is unknown."""
    log = log_of(("turn/start", {"turn": 4}), ("step/start", {"turn": 4, "step": 2}), ("tool/call", {"id": "x"}))

    assert [(e.type, e.data["turn"]) for e in closers(log)] == [("tool/result", 4), ("step/end", 4), ("turn/end", 4)]


def test_a_rewritten_result_answers_nothing() -> None:
    """A result that takes another's place isn't the answer to an open call."""
    operation = {"op": "replace", "start": 6, "end": 6}
    log = [*OPEN, Event("tool/result", 7, 0, {"id": "b", "content": ""}, False, (6,), operation)]

    assert [e.data.get("id") for e in closers(log)][:2] == ["b", "c"]


@pytest.mark.parametrize(
    "data", [{}, {"calls": 1}, {"calls": "ab"}, {"calls": [1, {}, {"id": 3}]}, {"id": None}, {"turn": "x", "step": {}}]
)
def test_any_payload_is_taken(data: Data) -> None:
    """What append takes never keeps a log from being closed: odd payloads are passed over."""
    kinds = ("turn/start", "step/start", "assistant/message", "tool/call", "tool/result", "step/end")
    log = log_of(*((kind, data) for kind in kinds))

    assert [e.type for e in closers(log)] == ["turn/end"]


def test_a_balanced_log_needs_nothing() -> None:
    """No events, no turn, or a closed one: no closers; what came between turns doesn't matter."""
    assert closers([]) == ()
    assert closers(log_of(("user/message", {}))) == ()
    assert closers(log_of(("turn/start", {"turn": 1}), ("turn/end", {"turn": 1}), ("user/message", {}))) == ()
