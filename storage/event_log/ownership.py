"""The port above the service: who has a session alive.

While a session is alive its owner's memory is ahead of the log, so nobody but the owner changes it. ``LiveSessions``
is one owner. A gateway's lanes are another for the sessions that are bound to them: no gateway hands in this port yet,
and until one does the store refuses every write to such a session that doesn't come from its lane (SessionLiveError).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from seriatim.events import Event

from .values import RestoredSessionOptions, SessionInspection


class SessionOwner(Protocol):
    """Handed to ``SessionPersistence.bind``; called on the service's loop."""

    def is_live(self, session_id: str) -> bool:
        """Whether the owner has the session alive now. Cheap: asked at each operation, before and after it waits."""
        ...

    def restore(self, options: RestoredSessionOptions) -> Any:
        """The unpublished session object that ``prepare`` hands out. Validates; raises what an append would."""
        ...

    async def snapshot(self, session_id: str) -> SessionInspection:
        """A live session as it is now, an open turn included. Raises LogNotFoundError if it just went."""
        ...

    async def flush(self, session_id: str) -> None:
        """Return when all that the live session holds is durable. Raises what kept it from being so."""
        ...

    async def retired(self, session_id: str) -> None:
        """Return when the owner isn't about to let go of the session: storing the last of it, at most."""
        ...

    async def append(self, session_id: str, events: Sequence[Event]) -> None:
        """Have the owner append to its live session, durably. Raises SessionLiveError where it doesn't let others."""
        ...
