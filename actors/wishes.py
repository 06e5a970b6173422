"""What a running agent asks of its lane: each wish is told, and answered once that is durable.

Like a tool's call, a wish works on a thread with a running loop (it returns an awaitable) and on any other (it blocks).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from typing import Any

from seriatim.actors.outlet import ENDED, Outlet
from seriatim.errors import TurnCancelledError
from seriatim.turn import TurnAsks, TurnJob, Wish


class Wishes:
    """The open wishes of one running turn. Any thread; shares the outlet's lock, as the gate of its steps does."""

    __slots__ = ("_closed", "_job", "_made", "_open", "_outlet")

    def __init__(self, job: TurnJob, outlet: Outlet) -> None:
        self._job = job
        self._outlet = outlet
        self._open: dict[str, Future[Any]] = {}
        self._made: Counter[str] = Counter()
        self._closed: str | None = None

    def ask(
        self, what: str, wish: Wish, before: Callable[[str], None] | None = None, *, joins: bool = False
    ) -> Future[Any]:
        """Tell the lane; the future has its answer. ``what`` names the wish: the same one at every attempt.

        ``before`` is called with the token before anything is told. ``joins``: where the same is open already, its
        answer is this one's, too. Raises TurnCancelledError.
        """
        answer: Future[Any] = Future()
        answer.set_running_or_notify_cancel()  # whoever waits may be cancelled; the answer comes all the same
        with self._outlet.lock:
            if self._closed is not None:
                raise TurnCancelledError(self._closed)
            if self._outlet.ended:
                raise TurnCancelledError(ENDED)
            token = f"{self._made[what]} {what}"
            if joins and token in self._open:
                return self._open[token]
            self._made[what] += 1
            token = f"{self._made[what]} {what}"
            self._open[token] = answer
            if before is not None:
                before(token)
            self._outlet.say(TurnAsks(self._job.number, self._job.generation, token, wish))
        return answer

    def answered(self, token: str, value: Any) -> None:
        """The wish is fulfilled, or refused, durably. Unknown tokens are ignored."""
        with self._outlet.lock:
            answer = self._open.pop(token, None)
        if answer is not None:
            answer.set_result(value)

    def close(self, why: str) -> None:
        """The turn is over: whoever waits gets TurnCancelledError. Idempotent."""
        with self._outlet.lock:
            if self._closed is not None:
                return
            self._closed = why
            waiting = list(self._open.values())
            self._open.clear()
        for answer in waiting:
            try:
                answer.set_exception(TurnCancelledError(why))
            except InvalidStateError:
                continue


def given(answer: Future[Any], read: Callable[[Any], Any]) -> Any:
    """The answer as ``read`` makes it: awaitable where a loop runs, else waited for."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return read(answer.result())
    return _awaited(answer, read)


async def _awaited(answer: Future[Any], read: Callable[[Any], Any]) -> Any:
    return read(await asyncio.wrap_future(answer))
