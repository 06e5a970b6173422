"""The SQLite file: its tables, the one statement that writes a group, and how a file becomes ours.

``commits`` places each part of a commit in its log: events ``first .. first + count - 1`` are the rows
``at .. at + count - 1`` of ``events``. So ``events`` is appended to and needs no second index, and a log's
head and checksum are its last row in ``commits``, stored nowhere else.

``group_commit`` is a view that nobody reads. One INSERT into it writes a whole group through its trigger in a single
SQL step: each step releases the GIL, and a busy thread of the host then costs up to 5 ms per step. A row is one commit
of at most two parts and few events, which nearly all are; what has more takes a row per part and event rows behind it.
Rows and columns are padded with 0 to a few sizes, so that the statements stay prepared. Not with NULL: sqlite3 asks the
adapters about each None that it binds, which costs more than all else that it does for a column.
"""

from __future__ import annotations

import logging
import sqlite3
import time
from pathlib import Path
from typing import Final

from .views import INDEXES

_log = logging.getLogger("seriatim.storage")

PROGRESS_S: Final = 5.0
"""How often a migration that takes long says so."""

_PROGRESS_STEPS: Final = 100_000
"""Steps of SQLite's machine between two looks at the clock: some milliseconds."""

APPLICATION_ID: Final = 0x53455249
"""Marks the file as ours ("SERI"); ``file state.db`` shows it."""

FORMAT: Final = 2
"""``user_version`` of the newest schema; one step in ``STEPS`` for each."""

FORMAT_MIN: Final = 1
"""The oldest format that ``STEPS`` leads on from."""

EVENTS_PER_ROW: Final = 8
"""Events that one row of ``group_commit`` carries: a plain turn's commits have six and five, and all eight when it
starts and ends in one. Each row more costs a run of the trigger, each event that a row could carry a look of it."""

HOT: Final = (
    "open_turn", "waiting", "owed", "phase", "since", "accepted", "answered", "merged", "dropped",
)  # fmt: skip

_EVENT_COLUMNS: Final = [f"{letter}{i}" for letter in "yd" for i in range(EVENTS_PER_ROW)]

COLUMNS: Final = (
    "log", "first", "count", "crc", "log2", "first2", "count2", "crc2",
    "epoch", "id", "part", "key", "extra", *HOT, "time", "at", *_EVENT_COLUMNS,
)  # fmt: skip
"""Of ``group_commit``: a commit, its first part and, with a 2, the part behind it. The first ``count`` events are the
first part's, and ``time`` is that of all. ``extra`` is JSON for what few parts have: a new log, more keys, bindings,
other times, rare fields."""

_FIRST: Final = (
    """CREATE TABLE meta(
        one INTEGER PRIMARY KEY CHECK (one = 1), store_id TEXT NOT NULL, epoch INTEGER NOT NULL,
        owner TEXT NOT NULL) STRICT""",
    "CREATE TABLE logs(n INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, header TEXT NOT NULL, lane TEXT) STRICT",
    """CREATE TABLE events(
        at INTEGER PRIMARY KEY, log INTEGER NOT NULL, seq INTEGER NOT NULL, type TEXT NOT NULL,
        time INTEGER NOT NULL, data TEXT NOT NULL,
        source_event_seqs TEXT, surface_op TEXT, ignorable INTEGER) STRICT""",
    """CREATE TABLE commits(
        log INTEGER NOT NULL, first INTEGER NOT NULL, count INTEGER NOT NULL, at INTEGER NOT NULL,
        crc INTEGER NOT NULL, epoch INTEGER NOT NULL, id TEXT NOT NULL, part INTEGER NOT NULL) STRICT""",
    # Rows at the table's end, order in a narrow index: a group touches half the pages that it would if the rows
    # themselves lay by log, and each touched page goes through the WAL.
    "CREATE UNIQUE INDEX commit_places ON commits(log, first, count)",
    "CREATE UNIQUE INDEX commit_ids ON commits(id) WHERE part = 0",
    "CREATE TABLE keys(key TEXT PRIMARY KEY) STRICT, WITHOUT ROWID",
    """CREATE TABLE lanes(
        log INTEGER PRIMARY KEY, open_turn INTEGER NOT NULL, waiting INTEGER NOT NULL, owed INTEGER NOT NULL,
        phase TEXT NOT NULL, since INTEGER NOT NULL, accepted INTEGER NOT NULL, answered INTEGER NOT NULL,
        merged INTEGER NOT NULL, dropped INTEGER NOT NULL) STRICT""",
    "CREATE INDEX lanes_open ON lanes(log) WHERE open_turn + waiting + owed > 0",
)

_SECOND: Final[tuple[str, ...]] = (
    # The newest fold of a log: a cache (see contract.Checkpoint). ``chain``: the checksum along the log at ``seq``.
    """CREATE TABLE checkpoints(
        log INTEGER NOT NULL, of TEXT NOT NULL, seq INTEGER NOT NULL, version INTEGER NOT NULL,
        chain INTEGER NOT NULL, crc INTEGER NOT NULL, data TEXT NOT NULL, PRIMARY KEY (log, of)) STRICT""",
    # What stands for removed events: a truth (see contract.Archive).
    """CREATE TABLE archives(
        log INTEGER PRIMARY KEY, base INTEGER NOT NULL, chain INTEGER NOT NULL, version INTEGER NOT NULL,
        accepted INTEGER NOT NULL, answered INTEGER NOT NULL, merged INTEGER NOT NULL, dropped INTEGER NOT NULL,
        crc INTEGER NOT NULL, data TEXT NOT NULL) STRICT""",
    # Which log a key came with (erasing may free it), and where in the events (its age, see ``key_marks``). Keys from
    # before have neither: they belong to no log and are older than any mark.
    "ALTER TABLE keys ADD COLUMN log INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE keys ADD COLUMN at INTEGER NOT NULL DEFAULT 0",
    # Where the events ended at some time: a key with a smaller ``at`` is older than that.
    "CREATE TABLE key_marks(time INTEGER PRIMARY KEY, at INTEGER NOT NULL) STRICT",
    # Which logs refer to a blob.
    "CREATE TABLE blob_refs(hash TEXT, log INTEGER, PRIMARY KEY (hash, log)) STRICT, WITHOUT ROWID",
    *INDEXES,
)
"""What format 2 adds to files that hold data already: each thing with a word on what it is for."""

STEPS: Final = (_FIRST, _SECOND)
"""Statements that lead from format i to i + 1, whatever data is there. Never change a released one; add another.

Tables and indexes only: what writes them (``group_commit``) holds no data and is made anew wherever it isn't what this
version has, so it may change freely.
"""


# A type is greater than any number, as all text is; a NULL, from a program whose rows carry fewer events, is not.
_ARMS: Final = " UNION ALL ".join(
    f"SELECT NEW.at + {i}, iif(NEW.count > {i}, NEW.log, NEW.log2), "
    f"iif(NEW.count > {i}, NEW.first, NEW.first2 - NEW.count) + {i}, NEW.y{i}, NEW.time, NEW.d{i} "
    f"WHERE NEW.y{i} > 0"
    for i in range(EVENTS_PER_ROW)
)

_EVENTS: Final = f"""
  SELECT RAISE(ABORT, 'epoch') WHERE NEW.epoch IS NOT (SELECT epoch FROM meta);
  INSERT INTO events(at, log, seq, type, time, data)
    {_ARMS};"""  # noqa: S608  (the names are ours)

_COMMITS: Final = """
  INSERT INTO commits(log, first, count, at, crc, epoch, id, part)
    SELECT NEW.log, NEW.first, NEW.count, NEW.at, NEW.crc, NEW.epoch, NEW.id, NEW.part WHERE NEW.id IS NOT 0
    UNION ALL
    SELECT NEW.log2, NEW.first2, NEW.count2, NEW.at + NEW.count, NEW.crc2, NEW.epoch, NEW.id, NEW.part + 1
    WHERE NEW.log2 IS NOT 0;"""

_KEYS: Final = """
  INSERT INTO keys SELECT NEW.key, NEW.log, NEW.at WHERE NEW.key IS NOT 0;"""

_LANES: Final = f"""
  INSERT INTO lanes(log, {", ".join(HOT)}) SELECT NEW.log, {", ".join(f"NEW.{name}" for name in HOT)}
    WHERE NEW.phase IS NOT 0
    ON CONFLICT(log) DO UPDATE SET {", ".join(f"{name} = excluded.{name}" for name in HOT)};"""

_EXTRA: Final = """
  INSERT INTO logs(n, id, header)
    SELECT NEW.log, json_extract(NEW.extra, '$.log'), json_extract(NEW.extra, '$.header')
    WHERE json_extract(NEW.extra, '$.log') IS NOT NULL;
  INSERT INTO keys SELECT value, NEW.log, NEW.at FROM json_each(NEW.extra, '$.keys');
  INSERT OR IGNORE INTO blob_refs SELECT value, NEW.log FROM json_each(NEW.extra, '$.blobs');
  UPDATE logs SET lane = json_extract(b.value, '$[1]') FROM json_each(NEW.extra, '$.bindings') b
    WHERE logs.n = json_extract(b.value, '$[0]');
  UPDATE events SET time = json_extract(t.value, '$[1]') FROM json_each(NEW.extra, '$.times') t
    WHERE events.at = json_extract(t.value, '$[0]');
  UPDATE events SET source_event_seqs = json_extract(r.value, '$[1]'),
    surface_op = json_extract(r.value, '$[2]'), ignorable = json_extract(r.value, '$[3]')
    FROM json_each(NEW.extra, '$.rare') r WHERE events.at = json_extract(r.value, '$[0]');"""

_BODY: Final = _EVENTS + _COMMITS + _KEYS + _LANES
_TRIGGERS: Final = (
    ("plain", "NEW.log IS NOT 0 AND NEW.extra IS 0", _BODY),
    ("extra", "NEW.extra IS NOT 0", _BODY + _EXTRA),
)
"""Name, condition and body. Two, because a row runs each statement of its trigger, if only to find nothing to do."""


def _writer() -> tuple[str, ...]:
    """The writing view and its triggers."""
    view = f"CREATE VIEW group_commit AS SELECT {', '.join(f'NULL AS {c}' for c in COLUMNS)} WHERE 0"
    return (
        view,
        *(
            f"CREATE TRIGGER group_commit_{name} INSTEAD OF INSERT ON group_commit WHEN {condition}\nBEGIN{body}\nEND"
            for name, condition, body in _TRIGGERS
        ),
    )


def restore_writer(connection: sqlite3.Connection) -> None:
    """Make the writing view and its triggers what this version writes through, inside the caller's transaction.

    They hold no data, so a file of today's format may have come with those of another version. Raises sqlite3.Error.
    """
    present = connection.execute("SELECT sql FROM sqlite_schema WHERE tbl_name = 'group_commit'").fetchall()
    wanted = _writer()
    if {sql for (sql,) in present} != set(wanted):
        connection.execute("DROP VIEW IF EXISTS group_commit")  # its triggers go with it
        for text in wanted:
            connection.execute(text)


def insert_sql(rows: int) -> str:
    """The statement that writes a group of ``rows`` rows."""
    row = f"({','.join('?' * len(COLUMNS))})"
    return f"INSERT INTO group_commit({','.join(COLUMNS)}) VALUES {','.join([row] * rows)}"  # noqa: S608 - own names only


def migrate(path: str, store_id: str, busy_ms: int) -> None:
    """Make the file at ``path`` one of the newest format, on a connection of its own; all or nothing.

    The caller has found the file ours, or empty, and keeps other openers out. Raises sqlite3.Error. A file that
    holds something is told of in the log: before, every few seconds, and after.
    """
    import sqlite_utils  # 0.3 s and half a dozen packages; only a new or an old file needs it

    connection = sqlite3.connect(path, timeout=busy_ms / 1000, isolation_level=None)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA temp_store = MEMORY")
        database = sqlite_utils.Database(connection)
        # Its own atomic() begins deferred; two starters would then fail at once instead of waiting.
        connection.execute("BEGIN IMMEDIATE")
        version: int = database.execute("PRAGMA user_version").fetchone()[0]
        told = _Progress(path, version) if version else None
        if told is not None:
            connection.set_progress_handler(told.look, _PROGRESS_STEPS)
        for statements in STEPS[version:]:
            for statement in statements:
                database.execute(statement)
        restore_writer(connection)
        if version == 0:
            database.execute("INSERT INTO meta VALUES (1, ?, 0, '')", [store_id])
            database.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        database.execute(f"PRAGMA user_version = {FORMAT}")
        connection.execute("COMMIT")
        # Into the file itself: what it is must be readable from its first 100 bytes.
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        if told is not None:
            told.end()
    finally:
        connection.close()


class _Progress:
    """Says in the log how a migration goes."""

    def __init__(self, path: str, version: int) -> None:
        self._path = path
        self._began = self._said = time.monotonic()
        size = Path(path).stat().st_size / 1e6
        _log.warning("%s: migrating %.0f MB from format %d to %d", path, size, version, FORMAT)

    def look(self) -> int:
        """Called by SQLite's machine every so many steps."""
        now = time.monotonic()
        if now - self._said >= PROGRESS_S:
            self._said = now
            _log.warning("%s: still migrating, for %.0f s now", self._path, now - self._began)
        return 0

    def end(self) -> None:
        """The new format is in the file."""
        _log.warning("%s: migrated in %.1f s", self._path, time.monotonic() - self._began)
