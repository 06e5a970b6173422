"""The sixteen operations of a SessionStore, each blocking its thread (gateway seed §3).

They go to the lane through a door (a gateway's actors, or none), or read beside it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Protocol

from attrs import define, evolve, field

from seriatim.actors.entries import Entries, text_of
from seriatim.edits import by_turn, closed_turn
from seriatim.entry import LABEL_NEEDED, SessionEntry, is_label
from seriatim.errors import AmbiguousKeyError, CommitTooLargeError, InvalidInputError, LaneBusyError
from seriatim.events import SAFE_INTEGER_MAX, Event
from seriatim.keys import KeySettings, SessionKey
from seriatim.limits import STORE_COMMIT_BYTES_MAX, STORE_NAME_CHARS_MAX
from seriatim.model import SessionSource
from seriatim.storage.encoding import encode_events
from seriatim.store_calls import (
    Append,
    ClearResume,
    Elsewhere,
    GetOrCreate,
    MarkResume,
    Messages,
    RecoverTurn,
    Release,
    Reset,
    Rewind,
    Rewrite,
    Suspend,
    Switch,
    Touch,
)
from seriatim.transcripts import message_of, messages_from

_log = logging.getLogger("seriatim.sessions")
_DAY_MS = 86_400_000
_MOVES_MAX = 16
"""How often a session is followed to another lane before its caller is told."""

HasActiveProcesses = Callable[[str], bool]
"""Whether background processes run for a session key; whoever asks takes an error for yes."""


class Door(Protocol):
    """The way to the lanes. Any thread; each call may block."""

    @property
    def recovers(self) -> bool:
        """Whether somebody else closes the turns that a dead process left open, and takes them up."""
        ...

    def ask(self, key: str, question: Any) -> Any:
        """The answer of the lane ``key``. Raises what its rule raises, StoreError, GatewayClosedError."""
        ...

    def move_session(self, session_id: str, key: str, expected: str | None) -> bool:
        """Bind another lane's session to ``key``; False when the lane isn't bound to ``expected`` any more."""
        ...

    def present(self, key: str) -> str:
        """The lane that a lane has gone into, where two turned out to be one; else itself."""
        ...

    def accounts(self, platform: str) -> Sequence[str]:
        """The accounts that are served on a platform."""
        ...

    def now_ms(self) -> int:
        """Wall time, epoch ms."""
        ...

    def fresh(self) -> str:
        """A new id."""
        ...


@define(eq=False)
class _Flight:
    """One get_or_create under way."""

    force_new: bool
    result: Future[SessionEntry] = field(factory=Future)


class Operations:
    """See ``actors.sessions.SessionStore``, whose methods these are. Any thread that may block."""

    def __init__(
        self, door: Door, entries: Entries, keys: KeySettings, has_active_processes_fn: HasActiveProcesses | None
    ) -> None:
        self._door = door
        self.entries = entries
        self._keys = keys
        self._has_active = has_active_processes_fn
        self._flights: dict[str, _Flight] = {}
        self._boarding = threading.Lock()

    # --- entries ---------------------------------------------------------------------------------------

    def get_or_create_session(self, source: SessionSource, force_new: bool = False) -> SessionEntry:
        """The lane's session."""
        if not isinstance(source, SessionSource):
            raise InvalidInputError("source", f"a SessionSource is needed, not {type(source).__name__}")
        key = self._door.present(self._key_of(source))
        with self._boarding:
            flight = self._flights.get(key)
            ours = flight is None or (force_new and not flight.force_new)
            if ours:
                flight = self._flights[key] = _Flight(force_new)
        assert flight is not None
        if not ours:
            return flight.result.result()
        try:
            found = self._told(key, self._door.ask(key, GetOrCreate(source, force_new)))
            assert found is not None
            self.entries.note(key)
        except BaseException as error:
            self._land(key, flight)
            flight.result.set_exception(error)
            raise
        self._land(key, flight)
        flight.result.set_result(found)
        return found

    def _land(self, key: str, flight: _Flight) -> None:
        with self._boarding:
            if self._flights.get(key) is flight:
                del self._flights[key]

    def _key_of(self, source: SessionSource) -> str:
        """The lane of a source: one that is there, under whatever account, else where its next message would go."""
        key = SessionKey.from_source(source, self._keys)
        known = self.entries.lane(key.canonical)
        if known is not None:
            return known
        accounts = self._door.accounts(key.platform)
        served = [evolve(key, account=account).canonical for account in accounts]
        there = [other for other in served if self.entries.lane(other) is not None]
        if len(there) > 1:
            raise AmbiguousKeyError(key.text, there)
        return there[0] if there else served[0] if len(served) == 1 else key.canonical

    def update_session(self, session_key: str | SessionKey, last_prompt_tokens: int | None = None) -> bool:
        """Activity, and what the last prompt took."""
        if last_prompt_tokens is not None:
            _check_count("last_prompt_tokens", last_prompt_tokens)
        return bool(self._ask(session_key, Touch(last_prompt_tokens)))

    def reset_session(self, session_key: str | SessionKey, display_name: str | None = None) -> SessionEntry | None:
        """A fresh session."""
        if display_name is not None:
            _check_label("display_name", display_name)
        return self._entry(session_key, Reset(display_name))

    def switch_session(
        self, session_key: str | SessionKey, target_session_id: str, *, expected_session_id: str | None = None
    ) -> SessionEntry | None:
        """Another session for the lane."""
        key = self.lane(session_key)
        if key is None or not _is_name(target_session_id):
            return None
        answer = self._door.ask(key, Switch(target_session_id, expected_session_id))
        if isinstance(answer, Elsewhere):
            if not self._door.move_session(target_session_id, key, expected_session_id):
                return None
            return self.entries.get(key)
        return self._told(key, answer)

    def suspend_session(self, session_key: str | SessionKey) -> bool:
        """The next message starts fresh."""
        return bool(self._ask(session_key, Suspend()))

    def mark_resume_pending(self, session_key: str | SessionKey, reason: str = "restart_timeout") -> bool:
        """The session is to be resumed."""
        if not _is_name(reason):
            raise InvalidInputError("reason", "a word is needed")
        return bool(self._ask(session_key, MarkResume(reason)))

    def clear_resume_pending(self, session_key: str | SessionKey) -> bool:
        """It is not."""
        return bool(self._ask(session_key, ClearResume()))

    def recover_interrupted_turns(self, max_age_seconds: float) -> int:
        """Close and mark what a dead process left open."""
        since = self._door.now_ms() - int(_number("max_age_seconds", max_age_seconds) * 1000)
        if self._door.recovers:
            return 0
        return sum(bool(self._door.ask(key, RecoverTurn(since))) for key in self.entries.open_turns())

    def prune_old_entries(self, max_age_days: float | None, *, dry_run: bool = False) -> int:
        """Forget routes that are long unused."""
        if max_age_days is None or _number("max_age_days", max_age_days) <= 0:
            return 0
        before = self._door.now_ms() - int(max_age_days * _DAY_MS)
        count = 0
        for key, told in self.entries.items():
            old = round(told.updated_at.timestamp() * 1000) < before
            if old and not told.suspended and not self._is_active(told.session_key):
                count += bool(self._door.ask(key, Release(before, dry_run=dry_run)))
        return count

    def _is_active(self, session_key: str) -> bool:
        if self._has_active is None:
            return False
        try:
            return bool(self._has_active(session_key))
        except Exception as error:
            _log.warning("has_active_processes_fn raised %s; its session is kept", type(error).__name__)
            return True

    def list_sessions(self, active_minutes: float | None = None) -> list[SessionEntry]:
        """All entries, the last active first."""
        found = [told for _, told in self.entries.items()]
        if active_minutes is not None:
            since = self._door.now_ms() - _number("active_minutes", active_minutes) * 60_000
            found = [told for told in found if told.updated_at.timestamp() * 1000 >= since]
        return sorted(found, key=lambda told: (told.updated_at, told.session_id), reverse=True)

    def lookup_by_session_id(self, session_id: str) -> SessionEntry | None:
        """The entry of the lane whose session that is."""
        return self.entries.by_session(session_id) if _is_name(session_id) else None

    def has_any_sessions(self) -> bool:
        """Whether there ever was one."""
        return self.entries.any_session()

    # --- transcripts -----------------------------------------------------------------------------------

    def append_to_transcript(self, session_id: str, message: Mapping[str, Any], skip_db: bool = False) -> bool:
        """One more message."""
        if skip_db:
            return True
        return self._write("append", session_id, Append, [message])

    def rewrite_transcript(self, session_id: str, messages: Sequence[Mapping[str, Any]]) -> bool:
        """These messages instead of all."""
        return self._write("rewrite", session_id, Rewrite, messages)

    def load_transcript(self, session_id: str) -> list[dict[str, Any]]:
        """What the session shows."""
        return [message_of(event) for event in self.entries.messages(session_id)] if _is_name(session_id) else []

    def rewind_session(self, session_id: str, n: int = 1) -> dict[str, Any] | None:
        """Back by some turns."""
        if type(n) is not int:
            raise InvalidInputError("n", "a number of turns is needed")
        undone: dict[str, Any] | None = self._ask_owner("rewind", session_id, Rewind(session_id, n))
        return undone

    def _write(
        self, operation: str, session_id: str, make: type[Append | Rewrite], given: Sequence[Mapping[str, Any]]
    ) -> bool:
        now = self._door.now_ms()
        messages = messages_from(given, self._door.fresh(), now)
        if make is Rewrite:
            _check_size(messages, now)
        return bool(self._ask_owner(operation, session_id, make(session_id, messages)))

    def _ask_owner(self, operation: str, session_id: str, question: Any) -> Any:
        """The answer of the session's lane, also if it moves to another one meanwhile; None where no lane has it.

        Raises LaneBusyError for one that moves on and on, and as ``Door.ask``.
        """
        for _ in range(_MOVES_MAX):
            key = self._owner(session_id)
            answer = None if key is None else self._door.ask(key, question)
            if type(answer) is not Elsewhere:
                return answer
        raise LaneBusyError(operation, "the session is moved from lane to lane; try again")

    def _owner(self, session_id: str) -> str | None:
        return self.entries.lane_of_session(session_id) if _is_name(session_id) else None

    # --- lanes -----------------------------------------------------------------------------------------

    def lane(self, session_key: str | SessionKey) -> str | None:
        """The lane that either form of a key names."""
        name = session_key.canonical if isinstance(session_key, SessionKey) else session_key
        key = self.entries.lane(name) if _is_name(name) else None
        return None if key is None else self._door.present(key)

    def _ask(self, session_key: str | SessionKey, question: Any) -> Any:
        key = self.lane(session_key)
        return None if key is None else self._door.ask(key, question)

    def _entry(self, session_key: str | SessionKey, question: Any) -> SessionEntry | None:
        key = self.lane(session_key)
        return None if key is None else self._told(key, self._door.ask(key, question))

    def _told(self, key: str, told: SessionEntry | None) -> SessionEntry | None:
        return None if told is None else evolve(told, session_key=text_of(key))


def _is_name(name: object) -> bool:
    """Whether something can be the name of a lane or a session that is there."""
    if not isinstance(name, str) or not 0 < len(name) <= STORE_NAME_CHARS_MAX // 2 or "\0" in name:
        return False
    return name.isascii() or not any("\ud800" <= char <= "\udfff" for char in name)


def _check_size(messages: Messages, time: int) -> None:
    """Refuse what no commit could hold before its lane is read and folded for it; never what one could."""
    made = (told for number, turn in enumerate(by_turn(messages), 1) for told in closed_turn(turn, number))
    _, text, _ = encode_events(0, 0, [Event(kind, at, time, data) for at, (kind, data) in enumerate(made)])
    if len(text) > STORE_COMMIT_BYTES_MAX and (size := len(text.decode())) > STORE_COMMIT_BYTES_MAX:
        raise CommitTooLargeError(
            f"{len(messages)} messages make {size} characters of events, at most {STORE_COMMIT_BYTES_MAX} in one commit"
        )


def _check_label(name: str, label: object) -> None:
    if not is_label(label):
        raise InvalidInputError(name, LABEL_NEEDED)


def _check_count(name: str, count: object) -> None:
    if type(count) is not int or not 0 <= count <= SAFE_INTEGER_MAX:
        raise InvalidInputError(name, "a count is needed")


def _number(name: str, value: object) -> float:
    if type(value) not in (int, float) or not -1e12 < value < 1e12:  # type: ignore[operator]
        raise InvalidInputError(name, "a number is needed")
    return float(value)  # type: ignore[arg-type]
