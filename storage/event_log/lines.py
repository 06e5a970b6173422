"""One event, one line: how JSONL logs spell headers and events, with the seed's keys (seed §§1, 15).

What ``encode_event`` takes ``decode_batch`` takes: both judge by ``check_event``.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final, NoReturn

from seriatim.errors import InvalidInputError
from seriatim.events import SAFE_INTEGER_MAX, Event, check_lossless, is_plain
from seriatim.frozen import FrozenDict, freeze
from seriatim.storage.encoding import to_json

from .header import SessionHeader
from .values import SessionEvent

APPLICATION: Final = "seriatim"
HEADER_TYPE: Final = "session/header"
END_PREFIX: Final = b'{"type":"batch/end","count":'
_TYPE_CHARS_MAX: Final = 200
_KEYS: Final = frozenset({"type", "seq", "time", "data", "ignorable", "surfaceOp", "sourceEventSeqs"})
_CORE: Final = frozenset({"type", "seq", "time", "data"})


def header_line(header: SessionHeader) -> bytes:
    """The first line of a log. What decides about the format stands first."""
    stored = {"type": HEADER_TYPE, "app": APPLICATION, **header.to_json()}
    return to_json(stored).encode() + b"\n"


def end_line(count: int, crc: int) -> bytes:
    """The line that closes a batch in a raw log: how many events, and the crc-32 along the file up to here."""
    return b'%b%d,"crc":%d}\n' % (END_PREFIX, count, crc)


def check_event(event: Event, seq: int) -> None:
    """Raise InvalidInputError unless the envelope is sound and the event is number ``seq``."""
    kind, rare = event.type, event.source_event_seqs
    if type(event.seq) is not int or event.seq != seq:
        raise InvalidInputError("seq", f"is not {seq}, as its place in the log says")
    if type(event.time) is not int or abs(event.time) > SAFE_INTEGER_MAX:
        raise InvalidInputError("time", "is not an integer of milliseconds")
    if type(kind) is not str or not 0 < len(kind) <= _TYPE_CHARS_MAX or not kind.isprintable():
        raise InvalidInputError("type", f"is not a printable name of at most {_TYPE_CHARS_MAX} characters")
    if type(event.ignorable) is not bool:
        raise InvalidInputError("ignorable", "is not a truth value")
    if rare is not None and (type(rare) is not tuple or not all(type(n) is int and 0 <= n < 2**53 for n in rare)):
        raise InvalidInputError("source_event_seqs", "is not a tuple of sequence numbers")


def to_stored(event: Event) -> dict[str, Any]:
    """The event as a JSON object with the seed's keys; rare fields only where there are any."""
    stored: dict[str, Any] = {"type": event.type, "seq": event.seq, "time": event.time, "data": event.data}
    if event.ignorable:
        stored["ignorable"] = True
    if event.surface_op is not None:
        stored["surfaceOp"] = event.surface_op
    if event.source_event_seqs is not None:
        stored["sourceEventSeqs"] = list(event.source_event_seqs)
    return stored


def encode_events(events: Sequence[Event], first: int) -> list[bytes]:
    """The lines of a batch whose data was checked when its snapshot was taken. Raises InvalidInputError."""
    lines = []
    for place, event in enumerate(events):
        check_event(event, first + place)
        lines.append(to_json(to_stored(event)).encode() + b"\n")
    return lines


def from_stored(stored: Any, seq: int) -> SessionEvent:
    """The event of a stored object. Raises InvalidInputError for anything that ``encode_events`` wouldn't write."""
    if type(stored) is not dict or not _CORE <= stored.keys() <= _KEYS:
        raise InvalidInputError("event", "is not an object with the keys of an event")
    data, operation, seqs = stored["data"], stored.get("surfaceOp"), stored.get("sourceEventSeqs")
    if stored.get("ignorable", True) is not True:
        raise InvalidInputError("ignorable", "is there and not true")
    if type(data) is not dict or not is_plain(data):
        check_lossless(str(stored["type"]), data)
        raise InvalidInputError("data", "is not a JSON object")
    if operation is not None:
        check_lossless("surfaceOp", operation)
    event = SessionEvent(
        stored["type"],
        stored["seq"],
        stored["time"],
        freeze(data),
        "ignorable" in stored,
        tuple(seqs) if type(seqs) is list else seqs,
        freeze(operation),
    )
    check_event(event, seq)
    return event


def parse(text: bytes) -> Any:
    """JSON without the constants that aren't JSON. Raises ValueError."""
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError("nested too deep") from None


def decode_batch(lines: Sequence[bytes], first: int) -> list[SessionEvent]:
    """The events of a whole batch. Raises ValueError or InvalidInputError."""
    stored = parse(b"[%b]" % b",".join(lines))
    if len(stored) != len(lines):
        raise ValueError("a line holds more or less than one event")
    events = [from_stored(item, first + place) for place, item in enumerate(stored)]
    if any(b"\\ud" in line or b"\\uD" in line for line in lines):
        for event in events:  # an escape may stand for half a character
            check_lossless(event.type, _thawed(event.data))
    return events


def _thawed(data: Any) -> Any:
    return json.loads(to_json(data)) if type(data) is FrozenDict else data


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
