"""Writing sessions in the event-log seed's own format 0, for its own system to read (seed §§1, 3, 15).

The way back from ``seed_events``. What the seed has no word for is folded: undone turns are left out and what they
leave is numbered anew; what it can't be told (claims, effects, who resumed what) is dropped; events marked
``ignorable`` go along as they are.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from seriatim.errors import LogExistsError, SeriatimError
from seriatim.events import Data, Event
from seriatim.frozen import thaw
from seriatim.straight import straightened, surviving
from seriatim.surface import MESSAGE_TYPES
from seriatim.vocabulary import KNOWN_SESSION_EVENT_TYPES

from .backend import LogBackend
from .files import create
from .formats import check_known
from .header import SessionHeader
from .paths import encode_id, project_of
from .seed_logs import SEED_FORMAT
from .transfer import Report, all_logs
from .values import Problem

_USAGE: Final = {
    "input": "inputTokens", "output": "outputTokens", "cacheRead": "cacheReadTokens", "cacheWrite": "cacheWriteTokens",
    "total": "totalTokens",
}  # fmt: skip


def export_seed(source: LogBackend, root: Path, ids: Iterable[str] | None = None, *, dry_run: bool = False) -> Report:
    """Write every session, or those named, as a raw JSONL file below ``root``, one that the seed's system reads.

    Nothing is overwritten: a session that is there already, equal, counts as the same, otherwise as differing. One
    that shows nothing any more isn't written: the seed knows no session without events.
    """
    report = Report()
    for stored in all_logs(source, ids, report):
        header = stored.header
        path = root / project_of(header.cwd) / encode_id(header.id) / "session.jsonl"
        try:
            check_known(header.id, stored.events, KNOWN_SESSION_EVENT_TYPES)
            if not surviving(stored.events):
                continue
            content = seed_text(header, stored.events)
            report.results[header.id] = _write(path, content, dry_run=dry_run)
        except (SeriatimError, OSError) as error:
            report.problems.append(Problem(header.id, error))
            continue
        report.events += content.count(b"\n") - 1
    return report


def seed_text(header: SessionHeader, events: Sequence[Event]) -> bytes:
    """The whole file: a header line, then a line an event."""
    inherited = sum(1 for seq in surviving(events) if seq < (header.seed_length or 0))
    told = {**header.to_json(), "version": SEED_FORMAT, "delegationDepth": header.delegation_depth or 0}
    if header.seed_length is not None:
        told["seedLength"] = inherited
    lines: list[Data] = [{"type": "session", **told}, *seed_records(straightened(events))]
    return b"".join(json.dumps(line, ensure_ascii=False, separators=(",", ":")).encode() + b"\n" for line in lines)


def seed_records(events: Sequence[Event]) -> list[Data]:
    """The events as the seed's system writes them, one for one. They must hold no ``surface/reset``."""
    calls = {event.data["id"]: event.data for event in events if event.type == "tool/call" and "id" in event.data}
    return [_record(event, calls) for event in events]


def _record(event: Event, calls: dict[str, Data]) -> Data:
    data: Data = thaw(event.data)
    rule = _RULES.get(event.type)
    record: Data = {
        "type": event.type,
        "seq": event.seq,
        "time": event.time,
        "data": data if rule is None else rule(data, calls),
    }
    if event.ignorable:
        record["ignorable"] = True
    if event.source_event_seqs is not None:
        record["sourceEventSeqs"] = list(event.source_event_seqs)
    if event.type in MESSAGE_TYPES:
        record["surfaceOp"] = "append" if event.surface_op is None else thaw(event.surface_op)
    return record


def _turn_start(data: Data, _: dict[str, Data]) -> Data:
    return {"turn": data["turn"]}


def _turn_end(data: Data, _: dict[str, Data]) -> Data:
    kind, detail = data["reason"]["kind"], data["reason"].get("detail")
    reason: Data = {"kind": kind}
    if kind in ("failed", "timeout"):
        reason = {"kind": "error", "error": {"message": detail or kind}}
    elif kind == "aborted":
        reason["reason"] = {"kind": detail if detail in ("user", "parent", "hook", "disposed") else "user"}
    return {"turn": data["turn"], "reason": reason}


def _user_message(data: Data, _: dict[str, Data]) -> Data:
    said = {"id": data.get("id"), "role": "user", "source": {"kind": "user"}, "content": _text(data["text"])}
    return {key: value for key, value in said.items() if value is not None}


def _assistant_message(data: Data, calls: dict[str, Data]) -> Data:
    content = _text(data["text"]) if data["text"] else []
    for asked in data.get("calls", ()):
        call = {**asked, **calls.get(asked["id"], {})}
        block = {"type": "tool-call", "id": call["id"], "name": call.get("name", ""), "arguments": _arguments(call)}
        content.append(block)
    made: Data = {"turn": data.get("turn", 0), "message": {"role": "assistant", "content": content}}
    if "step" in data:
        made["step"] = data["step"]
    usage = {_USAGE[name]: count for name, count in data.get("usage", {}).items() if name in _USAGE}
    return {**made, "usage": usage} if usage else made


def _tool_call(data: Data, _: dict[str, Data]) -> Data:
    call = {"callId": data["id"], "name": data["name"], "arguments": _arguments(data)}
    return {"turn": data["turn"], "step": data["step"], **call}


def _tool_result(data: Data, _: dict[str, Data]) -> Data:
    content = data.get("content", "")
    text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
    block: Data = {"type": "tool-result", "callId": data["id"], "content": _text(text)}
    made: Data = {"turn": data["turn"], "step": data["step"]}
    if data.get("error"):
        block["isError"] = True
        made["error"] = {"name": "ToolError", "code": str(data.get("outcome", "error"))}
    return {**made, "message": {"role": "user", "content": [block]}}


def _text(text: str) -> list[Data]:
    return [{"type": "text", "text": text}]


def _arguments(call: Data) -> str:
    arguments: Any = call.get("args", {})
    if isinstance(arguments, dict) and arguments.keys() == {"raw"} and isinstance(arguments["raw"], str):
        return arguments["raw"]  # what a model said that was no object
    return json.dumps(arguments, ensure_ascii=False)


_RULES: Final[dict[str, Callable[[Data, dict[str, Data]], Data]]] = {
    "turn/start": _turn_start,
    "turn/end": _turn_end,
    "user/message": _user_message,
    "assistant/message": _assistant_message,
    "tool/call": _tool_call,
    "tool/result": _tool_result,
}


def _write(path: Path, content: bytes, *, dry_run: bool) -> Any:
    if path.exists():
        return "same" if path.read_bytes() == content else "differs"
    if not dry_run:
        try:
            create(path, content)
        except LogExistsError:
            return "differs"
    return "copied"
