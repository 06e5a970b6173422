"""A bounded selection of the enumeration, in the normal suite; ``python -m tests.crash`` has the rest."""

from __future__ import annotations

import pytest

from tests.crash.enumeration import QUICK, QUICK_OTHER_ORDERS, enumerate_scenario
from tests.crash.mutants import MUTANTS, Mutant, caught_by
from tests.crash.points import Fate
from tests.crash.run import run
from tests.crash.scenario import Scenario
from tests.crash.scenarios import SCENARIOS

BY_NAME = {scenario.name: scenario for scenario in SCENARIOS}


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_every_law_holds_whatever_dies(scenario: Scenario) -> None:
    """Clean, and struck at points spread over the scenario's own trace, nothing is violated."""
    for number, seed in enumerate(scenario.seeds):
        tally = enumerate_scenario(scenario, seed, QUICK_OTHER_ORDERS if number else QUICK)
        assert tally.violations == []


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_enumerator_catches(mutant: Mutant) -> None:
    """A broken variant of the shipped module is given away by a violation."""
    text, _ = caught_by(mutant)
    assert text


@pytest.mark.parametrize("name", ["one tool", "queue in order", "rest and a message"])
def test_a_run_repeats_itself(name: str) -> None:
    """The same scenario, fate and seed give the same points, life by life: what a plan says can be seen again."""
    plan = (Fate(at=7), Fate(at=3))
    assert run(BY_NAME[name], plan).labels == run(BY_NAME[name], plan).labels


PINNED = (
    ("two chats of one turn slot become one", 1, (Fate(actor=14),)),
    ("two chats of one turn slot become one", 1, (Fate(at=4), Fate(at=3))),
    ("two chats of one turn slot become one", 2, (Fate(at=16),)),
    ("two chats of one turn slot become one", 215, ()),
    ("two chats of one turn slot become one", 238, ()),
    ("a chat gets a new id while people write under both", 16, (Fate(actor=5),)),
    ("a chat gets a new id while people write under both", 5, (Fate(at=33),)),
    ("a chat gets a new id while people write under both", 5, (Fate(at=39),)),
)
"""Scenario, seed and plan of runs that have gone wrong, and lie outside of the bounded selection."""


@pytest.mark.parametrize(("name", "seed", "plan"), PINNED, ids=str)
def test_what_has_gone_wrong_once_does_not_again(name: str, seed: int, plan: tuple[Fate, ...]) -> None:
    """Runs in which a receipt stayed open after a merge, mail of a halted lane was overtaken, a lane that had gone into
    another lived again, or the judge missed the word of a joining, are right.
    """
    assert run(BY_NAME[name], plan, seed).wrong == []


def test_a_reply_that_waits_for_its_retry_outlives_a_stop() -> None:
    """/stop abandons the parts that nobody has tried; the part before them is still sent."""
    for seed in (1, 2, 3):
        assert run(BY_NAME["stop a long reply that fails"], (), seed).wrong == []


@pytest.mark.parametrize("name", ["two merged", "a conversation taken up in another topic"])
def test_a_receipt_ends_although_the_lane_dies_before_it_could_say_so(name: str) -> None:
    """An actor that dies between what decides a message and the news of it leaves nobody waiting, and no reply unsaid:
    that may be a turn's end, or another lane's answer to a command.
    """
    scenario = BY_NAME[name]
    for number in range(run(scenario).envelopes[0]):
        assert run(scenario, (Fate(actor=number),)).wrong == []
