"""The real clock: wall time, monotonic time, and timers on an event loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from seriatim.actors.refs import Ref
from seriatim.clock import Clock, Timer

__all__ = ["LoopTimer", "SystemClock", "WallClock", "signal_later"]


def signal_later(clock: Clock, delay_ms: float, ref: Ref[Any], message: object) -> Timer:
    """Send runtime mail after a while; lost, as any signal, if the actor is dead by then."""

    def fire() -> None:
        ref.signal(message)

    return clock.call_later(delay_ms, fire)


class LoopTimer:
    """A pending call of a ``SystemClock``. ``cancel`` may come from any thread."""

    __slots__ = ("_cancelled", "_fn", "_handle", "_loop")

    def __init__(self, loop: asyncio.AbstractEventLoop, fn: Callable[[], object]) -> None:
        self._loop = loop
        self._fn: Callable[[], object] | None = fn
        self._handle: asyncio.TimerHandle | None = None
        self._cancelled = False

    def arm(self, at_s: float) -> None:
        """Wait for *at_s* of the loop's time. Loop thread."""
        if not self._cancelled:
            self._handle = self._loop.call_at(at_s, self._fire)

    def _fire(self) -> None:
        fn, self._fn = self._fn, None
        if fn is not None and not self._cancelled:
            fn()

    def cancel(self) -> None:
        """Don't call any more. From another thread it may cross a call that is already under way."""
        self._cancelled = True
        self._fn = None
        handle = self._handle
        if handle is not None and _is_running(self._loop):
            handle.cancel()  # from elsewhere the loop forgets the handle when it falls due


class WallClock:
    """The machine's wall time, for those who have no loop and set no timers."""

    def now_ms(self) -> int:
        """Milliseconds since 1970, UTC."""
        return time.time_ns() // 1_000_000


class SystemClock:
    """Time as the machine has it; timers fire on *loop*'s thread.

    Deadlines go by the loop's own clock, which freezegun freezes unless told ``real_asyncio=True``: tests take a
    ``VirtualClock``.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def now_ms(self) -> int:
        """Wall time, milliseconds since 1970, UTC."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> float:
        """Milliseconds since some moment, never back."""
        return time.monotonic() * 1000.0

    def call_later(self, delay_ms: float, fn: Callable[[], object]) -> LoopTimer:
        """Call *fn* once on the loop's thread, *delay_ms* from now. Any thread."""
        timer = LoopTimer(self._loop, fn)
        at_s = self._loop.time() + max(0.0, delay_ms) / 1000
        if _is_running(self._loop):
            timer.arm(at_s)
        else:
            self._loop.call_soon_threadsafe(timer.arm, at_s)
        return timer


def _is_running(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether the current thread runs *loop* right now."""
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False
