"""Walking a JSONL file batch by batch, in bounded memory (seed §15; a batch is the atom).

Up to the end of the last whole batch a file is what was acknowledged. What follows is either torn, which means that
no batch is closed there and nothing acknowledged is missing, or damage, which is an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO, Literal
from zlib import crc32

from attrs import define

from seriatim.errors import SessionPersistenceCorruptionError
from seriatim.limits import JSONL_FRAME_BYTES_MAX

from .frames import FrameError, TornError, decode_frame, frame_within, read_frame
from .lines import END_PREFIX, end_line, parse

Encoding = Literal["zstd", "raw"]


@define
class Scan:
    """One walk over ``file``. ``where`` names it in errors.

    After ``batches`` is exhausted: ``end`` is where the last whole batch ends, ``crc`` the checksum along a raw file
    up to there, ``unterminated`` that only the line end of its last line is missing.
    """

    file: BinaryIO
    where: str
    encoding: Encoding
    end: int = 0
    crc: int = 0
    unterminated: bool = False

    def batches(self) -> Iterator[list[bytes]]:
        """The lines of each whole batch, the header's line first of all. Raises SessionPersistenceCorruptionError."""
        self.file.seek(self.end)
        return self._frames() if self.encoding == "zstd" else self._closed()

    def first_line(self) -> bytes:
        """The file's first line, from which its format is told before its structure is judged."""
        self.file.seek(0)
        if self.encoding == "raw":
            return self.file.readline(JSONL_FRAME_BYTES_MAX)
        content: bytes | None = b""
        try:
            while content == b"":
                frame = read_frame(self.file)
                content = frame if not frame else decode_frame(frame)
        except (TornError, FrameError):
            content = None
        if content is None:
            raise self.damage("has no whole header")
        return content.partition(b"\n")[0]

    def damage(self, reason: str) -> SessionPersistenceCorruptionError:
        """The error for what comes after ``end``."""
        return SessionPersistenceCorruptionError(f"{self.where} at byte {self.end}", reason)

    def _frames(self) -> Iterator[list[bytes]]:
        while True:
            try:
                frame = read_frame(self.file)
                content = decode_frame(frame) if frame else b""
            except TornError:
                # Where a whole frame follows, this one's length is what is wrong: it was not the last.
                if frame_within(self.file, self.end + 1, self.file.tell()):
                    raise self.damage("a frame reaches into the one after it") from None
                return
            except FrameError as error:
                raise self.damage(f"a frame {error}") from None
            if frame is None:
                return
            if content and not content.endswith(b"\n"):
                raise self.damage("a frame doesn't hold whole lines")
            self.end = self.file.tell()
            if content:
                yield _lines(content)

    def _closed(self) -> Iterator[list[bytes]]:
        lines: list[bytes] = []
        crc, size, at = self.crc, 0, self.end
        while line := self.file.readline(JSONL_FRAME_BYTES_MAX):
            at += len(line)
            if line.startswith(END_PREFIX):
                if not self._closes(line, lines, crc):
                    if self._is_last(line):
                        return
                    raise self.damage("a batch's count or checksum is wrong")
                self.unterminated = not line.endswith(b"\n")
                self.end, self.crc = at, crc
                yield lines
                lines, size = [], 0
                continue
            size += len(line)
            if size >= JSONL_FRAME_BYTES_MAX:
                raise self.damage(f"a batch is larger than {JSONL_FRAME_BYTES_MAX} bytes")
            crc = crc32(line, crc)
            lines.append(line)

    def _closes(self, line: bytes, lines: list[bytes], crc: int) -> bool:
        count = len(lines) if self.end else len(lines) - 1  # the header's line is no event
        return line.removesuffix(b"\n") == end_line(count, crc)[:-1]

    def _is_last(self, line: bytes) -> bool:
        """Whether the file ends inside this closing line: torn while it was written."""
        if line.endswith(b"\n"):
            return False
        try:
            parse(line)
        except ValueError:
            return True
        return False


def _lines(content: bytes) -> list[bytes]:
    # Not splitlines: JSON may hold a carriage return between two tokens.
    return [line + b"\n" for line in content[:-1].split(b"\n")]
