"""How a file becomes one of today's format: together, cut off anywhere, and large."""

from __future__ import annotations

import logging
import os
import signal
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from seriatim.errors import FormatUnsupportedError
from seriatim.storage import files, schema, sqlite, sqlite_reader
from seriatim.storage.sqlite import SqliteStore
from seriatim.testing.store_contract import LANE, born, commit, kinds, part

STEP = (
    "CREATE TABLE later(n INTEGER PRIMARY KEY, text TEXT NOT NULL) STRICT",
    "INSERT INTO later(text) SELECT type FROM events",
    "ALTER TABLE logs ADD COLUMN later INTEGER NOT NULL DEFAULT 7",
    "CREATE INDEX later_text ON later(text)",
)
"""A step that makes, fills, changes and indexes."""

FORMAT = schema.FORMAT


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A database of today's format."""
    store = SqliteStore(tmp_path / "state.db")
    store.commit([born(), commit("c", part(LANE, 1, 4))])
    store.close()
    return tmp_path / "state.db"


@pytest.fixture
def later(path: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """From now on the program is one of a later format, with one more step."""
    monkeypatch.setattr(schema, "STEPS", (*schema.STEPS, STEP))
    for module in (schema, files, sqlite, sqlite_reader):
        monkeypatch.setattr(module, "FORMAT", FORMAT + 1)
    return FORMAT + 1


def facts(path: Path) -> tuple[int, int, int | None]:
    """Format, events, and rows of the new table (None: no such table)."""
    connection = sqlite3.connect(path)
    try:
        has = connection.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'later'").fetchone()[0]
        return (
            connection.execute("PRAGMA user_version").fetchone()[0],
            connection.execute("SELECT count(*) FROM events").fetchone()[0],
            connection.execute("SELECT count(*) FROM later").fetchone()[0] if has else None,
        )
    finally:
        connection.close()


class Dying(sqlite3.Connection):
    """A connection that kills its process before a statement, or before it is closed."""

    left = 0

    def execute(self, *call: Any) -> sqlite3.Cursor:
        """As ever, unless the time has come."""
        Dying.left -= 1
        if Dying.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().execute(*call)

    def close(self) -> None:
        """Say that no statement was left to die at, and die."""
        if Dying.left > 0:
            Path("reached").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        super().close()


def migrate_in_a_child(path: Path, die_at: int = 0) -> int:
    """Open the file in a forked process, killed at that statement of the migration; its pid."""
    child = os.fork()
    if child == 0:
        try:
            os.chdir(path.parent)
            Dying.left = die_at
            connect = partial(sqlite3.connect, factory=Dying)
            schema.__dict__["sqlite3"] = SimpleNamespace(connect=connect, Error=sqlite3.Error)
            SqliteStore(path, busy_ms=20_000).close()
            os._exit(0)
        finally:
            os._exit(1)
    return child


def code_of(child: int) -> int:
    """How a child ended."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_kill_at_each_statement_leaves_the_old_file_or_the_new(path: Path, later: int) -> None:
    """Wherever SIGKILL strikes, the file is whole, of the old format or of the new; the next start ends the work."""
    whole = path.read_bytes()
    events = facts(path)[1]
    seen: list[int] = []
    while not path.with_name("reached").exists():
        assert len(seen) < 100, "the migration doesn't end"
        for left in path.parent.iterdir():
            left.unlink()
        path.write_bytes(whole)
        assert code_of(migrate_in_a_child(path, len(seen) + 1)) == -signal.SIGKILL
        state = facts(path)
        assert state in {(FORMAT, events, None), (later, events, events)}
        seen.append(state[0])
        store = SqliteStore(path)
        assert facts(path) == (later, events, events)
        assert kinds(store.commit([commit("d", part(LANE, 5))])) == ["Durable"]
        store.close()
    assert len(seen) > len(STEP) + 5
    assert set(seen) == {FORMAT, later}


def test_two_processes_and_eight_threads_migrate_together(path: Path, later: int) -> None:
    """However many open an old file at once, all of them succeed, and each step was done once."""
    events = facts(path)[1]
    children = [migrate_in_a_child(path) for _ in range(2)]
    with ThreadPoolExecutor(8) as pool:
        for store in list(pool.map(lambda _: SqliteStore(path, busy_ms=20_000), range(8))):
            store.close()
    assert [code_of(child) for child in children] == [0, 0]
    assert facts(path) == (later, events, events)


def test_an_older_program_refuses_what_a_newer_one_made(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a migration the program of before says "upgrade" and leaves every byte."""
    with monkeypatch.context() as newer:
        newer.setattr(schema, "STEPS", (*schema.STEPS, STEP))
        for module in (schema, files, sqlite, sqlite_reader):
            newer.setattr(module, "FORMAT", FORMAT + 1)
        SqliteStore(path).close()
    before = path.read_bytes()
    with pytest.raises(FormatUnsupportedError) as caught:
        SqliteStore(path)
    assert caught.value.direction == "upgrade"
    assert path.read_bytes() == before


def test_a_large_migration_tells_how_it_goes_and_copies_only_what_it_changes(
    path: Path, later: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The log has its begin, its going on and its end; the rows that it doesn't touch are not written again."""
    connection = sqlite3.connect(path)
    rows = [(n + 100, 1, n + 5, "inbox/accepted", 1000, '{"n":1}' * 20) for n in range(20_000)]
    connection.executemany("INSERT INTO events(at, log, seq, type, time, data) VALUES (?, ?, ?, ?, ?, ?)", rows)
    connection.commit()
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    _, events, _ = facts(path)
    monkeypatch.setattr(schema, "PROGRESS_S", 0.0)
    size = path.stat().st_size
    with caplog.at_level(logging.WARNING, "seriatim.storage"):
        SqliteStore(path).close()
    said = [record.getMessage() for record in caplog.records]
    assert "migrating" in said[0]
    assert "still migrating" in said[1]
    assert "migrated in" in said[-1]
    assert facts(path) == (later, events, events)
    assert path.stat().st_size - size < size / 2  # the new table and its index: two short columns of nine
