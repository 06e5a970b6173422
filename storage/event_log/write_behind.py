"""Write-behind of one live session: events are taken at once and stored a little later, in order (seed §12).

The first event that waits opens a window of fixed length; those after it join and don't extend it. When it ends, all
that waits becomes one batch. One write at a time: a window that ends during a write has its batch right after it. A
barrier (``flush``) cuts the wait short and drains everything. After a write that failed in the background nothing is
written by itself until another event comes or somebody flushes; what failed stays first in line.

Runs on the service's loop. The window bounds the intended wait only, not the loop's or the disk's time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Literal

from seriatim.clock import Clock, Timer
from seriatim.errors import InvalidInputError
from seriatim.limits import WRITE_WINDOW_MS_MAX

State = Literal["idle", "waiting", "writing", "draining", "blocked"]


class WriteBehind:
    """What is accepted, what is stored, and when the difference is written.

    ``write(first, last)`` stores the events numbered first to last - 1, gives how many are stored then, and raises
    when it stored none of them. ``failed`` hears of a background write that failed, once each; whoever flushes gets
    the error instead.
    """

    def __init__(
        self,
        write: Callable[[int, int], Coroutine[Any, Any, int]],
        clock: Clock,
        window_ms: float,
        failed: Callable[[Exception], None],
        stored: int = 0,
    ) -> None:
        self._write = write
        self._clock = clock
        self._window_ms = window_ms
        self._failed = failed
        self._loop = asyncio.get_running_loop()
        self.accepted = stored
        self.stored = stored
        self.paused = False
        self._in_flight = stored
        self._timer: Timer | None = None
        self._window = 0
        self._expired = False
        self._writing: asyncio.Task[None] | None = None
        self._barrier: asyncio.Task[None] | None = None

    @property
    def state(self) -> State:
        """``blocked``: the last write failed, and nothing is written by itself; what waits is kept."""
        if self._barrier is not None:
            return "draining"
        if self._writing is not None:
            return "writing"
        if self.paused:
            return "blocked"
        return "waiting" if self.stored < self.accepted else "idle"

    def accept(self, count: int) -> None:
        """``count`` more events are there to be stored."""
        first = self.accepted == self._taken()
        self.accepted += count
        if self._barrier is not None:
            return  # the barrier drains them too
        if first or self.paused:
            self.paused = False
            self._open_window()

    async def flush(self) -> None:
        """Return when all that is accepted is stored. Raises what the write raised; then it is kept, and paused.

        Flushes at the same time share one barrier; cancelling one leaves it running.
        """
        if self._barrier is None:
            if self.stored == self.accepted and self._writing is None:
                return
            self._close_window()
            self.paused = False
            self._barrier = self._loop.create_task(self._drain())
            self._barrier.add_done_callback(_seen)
        await asyncio.shield(self._barrier)

    def stop(self) -> None:
        """Write nothing by itself any more."""
        self._close_window()
        self.paused = True

    # --- the machine -----------------------------------------------------------------------------------

    def _taken(self) -> int:
        """How many events a write has stored or is about to."""
        return self.stored if self._writing is None else self._in_flight

    def _open_window(self) -> None:
        self._close_window()
        self._window += 1
        window = self._window

        def fire() -> None:
            # The clock may tell from another thread, and after the loop is gone.
            if not self._loop.is_closed():
                self._loop.call_soon_threadsafe(self._ended, window)

        self._timer = self._clock.call_later(self._window_ms, fire)

    def _close_window(self) -> None:
        self._window += 1
        self._expired = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _ended(self, window: int) -> None:
        """The window is over; a cancelled one's late word is nothing."""
        if window != self._window:
            return
        self._timer = None
        if self._writing is not None:
            self._expired = True
        else:
            self._start()

    def _start(self) -> None:
        self._expired = False
        self._in_flight = self.accepted
        self._writing = self._loop.create_task(self._in_background(self.stored, self.accepted))

    async def _in_background(self, first: int, last: int) -> None:
        try:
            self.stored = await self._write(first, last)
        except Exception as error:  # noqa: BLE001 - whatever a backend raises is told, and the batch is kept
            self._writing = None
            if self._barrier is None:
                self.stop()
            self._failed(error)
            return
        self._writing = None
        if self._barrier is None and (self._expired or self.stored < last):
            self._start()  # also what a bounded write has left over

    async def _drain(self) -> None:
        """Until nothing waits; over in the same step that sees it, so that no event falls between."""
        try:
            if self._writing is not None:
                await self._writing  # its failure was told; what it couldn't store is tried again
            while self.stored < self.accepted:
                self.stored = await self._write(self.stored, self.accepted)
        except BaseException:
            self.paused = True
            raise
        finally:
            self._barrier = None


def check_window(window_ms: object) -> float:
    """The window itself. Raises InvalidInputError unless it is a number of milliseconds from 1 to 2**31-1."""
    if type(window_ms) not in (int, float) or not 1 <= window_ms <= WRITE_WINDOW_MS_MAX:  # type: ignore[operator]
        raise InvalidInputError("window_ms", f"is not a number of milliseconds from 1 to {WRITE_WINDOW_MS_MAX}")
    return float(window_ms)  # type: ignore[arg-type]


def _seen(task: asyncio.Task[None]) -> None:
    """Whoever flushed has the error; if nobody waits any more, nobody is told of it at exit."""
    if not task.cancelled():
        task.exception()
