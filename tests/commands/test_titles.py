"""Titles: by /new and /title, durable, one inert line."""

from __future__ import annotations

from seriatim.limits import TITLE_CHARS_MAX, TITLES_MAX
from seriatim.titles import NO_CONVERSATION_TEXT, title_of
from tests.core.bench import Bench
from tests.core.test_lanes import replies


def test_new_with_a_title_names_the_new_conversation() -> None:
    """/new TITLE: the fresh session has the title, the one before none; the title is in the log."""
    bench = Bench()
    bench.said("a")
    old = bench.gate.durable.bound
    bench.said("/new plan B")
    state = bench.gate.durable
    assert (title_of(state, state.bound), title_of(state, old)) == ("plan B", "")
    assert "plan B" in replies(bench)[-1]
    bench.reopen()
    assert title_of(bench.gate.durable, state.bound) == "plan B"


def test_title_names_and_tells() -> None:
    """/title TITLE names the conversation, also while a turn runs; /title tells its name; the last one counts."""
    bench = Bench()
    bench.said("/title x")
    assert replies(bench) == [NO_CONVERSATION_TEXT]
    bench.said("a")
    bench.said("/title")
    bench.said("/title one")
    bench.said("/title two")
    bench.said("/title")
    assert bench.gate.durable.running is not None
    assert "no title" in replies(bench)[1]
    assert replies(bench)[-1] == "This conversation is called two."
    assert bench.gate.durable.titles == ((bench.gate.durable.bound, "two"),)


def test_a_title_is_one_short_inert_line() -> None:
    """Line breaks and brackets are gone, and its length is bounded."""
    bench = Bench()
    bench.said("/new [ops]\n## plan " + "x" * 500)
    [(_, title)] = bench.gate.durable.titles
    assert "\n" not in title
    assert "[" not in title
    assert len(title) == TITLE_CHARS_MAX


def test_a_lane_keeps_its_newest_titles() -> None:
    """Titles of a lane are bounded; the oldest go."""
    bench = Bench()
    for number in range(TITLES_MAX + 5):
        bench.said(f"/new t{number}")
    assert bench.gate.durable.titles[0][1] == "t5"
    assert len(bench.gate.durable.titles) == TITLES_MAX
