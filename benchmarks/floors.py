"""Two floors under the product, made of what one of its runs wrote: recorded once, replayed for each timing.

*Raw*: plain sqlite3, synchronous=FULL, the same rows into the same tables, one executemany per table, 64 turns a
commit. *Same statements*: the very statements of the run in the very transactions, without actors, checks or
encoding. Both rows and statements are ready made, so these are floors and no rivals. After the raw floor its file is
compared with the product's, row by row.
"""

from __future__ import annotations

import shutil
import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from attrs import Factory, define

from benchmarks.load import Variant, product
from seriatim.commits import Commit, Hot, Outcome
from seriatim.storage.sqlite import SqliteStore

GROUP: Final = 64
HOT: Final = ("open_turn", "waiting", "owed", "phase", "since", "accepted", "answered", "merged", "dropped")
INSERTS: Final = {
    "events": "INSERT INTO events VALUES (?,?,?,?,?,?,?,?,?)",
    "commits": "INSERT INTO commits VALUES (?,?,?,?,?,?,?,?)",
    "keys": "INSERT INTO keys VALUES (?,?,?)",
    "lanes": "INSERT INTO lanes VALUES (?,?,?,?,?,?,?,?,?,?) ON CONFLICT(log) DO UPDATE SET "
    + ", ".join(f"{name} = excluded.{name}" for name in HOT),
}
TABLES: Final = ("events", "commits", "keys", "lanes", "logs")


class _Tap:
    """Stands before the store's connection and remembers what is executed."""

    def __init__(self, connection: sqlite3.Connection, told: list[tuple[str, Any]]) -> None:
        self._connection = connection
        self._told = told

    def execute(self, sql: str, values: Sequence[Any] = ()) -> sqlite3.Cursor:
        self._told.append((sql, values))
        return self._connection.execute(sql, values)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


class RecordedStore(SqliteStore):
    """The store; keeps the statements of its commits and the commits themselves."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.statements: list[tuple[str, Any]] = []
        self.commits: list[Commit] = []
        assert self._connection is not None
        tap: Any = _Tap(self._connection, self.statements)
        self._connection = tap

    def commit(self, commits: Sequence[Commit]) -> list[Outcome]:
        """Remember, then commit."""
        self.commits.extend(commits)
        return super().commit(commits)


@define
class Recording:
    """What one run of the product wrote after ``base``, its database before the run.

    ``batches``: rows by table for each group of the raw floor. ``statements``: with their values, in order.
    """

    base: Path
    written: Path
    turns: int
    batches: list[dict[str, list[tuple[Any, ...]]]]
    statements: list[tuple[str, Any]] = Factory(list)

    def raw_floor(self) -> float:
        """Seconds per turn of the raw floor. Raises RuntimeError if its rows differ from the product's."""
        path = self._copy()
        connection = _connect(path)
        begun = time.perf_counter()
        for batch in self.batches:
            connection.execute("BEGIN IMMEDIATE")
            for table, rows in batch.items():
                connection.executemany(INSERTS[table], rows)
            connection.execute("COMMIT")
        seconds = time.perf_counter() - begun
        connection.close()
        self._compare(path)
        return seconds / self.turns

    def same_statements(self) -> float:
        """Seconds per turn of the same statements. Raises RuntimeError if its rows differ from the product's."""
        path = self._copy()
        connection = _connect(path)
        connection.execute("UPDATE meta SET epoch = epoch + 1")  # the trigger compares it; an opening raises it
        begun = time.perf_counter()
        for sql, values in self.statements:
            connection.execute(sql, values).fetchall()
        seconds = time.perf_counter() - begun
        connection.close()
        self._compare(path)
        return seconds / self.turns

    def _copy(self) -> Path:
        path = self.base.with_name("floor.db")
        shutil.copyfile(self.base, path)
        return path

    def _compare(self, path: Path) -> None:
        ours, theirs = _contents(self.written), _contents(path)
        different = [table for table in TABLES if ours[table] != theirs[table]]
        if different:
            raise RuntimeError(f"the floor wrote other rows than the product: {', '.join(different)}")


async def record(folder: Path, variant: Variant, lanes: int, each: int) -> Recording:
    """Run the product and keep what it wrote. Its logs exist before the run, as those of a busy gateway do."""
    base, written = folder / "base.db", folder / "written.db"
    async with product(base, variant, SqliteStore) as load:
        await load.turns(lanes, 1)
    shutil.copyfile(base, written)
    made: list[RecordedStore] = []

    def open_store(path: Path) -> SqliteStore:
        made.append(RecordedStore(path))
        return made[-1]

    async with product(written, variant, open_store) as load:
        await load.turns(lanes, each)
    store = made[-1]
    turns = lanes * each
    statements = [(sql, values) for sql, values in store.statements if not sql.startswith("PRAGMA")]
    return Recording(base, written, turns, _batches(base, written, store.commits, turns), statements)


def _batches(base: Path, written: Path, commits: list[Commit], turns: int) -> list[dict[str, list[tuple[Any, ...]]]]:
    """The rows of the run, cut into equal groups of 64 turns."""
    connection = sqlite3.connect(base)
    (last,) = connection.execute("SELECT max(at) FROM events").fetchone()
    connection.close()
    connection = sqlite3.connect(written)
    numbers: dict[str, int] = dict(connection.execute("SELECT id, n FROM logs"))
    keys = {row[0]: row for row in connection.execute("SELECT * FROM keys")}
    rows: dict[str, list[Any]] = {
        "events": connection.execute("SELECT * FROM events WHERE at > ? ORDER BY at", [last]).fetchall(),
        "commits": connection.execute("SELECT * FROM commits WHERE at > ? ORDER BY at", [last]).fetchall(),
        "keys": [keys[key] for commit in commits for key in commit.unique],
        "lanes": [_hot(numbers[p.log], p.hot) for c in commits for p in c.parts if p.hot is not None],
    }
    connection.close()
    groups = -(-turns // GROUP)
    batches = []
    for i in range(groups):
        cut = {table: found[i * len(found) // groups : (i + 1) * len(found) // groups] for table, found in rows.items()}
        # Of a lane's rows in one transaction only the last can ever be seen: the floor writes no other.
        cut["lanes"] = list({row[0]: row for row in cut["lanes"]}.values())
        batches.append(cut)
    return batches


def _hot(log: int, hot: Hot) -> tuple[Any, ...]:
    return (log, *(getattr(hot, name) for name in HOT))


def _connect(path: Path) -> sqlite3.Connection:
    """A connection set as the store's is."""
    connection = sqlite3.connect(path, isolation_level=None)
    for pragma in ("journal_mode = WAL", "synchronous = FULL", "temp_store = MEMORY", "cache_size = -16000"):
        connection.execute(f"PRAGMA {pragma}")
    (level,) = connection.execute("PRAGMA synchronous").fetchone()
    assert level == 2, "synchronous=FULL didn't take"
    return connection


def _contents(path: Path) -> dict[str, list[tuple[Any, ...]]]:
    connection = sqlite3.connect(path)
    found = {table: sorted(connection.execute(f"SELECT * FROM {table}"), key=_order) for table in TABLES}
    connection.close()
    return found


def _order(row: tuple[Any, ...]) -> tuple[str, ...]:
    return tuple(map(str, row))
