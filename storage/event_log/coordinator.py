"""What stands between the operations of a service and its backend: order, adoption, repair, claims (seed §§9-13).

Everything here runs on the service's loop, in tasks that nobody cancels; the backend's calls run on threads.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar

from seriatim.closers import closers, open_turn
from seriatim.errors import (
    HeadMismatchError,
    LogExistsError,
    LogNotFoundError,
    SequenceMismatchError,
    SessionFormatUnsupportedError,
    SessionLiveError,
    SessionReservedError,
    StoreUnhealthyError,
    WriteUnknownError,
)
from seriatim.limits import JSONL_LOGS_CACHED_MAX, LOG_WORKERS, PREPARE_TRIES_MAX
from seriatim.vocabulary import KNOWN_SESSION_EVENT_TYPES

from .backend import LogBackend, StoredLog
from .chains import Chains
from .formats import check_known
from .header import SessionHeader, check_session_id
from .ownership import SessionOwner
from .prepared import Prepared, PreparedPool
from .tracking import Tracked, Tracks
from .values import (
    Problem,
    RestoredSessionOptions,
    SessionEvent,
    SessionInspection,
    SessionPreparation,
    freeze_events,
)

P = ParamSpec("P")
T = TypeVar("T")
_log = logging.getLogger("seriatim.event_log")


class Coordinator:
    """The state of a service: who is queued, tracked, prepared and reserved."""

    def __init__(self, backend: LogBackend, owner: SessionOwner | None, prepared_max: int) -> None:
        self.owner = owner
        self._backend = backend
        self._pool = PreparedPool(prepared_max)
        self._tracks = Tracks()
        self._vetted: OrderedDict[str, tuple[str, int]] = OrderedDict()
        self._chains = Chains()
        self._threads = ThreadPoolExecutor(LOG_WORKERS, thread_name_prefix="seriatim-logs")

    async def create(self, header: SessionHeader) -> None:
        """See ``SessionPersistence.create``."""
        async with self._chains.turn(header.id):
            if self._tracks.get(header.id) is not None or self._is_live(header.id):
                raise LogExistsError(header.id)
            if await self.run(self._backend.revision, header.id) is not None:
                raise LogExistsError(header.id)
            self._tracks.put(Tracked(header, 0))

    async def append(self, session_id: str, batch: tuple[SessionEvent, ...], by: SessionOwner | None) -> None:
        """See ``SessionPersistence.append``."""
        if not batch:
            return
        if by is None or by is not self.owner:
            owner = self.owner
            if owner is not None and owner.is_live(session_id):
                await owner.append(session_id, batch)
                return
        async with self._chains.turn(session_id):
            if by is not self.owner and self._is_live(session_id):
                raise SessionLiveError(session_id, "has become live; append through its owner")
            if self._pool.reserved(session_id) is not None:
                raise SessionReservedError(session_id)
            track = self._tracks.get(session_id) or await self._adopt(session_id)
            if track.strayed:
                raise SequenceMismatchError(session_id, track.head, 0, batch[0].seq)
            if track.doubt:
                batch = await self._resolve(track, batch)
            track.check_fits(batch)
            await self._store(track, batch)

    async def _store(self, track: Tracked, batch: tuple[SessionEvent, ...]) -> None:
        session_id = track.header.id
        if not batch:
            return
        try:
            await self.run(self._backend.append, session_id, track.header, track.head, batch)
        except WriteUnknownError:
            track.doubt = batch
            raise
        except HeadMismatchError as error:
            if track.session is None:
                self._tracks.drop(session_id)  # somebody else writes this log; the next append looks again
            else:
                track.head = error.actual  # a live session's log is never adopted: that would close its turn
                track.strayed = True
            raise SequenceMismatchError(session_id, error.actual, 0, batch[0].seq) from error
        except (LogExistsError, LogNotFoundError):
            self._tracks.drop(session_id)
            raise
        finally:
            self._pool.invalidate(session_id)
        track.took(batch)

    async def _resolve(self, track: Tracked, batch: tuple[SessionEvent, ...]) -> tuple[SessionEvent, ...]:
        """Find out whether the batch in doubt is there; what of ``batch`` is still to be stored."""
        stored = await self.run(self._backend.read, track.header.id, track.head)
        doubt, track.doubt = track.doubt, ()
        if stored is None or stored.events != doubt:
            return batch
        track.took(doubt)
        return batch[len(doubt) :] if batch[: len(doubt)] == doubt else batch

    async def _adopt(self, session_id: str) -> Tracked:
        """Take up a stored log in order to append to it."""
        prepared = await self._committed(session_id)
        return self._tracks.put(Tracked(prepared.header, len(prepared.events)))

    async def _committed(self, session_id: str) -> Prepared:
        """The session, its repair on disk. What was committed is read again: the disk is what counts."""
        for _ in range(PREPARE_TRIES_MAX):
            prepared = await self._read(session_id)
            if not prepared.needs_repair:
                return prepared
            self._pool.invalidate(session_id)
            head = prepared.stored
            try:
                await self.run(self._backend.append, session_id, prepared.header, head, prepared.repair)
            except HeadMismatchError:
                _log.info("a session was repaired or continued by somebody else")
        raise StoreUnhealthyError(f"session {session_id!r} changes faster than it can be repaired")

    async def _read(self, session_id: str) -> Prepared:
        """The session as it reads, from the ready ones if its log is unchanged."""
        ready = self._pool.get(session_id)
        if ready is not None and ready.revision == await self.run(self._backend.revision, session_id):
            return ready
        self._pool.invalidate(session_id)
        stored = await self._stored(session_id)
        repair = freeze_events(closers(stored.events))
        prepared = Prepared(
            stored.header, stored.events + repair, repair, stored.revision, stored.incarnation, stored.torn_bytes
        )
        self._pool.put(session_id, prepared)
        return prepared

    async def _stored(self, session_id: str) -> StoredLog:
        """The whole log, whose format was found to be ours. Raises LogNotFoundError also for one without events."""
        stored = await self.run(self._backend.read, check_session_id(session_id))
        if stored is None or not stored.head:
            raise LogNotFoundError(session_id)
        await self._vet(stored)
        return stored

    async def _vet(self, stored: StoredLog) -> None:
        """Judge these events, on a thread (there may be a million), and remember how far the log was judged."""
        location = self._backend.locate(stored.header)
        path = None if location is None else location.path
        await self.run(check_known, stored.header.id, stored.events, KNOWN_SESSION_EVENT_TYPES, path)
        self._vetted[stored.header.id] = (stored.incarnation, stored.head)
        self._vetted.move_to_end(stored.header.id)
        if len(self._vetted) > JSONL_LOGS_CACHED_MAX:
            self._vetted.popitem(last=False)

    async def prepare(self, session_id: str, abandoned: asyncio.Event) -> SessionPreparation[Any]:
        """See ``SessionPersistence.prepare``. When ``abandoned``, it reserves nothing for nobody."""
        await self._settled(session_id)
        while True:
            if self._is_live(session_id):
                raise SessionLiveError(session_id, "is alive; it can't be prepared")
            await self._unreserved(session_id)
            async with self._chains.turn(session_id):
                if self._is_live(session_id) or self._pool.reserved(session_id) is not None:
                    continue
                prepared = await self._committed(session_id)
                if self._is_live(session_id):
                    continue
                self._tracks.put(Tracked(prepared.header, len(prepared.events)))
                if abandoned.is_set():
                    return SessionPreparation(None)
                session = self._restore(prepared)
                reservation = self._pool.reserve(session_id, prepared, session)
            return SessionPreparation(session, functools.partial(self._pool.release, session_id, reservation))

    def _restore(self, prepared: Prepared) -> Any:
        if self.owner is None:
            return prepared.view()
        return self.owner.restore(RestoredSessionOptions(prepared.events, prepared.header))

    async def load(self, session_id: str) -> SessionInspection:
        """See ``SessionPersistence.load``."""
        await self._settled(session_id)
        while True:
            owner = self.owner
            if owner is not None and owner.is_live(session_id):
                await owner.flush(session_id)
                live = _balanced(await owner.snapshot(session_id))
                await owner.flush(session_id)  # what came between the two is in the snapshot
                return live
            await self._unreserved(session_id)
            async with self._chains.turn(session_id):
                if self._is_live(session_id) or self._pool.reserved(session_id) is not None:
                    continue
                prepared = await self._committed(session_id)
                if self._tracks.get(session_id) is None:
                    self._tracks.put(Tracked(prepared.header, len(prepared.events)))
                return prepared.view()

    async def inspect(self, session_id: str) -> SessionInspection:
        """See ``SessionPersistence.inspect``."""
        await self._settled(session_id)
        async with self._chains.turn(session_id):
            if self.owner is not None and self.owner.is_live(session_id):
                return await self.owner.snapshot(session_id)
            reservation = self._pool.reserved(session_id)
            if reservation is not None:
                return reservation.prepared.view()
            return (await self._read(session_id)).view()

    async def inspect_salvage(self, session_id: str) -> SessionInspection:
        """The salvage view of ``SessionPersistence.inspect``."""
        found = await self.in_turn(session_id, self._backend.salvage)
        if found is None:
            raise LogNotFoundError(session_id)
        stored, problems = found
        known = tuple(e for e in stored.events if e.type in KNOWN_SESSION_EVENT_TYPES or e.ignorable)
        try:
            check_known(session_id, stored.events, KNOWN_SESSION_EVENT_TYPES)
        except SessionFormatUnsupportedError as error:
            problems = (*problems, Problem(session_id, error))
        return SessionInspection(stored.header, known, bool(problems), problems, stored.torn_bytes)

    async def read_from(self, session_id: str, from_seq: int) -> SessionInspection:
        """See ``SessionPersistence.read_from``."""
        await self._settled(session_id)
        async with self._chains.turn(session_id):
            incarnation, judged = self._vetted.get(session_id, ("", 0))
            stored = await self.run(self._backend.read, check_session_id(session_id), min(from_seq, judged))
            if stored is None or not stored.head:
                raise LogNotFoundError(session_id)
            if judged and stored.incarnation != incarnation:  # another log of the same id
                self._vetted.pop(session_id, None)
                stored = await self._stored(session_id)
            await self._vet(stored)
            return SessionInspection(stored.header, tuple(e for e in stored.events if e.seq >= from_seq))

    async def in_turn(self, session_id: str, step: Callable[[str], T]) -> T:
        """A backend's call about one session, when its turn has come."""
        async with self._chains.turn(check_session_id(session_id)):
            return await self.run(step, session_id)

    async def claim(self, header: SessionHeader, events: tuple[SessionEvent, ...], session: Any) -> int:
        """See ``SessionPersistence.claim``."""
        session_id = header.id
        async with self._chains.turn(session_id):
            reservation = self._pool.reserved(session_id)
            if reservation is not None:
                if reservation.session is not session:
                    raise SessionReservedError(session_id)
                self._pool.consume(session_id, reservation)
            track = self._tracks.get(session_id)
            if track is not None and track.session is not None:
                if track.session is not session:
                    raise SessionLiveError(session_id, "is another live object's")
                if not track.strayed:
                    return track.head
            stored = await self.run(self._backend.read, session_id)
            known = header if stored is None else stored.header
            if track is not None and stored is None:
                known = track.header
            if known.cwd != header.cwd:
                raise LogExistsError(session_id)
            head = 0 if stored is None else stored.head
            if stored is not None and stored.events != events[:head]:
                raise LogExistsError(session_id)
            self._pool.invalidate(session_id)
            claimed = Tracked(header if not head else known, head, session=session)
            claimed.open = open_turn(events[:head]) is not None
            self._tracks.put(claimed)
            return head

    async def release(self, session_id: str, session: Any) -> None:
        """See ``SessionPersistence.release``."""
        async with self._chains.turn(session_id):
            track = self._tracks.get(session_id)
            if track is not None and track.session is session:
                self._tracks.drop(session_id)

    async def run(self, step: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The result of a backend's call, made on one of the threads."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, functools.partial(step, *args, **kwargs))

    def stop_waiting(self) -> None:
        """End every reservation, so that nobody waits for one."""
        self._pool.clear()

    async def close(self) -> None:
        """Close the backend and end the threads."""
        try:
            await self.run(self._backend.close)
        finally:
            self._threads.shutdown(wait=False)

    def _is_live(self, session_id: str) -> bool:
        return self.owner is not None and self.owner.is_live(session_id)

    async def _settled(self, session_id: str) -> None:
        """Wait until a live session that is being retired has stored its last word."""
        if self.owner is not None:
            await self.owner.retired(session_id)

    async def _unreserved(self, session_id: str) -> None:
        """Wait until nobody has the session reserved."""
        while (reservation := self._pool.reserved(session_id)) is not None:
            await reservation.over.wait()


def _balanced(live: SessionInspection) -> SessionInspection:
    """A live session that may be loaded: stored, with every turn closed."""
    if not live.events:
        raise LogNotFoundError(live.meta.id)
    if open_turn(live.events) is not None:
        raise SessionLiveError(live.meta.id, "is alive and has an open turn; only its owner can end it")
    return live
