"""Turn slots: how many turns may run at once, and who is next. The one gate through which every turn goes.

Fair between people: where lanes wait, each person who waits has a turn in turn, however many lanes are theirs. What was
interrupted and is to go on yields to fresh input of other lanes, but for a share. Waiting here is no turn's time.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Final

from attrs import Factory, define

from seriatim.actors.refs import Ref
from seriatim.mail import SlotGranted

RESUMES_EVERY: Final = 4
"""Of so many grants, one goes to a turn that was interrupted, if fresh ones wait too: yielding is not starving."""


@define
class _Line:
    """Who waits: lanes by person, people in turn."""

    people: dict[str, deque[tuple[str, Ref[Any]]]] = Factory(dict)

    def add(self, person: str, lane: str, ref: Ref[Any]) -> None:
        self.people.setdefault(person, deque()).append((lane, ref))

    def forget(self, person: str, lane: str) -> None:
        lanes = self.people.get(person)
        if lanes is not None:
            kept = deque(entry for entry in lanes if entry[0] != lane)
            if kept:
                self.people[person] = kept
            else:
                del self.people[person]

    def pop(self, is_free: _Free) -> tuple[str, str, Ref[Any]] | None:
        """The next one, whose person goes to the back; people who may run no more are passed over."""
        for person, lanes in self.people.items():
            if is_free(person):
                lane, ref = lanes.popleft()
                del self.people[person]
                if lanes:
                    self.people[person] = lanes
                return person, lane, ref
        return None


class _Free:
    """Whether a person may run one more turn."""

    def __init__(self, per_user_max: int) -> None:
        self.max = per_user_max
        self.held: dict[str, int] = {}

    def __call__(self, person: str) -> bool:
        return not self.max or self.held.get(person, 0) < self.max

    def take(self, person: str) -> None:
        self.held[person] = self.held.get(person, 0) + 1

    def give_back(self, person: str) -> None:
        left = self.held.pop(person, 0) - 1
        if left > 0:
            self.held[person] = left


class TurnSlots:
    """Counts turn slots by lane and by person. Loop thread only.

    ``per_user_max``: turns that one person may have running at once over all lanes; 0: as many as there are. While
    somebody waits who may run, nobody else is served before.
    """

    def __init__(self, slots_max: int, per_user_max: int = 0) -> None:
        self._free = slots_max
        self._held: dict[str, list[str]] = {}
        self._fresh = _Line()
        self._resumes = _Line()
        self._asked: dict[str, tuple[_Line, str]] = {}
        self._grants = 0
        self._may = _Free(per_user_max)

    @property
    def held(self) -> int:
        """Slots in use."""
        return sum(map(len, self._held.values()))

    @property
    def waiting(self) -> int:
        """Lanes that wait for one."""
        return len(self._asked)

    def try_take(self, lane: str, person: str = "") -> bool:
        """Take a slot for ``lane`` if one is free and nobody waits who could have it."""
        if self._free <= 0 or (self._may.max and not self._may(person)):
            return False
        # Whoever waits now may not run: else he would have been served.
        self._free -= 1
        if lane in self._held:
            self._held[lane].append(person)
        else:
            self._held[lane] = [person]
        if self._may.max:
            self._may.take(person)
        return True

    def want(self, lane: str, ref: Ref[Any], person: str = "", *, resumes: bool = False) -> None:
        """Send ``ref`` a SlotGranted, with a slot taken for ``lane``, when its turn comes."""
        if lane in self._asked:
            line, before = self._asked[lane]
            if (line is self._resumes) == resumes and before == person:
                return
            line.forget(before, lane)  # fresh input has come before what was to be resumed, say
        line = self._resumes if resumes else self._fresh
        self._asked[lane] = (line, person)
        line.add(person, lane, ref)
        self._serve()

    def give_back(self, lane: str, count: int = 1) -> None:
        """Return slots of ``lane``; at most as many as it holds."""
        held = self._held.pop(lane, None) or []
        if len(held) > count:
            self._held[lane] = held[count:]
            del held[count:]
        self._free += len(held)
        if self._may.max:
            for person in held:
                self._may.give_back(person)
        if self._asked:
            self._serve()

    def give_back_all(self, lane: str, but: int = 0) -> None:
        """The lane's incarnation is gone: return what it held, ``but`` so many, and forget what it asked."""
        asked = self._asked.pop(lane, None)
        if asked is not None:
            asked[0].forget(asked[1], lane)
        self.give_back(lane, max(0, len(self._held.get(lane, ())) - but))

    def _serve(self) -> None:
        while self._free > 0 and self._asked:
            found = self._next()
            if found is None:
                return
            person, lane, ref = found
            del self._asked[lane]
            if ref.signal(SlotGranted()):
                self.try_take(lane, person)

    def _next(self) -> tuple[str, str, Ref[Any]] | None:
        first, second = self._fresh, self._resumes
        if first.people and second.people:
            self._grants += 1
            if not self._grants % RESUMES_EVERY:
                first, second = second, first
        return first.pop(self._may) or second.pop(self._may)
