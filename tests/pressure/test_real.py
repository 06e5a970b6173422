"""Real memory in a process of its own, under a budget that it can't keep to without letting go."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from seriatim.pressure import MIB

ROOT = Path(__file__).parents[2]
LANES = 12
ROOM_MIB = 48
TURN_MIB = 7
"""What one turn adds: its results and what its agent keeps."""


def life(home: Path, room_mib: int) -> Any:
    """What a process saw that gives each of so many lanes two turns."""
    home.mkdir()
    ran = subprocess.run(
        [sys.executable, "-m", "tests.pressure.child", str(home), str(LANES), str(room_mib)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


@pytest.mark.slow
def test_memory_falls_and_nobody_notices(tmp_path: Path) -> None:
    """B128: lanes with results of 300 KB, all used within the TTL, hold several budgets' worth. Memory stays near its
    budget, it falls after a pass, the longest unused rest, nothing is lost, and each conversation goes on with all that
    was said; without a budget the same lanes take several times that room.
    """
    told, free = life(tmp_path / "bounded", ROOM_MIB), life(tmp_path / "free", 0)

    memory = told["memory"]
    assert memory["budget"] == told["budget"]
    assert memory["after"] < memory["before"] - TURN_MIB * MIB
    assert memory["released"] > LANES
    assert told["live"] < LANES // 2
    assert told["balance"]
    # The pass comes when the lanes have grown by a step, and a turn may run then; its commits are in memory twice.
    assert told["peak"] < told["budget"] + 3 * TURN_MIB * MIB
    assert free["peak"] - free["began"] > 2.5 * (told["peak"] - told["began"])
    assert told["answers"] == free["answers"]
    assert told["errors"] == free["errors"] == []
