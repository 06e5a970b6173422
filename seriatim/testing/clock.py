"""A clock that moves only when it is told to."""

from __future__ import annotations

import heapq
from collections.abc import Callable

__all__ = ["VirtualClock", "VirtualTimer"]

START_MS = 1_767_225_600_000  # 2026-01-01T00:00:00Z: a round date, and far from every epoch-zero accident


class VirtualTimer:
    """A pending call of a ``VirtualClock``."""

    __slots__ = ("due_ms", "fn")

    def __init__(self, due_ms: float, fn: Callable[[], object]) -> None:
        self.due_ms = due_ms
        self.fn: Callable[[], object] | None = fn

    def cancel(self) -> None:
        """Don't fire. The heap forgets the entry when its turn comes."""
        self.fn = None


class VirtualClock:
    """Virtual time for tests and the simulator; not for several threads.

    Timers fire in order of their due time; equal due times fire in the order in which they were set. A timer set by
    a timer inside the window that is being advanced fires in that window.

    Attributes:
        start_ms: wall time at monotonic zero, in milliseconds since 1970.
    """

    def __init__(self, start_ms: int = START_MS) -> None:
        self.start_ms = start_ms
        self._elapsed_ms: float = 0.0
        self._wall_offset_ms = 0
        self._heap: list[tuple[float, int, VirtualTimer]] = []
        self._set = 0

    def now_ms(self) -> int:
        """Wall time: the start plus what has passed plus every jump."""
        return self.start_ms + int(self._elapsed_ms) + self._wall_offset_ms

    def monotonic_ms(self) -> float:
        """What has passed; jumps of the wall clock don't touch it."""
        return self._elapsed_ms

    def call_later(self, delay_ms: float, fn: Callable[[], object]) -> VirtualTimer:
        """Fire *fn* once *delay_ms* of virtual time have passed; a negative delay counts as none."""
        timer = VirtualTimer(self._elapsed_ms + max(0.0, delay_ms), fn)
        self._set += 1
        heapq.heappush(self._heap, (timer.due_ms, self._set, timer))
        return timer

    def next_due_ms(self) -> float | None:
        """When the next live timer fires, in monotonic milliseconds; None if there is none."""
        while self._heap and self._heap[0][2].fn is None:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def fire_next(self) -> bool:
        """Move on to the next timer and fire it, that one only; False if there is none."""
        due_ms = self.next_due_ms()
        if due_ms is None:
            return False
        timer = heapq.heappop(self._heap)[2]
        self._elapsed_ms = max(self._elapsed_ms, due_ms)
        fn, timer.fn = timer.fn, None
        assert fn is not None, "next_due_ms() leaves a live timer on top"
        fn()
        return True

    def advance(self, ms: float) -> int:
        """Let *ms* pass and fire what falls due, each at its own time; returns how many fired."""
        end_ms = self._elapsed_ms + ms
        fired = 0
        while (due_ms := self.next_due_ms()) is not None and due_ms <= end_ms:
            self.fire_next()
            fired += 1
        self._elapsed_ms = max(self._elapsed_ms, end_ms)
        return fired

    def jump_wall(self, ms: int) -> None:
        """Set the wall clock forward or back, as NTP or a person would; timers and monotonic time don't notice."""
        self._wall_offset_ms += ms
