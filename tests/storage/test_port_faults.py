"""Known faults of stores of this kind: many openers, shared handles, long readers, clocks, growth, foreign hands."""

from __future__ import annotations

import asyncio
import os
import queue
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from seriatim import Gateway
from seriatim.actors.persistence import PersistenceActor, Write
from seriatim.actors.pooled import PooledActor
from seriatim.commits import Commit, Durable, Hot, Outcome, Part, Refused
from seriatim.errors import CorruptionError, LosslessJsonError, OwnershipLostError, StoreUnhealthyError
from seriatim.events import Event, LogId, mend_text
from seriatim.limits import WAL_CHECKPOINT_BYTES, WAL_CHECKPOINT_EVENTS
from seriatim.storage import files as storage_files
from seriatim.storage.contract import Erasure, Store
from seriatim.storage.memory import MemoryDisk, MemoryStore
from seriatim.storage.sqlite import SqliteStore
from seriatim.storage.sqlite_reader import SqliteReader
from seriatim.storage.wal import WalWatch
from seriatim.testing.store_contract import LANE, SESSION, born, commit, events, kinds, one, part
from tests.actors.worlds import WAIT_S, World, world_of

from .worlds import MemoryWorld, SqliteWorld


@pytest.fixture
def files(tmp_path: Path) -> Iterator[SqliteWorld]:
    """A folder of its own."""
    made = SqliteWorld(tmp_path)
    yield made
    made.close()


@pytest.fixture(params=["memory", "sqlite"])
def world(request: pytest.FixtureRequest) -> MemoryWorld | SqliteWorld:
    """Either store's."""
    return MemoryWorld() if request.param == "memory" else request.getfixturevalue("files")


# Many openers

OPENER = """
import sys
from seriatim.storage.sqlite import SqliteStore
for line in sys.stdin:
    SqliteStore(line.strip(), busy_ms=60_000).close()
    print("opened", flush=True)
"""


def test_many_open_a_new_database_at_once(tmp_path: Path) -> None:
    """Eight threads and three processes open a path where nothing is: all succeed, on one schema (B95)."""
    rounds = 6
    openers = [
        subprocess.Popen([sys.executable, "-c", OPENER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    with ThreadPoolExecutor(8) as pool:
        for number in range(rounds):
            path = tmp_path / f"{number}.db"
            for opener in openers:
                assert opener.stdin is not None
                opener.stdin.write(f"{path}\n")
                opener.stdin.flush()
            list(pool.map(lambda path: SqliteStore(path, busy_ms=60_000).close(), [path] * 8))
            for opener in openers:
                assert opener.stdout is not None
                assert opener.stdout.readline() == "opened\n"
            store = SqliteStore(path)
            assert store.epoch == 8 + 3 + 1  # each opening counts, on one and the same file
            assert one(store, born()) == Durable("born")
            store.close()
    for opener in openers:
        opener.communicate()
        assert opener.returncode == 0


def test_a_look_while_another_makes_the_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Marks from before and tables from after make no other program's file: it is looked at as of one moment."""
    path = tmp_path / "new.db"
    empty = sqlite3.connect(path)
    empty.execute("PRAGMA journal_mode = WAL")
    empty.close()
    real, looks = storage_files._marks, 0

    def meanwhile(connection: sqlite3.Connection) -> tuple[int, int]:
        nonlocal looks
        looks += 1
        marks = real(connection)
        if looks == 2:  # the first one looks at the first page alone
            SqliteStore(path).close()
        return marks

    monkeypatch.setattr(storage_files, "_marks", meanwhile)
    assert storage_files.inspect_file(str(path), write=True, busy_ms=1000) == 0
    assert looks > 2
    SqliteStore(path).close()


def test_a_look_in_the_middle_of_anothers_checkpoint(files: SqliteWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """What looks damaged without locks, because an owner is writing it, is looked at again under them (B95)."""
    store = files.open()
    store.commit([born()])
    store.close()
    marks, looks = storage_files._marks, list[sqlite3.Connection]()

    def torn_once(connection: sqlite3.Connection) -> tuple[int, int]:
        looks.append(connection)
        if len(looks) == 1:
            error = sqlite3.DatabaseError("database disk image is malformed")
            error.sqlite_errorcode, error.sqlite_errorname = sqlite3.SQLITE_CORRUPT, "SQLITE_CORRUPT"
            raise error
        return marks(connection)

    monkeypatch.setattr(storage_files, "_marks", torn_once)
    assert len(files.open().reader().read(LANE)) == 1
    assert len(looks) > 1


def test_two_handles_and_eight_threads(files: SqliteWorld) -> None:
    """Of two handles on one file that eight threads feed, one owns it; rows and their places never part (B96, B108)."""
    stores = [files.open(), files.open()]
    locks = [threading.Lock(), threading.Lock()]
    answers: queue.SimpleQueue[tuple[int, Outcome]] = queue.SimpleQueue()

    def feed(thread: int) -> None:
        which, lane = thread % 2, LogId(f"lane:{thread}")
        for head in range(25):
            with locks[which]:
                answers.put((which, one(stores[which], commit(f"{thread}-{head}", part(lane, head), lane=lane))))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(feed, range(8)))
    told = [answers.get() for _ in range(200)]
    assert all(type(outcome) is Durable for which, outcome in told if which == 1)
    assert {kinds([outcome])[0] for which, outcome in told if which == 0} == {"OwnershipLostError"}
    reader = files.open().reader()
    assert [(info.log, info.head) for info in reader.scan("lane:")] == [(f"lane:{n}", 25) for n in (1, 3, 5, 7)]
    for thread in (1, 3, 5, 7):  # reading checks each event against its place and the chain
        assert len(reader.read(LogId(f"lane:{thread}"))) == 25


class Author(PooledActor):
    """One of many that share a writer: appends, lists, takes back; each step when the one before is durable."""

    def __init__(self, number: int, writer: Any, path: Path, done: queue.SimpleQueue[int]) -> None:
        super().__init__()
        self._lane = LogId(f"lane:{number}")
        self._number, self._writer, self._path, self._done = number, writer, path, done
        self._head = 0

    def on_receive(self, message: Any) -> None:
        """Begin, or go on after an outcome."""
        if type(message) is Durable:
            self._head += 1
            reader = SqliteReader(self._path)
            info = reader.info(self._lane)
            reader.close()
            assert info is not None
            assert info.head == self._head
        if self._head == 4:
            self._done.put(self._number)
            return
        kind = "surface/reset" if self._head == 3 else "user/message"
        event = Event(kind, self._head, 0, {"by": self._number})
        made = Part(self._lane, self._head, (event,), header=None if self._head else {})
        name = f"{self._number}-{self._head}"
        self._writer.tell(Write(((Commit(name, self._lane, 1, (made,), (f"key {name}",)), self.own_ref),)))


@pytest.fixture
def pinned() -> Iterator[World]:
    """The writer's own dispatcher."""
    with world_of("pinned") as made:
        yield made


def test_two_hundred_tasks_share_one_store(files: SqliteWorld, pinned: World) -> None:
    """Two hundred that append, list and undo at once share one writer: each step atomic, one set-up (B98)."""
    opened: list[Store] = []

    def open_store() -> Store:
        opened.append(files.open())
        return opened[-1]

    done: queue.SimpleQueue[int] = queue.SimpleQueue()
    writer = pinned.start(PersistenceActor, open_store, lambda _: None, lambda _: None)
    with world_of("pool") as authors:
        for number in range(200):
            authors.start(Author, number, writer, files.path, done).tell("begin")
        assert {done.get(timeout=60) for _ in range(200)} == set(range(200))
    writer.stop().get(timeout=WAIT_S)
    assert len(opened) == 1
    reader = SqliteReader(files.path)
    for number in range(200):
        told = reader.read(LogId(f"lane:{number}"))
        assert [(e.type, e.data) for e in told] == [("user/message", {"by": number})] * 3 + [
            ("surface/reset", {"by": number})
        ]
    reader.close()


# Long readers


class Hand:
    """A clock that a test turns."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        """Seconds."""
        return self.now


def test_a_long_reader_neither_stops_writers_nor_goes_unseen(
    files: SqliteWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under a foreign snapshot commits go on unhindered, the WAL's size is told; without it the WAL is cut (B99)."""
    monkeypatch.setattr("seriatim.storage.wal.WAL_CUT_BYTES", 3 * WAL_CHECKPOINT_BYTES)
    store, hand = files.open(), Hand()
    store._wal = WalWatch(store.path, hand)
    big = {"text": "x" * 300_000}
    store.commit([commit("first", part(LANE, 0))])
    other = sqlite3.connect(files.path, isolation_level=None)
    other.execute("BEGIN")
    other.execute("SELECT count(*) FROM events").fetchone()
    head, told = 1, list[str]()
    while store.health().wal_bytes <= 3 * WAL_CHECKPOINT_BYTES:
        told.append(store.health().checkpoint)
        hand.now += 1
        made = Part(LANE, head, tuple(Event("a/b", head + n, 0, big) for n in range(8)))
        assert one(store, commit(f"c{head}", made)) == Durable(f"c{head}")
        head += 8
    assert told[0] == "none"
    assert told[-1] == "partial"
    assert store.health().checkpoint == "blocked"
    store._wal.result = "not again"
    hand.now += 0.5  # a cut that was blocked isn't tried again at once
    assert one(store, commit("at once", part(LANE, head))) == Durable("at once")
    assert store.health().checkpoint == "not again"
    other.close()
    hand.now += 60
    assert one(store, commit("cut", part(LANE, head + 1))) == Durable("cut")
    assert store.health().checkpoint == "complete"
    assert store.health().wal_bytes == 0


def test_the_log_is_checkpointed_by_size_and_not_by_every_commit(files: SqliteWorld) -> None:
    """Beyond 4 MiB it is taken over, at most every quarter second, and again when it has been filled again (B99)."""
    store, hand = files.open(), Hand()
    watch = store._wal = WalWatch(store.path, hand)
    large = tuple(Event("a/b", 1 + n, 0, {"text": "x" * 1_000_000}) for n in range(6))
    store.commit([commit("a", part(LANE, 0))])
    store.commit([commit("b", Part(LANE, 1, large))])
    assert store.health().wal_bytes > WAL_CHECKPOINT_BYTES
    assert watch.result == "none"
    hand.now += 0.25
    store.commit([commit("c", part(LANE, 7))])
    assert watch.result == "complete"
    watch.result = "not again"
    hand.now += 0.25  # the file is as large as ever, but is written from its beginning again
    store.commit([commit("d", part(LANE, 8))])
    assert watch.result == "not again"
    hand.now += 0.25
    store.commit([commit("e", part(LANE, 9, WAL_CHECKPOINT_EVENTS))])
    assert watch.result == "complete"


def test_our_own_reads_are_time_boxed(files: SqliteWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """A read that would hold its snapshot for too long fails and says so; the next one works (B99)."""
    store = files.open()
    store.commit([commit("c", part(LANE, 0, 5000))])
    reader = store.reader()
    monkeypatch.setattr("seriatim.storage.sqlite_reader.STORE_READ_MS_MAX", -1)
    with pytest.raises(StoreUnhealthyError, match="in pages"):
        reader.read(LANE)
    assert store.health().oldest_reader_ms == 0
    monkeypatch.undo()
    assert len(reader.read(LANE)) == 5000


def test_the_oldest_read_is_told(files: SqliteWorld) -> None:
    """A reader in the middle of a read is counted with its age, and no longer when it has ended (B99)."""
    store = files.open()
    reader = store.reader()
    with reader._reading():
        assert reader._hold.since is not None
        reader._hold.since -= 5
        told = store.health()
        assert (told.readers, told.oldest_reader_ms // 1000) == (1, 5)
    assert store.health().oldest_reader_ms == 0
    reader.close()
    assert store.health().readers == 0


def test_erased_content_held_by_a_reader_is_cut_later(files: SqliteWorld) -> None:
    """While a foreign snapshot holds it, health says that erased content is left; it goes with a later commit."""
    store, hand = files.open(), Hand()
    store._wal = WalWatch(store.path, hand)
    store.commit([commit("c", Part(LANE, 0, (Event("a/b", 0, 0, {"text": "hidden-words"}),), header={}))])
    other = sqlite3.connect(files.path, isolation_level=None)
    other.execute("BEGIN")
    other.execute("SELECT count(*) FROM events").fetchone()
    assert store.erase(Erasure("e", LANE, 2, 0)) == Durable("e")
    assert store.health().scrubbing
    assert files.holds("hidden-words")
    other.close()
    hand.now += 60
    store.commit([commit("d", part(LogId("lane:other"), 0), lane=LogId("lane:other"))])
    assert not store.health().scrubbing
    assert not files.holds("hidden-words")


# Conflicts


def test_order_is_by_number_and_never_by_time(world: MemoryWorld | SqliteWorld) -> None:
    """Commits of one millisecond, of clocks hours apart and of a clock that went back follow each other (B107)."""
    store = world.open()
    times = (10**12, 10**12, 10**12 - 7_200_000, 5, -1, 10**12 + 7_200_000, 10**12)
    for head, time in enumerate(times):
        made = Part(LANE, head, (Event("a/b", head, time, {}),), header=None if head else {})
        assert one(store, commit(f"c{head}", made)) == Durable(f"c{head}")
    assert [event.time for event in store.reader().read(LANE)] == list(times)


def test_work_in_the_background_never_conflicts_with_ones_own_commits(world: MemoryWorld | SqliteWorld) -> None:
    """Pruning keys, sweeping blobs and erasing another log between two commits leave their heads right (B107)."""
    store = world.open()
    store.commit([born(), commit("x", part(LogId("lane:x"), 0), lane=LogId("lane:x"))])
    for head in range(1, 5):
        store.prune_keys(head, 1)
        store.sweep_blobs(head)
        if head == 2:
            assert store.erase(Erasure("e", LogId("lane:x"), 2, 0)) == Durable("e")
        assert kinds(store.commit([commit(f"c{head}", part(LANE, head), part(SESSION, head))])) == ["Durable"]


def test_a_second_runner_stops_the_first(world: MemoryWorld | SqliteWorld) -> None:
    """Of two runners on one session the earlier one gets a fencing error; one history, no mixture (B108)."""
    first = world.open()
    first.commit([born()])
    second = world.open()
    told = [one(first, commit(f"f{n}", part(LANE, 1), part(SESSION, 1))) for n in range(3)]
    assert all(isinstance(o, Refused) and isinstance(o.error, OwnershipLostError) for o in told)
    assert one(second, commit("s", part(LANE, 1), part(SESSION, 1))) == Durable("s")
    assert kinds([one(first, commit("late", part(LANE, 2), part(SESSION, 2)))]) == ["OwnershipLostError"]
    assert second.reader().read(SESSION) == [*events(0, 1), *events(1, 1)]


# Growth


def test_bytes_of_a_turn_do_not_grow_with_the_conversation(files: SqliteWorld) -> None:
    """Of 1000 turns in one session the last hundred take as many bytes as the first, within 10 % (B110)."""
    store = files.open()
    store.commit([born()])
    heads = [1, 1]
    sizes: list[int] = []
    group: list[Commit] = []
    for turn in range(1000):
        texts = {"text": f"turn {turn:04} " + "words " * 40}
        parts = tuple(
            Part(log, heads[i], tuple(Event("user/message", heads[i] + n, turn, texts) for n in range(4)), hot)
            for i, (log, hot) in enumerate(((LANE, Hot(0, 0, 0, "idle", turn, turn, turn, 0, 0)), (SESSION, None)))
        )
        group.append(Commit(f"turn {turn}", LANE, 1, parts, (f"inbound {turn:06}",)))
        heads = [heads[0] + 4, heads[1] + 4]
        if turn % 10 == 9:
            assert kinds(store.commit(group)) == ["Durable"] * 10
            group.clear()
        if turn % 100 == 99:
            store.close()
            sizes.append(files.path.stat().st_size)
            store = files.open()
    steps = [after - before for before, after in pairwise(sizes)]
    assert max(steps[1:]) <= 1.1 * min(steps[1:]), steps


# What a tool or a user may do


ODD_TEXTS = ("\ud83d", "a\ud83db", "\0", "\uffff", b"\xff\xfe".decode("utf-8", "surrogateescape"), "x" * 1_000_000)


def test_odd_text_freezes_nothing(world: MemoryWorld | SqliteWorld) -> None:
    """Text that JSON can't carry is refused, mended it is kept; the next commit works, in both stores (B102)."""
    store = world.open()
    store.commit([commit("c", part(LANE, 0))])
    head = 1
    for number, text in enumerate(ODD_TEXTS):
        mended, was_odd = mend_text(text)
        datas: list[dict[str, Any]] = [{"content": text}, {"name": text, "n": [text]}, {text: "tool output"}]
        for place, data in enumerate(datas):
            made = Part(LANE, head, (Event("a/b", head, 0, data),))
            outcome = one(store, commit(f"odd {number} {place}", made))
            assert isinstance(outcome, Refused) is was_odd
            if isinstance(outcome, Refused):
                assert isinstance(outcome.error, LosslessJsonError)
            else:
                head += 1
        kept = Event("a/b", head, 0, {"content": mended, "mended": was_odd})
        assert one(store, commit(f"mended {number}", Part(LANE, head, (kept,)))) == Durable(f"mended {number}")
        assert store.reader().read(LANE, head) == [kept]
        head += 1


@pytest.mark.parametrize("way", ["plain", "link", "relative"])
def test_the_store_tells_where_it_lies(files: SqliteWorld, tmp_path: Path, way: str) -> None:
    """However it was opened, its real paths are published, so a host can keep its tools away from them (B111)."""
    path = files.path
    if way == "link":
        (tmp_path / "link").symlink_to(path.parent)
        path = tmp_path / "link" / path.name
    elif way == "relative":
        path = Path(os.path.relpath(path))
    store = SqliteStore(path)
    told = [Path(known) for known in store.health().paths]
    name = store.put_blob(b"data", 1)
    real = files.path.resolve()
    assert told == [real, Path(f"{real}-wal"), Path(f"{real}-shm"), real.with_name("blobs")]
    lying = [file for file in real.parent.rglob("*") if file.is_file()]
    assert name in {file.name for file in lying}
    assert all(any(file.is_relative_to(known) for known in told) for file in lying)
    store.close()
    assert MemoryStore(MemoryDisk()).health().paths == ()


def test_a_gateway_tells_how_its_store_is(tmp_path: Path) -> None:
    """Its health has the size of the WAL, the last checkpoint, the readers, and the paths (B99, B111)."""

    async def look() -> Any:
        async with Gateway(lambda turn: "yes", home=tmp_path) as gateway:
            return gateway.health()["storage"]

    told = asyncio.run(look())
    assert told["wal_bytes"] > 0
    assert told["checkpoint"] == "none"
    assert told["oldest_reader_ms"] == 0
    assert str((tmp_path / "state.db").resolve()) in told["paths"]


@pytest.mark.parametrize("way", ["plain", "link", "relative"])
def test_an_edit_by_a_tool_is_detected(files: SqliteWorld, tmp_path: Path, way: str) -> None:
    """A tool that rewrites what was said, by whatever path, breaks the chain along the log: reading says so (B111)."""
    store = files.open()
    store.commit([born(), commit("c", part(LANE, 1, 3)), commit("d", part(LANE, 4))])
    path = files.path
    if way == "link":
        (tmp_path / "file").symlink_to(path)
        path = tmp_path / "file"
    elif way == "relative":
        path = Path(os.path.relpath(path))
    tool = sqlite3.connect(path)
    tool.execute("UPDATE events SET data = replace(data, '2', '7') WHERE seq = 2")
    tool.commit()
    tool.close()
    with pytest.raises(CorruptionError):
        store.reader().read(LANE)
    assert len(store.reader().read(SESSION)) == 1
