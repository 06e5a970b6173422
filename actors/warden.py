"""CacheWardenActor: keeps warm lanes within a number and a size, least recently used first, and lets idle ones rest.

It only asks; a lane with open work stays. Runs on the loop dispatcher.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice, takewhile
from math import inf
from typing import Any, Final

from attrs import frozen

from seriatim.actors.clockwork import signal_later
from seriatim.actors.machine import Machine
from seriatim.actors.pooled import PooledActor
from seriatim.actors.pressure import ForPressure, Look, MemoryFacts, MemoryPressure, PressurePorts
from seriatim.actors.refs import Ref
from seriatim.actors.supervisor import PassivateLane
from seriatim.clock import Clock
from seriatim.pressure import Pressure, Why

IDLE_TICKS: Final = 8
"""Into so many sweeps the time is cut after which a lane is idle: it rests at most an eighth of it too late."""


@frozen
class Crowded:
    """More lanes are warm than may be."""


@frozen
class _Sweep:
    """Time to look for idle lanes."""


@frozen
class _Tick:
    """Time to look at memory."""


class WarmLanes:
    """Which lanes are warm, least recently used first. Loop thread only: each turn changes it, without a message.

    ``crowded`` is called after a turn that finds more than ``warm_max`` of them, and then not until ``beyond`` is.
    ``grown`` when they have grown by the bytes that ``watch`` was told, and then not until it is told again.
    """

    def __init__(
        self, warm_max: int, crowded: Callable[[], object], grown: Callable[[], object] = lambda: None
    ) -> None:
        self._warm_max = warm_max
        self._crowded = crowded
        self._grown = grown
        self._warm: dict[str, tuple[int, int]] = {}
        self._sweeps = 0
        self._said = False  # in a burst over the cap each turn would else ask all lanes
        self._room: float = inf

    def touched(self, key: str, bytes_: int) -> None:
        """A lane has begun a turn; ``bytes_`` of warm state."""
        self.turned(key, bytes_)
        if len(self._warm) > self._warm_max and not self._said:
            self._said = True
            self._crowded()

    def turned(self, key: str, bytes_: int) -> None:
        """A lane's turn has ended: it is as recent as one that begins now."""
        known = self._warm.pop(key, None)  # out, so that it comes in again at the end
        self._warm[key] = self._sweeps, bytes_
        more = bytes_ if known is None else bytes_ - known[1]
        if more > 0:
            self._room -= more
            if self._room < 0:
                self._room = inf
                self._grown()

    def watch(self, bytes_: int) -> None:
        """Say when there are so many more; 0: don't."""
        self._room = bytes_ or inf

    def __len__(self) -> int:
        return len(self._warm)

    def each(self) -> Iterator[tuple[str, int]]:
        """Each with its bytes, the longest unused first."""
        return ((key, bytes_) for key, (_, bytes_) in self._warm.items())

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


@frozen
class MemoryWatch:
    """Whom the warden needs to hold memory within its budget; what it finds stands in ``facts``."""

    pressure: Pressure
    machine: Machine
    stays: Callable[[str], Why | None]
    on_error: Callable[[str, BaseException], object]
    facts: MemoryFacts


class CacheWardenActor(PooledActor):
    """Asks the lanes that are too many to rest, those that were idle for ``idle_ms`` (0: however long), and where there
    is a ``watch``, the longest unused while memory is short.
    """

    def __init__(
        self,
        supervisor: Ref[Any],
        lanes: WarmLanes,
        clock: Clock,
        idle_ms: int = 0,
        watch: MemoryWatch | None = None,
    ) -> None:
        super().__init__()
        self._supervisor = supervisor
        self._lanes = lanes
        self._clock = clock
        self._sweep_ms = idle_ms / IDLE_TICKS
        self._watch = watch
        self._memory: MemoryPressure | None = None

    def on_start(self) -> None:
        """Begin to sweep, and to look at memory."""
        self._again()
        watch = self._watch
        if watch is None:
            return
        ports = PressurePorts(
            machine=watch.machine,
            clock=self._clock,
            warden=self.own_ref,
            lanes=self._lanes,
            stays=watch.stays,
            ask=lambda key: self._ask([key], "memory", self.own_ref),
            on_error=watch.on_error,
        )
        self._memory = MemoryPressure(watch.pressure, ports, watch.facts)
        self._look_again()

    def on_receive(self, message: Crowded | _Sweep | _Tick | ForPressure) -> None:
        """One that has to stay is not replaced by a more recent one: it is asked again at the next turn or sweep."""
        if isinstance(message, _Sweep):
            self._ask(self._lanes.idle(), "idle")
            self._again()
        elif isinstance(message, Crowded):
            self._ask(self._lanes.beyond(), "lru")
        elif self._memory is not None:
            if isinstance(message, _Tick):
                self._look_again()
                message = Look()
            self._memory.take(message)

    def _ask(self, keys: list[str], reason: str, asked_by: Ref[Any] | None = None) -> None:
        for key in keys:
            self._supervisor.signal(PassivateLane(key, reason, asked_by))

    def _look_again(self) -> None:
        if self._watch is not None and self._watch.pressure.every_ms:
            signal_later(self._clock, self._watch.pressure.every_ms, self.own_ref, _Tick())

    def _again(self) -> None:
        if self._sweep_ms:
            signal_later(self._clock, self._sweep_ms, self.own_ref, _Sweep())
