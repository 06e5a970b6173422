"""Virtual time is exact; the real clock's timers fire on its loop."""

from __future__ import annotations

import asyncio
import threading

from seriatim.actors.clockwork import SystemClock
from seriatim.testing.clock import START_MS, VirtualClock

from .worlds import WAIT_S, running_loop


def test_timers_fire_in_order_each_at_its_time() -> None:
    """advance() fires what falls due in order; equal times keep the order in which they were set."""
    clock = VirtualClock()
    fired: list[tuple[str, float]] = []
    for name, delay_ms in (("late", 30), ("a", 10), ("b", 10), ("never", 99)):
        clock.call_later(delay_ms, lambda name=name: fired.append((name, clock.monotonic_ms())))  # type: ignore[misc]
    assert clock.advance(50) == 3
    assert fired == [("a", 10), ("b", 10), ("late", 30)]
    assert (clock.monotonic_ms(), clock.now_ms()) == (50, START_MS + 50)


def test_a_timer_set_by_a_timer_fires_in_the_same_window() -> None:
    """What a timer sets inside the advanced window is not left for the next one."""
    clock = VirtualClock()
    fired: list[float] = []

    def again() -> None:
        fired.append(clock.monotonic_ms())
        clock.call_later(10, again)

    clock.call_later(10, again)
    assert clock.advance(35) == 3
    assert fired == [10, 20, 30]


def test_a_cancelled_virtual_timer_never_fires() -> None:
    """cancel() works before the time, and is harmless after it."""
    clock = VirtualClock()
    fired: list[int] = []
    timer = clock.call_later(10, lambda: fired.append(1))
    other = clock.call_later(10, lambda: fired.append(2))
    timer.cancel()
    clock.advance(10)
    other.cancel()
    assert fired == [2]
    assert clock.next_due_ms() is None


def test_a_wall_clock_jump_moves_no_timer() -> None:
    """jump_wall changes now_ms alone."""
    clock = VirtualClock()
    clock.call_later(10, lambda: None)
    clock.jump_wall(-3_600_000)
    assert clock.now_ms() == START_MS - 3_600_000
    assert clock.next_due_ms() == 10
    assert clock.monotonic_ms() == 0


def test_the_system_clock_fires_on_the_loop_from_any_thread() -> None:
    """A timer set on another thread fires on the loop's thread."""
    with running_loop() as loop:
        clock = SystemClock(loop)
        fired = threading.Event()
        threads: list[int] = []

        def fire() -> None:
            threads.append(threading.get_ident())
            fired.set()

        clock.call_later(1, fire)
        assert fired.wait(WAIT_S)
        assert threads != [threading.get_ident()]


def test_a_cancelled_system_timer_never_fires() -> None:
    """cancel() works on the loop and from a thread, before the timer is armed and after."""

    async def main() -> None:
        clock = SystemClock(asyncio.get_running_loop())
        fired: list[str] = []
        clock.call_later(1, lambda: fired.append("on loop")).cancel()
        timer = clock.call_later(5, lambda: fired.append("from a thread"))
        await asyncio.to_thread(timer.cancel)
        await asyncio.to_thread(lambda: clock.call_later(1, lambda: fired.append("unarmed")).cancel())
        last = asyncio.Event()
        clock.call_later(20, last.set)
        await asyncio.wait_for(last.wait(), WAIT_S)
        assert fired == []

    asyncio.run(main())


def test_the_system_clock_tells_both_times() -> None:
    """Wall time is in milliseconds since 1970, monotonic time doesn't go back."""
    loop = asyncio.new_event_loop()
    try:
        clock = SystemClock(loop)
        assert clock.now_ms() > START_MS - 366 * 86_400_000
        assert clock.monotonic_ms() <= clock.monotonic_ms()
    finally:
        loop.close()
