"""``python -m tests.sim``: run seeds, or look for every planted bug. See the package."""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any

import attrs

from .campaign import Totals, campaign, hunt_all
from .shrink import shrink, story


def main(arguments: list[str] | None = None) -> int:
    """The command: 1 if a seed fails, or a planted bug is missed."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="how many runs")
    parser.add_argument("--from", type=int, default=0, dest="first", help="the first seed")
    parser.add_argument("--shrink", action="store_true", help="tell the story of the first failing seed, made small")
    parser.add_argument("--mutants", action="store_true", help="look for the planted bugs instead")
    parser.add_argument("--workers", type=int, help="processes (as many as there are cores)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(arguments)
    began = time.monotonic()
    if options.mutants:
        hunts = hunt_all(options.workers)
        missed = [found.name for found in hunts if found.seed is None]
        result: dict[str, Any] = {
            "planted": len(hunts),
            "found": {found.name: attrs.asdict(found) for found in hunts if found.seed is not None},
            "missed": missed,
        }
        bad = bool(missed)
    else:
        totals = campaign(options.first, options.seeds, options.workers)
        result = totals.told()
        bad = bool(totals.failing)
        for _, text in sorted(totals.failing.items())[:20]:
            print(text, file=sys.stderr)
        if bad and options.shrink:
            _tell(totals)
    result["seconds"] = round(time.monotonic() - began, 1)
    if options.json:
        print(json.dumps(result, indent=2))
    else:
        for name, value in result.items():
            print(f"{name}: {value}")
    return 1 if bad else 0


def _tell(totals: Totals) -> None:
    """On standard error: the plan and the story of the first failing seed."""
    seed = min(totals.failing)
    plan, _ = shrink(seed)
    print(f"seed {seed}, made small: {plan}", file=sys.stderr)
    print("\n".join(story(seed, plan)), file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
