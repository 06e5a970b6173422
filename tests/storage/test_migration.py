"""A file of an older format becomes one of the newest, with all that it held."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from seriatim.commits import Commit, Durable, Part
from seriatim.events import Event, lane_log
from seriatim.storage.schema import FORMAT, STEPS, migrate
from seriatim.storage.sqlite import SqliteStore


def shape(path: Path) -> list[tuple[str, str]]:
    """Everything that the file's schema says."""
    connection = sqlite3.connect(path)
    found = connection.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY name").fetchall()
    version = connection.execute("PRAGMA user_version").fetchone()
    connection.close()
    return [*found, version]


@pytest.mark.parametrize("version", range(1, FORMAT))
def test_an_older_file_becomes_a_new_one(tmp_path: Path, version: int) -> None:
    """Its tables, indexes and writer end the same as those of a file made today, whatever wrote it before."""
    path, fresh = tmp_path / "old.db", tmp_path / "fresh.db"
    connection = sqlite3.connect(path)
    for statements in STEPS[:version]:
        for statement in statements:
            connection.execute(statement)
    connection.execute("CREATE VIEW group_commit AS SELECT 1 AS old")
    connection.execute("CREATE TRIGGER group_commit_old INSTEAD OF INSERT ON group_commit BEGIN SELECT 1; END")
    connection.execute("INSERT INTO meta VALUES (1, 'x', 3, '')")
    connection.execute(f"PRAGMA user_version = {version}")
    connection.commit()
    connection.close()
    migrate(str(path), "y", 1000)
    migrate(str(fresh), "z", 1000)
    assert shape(path) == shape(fresh)


def test_a_writer_of_another_version_is_made_anew(tmp_path: Path) -> None:
    """A file of today's format may come with other ways to write it: opening makes them today's, and they write."""
    path, fresh = tmp_path / "state.db", tmp_path / "fresh.db"
    SqliteStore(fresh).close()
    SqliteStore(path).close()
    connection = sqlite3.connect(path)
    connection.execute("DROP VIEW group_commit")
    connection.execute("CREATE VIEW group_commit AS SELECT NULL AS epoch WHERE 0")
    connection.execute("CREATE TRIGGER group_commit_plain INSTEAD OF INSERT ON group_commit BEGIN SELECT 1; END")
    connection.commit()
    connection.close()
    assert shape(path) != shape(fresh)
    store = SqliteStore(path)
    log = lane_log("k")
    part = Part(log, 0, (Event("inbox/merged", 0, 1, {"ids": ["a"], "into": "b"}),), None, {"id": "k", "version": 1})
    assert store.commit([Commit("c", log, 1, (part,))]) == [Durable("c")]
    store.close()
    assert shape(path) == shape(fresh)
