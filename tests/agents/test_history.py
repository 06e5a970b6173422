"""The built-in agent that answers from the conversation's own history."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from seriatim.actors.turns import AgentRunner
from seriatim.adapters.agents.history import HistoryAgent
from seriatim.turn import Message
from tests.turns.harness import Ear, claim, job

NOON = 1_700_049_600_000  # 2023-11-15 12:00 UTC
SAID = (
    Message("user", "I bought a red bicycle", NOON, 1, "Ada"),
    Message("assistant", "Noted.", NOON + 1000, 1),
    Message("user", "and a red helmet", NOON + 3_600_000, 2, "Bo"),
    Message("assistant", "Noted.", NOON + 3_601_000, 2),
)


def say(text: str, history: tuple[Message, ...] = SAID, **fields: Any) -> str:
    """The agent's answer to ``text``, two days after noon."""

    async def whole() -> str:
        runner, ear = AgentRunner(asyncio.get_running_loop(), HistoryAgent()), Ear()
        claims = fields.pop("claims", (claim(text, time=NOON + 2 * 86_400_000),))
        runner.start(job(claims=claims, history=history, **fields), ear)
        await ear.until(lambda: bool(ear.ends))
        await runner.close(5)
        assert ear.ends[0].reason == "completed"
        return ear.ends[0].text or ""

    return asyncio.run(whole())


@pytest.mark.parametrize("text", ["help", "Help?", "who are you?", "hello"])
def test_it_says_what_it_is(text: str) -> None:
    """Asked for help, it says first that it is no language model, and what it can do."""
    assert say(text).startswith("I am not a language model.")
    assert "I remember 4 messages" in say(text)


def test_plain_text_is_noted_with_a_count() -> None:
    """The count lets a person see that nothing was lost."""
    assert say("It rains.") == "Noted. I remember 4 messages from before this one."


def test_the_first_answer_says_what_it_is() -> None:
    """A stranger learns from the first answer whom they talk to."""
    first = say("It rains.", ())
    assert first.startswith("Noted. I remember 0 messages")
    assert "not a language model" in first


def test_merged_messages_are_counted() -> None:
    """A turn that answers several messages says so."""
    assert say("", claims=(claim("a"), claim("b"))).startswith("Noted, all 2 of them.")


def test_a_boundary_is_told() -> None:
    """After a conversation boundary it says that it starts anew."""
    assert "new conversation" in say("It rains.", (), boundary="fresh")


def test_last_shows_the_newest_in_order() -> None:
    """``last n`` shows number, time, speaker and text."""
    assert say("last 2") == ("   3  2023-11-15 13:00 UTC  Bo: and a red helmet\n   4  2023-11-15 13:00 UTC  me: Noted.")


@pytest.mark.parametrize("text", ["last", "last 0", "last 999999999", "LAST 3"])
def test_last_takes_any_number(text: str) -> None:
    """No number, none, or too large a one: an answer each time."""
    assert say(text)


def test_search_finds_messages_with_all_words() -> None:
    """Words in any case and order; only what people said."""
    assert say("search RED bicycle") == (
        '1 message holds "RED bicycle".\n   1  2023-11-15 12:00 UTC  Ada: I bought a red bicycle'
    )
    assert say("search red").startswith("2 messages hold")
    assert say("find green") == 'Nothing here holds "green".'
    assert say("search noted") == 'Nothing here holds "noted".'


def test_search_cuts_a_long_list() -> None:
    """Of many hits the last ten are shown, and all are counted."""
    many = tuple(Message("user", f"red {at}", NOON, at) for at in range(30))
    lines = say("search red", many).splitlines()
    assert lines[0] == '30 messages hold "red". The last 10:'
    assert (len(lines), lines[-1].endswith("you: red 29")) == (11, True)


def test_when_tells_the_time() -> None:
    """``when did I say`` tells how long ago, exactly when, and what."""
    answer = say("when did I say bicycle?")
    assert answer.startswith("2 days ago, 2023-11-15 12:00 UTC:\n   1  ")
    assert answer.endswith("Ada: I bought a red bicycle")


def test_when_means_the_asker_in_shared_sessions() -> None:
    """In a shared session "I" is whoever asks."""
    assert say("when did I say helmet", shared=True) == 'I have no message of yours with "helmet".'
    assert "bicycle" in say("when did I say red", shared=True)


def test_when_leaves_earlier_questions_out() -> None:
    """Asking twice doesn't find the first question."""
    asked = (*SAID, Message("user", "when did I say bicycle?", NOON, 3, "Ada"))
    assert "Ada: I bought a red bicycle" in say("when did I say bicycle?", asked)


def test_who_counts_speakers() -> None:
    """``who`` ranks by count, then name."""
    assert say("who") == "me: 2 messages\nAda: 1 message\nBo: 1 message"


def test_count_tells_how_much_and_since_when() -> None:
    """``count`` sums up what was kept."""
    assert say("count").endswith(
        "2 messages of yours, 2 answers of mine, in 2 turns, since 2023-11-15 12:00 UTC (2 days ago)."
    )


def test_it_answers_from_this_conversation_only() -> None:
    """Nothing stays in the agent between turns: another history, another answer."""
    say("I like tea")
    assert say("search tea", ()) == 'Nothing here holds "tea".'


def test_names_and_texts_stay_on_their_line() -> None:
    """A name with a line break, or a very long text, can't forge a line of the answer."""
    odd = (Message("user", "x\ny" * 200, NOON, 1, "Eve\n   9  me"),)
    assert len(say("last", odd).splitlines()) == 1
