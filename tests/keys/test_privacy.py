"""What must not leak, and who is let in."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from seriatim import GatewayConfig, MessageEvent, Platform, SessionEntry, SessionSource
from seriatim.config import parse_config
from seriatim.errors import ConfigError, InvalidInputError
from seriatim.operators import is_operator
from seriatim.storage.event_log.jsonl import JsonlLogs
from seriatim.testing.log_contract import header
from tests.gateway.bots import bot, echo, run

SECRET = "sk-verysecret"


def test_logs_hold_nobody_s_words(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """B165: at debug level, with a failing agent and a failing platform, no line holds a message's text, a name or an
    id.
    """
    caplog.set_level(logging.DEBUG)
    names = (SECRET, "+491701234567", "alice@example.org", "Alice Example", "chat-4711")

    async def broken(turn: object) -> str:
        raise RuntimeError("no")

    async def main() -> None:
        for n, agent in enumerate((echo, broken)):
            async with bot(agent, tmp_path) as it:
                it.platform.fail_next("plain", "lost")
                source = SessionSource(
                    Platform("fake"), "chat-4711", user_id="+491701234567", user_name="Alice Example"
                )
                event = MessageEvent(f"{SECRET} alice@example.org", source, account="fake", message_id=f"m{n}")
                await (await it.gateway.accept(event)).answered()
                assert it.errors or agent is echo

    run(main())
    told = caplog.text
    assert [name for name in names if name in told] == []


HOSTILE = (
    "../../x", "/etc/v", "C:\\x", "a*", ".", "..", "x" * 300, "CON", "con", "a.", "a ", "\u202ex", "\u0430",
    "a", "A", "a/b", "a\\b", "~", "a~0062", "[a]", "a?b", "caf\u00e9", "cafe\u0301",
)  # fmt: skip


def test_ids_become_no_paths(tmp_path: Path) -> None:
    """B162: whatever a session is called, its file lies inside the root, under a name that no other id has, and its
    removal touches no other; an id from an old record that looks like a path is refused.
    """
    logs = JsonlLogs(tmp_path / "logs", "raw")
    root = (tmp_path / "logs").resolve()
    places: dict[str, str] = {}
    for session_id in HOSTILE:
        path = Path(logs.locate(header(session_id)).path).resolve()
        assert path.is_relative_to(root)
        name = str(path.relative_to(root))
        assert set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789_-~./")
        assert places.setdefault(name.casefold(), session_id) == session_id
    with pytest.raises(InvalidInputError):
        logs.locate(header("a\0b"))
    when = "2026-01-02T03:04:05+00:00"
    for session_id in ("../../x", "/etc/v", "C:\\x", "..", "a/b"):
        with pytest.raises(InvalidInputError):
            SessionEntry.from_dict({"session_key": "k", "session_id": session_id, "created_at": when})


def test_names_let_nobody_in() -> None:
    """B164: an allow-list holds stable ids of a platform; a name in it is refused, and bearing one opens nothing."""
    with pytest.raises(ConfigError) as refused:
        parse_config({"operators": ["alice"]}, {})
    assert "operators" in str(refused.value)
    operators = frozenset(GatewayConfig(operators=("irc:alice",)).operators)
    assert is_operator(SessionSource("irc", "c", user_id="alice"), operators)
    for name in ("alice", "ALICE", "\u0430lice"):
        assert not is_operator(SessionSource("irc", "c", user_id="mallory", user_name=name), operators)
    for name in ("ALICE", "\u0430lice"):
        assert not is_operator(SessionSource("irc", "c", user_id=name), operators)
    assert not is_operator(SessionSource("fake", "c", user_id="alice"), operators)
