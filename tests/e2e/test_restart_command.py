"""/restart under ``seriatim serve``: what an operator types, what its users see, and what becomes of the process."""

from __future__ import annotations

from pathlib import Path

import pytest

from seriatim.cli import EXIT_RESTART

from .command import wait_at_rest
from .served import Served

OPERATOR = 'operators = ["local:{user}"]\n[stop]\ndrain_s = 0.2\n'


def test_a_restart_runs_the_program_anew_in_its_place(tmp_path: Path) -> None:
    """The command is answered, the turn that ran on is interrupted and goes on in the program's next life, which has
    the same process number and takes no notice of the command that it finds in its log.
    """
    with Served(tmp_path, OPERATOR.format(user="root")) as served:
        served.say("long one")
        served.until("BEGUN")
        served.say("/restart")
        served.until("Restarting")
        served.until_told("starting anew")
        served.until("attempt 2: long one")
        served.say("and now?")
        served.until("attempt 1: and now?")
        wait_at_rest(served.home)
        assert served.process.poll() is None
        assert served.end(15) == 0
        assert served.told.count("starting anew") == 1


def test_a_restart_may_be_left_to_a_supervisor(tmp_path: Path) -> None:
    """With ``stop.on_restart = "exit"`` the process ends with 75, and the next start finds nothing to do."""
    settings = OPERATOR.format(user="root") + 'on_restart = "exit"\n'
    with Served(tmp_path, settings) as served:
        served.say("hello")
        served.until("attempt 1: hello")
        served.say("/restart")
        assert served.end() == EXIT_RESTART
        assert "Restarting" in served.shown


@pytest.mark.parametrize("settings", ["", OPERATOR.format(user="somebody else")])
def test_a_restart_is_for_operators(tmp_path: Path, settings: str) -> None:
    """Whoever else types it is told so, and nothing happens."""
    with Served(tmp_path, settings) as served:
        served.say("/restart")
        served.until("Only operators")
        served.say("hello")
        served.until("attempt 1: hello")
        assert served.end(15) == 0
