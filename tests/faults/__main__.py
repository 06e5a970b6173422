"""``python -m tests.faults --list``: run the tests of the known faults now, and say what each id's came to."""

from __future__ import annotations

import argparse
import json
import sys

from attrs import asdict

from tests.faults.ledger import ID, judge, rows
from tests.proof import prove


def main() -> int:
    """Print a line per id; exit 1 when one is unproved, or a test names an unknown one."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--list", action="store_true", help="run the tests and print a line per id (the default)")
    parser.add_argument("--section", type=int, action="append", help="only this section of the list (repeatable)")
    parser.add_argument("--json", action="store_true", help="print the verdicts as JSON")
    options = parser.parse_args()
    known = rows()
    listed = [row for row in known if options.section is None or row.section in options.section]
    proofs, output = prove(ID, wanted=[row.id for row in listed])
    verdicts = judge(listed, proofs, {row.id for row in known})
    if options.json:
        print(json.dumps([asdict(verdict) for verdict in verdicts]))
    else:
        print(*verdicts, sep="\n")
    bad = [verdict for verdict in verdicts if not verdict.is_good]
    if bad:
        print(output, file=sys.stderr)
        print(f"{len(bad)} of {len(verdicts)} not proved: {', '.join(v.id for v in bad)}", file=sys.stderr)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
