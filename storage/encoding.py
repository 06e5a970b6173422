"""How events become text and come back: one encoder call and one checksum per commit part.

The canonical text of a part is its rows joined by commas, each ``[log,seq,"type",time,data]``; only rows
that carry one of the rare envelope fields have eight items. The checksum runs along the log, so a part
that is lost, moved or changed breaks every later one. Both backends keep this text's meaning: memory keeps
the text, SQLite its columns, from which ``row_text`` rebuilds the same bytes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from json.encoder import encode_basestring
from typing import Any, Final
from zlib import crc32

from seriatim.errors import InvalidInputError, LosslessJsonError
from seriatim.events import SAFE_INTEGER_MAX, Event, check_lossless, is_plain

_TYPE_CHARS_MAX: Final = 200
_TYPES_KNOWN_MAX: Final = 4096

_JSON: Final = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, check_circular=False, separators=(",", ":")
)
_types_known: set[str] = set()


def _make_encoder() -> Callable[[Any], str]:
    """The C encoder, made once: ``JSONEncoder.encode`` makes a new one per call (2 us of a 10 us part)."""
    make: Any = json.encoder.c_make_encoder
    if make is None:  # an interpreter without the accelerator
        return _JSON.encode

    def refuse(item: Any) -> Any:
        raise TypeError(f"{type(item).__name__} is not a JSON type")

    text: Any = json.encoder.encode_basestring
    chunks = make(None, refuse, text, None, ":", ",", False, False, False)

    def encode(item: Any) -> str:
        return "".join(chunks(item, 0))

    return encode


to_json: Final = _make_encoder()
"""Compact JSON text of a plain value; the caller has checked it (``is_plain``) first."""


def encode_object(name: str, data: dict[str, Any]) -> str:
    """A header's text. Raises LosslessJsonError, naming ``name``, where JSON would change it."""
    if type(data) is not dict:
        raise InvalidInputError(name, "is not a JSON object")
    check_lossless(name, data)
    return to_json(data)


def encode_rows(log: int, first: int, events: Sequence[Event]) -> tuple[str, bytes, bool]:
    """Text and bytes of a part's rows, and whether any of them has a rare field.

    ``log``: the log's number, ``first``: the sequence number of the first event. Raises InvalidInputError
    for a malformed envelope and LosslessJsonError for data that JSON would change.
    """
    rows: list[list[Any]] = []
    seq = first
    rare = False
    for event in events:
        data = event.data
        if event.seq != seq or type(event.time) is not int or event.type not in _types_known:
            _check_envelope(event, seq)
        if type(data) is not dict or not is_plain(data):
            _explain(event)
        if event.source_event_seqs is None and event.surface_op is None and event.ignorable is False:
            rows.append([log, seq, event.type, event.time, data])
        else:
            rare = True
            _check_rare(event)
            seqs = None if event.source_event_seqs is None else list(event.source_event_seqs)
            rows.append([log, seq, event.type, event.time, data, seqs, event.surface_op, event.ignorable])
        seq += 1
    text = to_json(rows)[1:-1]
    try:
        return text, text.encode(), rare
    except UnicodeEncodeError:
        for event in events:
            check_lossless(event.type, event.data)
            check_lossless(event.type, event.surface_op)
        raise  # pragma: no cover - one of the two checks has raised


def rare_fields(event: Event) -> tuple[str | None, str | None, int | None]:
    """The rare fields as their columns: sequence numbers and operation as JSON text, ignorable as 1."""
    seqs = None if event.source_event_seqs is None else to_json(list(event.source_event_seqs))
    operation = None if event.surface_op is None else to_json(event.surface_op)
    return seqs, operation, 1 if event.ignorable else None


def row_text(
    log: int,
    seq: int,
    event_type: str,
    time: int,
    data: str,
    seqs: str | None,
    operation: str | None,
    ignorable: int | None,
) -> str:
    """The canonical text of one row, rebuilt from its columns."""
    if seqs is None and operation is None and not ignorable:
        return f"[{log},{seq},{encode_basestring(event_type)},{time},{data}]"
    flag = "true" if ignorable else "false"
    return (
        f"[{log},{seq},{encode_basestring(event_type)},{time},{data},"
        f"{'null' if seqs is None else seqs},{'null' if operation is None else operation},{flag}]"
    )


def decode_row(row: Sequence[Any]) -> Event:
    """An event from its canonical row."""
    if len(row) == 5:
        return Event(row[2], row[1], row[3], row[4])
    seqs = None if row[5] is None else tuple(row[5])
    return Event(row[2], row[1], row[3], row[4], row[7], seqs, row[6])


def chain_start(log: str, header: str) -> int:
    """The checksum that a log's chain begins with: its name and its header."""
    return crc32(header.encode(), crc32(log.encode()))


def chain(previous: int, commit: str, rows: bytes) -> int:
    """The checksum after one more part, written by the commit of that id."""
    return crc32(rows, crc32(commit.encode(), previous))


def _check_envelope(event: Event, seq: int) -> None:
    if event.seq != seq or type(event.seq) is not int:
        raise InvalidInputError("seq", f"an event is numbered {event.seq}, expected {seq}")
    if type(event.time) is not int or abs(event.time) > SAFE_INTEGER_MAX:
        raise InvalidInputError("time", "is not an integer of milliseconds")
    kind = event.type
    if type(kind) is not str or not 0 < len(kind) <= _TYPE_CHARS_MAX or not kind.isprintable():
        raise InvalidInputError("type", f"is not a printable name of at most {_TYPE_CHARS_MAX} characters")
    if len(_types_known) < _TYPES_KNOWN_MAX:
        _types_known.add(kind)


def _check_rare(event: Event) -> None:
    if type(event.ignorable) is not bool:
        raise InvalidInputError("ignorable", "is not a truth value")
    for number in event.source_event_seqs or ():
        if type(number) is not int or not 0 <= number <= SAFE_INTEGER_MAX:
            raise InvalidInputError("source_event_seqs", "holds something that is no sequence number")
    check_lossless(event.type, event.surface_op)


def _explain(event: Event) -> None:
    if type(event.data) is not dict:
        raise LosslessJsonError(event.type, "", "is not a JSON object")
    check_lossless(event.type, event.data)
    raise AssertionError("is_plain refuses what check_lossless takes")
