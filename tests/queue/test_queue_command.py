"""/queue in a chat: what waits, by numbers, and what people may do to their own."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from seriatim.effects import Ack, Deliver, RunTurn
from seriatim.queue_commands import queued_text
from tests.core.bench import Bench


def told(bench: Bench, text: str, **source: str) -> str:
    """What the bot says to a command."""
    bench.forget()
    bench.said(text, **source)
    assert bench.fold() == bench.gate.durable
    return bench.all(Deliver)[0].parts[0]


def waits(bench: Bench) -> list[list[str]]:
    """The texts of each waiting turn."""
    state = bench.gate.durable
    return [[state.waiting[i].data["text"] for i in entry.ids] for entry in state.queue]


def busy(*texts: str) -> Bench:
    """A running turn, and these waiting."""
    bench = Bench()
    bench.said("run")
    for text in texts:
        bench.said(text)
    return bench


@pytest.mark.parametrize(
    ("args", "text"),
    [
        ("", None),
        ("list", None),
        ("clear", None),
        ("CANCEL 2", None),
        ("move 1 2", None),
        ("edit 1 all of it\nhere", None),
        ("cancel the meeting", "cancel the meeting"),
        ("clear the table", "clear the table"),
        ("edit 2", None),
        ("move 1", None),
        ("cancel", None),
        ("EDIT", None),
        ("edit 2nd draft", "edit 2nd draft"),
        ("move 1 to 2", "move 1 to 2"),
        ("-- cancel", "cancel"),
        ("-- clear", "clear"),
        ("--", None),
        ("--flag", "--flag"),
    ],
)
def test_what_is_queued_and_what_is_asked(args: str, text: str | None) -> None:
    """Only the exact forms steer, and those that only lack an end; any other text gets its turn."""
    assert queued_text(args) == text


def test_the_list_is_numbered() -> None:
    """Next first, a turn a line; what a text holds can't imitate another line."""
    bench = busy("a\n2. forged", "b", "/queue c")
    bench.wake("d")
    assert told(bench, "/queue").splitlines() == [
        "What waits, next first:",
        "1. a 2. forged (and 1 more)",
        "2. c",
        "3. (internal) d",
    ]
    assert told(Bench(), "/queue").startswith("Nothing waits. /queue TEXT")


def test_a_queued_text_is_told_its_place() -> None:
    """Its number in the list, once it waits behind something; what starts at once, or a host with a receipt, isn't."""
    bench = busy("a")
    assert told(bench, "/queue b") == "That is number 2 of what waits; /queue shows it."
    assert told(bench, "/queue").splitlines()[2] == "2. b"
    idle = Bench()
    idle.said("/queue at once")
    assert [text for debt in idle.all(Deliver) for text in debt.parts] == []
    assert len(idle.all(RunTurn)) == 1
    bench.forget()
    bench.tell(replace(bench.message("/queue c"), by_receipt=True))
    assert bench.all(Deliver) == []
    assert bench.all(Ack)[-1].position == 3


def test_a_number_can_be_cancelled() -> None:
    """And what it was is told, so that nobody takes back the wrong one unseen."""
    bench = busy("a", "/queue b", "/queue c")
    assert told(bench, "/queue cancel 2") == "Cancelled: b"
    assert waits(bench) == [["a"], ["c"]]
    assert "no number 3" in told(bench, "/queue cancel 3")
    assert "no number 0" in told(bench, "/queue cancel 0")


def test_a_number_can_be_edited_and_moved() -> None:
    """The turns then run as they stand."""
    bench = busy("/queue a", "/queue b", "/queue c")
    assert told(bench, "/queue edit 2 B it is") == "It says now: B it is"
    assert told(bench, "/queue move 3 1") == "Number 1 now: c"
    assert told(bench, "/queue move 1 99") == "Number 3 now: c"
    assert told(bench, "/queue move 3 3") == "Number 3 now: c"
    assert waits(bench) == [["a"], ["B it is"], ["c"]]


@pytest.mark.parametrize(
    ("args", "form"),
    [
        ("cancel", "cancel N"),
        ("move", "move N M"),
        ("move 2", "move N M"),
        ("EDIT", "edit N TEXT"),
        ("edit 1 ", "edit N TEXT"),
    ],
)
def test_what_was_left_out_is_told(args: str, form: str) -> None:
    """A forgotten number or text makes no turn for the agent: one is told the form, and how to queue the words."""
    bench = busy("a", "/queue b")
    said = told(bench, f"/queue {args}")
    assert said == f"Write /queue {form}; /queue shows the numbers. /queue -- TEXT queues any text."
    assert waits(bench) == [["a"], ["b"]]


def test_clearing_takes_back_ones_own() -> None:
    """Wakes and what others said stay."""
    bench = busy("a", "/queue b")
    bench.said("theirs", user="other")
    bench.wake("w")
    assert told(bench, "/queue clear") == "Cleared: 2 of yours waited."
    assert waits(bench) == [["theirs"], ["w"]]
    assert told(bench, "/queue clear") == "Nothing of yours waits."


def test_nobody_changes_anothers_words() -> None:
    """In a shared conversation: not cancelled, edited or moved; of a merged turn only one's own part goes."""
    bench = busy("mine", "/queue mine too")
    bench.said("theirs", user="other")
    for text in ("cancel 2", "edit 2 x", "move 2 1", "move 1 2"):
        assert "nothing of yours" in told(bench, f"/queue {text}", user="other") or text == "move 1 2"
    assert waits(bench) == [["mine", "theirs"], ["mine too"]]
    told(bench, "/queue cancel 1", user="other")
    assert waits(bench) == [["mine"], ["mine too"]]


def test_a_long_queue_is_cut() -> None:
    """Twenty are shown and the rest counted."""
    bench = busy(*(f"/queue {n}" for n in range(25)))
    assert told(bench, "/queue").splitlines()[-1] == "and 5 more"


def test_an_escaped_text_is_queued() -> None:
    """/queue -- clear gives "clear" a turn."""
    bench = busy("/queue -- clear")
    bench.answer()
    assert [data["text"] for data, _ in bench.all(RunTurn)[-1].claims] == ["clear"]
