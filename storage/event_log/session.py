"""Session: one live conversation in memory, its append-only log and what follows from it (seed, "Session").

Its log is the truth while it is alive; storage runs behind. Used on one loop. An append is synchronous: it is whole
when the call returns, and nobody who watches can undo it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from seriatim.errors import CommitTooLargeError, InvalidInputError, SessionGoneError
from seriatim.events import Data, Event
from seriatim.limits import STORE_COMMIT_BYTES_MAX
from seriatim.surface import Node, Surface, human_transcript, model_context
from seriatim.trace import Trace

from .header import SessionHeader
from .lines import encode_events
from .values import RestoredSessionOptions, SessionEvent, SessionInspection, freeze_event

END_SEED = "session/end-seed"
Observer = Callable[["Session", SessionEvent], None]
_log = logging.getLogger("seriatim.event_log")


class Session:
    """Made by ``LiveSessions``. ``header`` is immutable; ``events`` are frozen all the way down.

    ``live_from``: number of the first event that this life added (its end-seed, or the first append).
    """

    def __init__(self, header: SessionHeader, now: Callable[[], int]) -> None:
        self.header = header
        self.live_from = 0
        self._now = now
        self._events: list[SessionEvent] = []
        self._trace = Trace()
        self._surface = Surface()
        self._observers: list[Observer] = []
        self._appending = False
        self._gone = False
        self._shown: tuple[Node | None, tuple[SessionEvent, ...]] = (None, ())

    @classmethod
    def seeded(cls, header: SessionHeader, seed: Sequence[Event] | None, now: Callable[[], int]) -> Session:
        """A new session. The seed is copied and checked like appends; a given one, also an empty one, is ended by
        ``session/end-seed``, unless it ends with one.
        """
        made = cls(header, now)
        for event in seed or ():
            made._take(freeze_event(event))
        made._end_seed(given=seed is not None)
        return made

    @classmethod
    def restored(cls, options: RestoredSessionOptions, now: Callable[[], int]) -> Session:
        """A stored session come back. What was stored is followed, never refused; its surface must still fold."""
        made = cls(options.meta, now)
        for event in options.seed:
            made._surface.apply(event)
            made._trace.follow(event)
        made._events = list(options.seed)
        made._end_seed(given=True)
        return made

    @property
    def id(self) -> str:
        """The header's."""
        return self.header.id

    @property
    def events(self) -> Sequence[SessionEvent]:
        """The whole log as it is now."""
        return tuple(self._events)

    @property
    def head(self) -> int:
        """How many events there are: the number of the next."""
        return len(self._events)

    @property
    def surface(self) -> Surface:
        """What the model sees now, for ``seriatim.edits``; a copy of one's own."""
        return self._surface.fork()

    @property
    def open_turn(self) -> int:
        """Number of the turn that is open, 0 between turns."""
        return self._trace.turn

    @property
    def gone(self) -> bool:
        """Whether it takes no appends any more."""
        return self._gone

    def messages(self) -> tuple[SessionEvent, ...]:
        """The derived messages: what a model is given, oldest first. Same log, same answer."""
        top, shown = self._shown
        if top is not self._surface.last or top is None:
            found = model_context(self._surface, self._events.__getitem__)
            shown = tuple(self._events[event.seq] for event in found)
            self._shown = (self._surface.last, shown)
        return shown

    def transcript(self) -> tuple[SessionEvent, ...]:
        """What people were shown: every appended message, also those that the model no longer sees."""
        return tuple(self._events[event.seq] for event in human_transcript(self._events))

    def inspection(self) -> SessionInspection:
        """The session as an immutable view."""
        return SessionInspection(self.header, tuple(self._events))

    def events_from(self, first: int, last: int) -> list[SessionEvent]:
        """The events numbered ``first`` to ``last`` - 1."""
        return self._events[first:last]

    def observe(self, observer: Observer) -> Callable[[], None]:
        """Have ``observer`` called after each append, in order; gives what ends that. What it raises is logged."""
        self._observers.append(observer)
        return lambda: self._observers.remove(observer) if observer in self._observers else None

    def append(
        self,
        kind: str,
        data: Data,
        *,
        time: int | None = None,
        ignorable: bool = False,
        source_event_seqs: tuple[int, ...] | None = None,
        surface_op: Any = None,
    ) -> SessionEvent:
        """Append one event; ``data`` is taken as it is now. ``time``: epoch ms, now by default.

        Raises InvalidInputError (LosslessJsonError and SurfaceError among them) for what can't come next, and
        SessionGoneError once the session was retired, CommitTooLargeError for more than any commit holds; then
        nothing has changed. An observer can't append.
        """
        at = self._now() if time is None else time
        event = SessionEvent(kind, self.head, at, data, ignorable, source_event_seqs, surface_op)
        return self.extend([event])[0]

    def extend(self, events: Iterable[Event]) -> tuple[SessionEvent, ...]:
        """Append events that are numbered already, such as ``seriatim.edits`` makes; all of them, or none."""
        self._check_free()
        batch = [freeze_event(event) for event in events]
        trace, surface, head = self._trace.fork(), self._surface.fork(), self.head
        try:
            for event in batch:
                self._take(event)
        except BaseException:
            self._trace, self._surface = trace, surface
            del self._events[head:]
            raise
        self._tell(batch)
        return tuple(batch)

    def retire(self) -> None:
        """Take no appends any more."""
        self._gone = True

    def _check_free(self) -> None:
        if self._gone:
            raise SessionGoneError(self.id)
        if self._appending:
            raise InvalidInputError("append", "an observer of an append can't append to the same session")

    def _take(self, event: SessionEvent) -> None:
        """Check one event and add it. What no backend could store would keep all that follows from being stored."""
        self._trace.check(event)
        (line,) = encode_events([event], self.head)
        if len(line) > STORE_COMMIT_BYTES_MAX:
            raise CommitTooLargeError(f"{event.type}: {len(line)} bytes, at most {STORE_COMMIT_BYTES_MAX}")
        self._surface.apply(event)
        self._trace.follow(event)
        self._events.append(event)

    def _end_seed(self, *, given: bool) -> None:
        self.live_from = self.head
        if given and not (self._events and self._events[-1].type == END_SEED):
            self._take(freeze_event(Event(END_SEED, self.head, self._now(), {})))

    def _tell(self, batch: Iterable[SessionEvent]) -> None:
        self._appending = True
        try:
            for event in batch:
                for observer in tuple(self._observers):
                    try:
                        observer(self, event)
                    except Exception:  # noqa: BLE001 - whatever it raises, it only watched
                        _log.exception("an observer of session %s failed; the append stands", self.id)
        finally:
            self._appending = False
