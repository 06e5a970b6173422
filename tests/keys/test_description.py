"""A source in one line for people, as the gateway seed gives examples of it."""

from __future__ import annotations

from typing import Any

import pytest

from seriatim import SessionSource


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({"chat_id": "1", "user_name": "Alice", "user_id": "7"}, "DM with Alice"),
        ({"chat_id": "1", "user_id": "7"}, "DM with 7"),
        ({"chat_id": "1"}, "DM with user"),
        (
            {"chat_id": "1", "chat_type": "group", "chat_name": "My Group", "thread_id": "12345"},
            "group: My Group, thread: 12345",
        ),
        ({"chat_id": "C1", "chat_type": "channel"}, "channel: C1"),
        ({"chat_id": "C1", "chat_type": "thread", "chat_name": "Plans"}, "Plans"),
        ({"chat_id": "1", "user_name": "Alice", "thread_id": "5"}, "DM with Alice, thread: 5"),
        ({"chat_id": "1", "chat_type": "group", "thread_id": "5", "is_forum": False}, "group: 1"),
    ],
)
def test_a_line_for_people(fields: dict[str, Any], line: str) -> None:
    """Who or where, then the thread if it is one."""
    assert SessionSource("telegram", **fields).description == line


def test_the_terminal_is_called_so() -> None:
    """What is local is the terminal, whoever types."""
    assert SessionSource("local", "1", user_name="Ann").description == "CLI terminal"
