"""CacheWardenActor: keeps the number of warm lanes within its cap, least recently used first, and lets idle ones rest.

It only asks; a lane with open work stays. Runs on the loop dispatcher.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from itertools import islice, takewhile
from typing import Any, Final

from attrs import frozen

from seriatim.actors.clockwork import signal_later
from seriatim.actors.pooled import PooledActor
from seriatim.actors.refs import Ref
from seriatim.actors.supervisor import PassivateLane
from seriatim.clock import Clock

IDLE_TICKS: Final = 8
"""Into so many sweeps the time is cut after which a lane is idle: it rests at most an eighth of it too late."""


@frozen
class Crowded:
    """More lanes are warm than may be."""


@frozen
class _Sweep:
    """Time to look for idle lanes."""


class WarmLanes:
    """Which lanes are warm, least recently used first. Loop thread only: each turn changes it, without a message.

    ``crowded`` is called after a turn that finds more than ``warm_max`` of them, and then not until ``beyond`` is.
    """

    def __init__(self, warm_max: int, crowded: Callable[[], object]) -> None:
        self._warm_max = warm_max
        self._crowded = crowded
        self._warm: OrderedDict[str, tuple[int, int]] = OrderedDict()
        self._sweeps = 0
        self._said = False  # in a burst over the cap each turn would else ask all lanes

    def touched(self, key: str, bytes_: int) -> None:
        """A lane has begun a turn; ``bytes_`` of warm state."""
        self._warm[key] = self._sweeps, bytes_
        self._warm.move_to_end(key)
        if len(self._warm) > self._warm_max and not self._said:
            self._said = True
            self._crowded()

    def gone(self, key: str) -> None:
        """A lane was put to rest."""
        self._warm.pop(key, None)

    def idle(self) -> list[str]:
        """One more sweep has passed: those that have begun no turn for IDLE_TICKS of them, the oldest first."""
        self._sweeps += 1
        oldest = self._sweeps - IDLE_TICKS
        return list(takewhile(lambda key: self._warm[key][0] < oldest, self._warm))

    def beyond(self) -> list[str]:
        """Those that are too many."""
        self._said = False
        return list(islice(self._warm, max(0, len(self._warm) - self._warm_max)))


class CacheWardenActor(PooledActor):
    """Asks the lanes that are too many to rest, and those that were idle for ``idle_ms`` (0: however long)."""

    def __init__(self, supervisor: Ref[Any], lanes: WarmLanes, clock: Clock, idle_ms: int = 0) -> None:
        super().__init__()
        self._supervisor = supervisor
        self._lanes = lanes
        self._clock = clock
        self._sweep_ms = idle_ms / IDLE_TICKS

    def on_start(self) -> None:
        """Begin to sweep."""
        self._again()

    def on_receive(self, message: Crowded | _Sweep) -> None:
        """One that has to stay is not replaced by a more recent one: it is asked again at the next turn or sweep."""
        if type(message) is _Sweep:
            self._ask(self._lanes.idle(), "idle")
            self._again()
        else:
            self._ask(self._lanes.beyond(), "lru")

    def _ask(self, keys: list[str], reason: str) -> None:
        for key in keys:
            self._supervisor.signal(PassivateLane(key, reason))

    def _again(self) -> None:
        if self._sweep_ms:
            signal_later(self._clock, self._sweep_ms, self.own_ref, _Sweep())
