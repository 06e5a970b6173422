"""Upkeep is killed at each of its points: what is left is what was before or what was to be after."""

from __future__ import annotations

import pytest

from tests.crash.enumeration import spread
from tests.crash.points import Fate
from tests.crash.run import run
from tests.crash.scenarios import SCENARIOS

(LONG,) = (scenario for scenario in SCENARIOS if scenario.name == "long logs")


@pytest.mark.parametrize("what", ["keep", "compact"])
def test_a_kill_around_and_inside_upkeep_loses_nothing(what: str) -> None:
    """Before and after each step, and with the WAL cut inside it, every law of the enumerator holds."""
    trace = run(LONG)
    assert trace.wrong == []
    labels, frames = trace.labels[0], trace.frames[0]
    points = [at for at, label in enumerate(labels) if label.endswith(what)]
    assert len(points) > 10
    fates = [Fate(at=points[which]) for which in spread(len(points), 14)]
    cuts = [(at, cut) for at in points if at in frames for cut in range(*frames[at])]
    fates += [Fate(at=cuts[which][0], frames=cuts[which][1]) for which in spread(len(cuts), 14)]
    for fate in fates:
        assert run(LONG, (fate,)).wrong == [], fate


def test_a_kill_in_the_life_after_a_kill_inside_compaction() -> None:
    """Twice in a row, the second time anywhere."""
    trace = run(LONG)
    at = [at for at, label in enumerate(trace.labels[0]) if label == "after compact"][1]
    first = Fate(at=at, frames=trace.frames[0][at][0] + 1)
    second = run(LONG, (first,)).labels[1]
    for then in spread(len(second), 12):
        assert run(LONG, (first, Fate(at=then))).wrong == []
