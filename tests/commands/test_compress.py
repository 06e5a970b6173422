"""Compression: by /compress and before a crowded conversation's next turn; late results touch nothing."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from seriatim.batch import Rules
from seriatim.compressing import NOTHING_TO_COMPRESS_TEXT
from seriatim.effects import Answered, CompressionWanted, CompressSession, Finished, RunTurn
from seriatim.events import session_log
from seriatim.mail import Ask, CompressionDue, SummaryMade
from seriatim.storage.contract import Checkpoint
from seriatim.store_calls import Rewind
from seriatim.surface import fold
from seriatim.surface_json import SNAPSHOT_VERSION, surface_to_json
from seriatim.turn import TurnEnded, Usage
from tests.commands.test_surface_commands import asked, shows, talk
from tests.core.bench import Bench
from tests.core.test_lanes import replies


def ordered(bench: Bench) -> CompressSession:
    """The last order of a summary."""
    return bench.all(CompressSession)[-1]


def test_a_summary_stands_for_all_but_the_newest_turns() -> None:
    """/compress: the agent gets the older messages, its text takes their place, and whoever asked hears of the end."""
    bench = Bench()
    talk(bench, "a", "b", "c", "d")
    bench.said("/compress")
    order = ordered(bench)
    assert [event.data["text"] for event in order.said] == ["a", "re a", "b", "re b"]
    assert replies(bench)[-1] == "Compressing 4 messages; you will hear when it is done."
    bench.tell(SummaryMade(order, "a and b"))
    assert shows(bench) == ["a and b", "c", "re c", "d", "re d"]
    assert replies(bench)[-1] == "Compressed: 4 messages became one."
    bench.reopen()
    assert shows(bench) == ["a and b", "c", "re c", "d", "re d"]


def test_a_second_compression_takes_the_first_in() -> None:
    """The summary before is among what the next one stands for."""
    bench = Bench(Rules(compress_keep_turns=1))
    talk(bench, "a", "b")
    bench.said("/compress")
    bench.tell(SummaryMade(ordered(bench), "S1"))
    bench.said("/compress")
    assert replies(bench)[-1] == NOTHING_TO_COMPRESS_TEXT
    talk(bench, "c")
    bench.said("/compress")
    bench.tell(SummaryMade(ordered(bench), "S2"))
    assert shows(bench) == ["S2", "c", "re c"]


def test_a_short_conversation_has_nothing_to_compress() -> None:
    """Without a session, or with the newest turns only, nothing is ordered."""
    bench = Bench()
    bench.said("/compress")
    talk(bench, "a", "b")
    bench.said("/compress")
    assert [text for text in replies(bench) if text == NOTHING_TO_COMPRESS_TEXT] == [NOTHING_TO_COMPRESS_TEXT] * 2
    assert bench.all(CompressSession) == []


@pytest.mark.parametrize("meanwhile", ["/new", "/undo", "/retry"])
def test_a_summary_of_what_has_changed_is_late(meanwhile: str) -> None:
    """After a /new, an /undo or a /retry the summary touches nothing, and whoever asked is told."""
    bench = Bench()
    talk(bench, "a", "b", "c")
    bench.said("/compress")
    bench.said(meanwhile)
    if meanwhile == "/retry":
        bench.answer("again")
    before = bench.session_events()
    bench.tell(SummaryMade(ordered(bench), "S"))
    assert bench.session_events() == before
    assert "changed meanwhile" in replies(bench)[-1]


def test_turns_go_on_beside_a_compression() -> None:
    """What is said while the summary is made stays behind it, a running turn included."""
    bench = Bench(Rules(compress_keep_turns=1))
    talk(bench, "a", "b")
    bench.said("/compress")
    order = ordered(bench)
    talk(bench, "c")
    bench.said("d")
    bench.tell(SummaryMade(order, "S"))
    assert bench.gate.durable.running is not None
    bench.answer("re d")
    assert shows(bench) == ["S", "b", "re b", "c", "re c", "d", "re d"]


def test_a_compression_that_fails_says_so() -> None:
    """The conversation stays as it is, and whoever asked hears why."""
    bench = Bench()
    talk(bench, "a", "b", "c")
    bench.said("/compress")
    bench.tell(SummaryMade(ordered(bench), None, "this agent can't"))
    assert replies(bench)[-1] == "Not compressed: this agent can't."
    assert shows(bench) == ["a", "re a", "b", "re b", "c", "re c"]


def test_a_retry_after_a_compression_keeps_the_summary() -> None:
    """B47: forty turns, a compression, one more: /retry asks that again, /undo takes it back, the summary stays."""
    bench = Bench(free=100)
    talk(bench, *(f"m{number}" for number in range(1, 41)))
    bench.said("/compress")
    bench.tell(SummaryMade(ordered(bench), "S"))
    talk(bench, "m41")
    bench.said("/retry")
    assert asked(bench.all(RunTurn)[-1]) == ["m41"]
    bench.answer("better")
    assert shows(bench) == ["S", "m39", "re m39", "m40", "re m40", "m41", "better"]
    bench.said("/undo")
    assert shows(bench) == ["S", "m39", "re m39", "m40", "re m40"]


def crowded(tokens: int = 900) -> Bench:
    """A conversation of three turns, the last of which had a large prompt."""
    bench = Bench(Rules(compress_above_tokens=500, compress_keep_turns=1))
    talk(bench, "a", "b")
    bench.said("c")
    running = bench.gate.durable.running
    assert running is not None
    usage = Usage(last_prompt_tokens=tokens)
    bench.tell(TurnEnded(running.turn, running.generation, "completed", "re c", usage))
    bench.forget()
    return bench


def due(bench: Bench) -> None:
    """What the shell does when the compression is wanted."""
    wanted = bench.all(CompressionWanted)[-1]
    bench.tell(CompressionDue(wanted.session, wanted.turn))


def test_a_crowded_conversation_is_compressed_before_its_next_turn() -> None:
    """The message is accepted and waits; the summary stands before its turn begins, so that a retry keeps it."""
    bench = crowded()
    bench.said("d")
    assert bench.all(RunTurn) == []
    due(bench)
    bench.tell(SummaryMade(ordered(bench), "S"))
    assert asked(bench.all(RunTurn)[-1]) == ["d"]
    bench.answer("re d")
    assert shows(bench) == ["S", "c", "re c", "d", "re d"]
    assert replies(bench) == ["re d"]
    bench.said("/retry")
    bench.answer("better")
    assert shows(bench) == ["S", "c", "re c", "d", "better"]


def test_a_turn_does_not_wait_for_a_summary_that_cannot_be_made() -> None:
    """It goes on with everything, and its lane doesn't try again before another large prompt."""
    bench = crowded()
    bench.said("d")
    due(bench)
    bench.tell(SummaryMade(ordered(bench), None, "the agent failed"))
    assert asked(bench.all(RunTurn)[-1]) == ["d"]
    bench.answer("re d")
    bench.said("e")
    assert asked(bench.all(RunTurn)[-1]) == ["e"]
    assert len(bench.all(CompressSession)) == 1


def test_a_small_prompt_needs_no_compression() -> None:
    """Below the bound the turn starts in the message's own commit."""
    bench = crowded(499)
    bench.said("d")
    assert asked(bench.all(RunTurn)[-1]) == ["d"]


@pytest.mark.parametrize("text", ["/stop", "/new"])
def test_what_waits_for_a_summary_can_be_given_up(text: str) -> None:
    """The waiting message is dropped by /stop and /new; a summary that comes then starts nothing."""
    bench = crowded()
    waits = bench.said("d")
    due(bench)
    bench.said(text)
    assert bench.outcome(waits).startswith("dropped")
    bench.tell(SummaryMade(ordered(bench), "S"))
    assert bench.all(RunTurn) == []


def test_a_crash_before_the_summary_costs_the_summary_only() -> None:
    """After a restart the message still waits, and the summary is ordered anew."""
    bench = crowded()
    bench.said("d")
    due(bench)
    bench.reopen()
    due(bench)
    bench.tell(SummaryMade(ordered(bench), "S"))
    bench.answer("re d")
    assert shows(bench) == ["S", "c", "re c", "d", "re d"]


def test_a_compress_that_a_crash_cut_off_is_told() -> None:
    """Who was promised to hear of the end hears of it: the command waits until then, and a crash ends it in words."""
    bench = Bench()
    talk(bench, "a", "b", "c")
    command = bench.said("/compress")
    order = ordered(bench)
    assert list(bench.gate.durable.waiting) == [command]
    bench.reopen()
    assert replies(bench)[-1] == "Not compressed: it was interrupted; ask again if you still want it."
    assert bench.outcome(command) == "answered"
    before = bench.gate.durable.head
    bench.tell(SummaryMade(order, "S"))
    assert (shows(bench), bench.gate.durable.head) == (["a", "re a", "b", "re b", "c", "re c"], before)
    bench.reopen()
    assert bench.gate.durable.head == before
    assert bench.fold() == bench.gate.durable


def test_a_host_hears_from_the_receipt_what_became_of_its_compress() -> None:
    """Without an adapter the receipt's end is the compression's, not its beginning."""
    bench = Bench()
    talk(bench, "a", "b", "c")
    asks = replace(bench.message("/compress"), by_receipt=True)
    bench.tell(asks)
    command = asks.id
    assert bench.all(Finished)[-1].id != command
    bench.tell(SummaryMade(ordered(bench), "S"))
    end = bench.all(Finished)[-1]
    assert (end.id, end.text) == (command, "Compressed: 2 messages became one.")


@pytest.mark.parametrize("reopened", [False, True])
@pytest.mark.parametrize(("turns", "oldest"), [(2, "c"), (3, "b"), (9, "a")])
def test_taking_back_behind_a_summary_names_the_oldest_that_goes(turns: int, oldest: str, *, reopened: bool) -> None:
    """/undo and a host's rewind tell of the first message that is really taken back, also of one that the summary
    stood for; in a later life, which reads a snapshot, too.
    """
    for by_host in (False, True):
        bench = Bench(Rules(compress_keep_turns=1))
        talk(bench, "a", "b", "c")
        bench.said("/compress")
        bench.tell(SummaryMade(ordered(bench), "a and b"))
        talk(bench, "d")
        session = bench.gate.durable.bound
        assert session is not None
        if reopened:
            log = session_log(session)
            surface = fold(bench.store.reader().read(log))
            snapshot = Checkpoint(log, "surface", surface.head, SNAPSHOT_VERSION, surface_to_json(surface))
            assert bench.store.keep([snapshot]) == 1
            bench.reopen()
        if by_host:
            bench.tell(Ask("q", Rewind(session, turns)))
            assert [told.value["target_text"] for told in bench.all(Answered)] == [oldest]
        else:
            bench.said(f"/undo {turns}")
            assert f"from: “{oldest}”" in replies(bench)[-1]
        assert shows(bench) == [text for said in "abcd" if said < oldest for text in (said, f"re {said}")]
