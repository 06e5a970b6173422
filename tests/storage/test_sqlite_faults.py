"""The SQLite store where the world fails: kills, full disks, locks, damage, foreign files, forks."""

from __future__ import annotations

import os
import resource
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from seriatim.commits import Durable, Hot, Refused, Unknown
from seriatim.errors import (
    CorruptionError,
    FormatUnsupportedError,
    HomeError,
    ReadOnlyError,
    SeriatimError,
    StoreUnhealthyError,
)
from seriatim.events import LogId
from seriatim.storage.schema import FORMAT
from seriatim.storage.sqlite import SqliteStore
from seriatim.storage.sqlite_reader import SqliteReader
from seriatim.testing.snapshot import cut_wal, snapshot_files, wal_frames
from seriatim.testing.store_contract import LANE, OTHER, SESSION, born, commit, kinds, one, part

from .worlds import SqliteWorld, fail


@pytest.fixture
def world(tmp_path: Path) -> Iterator[SqliteWorld]:
    """A folder of its own."""
    made = SqliteWorld(tmp_path)
    yield made
    made.close()


def contents(folder: Path) -> dict[str, bytes]:
    """Every byte in the folder. SQLite makes its shared index, and an empty WAL, even for a reader."""
    found = {path.name: path.read_bytes() for path in folder.iterdir() if not path.name.endswith("-shm")}
    return {name: data for name, data in found.items() if data or name == "state.db"}


# Writing


def test_a_group_is_one_statement(world: SqliteWorld) -> None:
    """A warm group costs one SQL statement, be it 1 commit or 200, one event or nine a part."""
    store = world.open()
    logs = [LogId(f"lane:{n}") for n in range(200)]
    store.commit([commit(f"c{n}", part(log, 0), lane=log) for n, log in enumerate(logs)])
    seen: list[str] = []
    assert store._connection is not None
    store._connection.set_trace_callback(seen.append)
    for head, size in ((1, 1), (10, 7), (19, 200)):
        seen.clear()
        used = logs if size == 200 else logs[:size]
        heads = [head if n == 0 else min(head, 10) if 0 < n < 7 else 1 for n in range(size)]
        if size == 7:
            heads = [10] + [1] * 6
        group = [commit(f"{size}-{n}", part(log, heads[n], 9), lane=log) for n, log in enumerate(used)]
        assert kinds(store.commit(group)) == ["Durable"] * size
        # The trace repeats a statement for each one of its trigger.
        assert len(set(seen)) == 1


def test_settings(world: SqliteWorld) -> None:
    """WAL, synchronous FULL, temporary data in memory; files for the owner's eyes only."""
    store = world.open()
    assert store._connection is not None
    ask = {name: store._connection.execute(f"PRAGMA {name}").fetchone()[0] for name in (
        "journal_mode", "synchronous", "temp_store", "application_id", "user_version")}  # fmt: skip
    assert ask == {
        "journal_mode": "wal", "synchronous": 2, "temp_store": 2, "application_id": 0x53455249, "user_version": FORMAT
    }  # fmt: skip
    store.commit([born()])
    assert {oct(p.stat().st_mode & 0o777) for p in world.path.parent.iterdir()} == {"0o600"}


def test_more_rows_than_a_statement_takes(world: SqliteWorld) -> None:
    """A group of more rows than parameters allow is still one transaction."""
    store = world.open()
    store._rows_max = 10
    logs = [LogId(f"lane:{n}") for n in range(35)]
    assert (
        kinds(store.commit([commit(f"c{n}", part(log, 0, 11), lane=log) for n, log in enumerate(logs)]))
        == ["Durable"] * 35
    )
    again = [commit(f"d{n}", part(log, 11), lane=log, unique=("k",)) for n, log in enumerate(logs)]
    assert kinds(store.commit(again)) == ["Durable"] + ["KeysTakenError"] * 34
    assert all(len(store.reader().read(log)) == 11 + (n == 0) for n, log in enumerate(logs))


def test_forgotten_logs_are_looked_up(world: SqliteWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """Heads and bindings beyond the cache's bound come from the tables."""
    monkeypatch.setattr("seriatim.storage.sqlite.STORE_LOGS_CACHED_MAX", 8)
    store = world.open()
    logs = [LogId(f"lane:{n}") for n in range(40)]
    for head in range(3):
        group = [commit(f"c{head}-{n}", part(log, head), lane=log) for n, log in enumerate(logs)]
        assert kinds(store.commit(group)) == ["Durable"] * 40
        assert len(store._logs) <= 8


def test_a_value_that_the_tables_refuse_fails_alone(world: SqliteWorld) -> None:
    """A hot row that isn't numbers refuses its own commit and no other of the group."""
    store = world.open()
    bad: Any = Hot("x", 0, 0, "idle", 0, 0, 0, 0, 0)  # type: ignore[arg-type]
    group = [born(), commit("c", part(OTHER, 0, hot=bad), lane=OTHER), commit("d", part(LANE, 1))]
    assert kinds(store.commit(group)) == ["Durable", "InvalidInputError", "Durable"]


# Failing


@pytest.mark.parametrize("code", [sqlite3.SQLITE_IOERR, sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_FSYNC])
@pytest.mark.parametrize("done", [False, True])
def test_an_io_error_is_unknown_and_settles_on_a_fresh_handle(world: SqliteWorld, code: int, done: bool) -> None:
    """Unknown; offered again, under a new epoch, it is durable exactly once, done or not."""
    store = world.open()
    store.commit([born()])
    fail(store, code, done=done)
    epoch, offered = store.epoch, commit("c", part(LANE, 1), unique=("k",))
    assert one(store, offered) == Unknown("c", "SCRIPTED")
    assert one(store, offered) == Durable("c")
    assert store.epoch == epoch + 1
    assert len(store.reader().read(LANE)) == 2


def test_a_write_that_finds_no_room_is_refused_at_once(world: SqliteWorld) -> None:
    """Surely absent, so nobody waits for room to hear it; with room again the same commit is durable, once."""
    store = world.open()
    store.commit([born()])
    fail(store, sqlite3.SQLITE_FULL)
    offered = commit("c", part(LANE, 1), unique=("k",))
    refused = one(store, offered)
    assert type(refused) is Refused
    assert isinstance(refused.error, StoreUnhealthyError)
    assert one(store, offered) == Durable("c")
    assert len(store.reader().read(LANE)) == 2


def test_no_room_settles_no_earlier_doubt(world: SqliteWorld) -> None:
    """A commit that may have been durable before stays unknown when its repeat finds the disk full."""
    store = world.open()
    store.commit([born()])
    offered = commit("c", part(LANE, 1))
    fail(store, sqlite3.SQLITE_IOERR_FSYNC, done=True)
    assert one(store, offered) == Unknown("c", "SCRIPTED")
    assert one(store, commit("d", part(OTHER, 0), lane=OTHER)) == Durable("d")  # reopens
    fail(store, sqlite3.SQLITE_FULL)
    assert one(store, offered) in (Durable("c"), Unknown("c", "SCRIPTED"))
    assert one(store, offered) == Durable("c")


def test_a_duplicate_of_something_unknown_is_unknown(world: SqliteWorld) -> None:
    """A key taken by an earlier commit of the group is no duplicate while that one is in doubt."""
    store = world.open()
    fail(store, sqlite3.SQLITE_IOERR)
    group = [commit("c", part(LANE, 0), unique=("k",)), commit("d", part(OTHER, 0), lane=OTHER, unique=("k",))]
    assert kinds(store.commit(group)) == ["Unknown", "Unknown"]
    assert kinds(store.commit(group)) == ["Durable", "KeysTakenError"]


def test_a_refusal_that_rests_on_nothing_new_stands_beside_unknown(world: SqliteWorld) -> None:
    """What was refused for what is in the store is surely absent, whatever happened to the write."""
    store = world.open()
    store.commit([commit("c", part(LANE, 0), unique=("k",))])
    fail(store, sqlite3.SQLITE_IOERR)
    group = [commit("d", part(OTHER, 0), lane=OTHER), commit("e", part(LANE, 9), unique=("k",))]
    assert kinds(store.commit(group)) == ["Unknown", "KeysTakenError"]


def test_a_store_that_was_taken_over_while_in_doubt_has_lost(world: SqliteWorld) -> None:
    """Reopening after an I/O error never steals the store back from a newer owner."""
    old = world.open()
    old.commit([born()])
    fail(old, sqlite3.SQLITE_IOERR)
    old.commit([commit("c", part(LANE, 1))])
    new = world.open()
    assert kinds(old.commit([commit("c", part(LANE, 1))])) == ["OwnershipLostError"]
    assert kinds(old.commit([commit("x", part(LANE, 1))])) == ["OwnershipLostError"]
    assert one(new, commit("d", part(LANE, 1))) == Durable("d")


def test_a_store_that_was_taken_over_still_tells_what_became_of_the_doubt(world: SqliteWorld) -> None:
    """A commit in doubt that did arrive is Durable even for the owner that has lost."""
    old = world.open()
    old.commit([born()])
    fail(old, sqlite3.SQLITE_IOERR, done=True)
    old.commit([commit("c", part(LANE, 1))])
    world.open()
    assert kinds(old.commit([commit("c", part(LANE, 1))])) == ["Durable"]


def test_while_it_cannot_reopen_doubt_stays_and_the_rest_is_refused(world: SqliteWorld) -> None:
    """With the file gone bad, the unknown commit stays unknown; a new one is refused."""
    store = world.open()
    store.commit([born()])
    fail(store, sqlite3.SQLITE_IOERR)
    store.commit([commit("c", part(LANE, 1))])
    aside = world.path.with_name("aside")
    world.path.rename(aside)
    world.path.mkdir()
    assert kinds(store.commit([commit("c", part(LANE, 1)), commit("d", part(OTHER, 0), lane=OTHER)])) == [
        "Unknown", "StoreUnhealthyError",
    ]  # fmt: skip
    world.path.rmdir()
    aside.rename(world.path)
    assert one(store, commit("c", part(LANE, 1))) == Durable("c")


def test_a_full_disk(world: SqliteWorld) -> None:
    """The kernel refusing to let the WAL grow is Unknown; with room again the same commit is durable."""
    store = world.open()
    store.commit([born()])
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    offered = commit("c", part(LANE, 1, 500))
    try:
        resource.setrlimit(
            resource.RLIMIT_FSIZE, (world.path.with_name("state.db-wal").stat().st_size + 5000, limits[1])
        )
        assert kinds([one(store, offered)]) == ["Unknown"]
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, before)
    assert one(store, offered) == Durable("c")
    assert len(store.reader().read(LANE)) == 501


def test_a_lock_is_waited_for_and_then_refused(world: SqliteWorld) -> None:
    """Another program's lock costs the time budget, then the commit is surely absent; without it all goes on."""
    store = world.open()
    store.commit([born()])
    store.close()
    hurried = SqliteStore(world.path, busy_ms=50)
    other = sqlite3.connect(world.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    start = time.monotonic()
    outcome = one(hurried, commit("c", part(LANE, 1)))
    assert isinstance(outcome, Refused)
    assert isinstance(outcome.error, StoreUnhealthyError)
    assert time.monotonic() - start >= 0.04
    other.execute("ROLLBACK")
    other.close()
    assert one(hurried, commit("c", part(LANE, 1))) == Durable("c")
    hurried.close()


def test_a_forked_child_may_not_commit(world: SqliteWorld) -> None:
    """In a forked child the store has lost, and closing it there leaves the owner unharmed."""
    store = world.open()
    store.commit([born()])
    child = os.fork()
    if child == 0:
        lost = kinds(store.commit([commit("c", part(LANE, 1))])) == ["OwnershipLostError"]
        store.close()
        os._exit(0 if lost else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert one(store, commit("d", part(LANE, 1))) == Durable("d")


# Kills


def test_a_wal_cut_at_each_frame_shows_whole_groups(world: SqliteWorld, tmp_path: Path) -> None:
    """Wherever a kill cuts the WAL, torn frames included, a prefix of the groups is there, each whole."""
    store = world.open()
    store.commit([born()])
    for n in range(6):
        hot = Hot(0, n + 1, 0, "x", 0, n + 1, 0, 0, 0)
        group = [
            commit(f"c{n}", part(LANE, 1 + 2 * n, 2, hot=hot), unique=(f"k{n}",)),
            commit(f"s{n}", part(LogId(f"lane:{n}"), 0, 12), lane=LogId(f"lane:{n}")),
        ]
        assert kinds(store.commit(group)) == ["Durable"] * 2
    frames = wal_frames(f"{world.path}-wal")
    seen = set()
    for frame in range(frames + 1):
        for torn in (0, 100, 2000):
            copy = snapshot_files(world.path, tmp_path / f"cut{frame}-{torn}", frames=frame + bool(torn))
            if torn and frame < frames:
                cut_wal(f"{copy}-wal", frame, torn_bytes=torn)
            again = SqliteStore(copy)
            reader = again.reader()
            log = reader.read(LANE)
            groups = (len(log) - 1) // 2 if log else -1
            seen.add(groups)
            assert len(log) in (0, 1 + 2 * groups)
            assert reader.has_keys([f"k{n}" for n in range(6)]) == {f"k{n}" for n in range(max(groups, 0))}
            assert reader.counters().accepted == max(groups, 0)
            for n in range(6):
                assert len(reader.read(LogId(f"lane:{n}"))) == (12 if n < groups else 0)
            # The next owner goes on where the prefix ends.
            follow = born() if groups < 0 else commit(f"c{groups}x", part(LANE, len(log)))
            assert one(again, follow) == Durable(follow.id)
            reader.close()
            again.close()
    assert seen == {-1, 0, 1, 2, 3, 4, 5, 6}


CHILD = """
import sys
from seriatim.storage.sqlite import SqliteStore
from seriatim.testing.store_contract import LANE, commit, part
store = SqliteStore(sys.argv[1])
head = len(store.reader().read(LANE))
while True:
    (outcome,) = store.commit([commit(f"c{head}", part(LANE, head))])
    assert type(outcome).__name__ == "Durable", outcome
    head += 1
    print(head, flush=True)
"""


def test_a_killed_process_keeps_what_it_acknowledged(tmp_path: Path) -> None:
    """SIGKILL three times: whatever was told Durable is there, read by a reader before anybody reopens."""
    path = tmp_path / "state.db"
    for _ in range(3):
        with subprocess.Popen([sys.executable, "-c", CHILD, str(path)], stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            told = [int(child.stdout.readline()) for _ in range(30)][-1]
            child.kill()
            told = max([told, *(int(line) for line in child.stdout if line.strip().isdigit())])
        wal = path.with_name("state.db-wal").read_bytes()
        reader = SqliteReader(path)
        assert len(reader.read(LANE)) in (told, told + 1)
        reader.close()
        assert path.with_name("state.db-wal").read_bytes() == wal


# Reading beside an owner


def test_a_reader_beside_a_living_owner(world: SqliteWorld) -> None:
    """A reader of another connection sees each commit and disturbs nothing."""
    store = world.open()
    reader = SqliteReader(world.path)
    for head in range(20):
        store.commit([commit(f"c{head}", part(LANE, head))])
        assert len(reader.read(LANE)) == head + 1
    reader.close()


def test_a_reader_changes_no_byte(world: SqliteWorld, tmp_path: Path) -> None:
    """Opening, reading and closing a killed owner's files leaves database and WAL byte for byte."""
    world.open().commit([born(count=20)])
    copy = Path(snapshot_files(world.path, tmp_path / "copy"))
    before = contents(copy.parent)
    assert len(before["state.db-wal"]) > 0
    reader = SqliteReader(copy)
    assert len(reader.read(LANE)) == 20
    reader.close()
    assert contents(copy.parent) == before


def test_a_reader_of_a_closed_store(world: SqliteWorld) -> None:
    """Without any WAL a reader works, and the owner may come back."""
    store = world.open()
    store.commit([born()])
    store.close()
    reader = SqliteReader(world.path)
    assert len(reader.read(LANE)) == 1
    world.open().commit([commit("c", part(LANE, 1))])
    assert len(reader.read(LANE)) == 2
    reader.close()


# Damage and foreign files


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE events SET data = replace(data, '1', '2') WHERE seq = 1",
        "UPDATE events SET time = time + 1 WHERE seq = 1",
        "UPDATE events SET type = 'x/y' WHERE seq = 1",
        "UPDATE events SET data = '{' WHERE seq = 1",
        "UPDATE events SET ignorable = 1 WHERE seq = 1",
        "UPDATE events SET seq = 7 WHERE seq = 1",
        "DELETE FROM events WHERE seq = 1",
        "DELETE FROM commits WHERE first = 2",
        "UPDATE commits SET crc = crc + 1 WHERE first = 0",
        "UPDATE commits SET id = 'other' WHERE first = 2",
        "UPDATE commits SET count = count + 1 WHERE first = 2",
        "UPDATE logs SET header = '{}'",
        "UPDATE logs SET id = 'lane:a' WHERE 0; UPDATE events SET log = 9 WHERE seq = 3",
    ],
)
def test_changed_rows_are_corruption(world: SqliteWorld, damage: str) -> None:
    """Whatever is changed behind the store's back, reading that log is a CorruptionError that says where."""
    store = world.open()
    store.commit([commit("c", part(LANE, 0, 2)), commit("d", part(LANE, 2, 3)), commit("e", part(LANE, 5, 1))])
    store.commit([commit("f", part(OTHER, 0, 1, header={"other": 1}), lane=OTHER)])
    store.close()
    connection = sqlite3.connect(world.path)
    connection.executescript(damage)
    connection.close()
    reader = SqliteReader(world.path)
    with pytest.raises(CorruptionError) as caught:
        reader.read(LANE)
    assert LANE in caught.value.where
    reader.close()


def _not_a_database(path: Path) -> None:
    path.write_bytes(b"hello " * 1000)


def _other_program(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.executescript("CREATE TABLE t(x); PRAGMA application_id = 77")
    connection.close()


def _unmarked_database(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.executescript("CREATE TABLE sessions(x)")
    connection.close()


def _newer_format(path: Path) -> None:
    SqliteStore(path).close()
    connection = sqlite3.connect(path)
    connection.executescript("PRAGMA user_version = 99; PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()


def _newer_format_in_the_wal(path: Path) -> None:
    SqliteStore(path).close()
    connection = sqlite3.connect(path)
    connection.executescript("PRAGMA wal_autocheckpoint = 0; PRAGMA user_version = 99")
    copy = snapshot_files(path, path.parent / "copy")
    connection.close()
    for suffix in ("", "-wal"):
        Path(copy + suffix).replace(f"{path}{suffix}")


def _cut(path: Path) -> None:
    store = SqliteStore(path)
    store.commit([commit(f"c{n}", part(LANE, n * 50, 50)) for n in range(20)])
    store.close()
    os.truncate(path, path.stat().st_size // 2)


def _cut_in_the_header(path: Path) -> None:
    SqliteStore(path).close()
    os.truncate(path, 60)


def _damaged_page(path: Path) -> None:
    SqliteStore(path).close()
    with path.open("r+b") as file:
        file.seek(100)
        file.write(b"\xff" * 3000)


@pytest.mark.parametrize(
    ("make", "error", "direction"),
    [
        (_not_a_database, FormatUnsupportedError, "foreign"),
        (_other_program, FormatUnsupportedError, "foreign"),
        (_unmarked_database, FormatUnsupportedError, "foreign"),
        (_newer_format, FormatUnsupportedError, "upgrade"),
        (_newer_format_in_the_wal, FormatUnsupportedError, "upgrade"),
        (_cut, CorruptionError, None),
        (_cut_in_the_header, CorruptionError, None),
        (_damaged_page, CorruptionError, None),
    ],
)
@pytest.mark.parametrize("opener", [SqliteStore, SqliteReader])
def test_a_file_that_is_not_ours_is_refused_untouched(
    tmp_path: Path,
    make: Callable[[Path], None],
    error: type[SeriatimError],
    direction: str | None,
    opener: type[SqliteStore | SqliteReader],
) -> None:
    """Foreign, newer and damaged files are refused with their error, by owner and reader, byte for byte untouched."""
    folder = tmp_path / "home"
    folder.mkdir()
    make(folder / "state.db")
    for leftover in folder.glob("copy"):
        leftover.rmdir()
    before = contents(folder)
    with pytest.raises(error) as caught:
        opener(folder / "state.db")
    assert getattr(caught.value, "direction", None) == direction
    assert contents(folder) == before


def test_places_that_cannot_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No folder, a folder in its place, a file that may not be written: typed errors, nothing made."""
    with pytest.raises(HomeError):
        SqliteStore(tmp_path / "none" / "state.db")
    (tmp_path / "folder").mkdir()
    with pytest.raises(HomeError):
        SqliteStore(tmp_path / "folder")
    with pytest.raises(HomeError):
        SqliteReader(tmp_path / "state.db")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["folder"]
    SqliteStore(tmp_path / "state.db").close()
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)
    before = contents(tmp_path / "folder") | {"state.db": (tmp_path / "state.db").read_bytes()}
    with pytest.raises(ReadOnlyError):
        SqliteStore(tmp_path / "state.db")
    assert before["state.db"] == (tmp_path / "state.db").read_bytes()


def test_files_of_a_process_that_died_while_making_them(tmp_path: Path) -> None:
    """An empty file, and one that only knows its journal mode, are taken as new."""
    (tmp_path / "a.db").touch()
    SqliteStore(tmp_path / "a.db").close()
    connection = sqlite3.connect(tmp_path / "b.db")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.close()
    store = SqliteStore(tmp_path / "b.db")
    assert one(store, born()) == Durable("born")
    store.close()


def test_events_are_what_sqlite_tools_see(world: SqliteWorld) -> None:
    """Anybody with a SQLite shell reads the events: one row each, data as JSON."""
    store = world.open()
    store.commit([commit("c", part(LANE, 0, 2), unique=("k",)), commit("d", part(SESSION, 0), lane=SESSION)])
    connection = sqlite3.connect(world.path)
    rows = connection.execute(
        "SELECT l.id, e.seq, e.type, e.time, json_extract(e.data, '$.n') FROM events e JOIN logs l ON l.n = e.log"
        " ORDER BY e.at"
    ).fetchall()
    connection.close()
    assert rows == [(LANE, 0, "inbox/accepted", 1000, 0), (LANE, 1, "inbox/accepted", 1001, 1),
                    (SESSION, 0, "inbox/accepted", 1000, 0)]  # fmt: skip
