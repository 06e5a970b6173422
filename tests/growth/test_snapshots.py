"""Checkpoints are a cache of the fold: with, without, or with odd ones, the state is the same."""

from __future__ import annotations

import json
from typing import Any

import attrs
from hypothesis import given, settings
from hypothesis import strategies as st

from seriatim.batch import Rules
from seriatim.closers import OpenTurn
from seriatim.events import lane_log
from seriatim.lane import LaneState, SessionPart, apply_lane, apply_session
from seriatim.outbox import Channel
from seriatim.snapshots import (
    COUNTS,
    LATER,
    PLAIN,
    STATE_VERSION,
    lane_from_snapshot,
    lane_snapshot,
    session_from_snapshot,
    session_snapshot,
)
from seriatim.storage.checkpoints import checkpoint_text
from seriatim.storage.contract import Checkpoint
from tests.core.test_replay import CHANNELS, RULES, STEP, History


def through_text(data: dict[str, Any]) -> dict[str, Any]:
    """What the store gives back of a snapshot; it refuses what isn't lossless."""
    text, _ = checkpoint_text(Checkpoint(lane_log("k"), "state", 1, STATE_VERSION, data))
    back: dict[str, Any] = json.loads(text)
    assert back == data
    return back


@settings(max_examples=150)
@given(RULES, st.integers(0, 1), CHANNELS, st.lists(STEP, max_size=40), st.integers(0, 1_000), st.integers(0, 1_000))
def test_a_fold_from_any_checkpoint_and_the_tail_is_the_fold_of_all(
    rules: Rules, free: int, channel: Channel, steps: list[tuple[Any, ...]], lane_at: int, session_at: int
) -> None:
    """For random histories, cut anywhere in either log."""
    history = History(rules, free, channel)
    for step in steps:
        history.do(step)
    bench = history.bench
    whole = bench.fold()
    events = bench.lane_events()
    cut = lane_at % (len(events) + 1)
    early = LaneState(bench.key)
    for event in events[:cut]:
        apply_lane(early, event)
    early.session = None
    state = lane_from_snapshot(bench.key, STATE_VERSION, through_text(lane_snapshot(early)))
    assert state == early
    for event in events[cut:]:
        apply_lane(state, event)
    if state.bound is not None:
        told = bench.session_events(state.bound)
        cut = session_at % (len(told) + 1)
        part = SessionPart(state.bound)
        for event in told[:cut]:
            apply_session(part, event)
        state.session = session_from_snapshot(through_text(session_snapshot(part)))
        assert state.session == part
        for event in told[cut:]:
            apply_session(state.session, event)
    assert state == whole


def test_a_snapshot_leaves_no_field_out() -> None:
    """A new field of the state needs a place in the snapshot, and a new version."""
    told = {*PLAIN, "running", "interrupted", "waiting", "queue", "owed", "active_at", "facts"}
    later = {*LATER, *COUNTS, "unreached", "drafts", "bounced", "titles", "listed"}
    later |= {"notes", "approvals", "delegations"}
    assert {field.name for field in attrs.fields(LaneState)} == told | {"key", "session"} | later
    assert set(lane_snapshot(LaneState("k"))) == told
    assert set(session_snapshot(SessionPart("s"))) == {field.name for field in attrs.fields(SessionPart)}
    assert list(OpenTurn.__struct_fields__) == ["number", "step", "calls"]
