"""The judge of order, given small worlds whose wrongs are known."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

from seriatim.events import Event, LogId, lane_log
from seriatim.testing.judge import _check_order
from seriatim.testing.told import ToldLane
from tests.crash.mutants import MUTANTS
from tests.crash.run import run
from tests.crash.scenarios import SCENARIOS
from tests.planted import planted

HERE = lane_log("here")


def _complaints(log: str, came: dict[str, str], joined: dict[LogId, list[int]] | None = None) -> list[str]:
    """What the judge says of a lane that accepted the letters of ``log`` in that order; "|" is a recorded joining.

    ``came``: the letters in the order in which they came to the door, each with the lane that it was given to.
    """
    wrong: list[str] = []
    data: dict[str, Any] = {"waiting": [], "owed": [], "interruptions": 0}
    lane = ToldLane(
        HERE,
        [
            Event("lane/merged", seq, 0, data)
            if letter == "|"
            else Event("inbox/accepted", seq, 0, {"id": letter, "kind": "human", "text": letter, "source": {}})
            for seq, letter in enumerate(log)
        ],
    )
    lane.read()
    ground: Any = SimpleNamespace(given=[came], joined=joined or {}, checked=Counter(), complain=wrong.append)
    _check_order(ground, [lane])
    return wrong


def test_a_joining_explains_what_either_lane_had_accepted_before_it() -> None:
    """A later message of the other lane's may stand in front, if the lanes became one between the two: by the log, or
    by the word of those who wait where the lane that went had none.
    """
    came = {"a": "gone", "b": "here", "c": "gone", "d": "here"}
    assert _complaints("bd|ac", came) == []
    assert _complaints("bdac", came, {HERE: [2]}) == []


def test_a_joining_explains_nothing_else() -> None:
    """Not what both came behind, or both in front of, not what another lane was joined by, nor one lane's own order."""
    came = {"a": "gone", "b": "here", "c": "gone", "d": "here"}
    for joined in ({}, {HERE: [0]}, {HERE: [1]}, {HERE: [3]}, {HERE: [4]}, {lane_log("elsewhere"): [2]}):
        assert _complaints("bdac", came, joined), joined
    for log in ("|bdac", "b|dac", "bda|c", "bdac|"):
        assert _complaints(log, came), log
    assert _complaints("dbac", came, {HERE: [2]})
    assert _complaints("bdca", came, {HERE: [2]})


def test_mail_put_together_wrong_is_given_away_where_no_log_tells_of_a_joining() -> None:
    """Of two lanes that become one, one's mail before the other's is a violation also if the one never wrote."""
    mutant = next(mutant for mutant in MUTANTS if mutant.name.startswith("of two lanes that become one"))
    scenario = next(scenario for scenario in SCENARIOS if scenario.name == "two chats of one turn slot become one")
    with planted(mutant):
        traces = (run(scenario, (), seed) for seed in range(1, 200))
        assert any(
            any("overtook" in wrong for wrong in trace.wrong)
            and not any("lane/merged" in label for labels in trace.labels for label in labels)
            for trace in traces
        )
