"""``seriatim chat`` on a terminal, killed and started again."""

from __future__ import annotations

from pathlib import Path

from seriatim.outbox import RECOVERED_NOTICE
from tests.e2e.command import Chat, wait_at_rest

THREE = ("my cat is called Ada", "the door code is on the fridge", "tuesday is bin day")


def test_a_chat_that_was_killed_goes_on_with_its_history_and_repeats_nothing(tmp_path: Path) -> None:
    """Three things said, kill -9, started again: all is known, and nothing is said a second time."""
    home = tmp_path / "home"
    with Chat(tmp_path, home) as chat:
        chat.prompted()
        answers = [chat.say(line) for line in THREE]
        assert all(answer.startswith("Noted.") for answer in answers)
        wait_at_rest(home)
        chat.kill()
    with Chat(tmp_path, home) as chat:
        introduction = chat.prompted()
        assert str(home) in introduction
        told = chat.say("last 20")
        assert [line for line in THREE if line in told] == list(THREE)
        assert told.count("Noted.") == len(THREE)
        assert "tuesday" in chat.say("search bin day")
        for line in (*THREE, RECOVERED_NOTICE):
            assert line not in introduction
        assert RECOVERED_NOTICE not in chat.shown
        assert chat.end() == 0


def test_a_chat_that_ended_goes_on_as_well(tmp_path: Path) -> None:
    """Ctrl-D stops cleanly; the next start knows what was said."""
    home = tmp_path / "home"
    with Chat(tmp_path, home) as chat:
        chat.prompted()
        chat.say(THREE[0])
        assert chat.end() == 0
    assert (home / ".clean_shutdown").exists()
    with Chat(tmp_path, home) as chat:
        chat.prompted()
        assert THREE[0] in chat.say("last")
        assert RECOVERED_NOTICE not in chat.shown
