"""/undo, /redo, /retry: what the model then sees, what the log keeps, and what a crash leaves."""

from __future__ import annotations

from typing import Any

import pytest

from seriatim.actors.surfaces import read_messages, read_shown
from seriatim.albums import grouped
from seriatim.batch import Rules
from seriatim.edits import rewrite
from seriatim.effects import ForgetAgent, RunTurn
from seriatim.events import session_log
from seriatim.shown import Loaded
from seriatim.surface import fold, visibility
from seriatim.surface_commands import NOTHING_TEXT, NOTHING_TO_REDO_TEXT, NOTHING_TO_RETRY_TEXT, OTHERS_TEXT
from seriatim.turn import StepOffered, ToolCall, ToolFinished
from tests.core.bench import Bench
from tests.core.test_lanes import claims, replies
from tests.queue.test_albums import item


def talk(bench: Bench, *said: str) -> None:
    """Turns that are over."""
    for text in said:
        bench.said(text)
        bench.answer(f"re {text}")


def shows(bench: Bench) -> list[str]:
    """What the model sees of the lane's session."""
    part = bench.gate.durable.session
    assert part is not None
    messages, _ = read_messages(bench.store.reader(), session_log(part.id), part.head)
    return [event.data["text"] for event in messages]


def asked(run: RunTurn) -> list[str]:
    """The texts of a turn's claims."""
    return [data["text"] for data, _ in run.claims]


def test_undo_takes_back_turns_and_redo_brings_them_back() -> None:
    """/undo [N] hides the last N turns, /redo undo by undo brings them back; the log keeps everything."""
    bench = Bench()
    talk(bench, "a", "b", "c")
    bench.said("/undo")
    assert shows(bench) == ["a", "re a", "b", "re b"]
    assert "the last turn, from: “c”" in replies(bench)[-1]
    bench.said("/undo 5")
    assert shows(bench) == []
    assert "the last 2 turns, from: “a”" in replies(bench)[-1]
    bench.said("/redo")
    assert shows(bench) == ["a", "re a", "b", "re b"]
    bench.said("/redo")
    assert shows(bench) == ["a", "re a", "b", "re b", "c", "re c"]
    bench.said("/redo")
    assert replies(bench)[-1] == NOTHING_TO_REDO_TEXT
    assert [e.data["text"] for e in bench.session_events() if e.type == "user/message"] == ["a", "b", "c"]


def test_nothing_is_brought_back_over_what_was_said_since() -> None:
    """After a new message there is nothing to redo."""
    bench = Bench()
    talk(bench, "a", "b")
    bench.said("/undo")
    talk(bench, "c")
    bench.said("/redo")
    assert replies(bench)[-1] == NOTHING_TO_REDO_TEXT
    assert shows(bench) == ["a", "re a", "c", "re c"]


def test_undo_shows_the_beginning_of_what_was_asked() -> None:
    """The answer quotes at most two hundred characters of the question, on one line."""
    bench = Bench()
    talk(bench, "x\n" * 300)
    bench.said("/undo")
    quoted = replies(bench)[-1].split("“")[1].split("”")[0]
    assert len(quoted) == 200
    assert "\n" not in quoted


def test_undo_says_that_tools_are_not_undone() -> None:
    """Where the removed turns used tools, the answer says that what they did stays done."""
    bench = Bench()
    bench.said("a")
    running = bench.gate.durable.running
    assert running is not None
    bench.tell(StepOffered(running.turn, running.generation, "", (ToolCall("c", "post", {}),)))
    bench.tell(ToolFinished(running.turn, running.generation, "c", "posted"))
    bench.answer("done")
    bench.said("/undo")
    assert "tools did" in replies(bench)[-1]
    talk(bench, "b")
    bench.said("/undo")
    assert "tools did" not in replies(bench)[-1]


@pytest.mark.parametrize(
    ("text", "said"), [("/undo 0", "Say how many"), ("/undo x", "Say how"), ("/undo -1", "Say how")]
)
def test_undo_of_no_number_is_answered_with_its_use(text: str, said: str) -> None:
    """What is no count changes nothing."""
    bench = Bench()
    talk(bench, "a")
    bench.said(text)
    assert said in replies(bench)[-1]
    assert shows(bench) == ["a", "re a"]


def test_an_empty_conversation_has_nothing_to_take_back() -> None:
    """Without a session, and with an empty one, each of the three says so and does nothing."""
    bench = Bench()
    for _ in range(2):
        for text, answer in (
            ("/undo", NOTHING_TEXT),
            ("/redo", NOTHING_TO_REDO_TEXT),
            ("/retry", NOTHING_TO_RETRY_TEXT),
        ):
            bench.said(text)
            assert replies(bench)[-1] == answer
        bench.said("/new")
    assert bench.all(RunTurn) == []


@pytest.mark.parametrize("text", ["/undo", "/redo", "/retry"])
def test_a_busy_conversation_is_not_changed(text: str) -> None:
    """While a turn runs or waits the command is refused with the reason, and the turn goes on."""
    bench = Bench()
    talk(bench, "a")
    bench.said("b")
    bench.said(text)
    assert "/stop" in replies(bench)[-1]
    bench.answer("re b")
    assert shows(bench) == ["a", "re a", "b", "re b"]


@pytest.mark.parametrize("text", ["/undo", "/redo", "/retry"])
def test_a_stopped_conversation_is_left_alone(text: str) -> None:
    """After /stop the answer says how to take the conversation up again."""
    bench = Bench()
    talk(bench, "a")
    bench.said("b")
    bench.said("/stop")
    bench.said(text)
    assert f"/resume {bench.gate.durable.bound}" in replies(bench)[-1]


def test_retry_asks_again_with_all_that_came_with_it() -> None:
    """B48: /retry runs the question again, with its id, origin and time; the first reply stays readable, inactive."""
    bench = Bench()
    bench.said("a", user="alice", user_name="Alice")
    bench.answer("first")
    told = bench.all(RunTurn)[0]
    bench.now.time += 60_000
    bench.said("/retry", user="bob")
    again = bench.all(RunTurn)[-1]
    assert [(d["id"], d["text"], d["source"], t) for d, t in again.claims] == [
        (d["id"], d["text"], d["source"], t) for d, t in told.claims
    ]
    assert (again.number, again.resumed_from) == (2, 1)
    bench.answer("second")
    assert shows(bench) == ["a", "second"]
    events = bench.session_events()
    assert [e.data["text"] for e in events if e.type == "user/message"] == ["a"]
    answers = [e for e in events if e.type == "assistant/message"]
    seen = visibility(fold(events), events)
    assert [(e.data["text"], seen[e.seq]) for e in answers] == [("first", "undone"), ("second", "current")]
    # What the log has can be shown again.
    question = next(e for e in events if e.type == "user/message")
    first = [(e.type, {"text": e.data["text"]}) for e in (question, answers[0])]
    restored = [*events, *rewrite(fold(events), first, 3, bench.now.time)]
    assert [restored[seq].data["text"] for seq in fold(restored).seqs()] == ["a", "first"]


def test_a_retry_can_be_retried_and_undone() -> None:
    """Retried twice, the question is the same; an undo takes it back with all its answers."""
    bench = Bench()
    talk(bench, "a", "b")
    for answer in ("second", "third"):
        bench.said("/retry")
        assert asked(bench.all(RunTurn)[-1]) == ["b"]
        bench.answer(answer)
    assert shows(bench) == ["a", "re a", "b", "third"]
    bench.said("/undo")
    assert shows(bench) == ["a", "re a"]
    bench.said("/redo")
    assert shows(bench) == ["a", "re a", "b", "third"]


def test_a_retry_after_an_undo_asks_what_is_then_last() -> None:
    """The last question is the last that the model would see."""
    bench = Bench()
    talk(bench, "a", "b")
    bench.said("/undo")
    bench.said("/retry")
    assert asked(bench.all(RunTurn)[-1]) == ["a"]
    bench.answer("new")
    assert shows(bench) == ["a", "new"]


def test_a_merged_question_is_asked_again_whole() -> None:
    """What several people asked together is asked together again, each message with its own speaker."""
    bench = Bench()
    bench.said("a")
    bench.said("b", user="bob")
    bench.said("c", user="carol")
    bench.answer("re a")
    bench.answer("both")
    bench.said("/retry")
    run = bench.all(RunTurn)[-1]
    assert [(d["text"], d["source"]["user_id"]) for d, _ in run.claims] == [("b", "bob"), ("c", "carol")]
    bench.answer("again")
    assert shows(bench) == ["a", "re a", "b", "c", "again"]


def test_an_album_is_asked_again_whole() -> None:
    """Its photos and captions come along, as the one message that they had become."""
    bench = Bench()
    item(bench, 1, "look")
    item(bench, 2)
    bench.tick(800)
    bench.drain()
    [told] = grouped(bench.all(RunTurn)[0].claims)
    bench.answer()
    bench.said("/retry")
    [(again, _)] = grouped(bench.all(RunTurn)[-1].claims)
    for name in ("text", "media", "items", "messageId"):
        assert again[name] == told[0][name], name
    assert len(again["media"]) == 2


@pytest.mark.parametrize("when", ["before the slot", "while it runs"])
def test_a_crash_does_not_lose_a_retry(when: str) -> None:
    """The question is durable with the /retry: it runs after a restart, once, in its place."""
    bench = Bench(free=1)
    talk(bench, "a")
    bench.free = 0 if when == "before the slot" else 1
    command = bench.said("/retry")
    bench.reopen()
    assert asked(bench.all(RunTurn)[-1]) == ["a"]
    bench.answer("second")
    assert shows(bench) == ["a", "second"]
    assert bench.outcome(command) == "answered"
    assert bench.gate.durable.waiting == {}


def test_only_equals_ask_again() -> None:
    """Whoever lacks the asker's rights can't have the question answered with them."""
    bench = Bench()
    bench.said("a", role_authorized=True)
    bench.answer()
    bench.said("/retry")
    assert replies(bench)[-1] == OTHERS_TEXT
    bench.said("/retry", role_authorized=True)
    assert asked(bench.all(RunTurn)[-1]) == ["a"]


def test_a_question_of_which_only_the_words_are_left() -> None:
    """Where the lane's log is compacted, the words and their author come from the conversation itself."""
    bench = Bench()
    bench.said("a", user="alice")
    bench.answer()
    bench.reads = False
    bench.say("/retry", user="bob")
    looked = 0
    while bench.out.internal:
        [wanted] = bench.out.internal
        reader = bench.store.reader()
        looked += _read_without_lane(bench, wanted, reader)
    bench.drain()
    [(data, _)] = bench.all(RunTurn)[-1].claims
    assert (data["text"], data["source"]["user_name"]) == ("a", "alice")
    assert looked


def _read_without_lane(bench: Bench, wanted: Any, reader: Any) -> bool:
    shown = read_shown(reader, wanted.session)
    asked_for = wanted.besides is not None
    bench._took(bench.gate.read(Loaded(wanted.session, wanted.whole, shown, None, wanted.besides, {}), bench.now))
    return asked_for


def test_the_agent_that_has_seen_more_is_let_go() -> None:
    """A warm agent may remember what was taken back: each change of the conversation lets go of it."""
    bench = Bench()
    talk(bench, "a", "b")
    for text in ("/undo", "/redo", "/retry"):
        bench.forget()
        bench.said(text)
        assert len(bench.all(ForgetAgent)) == 1


def test_a_message_behind_an_undo_is_answered_without_what_was_undone() -> None:
    """Arrival order holds while the session is read: the message waits for the /undo before it."""
    bench = Bench()
    talk(bench, "a", "b")
    bench.reads = False
    bench.say("/undo")
    bench.say("c")
    assert bench.offered is None
    [wanted] = bench.out.internal or bench.internal[-1:]
    bench.reads = True
    bench.read(wanted)  # type: ignore[arg-type]
    bench.drain()
    assert claims(bench)[-1] != []
    bench.answer("re c")
    assert shows(bench) == ["a", "re a", "c", "re c"]


def test_a_cut_is_a_number_never_a_time() -> None:
    """B50: with the clock stepped back, what comes after an undo is seen and what was undone stays away."""
    bench = Bench(Rules())
    talk(bench, "a", "b")
    bench.said("/undo")
    bench.now.time -= 300_000
    talk(bench, "c")
    bench.reopen()
    assert shows(bench) == ["a", "re a", "c", "re c"]


def test_undone_content_survives() -> None:
    """B51: with all turns undone nothing is gone: the log has every message, and a redo shows them all."""
    bench = Bench()
    talk(bench, "a", "b")
    bench.said("/undo 2")
    assert shows(bench) == []
    bench.reopen()
    bench.said("/redo")
    assert shows(bench) == ["a", "re a", "b", "re b"]
    assert bench.gate.durable.session is not None
    assert bench.gate.durable.session.ended == 2
