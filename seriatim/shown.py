"""What a session shows, handed to a rule that needs it.

A lane keeps no surface in memory. A rule that needs one asks its batch (``Batch.shown``) before it drafts anything;
where it isn't loaded the batch raises ``Wanted``, the gate makes durable what came before, holds this message and all
behind it, has the session read off the actor, and decides again.
"""

from __future__ import annotations

from typing import Any

import attrs

from seriatim.events import Event, LogId
from seriatim.lane import SessionPart
from seriatim.surface import MESSAGE_TYPES, Surface


class Wanted(Exception):  # noqa: N818  (no error: a question, and the gate answers it)
    """A rule needs what ``session`` shows ("": none); with ``whole`` from its first event on, for what lies beyond a
    snapshot. ``besides``: what else has to be looked up, such as AcceptedOf.
    """

    def __init__(self, session: str, whole: bool, besides: Besides | None = None) -> None:
        super().__init__(session)
        self.session = session
        self.whole = whole
        self.besides = besides


@attrs.frozen
class AcceptedOf:
    """The data of messages as they were accepted in the lane ``key``: found is ``{id: data}``, of those still there."""

    key: str
    ids: tuple[str, ...]


@attrs.frozen
class TitledOf:
    """Titled sessions of lanes in the scope of ``asker``, who writes in the lane ``key``: found is a list of ids and
    titles, the newest first, without the lane's own. ``prefix``: what those lanes' logs begin with.
    """

    key: str
    asker: str
    prefix: str


Besides = AcceptedOf | TitledOf


@attrs.define(eq=False)
class Shown:
    """A session as its log tells it, up to its head.

    ``part``: what rules need of it; ``surface``: its surface; ``events``: by their numbers, at least the messages on
    the surface. ``lane``: the log of the lane that it is bound to, None for none. ``created_at``: epoch ms.
    ``whole``: the surface was folded from the first event.
    """

    session: str
    part: SessionPart
    surface: Surface
    events: dict[int, Event]
    lane: LogId | None
    created_at: int
    whole: bool

    def fork(self) -> Shown:
        """A copy that a batch may go on with."""
        return Shown(
            self.session,
            self.part.fork(),
            self.surface.fork(),
            dict(self.events),
            self.lane,
            self.created_at,
            self.whole,
        )

    def extend(self, events: list[Event]) -> None:
        """Take in what has been drafted since; ``part`` is not touched."""
        for event in events:
            self.surface.apply(event)
            if event.type in MESSAGE_TYPES:
                self.events[event.seq] = event


@attrs.frozen(eq=False)
class Loaded:
    """The answer to ``Wanted``: ``shown`` is None when there is no such session; ``error``: it can't be read.
    ``found``: what else was asked for, ``besides``.
    """

    session: str
    whole: bool
    shown: Shown | None
    error: Exception | None = None
    besides: Besides | None = None
    found: Any = None
