"""What can still be trusted of a damaged JSONL file: whole batches whose checksums hold, before and after the damage.

A batch that fails its checksum is left out whole: which of its bytes are wrong, nobody can tell.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from zlib import crc32

from seriatim.errors import InvalidInputError, SessionPersistenceCorruptionError
from seriatim.limits import JSONL_FRAME_BYTES_MAX

from .frames import FrameError, TornError, decode_frame, find_frame, read_frame
from .lines import END_PREFIX, end_line, from_stored, parse
from .scan import Scan
from .values import Problem, SessionEvent

Note = Callable[[int, str], None]


def rescue(scan: Scan) -> tuple[tuple[SessionEvent, ...], tuple[Problem, ...]]:
    """The events of all sound batches, in order, and what is missing or wrong between and after them."""
    problems: list[Problem] = []
    events: list[SessionEvent] = []

    def note(place: int, reason: str) -> None:
        error = SessionPersistenceCorruptionError(f"{scan.where} at byte {place}", reason)
        problems.append(Problem(scan.where, error))

    def gap(seq: int) -> None:
        expected = events[-1].seq + 1 if events else 0
        if seq != expected:
            error = SessionPersistenceCorruptionError(scan.where, f"events {expected} to {seq - 1} are missing")
            problems.append(Problem(scan.where, error))

    batches = _frames(scan, note) if scan.encoding == "zstd" else _closed(scan, note)
    for place, lines in batches:
        try:
            stored = [item for item in map(parse, lines) if "seq" in item]
            batch = [from_stored(item, item["seq"]) for item in stored]
        except (ValueError, TypeError, InvalidInputError) as error:
            note(place, f"a batch can't be read ({type(error).__name__})")
            continue
        for event in batch:
            if not events or event.seq > events[-1].seq:
                gap(event.seq)
                events.append(event)
    return tuple(events), tuple(problems)


def _frames(scan: Scan, note: Note) -> Iterator[tuple[int, list[bytes]]]:
    file = scan.file
    place: int | None = 0
    while place is not None:
        file.seek(place)
        try:
            frame = read_frame(file)
            after = file.tell()
            if frame is None:
                return
            content = decode_frame(frame) if frame else b""
        except (FrameError, TornError) as error:
            note(place, str(error) or "a frame is cut")
            place = find_frame(file, place + 1)
            continue
        if content:
            yield place, content.splitlines()
        place = after


def _closed(scan: Scan, note: Note) -> Iterator[tuple[int, list[bytes]]]:
    file = scan.file
    lines: list[bytes] = []
    file.seek(0)
    crc = place = at = size = 0
    while line := file.readline(JSONL_FRAME_BYTES_MAX):
        at += len(line)
        if not line.startswith(END_PREFIX):
            crc, size = crc32(line, crc), size + len(line)
            if size > JSONL_FRAME_BYTES_MAX:
                lines.clear()  # no batch of ours; goes on looking for the next end
            else:
                lines.append(line)
            continue
        count = len(lines) - (place == 0)
        if lines and line == end_line(count, crc):
            yield place, lines
        else:
            note(place, "a batch's count or checksum is wrong")
        crc, lines, place, size = _recorded(line, crc), [], at, 0
    if lines:
        note(place, "the last batch is not closed")


def _recorded(line: bytes, otherwise: int) -> int:
    """The checksum that a closing line tells: the next batch goes on from it, right or wrong."""
    try:
        crc = parse(line)["crc"]
    except (ValueError, KeyError):
        return otherwise
    return crc if type(crc) is int and 0 <= crc < 2**32 else otherwise
