"""Time as a port.

The pure rules never read a clock: they are told the time. Everything that waits or stamps takes a ``Clock``;
``seriatim.actors.clockwork.SystemClock`` is the real one, ``seriatim.testing.clock.VirtualClock`` the one that tests
and the simulator advance by hand.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

__all__ = ["Clock", "Timer"]


class Timer(Protocol):
    """One pending call."""

    def cancel(self) -> None:
        """Don't call any more; harmless after the call, and when repeated."""
        ...


class Clock(Protocol):
    """What time it is, how much has passed, and a call later on."""

    def now_ms(self) -> int:
        """Wall time, milliseconds since 1970, UTC. It may jump either way: for people and logs, not for deadlines."""
        ...

    def monotonic_ms(self) -> float:
        """Milliseconds since some moment; never goes back. Deadlines and ages of live things are measured by it."""
        ...

    def call_later(self, delay_ms: float, fn: Callable[[], object]) -> Timer:
        """Call *fn* once, *delay_ms* from now, on the clock's own thread; elsewhere is reached by telling an actor.

        Any thread may ask for it.
        """
        ...
