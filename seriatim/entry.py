"""SessionEntry: what is known of the session that a lane is bound to (gateway seed §2).

Times are aware UTC. An old record may hold naive stamps; they were written in the host's local time and are read so.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

import attrs
from attrs import field, frozen

from seriatim.errors import InvalidInputError
from seriatim.events import mend_text
from seriatim.limits import ID_CHARS_MAX, STORE_NAME_CHARS_MAX
from seriatim.model import Platform, SessionSource

RESUME_REASONS: Final = ("restart_timeout", "shutdown_timeout", "restart_interrupted")
"""Why a turn was marked for resuming; each is taken up by itself at the next start."""

COUNTS: Final = (
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "total_tokens",
    "last_prompt_tokens",
)
_FLAGS: Final = (
    "was_auto_reset",
    "reset_had_activity",
    "is_fresh_reset",
    "expiry_finalized",
    "suspended",
    "resume_pending",
)
_TEXTS: Final = ("display_name", "auto_reset_reason", "resume_reason")
_OLD_NAMES: Final = {"expiry_finalized": "memory_flushed"}

LABEL_NEEDED: Final = f"text of at most {ID_CHARS_MAX} characters, none a lone surrogate, is needed"

Report = Callable[[str, str], None]
"""Told the field that can't be kept and why."""


def is_label(text: object) -> bool:
    """Whether something can be kept as one of an entry's texts."""
    return isinstance(text, str) and len(text) <= ID_CHARS_MAX and not mend_text(text)[1]


def _utc(stamp: datetime) -> datetime:
    return stamp.astimezone(UTC)


@frozen(kw_only=True)
class SessionEntry:
    """The record of a lane's present session. A value: a change makes another.

    ``session_key``: the lane; ``session_id``: this incarnation. ``created_at``, ``updated_at``: of this incarnation;
    its last activity. ``origin``: the source that began it, where replies go. Token counts are sums over its turns,
    ``last_prompt_tokens`` the last one reported. The flags (gateway seed §2, "State Machine"):

    ``suspended``: the next message starts a new session, whatever else is set. ``resume_pending``: a turn was
    interrupted; the session goes on, ``resume_reason`` and ``last_resume_marked_at`` say why and since when.
    ``was_auto_reset`` (with ``auto_reset_reason``): a suspension made this session; ``is_fresh_reset``: /new or
    /reset did; ``reset_had_activity``: the session before had turns. ``expiry_finalized``: kept from old records,
    fences resuming.
    """

    session_key: str
    session_id: str
    created_at: datetime = field(converter=_utc)
    updated_at: datetime = field(converter=_utc)
    origin: SessionSource | None = None
    display_name: str | None = None
    platform: Platform | None = None
    chat_type: str = "dm"
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    total_tokens: int = 0
    estimated_cost_usd: float = 0.0
    cost_status: str = "unknown"
    last_prompt_tokens: int = 0
    was_auto_reset: bool = False
    auto_reset_reason: str | None = None
    reset_had_activity: bool = False
    is_fresh_reset: bool = False
    expiry_finalized: bool = False
    suspended: bool = False
    resume_pending: bool = False
    resume_reason: str | None = None
    last_resume_marked_at: datetime | None = field(default=None, converter=attrs.converters.optional(_utc))

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data with every field; times in ISO form with their offset."""
        data: dict[str, Any] = {}
        for name in _NAMES:
            value = getattr(self, name)
            if isinstance(value, datetime):
                value = value.isoformat()
            elif isinstance(value, SessionSource):
                value = value.to_dict()
            elif isinstance(value, Platform):
                value = value.name
            data[name] = value
        return data

    @classmethod
    def from_dict(cls, data: dict[str, Any], report: Report | None = None) -> SessionEntry:
        """The inverse of ``to_dict``, also for records of older systems; keeps what it can.

        A field that can't be read falls back to its default, and ``report`` is told; so one bad stamp or an unknown
        platform costs no session. Raises InvalidInputError only where key, id or the time of creation are missing
        or can't be used.
        """
        return _Reading(data, report or _unheard).entry()


_NAMES: Final = tuple(a.name for a in attrs.fields(SessionEntry))


def _platform(name: object) -> Platform:
    if not isinstance(name, str):
        raise InvalidInputError("platform", "a name is needed")
    return Platform(name)


def _unheard(name: str, reason: str) -> None:
    """Nobody asked."""


class _Reading:
    """One record being read."""

    def __init__(self, data: dict[str, Any], report: Report) -> None:
        if not isinstance(data, dict):
            raise InvalidInputError("entry", f"a table is needed, not {type(data).__name__}")
        self._data = data
        self._report = report

    def entry(self) -> SessionEntry:
        """The entry that the record tells."""
        created = self._stamp("created_at")
        if created is None:
            raise InvalidInputError("created_at", "a time in ISO form is needed")
        found: dict[str, Any] = {
            "session_key": self._key(),
            "session_id": self._id(),
            "created_at": created,
            "updated_at": self._stamp("updated_at") or created,
            "last_resume_marked_at": self._stamp("last_resume_marked_at"),
            "origin": self._made("origin", SessionSource.from_dict),
            "platform": self._made("platform", _platform),
        }
        for name in COUNTS:
            self._take(found, name, lambda v: type(v) is int and v >= 0, "a count is needed")
        for name in _FLAGS:
            self._take(found, name, lambda v: type(v) is bool, "true or false is needed")
        for name in _TEXTS:
            self._take(found, name, lambda v: v is None or is_label(v), LABEL_NEEDED)
        for name in ("chat_type", "cost_status"):
            self._take(found, name, lambda v: v and is_label(v), LABEL_NEEDED)
        self._take(found, "estimated_cost_usd", lambda v: type(v) in (int, float) and v >= 0, "a cost is needed")
        return SessionEntry(**found)

    def _key(self) -> str:
        value = self._data.get("session_key")
        if not isinstance(value, str) or not 0 < len(value) <= STORE_NAME_CHARS_MAX:
            raise InvalidInputError("session_key", f"text of 1 to {STORE_NAME_CHARS_MAX} characters is needed")
        return value

    def _id(self) -> str:
        value = self._data.get("session_id")
        if not isinstance(value, str) or not 0 < len(value) <= ID_CHARS_MAX or not value.isprintable():
            raise InvalidInputError("session_id", f"printable text of 1 to {ID_CHARS_MAX} characters is needed")
        # Older systems made a file of it, and a record from outside may try.
        if ".." in value or "/" in value or "\\" in value or (value[1:2] == ":" and value[0].isalpha()):
            raise InvalidInputError("session_id", "looks like a path")
        return value

    def _stamp(self, name: str) -> datetime | None:
        value = self._data.get(name)
        if value is None:
            return None
        try:
            return datetime.fromisoformat(value).astimezone(UTC)
        except (TypeError, ValueError, OverflowError):
            self._report(name, "a time in ISO form is needed")
            return None

    def _made(self, name: str, make: Callable[[Any], Any]) -> Any:
        value = self._data.get(name)
        if value is None:
            return None
        try:
            return make(value)
        except (InvalidInputError, TypeError) as error:
            self._report(name, str(error))
            return None

    def _take(self, found: dict[str, Any], name: str, is_good: Callable[[Any], Any], needed: str) -> None:
        old = _OLD_NAMES.get(name)
        key = old if old is not None and name not in self._data else name
        if key not in self._data:
            return
        value = self._data[key]
        if is_good(value):
            found[name] = value
        else:
            self._report(key, needed)
