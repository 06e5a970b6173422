"""The spool's file: what it keeps through kills, full disks and damage."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from seriatim.errors import StoreUnhealthyError
from seriatim.model import MessageEvent, SessionSource
from seriatim.storage import spool as spool_module
from seriatim.storage.spool import Spool, Spooled, spooled

ODD = ["plain", "half a pair \ud83d", "NUL \x00", "line\nend\u2028\r", "\uffff", "x" * 200_000, "", "ß🙂"]


def message(number: int, text: str = "") -> Spooled:
    """One message with every field set."""
    source = SessionSource("irc", chat_id="#c", chat_type="group", user_id="7", user_name="Zoë", is_bot=True)
    event = MessageEvent(text, source, "bot", f"id{number}", reply_to_id="r", internal=number % 2 == 1, received_at=5)
    return Spooled(f"i{number}", f"k{number}", "!", number, event)


def opened(home: Path) -> Spool:
    """The spool of a new owner."""
    made = Spool(home)
    made.open()
    return made


def test_what_is_kept_comes_back_as_it_was(tmp_path: Path) -> None:
    """Every field and every text comes back, for the same owner, the next one and a reader."""
    kept = [message(number, text) for number, text in enumerate(ODD)]
    spool = opened(tmp_path)
    spool.append(kept[:3])
    spool.append(kept[3:])
    again = opened(tmp_path)
    assert spool.read(0, 100)[0] == again.read(0, 100)[0] == spooled(tmp_path) == kept
    first, place = again.read(0, 2)
    assert first + again.read(place, 100)[0] == kept
    assert again.keys == {one.key for one in kept}
    assert oct(spool.file.stat().st_mode & 0o777) == "0o600"
    assert oct(spool.folder.stat().st_mode & 0o777) == "0o700"


def test_a_file_cut_anywhere_holds_its_whole_lines(tmp_path: Path) -> None:
    """Wherever a kill cuts the last line, those before are there, and the next append is not fused with its rest."""
    spool = opened(tmp_path)
    spool.append([message(0, "first")])
    whole = spool.size
    spool.append([message(1, "ß" * 20)])
    data = spool.file.read_bytes()
    for end in range(whole, len(data), 7):
        spool.file.write_bytes(data[:end])
        again = opened(tmp_path)
        assert [one.id for one in again.read(0, 9)[0]] == ["i0"]
        again.append([message(2)])
        assert [one.id for one in spooled(tmp_path)] == ["i0", "i2"]
        assert again.problems == []


def test_a_damaged_line_is_set_aside_and_told(tmp_path: Path) -> None:
    """A line that changed on disk is never taken for a message nor thrown away; the others are kept."""
    spool = opened(tmp_path)
    spool.append([message(number, f"text {number}") for number in range(4)])
    lines = spool.file.read_bytes().splitlines(keepends=True)
    lines[1] = lines[1].replace(b"text 1", b"text 9")
    lines[3] = b"\0" * 30 + b"\n"
    spool.file.write_bytes(b"".join(lines))
    again = opened(tmp_path)
    assert [one.id for one in again.read(0, 9)[0]] == ["i0", "i2"]
    assert len(again.problems) == 1
    assert (spool.folder / "damaged.jsonl").read_bytes() == lines[1] + lines[3]
    again.append([message(5)])
    assert [one.id for one in spooled(tmp_path)] == ["i0", "i2", "i5"]


@pytest.mark.parametrize("call", ["write", "fsync"])
@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
def test_what_the_disk_refuses_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, number: int
) -> None:
    """A failed write or sync keeps nothing of its messages, and spoils neither those before nor those after."""
    spool = opened(tmp_path)
    spool.append([message(0)])
    real: Any = getattr(os, call)

    def fail(descriptor: int, *rest: Any) -> Any:
        if call == "write":
            real(descriptor, rest[0][: len(rest[0]) // 2])  # what fitted
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, call, fail)
    with pytest.raises(StoreUnhealthyError):
        spool.append([message(1, "longer than what comes next" * 9)])
    monkeypatch.undo()
    spool.append([message(2)])
    assert [one.id for one in spool.read(0, 9)[0]] == ["i0", "i2"]
    again = opened(tmp_path)
    assert (again.size, again.problems) == (spool.file.stat().st_size, [])
    assert [one.id for one in spooled(tmp_path)] == ["i0", "i2"]


def test_the_spool_has_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At its bound it refuses, and keeps what it has."""
    monkeypatch.setattr(spool_module, "SPOOL_BYTES_MAX", 1000)
    spool = opened(tmp_path)
    for number in range(10):
        try:
            spool.append([message(number)])
        except StoreUnhealthyError:
            break
    assert spool.size <= 1000
    assert 0 < len(spooled(tmp_path)) == len(spool) < 10


def test_what_no_lane_takes_stays(tmp_path: Path) -> None:
    """The rest is forgotten in one step; with nothing left the file is gone, and a new one may begin."""
    spool = opened(tmp_path)
    spool.append([message(number) for number in range(3)])
    spool.keep_only([message(1)])
    spool.append([message(7)])
    assert [one.id for one in spooled(tmp_path)] == ["i1", "i7"]
    spool.keep_only([])
    assert not spool.file.exists()
    assert len(spool) == spool.size == 0
    spool.append([message(8)])
    assert [one.id for one in spooled(tmp_path)] == ["i8"]
