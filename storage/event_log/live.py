"""LiveSessions: the sessions that are alive, with their logs in memory and storage running behind (seed §§7, 11).

For those who use the event-log service alone; a gateway's lanes have gates instead. It is the ``SessionOwner`` of the
service it is attached to: while a session is alive, only what was appended here reaches its log. Everything runs on
the loop on which it is used.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

from seriatim.clock import Clock, Timer
from seriatim.errors import (
    InvalidInputError,
    LogExistsError,
    LogNotFoundError,
    PersistenceClosedError,
    SequenceMismatchError,
    SessionForkError,
    SessionGoneError,
    SessionLiveError,
    SessionReservedError,
)
from seriatim.events import Event
from seriatim.limits import WRITE_WINDOW_MS

from .backing import Backing, LiveState, seen
from .header import make_header
from .persistence import SessionPersistence
from .session import Session
from .values import (
    CreateSessionOptions,
    RestoredSessionOptions,
    SessionInspection,
    SessionPreparation,
    freeze_events,
)
from .write_behind import check_window

_log = logging.getLogger("seriatim.event_log")


class LiveSessions:
    """The sessions that are alive.

    ``window_ms``: how long an event may wait for others to be stored with it. ``on_error`` hears the session's id and
    what a background write failed with, once each; they never go into the log.
    """

    def __init__(
        self,
        clock: Clock | None = None,
        *,
        window_ms: float = WRITE_WINDOW_MS,
        on_error: Callable[[str, Exception], None] | None = None,
    ) -> None:
        self._clock = _LoopClock() if clock is None else clock
        self._window_ms = check_window(window_ms)
        self._on_error = on_error
        self._service: SessionPersistence | None = None
        self._live: dict[str, Backing] = {}
        self._unpublished: dict[str, Session] = {}
        self._closed = False

    # Life of a session

    async def create(self, session_id: str, options: CreateSessionOptions | None = None) -> Session:
        """A new live session; nothing of it is stored before its first event.

        Raises SessionLiveError or SessionReservedError for an id that is alive or prepared, LogExistsError for one
        that is stored with other events than the seed begins with, InvalidInputError for seed or meta.
        """
        await self.retired(session_id)
        self._check_free(session_id)
        return await self._publish(self._made(session_id, options))

    def prepare(
        self, session_id: str, options: CreateSessionOptions | RestoredSessionOptions | None = None
    ) -> SessionPreparation[Session]:
        """An unpublished session: set it up, then ``publish`` it, or dispose. The id is kept for it meanwhile."""
        self._check_free(session_id)
        if isinstance(options, RestoredSessionOptions):
            if options.meta.id != session_id:
                raise InvalidInputError("meta", f"is the header of {options.meta.id!r}")
            session = self.restore(options)
        else:
            session = self._made(session_id, options)
        self._unpublished[session_id] = session
        return SessionPreparation(session, lambda: self._forget_unpublished(session))

    async def publish(self, preparation: SessionPreparation[Session]) -> Session:
        """Make a prepared session live; it consumes the preparation. Publishing again changes nothing.

        Raises as ``create``; then the preparation is still the caller's to dispose. SessionGoneError for a session
        that was retired, or that could not be published before: prepare another.
        """
        session = preparation.session
        self._check_free(session.id, session)
        if session.gone:
            raise SessionGoneError(session.id)
        published = await self._publish(session)
        preparation.dispose()
        return published

    async def resume(self, session_id: str) -> Session:
        """A stored session, repaired, alive again. Raises what ``SessionPersistence.prepare`` raises."""
        if self._service is None:
            raise LogNotFoundError(session_id)
        with await self._service.prepare(session_id) as preparation:
            return await self.publish(preparation)

    async def fork(
        self,
        source: Session | str,
        child_id: str,
        boundary: int | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> Session:
        """A new session that begins with the source's events up to ``boundary`` (its seq, inclusive).

        Without one, up to the latest moment at which no turn is open. The child gets the source's id, the number of
        inherited events and the working directory; ``meta`` may say more. Raises SessionForkError.
        """
        live = self._live.get(source if isinstance(source, str) else source.id)
        name = source if isinstance(source, str) else source.id
        if live is None and isinstance(source, str):
            raise SessionForkError(name, "source not found", "there is no such live session")
        if live is None or live.retiring is not None or (isinstance(source, Session) and live.session is not source):
            raise SessionForkError(name, "source not live", "that object isn't alive")
        if child_id in self._live or child_id in self._unpublished:
            raise SessionForkError(name, "child exists", f"{child_id!r} is taken")
        parent = live.session
        seed = parent.events_from(0, _fork_length(parent, boundary))
        lineage = {"parent_session": parent.id, "seed_length": len(seed), "cwd": parent.header.cwd}
        try:
            return await self.create(child_id, CreateSessionOptions(seed, {**lineage, **(meta or {})}))
        except LogExistsError as error:
            raise SessionForkError(name, "child exists", f"{child_id!r} is stored") from error

    async def retire(self, session_id: str) -> None:
        """Take no more appends, store what waits, forget the session. Others wait for it meanwhile.

        Raises what kept it from being stored; then it is kept, and ``retire`` or ``close`` tries again.
        """
        live = self._live.get(session_id)
        if live is None:
            return
        if live.retiring is None:
            live.session.retire()
            live.retiring = asyncio.get_running_loop().create_task(self._retire(live))
            live.retiring.add_done_callback(seen)
        await asyncio.shield(live.retiring)

    async def close(self) -> None:
        """Take nothing new, store everything, forget all. Raises an ExceptionGroup with what could not be stored.

        Those sessions are kept, and closing again tries again. The service is its opener's to close.
        """
        self._closed = True
        await self._for_all("could not be stored", lambda live: self.retire(live.session.id))

    # Storage

    async def attach(self, service: SessionPersistence) -> None:
        """Have ``service`` store every session, from now on and those that live already.

        Whatever a service before it had stored must be where the logs begin; what is missing is written, a torn batch
        is cut, and no turn is closed: it is running. Raises an ExceptionGroup of those whose stored log is another's.
        """
        service.bind(self)
        self._service = service
        for live in self._live.values():
            live.attach(service)
        await self._for_all("could not be adopted", Backing.claimed)

    async def detach(self) -> None:
        """Store everything, then go on in memory alone. Raises an ExceptionGroup with what could not be stored."""
        try:
            await self._for_all("could not be stored", Backing.flush)
        finally:
            self._service = None
            for live in self._live.values():
                live.cut_off()

    # SessionOwner

    def is_live(self, session_id: str) -> bool:
        """Whether the session is alive, or about to be retired."""
        return session_id in self._live

    def restore(self, options: RestoredSessionOptions) -> Session:
        """The unpublished session of stored values."""
        return Session.restored(options, self._clock.now_ms)

    async def snapshot(self, session_id: str) -> SessionInspection:
        """The session as it is now. Raises LogNotFoundError when it isn't alive."""
        return self._get(session_id).session.inspection()

    async def flush(self, session_id: str) -> None:
        """Return when all that the session holds now is durable; at once without a service.

        Raises what kept it from being so, SessionGoneError or LogNotFoundError among it.
        """
        await self._get(session_id).flush()

    async def append(self, session_id: str, events: Sequence[Event]) -> None:
        """Append and store; durable when it returns. Raises SequenceMismatchError where they don't go on."""
        session = self._get(session_id).session
        batch = freeze_events(events)
        for index, event in enumerate(batch):
            if event.seq != session.head + index:
                raise SequenceMismatchError(session_id, session.head + index, index, event.seq)
        session.extend(batch)
        await self.flush(session_id)

    async def retired(self, session_id: str) -> None:
        """Return when no retirement of the session is going on, however it ended."""
        live = self._live.get(session_id)
        if live is not None and live.retiring is not None:
            await asyncio.wait([live.retiring])

    # Looking

    def get(self, session_id: str) -> Session | None:
        """The live session."""
        live = self._live.get(session_id)
        return None if live is None else live.session

    def states(self) -> dict[str, LiveState]:
        """Every live session's id, and how far storage is behind it."""
        return {name: live.state() for name, live in self._live.items()}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # --- inside ----------------------------------------------------------------------------------------

    def _made(self, session_id: str, options: CreateSessionOptions | None) -> Session:
        chosen = CreateSessionOptions() if options is None else options
        now = self._clock.now_ms
        return Session.seeded(make_header(session_id, now(), chosen.meta), chosen.seed, now)

    def _check_free(self, session_id: str, session: Session | None = None) -> None:
        if self._closed:
            raise PersistenceClosedError("live sessions are closed")
        live = self._live.get(session_id)
        if live is not None and live.session is not session:
            raise SessionLiveError(session_id, "is alive already")
        if self._unpublished.get(session_id, session) is not session:
            raise SessionReservedError(session_id)

    def _forget_unpublished(self, session: Session) -> None:
        if self._unpublished.get(session.id) is session:
            del self._unpublished[session.id]

    async def _publish(self, session: Session) -> Session:
        live = self._live.get(session.id)
        if live is None:
            live = Backing(session, self, self._clock, self._window_ms, self._failed)
            self._live[session.id] = live
            session.observe(lambda *_: live.appended())
            if self._service is not None:
                live.attach(self._service)
        try:
            await live.claimed()
        except asyncio.CancelledError:
            asyncio.get_running_loop().create_task(self.retire(session.id)).add_done_callback(seen)
            raise
        except Exception:
            session.retire()
            self._remove(live)
            raise
        return session

    def _failed(self, session_id: str, error: Exception) -> None:
        if self._on_error is not None:
            try:
                self._on_error(session_id, error)
            except Exception:  # noqa: BLE001 - who listens for errors makes none
                _log.exception("on_error failed")

    async def _retire(self, live: Backing) -> None:
        try:
            await live.flush()
            await live.release()
        except BaseException:
            live.retiring = None
            raise
        self._remove(live)

    def _remove(self, live: Backing) -> None:
        live.cut_off()
        if self._live.get(live.session.id) is live:
            del self._live[live.session.id]

    def _get(self, session_id: str) -> Backing:
        live = self._live.get(session_id)
        if live is None:
            raise LogNotFoundError(session_id)
        return live

    async def _for_all(self, what: str, step: Callable[[Backing], Any]) -> None:
        """Do it for every session, whatever becomes of the others."""
        answers = await asyncio.gather(*map(step, list(self._live.values())), return_exceptions=True)
        errors = [answer for answer in answers if isinstance(answer, Exception)]
        if errors:
            raise ExceptionGroup(f"{len(errors)} live sessions {what}", errors)


class _LoopClock:
    """The clock of whoever brings none: the machine's time, timers on the running loop."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> float:
        return time.monotonic() * 1000

    def call_later(self, delay_ms: float, fn: Callable[[], object]) -> Timer:
        return asyncio.get_running_loop().call_later(delay_ms / 1000, fn)


def _fork_length(parent: Session, boundary: int | None) -> int:
    """How many events a fork inherits. Raises SessionForkError unless no turn is open there."""
    events = parent.events
    if boundary is not None and (type(boundary) is not int or not 0 <= boundary < len(events)):
        raise SessionForkError(parent.id, "bad boundary", f"it has no event {boundary!r}")
    length = len(events) if boundary is None else boundary + 1
    opened = 0
    for event in events[:length]:
        if event.type == "turn/start":
            opened = event.seq + 1
        elif event.type == "turn/end":
            opened = 0
    if not opened:
        return length
    if boundary is None:
        return opened - 1
    raise SessionForkError(parent.id, "open turn", f"a turn is open after event {boundary}")
