"""Turn slots: how many turns may run at once, and who is next."""

from __future__ import annotations

from collections import deque
from typing import Any

from seriatim.actors.refs import Ref
from seriatim.mail import SlotGranted


class TurnSlots:
    """Counts turn slots by lane. Loop thread only.

    Lanes that found none are served in the order in which they asked; while somebody waits, nobody
    else is served before.
    """

    def __init__(self, slots_max: int) -> None:
        self._free = slots_max
        self._held: dict[str, int] = {}
        self._queue: deque[tuple[str, Ref[Any]]] = deque()
        self._asked: set[str] = set()

    @property
    def held(self) -> int:
        """Slots in use."""
        return sum(self._held.values())

    @property
    def waiting(self) -> int:
        """Lanes that wait for one."""
        return len(self._queue)

    def try_take(self, lane: str) -> bool:
        """Take a slot for ``lane`` if one is free and nobody waits."""
        if self._free <= 0 or self._queue:
            return False
        self._take(lane)
        return True

    def want(self, lane: str, ref: Ref[Any]) -> None:
        """Send ``ref`` a SlotGranted, with a slot taken for ``lane``, when its turn comes."""
        if lane not in self._asked:
            self._asked.add(lane)
            self._queue.append((lane, ref))
            self._serve()

    def give_back(self, lane: str, count: int = 1) -> None:
        """Return slots of ``lane``; at most as many as it holds."""
        held = self._held.pop(lane, 0)
        if count < held:
            self._held[lane] = held - count
        self._free += min(count, held)
        if self._queue:
            self._serve()

    def give_back_all(self, lane: str, but: int = 0) -> None:
        """The lane's incarnation is gone: return what it held, ``but`` so many, and forget what it asked."""
        if lane in self._asked:
            self._asked.discard(lane)
            self._queue = deque(entry for entry in self._queue if entry[0] != lane)
        self.give_back(lane, max(0, self._held.get(lane, 0) - but))

    def _serve(self) -> None:
        while self._free > 0 and self._queue:
            lane, ref = self._queue.popleft()
            self._asked.discard(lane)
            if ref.signal(SlotGranted()):
                self._take(lane)

    def _take(self, lane: str) -> None:
        self._free -= 1
        self._held[lane] = self._held.get(lane, 0) + 1
