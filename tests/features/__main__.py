"""``python -m tests.features [LIST …]``: run the tests of each feature now, and say what it came to."""

from __future__ import annotations

import argparse
import json
import sys

from attrs import asdict

from tests.features.ledger import features, list_names, run
from tests.proof import Verdict


def main() -> int:
    """Print a line per feature; exit 1 when one isn't shown by a test that ran."""
    parser = argparse.ArgumentParser(prog="python -m tests.features", description=__doc__)
    parser.add_argument("lists", nargs="*", metavar="LIST", help=f"one of {', '.join(list_names())}; all by default")
    parser.add_argument("--json", action="store_true", help="print the verdicts as JSON")
    options = parser.parse_args()
    verdicts: list[Verdict] = []
    outputs: list[str] = []
    for name in options.lists or list_names():
        told, output = run(features(name).features)
        verdicts += told
        outputs.append(output)
    bad = [verdict for verdict in verdicts if not verdict.is_good]
    if options.json:
        print(json.dumps([asdict(verdict) for verdict in verdicts]))
    else:
        print(*verdicts, sep="\n")
        shown = sum(verdict.state == "pass" for verdict in verdicts)
        later = sum(verdict.state == "later" for verdict in verdicts)
        print(f"{shown} of {len(verdicts)} features shown by tests that ran; {later} are still to come")
    if bad:
        print(*outputs, sep="\n", file=sys.stderr)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
