"""Pace, confirmation and back-off of the IRC adapter: arithmetic and book-keeping, without I/O or a clock.

IRC confirms nothing, but a server works through a connection's lines in order: the PONG to a PING proves that
everything written before it was processed, and a refusal comes before that PONG. Messages between two PINGs
form a window. A window holds one message per target at most, so a refusal, which names only its target, names
its message.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from typing import Final

from attrs import define

from seriatim.errors import SendError
from seriatim.model import Sent

UNCONFIRMED_LINES_MAX: Final = 8
"""Messages written and not confirmed. Together with their PINGs they stay below the 20 lines that servers let
a client be ahead before they drop it for flooding, whatever pace was configured."""


@define(eq=False)
class Job:
    """One message on its way: the lines that carry it, and who waits for its end.

    ``target`` is folded. ``unconfirmed`` counts lines that no PONG has covered yet.
    """

    target: str
    lines: tuple[bytes, ...]
    done: asyncio.Future[Sent]
    unconfirmed: int = 0
    message_id: str | None = None

    def __attrs_post_init__(self) -> None:
        self.unconfirmed = len(self.lines)

    def fail(
        self, reason: str, *, permanent: bool = False, ambiguous: bool = False, wait_s: float | None = None
    ) -> None:
        """End it as failed, unless it has ended already."""
        if not self.done.done():
            self.done.set_exception(SendError(reason, permanent=permanent, ambiguous=ambiguous, retry_after_s=wait_s))

    def line_confirmed(self) -> None:
        """One line more was processed; the last one ends it as sent."""
        self.unconfirmed -= 1
        if not self.unconfirmed and not self.done.done():
            self.done.set_result(Sent(self.message_id))


@define(eq=False)
class _Line:
    """One written line of a job; ``settled`` once the server refused it or showed it back."""

    job: Job
    settled: bool = False


@define(eq=False)
class _Window:
    token: str
    lines: list[_Line]


class Unconfirmed:
    """The lines written and not yet confirmed, in windows, oldest first; the last window may still be open."""

    def __init__(self) -> None:
        self._closed: deque[_Window] = deque()
        self._open: list[_Line] = []
        self._tokens = 0

    def __len__(self) -> int:
        return len(self._open) + sum(len(window.lines) for window in self._closed)

    @property
    def is_open(self) -> bool:
        """Whether messages were written since the last PING."""
        return bool(self._open)

    def clashes(self, job: Job) -> bool:
        """Whether ``job`` has to wait for a new window: another message to its target is in the open one."""
        return any(line.job is not job and line.job.target == job.target for line in self._open)

    def wrote(self, job: Job) -> None:
        """A line of ``job`` is about to be written."""
        self._open.append(_Line(job))

    def close(self) -> str:
        """Close the open window; returns the token of the PING to write now."""
        self._tokens += 1
        window = _Window(f"w{self._tokens}", self._open)
        self._open = []
        self._closed.append(window)
        return window.token

    def ponged(self, token: str) -> None:
        """The server has processed everything up to that window; a token not ours is somebody else's affair."""
        if not any(window.token == token for window in self._closed):
            return
        confirmed = ""
        while confirmed != token:
            window = self._closed.popleft()
            confirmed = window.token
            for line in window.lines:
                line.job.line_confirmed()

    def refused(self, target: str, reason: str, wait_s: float | None) -> None:
        """Refuse the oldest message to ``target`` neither refused nor shown back; for good if ``wait_s`` is None."""
        line = self._settle(target)
        if line is not None:
            line.job.fail(reason, permanent=wait_s is None, wait_s=wait_s)

    def echoed(self, target: str, message_id: str) -> None:
        """The server shows that message back, with its id."""
        line = self._settle(target)
        if line is not None and line.job.message_id is None:
            line.job.message_id = message_id

    def _settle(self, target: str) -> _Line | None:
        for line in self._lines():
            if line.job.target == target and not line.settled:
                line.settled = True
                return line
        return None

    def _lines(self) -> list[_Line]:
        return [line for lines in (*(window.lines for window in self._closed), self._open) for line in lines]

    def lose(self, reason: str) -> None:
        """The connection is gone: nobody knows which of these the server still processed."""
        for line in self._lines():
            line.job.fail(reason, ambiguous=True)
        self._closed.clear()
        self._open = []


class TokenBucket:
    """``burst`` at once, then ``per_s``. Times are seconds of any one clock that doesn't go back."""

    def __init__(self, per_s: float, burst: int) -> None:
        self._per_s = per_s
        self._burst = burst
        self._tokens = float(burst)
        self._at = float("-inf")

    def take(self, now: float) -> float:
        """0 and a token is gone, or the seconds until there will be one and nothing is gone."""
        self._tokens = min(self._burst, self._tokens + (now - self._at) * self._per_s)
        self._at = now
        if self._tokens >= 1:
            self._tokens -= 1
            return 0.0
        return (1 - self._tokens) / self._per_s


def backoff_s(attempt: int, min_ms: int, max_ms: int, rng: random.Random) -> float:
    """Seconds to wait before connecting again after ``attempt`` failures (from 1).

    From ``min_ms`` to twice that, then doubled each time, never above ``max_ms``; where in the range is ``rng``'s
    choice, so that the bots of a restarted server don't come as one.
    """
    ceiling_ms = min(max_ms, min_ms * 2 ** min(attempt, 30))
    return rng.uniform(max(min_ms, ceiling_ms / 2), ceiling_ms) / 1000
