"""Whether a broken variant of the core is caught: by a directed scenario or by a random run."""

from __future__ import annotations

from collections.abc import Iterable

from .directed import DIRECTED
from .mutants import planted
from .world import World


def caught_by(name: str, seeds: Iterable[int]) -> list[str]:
    """What catches the mutant: each directed scenario that fails, then the first seed that does."""
    found: list[str] = []
    with planted(name):
        for scenario in DIRECTED:
            try:
                scenario()
            except Exception:  # noqa: BLE001 - a broken core may fail in any way
                found.append(scenario.__name__)
        for seed in seeds:
            try:
                World(seed).run()
            except Exception:  # noqa: BLE001 - as above
                return [*found, f"seed {seed}"]
    return found
