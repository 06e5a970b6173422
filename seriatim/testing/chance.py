"""What chance decides in a simulated run: its plan, and the dice."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import TypeVar

from attrs import Factory, frozen

from seriatim.actors.upkeep import Growth
from seriatim.adapters.base import Capabilities
from seriatim.batch import Rules

T = TypeVar("T")


@frozen
class Plan:
    """What a run is made of. Chances are per step, unless they are said to be per something else.

    ``lanes``: conversations, the last of three is in the host's own hands. ``acts``: of people, ``people`` how eager;
    after one of them they may wait until all is at rest (``lulls``). ``steps``: of chaos, at most. ``writer`` and
    ``reader``: how fast, against 6 for the lanes. ``timers``: how likely one fires first. ``refused``, ``unknown``,
    ``outage``, ``torn`` (the process dies around it): per commit. ``unreadable``: per log. ``lane_crash``,
    ``other_crash``: per envelope. ``bad_send``, ``instant``: per send. ``silence_ms``: how long a turn may be silent.
    """

    lanes: int = 2
    shared: bool = False
    acts: int = 12
    people: float = 0.5
    lulls: float = 0.2
    steps: int = 3_000
    slots: int = 2
    warm: int = 8
    rules: Rules = Factory(Rules)
    age_ms: int = 24 * 3_600_000
    growth: Growth = Factory(Growth)
    able: Capabilities = Factory(lambda: Capabilities(replay="ack"))
    timers: float = 0.1
    writer: float = 3.0
    reader: float = 3.0
    refused: float = 0.0
    unknown: float = 0.0
    outage: float = 0.0
    torn: float = 0.0
    unreadable: float = 0.0
    lane_crash: float = 0.0
    poison: float = 0.0
    other_crash: float = 0.0
    process_crash: float = 0.0
    stops: float = 0.0
    rests: float = 0.0
    repeats: float = 0.0
    bad_send: float = 0.0
    instant: float = 0.3
    down: float = 0.0
    jumps: float = 0.0
    silence_ms: int = 0
    pressure: float = 0.0


class Dice:
    """Chance, one sequence for each concern: taking one fault out of a plan leaves the others' sequences alone."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._rolls: dict[str, Callable[[], float]] = {}

    def roll(self, concern: str) -> float:
        """From 0 up to 1."""
        roll = self._rolls.get(concern)
        if roll is None:
            # Only random() is used: of the generator's methods it alone promises the same sequence in every version.
            roll = self._rolls[concern] = random.Random(f"{self._seed} {concern}").random
        return roll()

    def hits(self, concern: str, chance: float) -> bool:
        """Whether something of this chance happens."""
        return chance > 0 and self.roll(concern) < chance

    def pick(self, concern: str, choices: Sequence[T]) -> T:
        """One of them."""
        return choices[int(self.roll(concern) * len(choices))]


def plan_of(seed: int) -> Plan:
    """A random plan. Most have crashes of some kind; a fifth have none, so that Unknown and rest are seen alone too."""
    dice = Dice(seed)

    def one(*choices: T) -> T:
        return dice.pick("plan", choices)

    crashes = dice.roll("plan") < 0.8
    return Plan(
        lanes=one(1, 2, 2, 3),
        shared=one(True, False),
        acts=one(10, 14, 18),
        people=one(0.1, 0.5, 2.0),
        lulls=one(0.1, 0.3, 0.6),
        slots=one(1, 2, 8),
        warm=one(1, 2, 8),
        rules=Rules(
            collapse=one("merge", "merge", "replace"),
            separate_attempt=one(False, False, True),
            stop_suspends=one(True, True, True, False),
            freshness_ms=one(3_600_000, 3_600_000, 700),
            busy=one("queue", "queue", "interrupt", "steer"),
            approval_ms=one(0, 0, 5_000),
        ),
        age_ms=one(24 * 3_600_000, 24 * 3_600_000, 20_000),
        growth=one(Growth(), Growth(events=6, rest_events=1, compact_events=9, step_commits=2)),
        able=Capabilities(replay="ack", idempotent_send=one(False, False, False, True), text_max=one(0, 140)),
        timers=one(0.02, 0.1, 0.3),
        writer=one(0.3, 1.0, 3.0),
        reader=one(0.3, 3.0),
        refused=one(0.0, 0.05, 0.2),
        unknown=one(0.0, 0.05, 0.2),
        outage=one(0.0, 0.0, 0.02),
        torn=one(0.0, 0.01) if crashes else 0.0,
        unreadable=one(0.0, 0.0, 0.02),
        lane_crash=one(0.0, 0.01, 0.04) if crashes else 0.0,
        poison=one(0.0, 0.2),
        other_crash=one(0.0, 0.0, 0.004) if crashes else 0.0,
        process_crash=one(0.001, 0.003, 0.008) if crashes else 0.0,
        stops=one(0.0, 0.0, 0.003) if crashes else 0.0,
        rests=one(0.0, 0.02, 0.06),
        repeats=one(0.0, 0.02),
        bad_send=one(0.0, 0.1, 0.3),
        instant=one(0.0, 0.3, 1.0),
        down=one(0.0, 0.0, 0.01),
        jumps=one(0.0, 0.0, 0.005),
        silence_ms=one(0, 0, 30_000),
        pressure=one(0.0, 0.0, 0.03),
    )
