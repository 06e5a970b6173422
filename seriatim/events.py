"""Events: the envelope, the logs they live in, and what makes their data safe to keep.

A log is a contiguous sequence of events numbered from 0. A lane has a log (``lane:<key>``) and so has
each conversation incarnation (``session:<id>``). The envelope is the event-log seed's.
"""

from __future__ import annotations

import math
import re
from typing import Any, Final, NewType

from msgspec import Struct

from seriatim.errors import LosslessJsonError

LogId = NewType("LogId", str)
Data = dict[str, Any]

FORMAT_VERSION: Final = 1
SAFE_INTEGER_MAX: Final = 2**53 - 1
SAFE_INTEGER_MIN: Final = -SAFE_INTEGER_MAX
DEPTH_MAX: Final = 200
_LONE_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def lane_log(key: str) -> LogId:
    """The id of a lane's own log; ``key`` is the lane's canonical key."""
    return "lane:" + key  # type: ignore[return-value]  # a NewType's call costs more than the text


def session_log(session_id: str) -> LogId:
    """The id of one conversation incarnation's log."""
    return "session:" + session_id  # type: ignore[return-value]


class Event(Struct, frozen=True, gc=False):
    """One event of a log. Treat it and its data as immutable.

    ``seq``: place in its log, from 0, contiguous. ``time``: UTC epoch milliseconds, informative only;
    order is ``seq``. ``data``: a JSON object. ``ignorable``: a reader that doesn't know the type may skip
    it. ``source_event_seqs`` and ``surface_op`` belong to the three surface types (event-log seed, SQLite
    backend row).
    """

    # Without the collector (``gc=False``, here and of the other values that each turn makes): plain JSON has no cycles.
    type: str
    seq: int
    time: int
    data: Data
    ignorable: bool = False
    source_event_seqs: tuple[int, ...] | None = None
    surface_op: Any = None


def mend_text(text: str) -> tuple[str, bool]:
    """Replace what JSON text can't carry (lone surrogates) by U+FFFD; say whether anything was."""
    if text.isascii():
        return text, False
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return _LONE_SURROGATE.sub("\ufffd", text), True
    return text, False


def is_plain(data: Any, depth: int = 0) -> bool:
    """Whether ``data``, a dict or a list, holds JSON's own types and numbers only, nested within DEPTH_MAX.

    With text that encodes to UTF-8 (whoever encodes finds out for nothing) this is ``check_lossless``
    without the explanation. The write path calls it for what an event's data holds: no paths, no stack, the
    common cases first and inline. (A check of a whole group's data at once, level by level in C, was no faster.)
    """
    if depth >= DEPTH_MAX:
        return False
    if type(data) is dict:
        for key in data:
            if type(key) is not str:
                return False
        data = data.values()
    elif type(data) is not list:
        return False
    for item in data:
        kind = type(item)
        if kind is str:
            continue
        if kind is int:
            if not SAFE_INTEGER_MIN <= item <= SAFE_INTEGER_MAX:
                return False
        elif kind is dict or kind is list:
            if not is_plain(item, depth + 1):
                return False
        elif not is_rarer(kind, item):
            return False
    return True


def is_rarer(kind: type, item: Any) -> bool:
    """Whether ``item``, of that type, is one of JSON's rarer values: a number that JSON keeps, a truth value, None."""
    if kind is float:
        return math.isfinite(item) and (bool(item) or math.copysign(1.0, item) > 0)
    return kind is bool or item is None


def check_lossless(event_type: str, data: Any) -> None:
    """Raise LosslessJsonError unless ``data`` comes back from JSON equal and of the same types.

    Refused: keys that are not text, tuples and other containers, non-finite numbers, integers beyond
    2**53-1 (the seed's readers are JavaScript's), -0.0, lone surrogates, nesting beyond 200. The error
    names the first key of the place, which is ours, and never one further in, which may be a user's text.
    """
    stack: list[tuple[str, Any, int]] = [("", data, 0)]
    while stack:
        path, item, depth = stack.pop()
        kind = type(item)
        if kind is str:
            _check_text(event_type, path, item)
        elif kind is dict:
            if depth >= DEPTH_MAX:
                raise LosslessJsonError(event_type, "", f"nested deeper than {DEPTH_MAX}")
            for key, inner in item.items():
                if type(key) is not str:
                    raise LosslessJsonError(event_type, path, f"a key is a {type(key).__name__}, not text")
                _check_text(event_type, path, key)
                stack.append((f"{path}.*" if depth else f".{key[:64]}", inner, depth + 1))
        elif kind is list:
            if depth >= DEPTH_MAX:
                raise LosslessJsonError(event_type, "", f"nested deeper than {DEPTH_MAX}")
            stack.extend((f"{path}[{i}]", inner, depth + 1) for i, inner in enumerate(item))
        elif kind is int:
            if not -SAFE_INTEGER_MAX <= item <= SAFE_INTEGER_MAX:
                raise LosslessJsonError(event_type, path, "integer beyond 2**53-1")
        elif kind is float:
            if not math.isfinite(item) or (item == 0.0 and math.copysign(1.0, item) < 0):
                raise LosslessJsonError(event_type, path, "a number is not finite, or is -0.0")
        elif item is not None and kind is not bool:
            raise LosslessJsonError(event_type, path, f"{kind.__name__} is not a JSON type")


def _check_text(event_type: str, path: str, text: str) -> None:
    if not text.isascii():
        try:
            text.encode("utf-8")
        except UnicodeEncodeError:
            raise LosslessJsonError(event_type, path, "text holds a lone surrogate") from None


def weight(content: Any, depth: int = 0) -> int:
    """Roughly the bytes of ``content``, any JSON; the store has the exact bound."""
    if type(content) is str:
        return len(content)
    if depth < DEPTH_MAX:
        if type(content) is dict:
            return sum(weight(key) + weight(inner, depth + 1) for key, inner in content.items())
        if type(content) is list:
            return sum(weight(inner, depth + 1) for inner in content)
    return 8
