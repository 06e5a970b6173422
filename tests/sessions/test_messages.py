"""Messages that a host puts into a transcript: all of them are kept, whatever they hold."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from seriatim import GatewayConfig, SessionSource, SessionStore
from seriatim.actors.transcript import History
from seriatim.errors import InvalidInputError
from seriatim.events import Event
from seriatim.transcripts import message_of, messages_from

NOW = 1_700_000_000_000


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SessionStore]:
    """A store without a mirror."""
    with SessionStore(tmp_path / "home", GatewayConfig(write_sessions_json=False)) as opened:
        yield opened


def session(store: SessionStore) -> str:
    """A session of its own."""
    return store.get_or_create_session(SessionSource("telegram", "1", user_id="7")).session_id


def back(message: dict[str, Any], time: int = NOW) -> dict[str, Any]:
    """What a message is once it has been an event, written at ``time``."""
    [(kind, data)] = messages_from([message], "fresh", NOW)
    return message_of(Event(kind, 1, time, data))


WORDLESS: list[dict[str, Any]] = [
    {"role": "assistant", "content": [{"type": "image_url", "image_url": {"url": "http://x/y.png"}}]},
    {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}},
    {"role": "assistant", "content": None, "refusal": "I won't"},
    {"role": "assistant", "content": None, "tool_calls": "no list"},
    {"role": "assistant", "content": ""},
    {"role": "user", "content": [{"type": "image_url"}]},
    {"role": "user", "content": ""},
]


@pytest.mark.parametrize("message", WORDLESS)
def test_a_message_without_words_is_kept_like_any_other(store: SessionStore, message: dict[str, Any]) -> None:
    """What an append says that it has taken, the transcript shows; so does what a rewrite was given."""
    at = session(store)
    assert store.append_to_transcript(at, message)
    [shown] = store.load_transcript(at)
    assert {name: told for name, told in shown.items() if name != "timestamp"} == message
    given = [{"role": "user", "content": "q"}, message, {"role": "assistant", "content": "z"}]
    assert store.rewrite_transcript(at, given)
    loaded = store.load_transcript(at)
    assert [{name: told for name, told in shown.items() if name != "timestamp"} for shown in loaded] == given


@pytest.mark.parametrize("role", ["user", "assistant", "tool"])
@pytest.mark.parametrize("stamp", ["2020-01-01T00:00:00+00:00", "2020-01-01T02:00:00.123456+02:00", 17.5, "0001-01-01"])
def test_a_timestamp_comes_back_as_it_was_given(role: str, stamp: Any) -> None:
    """Whatever the host calls a time; when the message was written doesn't matter."""
    message = {"role": role, "content": "x", "tool_call_id": "c", "timestamp": stamp}
    assert back(message) == message


@pytest.mark.parametrize("role", ["user", "assistant", "tool"])
def test_a_timestamp_is_when_the_message_was_said(role: str) -> None:
    """Agents are told the host's time of a message; without one it is that of writing."""
    message = {"role": role, "content": "x", "tool_call_id": "c"}
    [(kind, data)] = messages_from([message | {"timestamp": "2020-01-01T00:00:00Z"}], "fresh", NOW)
    assert History([Event(kind, 1, NOW, data)], 1)[0].time == 1_577_836_800_000
    assert back(message)["timestamp"] == "2023-11-14T22:13:20+00:00"


def test_a_transcript_that_is_written_again_keeps_its_times(store: SessionStore) -> None:
    """Rewriting what was loaded changes nothing."""
    at = session(store)
    for role in ("user", "assistant", "tool"):
        store.append_to_transcript(at, {"role": role, "content": "x", "timestamp": "2020-01-01T00:00:00+00:00"})
        store.append_to_transcript(at, {"role": role, "content": "now", "tool_call_id": "c"})
    before = store.load_transcript(at)
    assert store.rewrite_transcript(at, before)
    assert store.load_transcript(at) == before


@pytest.mark.parametrize("call", ["c1", "", 5, None, ["c1"]])
def test_the_id_of_a_tool_call_comes_back_as_it_was_given(call: Any) -> None:
    """Also one that can be no id of ours."""
    assert back({"role": "tool", "content": "x", "tool_call_id": call})["tool_call_id"] == call


@pytest.mark.parametrize("role", [[], {}, 5, None, "system"])
def test_a_role_of_no_kind_is_the_callers_error(store: SessionStore, role: Any) -> None:
    """It is named, whatever its type, and nothing is written."""
    at = session(store)
    with pytest.raises(InvalidInputError, match="role"):
        store.append_to_transcript(at, {"role": role, "content": "x"})
    assert store.load_transcript(at) == []
