"""The views ``sessions`` and ``messages`` show what the logs tell, and hold nothing of their own."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from seriatim.commits import Commit, Durable, Part
from seriatim.events import Event, LogId
from seriatim.storage.sqlite import SqliteStore
from seriatim.surface import MESSAGE_TYPES, fold, visibility
from tests.growth.test_surfaces import events_of
from tests.growth.worlds import Life
from tests.persistence.histories import History

STATES = {(1, 0): "current", (0, 1): "shadowed", (0, 0): "undone"}


def rows(path: Path, sql: str, *values: Any) -> list[tuple[Any, ...]]:
    """What a tool beside the gateway reads."""
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    found = connection.execute(sql, values).fetchall()
    connection.close()
    return found


def written(path: Path, logs: dict[str, list[Event]]) -> None:
    """Session logs, each in a few commits."""
    store = SqliteStore(path)
    for name, events in logs.items():
        log = LogId(f"session:{name}")
        for first in range(0, len(events), 7):
            header = {"id": name, "createdAt": 5_000} if first == 0 else None
            part = Part(log, first, tuple(events[first : first + 7]), None, header)
            (outcome,) = store.commit([Commit(f"{name} {first}", log, 1, (part,))])
            assert type(outcome) is Durable, outcome
    store.close()


@pytest.mark.parametrize("seed", range(6))
def test_messages_are_active_or_compacted_as_the_surface_says(tmp_path: Path, seed: int) -> None:
    """For random histories of undo, redo, retry, compress, prune, rewrite and wipe, many in one file."""
    logs: dict[str, list[Event]] = {}
    for number in range(8):
        history = History(1000 * seed + number)
        for _ in range(10):
            events_of(history)
        logs[f"s{number}"] = history.log
    path = tmp_path / "state.db"
    written(path, logs)
    seen: set[str] = set()
    for name, log in logs.items():
        sql = "SELECT seq, active, compacted FROM messages WHERE session_id = ? ORDER BY seq"
        told = {seq: STATES[active, compacted] for seq, active, compacted in rows(path, sql, name)}
        assert told == visibility(fold(log), log)
        seen.update(told.values())
    assert seen == set(STATES.values())
    assert len(rows(path, "SELECT id FROM messages")) == len(
        [event for log in logs.values() for event in log if event.type in MESSAGE_TYPES]
    )


def test_a_conversation_reads_like_one(tmp_path: Path) -> None:
    """Roles, words and times in order; a session with its lane and its counts."""
    path = tmp_path / "state.db"
    life = Life(lambda: SqliteStore(path))
    life.talk(2)
    session, key = life.state.bound, life.key
    life.say("/new")
    life.say("hello")
    life.end()
    assert rows(path, "SELECT role, content, turn, active FROM messages WHERE session_id = ? ORDER BY id", session) == [
        ("user", "0", 1, 1),
        ("assistant", "re: 0", 1, 1),
        ("user", "1", 2, 1),
        ("assistant", "re: 1", 2, 1),
    ]
    found = rows(path, "SELECT id, session_key, message_count, started_at <= updated_at FROM sessions ORDER BY id")
    assert len(found) == 2
    assert (session, key, 4, 1) in found


def test_a_lost_view_comes_back(tmp_path: Path) -> None:
    """Dropped or replaced by something else, it is what it was after the next start."""
    path = tmp_path / "state.db"
    life = Life(lambda: SqliteStore(path))
    life.talk(3)
    life.end()
    before = rows(path, "SELECT * FROM messages"), rows(path, "SELECT * FROM sessions")
    connection = sqlite3.connect(path)
    connection.execute("DROP VIEW messages")
    connection.execute("DROP VIEW sessions")
    connection.execute("CREATE VIEW sessions AS SELECT 1 AS id")
    connection.close()
    SqliteStore(path).close()
    assert (rows(path, "SELECT * FROM messages"), rows(path, "SELECT * FROM sessions")) == before


def test_one_session_is_found_without_reading_the_others(tmp_path: Path) -> None:
    """Asking for one goes through an index, not over all events."""
    path = tmp_path / "state.db"
    SqliteStore(path).close()
    plan = rows(path, "EXPLAIN QUERY PLAN SELECT * FROM messages WHERE session_id = 's1'")
    lines = [row[3] for row in plan]
    assert any("session_ids" in line for line in lines)
    assert not {"SCAN e", "SCAN c", "SCAN l", "SCAN events", "SCAN commits"}.intersection(lines)
