"""What a new incarnation does with what a dead one left."""

from __future__ import annotations

from seriatim.batch import Rules
from seriatim.effects import AckDuplicate, Deliver, Finished, Owes, RunTurn, SendPart
from seriatim.lane import evolve, fold
from seriatim.limits import INTERRUPTIONS_MAX
from seriatim.mail import Ask, AttemptWanted, DrainTimedOut, PartSettled, Recover
from seriatim.outbox import Channel
from seriatim.store_calls import MarkResume
from seriatim.turn import StepOffered, ToolCall, TurnEnded

from .bench import Bench

OLD = 5_000
STALE = Rules(freshness_ms=1_000)


def last_run(bench: Bench) -> RunTurn:
    """The latest turn that was started."""
    return bench.all(RunTurn)[-1]


def claimed(bench: Bench) -> list[str]:
    """Its claims."""
    return [data["id"] for data, _ in last_run(bench).claims]


def test_an_open_turn_is_closed_and_run_again() -> None:
    """Closers for what was open, turn/end{interrupted}, then one new turn with the same claims."""
    bench = Bench()
    inbox_id = bench.said("hi")
    calls = (ToolCall("a", "tool", {}),)
    bench.tell(StepOffered(1, 1, "", calls, later=(ToolCall("b", "tool", {}),)))
    bench.reopen()
    events = bench.session_events()
    results = {e.data["id"]: e.data["outcome"] for e in events if e.type == "tool/result"}
    assert results == {"a": "unknown", "b": "not started"}
    assert [e.data["reason"] for e in events if e.type == "turn/end"] == [{"kind": "interrupted"}]
    assert claimed(bench) == [inbox_id]
    run = last_run(bench)
    assert (run.number, run.attempt, run.resumed_from, run.generation) == (2, 2, 1, 2)
    assert [e.data["id"] for e in events if e.type == "user/message"] == [inbox_id]
    assert bench.gate.durable.resume_reason == "restart_interrupted"
    bench.answer()
    assert bench.gate.durable.resume_reason is None


def test_recovery_is_idempotent() -> None:
    """B68: a second recovery finds nothing to do: the same bytes as after one."""
    bench = Bench(STALE)
    bench.said("hi")
    bench.now.time += OLD
    bench.reopen()
    before = (bench.lane_events(), bench.session_events())
    bench.tell(Recover())
    bench.reopen()
    assert (bench.lane_events(), bench.session_events()) == before


def test_a_finished_lane_recovers_without_a_word() -> None:
    """Nothing open: recovery writes nothing."""
    bench = Bench()
    bench.said("hi")
    bench.answer()
    bench.tell(PartSettled(bench.all(Deliver)[0].delivery, 0, None))
    bench.tick(1_000)
    bench.drain()
    before = bench.lane_events()
    bench.reopen()
    assert bench.lane_events() == before


def test_a_live_turn_survives_a_refold() -> None:
    """After a head mismatch the running turn goes on: no interruption, its result counts."""
    bench = Bench()
    inbox_id = bench.said("hi")
    bench.start(live_generation=1)
    assert bench.lane_events("inbox/interrupted") == []
    bench.answer()
    assert bench.outcome(inbox_id) == "answered"


def test_stale_work_waits_for_the_next_message() -> None:
    """Beyond the freshness no turn starts by itself; a follow-up is claimed together with it."""
    bench = Bench(STALE)
    first = bench.said("hi")
    bench.now.time += OLD
    bench.forget()
    bench.reopen()
    assert bench.all(RunTurn) == []
    assert bench.gate.durable.phase == "interrupted"
    second = bench.said("are you there?")
    assert claimed(bench) == [first, second]
    assert [e.data["id"] for e in bench.session_events() if e.type == "user/message"] == [first, second]


def test_a_clock_that_went_back_counts_as_fresh() -> None:
    """B58: a negative age is fresh."""
    bench = Bench(STALE)
    first = bench.said("hi")
    bench.now.time -= 500
    bench.reopen()
    assert claimed(bench) == [first]


def test_a_stale_queue_item_has_its_own_turn_first() -> None:
    """An interrupted /queue item goes before the message that woke the lane, by itself."""
    bench = Bench(STALE)
    item = bench.said("/queue do it")
    bench.now.time += OLD
    bench.reopen()
    second = bench.said("hello?")
    assert claimed(bench) == [item]
    bench.answer()
    assert claimed(bench) == [second]


def test_a_wake_does_not_take_a_stale_message_along() -> None:
    """A wake runs alone; the interrupted message goes on waiting, also when the wake is interrupted."""
    bench = Bench(STALE)
    human = bench.said("hi")
    bench.now.time += OLD
    bench.reopen()
    wake = bench.wake()
    assert claimed(bench) == [wake]
    bench.reopen()
    assert claimed(bench) == [wake]
    assert [held.ids for held in bench.gate.durable.interrupted] == [(human,)]
    bench.answer()
    more = bench.said("and?")
    assert claimed(bench) == [human, more]
    bench.answer()
    assert bench.gate.durable.waiting == {}


def test_a_stale_message_is_not_merged_with_an_unequal_one() -> None:
    """Who is authorised otherwise doesn't speak for the interrupted message: it runs first, alone."""
    bench = Bench(STALE)
    human = bench.said("hi")
    bench.now.time += OLD
    bench.reopen()
    other = bench.said("hello", role_authorized=True)
    assert claimed(bench) == [human]
    bench.answer()
    assert claimed(bench) == [other]


def test_a_resume_in_a_fresh_session_tells_everything_again() -> None:
    """An interrupted wake that outlives /new has its message in the new session, and no resumed turn there."""
    bench = Bench(STALE)
    wake = bench.wake()
    bench.now.time += OLD
    bench.reopen()
    bench.said("/new")
    bench.said("hi")
    assert claimed(bench) == [wake]
    assert last_run(bench).resumed_from is None
    assert [e.data["id"] for e in bench.session_events() if e.type == "user/message"] == [wake]


def test_the_third_interruption_in_a_row_gives_up() -> None:
    """Claims dropped{interrupted}, the user told, the session suspended, the count back to 0, other work goes on."""
    bench = Bench()
    inbox_id = bench.said("hi")
    item = bench.said("/queue other")
    old = bench.gate.durable.bound
    for _ in range(INTERRUPTIONS_MAX):
        assert bench.outcome(inbox_id) == ""
        bench.reopen()
    assert bench.outcome(inbox_id) == "dropped (interrupted)"
    assert "given up" in bench.all(Deliver)[-1].parts[0]  # behind the place of the other, which was told first
    assert bench.gate.durable.interruptions == 0
    assert claimed(bench) == [item]
    assert (last_run(bench).session != old, last_run(bench).boundary) == (True, "suspended")
    assert [f.reason for f in bench.all(Finished) if f.outcome == "dropped"] == ["interrupted"]


def test_the_notice_of_giving_up_is_delivered_once() -> None:
    """The debt that recovery itself makes is taken up once, not twice."""
    bench = Bench()
    bench.said("hi")
    for _ in range(INTERRUPTIONS_MAX):
        bench.forget()
        bench.reopen()
    assert len(bench.all(Deliver)) == 1


def test_a_completed_turn_resets_the_count() -> None:
    """Only interruptions in a row count."""
    bench = Bench()
    for _ in range(4):
        bench.said("hi")
        bench.reopen()
        bench.reopen()
        bench.answer()
    assert bench.lane_events("inbox/dropped") == []


def test_a_restart_that_interrupts_nothing_does_not_count() -> None:
    """Starts of an idle lane leave the count alone."""
    bench = Bench(STALE)
    bench.said("hi")
    bench.now.time += OLD
    for _ in range(5):
        bench.reopen()
    assert bench.gate.durable.interruptions == 1


def test_a_drain_time_out_is_marked_with_its_reason() -> None:
    """The turn stays open, resume is marked; the next start keeps that reason and counts the interruption."""
    bench = Bench()
    bench.said("hi")
    bench.tell(DrainTimedOut("shutdown_timeout"))
    assert bench.gate.durable.running is not None
    bench.reopen()
    assert bench.gate.durable.resume_reason == "shutdown_timeout"
    assert bench.gate.durable.interruptions == 1


def test_stop_ends_a_waiting_resume() -> None:
    """/stop drops what would have been resumed, and its mark."""
    bench = Bench(Rules(freshness_ms=1_000, stop_suspends=False))
    inbox_id = bench.said("hi")
    bench.now.time += OLD
    bench.reopen()
    bench.said("/stop")
    assert bench.outcome(inbox_id) == "dropped (stop)"
    assert bench.gate.durable.resume_reason is None


def test_debts_are_taken_up_in_order() -> None:
    """A new incarnation says all that it owes, then each debt, oldest first, only the parts still due."""
    bench = Bench(channel=Channel(up=True, text_max=120))
    bench.said("hi")
    bench.answer("word " * 40)
    bench.said("/help")
    first = bench.all(Deliver)[0].delivery
    bench.offer(PartSettled(first, 0, None))
    bench.tick(1_000)
    bench.drain()
    bench.forget()
    bench.reopen()
    [owes] = bench.all(Owes)
    assert list(owes.deliveries) == [deliver.delivery for deliver in bench.all(Deliver)]
    assert next(d.due for d in bench.all(Deliver)) == (1, 2)
    assert not any(d.first_attempt_recorded for d in bench.all(Deliver))


def test_a_recovered_reply_is_marked_only_after_an_attempt() -> None:
    """Owed and never attempted: sent plainly. Recorded with the debt: marked, the send may have happened."""
    for separate, marked in ((True, False), (False, True)):
        bench = Bench(Rules(separate_attempt=separate))
        bench.said("hi")
        bench.answer()
        bench.reopen()
        bench.tell(AttemptWanted(bench.all(Deliver)[0].delivery, 0))
        assert [send.marked for send in bench.all(SendPart)] == [marked]


def test_a_redelivery_after_the_crash_is_a_duplicate() -> None:
    """Accepted, then killed before the ack left: the platform's second delivery is acknowledged, once run."""
    bench = Bench()
    bench.said("hi", key="m")
    bench.reopen()
    again = bench.said("hi", key="m")
    assert [ack.id for ack in bench.all(AckDuplicate)] == [again]
    assert bench.gate.durable.accepted == 1


def test_evolve_leaves_the_state_before_alone() -> None:
    """Evolve returns a new state and folds to the same end as fold."""
    bench = Bench()
    bench.said("hi")
    bench.answer()
    events = bench.lane_events()
    state = fold(bench.key, [], lambda session: [])
    for event in events:
        before = state.fork()
        after = evolve(state, bench.gate.lane, event)
        assert state == before
        state = after
    assert state.answered == 1
    assert state.session is not None


def test_nothing_is_decided_before_recovery_is_durable() -> None:
    """Recovery refused: the next message is decided behind it, never against a dead turn that seems to run."""
    bench = Bench()
    bench.said("hi")
    bench.store = type(bench.store)(bench.disk)
    bench.incarnation += 1
    bench.gate = type(bench.gate)(9, bench.fold(), bench.rules, lambda: bench.fresh("k"))
    bench.forget()
    bench.offer(Recover())
    bench.refuse()
    bench.said("/stop")
    assert len(bench.lane_events("inbox/interrupted")) == 1
    turns = [e.data["end"] for e in bench.lane_events("inbox/answered") if e.data["by"] == "turn"]
    assert turns == ["aborted"]
    generations = [effect.generation for effect in bench.all(RunTurn)]
    assert generations == [2]


def test_a_word_from_before_the_crash_is_late() -> None:
    """A turn that recovery closed can't be ended by its old runner."""
    bench = Bench()
    bench.said("hi")
    bench.start()
    bench.tell(TurnEnded(1, 1, "completed", "old"))
    assert len(bench.lane_events("turn/late")) == 1
    assert bench.gate.durable.running is not None


def test_a_delivered_reply_clears_a_mark_that_stands_for_no_turn() -> None:
    """What arrived is not to be answered again; with an interrupted turn there, the mark is that turn's and stays."""
    for interrupts in (False, True):
        bench = Bench(STALE)
        bench.said("hi")
        bench.answer()
        if interrupts:
            bench.said("and?")
            bench.now.time += OLD
            bench.reopen()
        bench.tell(Ask("mark", MarkResume("restart_timeout")))
        assert bench.gate.durable.resume_reason is not None
        bench.tell(PartSettled(bench.all(Deliver)[0].delivery, 0, None))
        bench.tick(1_000)
        bench.drain()
        assert (bench.gate.durable.resume_reason is not None) is interrupts
