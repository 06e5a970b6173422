"""What SessionStore asks of a lane: each operation's rule, on the product's own gate."""

from __future__ import annotations

from typing import Any

import pytest

from seriatim.actors.surfaces import read_messages
from seriatim.batch import Rules
from seriatim.commits import Unknown
from seriatim.effects import Answered, CancelTurn, Finished, RunTurn
from seriatim.entry import SessionEntry
from seriatim.errors import LaneBusyError, StoreUnhealthyError
from seriatim.events import session_log
from seriatim.facts import entry
from seriatim.gate import LAZY_WINDOW_MS
from seriatim.limits import SURFACE_TURNS_KEPT
from seriatim.mail import Ask, DrainTimedOut, PartSettled
from seriatim.model import SessionSource
from seriatim.store_calls import (
    Append,
    ClearResume,
    Elsewhere,
    GetOrCreate,
    Import,
    MarkResume,
    RecoverTurn,
    Release,
    Reset,
    Rewind,
    Rewrite,
    Suspend,
    Switch,
    Touch,
)
from seriatim.transcripts import message_of, messages_from
from tests.core.bench import Bench

SOURCE = SessionSource("sim", "chat", user_id="u")


def asked(bench: Bench, question: Any) -> Any:
    """The lane's answer; afterwards replay equals live."""
    token = bench.fresh("t")
    bench.tell(Ask(token, question))
    [answer] = [told for told in bench.all(Answered) if told.token == token]
    assert bench.fold() == bench.gate.durable
    if answer.error is not None:
        raise answer.error
    return answer.value


def bound(bench: Bench) -> str:
    """The lane's session."""
    assert bench.gate.durable.bound is not None
    return bench.gate.durable.bound


def talked(*said: str, rules: Rules | None = None) -> Bench:
    """A lane with turns that are over."""
    bench = Bench(rules)
    for text in said:
        bench.said(text)
        bench.answer(f"re {text}")
    delivered(bench)
    return bench


def delivered(bench: Bench) -> None:
    """What is owed has arrived, and the log says so."""
    for owed in list(bench.gate.durable.owed):
        bench.offer(PartSettled(owed, 0, None))
    bench.tick(LAZY_WINDOW_MS)
    bench.drain()


def shown(bench: Bench, session: str | None = None) -> list[str]:
    """What the session shows, as text."""
    log = session_log(session or bound(bench))
    reader = bench.store.reader()
    info = reader.info(log)
    assert info is not None
    return [message_of(event)["content"] for event in read_messages(reader, log, info.head)[0]]


UNKNOWN_ANSWERS: list[tuple[Any, Any]] = [
    (Touch(), False),
    (Reset(), None),
    (Switch("s"), None),
    (Suspend(), False),
    (MarkResume("x"), False),
    (ClearResume(), False),
    (Release(10**12), False),
    (RecoverTurn(0), False),
    (Append("s", ()), False),
    (Rewrite("s", ()), False),
    (Rewind("s"), None),
]


@pytest.mark.parametrize(("question", "answer"), UNKNOWN_ANSWERS, ids=lambda value: type(value).__name__)
def test_a_lane_without_a_session_knows_nothing(question: Any, answer: Any) -> None:
    """None or False, never an exception, and nothing is written."""
    bench = Bench()
    assert asked(bench, question) is answer
    assert bench.gate.durable.head == 0


def test_get_or_create_makes_one_session_and_then_returns_it() -> None:
    """The first call makes it with its origin, the others bump its activity."""
    bench = Bench()
    made = asked(bench, GetOrCreate(SOURCE))
    assert made == entry(bench.gate.durable)
    assert made.origin == SOURCE
    bench.now.time += 5_000
    again = asked(bench, GetOrCreate(SOURCE))
    assert again.session_id == made.session_id
    assert (again.updated_at - made.updated_at).total_seconds() == 5


def test_force_new_ends_the_session_and_sets_no_flag() -> None:
    """Another id, the old one named as the one before, with the reason; no notice for the next turn."""
    bench = talked("a")
    before = bound(bench)
    made: SessionEntry = asked(bench, GetOrCreate(SOURCE, force_new=True))
    assert made.session_id != before
    assert (made.is_fresh_reset, made.was_auto_reset) == (False, False)
    [told] = bench.lane_events("route/bound")[1:]
    assert (told.data["reason"], told.data["previous"]) == ("force_new", before)


def test_get_or_create_goes_by_priority() -> None:
    """Suspended beats resume_pending; resume_pending keeps the session; else the session is returned."""
    bench = talked("a")
    first = bound(bench)
    assert asked(bench, MarkResume("restart_timeout"))
    kept: SessionEntry = asked(bench, GetOrCreate(SOURCE))
    assert (kept.session_id, kept.resume_pending) == (first, True)
    assert asked(bench, Suspend())
    replaced: SessionEntry = asked(bench, GetOrCreate(SOURCE))
    assert replaced.session_id != first
    assert (replaced.was_auto_reset, replaced.auto_reset_reason) == (True, "suspended")
    assert replaced.reset_had_activity
    assert (replaced.suspended, replaced.resume_pending) == (False, False)


def test_touch_bumps_and_records_the_prompt() -> None:
    """The host's count stands until a later turn tells another."""
    bench = talked("a")
    bench.now.time += 3_000
    assert asked(bench, Touch(77))
    found = entry(bench.gate.durable)
    assert found is not None
    assert found.last_prompt_tokens == 77
    assert found.updated_at.timestamp() * 1000 == bench.now.time


def test_reset_does_what_new_does() -> None:
    """The running turn ends, human items are dropped, wakes stay; the entry is fresh and keeps its origin."""
    bench = talked("a")
    bench.said("running")
    waiting = bench.said("waiting")
    bench.wake()
    fresh: SessionEntry = asked(bench, Reset(display_name="Desk"))
    assert fresh.is_fresh_reset
    assert (fresh.display_name, fresh.origin is not None) == ("Desk", True)
    assert [cancel.why for cancel in bench.all(CancelTurn)] == ["new"]
    assert [(end.outcome, end.reason) for end in bench.all(Finished) if end.id == waiting] == [("dropped", "reset")]
    assert bench.all(RunTurn)[-1].claims[0][0]["kind"] == "wake"


def test_suspend_is_idempotent_and_marking_never_overrides_it() -> None:
    """mark_resume_pending on a suspended session is False and changes nothing."""
    bench = talked("a")
    assert asked(bench, Suspend())
    head = bench.gate.durable.head
    assert asked(bench, Suspend())
    assert not asked(bench, MarkResume("restart_timeout"))
    assert bench.gate.durable.head == head


def test_marking_twice_refreshes_and_clearing_forgets_all() -> None:
    """Reason and time are the last ones; cleared, neither is told; nothing pending is False."""
    bench = talked("a")
    asked(bench, MarkResume("restart_timeout"))
    bench.now.time += 1_000
    asked(bench, MarkResume("shutdown_timeout"))
    state = bench.gate.durable
    assert (state.resume_reason, state.resume_marked_at) == ("shutdown_timeout", bench.now.time)
    assert asked(bench, ClearResume())
    assert not asked(bench, ClearResume())
    found = entry(bench.gate.durable)
    assert found is not None
    assert (found.resume_pending, found.resume_reason, found.last_resume_marked_at) == (False, None, None)


def test_switch_is_a_compare_and_set() -> None:
    """Another expected session: None, nothing switched. The right one, or none: switched."""
    bench = talked("a")
    first = bound(bench)
    bench.said("/new")
    second = bound(bench)
    assert asked(bench, Switch(first, expected="other")) is None
    assert bound(bench) == second
    back: SessionEntry = asked(bench, Switch(first, expected=second))
    assert back.session_id == first == bound(bench)
    assert not back.is_fresh_reset
    bench.said("b")
    bench.answer("re b")
    assert shown(bench) == ["a", "re a", "b", "re b"]


def test_switch_refuses_what_it_cannot_do() -> None:
    """An unknown target is None, the same one is returned untouched, a busy lane says so."""
    bench = talked("a")
    first = bound(bench)
    bench.said("/new")
    assert asked(bench, Switch("nowhere")) is None
    head = bench.gate.durable.head
    assert asked(bench, Switch(bound(bench))).session_id == bound(bench)
    assert bench.gate.durable.head == head
    bench.said("running")
    with pytest.raises(LaneBusyError):
        asked(bench, Switch(first))


def test_switch_to_another_lanes_session_names_that_lane() -> None:
    """A session id is bound to at most one lane: moving it is the supervisor's."""
    bench = talked("a")
    foreign = Bench()
    foreign.store, foreign.disk, foreign.key = bench.store, bench.disk, "lane-y"
    foreign._ids = 1_000
    foreign.start()
    theirs = asked(foreign, GetOrCreate(SOURCE)).session_id
    assert asked(bench, Switch(theirs)) == Elsewhere("lane:lane-y")
    assert bound(bench) != theirs


def test_release_forgets_the_route_and_keeps_the_log() -> None:
    """The lane has no entry; its next message starts a session of its own."""
    bench = talked("a")
    first = bound(bench)
    assert asked(bench, Release(bench.now.time + 1))
    assert entry(bench.gate.durable) is None
    bench.said("b")
    assert bound(bench) != first
    assert shown(bench, first) == ["a", "re a"]


def test_release_spares_what_is_in_use() -> None:
    """Recent, running, waiting or suspended: False."""
    bench = talked("a")
    assert not asked(bench, Release(bench.gate.durable.active_at))
    bench.said("running")
    assert not asked(bench, Release(bench.now.time + 1))
    bench.said("/stop")
    delivered(bench)
    assert bench.gate.durable.suspended_at is not None
    assert not asked(bench, Release(bench.now.time + 1))


def test_an_append_is_a_closed_turn_of_its_own() -> None:
    """The history shows it, turn numbers go on, no turn is open after it."""
    bench = talked("a")
    given = messages_from(
        [{"role": "user", "content": "hi", "name": "Ann"}, {"role": "assistant", "content": "ho"}], "x", 1
    )
    assert asked(bench, Append(bound(bench), given))
    assert shown(bench) == ["a", "re a", "hi", "ho"]
    bench.said("b")
    assert bench.all(RunTurn)[-1].number == 3


def test_an_append_to_a_session_that_the_lane_has_left_goes_there() -> None:
    """Its log has it, and the bound one doesn't."""
    bench = talked("a")
    first = bound(bench)
    bench.said("/new")
    assert asked(bench, Append(first, messages_from([{"role": "user", "content": "late"}], "x", 1)))
    assert shown(bench, first) == ["a", "re a", "late"]
    assert shown(bench) == []


def test_a_transcript_with_an_open_turn_is_left_alone() -> None:
    """Append, rewrite and rewind wait for nobody: they say that the turn is open."""
    bench = talked("a")
    bench.said("running")
    session = bound(bench)
    for question in (Append(session, ()), Rewrite(session, ()), Rewind(session)):
        with pytest.raises(LaneBusyError):
            asked(bench, question)


def test_rewrite_replaces_what_is_shown() -> None:
    """The log keeps what was there."""
    bench = talked("a", "b")
    before = len(bench.session_events(bound(bench)))
    assert asked(bench, Rewrite(bound(bench), messages_from([{"role": "user", "content": "only"}], "x", 1)))
    assert shown(bench) == ["only"]
    assert len(bench.session_events(bound(bench))) > before


def test_rewind_clamps_and_keeps_the_audit_trail() -> None:
    """N below one is one, n beyond the start is all there is, and then None; the log only grows."""
    bench = talked("a", "b", "c")
    session = bound(bench)
    assert asked(bench, Rewind(session, 0)) == {"rewound_count": 2, "turns_undone": 1, "target_text": "c"}
    before = len(bench.session_events(session))
    assert asked(bench, Rewind(session, 99)) == {"rewound_count": 4, "turns_undone": 2, "target_text": "a"}
    assert len(bench.session_events(session)) == before + 1
    assert shown(bench) == []
    assert asked(bench, Rewind(session)) is None


def test_rewind_reaches_beyond_a_snapshot() -> None:
    """What the snapshot forgot is folded from the first event."""
    bench = Bench()
    asked(bench, GetOrCreate(SOURCE))
    session = bound(bench)
    turns = SURFACE_TURNS_KEPT + 5
    given = [{"role": "user", "content": str(number)} for number in range(turns)]
    asked(bench, Append(session, messages_from(given, "x", 1)))
    log = session_log(session)
    info = bench.store.reader().info(log)
    assert info is not None
    _, snapshot = read_messages(bench.store.reader(), log, info.head)
    assert snapshot is not None
    assert bench.store.keep([snapshot]) == 1
    found = asked(bench, Rewind(session, turns - 1))
    assert found == {"rewound_count": turns - 1, "turns_undone": turns - 1, "target_text": "1"}


def test_recovery_promotes_what_a_dead_process_left_open() -> None:
    """A turn's marker that is young enough: closed and marked; an old one is closed and not acted on."""
    for age, promoted in ((1_000, True), (9_000, False)):
        bench = talked("a")
        bench.said("running")
        bench.now.time += age
        bench.gate = type(bench.gate)(9, bench.fold(), bench.rules, lambda bench=bench: bench.fresh("k"))  # type: ignore[misc]
        bench.now.draining = True
        assert asked(bench, RecoverTurn(bench.now.time - 5_000)) is promoted
        state = bench.gate.durable
        assert state.running is None
        assert state.resume_reason == ("restart_interrupted" if promoted else None)
        assert not asked(bench, RecoverTurn(0))


def test_an_import_keeps_all_that_an_old_record_tells() -> None:
    """Entry in, the same entry out; sums go on from it; a lane with a log imports nothing."""
    bench = talked("x")
    found = entry(bench.gate.durable)
    assert found is not None
    old = SessionEntry(
        session_key="lane-z",
        session_id="20250101_000000_abcdef01",
        created_at=found.created_at,
        updated_at=found.updated_at,
        origin=SessionSource("sim", "c", chat_name="Room", chat_type="group"),
        display_name="Room",
        platform=SOURCE.platform,
        chat_type="group",
        input_tokens=5,
        output_tokens=6,
        cache_read_tokens=7,
        cache_write_tokens=8,
        total_tokens=26,
        estimated_cost_usd=0.5,
        cost_status="estimated",
        last_prompt_tokens=9,
        was_auto_reset=True,
        auto_reset_reason="suspended",
        reset_had_activity=True,
        suspended=True,
        resume_pending=True,
        resume_reason="restart_timeout",
        last_resume_marked_at=found.updated_at,
    )
    lane = Bench()
    lane.key = "lane-z"
    lane.start()
    assert asked(lane, Import(old))
    assert entry(lane.gate.durable) == old
    assert not asked(lane, Import(old))


def test_a_finalized_record_is_not_resumed() -> None:
    """expiry_finalized fences: its mark isn't taken over, and no other is set."""
    base = talked("x")
    found = entry(base.gate.durable)
    assert found is not None
    lane = Bench()
    old = SessionEntry(
        session_key="k",
        session_id="old",
        created_at=found.created_at,
        updated_at=found.updated_at,
        expiry_finalized=True,
        resume_pending=True,
    )
    assert asked(lane, Import(old))
    told = entry(lane.gate.durable)
    assert told is not None
    assert (told.expiry_finalized, told.resume_pending) == (True, False)
    assert not asked(lane, MarkResume("restart_timeout"))


# --- refusals and deaths -------------------------------------------------------------------------------


def test_a_refused_write_is_an_error_to_the_caller() -> None:
    """The store is full: the caller hears it, nothing happened, and nothing is tried again behind its back."""
    bench = talked("a")
    bench.offer(Ask("t", Append(bound(bench), messages_from([{"role": "user", "content": "x"}], "x", 1))))
    bench.refuse()
    [answer] = bench.all(Answered)
    assert isinstance(answer.error, StoreUnhealthyError)
    assert shown(bench) == ["a", "re a"]
    assert bench.gate.quiescent()


def test_what_must_not_happen_twice_is_not_decided_twice() -> None:
    """An append in flight when its lane dies is told as unsure; one that may be repeated is handed on."""
    bench = talked("a")
    bench.offer(Ask("t", Append(bound(bench), messages_from([{"role": "user", "content": "x"}], "x", 1))))
    bench.settle(Unknown(bench.offered.id if bench.offered else "", "EIO"))
    assert bench.gate.unsure() == ["t"]
    assert bench.gate.leftover() == []
    other = talked("a")
    other.offer(Ask("t", Suspend()))
    assert other.gate.unsure() == []
    assert other.gate.leftover() == [Ask("t", Suspend())]


def test_a_drain_marks_and_a_question_sees_it() -> None:
    """The flags that the runtime sets and those that hosts set are the same."""
    bench = talked("a")
    bench.said("running")
    bench.tell(DrainTimedOut("restart_timeout"))
    assert asked(bench, ClearResume())
