"""The log's speed as ratios to a floor, in one run.

The floor is a plain sqlite3 loop that writes the same rows into the same tables: BEGIN IMMEDIATE, one
executemany per table, COMMIT, synchronous=FULL. Its rows are ready made (nothing is encoded, checked or
summed in the timed part), so it is a floor and not a rival. Afterwards both files are compared row by row.

    python benchmarks/log.py [--json] [--turns N] [--rounds N]
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
from pathlib import Path
from typing import Any

from benchmarks.counts import CountedStore
from benchmarks.load import busy_thread
from seriatim.commits import Binding, Commit, Durable, Hot, Part
from seriatim.events import Event, LogId
from seriatim.storage.sqlite import SqliteStore

COUNTED_MAX = 64
GROUPS = (1, 8, 64, 512)
TABLES = ("events", "commits", "keys", "lanes")
LANE_TYPES = ("inbox/accepted", "inbox/claimed", "inbox/answered", "delivery/owed", "delivery/attempt")
SESSION_TYPES = (
    "turn/start", "user/message", "step/start", "assistant/message", "usage/counted", "step/end", "turn/end",
)  # fmt: skip
TEXT = "Could you look at the log of last night's run and tell me why the second job was late? "


def turn(lane: int, number: int) -> Commit:
    """One plain turn as one commit: 12 events, about 1.3 KB of JSON, a lane part and a session part."""
    lane_log, session_log = LogId(f"lane:telegram:bot:dm:{lane}"), LogId(f"session:20260101_000000_{lane:08x}")
    inbound, now = f"telegram:bot:{lane}:{number}", 1_767_225_600_000 + number
    data: dict[str, dict[str, Any]] = {
        "inbox/accepted": {"id": inbound, "kind": "human", "placement": "slot", "text": TEXT * 2, "user": f"u{lane}"},
        "inbox/claimed": {"ids": [inbound], "attempt": 1, "turn": number},
        "inbox/answered": {"id": inbound, "turn": number},
        "delivery/owed": {"id": f"d{number}", "turn": number, "parts": 1, "target": {"chat": str(lane)}},
        "delivery/attempt": {"id": f"d{number}", "part": 0, "n": 1},
        "turn/start": {"turn": number, "claims": [inbound]},
        "user/message": {"turn": number, "content": [{"type": "text", "text": TEXT * 2}]},
        "step/start": {"turn": number, "step": 1},
        "assistant/message": {"turn": number, "content": [{"type": "text", "text": TEXT}], "finish": "stop"},
        "usage/counted": {"input": 812, "output": 64, "cache_read": 512, "cost": 0.0031},
        "step/end": {"turn": number, "step": 1},
        "turn/end": {"turn": number, "reason": "completed"},
    }

    def events(types: tuple[str, ...]) -> tuple[Event, ...]:
        start = number * len(types)
        return tuple(Event(kind, start + i, now, data[kind]) for i, kind in enumerate(types))

    hot = Hot(0, 0, 1, "idle", now, number + 1, number + 1, 0, 0)
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


class Bench:
    """Both ways of writing the same groups into a folder of their own."""

    def __init__(self, folder: str, group: int, turns: int) -> None:
        self.group = group
        self.groups = [[turn(lane, n) for lane in range(group)] for n in range(max(3, turns // group))]
        self.ours, self.floor = Path(folder) / f"ours{group}.db", Path(folder) / f"floor{group}.db"
        self.born = Path(folder) / f"born{group}.db"
        store = SqliteStore(self.born)
        assert all(type(o) is Durable for o in store.commit(births(group)))
        store.close()

    def run_ours(self) -> float:
        """Seconds per turn of ``SqliteStore.commit``."""
        shutil.copyfile(self.born, self.ours)
        store = SqliteStore(self.ours)
        store.commit([])
        start = time.perf_counter()
        outcomes = [store.commit(group) for group in self.groups]
        seconds = time.perf_counter() - start
        assert all(type(o) is Durable for answered in outcomes for o in answered)
        store.close()
        return seconds / (len(self.groups) * self.group)

    def rows(self) -> list[dict[str, list[tuple[Any, ...]]]]:
        """The rows of each group, read back from what ``run_ours`` wrote."""
        connection = sqlite3.connect(self.ours)
        events = connection.execute("SELECT * FROM events ORDER BY at").fetchall()
        commits = connection.execute("SELECT * FROM commits WHERE id NOT LIKE 'birth%' ORDER BY at").fetchall()
        numbers = dict(connection.execute("SELECT id, n FROM logs").fetchall())
        connection.close()
        per_group, found = len(events) // len(self.groups), []
        for i, group in enumerate(self.groups):
            hots = [(numbers[p.log], p.hot) for c in group for p in c.parts if p.hot is not None]
            found.append(
                {
                    "events": events[i * per_group : (i + 1) * per_group],
                    "commits": commits[i * 2 * self.group : (i + 1) * 2 * self.group],
                    "keys": [(key,) for c in group for key in c.unique],
                    "lanes": [
                        (
                            n,
                            h.open_turn,
                            h.waiting,
                            h.owed,
                            h.phase,
                            h.since,
                            h.accepted,
                            h.answered,
                            h.merged,
                            h.dropped,
                        )
                        for n, h in hots
                    ],
                }
            )
        return found

    def run_floor(self, groups: list[dict[str, list[tuple[Any, ...]]]]) -> float:
        """Seconds per turn of the plain loop."""
        shutil.copyfile(self.born, self.floor)
        connection = sqlite3.connect(self.floor, isolation_level=None)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA cache_size = -16000")
        hot = ("open_turn", "waiting", "owed", "phase", "since", "accepted", "answered", "merged", "dropped")
        upsert = ", ".join(f"{name} = excluded.{name}" for name in hot)
        sql = {
            "events": "INSERT INTO events VALUES (?,?,?,?,?,?,?,?,?)",
            "commits": "INSERT INTO commits VALUES (?,?,?,?,?,?,?,?)",
            "keys": "INSERT INTO keys VALUES (?)",
            "lanes": f"INSERT INTO lanes VALUES (?,?,?,?,?,?,?,?,?,?) ON CONFLICT(log) DO UPDATE SET {upsert}",
        }
        start = time.perf_counter()
        for group in groups:
            connection.execute("BEGIN IMMEDIATE")
            for table, rows in group.items():
                connection.executemany(sql[table], rows)
            connection.execute("COMMIT")
        seconds = time.perf_counter() - start
        connection.close()
        return seconds / (len(groups) * self.group)

    def compare(self) -> None:
        """Fail unless both files hold the same rows (the epoch apart: our file was opened once more)."""
        contents = []
        for path in (self.ours, self.floor):
            connection = sqlite3.connect(path)
            contents.append(
                [
                    connection.execute(f"SELECT * FROM {t} ORDER BY 1, 2, 3").fetchall()
                    if t != "keys"
                    else connection.execute("SELECT * FROM keys ORDER BY 1").fetchall()
                    for t in TABLES
                ]
            )
            connection.close()
        if contents[0] != contents[1]:
            raise SystemExit("the floor wrote other rows than the store")


def beside_busy_thread(work: Callable[[], float]) -> float:
    """``work`` while another thread of the process computes in pure Python."""
    with busy_thread():
        return work()


def count_steps(bench: Bench) -> float:
    """SQL statements that one warm group costs, by SQLite's own trace."""
    shutil.copyfile(bench.born, bench.ours)
    store = CountedStore(bench.ours)
    store.commit(bench.groups[0])
    store.trace()
    for group in bench.groups[1:3]:
        store.commit(group)
    counted = store.statements / 2
    store.close()
    return counted


def measure(folder: str, turns: int, rounds: int) -> dict[str, Any]:
    """All figures of one run."""
    result: dict[str, Any] = {"sqlite": sqlite3.sqlite_version, "groups": {}}
    for size in GROUPS:
        bench = Bench(folder, size, turns if size > 1 else turns // 3)
        bench.run_ours()
        rows = bench.rows()
        # The prepared commits are far more objects than a live process holds; keep the collector off them.
        gc.collect()
        gc.freeze()
        pairs = [(bench.run_floor(rows), bench.run_ours()) for _ in range(rounds)]
        gc.unfreeze()
        bench.compare()
        floor, ours = (statistics.median(p[i] for p in pairs) for i in (0, 1))
        result["groups"][size] = {
            "floor_us": round(floor * 1e6, 1),
            "ours_us": round(ours * 1e6, 1),
            "ratio": round(statistics.median(f / o for f, o in pairs), 3),
            # SQLite makes the whole text again for each inner statement: at 512 that is gigabytes.
            "statements_per_group": count_steps(bench) if size <= COUNTED_MAX else None,
        }
        if size == 64:
            quiet, busy = bench.run_ours(), beside_busy_thread(bench.run_ours)
            floor_busy = beside_busy_thread(functools.partial(bench.run_floor, rows[: max(3, len(rows) // 8)]))
            result["beside_cpu_thread_vs_alone"] = round(quiet / busy, 3)
            result["beside_cpu_thread_us"] = round(busy * 1e6, 1)
            result["floor_beside_cpu_thread_vs_alone"] = round(floor / floor_busy, 3)
    return result


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description="The log's speed as ratios to a floor.")
    parser.add_argument("--json", action="store_true", help="print JSON only")
    parser.add_argument("--turns", type=int, default=4000, help="turns per timed run")
    parser.add_argument("--rounds", type=int, default=5, help="pairs of runs per group size")
    parser.add_argument("--folder", help="where the files are made (default: the temporary folder)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        result = measure(folder, options.turns, options.rounds)
    if options.json:
        print(json.dumps(result))
        return
    for size, row in result["groups"].items():
        print(
            f"{size:>4} per group: floor {row['floor_us']} us/turn, store {row['ours_us']}, ratio {row['ratio']}, "
            f"{row['statements_per_group']} statements a group"
        )
    print({key: value for key, value in result.items() if key != "groups"})


if __name__ == "__main__":
    main()
