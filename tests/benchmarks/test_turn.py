"""What a turn costs, in figures that no machine changes: commits, statements, syncs, bytes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from benchmarks.core import core_us_per_plain_turn
from benchmarks.counts import count_all
from benchmarks.floors import record
from benchmarks.load import PLAIN, VARIANTS


@pytest.fixture(scope="module")
def counted() -> dict[str, dict[str, Any]]:
    """The counts of all variants at 1 and at 64 lanes."""
    return count_all(VARIANTS, (1, 64), 64)


@pytest.mark.parametrize(("variant", "commits"), [("", 2), ("idempotent", 2), ("separate_attempt", 3)])
@pytest.mark.parametrize("lanes", ["1", "64"])
def test_gated_commits(counted: dict[str, dict[str, Any]], variant: str, commits: int, lanes: str) -> None:
    """A plain turn has two gated commits, three where each attempt is recorded by itself."""
    assert counted[variant][lanes]["gated_commits"] == commits


@pytest.mark.parametrize(("variant", "commits"), [("", 2), ("idempotent", 2), ("separate_attempt", 3)])
def test_one_statement_a_commit(counted: dict[str, dict[str, Any]], variant: str, commits: int) -> None:
    """Alone, a commit is one SQL step, and nothing is looked up beside it but a checkpoint in fifty turns."""
    alone = counted[variant]["1"]
    assert commits <= alone["statements"] <= commits + alone["lazy_commits"] + 0.05


@pytest.mark.parametrize(("variant", "commits"), [("", 2), ("idempotent", 2), ("separate_attempt", 3)])
def test_one_sync_a_commit(counted: dict[str, dict[str, Any]], variant: str, commits: int) -> None:
    """Alone, a commit is one sync of the WAL, never less; checkpoints add a few in a hundred."""
    alone = counted[variant]["1"]
    if alone["fsyncs"] is None:
        pytest.skip("no C compiler to make the counting library with")
    assert commits <= alone["fsyncs"] <= (commits + alone["lazy_commits"]) * 1.1


def test_lanes_share_commits(counted: dict[str, dict[str, Any]]) -> None:
    """64 lanes share statements and syncs: at least eight commits go together."""
    together = counted[""]["64"]
    assert together["statements"] <= 2 / 8
    assert together["fsyncs"] is None or 0 < together["fsyncs"] <= 2 / 8


def test_bytes(counted: dict[str, dict[str, Any]]) -> None:
    """A turn takes less than 3 KiB of the file, its two texts of a hundred characters twice each included."""
    assert 500 < counted[""]["64"]["bytes"] < 3072


def test_floors_write_the_same_rows(tmp_path: Path) -> None:
    """Both floors leave the very rows that the product left; else they raise."""
    recording = asyncio.run(record(tmp_path, PLAIN, 8, 3))
    assert recording.turns == 24
    assert recording.raw_floor() > 0
    assert recording.same_statements() > 0


def test_core_runs() -> None:
    """The core's benchmark goes through whole turns; it asserts that each was answered."""
    assert core_us_per_plain_turn(20, 1) > 0
