"""A SessionEntry is a fold of the lane's and the session's logs."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest
from msgspec.structs import replace

from seriatim.batch import Rules
from seriatim.effects import RunTurn
from seriatim.entry import SessionEntry
from seriatim.facts import Facts, Used, entry
from seriatim.lane import LaneState
from seriatim.mail import DrainTimedOut
from seriatim.snapshots import STATE_VERSION, lane_from_snapshot, lane_snapshot, session_from_snapshot, session_snapshot
from seriatim.turn import TurnEnded, Usage
from tests.core.bench import Bench


def told(bench: Bench) -> SessionEntry:
    """The bench's entry; live, folded and from a snapshot it is the same."""
    state = bench.gate.durable
    found = entry(state)
    assert found is not None
    assert found == entry(bench.fold())
    kept = lane_from_snapshot(state.key, STATE_VERSION, lane_snapshot(state))
    assert state.session is not None
    kept.session = session_from_snapshot(session_snapshot(state.session))
    assert found == entry(kept)
    return found


def at(bench: Bench, time: int) -> None:
    """The clock stands there, epoch ms."""
    bench.now.time = time


def used(bench: Bench, **usage: Any) -> None:
    """The running turn ends with this usage."""
    bench.tell(replace(bench.end("reply"), usage=Usage(**usage)))


def ms(moment: datetime) -> int:
    """Epoch milliseconds."""
    return round(moment.timestamp() * 1000)


def test_a_lane_without_a_session_has_no_entry() -> None:
    """None, not an empty record."""
    assert entry(LaneState("k")) is None


def test_an_entry_tells_where_the_conversation_began() -> None:
    """Origin, platform, chat type and display name are those of the first message, and a reset keeps them."""
    bench = Bench()
    bench.said("a", chat_name="Room", chat_type="group", message_id="7")
    first = told(bench)
    assert first.origin is not None
    assert (first.origin.message_id, first.origin.chat_id) == ("7", "chat")
    assert (first.display_name, first.chat_type, str(first.platform)) == ("Room", "group", "sim")
    bench.said("/new", chat_name="Renamed", chat_type="group")
    second = told(bench)
    assert second.session_id != first.session_id
    assert second.origin == first.origin


def test_created_and_updated_are_the_times_of_binding_and_of_the_last_human_word() -> None:
    """A wake, a reply and a recovery don't advance it; a message and a command do."""
    bench = Bench()
    at(bench, 5_000)
    bench.said("a")
    at(bench, 6_000)
    bench.answer()
    bench.wake()
    bench.answer()
    assert (ms(told(bench).created_at), ms(told(bench).updated_at)) == (5_000, 5_000)
    at(bench, 7_000)
    bench.said("/status")
    assert ms(told(bench).updated_at) == 7_000
    at(bench, 8_000)
    bench.start()
    assert ms(told(bench).updated_at) == 7_000


def test_tokens_and_cost_are_sums_over_the_sessions_turns() -> None:
    """Sums per session, the status and the last prompt as told last; a new session begins at zero."""
    bench = Bench()
    bench.said("a")
    used(bench, input=10, output=2, cache_read=3, cache_write=4, estimated_cost_usd=0.5, cost_status="estimated")
    bench.said("b")
    used(bench, input=20, output=5, total=31, last_prompt_tokens=20, estimated_cost_usd=0.25)
    found = told(bench)
    assert (found.input_tokens, found.output_tokens, found.cache_read_tokens, found.cache_write_tokens) == (30, 7, 3, 4)
    assert found.total_tokens == 12 + 31
    assert found.estimated_cost_usd == pytest.approx(0.75)
    assert (found.cost_status, found.last_prompt_tokens) == ("estimated", 20)
    bench.said("/new")
    assert told(bench).total_tokens == 0
    assert told(bench).cost_status == "unknown"


def test_a_plain_turn_without_usage_shares_what_it_had() -> None:
    """No usage, no new value: the plain turn pays nothing for the sums."""
    bench = Bench()
    bench.said("a")
    before = bench.gate.durable
    assert before.session is not None
    sums, facts = before.session.used, before.facts
    bench.answer()
    bench.said("b")
    after = bench.gate.durable
    assert after.session is not None
    assert after.session.used is sums
    assert after.facts is facts


# --- the flags' state machine --------------------------------------------------------------------------


def test_a_fresh_reset_is_told_until_the_turn_that_takes_it() -> None:
    """/new sets it durably, a crash keeps it, the commit that starts the turn consumes it and hands it to the agent."""
    bench = Bench()
    bench.said("a")
    bench.answer()
    bench.said("/new")
    bench.reopen()
    reset = told(bench)
    assert (reset.is_fresh_reset, reset.was_auto_reset, reset.reset_had_activity) == (True, False, True)
    bench.said("b")
    assert not told(bench).is_fresh_reset
    assert not told(bench).reset_had_activity
    started = bench.all(RunTurn)[-1]
    assert (started.boundary, started.had_activity) == ("fresh", True)
    bench.answer()
    bench.said("c")
    assert bench.all(RunTurn)[-1].boundary == "none"


def test_a_suspension_is_told_until_the_next_message_replaces_the_session() -> None:
    """suspended, then a new id whose turn hears of it; nothing of the old flags carries over."""
    bench = Bench()
    bench.said("a")
    bench.said("/stop")
    stopped = told(bench)
    assert stopped.suspended
    bench.said("b")
    after = told(bench)
    assert after.session_id != stopped.session_id
    assert not after.suspended
    assert not after.was_auto_reset
    assert bench.all(RunTurn)[-1].boundary == "suspended"


def test_an_auto_reset_waits_for_a_turn_slot() -> None:
    """While no turn has started the session that was suspended is still the lane's, and says so."""
    bench = Bench(free=1)
    bench.said("a")
    bench.said("/stop")
    bench.free = 0
    bench.said("b")
    assert told(bench).suspended


def test_resume_pending_lasts_until_a_turn_completes() -> None:
    """A failed turn leaves the mark, a completed one takes it."""
    bench = Bench()
    at(bench, 5_000)
    bench.said("a")
    at(bench, 6_000)
    bench.tell(DrainTimedOut("restart_timeout"))
    bench.reopen()
    marked = told(bench)
    assert (marked.resume_pending, marked.resume_reason) == (True, "restart_timeout")
    assert marked.last_resume_marked_at is not None
    assert ms(marked.last_resume_marked_at) == 6_000
    bench.tell(bench.end(None, "failed"))
    assert told(bench).resume_pending
    bench.said("b")
    bench.answer()
    cleared = told(bench)
    assert (cleared.resume_pending, cleared.resume_reason, cleared.last_resume_marked_at) == (False, None, None)


def test_a_mark_that_a_failed_turn_left_is_renewed_by_the_next_interruption() -> None:
    """Reason and time are those of the newest interruption."""
    bench = Bench()
    at(bench, 5_000)
    bench.said("a")
    bench.tell(DrainTimedOut("shutdown_timeout"))
    bench.reopen()
    bench.tell(bench.end(None, "failed"))
    at(bench, 9_000)
    bench.said("b")
    bench.reopen()
    assert told(bench).resume_reason == "restart_interrupted"
    marked = told(bench).last_resume_marked_at
    assert marked is not None
    assert ms(marked) == 9_000


def test_suspended_and_resume_pending_may_both_be_told() -> None:
    """A session that was given up keeps its mark; the suspension decides."""
    bench = Bench(Rules(stop_suspends=True))
    bench.said("a")
    for _ in range(3):
        bench.reopen()
    both = told(bench)
    assert both.suspended
    bench.said("b")
    assert told(bench).session_id != both.session_id
    assert not told(bench).resume_pending


def test_the_host_is_the_last_to_speak_of_a_prompt() -> None:
    """A host's count holds until a later turn tells another one."""
    facts = Facts(prompt=50, prompt_turn=2)
    state = LaneState("k", bound="20261201_000000_00000000", facts=facts)
    found = entry(state)
    assert found is not None
    assert found.last_prompt_tokens == 50


@pytest.mark.parametrize(
    ("prompt", "turn", "expected"), [(50, 2, 50), (50, 1, 70), (0, -1, 70)], ids=["host last", "turn last", "no host"]
)
def test_the_later_word_about_the_prompt_counts(prompt: int, turn: int, expected: int) -> None:
    """By the turn it was said after, not by a clock."""
    state = LaneState("k", bound="s", facts=Facts(prompt=prompt, prompt_turn=turn))
    bench = Bench()
    bench.said("a")
    bench.answer()
    part = bench.gate.durable.session
    assert part is not None
    part.used = Used(prompt=70, turn=2)
    state.session = part
    found = entry(state)
    assert found is not None
    assert found.last_prompt_tokens == expected


def test_an_old_archive_takes_its_time_from_the_sessions_name() -> None:
    """Facts that an older version didn't keep have sound defaults; nothing raises."""
    state = LaneState("k", bound="20261201_101500_00000000")
    found = entry(state)
    assert found is not None
    assert found.created_at.isoformat() == "2026-12-01T10:15:00+00:00"
    assert found.updated_at == found.created_at
    odd = entry(LaneState("k", bound="imported", since=7_000))
    assert odd is not None
    assert ms(odd.created_at) == 7_000


def test_late_words_are_no_activity() -> None:
    """What a stopped turn still says changes no entry."""
    bench = Bench()
    bench.said("a")
    running = bench.gate.durable.running
    assert running is not None
    bench.said("/stop")
    before = told(bench)
    bench.now.time += 50_000
    bench.tell(TurnEnded(running.turn, running.generation, "completed", "late", Usage(input=9)))
    assert told(bench) == before
