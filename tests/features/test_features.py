"""The lists of features: whole, and believed only where tests ran."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.features.ledger import features, judge, list_names
from tests.proof import by_own_name

LIST = """
title = "t"
intro = "i"
count = 7
[one]
A1 = { text = "good", tests = ["test_some.py::test_good"] }
A2 = { text = "bad", tests = ["test_some.py::test_good", "test_some.py::test_bad"] }
A3 = { text = "idle", tests = ["test_some.py::test_idle"] }
A4 = { text = "gone", tests = ["test_some.py::test_gone"] }
[two]
B1 = { text = "one medium lacks it", tests = ["test_some.py::test_partly"] }
B2 = { text = "in a class", tests = ["test_some.py::TestAll::test_it"] }
B3 = { text = "no such file", tests = ["test_other.py::test_good"] }
"""

TESTS = """
import pytest

def test_good():
    pass

def test_bad():
    raise AssertionError

def test_idle():
    pytest.skip("no reason")

@pytest.mark.parametrize("n", [1, 2])
def test_partly(n):
    if n == 1:
        pytest.skip("lacks it")

class TestAll:
    def test_it(self):
        pass

def test_unnamed():
    raise AssertionError
"""


def test_each_verdict(tmp_path: Path) -> None:
    """Passed, failed, skipped, renamed away, partly skipped: each feature is told what the runner saw."""
    (tmp_path / "test_some.py").write_text(TESTS)
    script = (
        "from tests.features.ledger import features, judge\nfrom tests.proof import by_own_name, prove\nimport sys\n"
        "listed = features('x', sys.argv[1]).features\n"
        "name = lambda item: {n[n.index('test_some'):] for n in by_own_name(item)}\n"
        "proofs, _ = prove(name, wanted=[t for f in listed for t in f.tests], tests=[sys.argv[2]])\n"
        "print(*judge(listed, proofs), sep='\\n')"
    )

    # A process of its own: pytest inside pytest would share what both keep in modules.
    told = subprocess.run(
        [sys.executable, "-c", script, LIST, str(tmp_path)], capture_output=True, text=True, check=True
    )

    assert told.stdout.splitlines() == [
        "A1 pass",
        "A2 fail test_some.py::test_bad",
        "A3 skip test_some.py::test_idle",
        "A4 missing test_some.py::test_gone",
        "B1 pass",
        "B2 pass",
        "B3 missing test_other.py::test_good",
    ]


@pytest.mark.parametrize("name", list_names())
def test_each_feature_names_tests_that_there_are(name: str) -> None:
    """Every test that a list names is one that pytest collects, and the list has as many rows as it says."""
    wanted = {test for feature in features(name).features for test in feature.tests}
    script = (
        "import sys\nfrom tests.proof import by_own_name, prove\n"
        "proofs, _ = prove(by_own_name, wanted=sys.argv[2:], run=False, tests=sys.argv[1].split())\n"
        "print(*proofs, sep='\\n')"
    )
    files = " ".join(sorted({f"tests/{test.split('::')[0]}" for test in wanted}))

    told = subprocess.run([sys.executable, "-c", script, files], capture_output=True, text=True, check=True)

    assert sorted(wanted - set(told.stdout.split())) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("count = 7", "count = 8"), "7 features, not 8"),
        (("B1", "A1"), "twice"),
        (('["test_some.py::test_good"]', "[]"), "without a test"),
    ],
)
def test_a_list_that_contradicts_itself(change: tuple[str, str], said: str) -> None:
    """A wrong count, an id that comes twice and a feature without a test are refused."""
    with pytest.raises(ValueError, match=said):
        features("x", LIST.replace(*change))


def test_a_feature_that_is_put_off() -> None:
    """One that is still to come says with what, counts as no failure, and has no test yet."""
    text = LIST.replace('["test_some.py::test_good"]', '[], later = "search"')
    [put_off] = [feature for feature in features("x", text).features if feature.later]

    [verdict] = judge([put_off], {})
    assert (verdict.state, verdict.told, verdict.is_good) == ("later", "search", True)
    with pytest.raises(ValueError, match="wait for"):
        features("x", LIST.replace('["test_some.py::test_good"]', '["test_some.py::test_good"], later = "search"'))


def test_names_are_as_people_write_them() -> None:
    """A test is named by its file below tests/, its class and its name; parameters don't count."""

    class Item:
        nodeid = "tests/persistence/test_contract.py::TestLogs::test_x[sqlite-1]"

    assert by_own_name(Item()) == {"persistence/test_contract.py::TestLogs::test_x"}  # type: ignore[arg-type]
