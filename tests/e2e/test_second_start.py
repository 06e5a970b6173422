"""A second process on the same home: whose it is and how that one fares, and when somebody else may have it."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import psutil

from .command import seriatim, wait_at_rest
from .served import Served


def test_a_second_start_beside_a_running_and_a_stopped_owner(tmp_path: Path) -> None:
    """Refused with the owner's number and state, nothing written; reading works; the woken owner goes on unharmed."""
    with Served(tmp_path) as owner:
        owner.say("hello")
        owner.until("attempt 1: hello")
        wait_at_rest(owner.home)
        beside_running = seriatim(tmp_path, "serve")
        owner.process.send_signal(signal.SIGSTOP)
        stopped = psutil.Process(owner.process.pid)
        while stopped.status() != psutil.STATUS_STOPPED:
            os.sched_yield()
        before = {path.name: path.read_bytes() for path in owner.home.iterdir() if path.is_file()}
        beside_stopped = seriatim(tmp_path, "serve")
        balance = seriatim(tmp_path, "balance", "--json")
        after = {path.name: path.read_bytes() for path in owner.home.iterdir() if path.is_file()}
        owner.process.send_signal(signal.SIGCONT)
        owner.say("still there?")
        owner.until("attempt 1: still there?")
        code = owner.end(signal.SIGTERM)

    assert (beside_running.returncode, beside_stopped.returncode) == (2, 2)
    name = f"owned by process {owner.process.pid} on "
    assert name in beside_running.stderr
    assert "SIGSTOP" not in beside_running.stderr
    assert name in beside_stopped.stderr
    assert "which is stopped (SIGSTOP)" in beside_stopped.stderr
    assert len(beside_stopped.stderr.splitlines()) == 1
    del before["state.db-shm"], after["state.db-shm"]  # readers mark themselves there
    assert before == after
    assert balance.returncode == 0
    assert json.loads(balance.stdout)["counters"]["answered"] == 1
    assert code == 0
    assert json.loads(seriatim(tmp_path, "balance", "--json").stdout)["counters"]["answered"] == 2


def test_taking_over_means_that_the_owner_has_exited(tmp_path: Path) -> None:
    """Killed while it was stopped, amid a turn: from then on the next start owns the home, and runs the turn again."""
    with Served(tmp_path) as owner:
        owner.say("long one")
        owner.until("BEGUN")
        owner.process.send_signal(signal.SIGSTOP)
        assert seriatim(tmp_path, "serve").returncode == 2
        assert owner.end(signal.SIGKILL) == -signal.SIGKILL
    with Served(tmp_path) as successor:
        successor.until("attempt 2: long one")
        wait_at_rest(successor.home)
        assert successor.end(signal.SIGTERM) == 0
