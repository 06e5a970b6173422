"""The queue that a host sees and steers: questions to a lane, decided in order and durable when they are answered."""

from __future__ import annotations

from typing import Any

import pytest

from seriatim.batch import Rules
from seriatim.effects import Answered, Finished, RunTurn
from seriatim.errors import InvalidInputError, StoreUnhealthyError
from seriatim.mail import Ask
from seriatim.queue_edits import (
    CancelMessage,
    ClearQueue,
    EditMessage,
    ExpireQueue,
    ListQueue,
    MoveMessage,
    QueuedTurn,
)
from tests.core.bench import Bench


def asked(bench: Bench, question: Any) -> Any:
    """The lane's answer."""
    token = bench.fresh("t")
    bench.tell(Ask(token, question))
    [answer] = [told for told in bench.all(Answered) if told.token == token]
    if answer.error is not None:
        raise answer.error
    return answer.value


def waits(bench: Bench) -> list[list[str]]:
    """The texts of each waiting turn, next first."""
    told: tuple[QueuedTurn, ...] = asked(bench, ListQueue())
    assert [turn.position for turn in told] == list(range(1, len(told) + 1))
    return [[message.text for message in turn.messages] for turn in told]


def busy(*texts: str, rules: Rules | None = None) -> tuple[Bench, list[str]]:
    """A lane with a running turn and these waiting; their ids."""
    bench = Bench(rules)
    bench.said("running")
    return bench, [bench.said(text) for text in texts]


def ran(bench: Bench) -> list[list[str]]:
    """The texts of each turn, as the agent gets them."""
    return [[data["text"] for data, _ in run.claims] for run in bench.all(RunTurn)]


def replayed(bench: Bench) -> None:
    """Replay equals live."""
    assert bench.fold() == bench.gate.durable


def test_what_waits_is_told_turn_by_turn() -> None:
    """Merged messages share a turn; what runs doesn't wait; kinds, authors and platform ids are told."""
    bench, _ = busy("a", "b", "/queue c")
    bench.wake("d")
    told = asked(bench, ListQueue())
    assert [(turn.kind, [m.text for m in turn.messages]) for turn in told] == [
        ("human", ["a", "b"]),
        ("queue", ["c"]),
        ("wake", ["d"]),
    ]
    assert [m.author for turn in told for m in turn.messages] == ["u", "u", "u", None]
    assert all(m.accepted_at == 1_000 for turn in told for m in turn.messages)


def test_looking_writes_nothing() -> None:
    """Who only looks costs no commit, and is answered at once while one is in flight too."""
    bench, _ = busy("a")
    commits = len(bench.disk.ids)
    assert waits(bench) == [["a"]]
    assert len(bench.disk.ids) == commits


def test_an_edited_message_keeps_its_place() -> None:
    """The agent gets the new text, the log keeps both, and the entry's size follows."""
    bench, ids = busy("a", "bb", "/queue c")
    assert asked(bench, EditMessage(ids[1], "longer than it was")) is True
    assert waits(bench) == [["a", "longer than it was"], ["c"]]
    assert bench.gate.durable.queue[0].size == len("a" + "longer than it was")
    replayed(bench)
    bench.answer()
    assert ran(bench)[-1] == ["a", "longer than it was"]
    assert [e.data["text"] for e in bench.lane_events("inbox/accepted")] == ["running", "a", "bb", "c"]


@pytest.mark.parametrize("text", ["", " ", "x" * 300_000])
def test_an_edit_must_be_a_message(text: str) -> None:
    """Nothing empty or oversized; nothing is drafted then."""
    bench, ids = busy("a")
    with pytest.raises(InvalidInputError):
        asked(bench, EditMessage(ids[0], text))
    assert waits(bench) == [["a"]]


@pytest.mark.parametrize(
    ("which", "position", "order"),
    [(2, 1, "cab"), (0, 3, "bca"), (0, 9, "bca"), (1, 2, "abc"), (0, 2, "bac")],
)
def test_a_turn_can_be_moved(which: int, position: int, order: str) -> None:
    """To a position, 1 being next; beyond the end is last."""
    bench, ids = busy("/queue a", "/queue b", "/queue c")
    assert asked(bench, MoveMessage(ids[which], position)) is True
    assert waits(bench) == [[letter] for letter in order]
    replayed(bench)
    for _ in order:
        bench.answer()
    bench.answer()
    assert ran(bench)[1:] == [[letter] for letter in order]


def test_a_position_counts_from_one() -> None:
    """Zero is a slip."""
    bench, ids = busy("a")
    with pytest.raises(InvalidInputError, match="position"):
        asked(bench, MoveMessage(ids[0], 0))


def test_one_message_is_cancelled_out_of_a_merged_turn() -> None:
    """The others stay; its receipt hears of it; the next one in line is promoted when nothing is left."""
    bench, ids = busy("a", "b", "/queue c")
    assert asked(bench, CancelMessage(ids[0])) == "cancelled"
    assert waits(bench) == [["b"], ["c"]]
    assert asked(bench, CancelMessage(ids[1])) == "cancelled"
    assert waits(bench) == [["c"]]
    assert [(end.id, end.outcome, end.reason) for end in bench.all(Finished)] == [
        (ids[0], "dropped", "cancelled"),
        (ids[1], "dropped", "cancelled"),
    ]
    replayed(bench)


def test_what_runs_or_is_over_is_not_cancelled() -> None:
    """The answer says which."""
    bench = Bench()
    first = bench.said("a")
    assert asked(bench, CancelMessage(first)) == "running"
    bench.answer()
    assert asked(bench, CancelMessage(first)) == "gone"
    assert bench.outcome(first) == "answered"
    assert asked(bench, EditMessage(first, "b")) is False
    assert asked(bench, MoveMessage(first, 1)) is False


def test_an_interrupted_turn_that_waits_can_be_cancelled() -> None:
    """Too old to go on by itself, it waits for the next message, unless it is taken back."""
    bench = Bench(Rules(freshness_ms=0))
    first = bench.said("a")
    bench.now.time += 10
    bench.reopen()
    assert asked(bench, CancelMessage(first)) == "cancelled"
    assert bench.gate.durable.interrupted == ()
    assert bench.outcome(first) == "dropped (cancelled)"
    replayed(bench)


def test_clearing_leaves_wakes() -> None:
    """/queue items included; what runs goes on."""
    bench, _ = busy("a", "b", "/queue c")
    bench.wake("d")
    assert asked(bench, ClearQueue()) == 3
    assert waits(bench) == [["d"]]
    assert bench.gate.durable.running is not None
    assert asked(bench, ClearQueue()) == 0
    replayed(bench)


def test_what_has_waited_too_long_expires() -> None:
    """Messages one by one, whatever turn they share."""
    bench, ids = busy("a")
    bench.now.time += 60_000
    bench.said("b")
    assert asked(bench, ExpireQueue(1_001)) == 1
    assert bench.outcome(ids[0]) == "dropped (expired)"
    assert waits(bench) == [["b"]]
    replayed(bench)


def test_an_answer_waits_for_its_commit() -> None:
    """Law 2: nobody is told before it is durable; a refused commit is an error, and nothing has changed."""
    bench, ids = busy("a")
    bench.offer(Ask("t", CancelMessage(ids[0])))
    assert bench.all(Answered) == []
    bench.refuse()
    [answer] = bench.all(Answered)
    assert isinstance(answer.error, StoreUnhealthyError)
    assert waits(bench) == [["a"]]


def test_a_question_keeps_its_order_with_messages() -> None:
    """Asked between two messages while a commit is in flight: it sees the first and not the second."""
    bench, _ = busy()
    bench.say("a")
    bench.say("b")
    bench.offer(Ask("t", ClearQueue()))
    bench.say("c")
    bench.drain()
    [answer] = bench.all(Answered)
    assert answer.value == 2
    assert waits(bench) == [["c"]]


def test_a_question_survives_its_lane() -> None:
    """Undecided when the incarnation dies, or in flight: the successor is asked again."""
    bench, ids = busy("a")
    bench.say("b")
    bench.offer(Ask("t", CancelMessage(ids[0])))
    assert [type(mail) for mail in bench.gate.leftover() if type(mail) is Ask] == [Ask]
    bench.settle()
    assert [type(mail) for mail in bench.gate.leftover() if type(mail) is Ask] == [Ask]


def test_one_message_of_an_interrupted_turn_can_be_cancelled() -> None:
    """The others of that turn run again without it."""
    bench = Bench()
    bench.said("a")
    ids = [bench.said("b"), bench.said("c")]
    bench.answer()
    bench.free = bench._slots = 0
    bench.now.draining = True
    bench.reopen()
    assert asked(bench, CancelMessage(ids[0])) == "cancelled"
    replayed(bench)
    bench.now.draining = False
    bench.free = 1
    bench.said("/status")
    assert ran(bench)[-1] == ["c"]
