"""Silence that is said in words: recognised whatever its form, judged once, never shown."""

from __future__ import annotations

import pytest

from seriatim.effects import Deliver, Finished
from seriatim.mail import PartSettled
from seriatim.outbox import Channel
from seriatim.silence import SILENCE_NOTICE, is_silence, may_become_silence, without_marker
from tests.core.bench import Bench

MARKERS = (
    "[SILENT]", "[silent]", " [Silent] \n", "( silent )", "SILENT", "NO_REPLY", "no_reply", "NO REPLY", "[no reply]",
    "[NO-REPLY].", "`NO_REPLY`", "**[SILENT]**", '"NO_REPLY"', "\n\n[SILENT]\n", "<NO_REPLY>", "[NOREPLY]",
)  # fmt: skip
ANSWERS = (
    "silent", "Silent.", "no reply", "No reply from him yet.", "The marker [SILENT] means silence.", "SILENTLY",
    "[SILENT] is what I would say", "NO_REPLY_AT_ALL", "", "I will reply.", "He fell silent",
)  # fmt: skip


@pytest.mark.parametrize("text", MARKERS)
def test_a_marker_is_known_in_any_dress(text: str) -> None:
    """Blanks, case, brackets and emphasis change nothing about a marker (B83)."""
    assert is_silence(text)
    assert without_marker(text) == ""


@pytest.mark.parametrize("text", ANSWERS)
def test_words_that_only_look_like_one_are_an_answer(text: str) -> None:
    """A sentence, and plain words without brackets, are said as they are (B83)."""
    assert not is_silence(text)
    assert without_marker(text) == text


def test_a_marker_on_a_line_of_its_own_is_cut_off() -> None:
    """At the beginning or the end of a longer answer the marker goes and the answer stays (B83)."""
    assert without_marker("Done.\n\n[SILENT]\n").strip() == "Done."
    assert without_marker("NO_REPLY\nDone.").strip() == "Done."
    assert without_marker("[SILENT]\nNO_REPLY") == ""
    assert without_marker("a\n[SILENT]\nb") == "a\n[SILENT]\nb"


@pytest.mark.parametrize("text", MARKERS)
def test_no_beginning_of_a_marker_is_shown_as_a_draft(text: str) -> None:
    """Whatever pieces a marker comes in, each beginning of it is held back (B83)."""
    for end in range(1, len(text) + 1):
        assert may_become_silence(text[:end]), text[:end]
    assert not may_become_silence("So I")
    assert not may_become_silence("No, I")


@pytest.mark.parametrize("marker", ["[SILENT]", " no_reply\n"])
def test_a_person_gets_a_notice_for_a_bare_marker(marker: str) -> None:
    """A human turn owes the notice, its receipt has it too, and the conversation keeps what the model wrote (B83)."""
    bench = Bench()
    asked = bench.said("are you there?")
    bench.answer(marker)
    assert [owed.parts for owed in bench.all(Deliver)] == [(SILENCE_NOTICE,)]
    assert [(end.id, end.text) for end in bench.all(Finished)] == [(asked, SILENCE_NOTICE)]
    assert [e.data["text"] for e in bench.session_events() if e.type == "assistant/message"] == [marker]


def test_a_queued_item_s_marker_is_a_person_s_too() -> None:
    """A /queue item's turn is asked for by a person: the same notice (B83)."""
    bench = Bench()
    bench.said("a")
    bench.said("/queue b")
    bench.forget()
    bench.answer("first")
    bench.answer("[SILENT]")
    assert [owed.parts for owed in bench.all(Deliver)] == [("first",), (SILENCE_NOTICE,)]


def test_an_internal_turn_s_marker_owes_nothing() -> None:
    """A wake that has nothing to say says nothing, and the ledger says why (B83)."""
    bench = Bench()
    bench.wake()
    bench.answer("[SILENT]")
    assert bench.all(Deliver) == []
    assert [event.data["reason"] for event in bench.lane_events("delivery/none")] == ["silence marker"]


def test_a_resumed_turn_s_marker_is_judged_alike() -> None:
    """After a crash the turn runs again and its marker becomes the same notice; killed after the commit, the notice is
    what is still owed (B83).
    """
    bench = Bench(channel=Channel(up=True, text_max=400))
    bench.said("hi")
    bench.reopen()
    bench.answer("[SILENT]")
    bench.forget()
    bench.reopen()
    [owed] = bench.all(Deliver)
    assert owed.parts == (SILENCE_NOTICE,)
    bench.tell(PartSettled(owed.delivery, 0, None))
    bench.tick(1_000)
    bench.drain()
    assert bench.gate.durable.owed == {}
