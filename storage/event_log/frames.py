"""Zstandard frames: written whole, found by their structure, decoded within a bound (seed §15).

A file is frames one after another, each a batch. Frames are walked block by block, so that a frame cut by the end of
the file (torn: it was never acknowledged) is told from one whose bytes are wrong (damage).
"""

from __future__ import annotations

import sys
from typing import BinaryIO, Final

from seriatim.limits import JSONL_FRAME_BYTES_MAX

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

_MAGIC: Final = 0xFD2FB528
_SKIPPABLE: Final = 0x184D2A50
_BLOCK_BYTES_MAX: Final = 128 * 1024  # the format's own bound
_CHUNK: Final = 1 << 20
_OPTIONS: Final[dict[int, int]] = {
    zstd.CompressionParameter.compression_level: 6,
    zstd.CompressionParameter.checksum_flag: 1,
    zstd.CompressionParameter.content_size_flag: 1,
}


class TornError(Exception):
    """The file ends inside the frame."""


class FrameError(Exception):
    """The frame is there, and is not what was written, or larger than it may be."""


def encode_frame(content: bytes) -> bytes:
    """One frame with a checksum and its size."""
    return zstd.compress(content, options=_OPTIONS)


def read_frame(file: BinaryIO) -> bytes | None:
    """The bytes of the next frame; b"" for one to be skipped; None at the end of the file.

    Raises TornError and FrameError. Never reads further than the frame.
    """
    start = file.read(4)
    if not start:
        return None
    magic = int.from_bytes(start, "little")
    if len(start) == 4 and magic & 0xFFFFFFF0 == _SKIPPABLE:
        _skip(file, int.from_bytes(_take(file, 4), "little"))
        return b""
    if len(start) < 4 or magic != _MAGIC:
        _judge_rest(file, start)
    frame = bytearray(start)
    has_checksum = _read_header(file, frame)
    last = False
    while not last:
        block = _take(file, 3)
        number = int.from_bytes(block, "little")
        last, kind, size = bool(number & 1), number >> 1 & 3, number >> 3
        if kind == 3:
            raise FrameError("has a block of a kind that there is not")
        if size > _BLOCK_BYTES_MAX:
            raise FrameError("has a block that is larger than a block may be")
        frame += block
        frame += _take(file, 1 if kind == 1 else size)
        if len(frame) > JSONL_FRAME_BYTES_MAX:
            raise FrameError(f"is larger than {JSONL_FRAME_BYTES_MAX} bytes")
    if not has_checksum:
        raise FrameError("has no checksum")
    frame += _take(file, 4)
    return bytes(frame)


def decode_frame(frame: bytes) -> bytes:
    """What a frame holds. Raises FrameError: wrong bytes, or more than JSONL_FRAME_BYTES_MAX."""
    decoder = zstd.ZstdDecompressor()
    pieces: list[bytes] = []
    room = JSONL_FRAME_BYTES_MAX + 1
    try:
        while not decoder.eof and room > 0:
            piece = decoder.decompress(b"" if pieces else frame, room)
            if not piece and decoder.needs_input:
                break
            pieces.append(piece)
            room -= len(piece)
    except zstd.ZstdError:
        raise FrameError("fails its checksum or its structure") from None
    if room <= 0:
        raise FrameError(f"holds more than {JSONL_FRAME_BYTES_MAX} bytes")
    if not decoder.eof or decoder.unused_data:
        raise FrameError("fails its structure")
    return b"".join(pieces)


def decode_torn(start: bytes) -> bytes:
    """What the whole blocks of a frame hold whose end is missing: unchecked, for logs whose rule is to keep it."""
    try:
        return zstd.ZstdDecompressor().decompress(start, JSONL_FRAME_BYTES_MAX)
    except zstd.ZstdError:
        return b""


def find_frame(file: BinaryIO, start: int) -> int | None:
    """Where the next frame seems to begin, from ``start`` on."""
    magic = _MAGIC.to_bytes(4, "little")
    file.seek(start)
    kept = b""
    while chunk := file.read(_CHUNK):
        found = (kept + chunk).find(magic)
        if found >= 0:
            return start - len(kept) + found
        start += len(chunk)
        kept = (kept + chunk)[-3:]
    return None


def frame_within(file: BinaryIO, start: int, end: int) -> bool:
    """Whether a whole, sound frame lies between ``start`` and ``end``."""
    while (place := find_frame(file, start)) is not None and place < end:
        file.seek(place)
        try:
            frame = read_frame(file)
            if frame and file.tell() <= end:
                decode_frame(frame)
                return True
        except (TornError, FrameError):
            pass
        start = place + 1
    return False


def _read_header(file: BinaryIO, frame: bytearray) -> bool:
    """Add the frame's header to ``frame``; whether a checksum closes it."""
    descriptor = _take(file, 1)[0]
    if descriptor & 0x08:
        raise FrameError("uses what no version of the format has")
    single = bool(descriptor & 0x20)
    window = b"" if single else _take(file, 1)
    size_flag = descriptor >> 6
    size_bytes = (1 if single else 0, 2, 4, 8)[size_flag]
    rest = _take(file, (0, 1, 2, 4)[descriptor & 3] + size_bytes)
    if size_bytes:
        declared = int.from_bytes(rest[-size_bytes:], "little") + (256 if size_flag == 1 else 0)
        if declared > JSONL_FRAME_BYTES_MAX:
            raise FrameError(f"declares {declared} bytes, at most {JSONL_FRAME_BYTES_MAX} are read")
    if window and 1 << (10 + (window[0] >> 3)) > JSONL_FRAME_BYTES_MAX:
        raise FrameError("asks for more memory than a frame may")
    frame.append(descriptor)
    frame += window + rest
    return bool(descriptor & 0x04)


def _take(file: BinaryIO, count: int) -> bytes:
    taken = file.read(count)
    if len(taken) < count:
        raise TornError
    return taken


def _skip(file: BinaryIO, count: int) -> None:
    while count:
        count -= len(_take(file, min(count, 1 << 16)))


def _judge_rest(file: BinaryIO, start: bytes) -> None:
    """No frame begins here: an unwritten rest (zeros, or a piece of a magic number) is torn, all else damage."""
    if len(start) < 4 and (_MAGIC.to_bytes(4, "little").startswith(start) or not start.strip(b"\0")):
        raise TornError
    if not start.strip(b"\0"):
        while piece := file.read(1 << 16):
            if piece.strip(b"\0"):
                break
        else:
            raise TornError
    raise FrameError("begins like no frame")
