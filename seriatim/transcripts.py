"""A transcript's messages as hosts hold them, and as events (gateway seed §3, "transcript" methods).

A host's message is a mapping in the form that chat APIs share: ``role`` (user, assistant or tool), ``content`` (text,
or any JSON), and what else it likes (``name``, ``tool_calls``, ``tool_call_id``, ``timestamp``, …). All of it is kept
and comes back. A ``timestamp`` in ISO form is when the message was said (without an offset: in local time).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from seriatim.errors import InvalidInputError
from seriatim.events import Data, Event, mend_text

_TYPES: Final = {"user": "user/message", "assistant": "assistant/message", "tool": "tool/result"}
_ROLES: Final = {kind: role for role, kind in _TYPES.items()}
_TOLD: Final = {"media": "media", "messageId": "message_id"}
"""What a message of a platform's has besides; a host's own message keeps the same names as it gave them."""
_OURS: Final = frozenset({"role", "content", "timestamp"})


def messages_from(given: Sequence[Mapping[str, Any]], fresh: str, time: int) -> tuple[tuple[str, Data], ...]:
    """Event types and data, oldest first. ``fresh``: an id that is new, for those that have none; ``time``: epoch ms.

    Raises InvalidInputError for what is no message: no role of the three, content that isn't JSON.
    """
    if not isinstance(given, Sequence):
        raise InvalidInputError("messages", f"a sequence of messages is needed, not {type(given).__name__}")
    return tuple(_from(message, f"{fresh}-{at}", time) for at, message in enumerate(given))


def _from(message: Mapping[str, Any], fresh: str, time: int) -> tuple[str, Data]:
    if not isinstance(message, Mapping):
        raise InvalidInputError("message", f"a mapping with role and content is needed, not {type(message).__name__}")
    role = message.get("role")
    if not isinstance(role, str) or role not in _TYPES:
        raise InvalidInputError("role", f"user, assistant or tool is needed, not {role!r}")
    content, stamp = message.get("content"), message.get("timestamp")
    said = _said_at(stamp)
    extra = {name: value for name, value in message.items() if name not in _OURS}
    if role == "tool":
        call = message.get("tool_call_id")
        data: Data = {"id": str(call or fresh), "content": content}
        if data["id"] == call:
            del extra["tool_call_id"]
    else:
        text, mended = mend_text(_text(content))
        data = {"text": text}
        if mended:
            data["mended"] = True
        if type(content) is not str or (role == "assistant" and not content):
            extra["content"] = content  # an answer without a word is shown by what else it holds
        if role == "user":
            data["id"], data["at"] = fresh, time
            if isinstance(extra.get("name"), str):
                data["author"] = extra.pop("name")
        elif calls := _calls(message):
            data["calls"] = calls
    if said is not None:
        data["at"] = said
    if stamp is not None and (said is None or _iso(said) != stamp):
        extra["timestamp"] = stamp
    if extra:
        data["extra"] = extra
    return _TYPES[role], data


def _said_at(stamp: Any) -> int | None:
    """The moment that a host's stamp tells, epoch ms; None where it tells none."""
    if not isinstance(stamp, str):
        return None
    try:
        said = round(datetime.fromisoformat(stamp).timestamp() * 1000)
        _iso(said)  # a year that has no name, in UTC, is none
    except (ValueError, OverflowError):
        return None
    return said


def _iso(moment: int) -> str:
    return datetime.fromtimestamp(moment / 1000, UTC).isoformat()


def _text(content: Any) -> str:
    """What there is to read in the content."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        texts = [part.get("text") for part in content if isinstance(part, dict)]
        return "\n".join(text for text in texts if isinstance(text, str))
    return ""


def _calls(message: Mapping[str, Any]) -> list[Data]:
    asked = message.get("tool_calls")
    if not isinstance(asked, list):
        return []
    return [{"id": call["id"]} for call in asked if isinstance(call, dict) and isinstance(call.get("id"), str)]


def message_of(event: Event) -> dict[str, Any]:
    """The message that an event tells, as a host gave it; its ``timestamp``, where it gave none, in ISO form, UTC."""
    data = event.data
    role = _ROLES[event.type]
    extra = dict(data.get("extra", {}))
    message: dict[str, Any] = {"role": role}
    if role == "tool":
        message["content"] = data.get("content")
        message["tool_call_id"] = data.get("id")
    else:
        message["content"] = extra.pop("content") if "content" in extra else data["text"]
        if role == "user" and data.get("author") is not None:
            message["name"] = data["author"]
        message.update((name, data[field]) for field, name in _TOLD.items() if field in data)
        if role == "assistant" and data.get("calls") and "tool_calls" not in extra:
            message["tool_calls"] = [{"id": call["id"]} for call in data["calls"]]
    message["timestamp"] = _iso(data.get("at", event.time))
    message.update(extra)
    return message
