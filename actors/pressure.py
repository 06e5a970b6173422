"""The pass over warm lanes when memory is short: look, ask the longest unused to rest, give back what is free.

Part of the warden, on the loop's thread; the machine is read beside it. A pass begins over the budget, and ends when
everybody has answered and memory was given back. It never goes on until the memory in use has fallen: in CPython that
need not follow what is let go of. What is still too much is the next look's.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any, Literal, Protocol

import attrs
from attrs import frozen

from seriatim.actors.clockwork import signal_later
from seriatim.actors.machine import Machine, Reading
from seriatim.actors.refs import Ref
from seriatim.actors.supervisor import Rested, StaysWarm
from seriatim.clock import Clock, Timer
from seriatim.limits import PRESSURE_PASS_MS_MAX
from seriatim.pressure import (
    AUTO_BYTES_MIN,
    MIB,
    Pressure,
    Warm,
    Why,
    budget_bytes,
    choose,
    low_bytes,
    protected,
    step_bytes,
)

_log = logging.getLogger("seriatim.memory")


@frozen
class Look:
    """Time to see how much memory is in use."""


@frozen
class Looked:
    """What the machine said."""

    found: Reading | BaseException


@frozen
class Trimmed:
    """Free memory was given back; what the machine said then."""

    found: Reading | BaseException


@frozen
class PassOverdue:
    """Somebody hasn't answered in this pass, and isn't waited for any longer."""

    number: int


ForPressure = Look | Looked | Trimmed | PassOverdue | Rested | StaysWarm
"""What the warden hands on."""


@attrs.define
class MemoryFacts:
    """How things stand, for ``health()``. Bytes; counts are of this process's life.

    ``budget``: None where there is none. ``used``: when it was last looked at. ``over``: looks that found more than
    the budget. ``asked``, ``released``, ``refused``: lanes. ``released_bytes``: what the released were accounted for.
    ``before``, ``after``: memory in use around the last pass that asked somebody. ``doing``: what happens just now.
    """

    budget: int | None = None
    limit: int | None = None
    scope: Literal["cgroup", "process"] | None = None
    used: int | None = None
    over: int = 0
    asked: int = 0
    released: int = 0
    refused: int = 0
    released_bytes: int = 0
    before: int | None = None
    after: int | None = None
    doing: Literal["nothing", "looking", "asking", "trimming"] = "nothing"


class Lanes(Protocol):
    """The warm lanes."""

    def __len__(self) -> int: ...

    def each(self) -> Iterator[tuple[str, int]]:
        """Each with its bytes, the longest unused first."""
        ...

    def watch(self, bytes_: int) -> None:
        """Have the warden told to look when they have grown by so much; 0: never."""
        ...


@frozen
class PressurePorts:
    """What the pass works with. Everything but ``machine`` is used on the loop's thread."""

    machine: Machine
    clock: Clock
    warden: Ref[Any]
    """Hands on what is told to it."""
    lanes: Lanes
    stays: Callable[[str], Why | None]
    """Why a lane wouldn't rest now, as far as can be seen from outside."""
    ask: Callable[[str], object]
    """Asks a lane to rest; Rested or StaysWarm comes back."""
    on_error: Callable[[str, BaseException], object]


class MemoryPressure:
    """The passes, one at a time. ``facts``: for anybody to read."""

    def __init__(self, pressure: Pressure, ports: PressurePorts, facts: MemoryFacts) -> None:
        self.facts = facts
        self._pressure = pressure
        self._ports = ports
        self._asked: set[str] = set()
        self._number = 0
        self._overdue: Timer | None = None
        self._before = 0
        self._released = (0, 0)
        self._said = False
        self._blind = False
        # Until the first look nothing is known: as if the budget were the least that there may be.
        ports.lanes.watch(step_bytes(budget_bytes(pressure.memory_high, 0) or AUTO_BYTES_MIN))

    def take(self, message: ForPressure) -> None:
        """One message for the pass."""
        match message:
            case Look():
                if self.facts.doing == "nothing":
                    self.facts.doing = "looking"
                    self._ports.machine.look(lambda found: self._ports.warden.signal(Looked(found)))
            case Looked(found):
                self._looked(found)
            case Trimmed(found):
                self._trimmed(found)
            case PassOverdue(number):
                if self.facts.doing == "asking" and number == self._number:
                    self._trim()
            case Rested(key, bytes_):
                self._answered(key, bytes_)
            case StaysWarm(key):
                self._answered(key, None)

    def _looked(self, found: Reading | BaseException) -> None:
        self.facts.doing = "nothing"
        if isinstance(found, BaseException):
            self._cannot_see(found)
            return
        facts = self.facts
        self._blind = False
        first = facts.used is None
        budget = budget_bytes(self._pressure.memory_high, found.limit)
        facts.budget, facts.limit, facts.scope, facts.used = budget, found.limit, found.scope, found.used
        self._ports.lanes.watch(0 if budget is None else step_bytes(budget))
        if budget is None:
            if first:
                _log.info(
                    "%d MiB of memory are too few to keep warm conversations by; "
                    "agent.agent_cache.memory_high_mb sets a budget all the same",
                    found.limit // MIB,
                )
            return
        if found.used <= low_bytes(budget):
            self._said = False
        if found.used > budget:
            facts.over += 1
            self._begin(found.used, found.used - low_bytes(budget))

    def _cannot_see(self, error: BaseException) -> None:
        """Told once, until it works again: nothing is let go of on a guess."""
        if not self._blind:
            self._blind = True
            self._ports.on_error("memory", error)

    def _begin(self, used: int, excess: int) -> None:
        """Ask those whose turn it is."""
        lanes, stays = self._ports.lanes, self._ports.stays
        warm = (Warm(key, bytes_, stays(key) is None) for key, bytes_ in lanes.each())
        chosen = choose(warm, len(lanes), excess, self._pressure)
        if not chosen:
            self._say_too_much(used)
            return
        self._number += 1
        self._before = self.facts.before = used
        self._released = 0, 0
        self._asked = set(chosen)
        self.facts.asked += len(chosen)
        self.facts.doing = "asking"
        self._overdue = signal_later(
            self._ports.clock, PRESSURE_PASS_MS_MAX, self._ports.warden, PassOverdue(self._number)
        )
        for key in chosen:
            self._ports.ask(key)

    def _answered(self, key: str, bytes_: int | None) -> None:
        """One who answers after its pass counts all the same, until the next one begins."""
        if key not in self._asked:
            return
        self._asked.remove(key)
        if bytes_ is None:
            self.facts.refused += 1
        else:
            self.facts.released += 1
            self.facts.released_bytes += bytes_
            lanes, all_bytes = self._released
            self._released = lanes + 1, all_bytes + bytes_
        if self.facts.doing == "asking" and not self._asked:
            self._trim()

    def _trim(self) -> None:
        if self._overdue is not None:
            self._overdue.cancel()
            self._overdue = None
        if self._released[0]:
            self.facts.doing = "trimming"
            self._ports.machine.trim(lambda found: self._ports.warden.signal(Trimmed(found)))
        else:
            self.facts.doing = "nothing"
            self.facts.after = self._before
            self._say_too_much(self._before)

    def _trimmed(self, found: Reading | BaseException) -> None:
        self.facts.doing = "nothing"
        if isinstance(found, BaseException):
            self._cannot_see(found)
            return
        self.facts.used = self.facts.after = found.used
        lanes, bytes_ = self._released
        _log.info(
            "%d MiB of memory were in use, the budget is %d MiB: %d conversations were let go of (%d MiB of text and "
            "agents); %d MiB are in use now",
            self._before // MIB,
            (self.facts.budget or 0) // MIB,
            lanes,
            bytes_ // MIB,
            found.used // MIB,
        )

    def _say_too_much(self, used: int) -> None:
        """The budget can't be held: said once, until memory is well within it again."""
        if self._said:
            return
        self._said = True
        warm = len(self._ports.lanes)
        _log.warning(
            "%d MiB of memory are in use and the budget is %d MiB, but none of %d warm conversations can be let go of: "
            "%d are the most recent ones, the others are busy",
            used // MIB,
            (self.facts.budget or 0) // MIB,
            warm,
            protected(warm, self._pressure.protect_recent),
        )
