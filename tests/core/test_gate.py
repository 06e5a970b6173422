"""The Gate's rules, one by one."""

from __future__ import annotations

import importlib
import inspect

import pytest

import seriatim.effects
from seriatim.batch import Batch, Rules
from seriatim.commits import Durable
from seriatim.effects import (
    Ack,
    AckDuplicate,
    CancelTurn,
    Deliver,
    Nack,
    Permit,
    ReturnSlot,
    RunTurn,
    SendPart,
    WantSlot,
)
from seriatim.errors import (
    BindingMismatchError,
    CommitTooLargeError,
    HeadMismatchError,
    KeysTakenError,
    LosslessJsonError,
    OwnershipLostError,
)
from seriatim.events import lane_log
from seriatim.gate import LAZY_WINDOW_MS
from seriatim.lane import hot
from seriatim.limits import (
    COMMIT_BYTES_MAX,
    COMMIT_MESSAGES_MAX,
    COMMIT_RETRY_MS,
    STASH_BYTES_MAX,
    STASH_MESSAGES_MAX,
)
from seriatim.mail import AttemptWanted, Inbound, Mail, PartFailed, PartSettled, SlotGranted
from seriatim.turn import StepOffered, ToolCall, ToolFinished, TurnEnded

from .bench import Bench


def busy() -> Bench:
    """A lane with a commit in flight and nothing else."""
    bench = Bench()
    bench.said("/help")
    bench.forget()
    bench.say("/help")
    return bench


# --- one commit in flight, law 2 ----------------------------------------------------------------------------


def test_one_commit_is_in_flight() -> None:
    """While one is in flight nothing else is offered; then what waits is one commit."""
    bench = busy()
    for _ in range(5):
        assert bench.gate.offer(bench.message("/help"), bench.now).commit is None
    out = bench.settle()
    assert out.commit is not None
    assert len(out.commit.unique) == 5


def test_effects_leave_with_the_permit_of_their_commit() -> None:
    """Nothing leaves at offer; all leave at Durable, in order, with that commit's permit."""
    bench = Bench()
    bench.forget()
    bench.say("a")
    assert bench.effects == []
    assert bench.offered is not None
    commit = bench.offered.id
    bench.drain()
    assert bench.permits == [Permit(commit, lane_log(bench.key), bench.incarnation)] * 2
    assert [type(effect) for effect in bench.effects] == [Ack, RunTurn]


def test_the_durable_state_waits_too() -> None:
    """Nobody outside sees what is only staged: state and hot row change when the commit is durable."""
    bench = Bench()
    bench.say("a")
    assert bench.gate.durable.accepted == 0
    assert not hot(bench.gate.durable).is_open
    bench.drain()
    assert bench.gate.durable.accepted == 1
    assert bench.disk.hot[lane_log(bench.key)] == hot(bench.gate.durable)


def test_permits_are_minted_by_the_gate_alone() -> None:
    """No module but the gate makes a Permit."""
    rules = ("batch", "commands", "decide", "inbox", "recovery", "lane", "queueing", "outbox")
    sources = [inspect.getsource(importlib.import_module(f"seriatim.{name}")) for name in rules]
    assert not any("Permit(" in source for source in sources)
    assert seriatim.effects.Permit is Permit


def test_an_answer_to_another_commit_is_ignored() -> None:
    """An outcome that names no commit in flight touches nothing."""
    bench = busy()
    other = Bench()
    other.say("x")
    assert other.offered is not None
    [outcome] = other.store.commit([other.offered])
    assert isinstance(outcome, Durable)
    out = bench.gate.settled(Durable("another"), bench.now)
    assert (out.effects, out.commit) == ([], None)
    assert not bench.gate.quiescent()


# --- refused: refusable and kept ----------------------------------------------------------------------------


def test_a_refused_message_is_nacked_and_gone() -> None:
    """Inbound is refusable: its sender is told no, nothing of it stays."""
    bench = Bench()
    inbox_id = bench.say("a")
    bench.refuse()
    assert [(nack.id, nack.reason) for nack in bench.all(Nack)] == [(inbox_id, "storage_unavailable")]
    assert bench.effects == [effect for effect in bench.effects if type(effect) is not Ack]
    assert bench.gate.durable.accepted == 0
    assert bench.gate.quiescent()


def test_a_refused_turn_end_is_decided_again() -> None:
    """What has happened is kept: decided again after a back-off that grows."""
    bench = Bench()
    bench.said("a")
    bench.offer(bench.end("reply"))
    for wait in COMMIT_RETRY_MS:
        out = bench.refuse()
        assert out.wake_at == bench.now.time + wait
        assert bench.tick(wait - 1).commit is None
        assert bench.tick(1).commit is not None
    bench.drain()
    assert bench.all(Deliver)[0].parts == ("reply",)


def test_the_stash_goes_on_at_once_after_a_refusal() -> None:
    """The kept message waits for its back-off, what is stashed does not."""
    bench = Bench()
    bench.said("a")
    bench.offer(bench.end())
    follow = bench.say("b")
    out = bench.refuse()
    assert out.commit is not None
    bench.drain()
    assert [ack.id for ack in bench.all(Ack)][-1] == follow
    assert bench.gate.durable.running is not None


def test_who_waits_behind_a_refused_message_is_refused_with_it() -> None:
    """Where refused messages are kept elsewhere, none from behind overtakes; what has happened anyway stays."""
    bench = Bench(Rules(refuse_behind=True))
    bench.said("a")
    first = bench.say("b")
    behind = bench.say("c")
    bench.offer(bench.end())
    bench.refuse()
    assert [nack.id for nack in bench.internal if type(nack) is Nack] == [first, behind]
    bench.drain()
    assert bench.gate.durable.running is None
    assert bench.gate.durable.accepted == 1


def test_a_commit_in_flight_is_not_offered_twice() -> None:
    """A kept message's timer doesn't put a second copy of another commit on its way."""
    bench = Bench()
    bench.said("a")
    bench.offer(bench.end())
    bench.say("b")
    out = bench.refuse()
    assert out.wake_at is None
    assert bench.tick(60_000).commit is None
    bench.drain()
    assert bench.gate.durable.running is not None
    assert bench.gate.durable.running.generation == 2


@pytest.mark.parametrize("kind", [PartSettled, PartFailed])
def test_refused_marks_are_kept(kind: type[Mail]) -> None:
    """A settlement or failure that was refused is told again."""
    bench = Bench()
    bench.said("/help")
    delivery = bench.all(Deliver)[0].delivery
    bench.offer(PartSettled(delivery, 0, None) if kind is PartSettled else PartFailed(delivery, 0, "no"))
    bench.tick(LAZY_WINDOW_MS)
    bench.refuse()
    bench.tick(COMMIT_RETRY_MS[0])
    bench.drain()
    name = "delivery/settled" if kind is PartSettled else "delivery/failed"
    assert len(bench.lane_events(name)) == 1


# --- keys ---------------------------------------------------------------------------------------------------


def test_a_known_key_is_acked_never_nacked() -> None:
    """Refused for unique keys: those messages get AckDuplicate, the rest is decided again."""
    bench = Bench()
    bench.said("a", key="m1")
    bench.forget()
    bench.say("/help")
    again = bench.say("a", key="m1")
    fresh = bench.say("b")
    bench.drain()
    assert [ack.id for ack in bench.all(AckDuplicate)] == [again]
    assert fresh in [ack.id for ack in bench.all(Ack)]
    assert bench.all(Nack) == []
    assert bench.gate.durable.accepted == 3


def test_a_duplicate_inside_a_batch_waits_for_the_first() -> None:
    """Twice in one commit: accepted once, the second acked as duplicate when the commit is durable."""
    bench = busy()
    first, second = bench.say("a", key="m"), bench.say("a", key="m")
    bench.settle()
    assert bench.all(AckDuplicate) == []
    bench.drain()
    assert [ack.id for ack in bench.all(AckDuplicate)] == [second]
    assert bench.gate.durable.waiting.keys() == {first}


def test_a_duplicate_inside_a_refused_batch_is_refused_too() -> None:
    """A duplicate of something that isn't durable must not be acked."""
    bench = busy()
    ids = [bench.say("a", key="m"), bench.say("a", key="m")]
    bench.settle()
    bench.refuse()
    assert [nack.id for nack in bench.all(Nack)] == ids
    assert bench.all(AckDuplicate) == []


def test_keys_that_nobody_offered_are_no_endless_loop() -> None:
    """A refusal for keys that are none of ours is treated like any other refusal."""
    bench = Bench()
    bench.say("a", key="m")
    bench.refuse(KeysTakenError(("x",)), ("x",))
    assert bench.gate.quiescent()
    assert [nack.reason for nack in bench.all(Nack)] == ["storage_unavailable"]


# --- unknown ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("written", [True, False])
def test_unknown_offers_the_same_commit_again(written: bool) -> None:
    """The same commit, the same id; present or absent, its effects leave once and nothing is interrupted."""
    bench = Bench()
    bench.forget()
    inbox_id = bench.say("a")
    commit = bench.offered
    out = bench.doubt(written=written)
    assert (out.effects, out.commit) == ([], None)
    assert out.wake_at == bench.now.time + COMMIT_RETRY_MS[0]
    assert bench.tick(COMMIT_RETRY_MS[0]).commit is commit
    bench.drain()
    assert [ack.id for ack in bench.all(Ack)] == [inbox_id]
    assert len(bench.all(RunTurn)) == 1
    assert bench.gate.durable == bench.fold()
    assert bench.lane_events("inbox/interrupted") == []


def test_mail_waits_while_a_commit_is_unknown() -> None:
    """Unknown keeps what is staged: the stash waits behind it, in order."""
    bench = Bench()
    bench.say("a")
    bench.say("b")
    bench.doubt(written=True)
    bench.say("c")
    bench.tick(COMMIT_RETRY_MS[0])
    bench.drain()
    assert [data.data["text"] for data in bench.gate.durable.waiting.values()] == ["a", "b", "c"]


def test_unknown_then_refused_is_refused() -> None:
    """Surely absent after all: senders are told no, the slot comes back."""
    bench = Bench(free=1)
    bench.say("a")
    bench.doubt(written=False)
    bench.tick(COMMIT_RETRY_MS[0])
    bench.refuse()
    assert len(bench.all(Nack)) == 1
    assert bench.free == 1


# --- the end of an incarnation --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "stale"),
    [
        (HeadMismatchError("log", 1, 2), True),
        (BindingMismatchError("s", "a", "b"), True),
        (OwnershipLostError("newer"), False),
    ],
)
def test_a_gate_whose_logs_have_moved_on_stops(error: Exception, stale: bool) -> None:
    """Stale or lost: nothing more is offered, nothing nacked, everything undecided is there for a successor."""
    bench = Bench()
    bench.said("a")
    end = bench.end()
    bench.offer(end)
    mark = PartSettled("d", 0, None)
    bench.offer(mark)
    follow = bench.message("b")
    bench.offer(follow)
    out = bench.refuse(error)
    assert (out.stale, out.lost) == (stale, not stale)
    later = bench.message("c")
    out = bench.offer(later)
    assert (out.commit, out.wake_at) == (None, None)
    assert bench.gate.leftover() == [end, mark, follow, later]
    assert bench.all(Nack) == []


def test_a_dead_incarnation_leaves_only_what_may_be_told_twice() -> None:
    """In flight when the actor dies: inbound is handed on (its key tells), a turn's word is not."""
    bench = Bench()
    bench.said("a")
    bench.offer(bench.end())
    follow = bench.message("b")
    bench.offer(follow)
    assert bench.gate.leftover() == [follow]


def test_what_came_when_it_was_over_stands_behind_what_it_had_heard() -> None:
    """Mail that an incarnation only passes on is its successor's, whatever it is, in the order of arrival."""
    bench = busy()
    heard, also = bench.message("b"), bench.message("c")
    bench.offer(heard)
    bench.offer(also)
    bench.refuse(HeadMismatchError(bench.gate.lane, 0, 1))
    first, report = bench.message("d"), AttemptWanted("d", 0)
    bench.gate.pass_on(first)
    bench.gate.pass_on(report)
    assert bench.gate.leftover()[1:] == [heard, also, first, report]


def test_a_message_that_raises_is_taken_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule that raises spoils the fork: the batch is redone without that message, its sender told."""
    bench = busy()
    good, bad, also = bench.say("good"), bench.say("bad"), bench.say("also")
    whole = Batch.lane

    def lane(batch: Batch, event_type: str, data: dict[str, object]) -> None:
        whole(batch, event_type, data)
        if data.get("text") == "bad":
            raise ValueError("a bug")

    monkeypatch.setattr(Batch, "lane", lane)
    bench.drain()
    assert [(nack.id, nack.reason) for nack in bench.all(Nack)] == [(bad, "error: ValueError")]
    assert list(bench.gate.durable.waiting) == [good, also]
    assert bench.gate.durable == bench.fold()


def test_a_kept_message_that_raises_ends_the_incarnation(monkeypatch: pytest.MonkeyPatch) -> None:
    """What has happened can't be refused: the error goes out, the gate stops."""
    bench = Bench()
    bench.said("a")

    def close(*args: object) -> None:
        raise ValueError("a bug")

    monkeypatch.setattr("seriatim.decide.close_turn", close)
    out = bench.offer(bench.end())
    assert isinstance(out.failed, ValueError)
    assert bench.offer(bench.message("b")).commit is None
    assert [type(m) for m in bench.gate.leftover()] == [Inbound]


# --- bounds -------------------------------------------------------------------------------------------------


def test_the_stash_is_bounded_in_count() -> None:
    """Beyond STASH_MESSAGES_MAX inbound is refused; runtime mail is exempt."""
    bench = busy()
    message = bench.message("x")
    for _ in range(STASH_MESSAGES_MAX):
        assert bench.gate.offer(message, bench.now).internal == []
    [nack] = bench.gate.offer(message, bench.now).internal
    assert isinstance(nack, Nack)
    assert nack.reason == "lane_busy"
    for kept in (AttemptWanted("d", 0), TurnEnded(1, 1, "completed", "x"), SlotGranted(), PartSettled("d", 0, None)):
        assert bench.gate.offer(kept, bench.now).internal == []


def test_the_stash_is_bounded_in_size() -> None:
    """Beyond STASH_BYTES_MAX too; what was decided frees its room."""
    bench = busy()
    large = bench.message("x" * 1024)
    large = Inbound(large.id, "k", large.event, STASH_BYTES_MAX - 10)
    assert bench.offer(large).internal == []
    bench.say("y" * 20)
    assert [nack.reason for nack in bench.all(Nack)] == ["lane_busy"]
    bench.drain()
    bench.say("/help")
    assert bench.offer(large).internal == []


def test_a_commit_closes_before_the_257th_message() -> None:
    """At most COMMIT_MESSAGES_MAX messages a commit, lazy and kept ones included."""
    bench = busy()
    for _ in range(COMMIT_MESSAGES_MAX + 10):
        bench.offer(PartSettled("nothing", 0, None))
    for _ in range(COMMIT_MESSAGES_MAX + 10):
        bench.say("a")
    sizes = []
    while bench.offered is not None:
        sizes.append(len(bench.offered.unique))
        bench.settle()
    assert max(sizes) <= COMMIT_MESSAGES_MAX
    assert sum(sizes) == COMMIT_MESSAGES_MAX + 11


def test_a_commit_closes_before_a_mebibyte() -> None:
    """Payload closes a commit too: inbound, a turn's end and tool results all count."""
    text = "x" * (COMMIT_BYTES_MAX // 5)
    bench = busy()
    for _ in range(9):
        bench.say(text)
    sizes = []
    while bench.offered is not None:
        sizes.append(len(bench.offered.unique))
        bench.settle()
    assert sizes == [1, 5, 4]
    bench = Bench()
    bench.said("a")
    calls = tuple(ToolCall(f"c{n}", "tool", {}) for n in range(6))
    bench.offer(StepOffered(1, 1, "", calls))
    for call in calls:
        bench.offer(ToolFinished(1, 1, call.id, {"rows": [text, 1, None]}))
    bench.settle()
    assert bench.offered is not None
    assert [len(part.events) for part in bench.offered.parts] == [4]  # keys and numbers weigh too


def test_a_single_larger_message_has_a_commit_of_its_own() -> None:
    """What is larger than the bound alone still gets through."""
    bench = Bench()
    bench.said("a")
    bench.answer("x" * (2 * COMMIT_BYTES_MAX))
    assert len(bench.all(Deliver)) == 1


def test_a_commit_touches_two_sessions() -> None:
    """Two /new in one stash touch three sessions: they become two commits, in order."""
    bench = Bench()
    bench.said("a")
    bench.say("/help")
    for _ in range(3):
        bench.say("/new")
    touched = []
    while bench.offered is not None:
        touched.append(sum(part.log.startswith("session:") for part in bench.offered.parts))
        bench.settle()
    assert max(touched) == 2
    assert len(bench.lane_events("route/bound")) == 4
    assert bench.gate.durable == bench.fold()


def test_session_words_alone_leave_the_lane_log_alone() -> None:
    """A commit of session events only (T2, T3) has no lane part."""
    bench = Bench()
    bench.said("a")
    out = bench.offer(StepOffered(1, 1, "", (ToolCall("c", "t", {}),)))
    assert out.commit is not None
    assert [part.log.partition(":")[0] for part in out.commit.parts] == ["session"]


# --- what can't be kept -----------------------------------------------------------------------------------------


TOO_LARGE = CommitTooLargeError("20 MB")
MALFORMED = LosslessJsonError("assistant/message", ".text", "no")


@pytest.mark.parametrize("error", [TOO_LARGE, MALFORMED])
def test_a_reply_that_cant_be_kept_ends_its_turn_as_failed(error: Exception) -> None:
    """A refusal that can't succeed by repetition: the turn fails, with a small text."""
    bench = Bench()
    inbox_id = bench.said("a")
    bench.offer(bench.end("huge"))
    bench.refuse(error)
    bench.drain()
    assert bench.outcome(inbox_id) == "answered"
    assert bench.all(Deliver)[0].parts[0].startswith("This message could not be answered")
    assert bench.gate.durable.running is None
    assert len(bench.all(ReturnSlot)) == 1


@pytest.mark.parametrize("error", [TOO_LARGE, MALFORMED])
def test_a_tool_result_that_cant_be_kept_ends_its_turn(error: Exception) -> None:
    """Its turn ends as failed and is cancelled, both in one commit; the lane is not stuck."""
    bench = Bench()
    bench.said("a")
    bench.tell(StepOffered(1, 1, "", (ToolCall("c", "t", {}),)))
    bench.offer(ToolFinished(1, 1, "c", "huge"))
    bench.refuse(error)
    assert bench.all(CancelTurn) == []
    bench.drain()
    assert [cancel.generation for cancel in bench.all(CancelTurn)] == [1]
    assert bench.gate.durable.running is None


def test_one_hopeless_message_does_not_take_others_along() -> None:
    """A batch that can't be kept is decided one by one: the good go through."""
    bench = busy()
    good, bad, also = bench.say("good"), bench.say("bad"), bench.say("also")
    bench.settle()
    bench.refuse(TOO_LARGE)
    bench.settle()
    bench.refuse(TOO_LARGE)
    bench.drain()
    assert [nack.id for nack in bench.all(Nack)] == [bad]
    assert list(bench.gate.durable.waiting) == [good, also]


# --- lazy ---------------------------------------------------------------------------------------------------


def test_lazy_mail_waits_for_a_fixed_window() -> None:
    """Settled marks ride with the next commit or a window that later ones don't extend."""
    bench = Bench()
    for _ in range(3):
        bench.said("/help")
    deliveries = [deliver.delivery for deliver in bench.all(Deliver)]
    start = bench.now.time
    for delivery in deliveries:
        out = bench.offer(PartSettled(delivery, 0, None))
        assert (out.commit, out.wake_at) == (None, start + LAZY_WINDOW_MS)
        bench.tick(LAZY_WINDOW_MS // 3)
    out = bench.tick(start + LAZY_WINDOW_MS - bench.now.time)
    assert out.commit is not None
    assert len(out.commit.parts[0].events) == 3


def test_lazy_mail_rides_with_the_next_commit() -> None:
    """A message that comes before the window ends takes the marks along, ahead of itself."""
    bench = Bench()
    bench.said("/help")
    bench.offer(PartSettled(bench.all(Deliver)[0].delivery, 0, None))
    out = bench.offer(bench.message("/help"))
    assert out.commit is not None
    assert out.commit.parts[0].events[0].type == "delivery/settled"


def test_flush_makes_lazy_mail_durable_now() -> None:
    """Before a passivation nothing waits for its window."""
    bench = Bench()
    bench.said("/help")
    bench.offer(PartSettled(bench.all(Deliver)[0].delivery, 0, None))
    assert not bench.gate.quiescent()
    bench._took(bench.gate.flush(bench.now))
    bench.drain()
    assert bench.gate.quiescent()
    assert bench.gate.durable.owed == {}


def test_a_failure_is_heard_before_the_next_attempt() -> None:
    """PartFailed is lazy, yet stands before the attempt that follows it."""
    bench = Bench()
    bench.said("/help")
    delivery = bench.all(Deliver)[0].delivery
    bench.offer(PartFailed(delivery, 0, "no"))
    bench.tell(AttemptWanted(delivery, 0))
    assert [send.marked for send in bench.all(SendPart)] == [False]


# --- slots --------------------------------------------------------------------------------------------------


def test_every_refusal_gives_the_slot_back() -> None:
    """Unavailable, keys taken, too large: the slot that was taken for the turn comes back."""
    errors = ((None, ()), (KeysTakenError(("m",)), ("m",)), (TOO_LARGE, ()), (HeadMismatchError("l", 0, 1), ()))
    for error, keys in errors:
        bench = Bench(free=1)
        bench.say("a", key="m")
        assert bench.free == 0
        if error is None:
            bench.refuse()
        else:
            bench.refuse(error, keys)
        assert bench.free == 1, error


def test_a_redone_batch_takes_one_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch that is redone (a raise, a third session) gives the first take back."""
    bench = Bench(free=5)
    bench.said("/help")
    bench.say("/help")
    bench.say("a")
    bench.say("/new")
    bench.say("/new")
    bench.say("/new")
    bench.drain()
    taken = 5 - bench.free
    assert taken == len(bench.all(RunTurn))
    assert len(bench.all(ReturnSlot)) == len(bench.all(CancelTurn))


def test_a_granted_slot_that_nobody_needs_starts_nothing() -> None:
    """SlotGranted in a lane without work takes no slot and writes nothing."""
    bench = Bench(free=1)
    out = bench.offer(SlotGranted())
    assert (out.commit, bench.free) == (None, 1)
    assert not bench.gate.holds(SlotGranted)


def test_a_slot_is_wanted_once_a_batch() -> None:
    """However many messages find no slot, one wish leaves; it needs no permit and leaves nothing."""
    bench = Bench(free=0)
    bench.said("/help")
    bench.say("/help")
    for _ in range(3):
        bench.say("a")
    bench.drain()
    assert len(bench.all(WantSlot)) == 1
