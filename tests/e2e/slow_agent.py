"""The agent of the operations page: "think …" never ends in its first attempt, "later …" ends once a file is there."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable

from seriatim import Turn
from tests.e2e.agent import _POINTS

GO_VARIABLE = "SLOW_AGENT_GO"
LOOK_S = 0.01


def make(session: str) -> Callable[[Turn], Awaitable[str]]:
    """The same for each session."""
    return answer


async def answer(turn: Turn) -> str:
    """One reply."""
    if turn.text.startswith("think") and turn.attempt == 1:
        _POINTS.hit("mid-turn")
        await asyncio.sleep(3600)
    if turn.text.startswith("later"):
        while not os.access(os.environ[GO_VARIABLE], os.F_OK):  # noqa: ASYNC110  (another process makes it)
            await asyncio.sleep(LOOK_S)
    again = "" if turn.attempt == 1 else f" (attempt {turn.attempt})"
    return f"re: {turn.text}{again}"
