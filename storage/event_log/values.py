"""What the event-log service takes and gives."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, Literal, NewType, Self, TypeVar

import attrs
from attrs import field, frozen

from seriatim.errors import InvalidInputError
from seriatim.events import Event
from seriatim.frozen import snapshot, snapshot_object

from .header import SessionHeader

Revision = NewType("Revision", str)
"""Opaque: compare for equality only. Says which store, and which state of the log in it."""

S = TypeVar("S")


class SessionEvent(Event, frozen=True, eq=False):
    """An ``Event`` that can't be changed. Equal to any event with the same fields.

    Those that the service gives are frozen all the way down. One made by a caller holds the caller's own data until
    an operation takes its snapshot (``freeze_events``).
    """

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Event):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in _EVENT_FIELDS)

    def __hash__(self) -> int:
        return hash((self.type, self.seq, self.time))


_EVENT_FIELDS = Event.__struct_fields__


def freeze_event(event: Event) -> SessionEvent:
    """The event as it is now, frozen all the way down. Raises LosslessJsonError, naming its type."""
    seqs, operation = event.source_event_seqs, event.surface_op
    return SessionEvent(
        event.type,
        event.seq,
        event.time,
        snapshot_object(event.type, event.data),
        event.ignorable,
        None if seqs is None else tuple(seqs),
        operation if operation is None or type(operation) is str else snapshot(event.type, operation),
    )


def freeze_events(events: Iterable[Event]) -> tuple[SessionEvent, ...]:
    """A batch as it is now. Raises LosslessJsonError, naming the type of the first event that JSON would change."""
    return tuple(map(freeze_event, events))


@frozen
class SessionLocation:
    """Where a backend keeps one session's artifact: a hint, neither a permission nor a sign of freshness.

    ``kind``: the backend's, such as "jsonl". ``path``: absolute; nothing need be there yet.
    """

    kind: str
    path: str


@frozen
class SessionRawArtifact:
    """One session's artifact exactly as stored, decoded from its compression.

    ``meta``: from its own first line. ``filename``: without the compression's suffix.
    """

    meta: SessionHeader
    filename: str
    content: str


@frozen
class Problem:
    """One thing that is wrong with a stored session. ``where``: id or path; ``error``: typed."""

    where: str
    error: Exception


@frozen
class SessionInspection:
    """An immutable view of a session: its header and its events, contiguous from 0.

    ``partial``: a salvage view, which ends (or skips) where the log can't be trusted; ``problems`` then says why.
    ``lost_bytes``: bytes of a torn last batch, never acknowledged, that are not part of the view.
    """

    meta: SessionHeader
    events: tuple[SessionEvent, ...]
    partial: bool = False
    problems: tuple[Problem, ...] = ()
    lost_bytes: int = 0


@frozen
class SessionPersistenceSnapshot:
    """One stored session's header, and the revision of its log."""

    header: SessionHeader
    revision: Revision


@frozen
class CreateSessionOptions:
    """How a session begins. ``seed``: events to begin with. ``meta``: header fields by name, without version and id.

    ``seed_length`` is told in ``meta``: the seed of a resumed session is its whole log, not only what it inherited.
    """

    seed: Sequence[Event] | None = None
    meta: Mapping[str, Any] | None = None
    seed_source: None = None


@frozen
class RestoredSessionOptions:
    """Stored values handed over to make a session of, without another copy: already checked and frozen."""

    seed: tuple[SessionEvent, ...]
    meta: SessionHeader
    seed_source: Literal["persistence"] = "persistence"


@attrs.define(eq=False)
class SessionPreparation(Generic[S]):
    """One unpublished session, and the reservation that keeps everybody else from it.

    ``dispose`` gives the reservation back; it is synchronous and idempotent, and does nothing once the session was
    published. Works as a context manager.
    """

    session: S
    _release: Callable[[], None] | None = field(default=None, alias="release")

    def dispose(self) -> None:
        """Give up the reservation, once."""
        release, self._release = self._release, None
        if release is not None:
            release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.dispose()


def check_from_seq(from_seq: object) -> int:
    """Raise InvalidInputError unless it is a whole number from 0 on."""
    if type(from_seq) is not int or from_seq < 0:
        raise InvalidInputError("from_seq", "is not a whole number from 0 on")
    return from_seq
