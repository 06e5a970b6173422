"""Summaries: the agent's optional ``compress(history)``, called beside the turns.

``compress`` may be plain or async. It gets the messages that its text will stand for, oldest first, and returns that
text, or None when there is nothing to say. A warm agent is asked as it is; the one that serves all lanes, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final

from seriatim.actors.calling import call_contained
from seriatim.actors.outlet import Report
from seriatim.actors.warm import WarmAgents
from seriatim.limits import COMPRESS_S_MAX, TEXT_BYTES_MAX
from seriatim.turn import Message

Summed = Callable[[str | None, str], None]
"""Told the summary, or None and why there is none."""

UNABLE: Final = "this agent can't"
NOTHING: Final = "the agent had nothing to say"
FAILED: Final = "the agent failed"
TOO_LARGE: Final = "the summary was too large"
STOPPING: Final = "the gateway stops"
NO_TURN: Final = 0
"""The generation under which a warm agent is used here; turns count from 1."""


class Summaries:
    """The summaries that are being made. All methods on the loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, agent: Any, warm: WarmAgents | None, report: Report) -> None:
        self._loop = loop
        self._agent = agent
        self._warm = warm
        self._report = report
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    def compress(self, lane: str, session: str, history: Sequence[Message], done: Summed) -> None:
        """See TurnRunner.compress."""
        if self._closed or self._loop.is_closed():
            done(None, STOPPING)
            return
        task = self._loop.create_task(self._compress(lane, session, history, done))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def close(self) -> None:
        """Break off what is under way; nothing of it is durable."""
        self._closed = True
        if not self._loop.is_closed():
            for task in self._tasks:
                task.cancel()

    async def _compress(self, lane: str, session: str, history: Sequence[Message], done: Summed) -> None:
        try:
            async with asyncio.timeout(COMPRESS_S_MAX):
                text = await self._ask(lane, session, history)
        except asyncio.CancelledError:
            done(None, STOPPING)
            raise
        except Exception as exc:  # whatever an agent raises: the conversation goes on as it was
            self._report("compress", exc)
            done(None, FAILED)
            return
        if text is None:
            done(None, NOTHING)
        elif text is _CANT:
            done(None, UNABLE)
        elif not isinstance(text, str) or not text.strip():
            done(None, NOTHING)
        elif len(text.encode("utf-8", "replace")) > TEXT_BYTES_MAX:
            done(None, TOO_LARGE)
        else:
            done(text, "")

    async def _ask(self, lane: str, session: str, history: Sequence[Message]) -> Any:
        if self._warm is None:
            return await _call(self._agent, history)
        warm = await self._warm.take(lane, session, NO_TURN)
        try:
            return await _call(warm.made.result(), history)
        finally:
            self._warm.give_back(warm, NO_TURN)


_CANT: Final = object()


async def _call(agent: Any, history: Sequence[Message]) -> Any:
    hook = getattr(agent, "compress", None)
    return await call_contained(hook, history) if callable(hook) else _CANT
