"""The command line as other programs see it: started in a folder of its own, with this working tree's code."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import Self

from seriatim.storage.sqlite_reader import SqliteReader

ROOT = Path(__file__).resolve().parents[2]
WAIT_S_MAX = 60.0
LOOK_AGAIN_S = 0.05


def environment() -> dict[str, str]:
    """Our own, with this tree's code first and no configuration in it."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SERIATIM_")}
    return kept | {"PYTHONPATH": str(ROOT)}


def seriatim(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run ``seriatim`` in ``folder`` to its end, with nothing on standard input."""
    return subprocess.run(
        [sys.executable, "-m", "seriatim", *arguments],
        cwd=folder,
        env=environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=WAIT_S_MAX,
        check=False,
    )


def wait_at_rest(home: Path) -> None:
    """Return once no lane of ``home`` has open work."""
    reader = SqliteReader(home / "state.db")
    try:
        until = time.monotonic() + WAIT_S_MAX
        while reader.open_work():
            assert time.monotonic() < until, reader.open_work()
            time.sleep(LOOK_AGAIN_S)  # another process's store gives no event to wait for
    finally:
        reader.close()


class Chat:
    """``seriatim chat`` on a terminal; ``shown`` is all that it has printed, what was typed included."""

    PROMPT = "\n> "

    def __init__(self, folder: Path, home: Path) -> None:
        self.shown = ""
        self._terminal, theirs = pty.openpty()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "seriatim", "chat", "--home", str(home)],
            cwd=folder,
            env=environment(),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.kill()
        os.close(self._terminal)

    def prompted(self) -> str:
        """Wait for the next prompt; what was shown before it."""
        began = len(self.shown)
        until = time.monotonic() + WAIT_S_MAX
        while self.PROMPT not in self.shown[began:]:
            ready, _, _ = select.select([self._terminal], [], [], max(0.0, until - time.monotonic()))
            assert ready, f"no prompt; shown so far: {self.shown!r}"
            self.shown += os.read(self._terminal, 65536).decode().replace("\r\n", "\n")
        return self.shown[began:].removesuffix(self.PROMPT)

    def say(self, line: str) -> str:
        """Type a line and wait for the answer to it."""
        os.write(self._terminal, f"{line}\n".encode())
        return self.prompted().removeprefix(f"{line}\n")

    def end(self) -> int:
        """Type Ctrl-D; the exit code."""
        os.write(self._terminal, b"\x04")
        return self._process.wait(WAIT_S_MAX)

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self._process.kill()
        self._process.wait()
