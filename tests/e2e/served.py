"""``seriatim serve`` as a process of its own, with a terminal on pipes as its only adapter."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Self

from .command import LOOK_AGAIN_S, WAIT_S_MAX, environment

AGENTS = """
import asyncio, sys

async def answer(turn):
    if turn.text.startswith("long") and turn.attempt == 1:
        sys.stdout.write("BEGUN ")
        sys.stdout.flush()
        await asyncio.sleep(3600)
    return f"attempt {turn.attempt}: {turn.text}"

class Agent:
    run = staticmethod(answer)

def make(session):
    return Agent()
"""

MAIN = """
import sys
from seriatim.adapters import registry
from seriatim.model import Platform, SessionSource

class Named(registry.TerminalAdapter):
    def __init__(self, *arguments, **named):
        super().__init__(*arguments, **named)
        self._source = SessionSource(Platform(self.platform), "terminal", "dm", user_id="root")

registry.TerminalAdapter = Named

if __name__ == "__main__":
    from seriatim.cli import main
    sys.exit(main(["serve"]))
"""
"""Who types at this terminal has a name on it, as people on other platforms have."""


class Served:
    """Made and started in ``folder``; several may be made on the same one. ``settings``: lines of its file.
    ``agents``: a module's text, with ``factory`` in it.
    """

    def __init__(
        self,
        folder: Path,
        settings: str = "[stop]\ndrain_s = 0.2\n",
        *,
        agents: str = AGENTS,
        factory: str = "make",
    ) -> None:
        self.home = folder / "home"
        (folder / "served_agents.py").write_text(agents)
        (folder / "seriatim.toml").write_text(
            f'home = "{self.home}"\n{settings}\n[agent]\nfactory = "served_agents:{factory}"\n'
            '[adapters.term]\ntype = "terminal"\nprompt = ""\n'
        )
        (folder / "served.py").write_text(MAIN)
        self.process = subprocess.Popen(
            [sys.executable, "served.py"],
            cwd=folder,
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for pipe in (self.process.stdout, self.process.stderr):
            assert pipe is not None
            os.set_blocking(pipe.fileno(), False)
        self.shown = ""
        self.told = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
        self.process.communicate()

    def say(self, line: str) -> None:
        """Type a line."""
        assert self.process.stdin is not None
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()

    def until(self, text: str) -> None:
        """Return once it has shown ``text`` on standard output."""
        self._wait(lambda: text in self.shown)

    def until_told(self, text: str) -> None:
        """Return once it has written ``text`` to standard error."""
        self._wait(lambda: text in self.told)

    def end(self, number: int | None = None) -> int:
        """Its exit code, after the signal of that number; what it still wrote is kept."""
        if number is not None:
            self.process.send_signal(number)
        self._wait(lambda: self.process.poll() is not None)
        self._read()
        assert self.process.returncode is not None
        return self.process.returncode

    def _wait(self, holds: object) -> None:
        assert callable(holds)
        until = time.monotonic() + WAIT_S_MAX
        while not holds():
            assert time.monotonic() < until, (self.shown, self.told)
            self._read()
            time.sleep(LOOK_AGAIN_S)  # another process's pipes, without a reader thread

    def _read(self) -> None:
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self.shown += (self.process.stdout.read() or b"").decode()
        self.told += (self.process.stderr.read() or b"").decode()
