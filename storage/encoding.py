"""How events become text and come back: one pass and one checksum per commit part.

Each event becomes three columns, ``type, time, data``; the rare envelope fields of the few that have them
are kept beside. The checksum runs along the log over a text that the columns give back byte for byte, so a
part that is lost, moved or changed breaks itself and every later one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple
from zlib import crc32

import msgspec

from seriatim.errors import InvalidInputError, LosslessJsonError
from seriatim.events import SAFE_INTEGER_MAX, SAFE_INTEGER_MIN, Data, Event, check_lossless, is_plain, is_rarer
from seriatim.upcasters import UPCASTERS, upcast

_TYPE_CHARS_MAX: Final = 200
_TYPES_KNOWN_MAX: Final = 4096
_types_known: set[str] = set()
_INT: Final = {int}
LINE: Final = "\n"
_SMALL: Final = 2**30 - 1
"""Up to here CPython compares integers without a call."""

_encoder: Final = msgspec.json.Encoder()
_decoder: Final = msgspec.json.Decoder()


def to_json(item: Any) -> str:
    """Compact JSON text of a value that ``is_plain`` has passed. Raises UnicodeEncodeError for lone surrogates."""
    return _encoder.encode(item).decode()


def from_json(text: str) -> Any:
    """The value of a JSON text. Raises ValueError."""
    try:
        return _decoder.decode(text)
    except msgspec.DecodeError as error:
        raise ValueError(str(error)) from None


class Rare(NamedTuple):
    """The rare fields of the event at ``place`` of its part; JSON text, None where there is none."""

    place: int
    seqs: str | None
    operation: str | None
    ignorable: int | None


def encode_object(name: str, data: dict[str, Any]) -> str:
    """A header's text. Raises LosslessJsonError, naming ``name``, where JSON would change it."""
    if type(data) is not dict:
        raise InvalidInputError(name, "is not a JSON object")
    check_lossless(name, data)
    return to_json(data)


def encode_events(log: int, first: int, events: Sequence[Event]) -> tuple[list[Any], bytes, list[Rare]]:
    """The columns of a part, flat (type, time, data, type, ...), the bytes to sum, and the rare fields.

    ``log``: the log's number, ``first``: the sequence number of the first event. Raises InvalidInputError
    for a malformed envelope and LosslessJsonError for data that JSON would change. Works column by column:
    a dozen C loops instead of one Python loop over the events.
    """
    count = len(events)
    if not count:
        return [], sum_text(log, first, (), (), (), ()), []
    kinds = [event.type for event in events]
    times = [event.time for event in events]
    if (
        not _types_known.issuperset(kinds)
        or [event.seq for event in events] != list(range(first, first + count))
        or set(map(type, times)) != _INT
        or min(times) < SAFE_INTEGER_MIN
        or max(times) > SAFE_INTEGER_MAX
    ):
        for place, event in enumerate(events):
            _check_envelope(event, first + place)
    for event in events:
        data = event.data
        if type(data) is not dict or not is_plain(data):
            _explain(event)
    rare = [
        _encode_rare(place, event)
        for place, event in enumerate(events)
        if event.ignorable is not False or event.surface_op is not None or event.source_event_seqs is not None
    ]
    try:
        texts = _encode_datas([event.data for event in events])
        text = sum_text(log, first, kinds, times, texts, rare)
    except UnicodeEncodeError:
        for event in events:
            check_lossless(event.type, event.data)
            check_lossless(event.type, event.surface_op)
        raise  # pragma: no cover - one of the two checks has raised
    return interleave(kinds, times, texts), text, rare


class Plain(NamedTuple):
    """Events of any number of parts. By part: ``kinds``, and ``times``, one each. ``texts``: the data of all events."""

    kinds: list[list[str]]
    times: list[int]
    texts: list[str]


def encode_plain(runs: Sequence[Sequence[Event]], heads: Sequence[int]) -> Plain | None:
    """Events of parts, none of them empty; ``heads`` are the numbers that the first ones must have.

    None if anything about one is rare (two times in a part, too) or wrong: ``encode_events`` then says what. Data is
    gone through here and not by a call of ``is_plain`` each: nothing else costs a turn as much of the writer's time.
    """
    types: list[list[str]] = []
    times: list[int] = []
    datas: list[Data] = []
    text, kind_of, known = str, type, _types_known
    for run, head in zip(runs, heads, strict=True):
        time = run[0].time
        if type(time) is not int or not SAFE_INTEGER_MIN <= time <= SAFE_INTEGER_MAX:
            return None
        names: list[str] = []
        for seq, event in enumerate(run, head):
            name, data = event.type, event.data
            if (
                event.seq != seq
                or (event.time is not time and (type(event.time) is not int or event.time != time))
                or event.ignorable is not False
                or event.surface_op is not None
                or event.source_event_seqs is not None
                or name not in known
                or type(data) is not dict
            ):
                return None
            names.append(name)
            datas.append(data)
            for key in data:
                if kind_of(key) is not text:
                    return None
                item = data[key]
                kind = kind_of(item)
                if kind is text:
                    continue
                if kind is int:
                    if not (0 <= item <= _SMALL or SAFE_INTEGER_MIN <= item <= SAFE_INTEGER_MAX):
                        return None
                elif kind is list and len(item) == 1 and kind_of(item[0]) is text:
                    continue  # the messages of a turn, mostly one
                elif not (is_plain(item, 1) if kind is dict or kind is list else is_rarer(kind, item)):
                    return None
        types.append(names)
        times.append(time)
    try:
        return Plain(types, times, _encode_datas(datas))
    except UnicodeEncodeError:
        return None


def interleave(kinds: list[str], times: list[int], texts: list[str]) -> list[Any]:
    """Type, time, data, type, ..."""
    columns: list[Any] = [None] * (3 * len(kinds))
    columns[0::3] = kinds
    columns[1::3] = times
    columns[2::3] = texts
    return columns


def _encode_datas(datas: list[Data]) -> list[str]:
    """The JSON text of each, by one call of the encoder for all. Raises UnicodeEncodeError for lone surrogates."""
    return _encoder.encode_lines(datas).decode().split(LINE)[:-1]


def sum_text(
    log: int,
    first: int,
    kinds: Sequence[str],
    times: Sequence[int],
    texts: Sequence[str],
    rare: Sequence[Rare],
) -> bytes:
    """The bytes that a part's checksum runs over, from its columns.

    Lines: place, times, rare fields, types (none holds a line end), then the data, each one line of JSON.
    """
    odd = [tuple(fields) for fields in rare] if rare else ""
    return f"{log} {first}\n{list(times)}\n{odd}\n{','.join(kinds)}\n{LINE.join(texts)}".encode()


def chain_plain(
    previous: int, commit: str, log: int, first: int, kinds: Sequence[str], times: Sequence[str], texts: Sequence[str]
) -> tuple[int, int]:
    """``chain`` over ``sum_text`` of events without rare fields, and how many characters that was.

    One text and one sum, since a sum goes on where it ended: the id's first, then the part's. ``times`` are text
    already: a list's own repr is slow. Raises UnicodeEncodeError for lone surrogates.
    """
    text = f"{commit}{log} {first}\n[{', '.join(times)}]\n\n{','.join(kinds)}\n{LINE.join(texts)}".encode()
    return crc32(text, previous), len(text)


def decode_event(kind: str, seq: int, time: int, data: dict[str, Any], rare: Rare | None) -> Event:
    """An event from its columns, in the newest form of its type; ``data`` is already parsed."""
    if kind in UPCASTERS:
        data = upcast(kind, data)
    if rare is None:
        return Event(kind, seq, time, data)
    seqs = None if rare.seqs is None else tuple(from_json(rare.seqs))
    operation = None if rare.operation is None else from_json(rare.operation)
    return Event(kind, seq, time, data, bool(rare.ignorable), seqs, operation)


def chain_start(log: str, header: str) -> int:
    """The checksum that a log's chain begins with: its name and its header."""
    return crc32(header.encode(), crc32(log.encode()))


def chain(previous: int, commit: str, part: bytes) -> int:
    """The checksum after one more part, written by the commit of that id."""
    return crc32(part, crc32(commit.encode(), previous))


def _encode_rare(place: int, event: Event) -> Rare:
    if type(event.ignorable) is not bool:
        raise InvalidInputError("ignorable", "is not a truth value")
    seqs = event.source_event_seqs
    if seqs is not None and (type(seqs) is not tuple or not all(map(_is_seq, seqs))):
        raise InvalidInputError("source_event_seqs", "is not a tuple of sequence numbers")
    check_lossless(event.type, event.surface_op)
    return Rare(
        place,
        None if seqs is None else to_json(list(seqs)),
        None if event.surface_op is None else to_json(event.surface_op),
        1 if event.ignorable else None,
    )


def _is_seq(number: Any) -> bool:
    return type(number) is int and 0 <= number <= SAFE_INTEGER_MAX


def _check_envelope(event: Event, seq: int) -> None:
    if type(event.seq) is not int or event.seq != seq:
        raise InvalidInputError("seq", f"an event is not numbered {seq}, as its place in the log says")
    if type(event.time) is not int or abs(event.time) > SAFE_INTEGER_MAX:
        raise InvalidInputError("time", "is not an integer of milliseconds")
    kind = event.type
    if type(kind) is not str or not 0 < len(kind) <= _TYPE_CHARS_MAX or not kind.isprintable():
        raise InvalidInputError("type", f"is not a printable name of at most {_TYPE_CHARS_MAX} characters")
    if len(_types_known) < _TYPES_KNOWN_MAX:
        _types_known.add(kind)


def _explain(event: Event) -> None:
    if type(event.data) is not dict:
        raise LosslessJsonError(event.type, "", "is not a JSON object")
    check_lossless(event.type, event.data)
    raise AssertionError("is_plain refuses what check_lossless takes")
