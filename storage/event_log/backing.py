"""How storage follows one live session: the claim of its log, its write-behind, its errors (seed §§11, 12)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from attrs import frozen

from seriatim.clock import Clock
from seriatim.errors import CommitTooLargeError, LogExistsError, LogNotFoundError, SequenceMismatchError
from seriatim.limits import WRITE_BATCH_EVENTS_MAX

from .ownership import SessionOwner
from .persistence import SessionPersistence
from .session import Session
from .write_behind import State, WriteBehind

_log = logging.getLogger("seriatim.event_log")
_DIVERGED = (SequenceMismatchError, LogExistsError, LogNotFoundError)


@frozen
class LiveState:
    """How far storage is behind one live session.

    ``state``: "blocked" after a failed write, until another event or a flush; "memory" without a service. ``error``:
    what the last write failed with.
    """

    state: State | str
    events: int
    stored: int
    error: Exception | None


class Backing:
    """One live session, and its storage while there is any. Runs on the service's loop.

    ``owner`` signs its writes; ``failed`` hears what a background write failed with, once each. ``retiring``: the
    session's retirement, while it goes on.
    """

    def __init__(
        self,
        session: Session,
        owner: SessionOwner,
        clock: Clock,
        window_ms: float,
        failed: Callable[[str, Exception], None],
    ) -> None:
        self.session = session
        self.retiring: asyncio.Task[None] | None = None
        self._owner = owner
        self._clock = clock
        self._window_ms = window_ms
        self._tell = failed
        self._service: SessionPersistence | None = None
        self._writer: WriteBehind | None = None
        self._claiming: asyncio.Task[None] | None = None
        self._claimed = False
        self._error: Exception | None = None

    def attach(self, service: SessionPersistence) -> None:
        """Be stored by ``service`` from now on; see ``claimed``."""
        self.cut_off()
        self._service = service
        self._start_claim(service)

    def cut_off(self) -> None:
        """Write nothing more through the service that there was."""
        if self._writer is not None:
            self._writer.stop()
        self._service = self._writer = self._claiming = None
        self._claimed = False

    async def claimed(self) -> None:
        """Wait until storage has taken the session. Raises why it doesn't."""
        if self._claiming is not None:
            await asyncio.shield(self._claiming)

    def appended(self) -> None:
        """The session has one event more."""
        if self._writer is not None:
            self._writer.accept(1)

    async def flush(self) -> None:
        """Return when all that the session holds is stored; at once without a service. Raises what prevents it."""
        service = self._service
        if service is None:
            return
        if self._writer is None and (self._claiming is None or self._claiming.done()):
            self._start_claim(service)
        await self.claimed()
        if self._writer is not None:
            try:
                await self._writer.flush()
            except Exception as error:
                self._error = error
                raise
            self._error = None

    async def release(self) -> None:
        """The session is stored and about to be forgotten."""
        if self._service is not None:
            await self._service.release(self.session.id, self.session)

    def state(self) -> LiveState:
        """How far storage is behind."""
        writer = self._writer
        if writer is None:
            state = "memory" if self._service is None else "waiting" if self._error is None else "blocked"
            return LiveState(state, self.session.head, 0, self._error)
        return LiveState(writer.state, writer.accepted, writer.stored, self._error)

    # --- inside ----------------------------------------------------------------------------------------

    def _start_claim(self, service: SessionPersistence) -> None:
        self._claiming = asyncio.get_running_loop().create_task(self._claim(service))
        self._claiming.add_done_callback(seen)

    async def _claim(self, service: SessionPersistence) -> None:
        session = self.session
        try:
            stored = await service.claim(session.header, session.events, session)
        except Exception as error:
            self._error = error
            raise
        if self._service is not service:
            return  # another service took over meanwhile
        self._claimed = True

        async def write(first: int, last: int) -> int:
            return await self._write(service, first, last)

        self._writer = WriteBehind(write, self._clock, self._window_ms, self._failed, stored)
        if session.head > stored:
            self._writer.accept(session.head - stored)

    async def _write(self, service: SessionPersistence, first: int, last: int, *, again: bool = False) -> int:
        """Store a batch; how many events are stored then.

        Where the log isn't where it was left, it is looked at anew: a write whose answer got lost has been stored.
        """
        session = self.session
        last = min(last, first + WRITE_BATCH_EVENTS_MAX)
        try:
            if self._claimed:
                await service.append(session.id, session.events_from(first, last), by=self._owner)
                return last
        except CommitTooLargeError:
            if last - first == 1:
                raise
            return await self._write(service, first, first + (last - first) // 2)
        except _DIVERGED as error:
            self._claimed = False
            if again:
                raise
            _log.info("the log of session %s is not where it was left: %s", session.id, error)
        stored = await service.claim(session.header, session.events, session)
        self._claimed = True
        return stored if stored > first else await self._write(service, first, last, again=True)

    def _failed(self, error: Exception) -> None:
        self._error = error
        _log.warning("session %s: a background write failed, its events are kept: %s", self.session.id, error)
        self._tell(self.session.id, error)


def seen(task: asyncio.Task[Any]) -> None:
    """Whoever waits for the task has its error; if nobody does, nobody is told of it at exit."""
    if not task.cancelled():
        task.exception()
