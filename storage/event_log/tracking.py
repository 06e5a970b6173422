"""Where each log that is being written stands, and what an append must fit on (seed §§9, 11)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import attrs

from seriatim.errors import SequenceMismatchError
from seriatim.events import Event
from seriatim.limits import JSONL_LOGS_CACHED_MAX

from .header import SessionHeader
from .values import SessionEvent


@attrs.define(eq=False)
class Tracked:
    """A log that this service has made or adopted.

    ``head``: how many events are stored. ``open``: a turn is open, so forgetting the log would let the next append
    close it. ``doubt``: a batch that may or may not be stored at ``head``. ``session``: the live object that claimed
    it; ``strayed``: somebody else wrote its log since, so the object must claim it again before it writes.
    """

    header: SessionHeader
    head: int
    open: bool = False
    doubt: tuple[SessionEvent, ...] = ()
    session: Any = None
    strayed: bool = False

    def check_fits(self, batch: Sequence[Event]) -> None:
        """Raise SequenceMismatchError unless the batch goes on at the head without a hole."""
        for index, event in enumerate(batch):
            if event.seq != self.head + index:
                raise SequenceMismatchError(self.header.id, self.head + index, index, event.seq)

    def took(self, batch: Sequence[Event]) -> None:
        """The batch is stored."""
        self.head += len(batch)
        for event in batch:
            if event.type == "turn/start":
                self.open = True
            elif event.type == "turn/end":
                self.open = False


class Tracks:
    """The logs that are tracked. Bounded: one at rest, with no turn open and no owner, is forgotten first."""

    def __init__(self) -> None:
        self._tracks: OrderedDict[str, Tracked] = OrderedDict()

    def get(self, session_id: str) -> Tracked | None:
        """The track, used just now."""
        track = self._tracks.get(session_id)
        if track is not None:
            self._tracks.move_to_end(session_id)
        return track

    def put(self, track: Tracked) -> Tracked:
        """Track a log from now on."""
        self._tracks[track.header.id] = track
        if len(self._tracks) > JSONL_LOGS_CACHED_MAX:
            self._forget_one()
        return track

    def drop(self, session_id: str) -> None:
        """Forget a log; the next append reads it first."""
        self._tracks.pop(session_id, None)

    def __len__(self) -> int:
        return len(self._tracks)

    def _forget_one(self) -> None:
        for session_id, track in self._tracks.items():
            if track.head and not (track.open or track.doubt or track.session is not None):
                del self._tracks[session_id]
                return
