"""The simulated disk, and the store on it: slow is the world's choice, the rest of what a store may do is in here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

from seriatim.commits import Commit, Outcome, Unknown
from seriatim.errors import StoreUnhealthyError
from seriatim.events import Event, LogId
from seriatim.storage.contract import Store, StoreReader
from seriatim.storage.memory import MemoryDisk, MemoryStore
from seriatim.testing.faulty_store import Fault, FaultyStore, SimulatedCrash
from seriatim.testing.process import BY_US
from seriatim.testing.witness import WitnessedStore, whole

if TYPE_CHECKING:
    from seriatim.testing.simulator import Simulator

OUTAGE_COMMITS: Final = 12
"""So many commits in a row are refused when the medium fails for a while."""


class UnsureDisk:
    """Outlives every process; what opens on it refuses, answers Unknown, raises, kills or can't read, by chance."""

    def __init__(self, world: Simulator) -> None:
        self._world = world
        self._disk = MemoryDisk()
        self._archived: dict[LogId, list[Event]] = {}
        self._outage = 0

    def open(self) -> Store:
        """A store on it."""
        inner = WitnessedStore(MemoryStore(self._disk), self._world.witness, lambda _, do: do(), self._archived)
        return FaultyStore(inner, script=self._fault, before=self._before, after=self._after)

    def reader(self, store: Store) -> StoreReader:
        """The lanes' way to read it."""
        return cast("StoreReader", _UnsureReader(store.reader(), self._before_read))

    def whole(self, reader: StoreReader, log: LogId) -> list[Event]:
        """All events of a log, those that its archive stands for included."""
        return whole(reader, log, self._archived)

    def _fault(self, number: int, commit: Commit) -> Fault | None:
        world, plan, hits = self._world, self._world.plan, self._world.dice.hits
        if not world.faults:
            return None
        # A store looks id and keys up before anything else can refuse.
        known = commit.id in self._disk.ids or any(key in self._disk.keys for key in commit.unique)
        refused = None if known else Fault.REFUSED
        if self._outage or hits("outage", plan.outage):
            self._outage = self._outage - 1 if self._outage else OUTAGE_COMMITS
            return refused
        if hits("refused", plan.refused):
            return refused
        if hits("unknown", plan.unknown):
            return world.dice.pick("which unknown", (Fault.UNKNOWN_DONE, Fault.UNKNOWN_LOST))
        return None

    def _before(self, commits: Sequence[Commit]) -> None:
        self._tear("before a commit")

    def _after(self, commits: Sequence[Commit], outcomes: Sequence[Outcome]) -> None:
        world = self._world
        for commit, outcome in zip(commits, outcomes, strict=True):
            world.unknowns += type(outcome) is Unknown
            events = [event.type for part in commit.parts for event in part.events]
            world.note(commit.lane.removeprefix("lane:"), f"commit {commit.id} {type(outcome).__name__}: {events}")
        self._tear("after a commit")

    def _tear(self, where: str) -> None:
        """The process dies here, or the store raises and leaves open what it wrote."""
        world = self._world
        if not world.faults:
            return
        if world.dice.hits("torn", world.plan.torn):
            raise SimulatedCrash(where)
        if world.dice.hits("torn", world.plan.torn):
            world.unknowns += 1
            raise OSError(BY_US)

    def _before_read(self, log: LogId) -> None:
        world = self._world
        if world.faults and world.dice.hits("unreadable", world.plan.unreadable):
            raise StoreUnhealthyError(f"{log}: {BY_US}")


class _UnsureReader:
    """A reader that calls ``before`` at each log, and raises what that raises."""

    def __init__(self, inner: StoreReader, before: Callable[[LogId], None]) -> None:
        self._inner = inner
        self._before = before

    def read(self, log: LogId, from_seq: int = 0, limit: int | None = None) -> list[Event]:
        """See ``StoreReader.read``."""
        self._before(log)
        return self._inner.read(log, from_seq, limit)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)
