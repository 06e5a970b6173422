"""The event-log seed's events in our words: one for one, so that numbers, sources and surface ranges stay true.

What ours has no field for is kept under ``seed``. Types of the seed's plugins, which shape nothing that a reader of
ours derives, come over marked ``ignorable``; a type that neither knows is refused (seed §§3, 17).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from typing import Any, Final

from attrs import define

from seriatim.errors import SessionFormatUnsupportedError, SessionPersistenceCorruptionError
from seriatim.events import Data
from seriatim.frozen import thaw
from seriatim.vocabulary import KNOWN_SESSION_EVENT_TYPES

from .values import SessionEvent, freeze_event

PLUGIN_TYPES: Final = frozenset({
    "agent-preset/selected", "agent/inbox/spliced", "approval/asked", "approval/decided", "approval/policy",
    "command/run", "command/done", "compact/start", "compact/summary", "compact/prune", "compact/end",
    "compaction/start", "compaction/summary", "compaction/prune", "compaction/end", "feedback/record", "goal/change",
    "hook/invoked", "hook/result", "llm/retry", "llm/retry-started", "permission/preset", "plan/mode", "sandbox/mode",
    "session/title", "session/title-llm-request", "subagent/descriptor", "tool/code-dispatch",
    "tool/code-dispatch-start", "web/deepseek-search-llm-request", "schedule/change", "team/member",
    "team/message/queued", "team/message/delivered", "team/task", "tool-workflow/run-start", "tool-workflow/run-end",
    "tool-workflow/agent-start", "tool-workflow/agent-end",
})  # fmt: skip
"""The seed's log-only types: 30 of its first release, the rest of later ones."""

_REASONS: Final = {
    "completed": "completed", "done": "completed", "stop": "completed", "max-tokens": "completed", "error": "failed",
    "aborted": "aborted", "cancelled": "aborted", "blocked": "aborted", "interrupted": "interrupted",
}  # fmt: skip
_USAGE: Final = {
    "inputTokens": "input", "outputTokens": "output", "cacheReadTokens": "cacheRead", "cacheWriteTokens": "cacheWrite",
    "totalTokens": "total",
}  # fmt: skip


def translate(where: str, session: str, events: Sequence[SessionEvent]) -> tuple[SessionEvent, ...]:
    """The events in our words. Raises SessionFormatUnsupportedError (a type that must be understood and isn't) and
    SessionPersistenceCorruptionError (a record whose data isn't what its type needs).
    """
    place = _Place(session)
    made: list[SessionEvent] = []
    for event in events:
        try:
            made.append(_one(event, place))
        except (KeyError, TypeError, ValueError, AttributeError):
            reason = f"its data isn't a {event.type!r} of the seed's"
            raise SessionPersistenceCorruptionError(f"{where} at {event.seq}", reason) from None
        except _UnknownError:
            reason = f"holds {event.type!r}, which nobody here knows and may not pass over"
            raise SessionFormatUnsupportedError(f"{where} at {event.seq}", "no path", reason, where) from None
    return tuple(made)


class _UnknownError(Exception):
    pass


@define
class _Place:
    """Where in the conversation an event stands: older logs don't say it in each."""

    session: str
    turn: int = 0
    step: int = 0


def _one(event: SessionEvent, place: _Place) -> SessionEvent:
    rule = _RULES.get(event.type)
    data: Data = thaw(event.data)
    ignorable = event.ignorable
    if rule is not None:
        data = rule(data, event, place)
    elif event.type not in KNOWN_SESSION_EVENT_TYPES:
        if event.type not in PLUGIN_TYPES and not ignorable:
            raise _UnknownError
        ignorable = True
    sources, operation = event.source_event_seqs, event.surface_op
    return freeze_event(SessionEvent(event.type, event.seq, event.time, data, ignorable, sources, operation))


def _turn_start(data: Data, event: SessionEvent, place: _Place) -> Data:
    place.turn, place.step = _number(data["turn"]), 0
    return {"turn": place.turn, "claims": []}


def _turn_end(data: Data, event: SessionEvent, place: _Place) -> Data:
    reason = data["reason"]
    kind = reason if isinstance(reason, str) else reason["kind"]
    told: Data = {"kind": _REASONS[kind]}
    detail = _detail(kind, reason)
    if detail:
        told["detail"] = detail
    return {"turn": _number(data.get("turn", place.turn)), "reason": told}


def _detail(kind: str, reason: Any) -> str | None:
    if isinstance(reason, dict) and kind == "error":
        return str(reason["error"]["message"])
    if isinstance(reason, dict) and kind == "aborted":
        cause = reason.get("reason") or {"kind": "legacy"}
        return str(cause["kind"])
    return kind if kind != _REASONS[kind] else None


def _step(data: Data, event: SessionEvent, place: _Place) -> Data:
    place.turn = _number(data.get("turn", place.turn))
    number = _number(data["step"])
    place.step = number if event.type == "step/start" else 0
    return {"turn": place.turn, "step": number}


def _user_message(data: Data, event: SessionEvent, place: _Place) -> Data:
    message = data.get("message", data)  # before messages had an identity they were wrapped
    identity = message.get("id")
    if identity is None:  # derived, so that each import gives the same
        identity = "seed-" + hashlib.sha256(f"{place.session}:{event.seq}".encode()).hexdigest()[:24]
    made: Data = {"turn": place.turn, "id": str(identity), "text": _text(message["content"]), "at": event.time}
    return _keep(made, {**message, "id": None}, message["content"])


def _assistant_message(data: Data, event: SessionEvent, place: _Place) -> Data:
    message = data["message"]
    blocks = _blocks(message["content"])
    calls = [_call(block) for block in blocks if block["type"] in ("tool-call", "tool-use")]
    made: Data = {"turn": _number(data.get("turn", place.turn)), "text": _text(blocks), "calls": calls}
    step = data.get("step", place.step)
    if step:
        made["step"] = _number(step)
    usage = {
        ours: count for theirs, ours in _USAGE.items() if type(count := (data.get("usage") or {}).get(theirs)) is int
    }
    if usage:
        made["usage"] = usage
    return _keep(made, message, [block for block in blocks if block["type"] not in ("tool-call", "tool-use")])


def _call(block: Data) -> Data:
    return {"id": _name(block), "name": str(block["name"]), "args": _arguments(block.get("arguments"))}


def _tool_call(data: Data, event: SessionEvent, place: _Place) -> Data:
    made = {"turn": _number(data.get("turn", place.turn)), "step": _number(data.get("step", place.step))}
    call = {"id": _name(data), "name": str(data["name"]), "args": _arguments(data["arguments"])}
    return {**made, **call, "effects": "write"}


def _tool_result(data: Data, event: SessionEvent, place: _Place) -> Data:
    (block,) = _blocks(data["message"]["content"])
    content = block.get("content", "")
    made: Data = {
        "turn": _number(data.get("turn", place.turn)),
        "step": _number(data.get("step", place.step)),
        "id": _name(block),
        "content": _text(content) if _is_text(content) else content,
    }
    if data.get("error") or block.get("isError"):
        made["error"] = True
    odd = {key: data[key] for key in ("error", "meta") if data.get(key) is not None}
    return {**made, "seed": odd} if odd else made


def _keep(made: Data, message: Data, content: Any) -> Data:
    """``made``, with what it doesn't say of the message under ``seed``."""
    odd = {key: value for key, value in message.items() if key not in ("content", "role", "id") and value is not None}
    if not _is_text(content):
        odd["content"] = content
    return {**made, "seed": odd} if odd else made


def _blocks(content: Any) -> list[Data]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content)


def _is_text(content: Any) -> bool:
    return all(block["type"] == "text" and block.keys() <= {"type", "text"} for block in _blocks(content))


def _text(content: Any) -> str:
    return "\n".join(str(block["text"]) for block in _blocks(content) if block["type"] == "text")


def _name(block: Data) -> str:
    name = block["callId"] if "callId" in block else block["id"]
    if type(name) is not str:
        raise TypeError("a call's id is not text")
    return name


def _arguments(text: Any) -> Data:
    """The model's own text, unparsed in the seed, as an object; under ``raw`` where it isn't one."""
    try:
        parsed = json.loads(text) if isinstance(text, str) else text
    except ValueError:
        parsed = None
    return parsed if isinstance(parsed, dict) else {"raw": text}


def _number(number: Any) -> int:
    if type(number) is not int or number < 0:
        raise TypeError("a turn or step is no number")
    return number


_RULES: Final[dict[str, Callable[[Data, SessionEvent, _Place], Data]]] = {
    "turn/start": _turn_start,
    "turn/end": _turn_end,
    "step/start": _step,
    "step/end": _step,
    "user/message": _user_message,
    "assistant/message": _assistant_message,
    "tool/call": _tool_call,
    "tool/result": _tool_result,
}
