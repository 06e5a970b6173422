"""The ledger of known faults: it takes nobody's word but the runner's."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.ledger import rows

LIST = """
[1]
title = "one"
ids = ["B10", "B11", "B12", "B13", "B14"]
[1.rows]
B13 = "a backup"
[2]
title = "two"
later = "a whole room"
ids = ["B20", "B21"]
"""

TESTS = '''
import pytest

def test_good():
    """It holds (B10)."""

def test_bad():
    """It doesn't (B11)."""
    raise AssertionError

def test_idle():
    """It isn't tried (B12)."""
    pytest.skip("no reason")

@pytest.mark.parametrize("n", [1, 2])
def test_early(n):
    """Before its section (B20)."""

def test_stray():
    """Nobody lists it (B99)."""

def test_silent():
    """Names nothing, and would fail."""
    raise AssertionError
'''


def test_each_verdict(tmp_path: Path) -> None:
    """Passed, failed, skipped, put off, without a test and unknown: each id is told what the runner saw."""
    (tmp_path / "test_some.py").write_text(TESTS)
    script = (
        "from tests.faults.ledger import ID, judge, rows\nfrom tests.proof import prove\nimport sys\n"
        "listed = rows(sys.argv[1])\nproofs, _ = prove(ID, tests=[sys.argv[2]])\n"
        "print(*judge(listed, proofs, {r.id for r in listed}), sep='\\n')"
    )

    # A process of its own: pytest inside pytest would share what both keep in modules.
    told = subprocess.run(
        [sys.executable, "-c", script, LIST, str(tmp_path)], capture_output=True, text=True, check=True
    ).stdout.splitlines()

    assert [line.split(" ", 2)[:2] for line in told] == [
        ["B10", "pass"],
        ["B11", "fail"],
        ["B12", "skip"],
        ["B13", "later:"],
        ["B14", "missing"],
        ["B20", "pass"],
        ["B21", "later:"],
        ["B99", "unknown"],
    ]
    assert "B13 later: a backup" in told
    assert told[5].count("test_early") == 1


def test_no_id_without_a_test() -> None:
    """Each id of the list is named by a test that pytest collects, or says what it waits for; no test names another."""
    script = (
        "from tests.faults.ledger import ID, judge, rows\nfrom tests.proof import prove\n"
        "listed = rows()\nproofs, _ = prove(ID, run=False)\n"
        "print(*(v for v in judge(listed, proofs, {r.id for r in listed}) if v.state in ('missing', 'unknown')))"
    )

    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout

    assert told.strip() == ""


def test_a_list_that_contradicts_itself() -> None:
    """An id that comes twice, or a row put off that isn't listed, is refused."""
    with pytest.raises(ValueError, match="twice"):
        rows('[1]\nids = ["B10", "B10"]\n')
    with pytest.raises(ValueError, match="doesn't list"):
        rows('[1]\nids = ["B10"]\n[1.rows]\nB11 = "x"\n')
