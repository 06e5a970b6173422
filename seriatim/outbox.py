"""Owed replies: cutting a text into platform messages, and the words of a marked repeat."""

from __future__ import annotations

from typing import Final

from attrs import frozen

from seriatim.limits import REPLY_PARTS_MAX

RECOVERED_NOTICE: Final = "Recovered reply (may be a repeat): "
CUT_NOTE: Final = "… (cut: the reply was longer than this platform's messages allow)"
_TEXT_MAX_LEAST: Final = 80


@frozen
class Channel:
    """What the rules need to know about the way to a target, as of now.

    ``up``: the adapter is there and connected. ``idempotent``: a repeated send does not post twice. ``lookup``: it can
    say whether a send arrived. ``edits``: a message can be changed after it was sent.
    ``text_max`` (0: none) counts in ``unit``: "bytes", "codepoints" or "utf16". ``multiline``: one
    message may hold line breaks. ``prefix``: what people there begin a command with.
    """

    up: bool = False
    idempotent: bool = False
    text_max: int = 0
    unit: str = "codepoints"
    multiline: bool = True
    lookup: bool = False
    edits: bool = False
    prefix: str = "/"


def marked(text: str) -> str:
    """The text as it is sent when an earlier attempt may have arrived."""
    return RECOVERED_NOTICE + text


def split(text: str, channel: Channel) -> tuple[str, ...]:
    """Cut ``text`` into messages that the channel can carry, each with room for the recovery notice.

    Prefers line breaks, then spaces; never cuts inside a character. Blank lines make no message of their
    own. A channel too narrow for text and notice gets no room for the notice. At most REPLY_PARTS_MAX
    parts; a note ends a text that was cut. Empty when there is nothing to say.
    """
    if channel.multiline:
        text = text.strip("\n")
    if not text or text.isspace():
        return ()
    if channel.multiline and not channel.text_max:
        return (text,)
    lines = [text] if channel.multiline else [line for line in text.splitlines() if line.strip()]
    room = 0
    if channel.text_max:
        room = channel.text_max - _size(RECOVERED_NOTICE, channel.unit)
        if room < _TEXT_MAX_LEAST:
            room = channel.text_max  # too narrow for the notice besides; the text itself has to fit
    parts: list[str] = []
    for line in lines:
        parts.extend(_cut(line, room, channel.unit) if room else (line,))
        if len(parts) > REPLY_PARTS_MAX:
            return (*parts[: REPLY_PARTS_MAX - 1], CUT_NOTE)
    return tuple(parts)


def fitted(text: str, channel: Channel) -> str:
    """The beginning of ``text`` that one message carries, for a draft; with an ellipsis where it is cut."""
    text = text.strip() if channel.multiline else " ".join(text.split())
    if not channel.text_max or _size(text, channel.unit) <= channel.text_max:
        return text
    room = channel.text_max - _size("…", channel.unit)
    return text[: _fit(text, room, channel.unit)] + "…" if room > 0 else ""


def _cut(line: str, room: int, unit: str) -> list[str]:
    pieces: list[str] = []
    while _size(line, unit) > room:
        end = _fit(line, room, unit)
        space = max(line.rfind("\n", 0, end), line.rfind(" ", 0, end))
        if space > end // 2:
            pieces.append(line[:space])
            line = line[space + 1 :]
        else:
            pieces.append(line[:end])
            line = line[end:]
        if len(pieces) > REPLY_PARTS_MAX:
            break
    pieces.append(line)
    return [piece for piece in pieces if piece.strip()]


def _fit(line: str, room: int, unit: str) -> int:
    """How many characters of ``line`` fit in ``room``."""
    low, high = 1, min(len(line), room)
    while low < high:
        middle = (low + high + 1) // 2
        if _size(line[:middle], unit) <= room:
            low = middle
        else:
            high = middle - 1
    return low


def _size(text: str, unit: str) -> int:
    if unit == "bytes":
        return len(text.encode("utf-8"))
    if unit == "utf16":
        return len(text.encode("utf-16-le")) // 2
    return len(text)
