"""Lines out of a byte stream, with a bound on how long one may be."""

from __future__ import annotations


class LineBuffer:
    """Cuts chunks into lines; a line of more than ``bytes_max`` is skipped whole and counted in ``skipped``.

    Skipped, not cut: half a line is a message that nobody wrote.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._rest = b""
        self._skipping = False
        self.skipped = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that ``chunk`` completes, without their LF."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        if self._skipping and lines:
            del lines[0]
            self._skipping = False
        if self._skipping or len(self._rest) > self._bytes_max:
            self.skipped += not self._skipping
            self._rest = b""
            self._skipping = True
        fitting = [line for line in lines if len(line) <= self._bytes_max]
        self.skipped += len(lines) - len(fitting)
        return fitting

    def end(self) -> bytes:
        """What came after the last LF; nothing follows."""
        rest, self._rest = self._rest, b""
        return rest
