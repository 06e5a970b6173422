"""The terminal as a platform: lines from standard input, replies on standard output.

No thread reads: the event loop watches the file descriptor, and reading what is ready never blocks. So nothing
keeps the process alive at exit, and pipes, terminals and files all work. On a terminal the kernel's line editing
applies; GNU readline would need a thread that blocks inside it.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
from typing import Final, TextIO

from seriatim.adapters.base import Capabilities, Inbox
from seriatim.adapters.lines import LineBuffer
from seriatim.errors import InvalidInputError, SendError
from seriatim.limits import TEXT_BYTES_MAX
from seriatim.model import MessageEvent, Outbound, Platform, Sent, SessionSource, Target

CHUNK_BYTES: Final = 65536
_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class TerminalAdapter:
    """The adapter port over two streams of this process; see `base.Adapter`.

    ``stdin`` is a file descriptor. The prompt is shown, on a terminal only, when the bot has said what it had to
    say: after the last part of a reply, or when a line was refused. All methods belong to the gateway's loop;
    writing blocks it while the terminal is stopped (Ctrl-S).
    """

    platform = "local"
    capabilities = Capabilities()
    connected = True
    command_prefix: str | None = None

    def __init__(
        self, *, stdin: int = 0, stdout: TextIO | None = None, prompt: str = "> ", account: str = "terminal"
    ) -> None:
        self.account = account
        self._stdin = stdin
        self._stdout = stdout or sys.stdout
        self._prompt = prompt if os.isatty(stdin) and self._stdout.isatty() else ""
        self._prompted = False
        self._source = SessionSource(platform=Platform(self.platform), chat_id="terminal", chat_type="dm")

    async def run(self, inbox: Inbox) -> None:
        """Accept line after line; returns at end of input, when all of it was accepted."""
        buffer = LineBuffer(TEXT_BYTES_MAX)
        self._show_prompt()
        while chunk := await self._read():
            before = buffer.skipped
            for raw in buffer.feed(chunk):
                await self._accept(inbox, raw)
            if buffer.skipped > before:
                self._remark(f"a line of more than {TEXT_BYTES_MAX} bytes is left out")
        if last := buffer.end():
            await self._accept(inbox, last)

    def text_max(self, target: Target) -> int:
        """No limit."""
        return 0

    async def send(self, out: Outbound) -> Sent:
        """Print one part; returns when it was handed to the operating system.

        Raises a permanent SendError once the output was closed.
        """
        try:
            self._write(printable(out.text) + "\n")
        except (OSError, ValueError) as error:
            raise SendError(f"the output is closed: {error}", permanent=True) from error
        if out.part == out.parts - 1:
            self._show_prompt()
        return Sent()

    async def typing(self, target: Target) -> None:
        """Nothing is shown."""

    async def _read(self) -> bytes:
        """The next bytes; b"" at the end of input."""
        loop = asyncio.get_running_loop()
        ready = asyncio.Event()
        try:
            loop.add_reader(self._stdin, ready.set)
        except PermissionError:
            await asyncio.sleep(0)  # a plain file can't be watched and is always ready
        else:
            try:
                await ready.wait()
            finally:
                loop.remove_reader(self._stdin)
        try:
            return os.read(self._stdin, CHUNK_BYTES)
        except OSError:
            return b""  # a terminal that was hung up says EIO: no more input

    async def _accept(self, inbox: Inbox, raw: bytes) -> None:
        self._prompted = False
        text = raw.decode("utf-8", "replace").strip()
        if not text:
            self._show_prompt()
            return
        try:
            receipt = await inbox.accept(MessageEvent(text=text, source=self._source, account=self.account))
        except InvalidInputError as error:
            self._remark(str(error))
            return
        if receipt.outcome == "refused":
            self._remark(receipt.reason or "refused")

    def _remark(self, reason: str) -> None:
        self._write(f"({printable(reason)})\n")
        self._show_prompt()

    def _show_prompt(self) -> None:
        if self._prompt:
            self._write(self._prompt)
            self._prompted = True

    def _write(self, text: str) -> None:
        """Write below a prompt that is showing: what the user has typed behind it stays readable."""
        lead = "\n" if self._prompted else ""
        encoding = self._stdout.encoding or "utf-8"
        self._prompted = False
        self._stdout.write(lead + text.encode(encoding, "replace").decode(encoding))
        self._stdout.flush()


def printable(text: str) -> str:
    """``text`` without what a terminal would obey (escape sequences, cursor moves); line breaks and tabs stay."""
    return _UNPRINTABLE.sub("", text.replace("\r\n", "\n"))
