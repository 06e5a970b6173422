"""What one turn costs, against floors, all from one run (``python -m benchmarks.turn --json``).

A turn: one message without tools or merging, through the shipped gateway, actors and SQLite store; the platform
sends at once, the agent is empty, each lane writes again when its reply was sent (see ``load``). Counts are exact up
to checkpoints. Speeds are ratios of medians over rounds in which product and floors take turns on the same disk, so
that a noisy machine disturbs them alike; only ``core_us_per_plain_turn`` and ``machine`` are absolute.

Keys, for a platform without idempotent send; ``idempotent`` and ``separate_attempt`` hold the same for the others:

gated_commits_per_turn       commits that something waits for (lazy ones are in lazy_commits_per_turn)
statements_per_turn          SQL steps at 1 and 64 lanes, by SQLite's trace; those inside the trigger are in
                             trigger_statements_per_turn
fsyncs_per_turn              fsync and fdatasync of state.db and its WAL, checkpoints included; by a preloaded library
bytes_per_turn               growth of the database file, the WAL checkpointed into it, at 64 lanes
turns_vs_raw_floor_64        turns/s at 64 lanes over those of plain sqlite3 with the same rows, 64 turns a commit
turns_vs_same_statements_64  the same over those of the very same statements in the same transactions
embedded_turns_vs_raw_floor_64  as turns_vs_raw_floor_64, but embedded in a host's loop: the others are of a gateway
                             that owns its process, as ``seriatim serve`` does, and has Python's cycle collector run
                             less often
beside_cpu_thread_64_vs_alone  turns/s beside a thread that computes in pure Python, over those without it
core_us_per_plain_turn       CPU time of gate and rules alone, microseconds
"""

from __future__ import annotations

import argparse
import asyncio
import json
import platform
import shutil
import sqlite3
import statistics
import tempfile
from pathlib import Path
from typing import Any, Final

from attrs import frozen

from benchmarks.core import core_us_per_plain_turn
from benchmarks.counts import count_all
from benchmarks.floors import Recording, record
from benchmarks.load import PLAIN, VARIANTS, Load, Variant, busy_thread, product, serve
from benchmarks.progress import say
from seriatim.storage.sqlite import SqliteStore

LANES: Final = 64


@frozen
class Size:
    """How much is run.

    ``counted``: turns counted. ``each``: turns per lane in a timed round; ``rounds`` of them for the plain
    variant and ``rounds_others`` for the others. ``floors``: how often a round runs each floor, which is short: their
    mean counts. ``beside``, ``beside_rounds``: the same beside a busy thread.
    ``core``: turns in a round of the core.
    """

    counted: int
    each: int
    rounds: int
    rounds_others: int
    floors: int
    beside: int
    beside_rounds: int
    core: int


FULL: Final = Size(counted=256, each=20, rounds=7, rounds_others=3, floors=4, beside=6, beside_rounds=3, core=3000)
QUICK: Final = Size(counted=128, each=4, rounds=1, rounds_others=1, floors=1, beside=2, beside_rounds=1, core=300)


def measure(size: Size, folder: Path) -> dict[str, Any]:
    """All figures of one run."""
    say("counting commits, statements, syncs and bytes")
    counted = count_all(VARIANTS, (1, LANES), size.counted)
    say("timing the core")
    result: dict[str, Any] = {"core_us_per_plain_turn": round(core_us_per_plain_turn(size.core, 7), 1)}
    for variant in VARIANTS:
        figures = _counts(counted[variant.name]) | _speeds(size, folder, variant)
        if variant is PLAIN:
            result = figures | result
        else:
            result[variant.name] = figures
    result["machine"] |= {"python": platform.python_version(), "sqlite": sqlite3.sqlite_version}
    return result


def _counts(by_lanes: dict[str, Any]) -> dict[str, Any]:
    one, many = by_lanes["1"], by_lanes[str(LANES)]
    both = {"1": one, str(LANES): many}

    def at_both(name: str) -> dict[str, float | None]:
        return {lanes: None if found[name] is None else round(found[name], 4) for lanes, found in both.items()}

    return {
        "gated_commits_per_turn": round((one["gated_commits"] + many["gated_commits"]) / 2, 4),
        "lazy_commits_per_turn": at_both("lazy_commits"),
        "statements_per_turn": at_both("statements"),
        "trigger_statements_per_turn": at_both("trigger_statements"),
        "fsyncs_per_turn": at_both("fsyncs"),
        "bytes_per_turn": round(many["bytes"]),
    }


def _speeds(size: Size, folder: Path, variant: Variant) -> dict[str, Any]:
    name = variant.name or "plain"
    say(f"{name}: recording a run for the floors")
    place = folder / name
    place.mkdir()
    recording = asyncio.run(record(place, variant, LANES, size.each))
    ours, embedded, raw, same = [], [], [], []
    rounds = size.rounds if variant is PLAIN else size.rounds_others
    for number in range(rounds):
        say(f"{name}: round {number + 1} of {rounds}")
        ours.append(_ours(recording, variant, size.each))
        embedded.append(_ours(recording, variant, size.each, embedded=True))
        raw.append(statistics.fmean(recording.raw_floor() for _ in range(size.floors)))
        same.append(statistics.fmean(recording.same_statements() for _ in range(size.floors)))
    say(f"{name}: beside a busy thread")
    alone, beside = [], []
    for _ in range(size.beside_rounds):
        alone.append(_ours(recording, variant, size.beside))
        with busy_thread():
            beside.append(_ours(recording, variant, size.beside))
    figures: dict[str, Any] = {
        "turns_vs_raw_floor_64": _ratio(raw, ours),
        "turns_vs_same_statements_64": _ratio(same, ours),
        "embedded_turns_vs_raw_floor_64": _ratio(raw, embedded),
        "beside_cpu_thread_64_vs_alone": _ratio(alone, beside),
    }
    if variant is PLAIN:
        turns_per_s = {"turns_per_s_64": ours, "raw_floor_turns_per_s_64": raw, "beside_turns_per_s_64": beside}
        figures["machine"] = {key: round(1 / statistics.median(took)) for key, took in turns_per_s.items()}
    return figures


def _ours(recording: Recording, variant: Variant, each: int, *, embedded: bool = False) -> float:
    """Seconds per turn of the product, on a copy of the recording's base."""
    path = recording.base.with_name("ours.db")
    shutil.copyfile(recording.base, path)
    took: list[float] = []

    async def script(load: Load) -> None:
        await load.turns(LANES, 1)  # the lanes are read and live from here on
        took.append(await load.turns(LANES, each) / (LANES * each))

    async def embed() -> None:
        async with product(path, variant, SqliteStore) as load:
            await script(load)

    if embedded:
        asyncio.run(embed())
    else:
        serve(path, variant, script)
    return took[0]


def _ratio(of: list[float], to: list[float]) -> float:
    """The median of the rounds' ratios: what disturbs a whole round disturbs both."""
    return round(statistics.median(a / b for a, b in zip(of, to, strict=True)), 3)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one line of JSON")
    parser.add_argument("--quick", action="store_true", help="few turns and one round: counts hold, ratios are rough")
    parser.add_argument("--folder", help="where the databases are made (default: the temporary folder)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="seriatim-turn-", dir=options.folder) as folder:
        result = measure(QUICK if options.quick else FULL, Path(folder))
    print(json.dumps(result, indent=None if options.json else 2))


if __name__ == "__main__":
    main()
