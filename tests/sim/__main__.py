"""Run the simulator over a range of seeds, or over every broken variant of the core."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter

from .oracle import Violation
from .world import World


def main(argv: list[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="how many runs")
    parser.add_argument("--from", type=int, default=0, dest="first", help="the first seed")
    parser.add_argument("--json", action="store_true", help="print the counts as JSON")
    args = parser.parse_args(argv)
    counts: Counter[str] = Counter()
    violations: dict[int, str] = {}
    checksum = 0
    for seed in range(args.first, args.first + args.seeds):
        world = World(seed)
        try:
            world.run()
        except Violation as violation:
            violations[seed] = str(violation)
        counts += world.counts
        counts["runs"] += 1
        checksum ^= world.crc
        if args.seeds == 1:
            sys.stderr.write(f"seed {seed}: {world.plan}\n")
    result = {**dict(sorted(counts.items())), "violations": len(violations), "checksum": f"{checksum:08x}"}
    if args.json:
        sys.stdout.write(json.dumps(result | {"failed": violations}) + "\n")
    else:
        for name, count in result.items():
            sys.stdout.write(f"{name:20} {count}\n")
        for seed, why in violations.items():
            sys.stdout.write(f"seed {seed}: {why[:400]}\n")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
