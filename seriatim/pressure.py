"""Memory pressure, as rules: how much memory there may be, and who is asked to rest when there is more.

Pure; ``seriatim.actors.machine`` reads the machine, ``seriatim.actors.pressure`` asks.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING, Final, Literal

from attrs import frozen

if TYPE_CHECKING:
    from seriatim.gate import Gate

MIB: Final = 1024 * 1024

AUTO_PERCENT: Final = 65
"""Of the limit: well under it, since from the limit on a process is throttled and can't stop in time any more."""

AUTO_BYTES_MIN: Final = 512 * MIB
"""An automatic budget below this is none: it would be over at every look, and nothing would ever stay warm."""

STEP_PERCENT: Final = 6
"""Of the budget: conversations that have grown by so much since the last look are worth another, before its time."""

LOW_PERCENT: Final = 90
"""Of the budget: what a pass aims at, so that the next message doesn't bring on the next pass."""

MemoryHigh = Literal["auto"] | int
"""A budget as configured: MiB, 0 for none, or "auto"."""

Why = Literal["not live", "mid-turn", "open work", "unflushed"]
"""Why a lane doesn't rest when it is asked to."""


@frozen
class Pressure:
    """The settings; see ``AgentCacheConfig``. ``every_ms``: how often memory is looked at, 0 for never by itself."""

    memory_high: MemoryHigh = 0
    per_pass: int = 16
    protect_recent: int = 8
    every_ms: int = 0


@frozen
class Warm:
    """A warm lane: its key, what it is accounted for in bytes, and whether nothing of it is open (it may rest)."""

    key: str
    bytes: int
    may_rest: bool


def budget_bytes(memory_high: MemoryHigh, limit_bytes: int) -> int | None:
    """What may be in memory; None for no bound. ``limit_bytes``: the tightest that the machine sets."""
    if memory_high != "auto":
        return memory_high * MIB or None
    budget = limit_bytes * AUTO_PERCENT // 100
    return budget if budget >= AUTO_BYTES_MIN else None


def low_bytes(budget: int) -> int:
    """What a pass that begins over ``budget`` aims at."""
    return budget * LOW_PERCENT // 100


def step_bytes(budget: int) -> int:
    """After how much growth memory is looked at again."""
    return max(1, budget * STEP_PERCENT // 100)


def protected(warm: int, protect_recent: int) -> int:
    """How many of so many warm lanes are too recent to be asked: at most half, since a few large ones may be all the
    trouble.
    """
    return min(protect_recent, warm // 2)


def choose(warm: Iterable[Warm], count: int, excess_bytes: int, pressure: Pressure) -> tuple[str, ...]:
    """Whom to ask, the least recently used first, as ``warm`` is ordered; ``count`` of them there are.

    As many as it takes until what they are accounted for makes up for ``excess_bytes``, at most ``per_pass``. Who has
    something open is passed over, and takes nobody's place.
    """
    chosen: list[str] = []
    left = excess_bytes
    for lane in islice(warm, count - protected(count, pressure.protect_recent)):
        if left <= 0 or len(chosen) >= pressure.per_pass:
            break
        if lane.may_rest:
            chosen.append(lane.key)
            left -= lane.bytes
    return tuple(chosen)


def tightest(limits: Iterable[int | None], ram_bytes: int) -> int | None:
    """The least of the limits along a chain of groups; None where none of them is below the machine's own memory."""
    least = min((limit for limit in limits if limit is not None and limit > 0), default=ram_bytes)
    return least if least < ram_bytes else None


def stays(gate: Gate) -> Why | None:
    """Why the lane behind this gate can't be put to rest now; None where it can."""
    state = gate.durable
    if state.running is not None:
        return "mid-turn"
    if state.waiting or state.owed or state.delegations:
        return "open work"
    return None if gate.quiescent() else "unflushed"
