"""Cutting a reply into the messages that a platform can carry."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seriatim.limits import REPLY_PARTS_MAX
from seriatim.outbox import CUT_NOTE, Channel, marked, split

UNITS = st.sampled_from(["bytes", "codepoints", "utf16"])
TEXTS = st.text(alphabet=st.sampled_from([*"ab \n\t", "ä", "漢", "\U0001f600", "\r"]), max_size=1500)


def size(text: str, unit: str) -> int:
    """A text's size as a platform counts it."""
    if unit == "bytes":
        return len(text.encode())
    return len(text) if unit == "codepoints" else len(text.encode("utf-16-le")) // 2


def squeezed(text: str) -> str:
    """What may not get lost: everything but white space."""
    return "".join(text.split())


@settings(max_examples=150)
@given(TEXTS, UNITS, st.integers(10, 600), st.booleans())
def test_every_part_fits(text: str, unit: str, text_max: int, multiline: bool) -> None:
    """No part is larger than the platform allows, in its own unit, and none is blank."""
    for part in split(text, Channel(text_max=text_max, unit=unit, multiline=multiline)):
        assert size(part, unit) <= text_max
        assert part.strip()


@settings(max_examples=150)
@given(TEXTS, UNITS, st.integers(120, 600), st.booleans())
def test_a_marked_part_still_fits(text: str, unit: str, text_max: int, multiline: bool) -> None:
    """A repeat with its notice fits too, unless the platform is too narrow for both."""
    for part in split(text, Channel(text_max=text_max, unit=unit, multiline=multiline)):
        if part != CUT_NOTE:
            assert size(marked(part), unit) <= text_max


@settings(max_examples=150)
@given(TEXTS, UNITS, st.integers(40, 600), st.booleans())
def test_nothing_but_white_space_is_lost(text: str, unit: str, text_max: int, multiline: bool) -> None:
    """The parts say everything, in order, unless the text was cut with its note."""
    parts = split(text, Channel(text_max=text_max, unit=unit, multiline=multiline))
    if parts and parts[-1] == CUT_NOTE:
        assert len(parts) == REPLY_PARTS_MAX
        assert squeezed(text).startswith(squeezed("".join(parts[:-1])))
    else:
        assert squeezed("".join(parts)) == squeezed(text)


@given(TEXTS)
def test_a_line_platform_gets_lines(text: str) -> None:
    """Without multiline no part holds a line break."""
    for part in split(text, Channel(text_max=200, unit="bytes", multiline=False)):
        assert len(part.splitlines()) == 1


@pytest.mark.parametrize("text", ["", "   ", "\n\n", " \n\t"])
def test_nothing_to_say_is_no_message(text: str) -> None:
    """A blank reply makes no parts at all."""
    assert split(text, Channel()) == split(text, Channel(text_max=100, multiline=False)) == ()


def test_without_a_limit_a_text_stays_whole() -> None:
    """No limit: one part, line breaks inside kept."""
    assert split("a\n\nb\n", Channel()) == ("a\n\nb",)


def test_spaces_are_cut_at() -> None:
    """Words stay whole where a space is near."""
    parts = split("word " * 100, Channel(text_max=120))
    assert all(set(part.split()) == {"word"} for part in parts)


def test_a_flood_is_cut_with_a_note() -> None:
    """At most REPLY_PARTS_MAX messages; the last one says that there was more."""
    parts = split("\n".join(map(str, range(500))), Channel(text_max=200, multiline=False))
    assert len(parts) == REPLY_PARTS_MAX
    assert parts[-1] == CUT_NOTE
