"""The log's speed and size, as ratios to a floor, in one run (``python -m benchmarks.log --json``).

A commit is a plain turn: eight events, a lane part and a session part. Ours goes the shipped way: so many commits wait
in the mailbox of the PersistenceActor, which runs on its pinned dispatcher over the SQLite store; when all of them are
answered, the next ones come. The floor is a plain sqlite3 loop over the same groups: BEGIN IMMEDIATE, one executemany
per table, COMMIT, synchronous=FULL. Its rows are ready made (nothing is encoded, checked or summed in the timed part),
so it is a floor and not a rival. Afterwards both files are compared row by row, under Python's default switch interval.

Keys:

commits.N.vs_floor           commits/s with N waiting over those of the floor; N is 1, 8, 64, 512. Beside it
                             ``ours_us`` and ``floor_us`` per commit, and ``statements`` per group, by SQLite's trace
beside_cpu_thread_vs_alone   commits/s with 64 waiting beside a thread that computes in pure Python, over those without
sqlite_bytes_per_turn        growth of the closed database file per turn

and those of ``benchmarks.growth``.
"""

from __future__ import annotations

import argparse
import functools
import gc
import json
import shutil
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Final

from benchmarks import growth
from benchmarks.counts import CountedStore
from benchmarks.floors import HOT, INSERTS
from benchmarks.load import busy_thread
from benchmarks.progress import say
from seriatim.actors.dispatch import PinnedDispatcher
from seriatim.actors.persistence import PersistenceActor, Write
from seriatim.actors.pooled import PooledActor
from seriatim.actors.refs import Ref
from seriatim.actors.system import ActorSystem
from seriatim.commits import Binding, Commit, Durable, Hot, Part
from seriatim.events import Event, LogId
from seriatim.storage.sqlite import SqliteStore
from seriatim.testing.clock import VirtualClock

GROUPS: Final = (1, 8, 64, 512)
BESIDE: Final = 64
GROUPS_MIN: Final = 6
COUNTED_MAX: Final = 64  # SQLite makes the whole text again for each inner statement: at 512 that is gigabytes
WAIT_S: Final = 120.0
LANE_TYPES: Final = ("inbox/accepted", "inbox/claimed", "inbox/answered", "delivery/owed")
SESSION_TYPES: Final = ("turn/start", "user/message", "assistant/message", "turn/end")
TEXT: Final = "Could you look at the log of last night's run and tell me why the second job was late? "

Rows = dict[str, list[tuple[Any, ...]]]


def turn(lane: int, number: int) -> Commit:
    """One plain turn as one commit: eight events, about 1.2 KB of JSON."""
    lane_log, session_log = LogId(f"lane:telegram:bot:dm:{lane}"), LogId(f"session:20260101_000000_{lane:08x}")
    inbound, now = f"telegram:bot:{lane}:{number}", 1_767_225_600_000 + number
    source = {"platform": "telegram", "chat_id": str(lane), "chat_type": "dm", "user_id": f"u{lane}", "user_name": "Al"}
    data: dict[str, dict[str, Any]] = {
        "inbox/accepted": {"id": inbound, "kind": "human", "place": "slot", "text": TEXT * 2, "source": source},
        "inbox/claimed": {"ids": [inbound], "kind": "human", "attempt": 1, "turn": number, "generation": number},
        "inbox/answered": {"id": inbound, "by": "turn", "end": "completed"},
        "delivery/owed": {"id": f"d{number}", "turn": number, "parts": [TEXT], "to": {"chat_id": str(lane)}},
        "turn/start": {"turn": number, "claims": [inbound]},
        "user/message": {"turn": number, "id": inbound, "text": TEXT * 2, "at": now, "author": "Al"},
        "assistant/message": {"turn": number, "step": 1, "text": TEXT, "usage": {"input": 812, "output": 64}},
        "turn/end": {"turn": number, "reason": {"kind": "completed"}},
    }

    def events(types: tuple[str, ...]) -> tuple[Event, ...]:
        start = number * len(types)
        return tuple(Event(kind, start + i, now, data[kind]) for i, kind in enumerate(types))

    hot = Hot(0, 0, 1, "delivering", now, number + 1, number + 1, 0, 0)
    parts = (
        Part(lane_log, number * len(LANE_TYPES), events(LANE_TYPES), hot),
        Part(session_log, number * len(SESSION_TYPES), events(SESSION_TYPES)),
    )
    return Commit(f"{lane:08x}-1-{number}", lane_log, 1, parts, (inbound,))


def births(lanes: int) -> list[Commit]:
    """The commits that make the logs, outside the timed part."""
    made = []
    for lane in range(lanes):
        first = turn(lane, 0)
        parts = tuple(Part(p.log, 0, (), header={"id": p.log, "version": 1}) for p in first.parts)
        binding = Binding(parts[1].log, None, first.lane)
        made.append(Commit(f"birth-{lane}", first.lane, 1, parts, (), (binding,)))
    return made


class Lanes(PooledActor):
    """Stands for all lanes: gives the writer a group, and the next one when each commit of it is answered."""

    def __init__(self, writer: Ref[Any], groups: list[list[Commit]], ended: Future[float]) -> None:
        super().__init__()
        self._ended = ended
        self._writer = writer
        self._groups = iter([Write(tuple((commit, self.own_ref) for commit in group)) for group in groups])
        self._open = 0
        self._begun: float | None = None

    def on_start(self) -> None:
        """The first group is not timed: the writer reads the logs' heads for it."""
        self._next()

    def on_receive(self, message: Any) -> None:
        """Take an outcome."""
        assert type(message) is Durable, message
        self._open -= 1
        if not self._open:
            if self._begun is None:
                self._begun = time.perf_counter()
            self._next()

    def _next(self) -> None:
        write = next(self._groups, None)
        if write is None:
            assert self._begun is not None
            self._ended.set_result(time.perf_counter() - self._begun)
        else:
            self._open = len(write.entries)
            self._writer.tell(write)


class Bench:
    """Both ways of writing the same groups into a folder of their own."""

    def __init__(self, folder: Path, group: int, commits: int) -> None:
        self.group = group
        self.groups = [[turn(lane, n) for lane in range(group)] for n in range(max(GROUPS_MIN, commits // group))]
        self.timed = (len(self.groups) - 1) * group
        self.ours, self.floor, self.born = (folder / f"{name}{group}.db" for name in ("ours", "floor", "born"))
        store = SqliteStore(self.born)
        assert all(type(o) is Durable for o in store.commit(births(group)))
        store.close()

    def run_ours(self) -> float:
        """Seconds per commit through the PersistenceActor."""
        shutil.copyfile(self.born, self.ours)
        ended: Future[float] = Future()

        def opened(store: object) -> None:
            if isinstance(store, BaseException):
                ended.set_exception(store)

        store_thread, lanes_thread = PinnedDispatcher("bench-store"), PinnedDispatcher("bench-lanes")
        system = ActorSystem(clock=VirtualClock(), on_crash=lambda crash: ended.set_exception(crash.error))
        open_store = functools.partial(SqliteStore, self.ours)
        writer = system.start(
            PersistenceActor, open_store, opened, lambda _: None, dispatcher=store_thread, name="writer"
        )
        system.start(Lanes, writer, self.groups, ended, dispatcher=lanes_thread, name="lanes")
        try:
            return ended.result(WAIT_S) / self.timed
        finally:
            system.stop_all().get(timeout=WAIT_S)
            for dispatcher in (store_thread, lanes_thread):
                dispatcher.close()
                dispatcher.join(WAIT_S)

    def rows(self) -> list[Rows]:
        """The rows of each group, read back from what ``run_ours`` wrote."""
        connection = sqlite3.connect(self.ours)
        events = connection.execute("SELECT * FROM events ORDER BY at").fetchall()
        commits = connection.execute("SELECT * FROM commits WHERE id NOT LIKE 'birth%' ORDER BY at").fetchall()
        numbers: dict[str, int] = dict(connection.execute("SELECT id, n FROM logs").fetchall())
        keys = {row[0]: row for row in connection.execute("SELECT * FROM keys")}
        connection.close()
        found: list[Rows] = []
        for i, group in enumerate(self.groups):
            hots = [(numbers[p.log], p.hot) for c in group for p in c.parts if p.hot is not None]
            found.append(
                {
                    "events": _slice(events, i, len(self.groups)),
                    "commits": _slice(commits, i, len(self.groups)),
                    "keys": [keys[key] for c in group for key in c.unique],
                    "lanes": [(log, *(getattr(hot, name) for name in HOT)) for log, hot in hots],
                }
            )
        return found

    def run_floor(self, groups: list[Rows]) -> float:
        """Seconds per commit of the plain loop; the first group is not timed here either."""
        shutil.copyfile(self.born, self.floor)
        connection = sqlite3.connect(self.floor, isolation_level=None)
        for pragma in ("journal_mode = WAL", "synchronous = FULL", "cache_size = -16000"):
            connection.execute(f"PRAGMA {pragma}")
        begun = 0.0
        for number, group in enumerate(groups):
            if number == 1:
                begun = time.perf_counter()
            connection.execute("BEGIN IMMEDIATE")
            for table, rows in group.items():
                connection.executemany(INSERTS[table], rows)
            connection.execute("COMMIT")
        seconds = time.perf_counter() - begun
        connection.close()
        return seconds / ((len(groups) - 1) * self.group)

    def compare(self) -> None:
        """Fail unless both files hold the same rows."""
        if _contents(self.ours) != _contents(self.floor):
            raise SystemExit("the floor wrote other rows than the store")

    def statements(self) -> float:
        """SQL statements that one warm group costs, by SQLite's own trace, those inside the trigger included."""
        shutil.copyfile(self.born, self.ours)
        store = CountedStore(self.ours)
        store.commit(self.groups[0])
        store.trace()
        for group in self.groups[1:3]:
            store.commit(group)
        counted = store.statements / 2
        store.close()
        return counted


def _slice(rows: list[Any], i: int, of: int) -> list[Any]:
    each = len(rows) // of
    return rows[i * each : (i + 1) * each]


def _contents(path: Path) -> list[list[tuple[Any, ...]]]:
    connection = sqlite3.connect(path)
    found = [sorted(connection.execute(f"SELECT * FROM {table}"), key=str) for table in INSERTS]
    connection.close()
    return found


def measure_commits(folder: Path, turns: int, rounds: int) -> dict[str, Any]:
    """The figures of this module; ours and the floor take turns on the same disk."""
    result: dict[str, Any] = {"commits": {}}
    for size in GROUPS:
        say(f"{size} waiting")
        bench = Bench(folder, size, turns if size >= BESIDE else turns // 4)
        bench.run_ours()
        if size == BESIDE:
            grown = bench.ours.stat().st_size - bench.born.stat().st_size
            result["sqlite_bytes_per_turn"] = round(grown / (len(bench.groups) * size))
        rows = bench.rows()
        # The prepared commits are far more objects than a live process holds; keep the collector off them.
        gc.collect()
        gc.freeze()
        pairs = [(bench.run_floor(rows), bench.run_ours()) for _ in range(rounds)]
        gc.unfreeze()
        bench.compare()
        floor, ours = (statistics.median(pair[i] for pair in pairs) for i in (0, 1))
        result["commits"][str(size)] = {
            "vs_floor": round(statistics.median(f / o for f, o in pairs), 3),
            "ours_us": round(ours * 1e6, 1),
            "floor_us": round(floor * 1e6, 1),
            "statements": bench.statements() if size <= COUNTED_MAX else None,
        }
        if size == BESIDE:
            alone = bench.run_ours()
            with busy_thread():
                beside = bench.run_ours()
            result["beside_cpu_thread_vs_alone"] = round(alone / beside, 3)
    return result


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one line of JSON")
    parser.add_argument("--turns", type=int, default=4096, help="turns per timed run")
    parser.add_argument("--rounds", type=int, default=5, help="pairs of runs per group size")
    parser.add_argument("--folder", help="where the files are made (default: the temporary folder)")
    options = parser.parse_args()
    figures: tuple[Callable[[Path], dict[str, Any]], ...] = (
        functools.partial(measure_commits, turns=options.turns, rounds=options.rounds),
        growth.measure,
    )
    result: dict[str, Any] = {"sqlite": sqlite3.sqlite_version}
    with tempfile.TemporaryDirectory(prefix="seriatim-log-", dir=options.folder) as folder:
        for measure in figures:
            result |= measure(Path(folder))
    print(json.dumps(result, indent=None if options.json else 2))


if __name__ == "__main__":
    main()
