"""One turn's commits, T0 to T6, and who waits for which."""

from __future__ import annotations

import pytest

from seriatim.batch import Rules
from seriatim.effects import (
    Ack,
    CancelTurn,
    Deliver,
    DropDelivery,
    Finished,
    Proceed,
    ReleaseCalls,
    RunTurn,
    SendPart,
    WantSlot,
)
from seriatim.lane import hot
from seriatim.mail import AttemptWanted, PartAbandoned, PartFailed, PartSettled, SlotGranted
from seriatim.outbox import Channel
from seriatim.turn import StepOffered, ToolCall, ToolFinished, TurnEnded

from .bench import Bench


def call(call_id: str) -> ToolCall:
    """A tool call."""
    return ToolCall(call_id, "tool", {"x": 1})


def test_an_idle_lane_accepts_and_starts_in_one_commit() -> None:
    """T0 and T1 are one commit when the lane is idle and a slot is free; ack, then turn."""
    bench = Bench()
    bench.forget()
    bench.said("hi")
    assert [type(effect) for effect in bench.effects] == [Ack, RunTurn]
    assert len({permit.commit for permit in bench.permits}) == 1
    assert [e.type for e in bench.lane_events()] == ["route/bound", "inbox/accepted", "inbox/claimed"]
    assert [e.type for e in bench.session_events()] == ["turn/start", "user/message", "step/start"]


def test_without_a_slot_the_ack_does_not_wait() -> None:
    """No slot: T0 alone, the ack leaves, a slot is wanted; SlotGranted brings T1."""
    bench = Bench(free=0)
    bench.forget()
    inbox_id = bench.said("hi")
    assert [type(effect) for effect in bench.effects] == [Ack]
    assert len(bench.all(WantSlot)) == 1
    bench.free = 1
    bench.tell(SlotGranted())
    assert [c[0]["id"] for c in bench.all(RunTurn)[0].claims] == [inbox_id]


def test_calls_run_after_they_are_recorded_and_go_on_after_their_result_is() -> None:
    """T2 gates the tools, T3 the next model call; the last result opens the next step."""
    bench = Bench()
    bench.said("hi")
    generation = bench.all(RunTurn)[0].generation
    bench.offer(StepOffered(1, generation, "let me see", (call("a"), call("b"))))
    assert bench.all(ReleaseCalls) == []
    bench.drain()
    assert bench.all(ReleaseCalls)[0].calls == ("a", "b")
    bench.tell(ToolFinished(1, generation, "a", {"n": 1}))
    bench.offer(ToolFinished(1, generation, "b", None, error=True))
    assert [p.call_id for p in bench.all(Proceed)] == ["a"]
    bench.drain()
    assert [p.call_id for p in bench.all(Proceed)] == ["a", "b"]
    kinds = [e.type for e in bench.session_events()][3:]
    assert kinds == [
        "assistant/message", "tool/call", "tool/call", "tool/result", "tool/result", "step/end", "step/start",
    ]  # fmt: skip


def test_serial_calls_are_recorded_one_by_one() -> None:
    """A later call of the step is recorded with the result before it, and the step stays open until the last."""
    bench = Bench()
    bench.said("hi")
    bench.tell(StepOffered(1, 1, "", (call("a"),), later=(call("b"),)))
    bench.tell(ToolFinished(1, 1, "a", "ok", next=(call("b"),)))
    assert [r.calls for r in bench.all(ReleaseCalls)] == [("a",), ("b",)]
    turn = bench.gate.durable.session
    assert turn is not None
    assert turn.open is not None
    assert (turn.open.step, turn.open.calls) == (1, {"b": 6})


def test_the_end_of_a_turn_is_one_commit() -> None:
    """T4: reply, step end, turn end, each claim's outcome and the debt, in one commit; then the send."""
    bench = Bench()
    first = bench.said("hi")
    more = [bench.said("and"), bench.said("more")]
    bench.answer("one")
    bench.forget()
    bench.offer(bench.end("two"))
    assert bench.effects == []
    bench.drain()
    assert (bench.outcome(first), bench.outcome(more[0]), bench.outcome(more[1])) == (
        "answered", "answered", "merged",
    )  # fmt: skip
    assert [(f.id, f.outcome, f.text) for f in bench.all(Finished)] == [
        (more[0], "answered", "two"), (more[1], "merged", "two"),
    ]  # fmt: skip
    [deliver] = bench.all(Deliver)
    assert deliver.parts == ("two",)
    assert [e.type for e in bench.session_events()][-3:] == ["assistant/message", "step/end", "turn/end"]


def test_an_ended_turn_starts_the_next_in_the_same_commit() -> None:
    """T4 of one turn and T1 of the next share a commit when a slot is free."""
    bench = Bench()
    bench.said("hi")
    follow = bench.said("next")
    bench.forget()
    bench.answer()
    assert [c[0]["id"] for c in bench.all(RunTurn)[0].claims] == [follow]
    assert len({permit.commit for permit in bench.permits}) == 1


@pytest.mark.parametrize("separate", [False, True])
def test_the_first_attempt_rides_with_the_debt(separate: bool) -> None:
    """T5 is part of T4 when the way is up and nothing else is owed, unless separate_attempt."""
    bench = Bench(Rules(separate_attempt=separate))
    bench.said("hi")
    bench.answer()
    [deliver] = bench.all(Deliver)
    assert deliver.first_attempt_recorded is not separate
    [owed] = bench.gate.durable.owed.values()
    assert owed.states[0].first is not separate


def test_a_second_debt_records_its_attempts_by_itself() -> None:
    """While a reply is owed, or the adapter is down, the next debt's first attempt is not recorded with it."""
    bench = Bench()
    bench.said("/help")
    bench.said("/help")
    bench.channel = Channel(up=False)
    bench.tell(PartSettled(bench.all(Deliver)[0].delivery, 0, None))
    bench.said("/help")
    assert [d.first_attempt_recorded for d in bench.all(Deliver)] == [True, False, False]


def test_without_t5_the_debt_is_the_attempt() -> None:
    """On a platform with idempotent sends the debt itself counts as the first attempt."""
    bench = Bench(channel=Channel(up=False, idempotent=True))
    bench.said("/help")
    [owed] = bench.gate.durable.owed.values()
    assert owed.states[0].first
    assert bench.all(Deliver)[0].first_attempt_recorded


def test_silence_is_recorded_with_its_reason() -> None:
    """A silent turn owes nothing, and says why."""
    bench = Bench()
    bench.said("hi")
    generation = bench.all(RunTurn)[0].generation
    bench.tell(TurnEnded(1, generation, "completed", None, detail="not for me"))
    assert bench.all(Deliver) == []
    assert bench.lane_events("delivery/none")[0].data["reason"] == "not for me"


def test_a_failed_turn_answers_neutrally() -> None:
    """A failed turn tells its person so, without the error's own text, and its claims are answered."""
    bench = Bench()
    inbox_id = bench.said("hi")
    bench.tell(TurnEnded(1, 1, "failed", None, detail="KeyError: secret"))
    assert bench.outcome(inbox_id) == "answered"
    assert "secret" not in bench.all(Deliver)[0].parts[0]


def test_lone_surrogates_are_mended_at_both_ends() -> None:
    """Text that JSON can't carry is mended and flagged, coming in and going out."""
    bench = Bench()
    bench.said("a\ud800b")
    bench.answer("c\udfffd")
    assert bench.lane_events("inbox/accepted")[0].data["mended"]
    said = next(e for e in bench.session_events() if e.type == "assistant/message")
    assert (said.data["text"], said.data["mended"]) == ("c\ufffdd", True)
    assert bench.all(Deliver)[0].parts == ("c\ufffdd",)


# --- late words ---------------------------------------------------------------------------------------------


def test_late_words_touch_nothing() -> None:
    """A stopped turn's step, tool result and end change no later turn; the end is recorded as late."""
    bench = Bench(Rules(stop_suspends=False))
    bench.said("hi")
    late = bench.end("too late")
    bench.said("/stop")
    bench.said("next")
    before = bench.gate.durable
    bench.tell(StepOffered(1, 1, "", (call("a"),)))
    bench.tell(ToolFinished(1, 1, "a", 1))
    assert bench.gate.durable == before
    bench.tell(late)
    assert [e.data["generation"] for e in bench.lane_events("turn/late")] == [1]
    running = bench.gate.durable.running
    assert running is not None
    assert running.generation == 2
    assert [e.data["text"] for e in bench.session_events() if e.type == "assistant/message"] == []


def test_a_runner_that_went_away_leaves_the_turn_open() -> None:
    """TurnEnded(interrupted) ends nothing: only recovery writes that end."""
    bench = Bench()
    inbox_id = bench.said("hi")
    bench.tell(bench.end(None, "interrupted"))
    assert bench.gate.durable.running is not None
    assert bench.outcome(inbox_id) == ""


def test_cancel_leaves_with_the_commit_that_ends_the_turn() -> None:
    """/stop cancels only once it is durable; refused, the turn runs on."""
    bench = Bench()
    bench.said("hi")
    bench.say("/stop")
    bench.refuse()
    assert bench.all(CancelTurn) == []
    assert bench.gate.durable.running is not None
    bench.said("/stop")
    assert len(bench.all(CancelTurn)) == 1


# --- attempts and doubt ---------------------------------------------------------------------------------------


def owing(rules: Rules | None = None, channel: Channel | None = None) -> tuple[Bench, str]:
    """A lane that owes one reply without a recorded attempt."""
    bench = Bench(Rules(separate_attempt=True) if rules is None else rules, channel=channel)
    bench.said("hi")
    bench.answer()
    return bench, bench.all(Deliver)[0].delivery


def marks(bench: Bench) -> list[bool]:
    """Whether each permitted send was marked."""
    return [send.marked for send in bench.all(SendPart)]


def test_the_attempt_is_durable_before_the_send() -> None:
    """T5 gates the send where the platform can't deduplicate."""
    bench, delivery = owing()
    bench.offer(AttemptWanted(delivery, 0))
    assert bench.all(SendPart) == []
    bench.drain()
    assert marks(bench) == [False]


def test_a_repeat_after_doubt_is_marked() -> None:
    """An attempt of unknown outcome marks the next one."""
    bench, delivery = owing()
    bench.tell(AttemptWanted(delivery, 0))
    bench.tell(AttemptWanted(delivery, 0))
    assert marks(bench) == [False, True]


def test_a_sure_failure_clears_its_own_doubt_only() -> None:
    """After a sure failure the next attempt is plain; an older doubt sticks."""
    bench, delivery = owing()
    bench.tell(AttemptWanted(delivery, 0))
    bench.offer(PartFailed(delivery, 0, "surely"))
    bench.tell(AttemptWanted(delivery, 0))
    bench.tell(AttemptWanted(delivery, 0))
    bench.offer(PartFailed(delivery, 0, "surely"))
    bench.tell(AttemptWanted(delivery, 0))
    assert marks(bench) == [False, False, True, True]


def test_a_failure_told_twice_counts_once() -> None:
    """The same sure failure heard again (by a successor) doesn't clear another attempt's doubt."""
    bench, delivery = owing()
    bench.tell(AttemptWanted(delivery, 0))
    bench.tell(AttemptWanted(delivery, 0))
    for _ in range(3):
        bench.offer(PartFailed(delivery, 0, "surely"))
    bench.tell(AttemptWanted(delivery, 0))
    assert len(bench.lane_events("delivery/failed")) == 1
    assert marks(bench) == [False, True, True]


def test_doubtful_attempts_are_bounded() -> None:
    """At most three ambiguous sends per part, where each attempt has a record of its own."""
    bench, delivery = owing()
    for _ in range(5):
        bench.tell(AttemptWanted(delivery, 0))
    assert len(bench.all(SendPart)) == 3
    assert bench.gate.durable.owed == {}
    assert bench.all(DropDelivery)


def test_a_debt_that_counts_as_the_attempt_is_bounded_by_age() -> None:
    """Its doubt may mean nothing but crashes before a send: attempts go on, each one marked."""
    bench, delivery = owing(Rules())
    for _ in range(5):
        bench.tell(AttemptWanted(delivery, 0))
    assert marks(bench) == [True] * 5
    assert delivery in bench.gate.durable.owed


def test_clean_refusals_are_not_counted() -> None:
    """Attempts that surely failed don't use up the bound."""
    bench, delivery = owing()
    for _ in range(8):
        bench.tell(AttemptWanted(delivery, 0))
        bench.offer(PartFailed(delivery, 0, "surely"))
    bench.tell(AttemptWanted(delivery, 0))
    assert marks(bench) == [False] * 9


def test_no_mark_where_the_platform_deduplicates() -> None:
    """A repeat under an idempotency key needs no notice."""
    bench, delivery = owing(channel=Channel(up=True, idempotent=True))
    bench.tell(AttemptWanted(delivery, 0))
    bench.tell(AttemptWanted(delivery, 0))
    assert marks(bench) == [False, False]


def two_parts() -> tuple[Bench, str]:
    """A lane that owes a reply of three parts."""
    bench = Bench(Rules(separate_attempt=True), channel=Channel(up=True, text_max=120))
    bench.said("hi")
    bench.answer("word " * 40)
    deliver = bench.all(Deliver)[0]
    assert len(deliver.parts) == 3
    return bench, deliver.delivery


def test_a_debt_ends_with_its_last_part() -> None:
    """Each part has its own ledger; the debt is gone when all are settled or abandoned."""
    bench, delivery = two_parts()
    bench.offer(PartSettled(delivery, 0, "m1"))
    bench.offer(PartSettled(delivery, 1, "m2"))
    bench.tick(1_000)
    bench.drain()
    assert [part.done for part in bench.gate.durable.owed[delivery].states] == [True, True, False]
    bench.tell(PartAbandoned(delivery, 2, "blocked"))
    assert bench.gate.durable.owed == {}
    assert hot(bench.gate.durable).owed == 0


def test_an_attempt_at_a_part_that_is_through_brings_the_others_back() -> None:
    """Asking for a settled part is answered with what is still due, not by forgetting the reply."""
    bench, delivery = two_parts()
    bench.offer(PartSettled(delivery, 0, None))
    bench.forget()
    bench.tell(AttemptWanted(delivery, 0))
    assert bench.all(DropDelivery) == []
    assert [d.due for d in bench.all(Deliver)] == [(1, 2)]


def test_giving_a_part_up_gives_up_what_follows_it() -> None:
    """A reply's tail makes no sense without its middle; what is on its way before stays owed."""
    bench, delivery = two_parts()
    bench.tell(AttemptWanted(delivery, 0))
    bench.tell(PartAbandoned(delivery, 1, "blocked"))
    assert [part.done for part in bench.gate.durable.owed[delivery].states] == [False, True, True]
    [drop] = bench.all(DropDelivery)
    assert drop.first == 1


def test_an_attempt_at_an_unknown_debt_is_told_to_forget_it() -> None:
    """What is no longer owed is not sent."""
    bench = Bench()
    bench.tell(AttemptWanted("nothing", 0))
    assert [drop.delivery for drop in bench.all(DropDelivery)] == ["nothing"]


def test_the_answer_goes_where_the_question_came_from() -> None:
    """A reply's target is recorded with the message it answers, not taken from the last sender."""
    bench = Bench()
    bench.said("hi", thread_id="t1")
    bench.said("more", thread_id="t2")
    bench.answer()
    assert bench.all(Deliver)[0].target.thread_id == "t1"
