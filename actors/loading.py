"""LaneReader: reads and folds logs off the loop, on a connection of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal

from attrs import frozen
from msgspec.structs import replace

from seriatim.actors.lookup import looked_up
from seriatim.actors.persistence import Keep
from seriatim.actors.pooled import PooledActor
from seriatim.actors.receipts import End
from seriatim.actors.refs import Ref
from seriatim.actors.surfaces import read_messages, read_shown
from seriatim.actors.transcript import Transcript
from seriatim.actors.upkeep import Bookmarks
from seriatim.errors import LogCompactedError
from seriatim.events import Event, LogId, lane_log, session_log
from seriatim.lane import LaneState, SessionPart, apply_lane, apply_session
from seriatim.shown import Besides, Loaded
from seriatim.silence import judged
from seriatim.snapshots import STATE_VERSION, lane_from_snapshot, session_from_snapshot
from seriatim.storage.checkpoints import read_whole
from seriatim.storage.contract import Checkpoint, StoreReader


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

    ``transcript`` may be still to be read (``ReadTranscript``). ``bookmarks``: where the logs' checkpoints are.
    ``found``: those of the asked ids that were accepted durably, each with its end, None while it waits.
    """

    key: str
    incarnation: int
    state: LaneState
    transcript: Transcript
    bookmarks: Bookmarks
    found: Mapping[str, End | None]


@frozen
class LaneUnreadable:
    """The lane's logs can't be read or understood; nothing is written to them."""

    key: str
    incarnation: int
    error: BaseException


@frozen
class ReadTranscript:
    """Read what the first ``upto`` events of a session show; a turn waits for it."""

    session: str
    upto: int
    reply_to: Ref[Any]


@frozen
class TranscriptRead:
    """What those events show, oldest first; or why it can't be read."""

    session: str
    upto: int
    messages: tuple[Event, ...]
    error: BaseException | None = None


@frozen
class ReadSession:
    """Read what a session shows, for a rule that waits for it. Answered by Loaded."""

    session: str
    whole: bool
    reply_to: Ref[Any]
    besides: Besides | None = None


@frozen
class ReadBinding:
    """Say whether there is such a session, and which lane has it."""

    session: str
    reply_to: Ref[Any]


@frozen
class BindingRead:
    """The answer; ``error``: nobody can say."""

    session: str
    exists: bool
    lane: LogId | None
    error: BaseException | None = None


class LaneReader(PooledActor):
    """Reads lanes and transcripts. Runs on a dispatcher of one worker; ``open_reader`` is called on its thread.

    A lane is folded from the checkpoints of its two logs. Its transcript is read with it only where the session has no
    checkpoint, and so is short; otherwise when a turn asks for it. Snapshots of surfaces go to ``writer``.
    """

    def __init__(self, open_reader: Callable[[], StoreReader], writer: Ref[Any]) -> None:
        super().__init__()
        self._open_reader = open_reader
        self._writer = writer
        self._reader: StoreReader | None = None

    def on_receive(self, message: ReadLane | ReadTranscript | ReadSession | ReadBinding) -> None:
        """Read, fold and answer; what can't be read is answered, never raised."""
        answer: LaneRead | LaneUnreadable | TranscriptRead | Loaded | BindingRead
        if type(message) is ReadTranscript:
            answer = self._read_transcript(message)
        elif type(message) is ReadSession:
            answer = self._read_session(message)
        elif type(message) is ReadBinding:
            answer = self._read_binding(message.session)
        else:
            assert type(message) is ReadLane
            try:
                answer = read_lane(self._opened(), message)
            except BaseException as error:
                answer = LaneUnreadable(message.key, message.incarnation, error)
        message.reply_to.signal(answer)

    def on_stop(self) -> None:
        """Close the connection."""
        if self._reader is not None:
            self._reader.close()

    def _opened(self) -> StoreReader:
        if self._reader is None:
            self._reader = self._open_reader()
        return self._reader

    def _read_transcript(self, message: ReadTranscript) -> TranscriptRead:
        session, upto = message.session, message.upto
        try:
            messages, snapshot = read_messages(self._opened(), session_log(session), upto)
        except BaseException as error:
            return TranscriptRead(session, upto, (), error)
        if snapshot is not None:
            self._writer.signal(Keep((snapshot,)))
        return TranscriptRead(session, upto, messages)

    def _read_binding(self, session: str) -> BindingRead:
        log = session_log(session)
        try:
            reader = self._opened()
            return BindingRead(session, reader.header(log) is not None, reader.binding(log))
        except Exception as error:
            return BindingRead(session, exists=False, lane=None, error=error)

    def _read_session(self, message: ReadSession) -> Loaded:
        session, whole, besides = message.session, message.whole, message.besides
        try:
            shown = read_shown(self._opened(), session, whole=whole) if session else None
            found = None if besides is None else looked_up(self._opened(), besides)
            return Loaded(session, whole, shown, None, besides, found)
        except Exception as error:
            return Loaded(session, whole, None, error, besides)


def read_lane(reader: StoreReader, message: ReadLane) -> LaneRead:
    """Fold a lane from what its two logs have: checkpoints, an archive, events. Raises what the reader raises."""
    ends = _Ends(message.ids)
    state, bookmarks = _read_lane(reader, message.key, ends)
    transcript = Transcript()
    if state.bound is not None:
        _read_session(reader, state, bookmarks, transcript)
    return LaneRead(message.key, message.incarnation, state, transcript, bookmarks, ends.told(reader))


def read_state(reader: StoreReader, key: str) -> LaneState:
    """A lane's state, its session part included, as the logs tell it now. Raises what the reader raises."""
    state, bookmarks = _read_lane(reader, key, _Ends(frozenset()))
    if state.bound is not None:
        _read_session(reader, state, bookmarks, Transcript())
    return state


def _read_lane(reader: StoreReader, key: str, ends: _Ends) -> tuple[LaneState, Bookmarks]:
    """The lane part, from its newest checkpoint, else from its archive, else from its first event."""
    log = lane_log(key)
    kept = None if ends.ids else _usable(reader, log)
    if kept is not None:
        try:
            tail = reader.read(log, kept.seq)
        except LogCompactedError:
            pass  # just now; its archive is newer
        else:
            state = lane_from_snapshot(key, kept.version, kept.data)
            archive = reader.archive(log)
            return _folded(state, tail), Bookmarks(kept.seq, 0 if archive is None else archive.base)
    archive, events = read_whole(reader, log)
    if archive is None:
        return _folded(LaneState(key), ends.noting(events)), Bookmarks()
    state = lane_from_snapshot(key, archive.version, archive.data)
    return _folded(state, ends.noting(events)), Bookmarks(archive.base, archive.base)


def _read_session(reader: StoreReader, state: LaneState, bookmarks: Bookmarks, transcript: Transcript) -> None:
    """The session part, from its newest checkpoint; without one, the transcript at the same time."""
    assert state.bound is not None
    log = session_log(state.bound)
    kept = _usable(reader, log)
    part = SessionPart(state.bound) if kept is None else session_from_snapshot(kept.data)
    events = reader.read(log, part.head)
    if kept is None:
        transcript.begin(part.id)
        transcript.extend(events)
    for event in events:
        apply_session(part, event)
    if kept is not None:
        transcript.begin(part.id, missing=part.head)
    state.session = part
    bookmarks.session, bookmarks.session_at = part.id, 0 if kept is None else kept.seq


def _usable(reader: StoreReader, log: LogId) -> Checkpoint | None:
    kept = reader.checkpoint(log, "state")
    return kept if kept is not None and kept.version == STATE_VERSION else None


def _folded(state: LaneState, events: Iterable[Event]) -> LaneState:
    for event in events:
        apply_lane(state, event)
    return state


def ends_of(reader: StoreReader, events: Iterable[Event], inbox_id: str) -> Mapping[str, End | None]:
    """What a lane's events say of one message: nothing, or its end, None while it waits. Raises what reading raises."""
    ends = _Ends(frozenset((inbox_id,)))
    for _ in ends.noting(events):
        pass
    return ends.told(reader)


class _Ends:
    """What a lane's log says became of some messages: whoever waits for one asks in vain for lost effects."""

    def __init__(self, ids: frozenset[str]) -> None:
        self.ids = ids
        self._found: dict[str, End | None] = {}
        self._turns: dict[str, tuple[str, int, bool]] = {}
        self._commands: dict[str, str] = {}
        self._turn = ("", 0, False)
        self._end = ""
        self._answering = ""

    def noting(self, events: Iterable[Event]) -> Iterator[Event]:
        """The same events, their news taken down on the way."""
        for event in events:
            if self.ids:
                self._note(event)
            yield event

    def told(self, reader: StoreReader) -> dict[str, End | None]:
        """The ends, with the texts of those that were answered in words."""
        found = self._found
        for inbox_id, (session_id, turn, internal) in self._turns.items():
            end = found[inbox_id]
            if end is not None and end.reason == "completed":
                text = _last_words(reader.read(session_log(session_id)), turn)
                found[inbox_id] = replace(end, text=None if text is None else judged(text, internal=internal))
        for inbox_id, text in self._commands.items():
            end = found[inbox_id]
            if end is not None:
                found[inbox_id] = replace(end, text=text)
        return found

    def _note(self, event: Event) -> None:
        data = event.data
        match event.type:
            case "inbox/accepted" if data["id"] in self.ids:
                self._found[data["id"]] = None
            case "lane/merged" if "from" in data:
                self._found |= {told["id"]: None for told, _, _ in data["waiting"] if told["id"] in self.ids}
            case "inbox/claimed":
                self._turn = (data["session"], data["turn"], data["kind"] == "wake")
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
            case "delivery/none" if self._answering in self._found and "text" in data:
                self._commands[self._answering] = data["text"]
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
