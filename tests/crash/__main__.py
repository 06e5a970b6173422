"""``python -m tests.crash --json``: every scenario, every mutant. See the package for the fault model."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Iterable
from typing import Any

from tests.crash.enumeration import FULL, OTHER_ORDERS, QUICK, QUICK_OTHER_ORDERS, USUAL, Depth, Tally
from tests.crash.environment import ENVIRONMENTS
from tests.crash.kill_points import KILL_POINTS
from tests.crash.mutants import MUTANTS
from tests.crash.points import Fate
from tests.crash.run import run
from tests.crash.scenarios import SCENARIOS
from tests.crash.tasks import catch_task, enumerate_task, surround_task

_DEPTHS = {"quick": (QUICK, QUICK_OTHER_ORDERS), "usual": (USUAL, OTHER_ORDERS), "full": (FULL, FULL)}


def main(arguments: list[str] | None = None) -> int:
    """Enumerate and print; 1 if there was a violation, or a mutant was missed."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--depth", choices=_DEPTHS, default="usual", help="how many plans of each scenario")
    parser.add_argument("--only", default="", help="scenarios whose name holds this text; then no mutants")
    parser.add_argument("--workers", type=int, default=min(4, os.cpu_count() or 1))
    parser.add_argument(
        "--replay",
        nargs="+",
        metavar=("SCENARIO", "FATE"),
        help="show one run: scenario, seed, the fate of each life (at=5 at=3,actor=2)",
    )
    options = parser.parse_args(arguments)
    if options.replay:
        return _replay(*options.replay)
    began = time.monotonic()
    usual, others = _DEPTHS[options.depth]
    chosen = [scenario for scenario in SCENARIOS if options.only in scenario.name]
    tasks: list[tuple[str, int, Depth]] = [
        (scenario.name, seed, others if number else usual)
        for scenario in chosen
        for number, seed in enumerate(scenario.seeds)
    ]
    mutants = [] if options.only else [mutant.name for mutant in MUTANTS]
    tally = Tally()
    surroundings = [] if options.only else list(ENVIRONMENTS)
    with multiprocessing.get_context("spawn").Pool(options.workers) as pool:
        tallies = pool.imap_unordered(enumerate_task, tasks, chunksize=1)
        catches = pool.imap(catch_task, mutants)
        surrounded = pool.imap_unordered(surround_task, surroundings)
        for done in (*tallies, *surrounded):
            tally.add(done)
        caught = {name: text for name, text, _ in catches if text}
    result = _result(tally, len(chosen), caught, mutants)
    result["seconds"] = round(time.monotonic() - began, 1)
    if not options.only:
        result["kill_points"] = kill_points(tally)
        if options.depth != "quick":  # which doesn't strike everywhere
            result["kill_points_without_proof"] = [n for n, row in result["kill_points"].items() if row == NO_PROOF]
    _print(result, tally, as_json=options.json)
    missed = len(caught) < len(mutants) or result.get("kill_points_without_proof")
    return 1 if tally.violations or missed else 0


NO_PROOF = {"runs": 0, "violations": 0}


def kill_points(tally: Tally) -> dict[str, Any]:
    """Of each kill point: where and what is right, and its proof: runs, violations, and whose they are; or "later"."""
    told: dict[str, Any] = {}
    for row in KILL_POINTS:
        runs = tally.proved[row.name]
        by = [row.environment] if row.environment else [
            scenario.name
            for scenario in SCENARIOS
            if any(scenario.name.startswith(proof.scenarios) for proof in row.proofs)
        ]  # fmt: skip
        if not runs:
            told[row.name] = {"later": row.later} if row.later else NO_PROOF
        else:
            told[row.name] = {
                "killed": row.killed,
                "right": row.right,
                "runs": runs,
                "violations": tally.unproved[row.name],
                "by": by,
            }
    return told


def _result(tally: Tally, scenarios: int, caught: dict[str, str], mutants: list[str]) -> dict[str, Any]:
    return {
        "scenarios": scenarios,
        "points": tally.points,
        "runs": tally.runs,
        "violations": len(tally.violations),
        "mutants_planted": len(mutants),
        "mutants_caught": len(caught),
        "caught": caught,
        "missed": [name for name in mutants if name not in caught],
    }


def _print(result: dict[str, Any], tally: Tally, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(result, indent=2))
    else:
        for name, value in result.items():
            if name not in ("caught", "kill_points"):
                print(f"{name}: {value}")
        for name, row in result.get("kill_points", {}).items():
            if "later" in row:
                print(f"{name} later: {row['later']}")
            else:
                print(f"{name} {row.get('killed', '')}: {row['runs']} runs, {row['violations']} violations")
    for violation in tally.violations[:20]:
        plan = " ".join(map(str, violation.plan))
        print(f"{violation.scenario!r} seed {violation.seed} {plan}: {violation.text}", file=sys.stderr)


def _replay(name: str, seed: str = "1", *fates: str) -> int:
    plan = tuple(_fate(fate.split(",")) for fate in fates)
    trace = run(next(s for s in SCENARIOS if s.name == name), plan, int(seed))
    for number, labels in enumerate(trace.labels):
        print(f"life {number}: {plan[number] if number < len(plan) else 'to rest'}")
        for at, label in enumerate(labels):
            print(f"  {at:3} {label}")
    print("\n".join(trace.wrong) or "nothing wrong")
    return 1 if trace.wrong else 0


def _fate(settings: Iterable[str]) -> Fate:
    pairs = dict(setting.split("=", 1) for setting in settings if "=" in setting)
    return Fate(**{name: int(value) if value.isdigit() else value for name, value in pairs.items()})  # type: ignore[arg-type]


if __name__ == "__main__":
    sys.exit(main())
