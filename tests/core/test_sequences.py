"""Every sequence of five ends of a life, against an oracle: when a conversation is given up, and that it goes on."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Final, Literal

import pytest

from seriatim.batch import Rules
from seriatim.effects import RunTurn
from seriatim.mail import DrainTimedOut

from .bench import Bench

Step = Literal["crash", "drain timeout", "clean restart", "completed turn"]
STEPS: Final[tuple[Step, ...]] = ("crash", "drain timeout", "clean restart", "completed turn")
RULES: Final = {"resumed at once": Rules(), "resumed with the next message": Rules(freshness_ms=0)}


def suspended_after(steps: Sequence[Step], *, resumed: bool) -> list[bool]:
    """The oracle: of each step, whether the conversation is given up right after it. ``resumed``: an interrupted turn
    runs again by itself, so that a clean stop waits for its end.
    """
    row, found = 0, []
    for step in steps:
        interrupts = step in ("crash", "drain timeout")
        if interrupts:
            row += 1
        elif step == "completed turn" or resumed:
            row = 0
        found.append(row == 3)
        row %= 3
    return found


def take(bench: Bench, step: Step) -> None:
    """Let it happen to a lane; what interrupts or completes a turn needs one that runs."""
    if step != "clean restart" and bench.gate.durable.running is None:
        bench.said("go on")
    if step == "drain timeout":
        bench.tell(DrainTimedOut("restart_timeout"))
    elif step != "crash" and bench.gate.durable.running is not None:
        bench.answer()
    bench.now.time += 1
    if step != "completed turn":
        bench.reopen()


@pytest.mark.parametrize("rules", RULES.values(), ids=RULES.keys())
def test_given_up_exactly_after_three_interruptions_in_a_row(rules: Rules) -> None:
    """B56: 4^5 sequences: suspended exactly then, its user told each time, the next message answered afresh."""
    for steps in itertools.product(STEPS, repeat=5):
        bench = Bench(rules)
        expected = suspended_after(steps, resumed=rules.freshness_ms > 0)
        suspended = False
        for number, step in enumerate(steps):
            take(bench, step)
            suspended = expected[number] or (suspended and step == "clean restart")
            assert (bench.gate.durable.suspended_at == -1) is suspended, steps[: number + 1]
            assert len(bench.lane_events("route/suspended")) == sum(expected[: number + 1]), steps[: number + 1]
        old = bench.gate.durable.bound
        if bench.gate.durable.running is not None:
            bench.answer()
        last = bench.said("and now?")
        assert (bench.all(RunTurn)[-1].boundary == "suspended") is suspended, steps
        assert (bench.gate.durable.bound != old) is (suspended or old is None), steps
        bench.answer()
        assert bench.outcome(last).startswith(("answered", "merged")), steps
        told = [owed for owed in bench.lane_events("delivery/owed") if "given up" in owed.data["parts"][0]]
        assert len(told) == len(bench.lane_events("inbox/dropped")) == sum(expected), steps
        state = bench.gate.durable
        assert state.accepted == state.answered + state.merged + state.dropped, steps
