"""SessionPersistence: the event-log seed's operations over any backend.

An operation is a coroutine on the caller's loop; the backend works on a few threads beside it. Operations on one
session run one after another, in the order of their calls; on different sessions side by side. What has begun settles
as itself: cancelling a caller takes away the caller, not the work.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, ParamSpec, Self, TypeVar, cast

from seriatim.errors import PersistenceClosedError, RawArtifactsUnsupportedError
from seriatim.events import Event
from seriatim.limits import LIST_PAGE, PREPARED_MAX
from seriatim.storage.contract import Store

from .backend import LogBackend, StoredPage
from .chains import Work
from .coordinator import Coordinator
from .formats import check_version
from .header import SessionHeader
from .ownership import SessionOwner
from .store_logs import StoreLogs
from .values import (
    SessionInspection,
    SessionLocation,
    SessionPersistenceSnapshot,
    SessionPreparation,
    SessionRawArtifact,
    check_from_seq,
    freeze_events,
)

P = ParamSpec("P")
T = TypeVar("T")
Headers = list[SessionHeader]  # the class has a method of that name
Snapshots = list[SessionPersistenceSnapshot]
_log = logging.getLogger("seriatim.event_log")


class SessionPersistence:
    """Durable sessions in ``backend``: a store (SqliteStore, MemoryStore), JsonlLogs, or another LogBackend.

    ``owner``: who has sessions alive, if anybody; see ``bind``. ``prepared_max``: sessions kept ready after a read.
    The backend is the service's from now on: ``close`` closes it. All operations raise PersistenceClosedError then.
    """

    def __init__(
        self,
        backend: LogBackend | Store,
        *,
        owner: SessionOwner | None = None,
        prepared_max: int = PREPARED_MAX,
    ) -> None:
        is_store = not hasattr(backend, "supports_raw_artifacts")
        self._backend = StoreLogs(cast("Store", backend)) if is_store else cast("LogBackend", backend)
        self._inner = Coordinator(self._backend, owner, prepared_max)
        self._work = Work()
        self._closing: asyncio.Task[None] | None = None

    def bind(self, owner: SessionOwner) -> None:
        """Say who has sessions alive from now on. At most one; a second one must speak for both."""
        self._inner.owner = owner

    # Plain

    @property
    def supports_raw_artifacts(self) -> bool:
        """Whether ``read_raw`` works with this backend."""
        return self._backend.supports_raw_artifacts

    def locate(self, header: SessionHeader) -> SessionLocation | None:
        """Where the session's own artifact is or would be; reads and makes nothing. None: it has none here."""
        return self._backend.locate(header)

    # Writing

    async def create(self, header: SessionHeader) -> None:
        """Take the id for a new session. Nothing is stored before its first append, so it isn't listed either.

        Raises LogExistsError for an id in memory or on disk, SessionFormatUnsupportedError for another version.
        """
        check_version(header.id, header.version)
        await self._do(self._inner.create, header)

    def append(
        self, session_id: str, events: Iterable[Event], *, by: SessionOwner | None = None
    ) -> Coroutine[Any, Any, None]:
        """Store a batch; durable, whole, when it returns. The batch is taken as it is at the call.

        The first event's seq is the number of stored events. A stored session is adopted first: a torn end is cut, an
        open turn closed. A live session is appended to by its owner; ``by`` is the owner's own writing. Raises
        LosslessJsonError at the call, SequenceMismatchError, LogNotFoundError, SessionReservedError,
        StoreUnhealthyError (surely absent), WriteUnknownError (offer the same batch again: it isn't stored twice).
        """
        return self._do(self._inner.append, session_id, freeze_events(events), by)

    async def prepare(self, session_id: str) -> SessionPreparation[Any]:
        """Reserve a stored session for a resume, repaired on disk, and make the unpublished session of it.

        Waits for another reservation. ``session`` is what the owner's ``restore`` makes, without an owner the
        SessionInspection. Raises SessionLiveError, LogNotFoundError and what ``load`` raises.
        """
        self._check_open()
        abandoned = asyncio.Event()
        task = self._work.start(self._inner.prepare(session_id, abandoned))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            abandoned.set()
            task.add_done_callback(_dispose_unclaimed)
            raise

    async def load(self, session_id: str) -> SessionInspection:
        """The session with every turn closed, the closers stored if they were missing.

        A live session is flushed, and refused (SessionLiveError) while its turn is open. Raises LogNotFoundError,
        SessionPersistenceCorruptionError, SessionFormatUnsupportedError.
        """
        return await self._do(self._inner.load, session_id)

    # Reading

    async def inspect(self, session_id: str, *, salvage: bool = False) -> SessionInspection:
        """The session as it reads, closers added in memory only. Stores nothing; a torn end stays where it is.

        A live session is shown as it is, with an open turn. Raises as ``load``, unless ``salvage``: then what can be
        trusted is shown, marked ``partial`` with its ``problems``, without closers.
        """
        self._check_open()
        step = self._inner.inspect_salvage if salvage else self._inner.inspect
        return await self._work.share((step.__name__, session_id), step, session_id)

    async def read_from(self, session_id: str, from_seq: int) -> SessionInspection:
        """The stored events from ``from_seq`` on, as they lie there: no closers, no repair; none past the end.

        The whole log must be of a format that this version reads, as everywhere. Raises InvalidInputError for a
        number that isn't whole and from 0 on; as ``load`` otherwise.
        """
        check_from_seq(from_seq)
        return await self._do(self._inner.read_from, session_id, from_seq)

    async def read_raw(self, session_id: str) -> SessionRawArtifact | None:
        """The session's artifact as stored; None when there is none. Raises RawArtifactsUnsupportedError."""
        self._check_open()
        if not self.supports_raw_artifacts:
            raise RawArtifactsUnsupportedError("this backend keeps no artifact per session")
        return await self._do(self._inner.in_turn, session_id, self._backend.read_raw)

    async def list(self) -> Headers:
        """The header of every session that holds events, in no particular order. Bad ones are logged and left out."""
        return [snapshot.header for snapshot in await self.list_snapshots()]

    async def list_snapshots(self) -> Snapshots:
        """``list``, with the revision of each log."""
        found: Snapshots = []
        after: str | None = None
        while True:
            page = await self.survey(after)
            found += page.snapshots
            for problem in page.problems:
                _log.warning("a session can't be listed: %s", problem.error)
            if page.next is None:
                return found
            after = page.next

    async def survey(self, after: str | None = None, limit: int = LIST_PAGE) -> StoredPage:
        """A page of sessions, and what is wrong with those that can't be listed; goes on at ``after=page.next``."""
        self._check_open()
        return await self._inner.run(self._backend.page, after, limit)

    # Live sessions

    async def claim(self, header: SessionHeader, events: Iterable[Event], session: Any) -> int:
        """A live session appears; how many of its events are stored. The owner writes the rest, with ``by``.

        A prepared one is published by it. Claiming again changes nothing. Raises SessionLiveError where another
        object has the id, SessionReservedError where another object is prepared, LogExistsError where what is stored
        is no beginning of ``events``, or has another working directory.
        """
        return await self._do(self._inner.claim, header, freeze_events(events), session)

    async def release(self, session_id: str, session: Any) -> None:
        """The live session is gone, and all of it is stored; a superseded object's release does nothing."""
        await self._do(self._inner.release, session_id, session)

    async def close(self) -> None:
        """Refuse what is new, finish what has begun, close the backend. Idempotent."""
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_task(self._close())
        await asyncio.shield(self._closing)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _do(self, step: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs) -> T:
        self._check_open()
        return await self._work.do(step, *args, **kwargs)

    def _check_open(self) -> None:
        if self._closing is not None:
            raise PersistenceClosedError("the event-log service is closed")

    async def _close(self) -> None:
        self._inner.stop_waiting()
        await self._work.drain()
        await self._inner.close()


def _dispose_unclaimed(task: asyncio.Task[SessionPreparation[Any]]) -> None:
    """Give back what a cancelled caller will never hold."""
    if not task.cancelled() and task.exception() is None:
        task.result().dispose()
