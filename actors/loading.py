"""LaneReader: reads and folds logs off the loop, on a connection of its own (DESIGN §§4, 5)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal

from attrs import evolve, frozen

from seriatim.actors.pooled import PooledActor
from seriatim.actors.receipts import End
from seriatim.actors.refs import Ref
from seriatim.actors.transcript import Transcript
from seriatim.events import Event, lane_log, session_log
from seriatim.lane import LaneState, fold
from seriatim.storage.contract import StoreReader


@frozen
class ReadLane:
    """Fold the lane ``key`` for its incarnation; say what its log knows of the messages ``ids``."""

    key: str
    incarnation: int
    ids: frozenset[str]
    reply_to: Ref[Any]


@frozen
class LaneRead:
    """The lane as the logs tell it.

    ``found``: those of the asked ids that were accepted durably, each with its end, None while it waits.
    """

    key: str
    incarnation: int
    state: LaneState
    transcript: Transcript
    found: Mapping[str, End | None]


@frozen
class LaneUnreadable:
    """The lane's logs can't be read or understood; nothing is written to them."""

    key: str
    incarnation: int
    error: BaseException


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
        except BaseException as error:
            answer = LaneUnreadable(message.key, message.incarnation, error)
        message.reply_to.signal(answer)

    def on_stop(self) -> None:
        """Close the connection."""
        if self._reader is not None:
            self._reader.close()

    def _read(self, reader: StoreReader, message: ReadLane) -> LaneRead:
        transcript = Transcript()
        ends = _Ends(message.ids)
        events: Iterable[Event] = reader.read(lane_log(message.key))
        if message.ids:
            events = ends.noting(events)

        def of_session(session_id: str) -> Iterable[Event]:
            events = reader.read(session_log(session_id))
            transcript.begin(session_id)
            transcript.extend(events)
            return events

        state = fold(message.key, events, of_session)
        return LaneRead(message.key, message.incarnation, state, transcript, ends.told(reader))


class _Ends:
    """What a lane's log says became of some messages: whoever waits for one asks in vain for lost effects."""

    def __init__(self, ids: frozenset[str]) -> None:
        self._ids = ids
        self._found: dict[str, End | None] = {}
        self._turns: dict[str, tuple[str, int]] = {}
        self._commands: dict[str, str] = {}
        self._turn = ("", 0)
        self._end = ""
        self._answering = ""

    def noting(self, events: Iterable[Event]) -> Iterator[Event]:
        """The same events, their news taken down on the way."""
        for event in events:
            self._note(event)
            yield event

    def told(self, reader: StoreReader) -> dict[str, End | None]:
        """The ends, with the texts of those that were answered in words."""
        found = self._found
        for inbox_id, (session_id, turn) in self._turns.items():
            end = found[inbox_id]
            if end is not None and end.reason == "completed":
                found[inbox_id] = evolve(end, text=_last_words(reader.read(session_log(session_id)), turn))
        for inbox_id, text in self._commands.items():
            end = found[inbox_id]
            if end is not None:
                found[inbox_id] = evolve(end, text=text)
        return found

    def _note(self, event: Event) -> None:
        data = event.data
        match event.type:
            case "inbox/accepted" if data["id"] in self._ids:
                self._found[data["id"]] = None
            case "inbox/claimed":
                self._turn = (data["session"], data["turn"])
            case "inbox/answered":
                self._end = data["end"]
                self._answering = data["id"] if data["by"] == "command" else ""
                self._ended((data["id"],), "answered", data["end"], by_turn=data["by"] == "turn")
            case "inbox/merged":
                self._ended(data["ids"], "merged", self._end, by_turn=True)
            case "inbox/dropped":
                self._ended(data["ids"], "dropped", data["reason"], by_turn=False)
            case "delivery/owed" if self._answering in self._found:
                self._commands[self._answering] = "\n".join(data["parts"])
                self._answering = ""
            case _:
                pass

    def _ended(
        self, ids: Iterable[str], outcome: Literal["answered", "merged", "dropped"], reason: str, *, by_turn: bool
    ) -> None:
        for inbox_id in ids:
            if inbox_id in self._found:
                self._found[inbox_id] = End(outcome, None, reason)
                if by_turn:
                    self._turns[inbox_id] = self._turn


def _last_words(events: Iterable[Event], turn: int) -> str | None:
    """The turn's final message; what it says beside its calls isn't one."""
    text: str | None = None
    for event in events:
        if event.type == "assistant/message" and event.data["turn"] == turn and "calls" not in event.data:
            text = event.data["text"]
    return text
