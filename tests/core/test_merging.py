"""Two lanes become one in one commit: nothing is lost, nothing counts twice, and each log tells its own side."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seriatim.batch import Now, Rules
from seriatim.commits import Durable, Refused
from seriatim.effects import RunTurn
from seriatim.errors import BindingMismatchError
from seriatim.events import lane_log, session_log
from seriatim.lane import LaneState, fold
from seriatim.mail import DrainTimedOut
from seriatim.merging import Pair, merge, move
from seriatim.outbox import Channel
from seriatim.snapshots import lane_from_snapshot, lane_snapshot
from seriatim.storage.audit import audit

from .bench import Bench
from .test_replay import CHANNELS, RULES, STEP, History


def beside(one: Bench) -> Bench:
    """Another lane on the same disk."""
    other = Bench(one.rules, channel=one.channel)
    other.disk, other.store = one.disk, one.store
    other.key, other._ids = "lane-y", 10_000
    other.start()
    return other


def halted(bench: Bench) -> LaneState:
    """The lane's state when no turn runs and nothing is in flight."""
    bench.now.draining = True
    for _ in range(60):
        bench.drain()
        if not bench.gate.quiescent():
            bench.tick(10_000)
        elif bench.gate.durable.running is not None:
            bench.offer(bench.end("ended"))
        else:
            return bench.gate.durable
    raise AssertionError("it doesn't come to rest")


def merged(into: Bench, gone: Bench, chats: dict[str, str] | None = None) -> Pair:
    """Write the merge of two halted lanes."""
    pair = merge(
        halted(into), halted(gone), now_ms=into.now.time, commit_id="merge", incarnation=into.incarnation, chats=chats
    )
    assert into.store.commit([pair.commit]) == [Durable("merge")]
    return pair


def check_told_alike(into: Bench, gone: Bench, pair: Pair) -> None:
    """What the commit believed is what both logs tell, also by way of a snapshot, and law 1 holds in both ways."""
    reader = into.store.reader()
    for bench, state in ((into, pair.lane), (gone, pair.other)):
        assert state is not None
        told = fold(bench.key, reader.read(lane_log(bench.key)), lambda s: reader.read(session_log(s)))
        assert told == state
        assert state.accepted == state.answered + state.merged + state.dropped + len(state.waiting)
        again = lane_from_snapshot(bench.key, 1, lane_snapshot(state))
        again.session = state.session
        assert again == state
    found = audit(reader)
    assert found.holds, found


@settings(max_examples=120)
@given(RULES, CHANNELS, st.lists(STEP, max_size=25), st.lists(STEP, max_size=25))
def test_whatever_both_held_is_in_one(
    rules: Rules, channel: Channel, ours: list[tuple[Any, ...]], theirs: list[tuple[Any, ...]]
) -> None:
    """After any two histories: each waiting message, debt and interrupted turn once, both orders kept, law 1 intact."""
    one = History(rules, 3, channel)
    other = History(rules, 3, channel)
    other.bench.disk, other.bench.store = one.bench.disk, one.bench.store
    other.bench.key, other.bench._ids = "lane-y", 10_000
    for step in ours:
        one.do(step)
    other.bench.store = one.bench.store  # a crash may have opened another
    other.bench.incarnation = 0
    other.bench.start()
    for step in theirs:
        if step[0] not in ("again", "crash"):  # keys that both use, and a store of its own
            other.do(step)
            other.bench.drain()
    here, there = halted(one.bench), halted(other.bench)
    before = one.bench.store.reader().counters()

    pair = merged(one.bench, other.bench)

    check_told_alike(one.bench, other.bench, pair)
    after, left = pair.lane, pair.other
    assert left is not None
    assert list(after.waiting) == [*here.waiting, *there.waiting]
    assert after.owed.keys() == here.owed.keys() | there.owed.keys()
    assert not any((left.waiting, left.owed, left.queue, left.interrupted, left.bound))
    assert left.merged_into == one.bench.key
    for queue in (here.queue, there.queue):
        assert [entry for entry in after.queue if entry in queue] == queue
    assert {turn.ids for turn in after.interrupted} == {turn.ids for turn in (*here.interrupted, *there.interrupted)}
    assert one.bench.store.reader().counters() == before
    finish(one.bench)


def finish(bench: Bench) -> None:
    """The lane goes on in a new process, and everything gets its outcome there."""
    bench.now.draining = False
    bench.reopen()
    bench.channel = Channel(up=True, idempotent=True)
    for _ in range(200):
        bench.drain()
        if bench.gate.durable.running is not None:
            bench.tell(bench.end("answer"))
        elif bench.gate.durable.queue:
            bench.tick(1)
            bench.start()
        else:
            break
    assert not bench.gate.durable.queue
    state = bench.gate.durable
    held = sum(len(turn.ids) for turn in state.interrupted)  # too old to run by itself
    assert state.accepted == state.answered + state.merged + state.dropped + held


def test_the_longer_conversation_goes_on() -> None:
    """The session with more turns is the one that both messages' people go on with; the other keeps its log."""
    one = Bench()
    other = beside(one)
    for text in ("a", "b"):
        other.said(text)
        other.answer()
    one.said("c")
    one.answer()
    session, orphan = other.gate.durable.bound, one.gate.durable.bound
    assert session is not None

    pair = merged(one, other)

    assert pair.lane.bound == session
    assert pair.lane.session is not None
    assert pair.lane.session.turns == 2
    assert one.store.reader().binding(session_log(session)) == lane_log(one.key)
    assert orphan is not None
    assert one.store.reader().read(session_log(orphan))
    check_told_alike(one, other, pair)


def test_a_lane_that_nobody_has_used_takes_everything() -> None:
    """A lane without a log of its own can take another one over: the group has only a new id."""
    one = Bench()
    other = beside(one)
    other.said("hello", user="u")
    other.said("/queue later")
    session = other.gate.durable.bound

    pair = merged(one, other, {"chat": "chat-2"})

    assert pair.lane.bound == session
    check_told_alike(one, other, pair)
    one.now.draining = False
    one.reopen()
    one.forget()
    one.start()
    [run] = one.all(RunTurn)
    assert [claim["source"]["chat_id"] for claim, _ in run.claims] == ["chat-2"]


def test_debts_go_where_the_chat_is_now() -> None:
    """What is owed to a chat that the platform has replaced is owed to its new id, with its attempts."""
    one = Bench()
    other = beside(one)
    other.channel = Channel(up=False)
    other.said("hello")
    other.answer("owed")
    [debt] = halted(other).owed.values()

    pair = merged(one, other, {"chat": "chat-2"})

    [moved] = pair.lane.owed.values()
    assert moved.target.chat_id == "chat-2"
    assert (moved.id, moved.texts, moved.states, moved.since) == (debt.id, debt.texts, debt.states, debt.since)


@pytest.mark.parametrize("longer", [True, False])
def test_a_suspension_stays_with_its_conversation(longer: bool) -> None:
    """A stopped conversation that goes on is still stopped; one that doesn't is no matter any more."""
    one = Bench()
    other = beside(one)
    stopped, plain = (other, one) if longer else (one, other)
    for text in ("a", "b"):
        stopped.said(text)
        stopped.answer()
    stopped.said("c")
    stopped.said("/stop")
    plain.said("d")
    plain.answer()
    session = stopped.gate.durable.bound

    pair = merged(one, other)

    assert pair.lane.bound == session
    assert pair.lane.suspended_at is not None
    one.now.draining = False
    one.reopen()
    one.said("e")
    assert one.gate.durable.bound != session


def test_what_both_lanes_said_before_is_late() -> None:
    """The next turn's number is above all that either lane has used, so no late word of either fits it."""
    one = Bench()
    other = beside(one)
    for _ in range(3):
        other.said("a")
        other.answer()
    one.said("b")
    one.answer()

    pair = merged(one, other)

    assert pair.lane.generation == 3


def test_an_interrupted_turn_runs_again_in_the_other_lane() -> None:
    """A turn that a crash cut off is taken up by the lane that stays."""
    one = Bench()
    other = beside(one)
    inbox_id = other.said("hello")
    other.tell(DrainTimedOut("restart_timeout"))
    other.now.draining = True
    other.start()
    [held] = other.gate.durable.interrupted

    merged(one, other)
    one.forget()
    one.now.draining = False
    one.reopen()

    [run] = one.all(RunTurn)
    assert [claim["id"] for claim, _ in run.claims] == [inbox_id]
    assert (run.attempt, run.resumed_from) == (2, held.turn)


def _move(to: Bench, other: Bench, session: str, holder: str | None, **more: Any) -> Pair:
    now = Now(to.now.time, to.now.fresh_id, to.now.session_id, lambda: False, to.now.channel, draining=True)
    return move(
        halted(to),
        session,
        holder,
        halted(other),
        reason="resume",
        rules=to.rules,
        now=now,
        commit_id="move",
        incarnation=to.incarnation,
        **more,
    )


def test_a_session_moves_with_its_command_s_answer() -> None:
    """The binding, the other lane's release, the command and its answer are one commit."""
    one = Bench()
    other = beside(one)
    other.said("hello")
    other.answer()
    session = other.gate.durable.bound
    assert session is not None
    command = one.message("/resume plan")

    pair = _move(one, other, session, other.key, command=command, text="Here we are.")

    assert one.store.commit([pair.commit]) == [Durable("move")]
    reader = one.store.reader()
    assert reader.binding(session_log(session)) == lane_log(one.key)
    assert one.fold().bound == session
    assert other.fold().bound is None
    assert one.outcome(command.id) == "answered"
    assert [owed.texts for owed in one.fold().owed.values()] == [("Here we are.",)]
    assert reader.has_keys([command.key]) == {command.key}
    assert audit(reader).holds
    other.now.draining = False
    other.start()
    other.said("again")
    assert other.gate.durable.bound not in (None, session)


def test_a_session_that_has_moved_meanwhile_is_not_taken() -> None:
    """Whoever believed that another lane has the session is refused by the store, with nothing written."""
    one = Bench()
    other = beside(one)
    other.said("hello")
    other.answer()
    session = other.gate.durable.bound
    assert session is not None

    pair = _move(one, other, session, "lane-z")

    [outcome] = one.store.commit([pair.commit])
    assert isinstance(outcome, Refused)
    assert isinstance(outcome.error, BindingMismatchError)
    assert other.fold().bound == session
