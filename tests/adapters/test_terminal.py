"""The terminal adapter: on a pipe, a file, a terminal, and at the end of input."""

from __future__ import annotations

import asyncio
import io
import os
import pty
import subprocess
import sys
import threading
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from seriatim.adapters.terminal import TerminalAdapter
from seriatim.errors import SendError
from seriatim.limits import TEXT_BYTES_MAX
from seriatim.model import Outbound, Target
from seriatim.testing.adapter_contract import RecordingInbox, outbound

HERE = Target("local", "terminal", "terminal")


@contextmanager
def pipe() -> Iterator[tuple[int, int]]:
    """A pipe's two ends, closed at the end if they are still open."""
    read, write = os.pipe()
    try:
        yield read, write
    finally:
        for end in (read, write):
            try:
                os.close(end)
            except OSError:
                continue


def typed(data: bytes, **inbox_state: bool) -> tuple[RecordingInbox, str]:
    """Run over ``data`` until it ends; returns what was accepted and what was printed."""
    inbox, out = RecordingInbox(), io.StringIO()
    for name, value in inbox_state.items():
        setattr(inbox, name, value)

    async def main() -> None:
        with pipe() as (read, write):
            async with asyncio.timeout(20):
                run = asyncio.ensure_future(TerminalAdapter(stdin=read, stdout=out).run(inbox))
                await asyncio.to_thread(_write_all, write, data)
                await run

    asyncio.run(main())
    return inbox, out.getvalue()


def _write_all(write: int, data: bytes) -> None:
    with os.fdopen(write, "wb") as stream:
        stream.write(data)


def test_each_line_is_a_message_and_the_end_of_input_ends_the_run() -> None:
    """Lines are accepted in order, the last without its line break too; blank ones are nothing."""
    inbox, printed = typed("one\n\n  two  \nzwölf\nlast".encode())
    assert [event.text for event in inbox.events] == ["one", "two", "zwölf", "last"]
    assert printed == ""
    source = inbox.events[0].source
    assert (source.platform.name, source.chat_type, source.chat_id) == ("local", "dm", "terminal")
    assert inbox.events[0].message_id is None


def test_a_line_that_is_no_message_is_told_and_left_out() -> None:
    """A line beyond the bound of a message, or one that is refused, gets a remark; what follows goes on."""
    inbox, printed = typed(b"x" * (TEXT_BYTES_MAX + 1) + b"\nshort\n")
    assert [event.text for event in inbox.events] == ["short"]
    assert "left out" in printed
    assert "(a test says so)" in typed(b"hi\n", refuse=True)[1]


def test_a_plain_file_is_read_to_its_end(tmp_path: Path) -> None:
    """Input from a file, which can't be watched for readiness, works like a pipe."""
    path = tmp_path / "lines"
    path.write_text("a\nb\n")

    async def main() -> list[str]:
        inbox = RecordingInbox()
        with path.open("rb") as file:
            await TerminalAdapter(stdin=file.fileno(), stdout=io.StringIO()).run(inbox)
        return [event.text for event in inbox.events]

    assert asyncio.run(main()) == ["a", "b"]


def test_waiting_for_input_leaves_the_loop_free_and_can_be_cancelled() -> None:
    """While nobody types, other work runs; cancelling ends the run at once, without a thread left behind."""

    async def main() -> None:
        with pipe() as (read, _):
            adapter = TerminalAdapter(stdin=read, stdout=(out := io.StringIO()))
            run = asyncio.ensure_future(adapter.run(RecordingInbox()))
            await asyncio.sleep(0)
            await adapter.send(outbound(HERE, "meanwhile"))
            run.cancel()
            await asyncio.gather(run, return_exceptions=True)
            assert out.getvalue() == "meanwhile\n"

    threads = threading.active_count()
    asyncio.run(main())
    assert threading.active_count() == threads


def test_an_answer_cannot_drive_the_terminal() -> None:
    """Escape sequences of a model's answer are shown as the harmless rest of them; lines and tabs stay."""

    async def main() -> str:
        adapter = TerminalAdapter(stdin=0, stdout=(out := io.StringIO()))
        await adapter.send(outbound(HERE, "a\x1b]0;title\x07b\r\nc\td\x9b2J\re"))
        return out.getvalue()

    assert asyncio.run(main()) == "a]0;titleb\nc\td2Je\n"


def test_what_the_output_cannot_encode_is_replaced() -> None:
    """A terminal in ASCII still gets the rest of the answer."""

    async def main() -> bytes:
        raw = io.BytesIO()
        out = io.TextIOWrapper(raw, encoding="ascii", newline="")
        await TerminalAdapter(stdin=0, stdout=out).send(outbound(HERE, "naïve 🙂"))
        return raw.getvalue()

    assert asyncio.run(main()) == b"na?ve ?\n"


def test_a_closed_output_is_permanent() -> None:
    """Nobody will ever read it: the send is refused for good."""

    async def main() -> None:
        out = io.StringIO()
        out.close()
        with pytest.raises(SendError) as caught:
            await TerminalAdapter(stdin=0, stdout=out).send(outbound(HERE, "x"))
        assert caught.value.permanent

    asyncio.run(main())


def _read_all(keyboard: int) -> str:
    """Everything a terminal has shown, once its other side is closed: the kernel may pass it on in pieces."""
    shown = b""
    try:
        while chunk := os.read(keyboard, 65536):
            shown += chunk
    except OSError:  # Linux says EIO where others say end of file
        pass
    finally:
        os.close(keyboard)
    return shown.decode()


def test_the_prompt_comes_when_it_is_the_users_turn() -> None:
    """On a terminal: a prompt at first, none after a line until the last part of its answer, none twice."""

    async def main() -> str:
        keyboard, screen = pty.openpty()
        tty.setraw(screen)
        try:
            with os.fdopen(os.dup(screen), "w", newline="") as out:
                adapter = TerminalAdapter(stdin=screen, stdout=out)
                inbox = RecordingInbox()
                run = asyncio.ensure_future(adapter.run(inbox))
                os.write(keyboard, b"hi\n")
                await inbox.heard(1)
                await adapter.send(Outbound("d", 0, 2, "one", HERE, "k", 1))
                await adapter.send(Outbound("d", 1, 2, "two", HERE, "k", 1))
                await adapter.send(Outbound("e", 0, 1, "by the way", HERE, "k", 1))
                run.cancel()
                await asyncio.gather(run, return_exceptions=True)
        finally:
            os.close(screen)
        return _read_all(keyboard)

    assert asyncio.run(main()) == "> one\ntwo\n> \nby the way\n> "


def test_a_process_ends_when_its_input_does() -> None:
    """A real process on real standard streams answers and exits by itself at the end of input."""
    program = """
import asyncio
from seriatim.adapters.terminal import TerminalAdapter
from seriatim.testing.adapter_contract import Answer, outbound, target_of

class Echo:
    async def accept(self, event):
        await adapter.send(outbound(target_of(event), event.text.upper()))
        return Answer()

adapter = TerminalAdapter()
asyncio.run(adapter.run(Echo()))
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        input="one\ntwo\n",
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
    )
    assert done.stdout == "ONE\nTWO\n"
