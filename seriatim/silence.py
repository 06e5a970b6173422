"""Silence said in words: the markers by which a model says that it has nothing to say.

An agent that can say it in a type returns ``Silence``. Models can't, and write a marker instead. It is judged once, in
the commit that ends the turn, so that what is sent live, queued or after a crash is judged alike.
"""

from __future__ import annotations

import re
from typing import Final

SILENCE_NOTICE: Final = "There is no answer: the agent returned only a silence marker."
"""What a person gets for a bare marker. They asked, so silence would look like a lost reply."""

MARKER_REASON: Final = "silence marker"
"""The reason in ``delivery/none``."""

_EDGE: Final = 48
"""A marker, with its brackets and the blanks around it, is shorter than this."""

_BRACKETED: Final = r"[\[(<{]\s*(?:SILENT|NO[ _-]?REPLY)\s*[\])>}]"
_BARE: Final = r"NO_REPLY|(?-i:SILENT|NO[ -]REPLY)"
_MARKER: Final = re.compile(rf"[\s*_`\"']*(?:{_BRACKETED}|{_BARE})[\s*_`\"']*[.!]?[\s*_`\"']*", re.IGNORECASE)


def is_silence(text: str) -> bool:
    """Whether ``text`` is a marker and nothing else: ``[SILENT]`` or ``NO_REPLY``, however spaced, cased or bracketed.

    Without brackets plain words ("silent", "no reply") are an answer like any other; in capitals they are a marker.
    """
    return len(text) <= 2 * _EDGE and _MARKER.fullmatch(text) is not None


def without_marker(text: str) -> str:
    """``text`` without a marker on a line of its own at its beginning or end; "" when that was all of it.

    A marker inside a sentence is what the sentence is about, and stays.
    """
    # Each turn's text comes by here. One long line is no marker, and two plain searches are a fifth of one by pattern.
    if len(text) > 2 * _EDGE and "\n" not in text:
        return text
    edges = f"{text[:_EDGE]}\n{text[-_EDGE:]}".casefold()
    if "silent" not in edges and "reply" not in edges:
        return text
    if is_silence(text):
        return ""
    head, _, rest = text.lstrip().partition("\n")
    if rest and is_silence(head):
        text = rest
    rest, _, tail = text.rstrip().rpartition("\n")
    if rest and is_silence(tail):
        text = rest
    return "" if is_silence(text) else text


def judged(text: str, *, internal: bool) -> str | None:
    """What people get of a turn's final text; None when nothing is owed. ``internal``: no person asked."""
    return without_marker(text) or (None if internal else SILENCE_NOTICE)


def may_become_silence(text: str) -> bool:
    """Whether a reply that begins with ``text`` may still turn out to be a marker: such a draft isn't shown yet."""
    said = text.strip().lstrip("[(<{*_`\"' ").upper().replace(" ", "_").replace("-", "_")
    said = said.rstrip("])>}*_`\"'.!")
    return any(marker.startswith(said) for marker in ("SILENT", "NO_REPLY", "NOREPLY"))
