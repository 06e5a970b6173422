"""Sessions that were read, kept whole for a while: a look at the history and then a resume read once (seed §13).

Used on the service's loop only. Ready ones are bounded, the least recently used goes first; a reserved one stays
until its preparation is disposed or published.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import Any

import attrs
from attrs import frozen

from seriatim.errors import InvalidInputError

from .header import SessionHeader
from .values import Revision, SessionEvent, SessionInspection


@frozen(eq=False)
class Prepared:
    """One stored session as it reads: what is on disk, and the closers that it needs.

    ``events``: the stored ones, then ``repair``. ``revision``: of the stored ones.
    """

    header: SessionHeader
    events: tuple[SessionEvent, ...]
    repair: tuple[SessionEvent, ...]
    revision: Revision
    incarnation: str
    torn_bytes: int

    @property
    def stored(self) -> int:
        """How many of the events are on disk."""
        return len(self.events) - len(self.repair)

    @property
    def needs_repair(self) -> bool:
        """Whether committing it would change the disk."""
        return bool(self.repair or self.torn_bytes)

    def view(self) -> SessionInspection:
        """What a caller may see of it."""
        return SessionInspection(self.header, self.events, lost_bytes=self.torn_bytes)


@attrs.define(eq=False)
class Reservation:
    """Who is about to resume a session. ``valid``: nobody has changed the log since."""

    prepared: Prepared
    session: Any
    valid: bool = True
    over: asyncio.Event = attrs.Factory(asyncio.Event)


class PreparedPool:
    """At most ``capacity`` ready sessions, and the reserved ones. Raises InvalidInputError for a capacity below 1."""

    def __init__(self, capacity: int) -> None:
        if type(capacity) is not int or capacity < 1:
            raise InvalidInputError("prepared_max", "is not a whole number from 1 on")
        self._capacity = capacity
        self._ready: OrderedDict[str, Prepared] = OrderedDict()
        self._reserved: dict[str, Reservation] = {}

    def get(self, session_id: str) -> Prepared | None:
        """The ready session, which is then the most recently used."""
        prepared = self._ready.get(session_id)
        if prepared is not None:
            self._ready.move_to_end(session_id)
        return prepared

    def put(self, session_id: str, prepared: Prepared) -> None:
        """Keep it ready, and let go of what is then too much."""
        self._ready[session_id] = prepared
        self._ready.move_to_end(session_id)
        while len(self._ready) > self._capacity:
            self._ready.popitem(last=False)

    def reserved(self, session_id: str) -> Reservation | None:
        """The reservation that keeps others from the session."""
        return self._reserved.get(session_id)

    def reserve(self, session_id: str, prepared: Prepared, session: Any) -> Reservation:
        """Take the session out of the ready ones for one resume. It must not be reserved."""
        assert session_id not in self._reserved
        self._ready.pop(session_id, None)
        made = self._reserved[session_id] = Reservation(prepared, session)
        return made

    def release(self, session_id: str, reservation: Reservation) -> None:
        """End the reservation; an unchanged session is ready again. Nothing if it has ended already."""
        if self._reserved.get(session_id) is reservation:
            del self._reserved[session_id]
            reservation.over.set()
            if reservation.valid:
                self.put(session_id, reservation.prepared)

    def consume(self, session_id: str, reservation: Reservation) -> None:
        """End it because the session was published."""
        reservation.valid = False
        self.release(session_id, reservation)

    def invalidate(self, session_id: str) -> None:
        """The log has changed: forget what was read of it. A reservation stays, but nothing of it is kept."""
        self._ready.pop(session_id, None)
        reservation = self._reserved.get(session_id)
        if reservation is not None:
            reservation.valid = False

    def clear(self) -> None:
        """Forget everything and let waiters go."""
        self._ready.clear()
        for session_id, reservation in list(self._reserved.items()):
            self.consume(session_id, reservation)

    def __len__(self) -> int:
        return len(self._ready)
