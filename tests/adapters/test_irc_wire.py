"""IRC's wire: what parses to what, what is cut where, what can't get through."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seriatim.adapters import irc_wire as wire
from seriatim.adapters.irc_sending import TokenBucket, backoff_s
from seriatim.adapters.irc_wire import Line
from seriatim.adapters.lines import LineBuffer


@pytest.mark.parametrize(
    ("raw", "line"),
    [
        (b"PING :a b", Line("PING", ("a b",))),
        (b":irc.local 001 Bot :Hi Bot!u@h\r", Line("001", ("Bot", "Hi Bot!u@h"), "irc.local")),
        (b":a!b@c privmsg #x ::)", Line("PRIVMSG", ("#x", ":)"), "a!b@c")),
        (b":a!b@c PRIVMSG #x word", Line("PRIVMSG", ("#x", "word"), "a!b@c")),
        (b":a!b@c  PRIVMSG  #x  :two  spaces ", Line("PRIVMSG", ("#x", "two  spaces "), "a!b@c")),
        (b":a!b@c PRIVMSG #x :", Line("PRIVMSG", ("#x", ""), "a!b@c")),
        (b"@a=1\\:2\\s3\\\\;b;+c/d= :s X", Line("X", (), "s", {"a": "1;2 3\\", "b": "", "+c/d": ""})),
        (b"CAP * LS * :a b=c", Line("CAP", ("*", "LS", "*", "a b=c"))),
    ],
)
def test_a_line_is_its_parts(raw: bytes, line: Line) -> None:
    """Tags, source, command and parameters come apart as the protocol says."""
    assert wire.parse(raw) == line


@given(st.binary(max_size=600))
def test_parsing_is_total(raw: bytes) -> None:
    """Whatever bytes come, they are a line or nothing, never an exception."""
    line = wire.parse(raw)
    assert line is None or line.command


@given(st.text(), st.text())
def test_no_text_becomes_a_second_line(target: str, text: str) -> None:
    """One call makes one line, whatever the parameters hold."""
    line = wire.message("PRIVMSG", target, text)
    assert line.endswith(b"\r\n")
    assert not {0, 10, 13} & set(line[:-2])


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=300), st.integers(4, 60))
def test_cutting_keeps_every_character_and_the_limit(text: str, limit: int) -> None:
    """Pieces fit, and together they are the text but for the spaces that a line's end stands for."""
    pieces = wire.cut(text, limit)
    assert all(0 < len(piece.encode()) <= limit for piece in pieces)
    assert "".join(pieces).replace(" ", "") == text.replace(" ", "")


def test_text_without_spaces_is_cut_between_characters() -> None:
    """A character that doesn't fit goes to the next piece whole."""
    assert wire.cut("ééé", 3) == ["é", "é", "é"]
    assert wire.cut("a🙂b", 4) == ["a", "🙂", "b"]
    assert wire.cut("fits", 4) == ["fits"]
    assert wire.cut("one two three", 8) == ["one two", "three"]
    assert wire.cut("one two three", 7) == ["one two", "three"]


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ("naïve 語".encode(), "naïve 語"),
        ("naïve".encode("latin-1"), "naïve"),
        ("语言".encode()[:-1], "语\ufffd"),  # cut by bytes somewhere on its way
        (b"plain", "plain"),
    ],
)
def test_old_clients_and_cut_lines_stay_readable(raw: bytes, text: str) -> None:
    """UTF-8 is UTF-8 even when its last character was cut; everything else is Latin-1."""
    assert wire.decode(raw) == text


def test_names_fold_as_the_server_says() -> None:
    """Two names are one exactly where the server's CASEMAPPING makes them one; an unknown mapping joins least."""
    assert wire.fold("A[]\\~É", "ascii") == "a[]\\~É"
    assert wire.fold("A[]\\~", "rfc1459-strict") == "a{}|~"
    assert wire.fold("A[]\\~", "rfc1459") == "a{}|^"
    assert wire.case_mapping("strict-rfc1459") == "rfc1459-strict"
    assert wire.case_mapping("RFC1459") == "rfc1459"
    assert wire.case_mapping("rfc7613") == "ascii"


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("bot: hi", "hi"),
        ("BOT, hi", "hi"),
        ("@Bot hi", "hi"),
        ("@Bot: hi", "hi"),
        ("Bot:/new", "/new"),
        ("Bot:", ""),
        ("Bot hi", None),
        ("Bottle: hi", None),
        ("hi Bot:", None),
        ("", None),
    ],
)
def test_a_line_is_addressed_by_its_beginning(text: str, rest: str | None) -> None:
    """A leading "nick:" and "nick," in any case, and "@nick", addresses; a nick inside the line doesn't."""
    assert wire.addressed_to("Bot", text) == rest


def test_styles_are_noise() -> None:
    """Colours and styles vanish, the text and its own digits stay."""
    assert wire.plain("\x02bold\x02 \x0304,12red\x03 \x031\x0f2 \x04ff0000hex\x1ditalic") == "bold red 2 hexitalic"


def test_server_time_is_epoch_ms() -> None:
    """A stamp in UTC becomes epoch milliseconds; anything else becomes nothing."""
    assert wire.epoch_ms("1970-01-01T00:00:01.500Z") == 1500
    assert wire.epoch_ms("1970-01-01T00:00:01") is None
    assert wire.epoch_ms("") is None


def test_the_pace_is_burst_then_steady() -> None:
    """The bucket lets the burst through at once and then one token in each period, over any stretch of time."""
    bucket, now, taken = TokenBucket(per_s=2, burst=5), 100.0, list[float]()
    while len(taken) < 25:
        wait = bucket.take(now)
        if wait:
            now += wait
        else:
            taken.append(now - 100)
    assert taken[:5] == [0.0] * 5
    assert taken[5:] == pytest.approx([0.5 * n for n in range(1, 21)])


def test_the_back_off_doubles_within_its_bounds() -> None:
    """Waits grow from the shortest to the longest, differ from bot to bot, and never leave their bounds."""
    rng = random.Random(7)
    waits = [backoff_s(attempt, 1000, 60_000, rng) for attempt in range(1, 40)]
    assert 1 <= waits[0] <= 2 <= waits[1] <= 4 <= waits[2] <= 8
    assert all(30 <= wait <= 60 for wait in waits[6:])
    assert len({backoff_s(1, 1000, 60_000, random.Random(seed)) for seed in range(20)}) == 20
    assert backoff_s(10_000, 50, 50, rng) == 0.05


@given(st.lists(st.binary(max_size=12)), st.integers(1, 10))
def test_lines_do_not_depend_on_the_chunks(chunks: list[bytes], limit: int) -> None:
    """However the stream is cut into chunks, the same lines come out, and none that is too long."""
    buffer = LineBuffer(limit)
    lines = [line for chunk in chunks for line in buffer.feed(chunk)]
    *whole, rest = b"".join(chunks).split(b"\n")
    assert lines == [line for line in whole if len(line) <= limit]
    assert buffer.end() == (rest if len(rest) <= limit else b"")
    assert buffer.skipped == sum(len(line) > limit for line in [*whole, rest])
