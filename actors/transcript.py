"""The warm transcript of a lane's session: the messages that its durable events tell."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, overload

from seriatim.commits import Commit
from seriatim.events import Event, LogId, session_log
from seriatim.media import Media
from seriatim.surface import MESSAGE_TYPES, RESET, is_replace, says_something
from seriatim.turn import Message, Role, words_of

_CHANGES_IT: Final = MESSAGE_TYPES | {RESET}
"""Events that change what a session shows."""

_SAID: Final = frozenset({"user/message", "assistant/message"})


class History(Sequence[Message]):
    """The first ``length`` messages of an append-only list: a view that costs nothing to make.

    An event becomes a message when it is first read; who never looks back pays nothing. Any thread.
    """

    __slots__ = ("_length", "_messages")

    def __init__(self, messages: list[Message | Event], length: int) -> None:
        self._messages = messages
        self._length = length

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> list[Message]: ...
    def __getitem__(self, index: int | slice) -> Message | list[Message]:
        if isinstance(index, slice):
            return [self._at(i) for i in range(*index.indices(self._length))]
        if not -self._length <= index < self._length:
            raise IndexError("message index out of range")
        return self._at(index % self._length)

    def __iter__(self) -> Iterator[Message]:
        for index in range(self._length):
            yield self._at(index)

    def _at(self, index: int) -> Message:
        found = self._messages[index]
        if type(found) is Message:
            return found
        made = self._messages[index] = _message(found)  # type: ignore[arg-type]  # the other of the two
        return made

    def __repr__(self) -> str:
        return f"<history of {self._length} messages>"


class Transcript:
    """What the bound session shows, oldest first. Grows by durable events only; owned by one lane.

    A message is put at the end. What any other change of the surface leaves is for ``seriatim.surface`` to say, which
    needs the log: then, and in a lane that was folded from checkpoints, what the first ``missing`` events show is still
    to be read (see ``read_messages``); 0 when the transcript is complete. It grows all the same.
    """

    __slots__ = ("_log", "_messages", "bytes", "missing", "session")

    def __init__(self) -> None:
        self.session: str | None = None
        self._log: LogId | None = None
        self.bytes = 0
        self.missing = 0
        self._messages: list[Message | Event] = []

    def begin(self, session_id: str, missing: int = 0) -> None:
        """Start anew for another session; views of the one before keep their messages."""
        self.session = session_id
        self._log = session_log(session_id)
        self._messages = []
        self.bytes = 0
        self.missing = missing

    def complete(self, messages: Iterable[Event]) -> None:
        """Take in what the missing events show."""
        self._messages[:0] = found = list(messages)
        self.bytes += sum(len(_text(event)) for event in found)
        self.missing = 0

    def take(self, commit: Commit) -> None:
        """Add what a durable commit tells of the lane's session."""
        parts = commit.parts
        for event in parts[0].events:
            if event.type == "route/bound":
                self.begin(event.data["session"], missing=event.data.get("head", 0))
        for part in parts:
            if part.log == self._log:
                self.extend(part.events)

    def extend(self, events: Iterable[Event]) -> None:
        """Add the messages among ``events`` of the session's log."""
        for event in events:
            kind = event.type
            if kind not in _CHANGES_IT:
                continue
            # Each turn has one of either kind: those with words, appended, are looked at no further.
            if event.surface_op is None and kind in _SAID and (text := event.data["text"]):
                self._messages.append(event)
                self.bytes += len(text)
            elif kind == RESET or is_replace(event):
                assert self.session is not None
                self.begin(self.session, missing=event.seq + 1)
            elif says_something(event):
                self._messages.append(event)
                self.bytes += len(_text(event))

    def before(self, turn: int, claims: frozenset[str] = frozenset()) -> History:
        """The messages of the turns before ``turn``; what it claims itself (ids) and nobody has answered, isn't one."""
        messages = self._messages
        length = len(messages)
        while length:
            told = messages[length - 1].data
            if told.get("turn", 0) < turn and not (claims and told.get("id") in claims and "at" in told):
                break
            length -= 1
        return History(messages, length)


def _turn(told: Event) -> int:
    number: int = told.data.get("turn", 0)
    return number


def _text(event: Event) -> str:
    data = event.data
    if event.type == "tool/result":
        return str(data.get("content", data.get("outcome", "")))
    text: str = data["text"]
    return text


def _message(event: Event) -> Message:
    data = event.data
    if event.type == "user/message":
        text: str = data["text"]
        if "media" in data:
            text = words_of(text, tuple(map(Media.from_data, data["media"])))
        return Message("user", text, data.get("at", event.time), _turn(event), data.get("author"), data)
    role: Role = "assistant" if event.type == "assistant/message" else "tool"
    return Message(role, _text(event), data.get("at", event.time), _turn(event), None, data)
