"""Known faults of recovery, on the rules alone."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from seriatim.batch import Rules
from seriatim.effects import RunTurn
from seriatim.mail import Recover
from seriatim.turn import StepOffered, ToolCall, ToolFinished, TurnEnded

from .bench import Bench

CALLS = (ToolCall("a", "look", {}), ToolCall("b", "look", {}))


def results(bench: Bench) -> dict[str, str | None]:
    """The outcome of each call's one result; None: its own."""
    found = [event.data for event in bench.session_events() if event.type == "tool/result"]
    assert Counter(data["id"] for data in found).most_common(1)[0][1] == 1
    return {data["id"]: data.get("outcome") for data in found}


def crash(bench: Bench) -> None:
    """The process dies and starts again, a while later."""
    bench.now.time += 1
    bench.reopen()


def cancel(bench: Bench) -> None:
    """Its user stops the turn."""
    bench.said("/stop")


@pytest.mark.parametrize("end", [crash, cancel])
@pytest.mark.parametrize("finished", [0, 1])
def test_an_open_call_gets_one_result_and_the_next_turn_works(end: Any, finished: int) -> None:
    """B67: crash or /stop after the calls were recorded, none or one of two results stored: each open call has one
    result then, the turn is closed, nothing before is changed, and the next turn is answered.
    """
    bench = Bench(Rules(freshness_ms=0, stop_suspends=False))
    bench.said("hi")
    bench.tell(StepOffered(1, 1, "", CALLS))
    if finished:
        bench.tell(ToolFinished(1, 1, "a", "seen"))
    before = bench.session_events()

    end(bench)
    bench.tell(Recover())

    told = bench.session_events()
    assert told[: len(before)] == before
    assert results(bench) == {"a": None if finished else "unknown", "b": "unknown"}
    assert [event.type for event in told if event.type.startswith("turn/")][:2] == ["turn/start", "turn/end"]
    last = bench.said("and now?")
    bench.answer()
    assert bench.outcome(last) in ("answered", "merged")


def test_a_repair_is_no_reply() -> None:
    """B71: what recovery writes are typed events; no assistant's words, and nothing of it answers a message. Resumed
    together with a new message, both wait for the agent's own reply.
    """
    bench = Bench(Rules(freshness_ms=0))
    first = bench.said("hi")
    bench.tell(StepOffered(1, 1, "let me", CALLS))
    crash(bench)

    assert [e.data["text"] for e in bench.session_events() if e.type == "assistant/message"] == ["let me"]
    assert bench.lane_events("delivery/owed", "delivery/none", "inbox/answered") == []
    second = bench.said("are you there?")
    assert bench.outcome(first) == bench.outcome(second) == ""
    assert [data["id"] for data, _ in bench.all(RunTurn)[-1].claims] == [first, second]
    bench.answer("yes")
    assert [bench.outcome(first), bench.outcome(second)] == ["answered", "merged"]
    assert [e.data["parts"] for e in bench.lane_events("delivery/owed")] == [["yes"]]


@pytest.mark.parametrize(
    ("how", "kind"),
    [
        ("completed", "completed"),
        ("failed", "failed"),
        ("timeout", "timeout"),
        ("stop", "aborted"),
        ("cancelled", "failed"),
        ("shutdown", "interrupted"),
    ],
)
def test_however_a_turn_ends_its_input_and_work_stay(how: str, kind: str) -> None:
    """B73: ended in six ways, the log holds what its user said and what was flushed; only the reason differs."""
    bench = Bench(Rules(freshness_ms=0))
    inbox_id = bench.said("hi")
    bench.tell(StepOffered(1, 1, "let me", CALLS[:1]))
    bench.tell(ToolFinished(1, 1, "a", "seen"))
    match how:
        case "stop":
            bench.said("/stop")
        case "shutdown":
            bench.tell(TurnEnded(1, 1, "interrupted", None, detail="the runner was closed"))
        case "cancelled":
            bench.tell(TurnEnded(1, 1, "failed", None, detail="CancelledError"))
        case _:
            bench.tell(bench.end("done" if how == "completed" else None, how))  # type: ignore[arg-type]
    session = bench.lane_events("route/bound")[0].data["session"]
    bench.reopen()

    told = bench.session_events(session)
    assert [e.data["id"] for e in told if e.type == "user/message"] == [inbox_id]
    assert [e.data["content"] for e in told if e.type == "tool/result"] == ["seen"]
    assert [e.data["reason"]["kind"] for e in told if e.type == "turn/end"] == [kind]
