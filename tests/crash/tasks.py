"""What a worker process does; in a module of its own, since a worker doesn't import ``__main__``."""

from __future__ import annotations

from collections import Counter

from tests.crash.enumeration import Depth, Tally, Violation, enumerate_scenario
from tests.crash.environment import ENVIRONMENTS
from tests.crash.kill_points import KILL_POINTS
from tests.crash.mutants import MUTANTS, caught_by
from tests.crash.scenarios import SCENARIOS


def enumerate_task(task: tuple[str, int, Depth]) -> Tally:
    """Enumerate the scenario of that name, in the order of that seed."""
    name, seed, depth = task
    return enumerate_scenario(next(scenario for scenario in SCENARIOS if scenario.name == name), seed, depth)


def surround_task(name: str) -> Tally:
    """Have the surroundings of that name fail; the kill points that they belong to."""
    found = ENVIRONMENTS[name]()
    told = [Violation(name, 0, (), text) for text in found.wrong]
    rows = [row.name for row in KILL_POINTS if row.environment == name]
    runs = Counter(dict.fromkeys(rows, found.runs))
    return Tally(0, found.runs, len(told), told, runs, Counter(dict.fromkeys(rows, len(told))))


def catch_task(name: str) -> tuple[str, str, int]:
    """The mutant's name, what gave it away ("" if nothing did), and the runs that it took."""
    return name, *caught_by(next(mutant for mutant in MUTANTS if mutant.name == name))
