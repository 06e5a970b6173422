"""How much memory there may be, and who is asked to rest when there is more."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seriatim.pressure import (
    MIB,
    MemoryHigh,
    Pressure,
    Warm,
    budget_bytes,
    choose,
    low_bytes,
    protected,
    stays,
    step_bytes,
    tightest,
)
from tests.core.bench import Bench

LANES = st.lists(st.tuples(st.integers(0, 50), st.booleans()), max_size=30).map(
    lambda told: [Warm(str(number), size, free) for number, (size, free) in enumerate(told)]
)


@pytest.mark.parametrize(
    ("memory_high", "limit_mib", "budget_mib"),
    [
        ("auto", 1000, 650),
        ("auto", 100_000, 65_000),
        ("auto", 788, 512),
        ("auto", 787, None),
        (1, 64, 1),
        (4096, 64, 4096),
        (0, 64, None),
    ],
)
def test_the_budget(memory_high: MemoryHigh, limit_mib: int, budget_mib: int | None) -> None:
    """65 % of the limit, but none where that is under 512 MiB; a number counts as it is; 0 is none."""
    budget = budget_bytes(memory_high, limit_mib * MIB)

    assert (None if budget is None else budget // MIB) == budget_mib


@pytest.mark.parametrize(
    ("limits", "found"),
    [([], None), ([None, None], None), ([9, 3, 5], 3), ([2**63 - 4096], None), ([100], None), ([0, -1, 99], 99)],
)
def test_the_tightest_of_a_chain_counts(limits: list[int | None], found: int | None) -> None:
    """The least limit of all levels; one that the machine's own memory is under is none."""
    assert tightest(limits, 100) == found


def test_the_most_recent_are_protected_up_to_half() -> None:
    """Of nine warm lanes eight can't be protected: two huge ones among them would never be let go of."""
    assert [protected(count, 8) for count in (0, 1, 9, 16, 100)] == [0, 0, 4, 8, 8]
    assert protected(9, 0) == 0


def test_the_longest_unused_go_first_until_it_is_enough() -> None:
    """Who has something open is passed over; whoever isn't needed to make up for the excess stays."""
    warm = [Warm("busy", 90, False), Warm("a", 10, True), Warm("b", 10, True), Warm("c", 10, True), Warm("d", 1, True)]

    assert choose(warm, len(warm), 15, Pressure(protect_recent=0)) == ("a", "b")
    assert choose(warm, len(warm), 10**9, Pressure(protect_recent=0)) == ("a", "b", "c", "d")
    assert choose(warm, len(warm), 10**9, Pressure(protect_recent=8)) == ("a", "b")
    assert choose(warm, len(warm), 10**9, Pressure(protect_recent=0, per_pass=1)) == ("a",)
    assert choose(warm, len(warm), 0, Pressure(protect_recent=0)) == ()


@given(LANES, st.integers(-5, 400), st.integers(1, 20), st.integers(0, 20))
def test_choosing_against_a_model(warm: list[Warm], excess: int, per_pass: int, recent: int) -> None:
    """Whatever is warm: the chosen are the shortest beginning, in order of use, of those that may go and are old
    enough, that covers the excess; or as long a one as may be where none does.
    """
    chosen = choose(warm, len(warm), excess, Pressure(per_pass=per_pass, protect_recent=recent))

    shielded = {lane.key for lane in warm[::-1][: min(recent, len(warm) // 2)]}
    able = [lane for lane in warm if lane.may_rest and lane.key not in shielded][:per_pass]
    freed = [sum(lane.bytes for lane in able[:count]) for count in range(len(able) + 1)]
    enough = next((count for count, total in enumerate(freed) if total >= excess), len(able))
    assert list(chosen) == [lane.key for lane in able[:enough]]


def test_a_lane_stays_while_anything_of_it_is_open() -> None:
    """A commit in flight, a turn, a reply that is owed: what would be lost or is in use is never let go of."""
    bench = Bench()
    assert stays(bench.gate) is None
    bench.say("hi")
    assert stays(bench.gate) == "unflushed"
    bench.drain()
    assert stays(bench.gate) == "mid-turn"
    bench.answer()
    assert stays(bench.gate) == "open work"


@given(st.integers(1, 2**50))
def test_a_pass_aims_lower_than_it_begins(budget: int) -> None:
    """Or each message after a pass would bring on the next."""
    assert low_bytes(budget) < budget
    assert step_bytes(budget) > 0
