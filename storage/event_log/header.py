"""SessionHeader: what is known of a session outside its log (seed, "SessionHeader").

It can be read without the log and never reaches a model. On disk its keys are the seed's, in camelCase.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any, Final, Literal, Self

from attrs import Attribute, field, fields, frozen

from seriatim.errors import InvalidInputError
from seriatim.events import FORMAT_VERSION, SAFE_INTEGER_MAX
from seriatim.limits import ID_CHARS_MAX

SESSION_FORMAT_VERSION: Final = FORMAT_VERSION
"""Raised only when an older reader would misread; new vocabulary doesn't raise it."""


def check_session_id(value: object, name: str = "id") -> str:
    """The id itself. Raises InvalidInputError unless it is text that JSON can carry, not empty, bounded."""
    if type(value) is not str or not 0 < len(value) <= ID_CHARS_MAX or "\0" in value or not _encodes(value):
        raise InvalidInputError(name, f"is not text of 1 to {ID_CHARS_MAX} characters without NUL and lone surrogates")
    return value


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _check_id(_: object, attribute: Attribute[Any], value: object) -> None:
    check_session_id(value, attribute.name)


def _check_optional_id(_: object, attribute: Attribute[Any], value: object) -> None:
    if value is not None:
        check_session_id(value, attribute.name)


def _check_count(_: object, attribute: Attribute[Any], value: object) -> None:
    # Exactly int: a fraction, a truth value and -0.0 are refused.
    if type(value) is not int or not 0 <= value <= SAFE_INTEGER_MAX:
        raise InvalidInputError(attribute.name, "is not a whole number from 0 to 2**53-1")


def _check_optional_count(instance: object, attribute: Attribute[Any], value: object) -> None:
    if value is not None:
        _check_count(instance, attribute, value)


def _check_cwd(_: object, attribute: Attribute[Any], value: object) -> None:
    if value is None:
        return
    if type(value) is not str or "\0" in value or not _encodes(value):
        raise InvalidInputError(attribute.name, "is not a path")
    if not (PurePosixPath(value).is_absolute() or PureWindowsPath(value).is_absolute()):
        raise InvalidInputError(attribute.name, "is not an absolute path")


def _check_origin(_: object, attribute: Attribute[Any], value: object) -> None:
    if value is not None and value != "subagent":
        raise InvalidInputError(attribute.name, 'is neither absent nor "subagent"')


def _check_preset(_: object, attribute: Attribute[Any], value: object) -> None:
    if value is not None and (type(value) is not str or len(value) > ID_CHARS_MAX or not _encodes(value)):
        raise InvalidInputError(attribute.name, f"is not text of at most {ID_CHARS_MAX} characters")


@frozen(kw_only=True)
class SessionHeader:
    """Immutable metadata of one session. Raises InvalidInputError, naming the field.

    ``created_at``: UTC epoch milliseconds. ``cwd``: absolute working directory. ``parent_session``: what it was
    forked from. ``seed_length``: how many leading events were inherited. ``origin``: "subagent" for a subagent's
    session; says nothing about whether it can be continued. ``delegation_depth``: 0 or absent at the top, the
    parent's + 1 below. ``agent_preset``: what the agent was composed from.
    """

    version: int = field(default=SESSION_FORMAT_VERSION, validator=_check_count)
    id: str = field(validator=_check_id)
    created_at: int = field(validator=_check_count)
    cwd: str | None = field(default=None, validator=_check_cwd)
    parent_session: str | None = field(default=None, validator=_check_optional_id)
    seed_length: int | None = field(default=None, validator=_check_optional_count)
    origin: Literal["subagent"] | None = field(default=None, validator=_check_origin)
    delegation_depth: int | None = field(default=None, validator=_check_optional_count)
    agent_preset: str | None = field(default=None, validator=_check_preset)

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Self:
        """The header of a stored object; keys that this version doesn't know are passed over.

        Raises InvalidInputError. The version's meaning is not judged here (``formats.check_version`` is).
        """
        for key in ("version", "id", "createdAt"):
            if key not in stored:
                raise InvalidInputError(_FIELDS[key], "is missing")
        return cls(**{name: stored[key] for key, name in _FIELDS.items() if key in stored})

    def to_json(self) -> dict[str, Any]:
        """The object to store: the seed's keys, absent fields left out."""
        stored = {key: getattr(self, name) for key, name in _FIELDS.items()}
        return {key: value for key, value in stored.items() if value is not None}


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(map(str.title, rest))


_FIELDS: Final = {_camel(attribute.name): attribute.name for attribute in fields(SessionHeader)}
META_FIELDS: Final = frozenset(_FIELDS.values()) - {"version", "id"}
"""What a caller may say about a new session; version and id are the store's."""


def make_header(session_id: str, now: int, meta: Mapping[str, Any] | None = None) -> SessionHeader:
    """The header of a new session. ``now``: epoch ms, used where ``meta`` gives no ``created_at``.

    Raises InvalidInputError for a field that there is not, or that is malformed.
    """
    given = dict(meta or {})
    for name in given:
        if name not in META_FIELDS:
            raise InvalidInputError("meta", f"has no field {name!r}")
    if given.get("created_at") is None:
        given["created_at"] = now
    return SessionHeader(id=session_id, **given)
