"""A child process that a test starts, watches and kills, by its pid."""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import suppress
from pathlib import Path

from attrs import frozen

from tests.kill.failpoints import PARENT_VARIABLE, environment

ROOT = Path(__file__).resolve().parents[2]


@frozen
class Armed:
    """Where a child is to halt; see `failpoints.Failpoints`."""

    point: str
    count: int = 1
    depth: int = 1


class Child:
    """One process of the gateway, by pid; ``halted`` is set to the point's name, or to "" when it has ended."""

    def __init__(self, process: asyncio.subprocess.Process, pipe: int) -> None:
        loop = asyncio.get_running_loop()
        self.process = process
        self.halted: asyncio.Future[str] = loop.create_future()
        self._pipe = pipe
        loop.add_reader(pipe, self._heard)

    @classmethod
    async def start(
        cls, module: str, arguments: list[str], log: Path, armed: Armed | None = None, *, stdin: Path = Path(os.devnull)
    ) -> Child:
        """Start ``python -m module``; what it says goes to ``log``."""
        reading, writing = os.pipe()
        halt = {} if armed is None else environment(armed.point, armed.count, armed.depth, writing)
        try:
            with log.open("ab") as errors, stdin.open("rb") as lines:
                process = await asyncio.create_subprocess_exec(
                    sys.executable,
                    *("-m", module, *arguments),
                    cwd=ROOT,
                    env={**os.environ, **halt, PARENT_VARIABLE: str(os.getpid())},
                    pass_fds=[writing],
                    stdin=lines,
                    stdout=errors,
                    stderr=errors,
                )
        finally:
            os.close(writing)
        return cls(process, reading)

    def _heard(self) -> None:
        asyncio.get_running_loop().remove_reader(self._pipe)
        said = os.read(self._pipe, 100).decode().strip()
        os.close(self._pipe)
        if not self.halted.done():
            self.halted.set_result(said)

    async def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        with suppress(ProcessLookupError):
            self.process.kill()
        await self.process.wait()
        await self.halted
