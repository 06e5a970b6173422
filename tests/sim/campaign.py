"""Many seeds, and what they come to: on all cores, each seed in one process."""

from __future__ import annotations

import gc
import multiprocessing
import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from attrs import Factory, define, frozen

from seriatim.testing.simulator import Report, Simulator, Violation
from tests.planted import planted

from .mutants import BUGS, Bug

CHUNK = 25
"""Seeds that a process runs before it hands in their sums."""
PER_SEED = ("steps", "crashes", "unknowns", "timers_while_runnable")


@define
class Totals:
    """What came of some seeds. ``least``, ``fewest``: the least of each count, of each invariant's evaluations;
    ``checksum``: of all runs, in any order.
    """

    seeds: int = 0
    with_a_crash: int = 0
    failing: dict[int, str] = Factory(dict)
    least: dict[str, int] = Factory(dict)
    total: Counter[str] = Factory(Counter)
    evaluations: Counter[str] = Factory(Counter)
    fewest: dict[str, int] = Factory(dict)
    checksum: int = 0
    cpu_s: float = 0.0

    def take(self, report: Report) -> None:
        """Add one run."""
        self.seeds += 1
        self.with_a_crash += report.crashes > 0
        for name in PER_SEED:
            count: int = getattr(report, name)
            self.least[name] = min(count, self.least.get(name, count))
            self.total[name] += count
        self.evaluations.update(report.checked)
        self._lower(report.checked, 1)
        self.checksum ^= report.checksum

    def add(self, other: Totals) -> None:
        """Add those of other seeds."""
        self.seeds += other.seeds
        self._lower(other.fewest, other.seeds)
        self.with_a_crash += other.with_a_crash
        self.failing |= other.failing
        for name, count in other.least.items():
            self.least[name] = min(count, self.least.get(name, count))
        self.total.update(other.total)
        self.evaluations.update(other.evaluations)
        self.checksum ^= other.checksum
        self.cpu_s += other.cpu_s

    def _lower(self, judged: Mapping[str, int], seeds: int) -> None:
        """Take the least of each invariant's evaluations in a seed; one that some seed never judged has none."""
        first = self.seeds == seeds
        for name in self.fewest.keys() | judged.keys():
            count = judged.get(name, 0)
            self.fewest[name] = count if first else min(count, self.fewest.get(name, 0))

    def told(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "seeds": self.seeds,
            "violations": len(self.failing),
            "failing_seeds": sorted(self.failing),
            "checksum": f"{self.checksum:08x}",
            **{name: {"min": self.least.get(name, 0), "total": self.total[name]} for name in PER_SEED},
            "seeds_with_a_crash": self.with_a_crash,
            "evaluations": {
                name: {"min": self.fewest[name], "total": total} for name, total in sorted(self.evaluations.items())
            },
            "cpu_ms_per_seed": round(self.cpu_s * 1000 / max(1, self.seeds), 1),
        }


def run_seeds(seeds: Sequence[int]) -> Totals:
    """Run them one after the other."""
    totals = Totals()
    began = time.process_time()
    for seed in seeds:
        world = Simulator(seed)
        try:
            world.run()
        except Violation as violation:
            totals.failing[seed] = str(violation)
        except Exception as error:  # noqa: BLE001 - whatever the product raises at its host is a finding
            totals.failing[seed] = f"seed {seed}, step {world.steps}: {type(error).__name__}: {error}"
        totals.take(world.report())
    totals.cpu_s = time.process_time() - began
    return totals


def campaign(first: int, count: int, workers: int | None = None) -> Totals:
    """Run ``count`` seeds from ``first`` on."""
    chunks = [range(at, min(at + CHUNK, first + count)) for at in range(first, first + count, CHUNK)]
    totals = Totals()
    with _pool(workers) as pool:
        for part in pool.imap_unordered(run_seeds, chunks):
            totals.add(part)
    return totals


@frozen
class Hunt:
    """A planted bug: the seed that found it (None: none did), which try that was, and what was seen."""

    name: str
    seed: int | None
    tries: int
    seen: str


def hunt(name: str, seeds_max: int = 2_000) -> Hunt:
    """Look for a planted bug, likely seeds first."""
    bug: Bug = next(bug for bug in BUGS if bug.name == name)
    for tries, seed in enumerate(bug.seeds(seeds_max), 1):
        with planted(bug):
            failing = run_seeds((seed,)).failing
        # A seed that fails without the bug too gives nothing away.
        if failing and not run_seeds((seed,)).failing:
            return Hunt(name, seed, tries, failing[seed])
    return Hunt(name, None, seeds_max, "")


def hunt_all(workers: int | None = None) -> list[Hunt]:
    """Look for every planted bug."""
    with _pool(workers) as pool:
        return list(pool.imap(hunt, [bug.name for bug in BUGS]))


def _pool(workers: int | None) -> Any:
    return multiprocessing.get_context("spawn").Pool(workers or os.cpu_count(), _calm_collector)


def _calm_collector() -> None:
    """A world leaves its cycles behind at once; looking for them in the middle of one costs a fifth."""
    gc.set_threshold(50_000, 20, 50)
