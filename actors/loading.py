"""LaneReader: reads and folds logs off the loop, on a connection of its own (DESIGN §§4, 5)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from attrs import frozen

from seriatim.actors.pooled import PooledActor
from seriatim.actors.refs import Ref
from seriatim.actors.transcript import Transcript
from seriatim.events import Event, lane_log, session_log
from seriatim.lane import LaneState, fold
from seriatim.storage.contract import StoreReader


@frozen
class ReadLane:
    """Fold the lane ``key`` for its incarnation; say which of ``ids`` its log already knows."""

    key: str
    incarnation: int
    ids: frozenset[str]
    reply_to: Ref[Any]


@frozen
class LaneRead:
    """The lane as the logs tell it. ``found``: those of the asked ids that were accepted durably."""

    key: str
    incarnation: int
    state: LaneState
    transcript: Transcript
    found: frozenset[str]


@frozen
class LaneUnreadable:
    """The lane's logs can't be read or understood; nothing is written to them."""

    key: str
    incarnation: int
    error: Exception


class LaneReader(PooledActor):
    """Answers ReadLane. Runs on a dispatcher of one worker; ``open_reader`` is called on its thread."""

    def __init__(self, open_reader: Callable[[], StoreReader]) -> None:
        super().__init__()
        self._open_reader = open_reader
        self._reader: StoreReader | None = None

    def on_receive(self, message: ReadLane) -> None:
        """Read, fold and answer; what can't be read is answered, never raised."""
        try:
            if self._reader is None:
                self._reader = self._open_reader()
            answer: LaneRead | LaneUnreadable = self._read(self._reader, message)
        except Exception as error:
            answer = LaneUnreadable(message.key, message.incarnation, error)
        message.reply_to.signal(answer)

    def on_stop(self) -> None:
        """Close the connection."""
        if self._reader is not None:
            self._reader.close()

    def _read(self, reader: StoreReader, message: ReadLane) -> LaneRead:
        transcript = Transcript()
        found: set[str] = set()

        def told(events: Iterable[Event]) -> Iterable[Event]:
            for event in events:
                if message.ids and event.type == "inbox/accepted" and event.data["id"] in message.ids:
                    found.add(event.data["id"])
                yield event

        def of_session(session_id: str) -> Iterable[Event]:
            events = reader.read(session_log(session_id))
            transcript.begin(session_id)
            transcript.extend(events)
            return events

        state = fold(message.key, told(reader.read(lane_log(message.key))), of_session)
        return LaneRead(message.key, message.incarnation, state, transcript, frozenset(found))
