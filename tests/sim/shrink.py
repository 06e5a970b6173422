"""A smaller run that fails as well, and its story."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import attrs

from seriatim.testing.chance import Plan, plan_of
from seriatim.testing.simulator import Simulator, Violation

RUNS_MAX = 300
_FAULTS: Final = (
    *("process_crash", "stops", "other_crash", "torn", "lane_crash", "poison", "unreadable", "outage", "unknown"),
    *("refused", "bad_send", "down", "jumps", "repeats", "rests", "lulls"),
)
_PLAINEST: Final[dict[str, Any]] = {
    "lanes": 1,
    "shared": False,
    "instant": 1.0,
    "slots": 8,
    "warm": 8,
    "writer": 3.0,
    "reader": 3.0,
}


def shrink(seed: int) -> tuple[Plan, Violation]:
    """The smallest plan found under which the seed fails: fewer people, acts, faults and steps of chaos."""
    plan = plan_of(seed)
    worst = _fails(seed, plan)
    if worst is None:
        raise ValueError(f"seed {seed} doesn't fail")
    runs = 0
    smaller = True
    while smaller and runs < RUNS_MAX:
        smaller = False
        for candidate in _smaller(plan, worst[1]):
            runs += 1
            found = _fails(seed, candidate)
            if found is not None:
                plan, worst, smaller = candidate, found, True
                break
    return plan, worst[0]


def _smaller(plan: Plan, steps: int) -> Iterator[Plan]:
    for name in _FAULTS:
        if getattr(plan, name):
            none: dict[str, Any] = {name: 0.0}
            yield attrs.evolve(plan, **none)
    for name, value in _PLAINEST.items():
        if getattr(plan, name) != value:
            plainer: dict[str, Any] = {name: value}
            yield attrs.evolve(plan, **plainer)
    if plan.lanes > 2:
        yield attrs.evolve(plan, lanes=2)
    for acts in dict.fromkeys((plan.acts // 2, plan.acts - 1)):
        if acts > 0:
            yield attrs.evolve(plan, acts=acts)
    chaos = min(plan.steps, steps)
    for fewer in dict.fromkeys((chaos // 2, chaos * 3 // 4, chaos - 10, chaos - 1)):
        if 0 < fewer < plan.steps:
            yield attrs.evolve(plan, steps=fewer)


def _fails(seed: int, plan: Plan) -> tuple[Violation, int] | None:
    world = Simulator(seed, plan)
    try:
        world.run()
    except Violation as violation:
        return violation, world.steps
    except Exception as error:  # noqa: BLE001 - a finding like any other
        return Violation(seed, world.steps, [repr(error)]), world.steps
    return None


def story(seed: int, plan: Plan) -> list[str]:
    """What happened in that run to the lanes that the violation names (to all, if it names none), line by line."""
    world = Simulator(seed, plan, keep_story=True)
    wrong = ""
    try:
        world.run()
    except Exception as violation:  # noqa: BLE001 - as above
        wrong = str(violation)
    named = {name for key, name in world.names.items() if key in wrong}
    lines = [line for name, line in world.story if not named or name in named or not name]
    return [*lines, wrong]
