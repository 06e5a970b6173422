"""``python -m tests.kill --kills 12 [--seed N] [--json]``: exits 0 when nothing was lost, repeated or out of order."""

from __future__ import annotations

import argparse
import json
import secrets
import sys

from tests.kill.harness import Report, run

SEED_MAX = 1_000_000


def main() -> int:
    """Run it and print what came of it."""
    parser = argparse.ArgumentParser(prog="python -m tests.kill", description=__doc__)
    parser.add_argument("--kills", type=int, default=12, help="how often the gateway is killed (default 12)")
    parser.add_argument("--seed", type=int, default=None, help="chooses points, moments and messages")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--sin", default="", choices=["", "ack-first", "strip-mark", "post-twice"])
    options = parser.parse_args()
    seed = secrets.randbelow(SEED_MAX) if options.seed is None else options.seed
    report = run(options.kills, seed, options.sin)
    shown = _shown(report)
    print(json.dumps(shown) if options.json else "\n".join(f"{key}: {value}" for key, value in shown.items()))
    for finding in report.verdict.findings[:20]:
        print(finding, file=sys.stderr)
    return 0 if report.verdict.good else 1


def _shown(report: Report) -> dict[str, object]:
    return {
        "kills": report.kills,
        **report.verdict.figures(),
        "interruptions": report.interruptions,
        "unbalanced": report.unbalanced,
        "reached": dict(report.reached),
        "missed": dict(report.missed),
        "seconds": report.seconds,
        "seed": report.seed,
    }


if __name__ == "__main__":
    sys.exit(main())
