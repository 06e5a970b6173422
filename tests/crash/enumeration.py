"""The plans of a scenario, taken from the trace of its clean run, and the runs of all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from attrs import Factory, define, frozen

from tests.crash.kill_points import is_kill_point, proved
from tests.crash.points import Fate
from tests.crash.run import Trace, run
from tests.crash.scenario import Scenario


@frozen
class Depth:
    """How much is tried of one scenario in one order: how many of each kind at most, evenly spread.

    ``singles``: deaths at a point; with ``twins``, also where a point leaves the same files and the same world as the
    one right before it, as "before Y" does after "after X". ``actors``: deaths of a lane's actor. ``others``: of one
    that all lanes need. ``torn``: cuts of the WAL inside a commit. ``pairs``: two deaths of the process, the second at
    any point of the second life. ``mixed``: a lane's actor dies, then the process in the same life.
    """

    singles: int
    actors: int
    others: int
    torn: int
    pairs: int
    mixed: int
    twins: bool = False


ALL = 1_000_000
FULL = Depth(ALL, ALL, ALL, ALL, 400, 100, twins=True)
USUAL = Depth(ALL, 16, 3, 4, 9, 3)
OTHER_ORDERS = Depth(5, 8, 1, 0, 1, 1)
"""For seeds beyond a scenario's first."""
QUICK = Depth(4, 4, 1, 1, 1, 1)
QUICK_OTHER_ORDERS = Depth(1, 2, 0, 0, 0, 0)


@frozen
class Violation:
    """What went wrong, and how to see it again."""

    scenario: str
    seed: int
    plan: tuple[Fate, ...]
    text: str


@define
class Tally:
    """What came of it. ``points`` of the clean traces, envelopes included; ``broken``: runs with violations.

    ``proved``: how many of the runs are a proof of each kill point; ``unproved``: how many of those went wrong.
    """

    points: int = 0
    runs: int = 0
    broken: int = 0
    violations: list[Violation] = Factory(list)
    proved: Counter[str] = Factory(Counter)
    unproved: Counter[str] = Factory(Counter)

    def add(self, other: Tally) -> None:
        """Both as one."""
        self.points += other.points
        self.runs += other.runs
        self.broken += other.broken
        self.violations += other.violations
        self.proved += other.proved
        self.unproved += other.unproved


def enumerate_scenario(scenario: Scenario, seed: int, depth: Depth, *, first_only: bool = False) -> Tally:
    """Run the scenario clean, then struck in every way that ``depth`` allows; ``first_only``: up to a violation."""
    tally = Tally()
    clean = run(scenario, (), seed)
    tally.points = sum(map(len, clean.labels)) + sum(clean.envelopes) + sum(clean.others)
    _note(tally, scenario, seed, (), clean)
    for plan, expected in _plans(scenario, seed, depth, clean):
        if first_only and tally.violations:
            break
        trace = run(scenario, plan, seed)
        life = len(plan) - 1 if plan and plan[0] == Fate() else 0
        if expected is not None and (len(trace.labels) <= life or trace.labels[life][-1:] != [expected]):
            trace.wrong.append(f"the run left its trace: not at {expected!r}")
        _note(tally, scenario, seed, plan, trace)
    return tally


def _note(tally: Tally, scenario: Scenario, seed: int, plan: tuple[Fate, ...], trace: Trace) -> None:
    tally.runs += 1
    tally.broken += bool(trace.wrong)
    for name in proved(scenario.name, plan, trace.labels):
        tally.proved[name] += 1
        tally.unproved[name] += bool(trace.wrong)
    tally.violations += [Violation(scenario.name, seed, plan, text) for text in trace.wrong]


def _plans(scenario: Scenario, seed: int, depth: Depth, clean: Trace) -> Iterator[tuple[tuple[Fate, ...], str | None]]:
    """The plans, each with the label at which its first life must end."""
    if not clean.labels:
        return
    for storm in scenario.storms:
        yield storm, None
    labels, frames = clean.labels[0], clean.frames[0]
    for number in spread(clean.envelopes[0], depth.actors):
        yield (Fate(actor=number),), None
    for number in spread(clean.others[0], depth.others):
        yield (Fate(other=number),), None
    struck = [
        at
        for at in range(len(labels))
        if depth.twins or not _is_twin(labels, at) or is_kill_point(scenario.name, labels[at])
    ]
    for which in spread(len(struck), depth.singles):
        at = struck[which]
        yield (Fate(at=at),), labels[at]
    for number in range(1, len(clean.labels)):  # a scenario that stops has further lives
        for at in spread(len(clean.labels[number]), min(depth.singles, 12)):
            yield (*(Fate(),) * number, Fate(at=at)), clean.labels[number][at]
    commits = {labels[at]: at for at in frames if is_kill_point(scenario.name, labels[at], torn=True)}
    for label, at in commits.items() if depth.torn else ():
        yield (Fate(at=at, torn=True),), label
    cuts = [(at, cut) for at, (before, after) in frames.items() for cut in range(before, after)]
    for which in spread(len(cuts), depth.torn):
        at, cut = cuts[which]
        yield (Fate(at=at, frames=cut),), labels[at]
    firsts = spread(len(labels), _root(depth.pairs))
    for order, at in enumerate(firsts):
        second = run(scenario, (Fate(at=at),), seed).labels[1:2]
        for then in spread(len(second[0]) if second else 0, -(-depth.pairs // max(1, len(firsts))), order):
            yield (Fate(at=at), Fate(at=then)), labels[at]
    for number in spread(clean.envelopes[0], depth.mixed):
        first = run(scenario, (Fate(actor=number),), seed).labels[0]
        for at in spread(len(first), 1 if depth.mixed < ALL else ALL, number):
            yield (Fate(at=at, actor=number),), first[at]


def _is_twin(labels: list[str], at: int) -> bool:
    return at > 0 and labels[at].startswith("before") and labels[at - 1].startswith("after")


def spread(count: int, most: int, turn: int = 0) -> list[int]:
    """At most ``most`` of ``range(count)``, evenly spread; ``turn`` shifts which."""
    if most >= count:
        return list(range(count))
    return sorted({(2 * i + 1 + turn) * count // (2 * most) % count for i in range(most)})


def _root(number: int) -> int:
    return 0 if number <= 0 else max(1, round(number**0.5))
