"""Real lanes and the reference model agree, and the comparison finds what is planted."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import frozen

from seriatim import lane, queue_folds, queueing, wakes
from tests.planted import planted
from tests.queue.histories import Totals, run_histories

SEEDS = range(25)


@frozen
class Planted:
    """See tests.planted."""

    name: str
    function: Any
    changes: tuple[tuple[str, str], ...]


BUGS = (
    Planted(
        "a follow-up joins a /queue item", queueing.join_target, (('held.kind == "human" and held.auth', "held.auth"),)
    ),
    Planted("unequals are merged", queueing.join_target, ((" and held.auth == entry.auth", ""),)),
    Planted("replace displaces whoever is last", queueing.place, ((" and at == 0", ""),)),
    Planted("no wake is promoted", wakes.promote_wake, (("if at:", "if at > 99:"),)),
    Planted("a pinned wake runs anywhere", wakes.refuse_pin, (("pin is None or", "True or"),)),
    Planted("/new forgets whom a wake is for", wakes.leave_session, (("== state.bound and", "== 0 and"),)),
    Planted(
        "a moved turn is a place too far", queue_folds.moved, (('(data["to"], entry)', '(data["to"] + 1, entry)'),)
    ),
    Planted("an interruption is not counted", lane._interrupted, (("state.interruptions += 1", "pass"),)),
)


@pytest.fixture(scope="module")
def totals() -> Totals:
    """Some histories, run once."""
    return run_histories(SEEDS)


def test_random_histories_have_no_differences(totals: Totals) -> None:
    """What lanes did is what the model says, at every step of every history."""
    assert totals.differences == {}


def test_no_history_is_trivial(totals: Totals) -> None:
    """They hold crashes, wakes, commands and steering, and are compared often."""
    assert totals.crashes > len(SEEDS) / 2
    assert totals.compared > 20 * len(SEEDS)
    assert all(totals.did[what] > len(SEEDS) for what in ("messages", "/queue", "commands", "wakes", "steering"))


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_planted_fault_is_found(bug: Planted) -> None:
    """Within a few hundred histories the model and the broken lane part."""
    with planted(bug):
        for first in range(0, 400, 5):
            if run_histories(range(first, first + 5)).differences:
                return
    raise AssertionError("the model didn't notice")
