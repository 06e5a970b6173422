"""What the log costs, in figures that no machine changes, and that the floor does the same work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks import log


@pytest.fixture(scope="module")
def figures(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """One short run; it compares the rows of both sides itself."""
    return log.measure_commits(tmp_path_factory.mktemp("log"), turns=64, rounds=1)


def test_each_size_has_its_ratio(figures: dict[str, Any]) -> None:
    """So many commits waiting, and how they fare against the floor."""
    assert list(figures["commits"]) == ["1", "8", "64", "512"]
    assert all(found["vs_floor"] > 0 for found in figures["commits"].values())


def test_a_group_is_one_statement(figures: dict[str, Any]) -> None:
    """Whatever its size: each step gives up the interpreter's lock."""
    assert [figures["commits"][size]["statements"] for size in ("1", "8", "64")] == [1, 1, 1]


def test_a_turn_stays_small(figures: dict[str, Any]) -> None:
    """Eight events take at most 5 KiB of the file."""
    assert 500 < figures["sqlite_bytes_per_turn"] <= 5120


def test_a_floor_of_other_rows_is_noticed(tmp_path: Path) -> None:
    """A floor that wrote less would make a ratio of nothing."""
    bench = log.Bench(tmp_path, 2, 4)
    bench.run_ours()
    rows = bench.rows()
    rows[-1]["events"].pop()
    bench.run_floor(rows)
    with pytest.raises(SystemExit):
        bench.compare()
