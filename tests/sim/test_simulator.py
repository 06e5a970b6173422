"""The simulator finds nothing in the core, and finds every broken variant of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from .directed import DIRECTED
from .hunt import caught_by
from .mutants import MUTANTS
from .world import World


@pytest.mark.parametrize("block", range(6))
def test_random_runs_break_no_invariant(block: int) -> None:
    """Twenty-five random worlds come to rest with every law intact."""
    for seed in range(block * 25, block * 25 + 25):
        World(seed).run()


def test_a_seed_replays() -> None:
    """The same seed gives the same trace, effect by effect."""
    first, second, other = World(7).run(), World(7).run(), World(8).run()
    assert first.crc == second.crc != other.crc
    assert first.counts == second.counts


@pytest.mark.parametrize("scenario", DIRECTED, ids=lambda scenario: scenario.__name__)
def test_directed_scenarios_pass(scenario: Callable[[], None]) -> None:
    """The shipped core passes each directed scenario."""
    scenario()


@pytest.mark.parametrize("name", MUTANTS)
def test_broken_variants_are_caught(name: str) -> None:
    """Each broken variant fails a directed scenario or one of sixty random runs."""
    assert caught_by(name, range(60))
