"""Wakes after commands, and wakes that are pinned to a session."""

from __future__ import annotations

from typing import Any

import pytest

from seriatim.batch import Rules
from seriatim.effects import Ack, Finished, RunTurn
from seriatim.errors import InvalidInputError
from seriatim.limits import INTERRUPTIONS_MAX
from seriatim.model import MessageEvent, SessionSource
from tests.core.bench import Bench


def runs(bench: Bench) -> list[list[str]]:
    """The claims of each turn."""
    return [[data["id"] for data, _ in run.claims] for run in bench.all(RunTurn)]


def notices(bench: Bench, session: str | None) -> list[str]:
    """What wakes left in a session's log."""
    return [event.data["text"] for event in bench.session_events(session) if event.type == "wake/notice"]


def dropped(bench: Bench) -> list[Any]:
    """What wakes left in the lane's log."""
    return [event.data["notice"] for event in bench.lane_events("inbox/dropped") if "notice" in event.data]


def bound(bench: Bench) -> str:
    """The lane's session."""
    session = bench.gate.durable.bound
    assert session is not None
    return session


def test_a_wake_takes_the_place_of_a_discarded_follow_up() -> None:
    """/stop discards the follow-up in the slot: the first wake behind it is promoted past /queue items and starts."""
    bench = Bench()
    for text in ("a", "b", "/queue c"):
        bench.said(text)
    wakes = [bench.wake(), bench.wake()]
    bench.said("/stop")
    for _ in range(2):
        bench.answer()
    bench.answer()
    assert runs(bench)[1] == [wakes[0]]
    assert runs(bench)[3] == [wakes[1]]
    [moved] = bench.lane_events("queue/moved")
    assert moved.data == {"id": wakes[0], "to": 0}


def test_a_stop_that_discards_nothing_promotes_nobody() -> None:
    """With a /queue item in the slot /stop leaves the order alone."""
    bench = Bench()
    bench.said("a")
    item, wake = bench.said("/queue b"), bench.wake()
    bench.said("/stop")
    bench.answer()
    assert runs(bench)[1:] == [[item], [wake]]


def test_a_pinned_wake_runs_in_its_session() -> None:
    """While the session is the lane's, and also when it was only stopped."""
    bench = Bench()
    bench.said("a")
    session = bound(bench)
    first = bench.wake(session=session)
    bench.said("/stop")
    bench.answer()
    second = bench.wake(session=session)
    assert runs(bench)[1:] == [[first], [second]]
    assert {run.session for run in bench.all(RunTurn)} == {session}
    assert bench.gate.durable.suspended_at is not None


def test_new_judges_the_wakes_of_the_session_that_it_leaves() -> None:
    """In its own commit: they are dropped, and their notice stands in the old session; other wakes run."""
    bench = Bench()
    bench.said("a")
    old = bound(bench)
    pinned, free = bench.wake("job 7 is done", session=old), bench.wake()
    commits = len(bench.disk.ids)
    bench.said("/new")
    assert len(bench.disk.ids) == commits + 1
    assert bench.outcome(pinned) == "dropped (session_left)"
    assert notices(bench, old) == ["job 7 is done"]
    assert runs(bench)[-1] == [free]
    assert [end.reason for end in bench.all(Finished) if end.id == pinned] == ["session_left"]


def test_a_wake_that_comes_after_new_leaves_its_notice_in_the_lane() -> None:
    """Fail closed: accepted, told, and never run."""
    bench = Bench()
    bench.said("a")
    old = bound(bench)
    bench.said("/new")
    late = bench.wake("job 7 is done", session=old)
    assert bench.outcome(late) == "dropped (session_left)"
    assert dropped(bench) == ["job 7 is done"]
    assert [late] not in runs(bench)
    assert late in [ack.id for ack in bench.all(Ack)]
    assert notices(bench, old) == []


def test_a_wake_pinned_to_an_unknown_session_binds_none() -> None:
    """The very first thing that a lane hears may be a wake for a session that it never had."""
    bench = Bench()
    late = bench.wake(session="s-unknown")
    assert bench.outcome(late) == "dropped (session_left)"
    assert bench.gate.durable.bound is None


def test_a_wake_whose_session_was_left_meanwhile_does_not_run() -> None:
    """It waits behind a message that starts a fresh session: judged when it would start, the next one runs."""
    bench = Bench()
    bench.said("a")
    old = bound(bench)
    bench.said("/stop")
    human = bench.said("b")
    pinned, other = bench.wake("x", session=old), bench.wake()
    assert bench.outcome(pinned) == "dropped (session_left)"
    bench.answer()
    assert runs(bench)[-2:] == [[human], [other]]


def test_an_interrupted_pinned_wake_is_judged_by_new() -> None:
    """Its turn broke off with the process; the session is left before it runs again."""
    bench = Bench(Rules(freshness_ms=0))
    bench.said("a")
    old = bound(bench)
    bench.answer()
    pinned = bench.wake("x", session=old)
    bench.now.time += 10
    bench.reopen()
    assert bench.gate.durable.interrupted
    bench.said("/new")
    assert bench.outcome(pinned) == "dropped (session_left)"
    assert notices(bench, old) == ["x"]


def test_a_session_given_up_runs_no_pinned_wake() -> None:
    """A session suspended after too many interruptions is left by whatever comes next."""
    bench = Bench()
    bench.said("a")
    old = bound(bench)
    pinned = bench.wake("x", session=old)
    for _ in range(INTERRUPTIONS_MAX):
        bench.reopen()
    assert bench.outcome(pinned) == "dropped (session_left)"
    assert dropped(bench) == ["x"]
    assert [pinned] not in runs(bench)


def test_only_wakes_are_pinned() -> None:
    """A person's message can't choose its session."""
    with pytest.raises(InvalidInputError):
        MessageEvent("a", SessionSource("sim", "chat"), wake_session_id="s1")


def test_the_position_is_that_of_the_entry() -> None:
    """A follow-up that joins the slot waits for the running turn only, whatever stands behind."""
    bench = Bench()
    for text in ("a", "b", "/queue c", "/queue d"):
        bench.said(text)
    joined = bench.said("e")
    told = {ack.id: ack.position for ack in bench.all(Ack)}
    assert list(told.values()) == [0, 1, 2, 3, 1]
    assert told[joined] == 1
