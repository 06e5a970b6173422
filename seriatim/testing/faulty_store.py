"""A store that fails on demand, over any other store.

Fault model: a fault strikes one commit of a group; the others of the group go through to the inner store
as if the struck one hadn't been offered (or, for ``UNKNOWN_DONE``, as if it had). The callbacks run on
the writer's thread, before and after each call of ``commit``; one that raises is a crash of the process at
that point: the exception leaves ``commit`` as it is. Nothing here tears a group: the backends' own crash
tests do that.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Callable, Iterator, Sequence

from seriatim.commits import Commit, Durable, Outcome, Refused, Unknown
from seriatim.errors import StoreUnhealthyError
from seriatim.storage.contract import Store

from .wrapped_store import WrappedStore


class Fault(enum.Enum):
    """What happens to a commit instead of the plain course."""

    REFUSED = "refused"
    """Refused(StoreUnhealthyError); surely absent."""
    UNKNOWN_DONE = "unknown, done"
    """Offered to the inner store; whatever it answers, Unknown is reported where it was Durable."""
    UNKNOWN_LOST = "unknown, lost"
    """Not offered; Unknown is reported."""


class SimulatedCrash(BaseException):
    """Raised by a callback to stop everything at a point; no handler for Exception may catch it."""


Script = Callable[[int, Commit], Fault | None]
Before = Callable[[Sequence[Commit]], None]
After = Callable[[Sequence[Commit], Sequence[Outcome]], None]


class FaultyStore(WrappedStore):
    """Wraps ``inner``.

    ``script``: asked for each commit with its running number (from 0, over the store's life); faults
    given to ``fail_next`` come first. ``before`` and ``after`` get each group, ``after`` with the outcomes
    as the caller will see them. ``offered`` counts commits, ``calls`` groups.
    """

    def __init__(
        self,
        inner: Store,
        *,
        script: Script | None = None,
        before: Before | None = None,
        after: After | None = None,
    ) -> None:
        super().__init__(inner)
        self.script = script
        self.before = before
        self.after = after
        self.offered = 0
        self.calls = 0
        self._next: deque[Fault] = deque()

    def fail_next(self, fault: Fault, count: int = 1) -> None:
        """Strike the next ``count`` commits, after those already due."""
        self._next.extend([fault] * count)

    def commit(self, commits: Sequence[Commit]) -> list[Outcome]:
        """See ``Store.commit``; raises only what a callback raises."""
        self.calls += 1
        if self.before is not None:
            self.before(commits)
        faults = [self._fault(commit) for commit in commits]
        through = [
            commit
            for commit, fault in zip(commits, faults, strict=True)
            if fault is None or fault is Fault.UNKNOWN_DONE
        ]
        answers = iter(self.inner.commit(through) if through else [])
        outcomes = [self._outcome(commit, fault, answers) for commit, fault in zip(commits, faults, strict=True)]
        if self.after is not None:
            self.after(commits, outcomes)
        return outcomes

    def _fault(self, commit: Commit) -> Fault | None:
        number = self.offered
        self.offered += 1
        if self._next:
            return self._next.popleft()
        return None if self.script is None else self.script(number, commit)

    def _outcome(self, commit: Commit, fault: Fault | None, answers: Iterator[Outcome]) -> Outcome:
        if fault is Fault.REFUSED:
            return Refused(commit.id, StoreUnhealthyError("scripted: the medium refuses"))
        if fault is Fault.UNKNOWN_LOST:
            return Unknown(commit.id, "scripted: lost")
        answer = next(answers)
        if fault is Fault.UNKNOWN_DONE and isinstance(answer, Durable):
            return Unknown(commit.id, "scripted: done")
        return answer
