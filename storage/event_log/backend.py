"""The port below the service: what keeps session logs (SQLite, memory, JSONL).

Called from worker threads, several at a time, but never two at a time that change the same session. A batch is the
atom: all of its events are there, or none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from attrs import frozen

from seriatim.events import Event

from .header import SessionHeader
from .values import Problem, Revision, SessionEvent, SessionLocation, SessionPersistenceSnapshot, SessionRawArtifact


@frozen
class StoredLog:
    """What is physically there: whole batches only.

    ``events``: from ``from_seq`` of the read on, frozen. ``head``: how many events the log holds. ``incarnation``:
    stays while the log only grows. ``torn_bytes``: length of what follows the last whole batch, never acknowledged;
    the next append cuts it.
    """

    header: SessionHeader
    events: tuple[SessionEvent, ...]
    head: int
    revision: Revision
    incarnation: str
    torn_bytes: int = 0


@frozen
class StoredPage:
    """A page of sessions. ``next``: hand it in as ``after``; None at the end."""

    snapshots: tuple[SessionPersistenceSnapshot, ...]
    problems: tuple[Problem, ...]
    next: str | None


class LogBackend(Protocol):
    """Keeps session logs. Raises SessionPersistenceCorruptionError and SessionFormatUnsupportedError where it reads,
    LogNotFoundError where a log must be there, StoreUnhealthyError where the medium fails.
    """

    @property
    def supports_raw_artifacts(self) -> bool:
        """Whether ``read_raw`` works."""
        ...

    def locate(self, header: SessionHeader) -> SessionLocation | None:
        """Where the session's own artifact is or would be; reads and makes nothing. None: it has none."""
        ...

    def read(self, session_id: str, from_seq: int = 0) -> StoredLog | None:
        """The whole batches of a log as they are; None when there is no such log. Changes nothing."""
        ...

    def revision(self, session_id: str) -> Revision | None:
        """The log's revision without reading it; None when there is no such log."""
        ...

    def append(self, session_id: str, header: SessionHeader, head: int, events: Sequence[Event]) -> Revision:
        """Make a batch durable at ``head``; returns the revision after it. Cuts a torn batch before it.

        An empty batch only cuts. At head 0 it makes the log with ``header``, unless there is an empty one already.
        Raises LogExistsError or HeadMismatchError (nothing was written), CommitTooLargeError, SessionLiveError (a lane
        owns it), StoreUnhealthyError (surely absent), WriteUnknownError (may or may not be there: read, then repeat).
        """
        ...

    def page(self, after: str | None, limit: int) -> StoredPage:
        """Sessions that hold events, in a fixed order, from headers alone.

        A bad one is a problem of the page, never the end of the list.
        """
        ...

    def read_raw(self, session_id: str) -> SessionRawArtifact | None:
        """The artifact as stored. Raises RawArtifactsUnsupportedError where there are no artifacts."""
        ...

    def salvage(self, session_id: str) -> tuple[StoredLog, tuple[Problem, ...]] | None:
        """The longest prefix that can be trusted, and what is wrong after it. Changes nothing, repairs nothing."""
        ...

    def close(self) -> None:
        """Release everything. Idempotent."""
        ...
