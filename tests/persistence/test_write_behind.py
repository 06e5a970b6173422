"""Write-behind: when what was accepted is written, told line by line against a clock that is moved by hand."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from seriatim.errors import InvalidInputError, StoreUnhealthyError
from seriatim.storage.event_log.live import LiveSessions
from seriatim.storage.event_log.write_behind import WriteBehind
from seriatim.testing.clock import VirtualClock

WINDOW_MS = 200
FULL = StoreUnhealthyError("the disk is full")


class Disk:
    """Takes batches; holds them while ``hold`` is set, fails with what ``errors`` has next."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.batches: list[tuple[int, int]] = []
        self.begun: list[tuple[int, int]] = []
        self.ended = 0
        self.errors: list[Exception | None] = []
        self.told: list[Exception] = []
        self.free = asyncio.Event()
        self.free.set()
        self.writer = WriteBehind(self.write, self.clock, WINDOW_MS, self.told.append)

    async def write(self, first: int, last: int) -> int:
        """One batch."""
        self.begun.append((first, last))
        await self.free.wait()
        self.ended += 1
        if self.errors and (error := self.errors.pop(0)) is not None:
            raise error
        self.batches.append((first, last))
        return last

    async def passes(self, ms: float) -> None:
        """Time passes, and whatever can go on does."""
        self.clock.advance(ms)
        await rest()


async def rest() -> None:
    """Let everything run that doesn't wait for the test: no threads are in play here."""
    for _ in range(20):
        await asyncio.sleep(0)


def told(story: Callable[[Disk], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """A test told as a coroutine over a fresh disk."""

    def test() -> None:
        async def run() -> None:
            await story(Disk())

        asyncio.run(asyncio.wait_for(run(), 60))

    test.__name__, test.__doc__ = story.__name__, story.__doc__
    return test


@told
async def test_the_window_is_not_extended(disk: Disk) -> None:
    """Events that come later join the batch of the first and don't move its end."""
    disk.writer.accept(1)
    for _ in range(3):
        await disk.passes(60)
        disk.writer.accept(1)
    assert (disk.writer.state, disk.batches) == ("waiting", [])

    await disk.passes(20)

    assert (disk.writer.state, disk.batches) == ("idle", [(0, 4)])


@told
async def test_twenty_events_of_a_stream_are_one_batch(disk: Disk) -> None:
    """Twenty events, ten milliseconds apart, become one write."""
    for _ in range(20):
        disk.writer.accept(1)
        await disk.passes(10)

    assert disk.batches == [(0, 20)]


@told
async def test_what_comes_during_a_write_has_its_own_window(disk: Disk) -> None:
    """A write that is over before the next window ends leaves that window alone."""
    disk.free.clear()
    disk.writer.accept(1)
    await disk.passes(WINDOW_MS)
    disk.writer.accept(1)
    await disk.passes(150)
    disk.free.set()
    await rest()
    assert disk.batches == [(0, 1)]

    await disk.passes(49)
    assert disk.begun == [(0, 1)]
    await disk.passes(1)
    assert disk.batches == [(0, 1), (1, 2)]


@told
async def test_a_window_that_ends_during_a_write_is_written_right_after(disk: Disk) -> None:
    """One write at a time: the batch that is due waits for the one before it, and for nothing else."""
    disk.free.clear()
    disk.writer.accept(1)
    await disk.passes(WINDOW_MS)
    disk.writer.accept(2)
    await disk.passes(WINDOW_MS)
    assert disk.begun == [(0, 1)]

    disk.free.set()
    await rest()

    assert disk.batches == [(0, 1), (1, 3)]


@told
async def test_a_flush_cuts_the_wait_short(disk: Disk) -> None:
    """A flush writes at once, and the window that it cancelled does nothing later."""
    disk.writer.accept(2)
    await disk.writer.flush()
    assert disk.batches == [(0, 2)]

    await disk.passes(10 * WINDOW_MS)
    assert disk.begun == [(0, 2)]
    await disk.writer.flush()
    assert disk.begun == [(0, 2)]


@told
async def test_a_flush_waits_for_the_write_before_it_and_drains_the_rest(disk: Disk) -> None:
    """A flush during a write, and events during the flush: all of it is stored when it returns, in order."""
    disk.free.clear()
    disk.writer.accept(1)
    await disk.passes(WINDOW_MS)
    disk.writer.accept(1)
    flushes = [asyncio.ensure_future(disk.writer.flush()) for _ in range(3)]
    await rest()
    disk.writer.accept(1)
    assert (disk.begun, disk.writer.state) == ([(0, 1)], "draining")

    disk.free.set()
    await asyncio.gather(*flushes)

    assert disk.batches == [(0, 1), (1, 3)]
    assert disk.clock.next_due_ms() is None


@told
async def test_a_flush_ignores_that_the_write_before_it_failed(disk: Disk) -> None:
    """The overlapping write's failure is told once, and the flush writes its batch again, first."""
    disk.free.clear()
    disk.errors = [FULL]
    disk.writer.accept(2)
    await disk.passes(WINDOW_MS)
    disk.writer.accept(1)
    flush = asyncio.ensure_future(disk.writer.flush())
    await rest()
    disk.free.set()
    await flush

    assert disk.batches == [(0, 3)]
    assert disk.told == [FULL]


@told
async def test_after_a_failure_nothing_is_tried_by_itself(disk: Disk) -> None:
    """A background write that failed keeps its events and waits, blocked, however long (B123)."""
    disk.errors = [FULL]
    disk.writer.accept(2)
    await disk.passes(WINDOW_MS)
    assert (disk.writer.state, disk.told, disk.writer.stored) == ("blocked", [FULL], 0)

    await disk.passes(100_000)

    assert disk.begun == [(0, 2)]


@told
async def test_the_next_event_opens_a_new_window(disk: Disk) -> None:
    """After a failure another event starts a window, and the batch then holds what failed, first (B122)."""
    disk.errors = [FULL, FULL, FULL]
    for count in range(1, 4):
        disk.writer.accept(1)
        await disk.passes(WINDOW_MS)
        assert disk.begun[-1] == (0, count)

    disk.writer.accept(1)
    await disk.passes(WINDOW_MS - 1)
    assert len(disk.begun) == 3
    await disk.passes(1)

    assert disk.batches == [(0, 4)]


@told
async def test_what_came_during_the_failing_write_waits_too(disk: Disk) -> None:
    """A batch that was ready behind the failing one isn't written before it, nor by itself (B123)."""
    disk.free.clear()
    disk.errors = [FULL]
    disk.writer.accept(1)
    await disk.passes(WINDOW_MS)
    disk.writer.accept(1)
    await disk.passes(WINDOW_MS)
    disk.free.set()
    await disk.passes(100_000)
    assert (disk.begun, disk.writer.state) == ([(0, 1)], "blocked")

    await disk.writer.flush()

    assert disk.batches == [(0, 2)]


@told
async def test_a_failed_flush_says_so_and_keeps_the_batch(disk: Disk) -> None:
    """Each flush retries at once and raises; the events stay, nobody else is told, and later it goes through (B122)."""
    disk.errors = [FULL, FULL]
    disk.writer.accept(3)
    for _ in range(2):
        with pytest.raises(StoreUnhealthyError):
            await disk.writer.flush()
        assert (disk.writer.state, disk.told) == ("blocked", [])
    await disk.passes(100_000)
    assert len(disk.begun) == 2

    await disk.writer.flush()

    assert disk.batches == [(0, 3)]


@told
async def test_flushes_at_once_share_one_answer(disk: Disk) -> None:
    """Flushes at the same time share one barrier, its failure too; cancelling one leaves it to the others."""
    disk.free.clear()
    disk.errors = [FULL]
    disk.writer.accept(1)
    flushes = [asyncio.ensure_future(disk.writer.flush()) for _ in range(3)]
    await rest()
    flushes[0].cancel()
    disk.free.set()
    answers = await asyncio.gather(*flushes, return_exceptions=True)

    assert [type(answer) for answer in answers] == [asyncio.CancelledError, StoreUnhealthyError, StoreUnhealthyError]
    assert disk.begun == [(0, 1)]


@told
async def test_no_event_falls_between_a_barrier_and_its_end(disk: Disk) -> None:
    """An event in the very step after a flush has a window of its own: it is stored without another word."""
    disk.writer.accept(1)

    async def flush_and_accept() -> None:
        await disk.writer.flush()
        disk.writer.accept(1)

    await asyncio.gather(flush_and_accept(), disk.writer.flush())
    await disk.passes(WINDOW_MS)

    assert disk.batches == [(0, 1), (1, 2)]


@told
async def test_a_write_may_store_less_than_was_wanted(disk: Disk) -> None:
    """What a bounded write leaves over is written right after, without another window."""

    async def at_most_two(first: int, last: int) -> int:
        return await disk.write(first, min(last, first + 2))

    writer = WriteBehind(at_most_two, disk.clock, WINDOW_MS, disk.told.append)
    writer.accept(5)
    await disk.passes(WINDOW_MS)
    assert disk.batches == [(0, 2), (2, 4), (4, 5)]
    writer.accept(5)
    await writer.flush()
    assert disk.batches[3:] == [(5, 7), (7, 9), (9, 10)]


@told
async def test_a_stopped_writer_writes_nothing_by_itself(disk: Disk) -> None:
    """Stop cancels the window; what waits is kept."""
    disk.writer.accept(1)
    disk.writer.stop()
    await disk.passes(100_000)

    assert (disk.begun, disk.writer.accepted) == ([], 1)


@pytest.mark.parametrize("window", [0, 0.5, -1, 2**31, True, "200", None])
def test_a_window_is_a_bounded_number(window: Any) -> None:
    """The window is a number of milliseconds from 1 to 2**31-1."""
    with pytest.raises(InvalidInputError, match="window_ms"):
        LiveSessions(VirtualClock(), window_ms=window)


@pytest.mark.parametrize("seed", range(200))
def test_any_schedule_stores_everything_once_in_order(seed: int) -> None:
    """Events, time, flushes, slow writes and failures in any order: one write at a time, no hole, nothing twice, and a
    last flush finds everything stored (B121, B122).
    """
    chance = random.Random(seed)

    async def story() -> None:
        disk = Disk()
        flushes: list[asyncio.Task[None]] = []
        for _ in range(chance.randint(20, 120)):
            match chance.randrange(6):
                case 0 | 1:
                    disk.writer.accept(chance.randint(1, 3))
                case 2:
                    await disk.passes(chance.choice((1, 50, WINDOW_MS, 3 * WINDOW_MS)))
                case 3:
                    flushes.append(asyncio.ensure_future(disk.writer.flush()))
                    await asyncio.sleep(0)
                case 4:
                    disk.errors.append(chance.choice((FULL, None)))
                case _:
                    disk.free.clear() if chance.random() < 0.5 else disk.free.set()
                    await rest()
            assert len(disk.begun) - disk.ended <= 1
            if disk.writer.state == "blocked":
                begun = len(disk.begun)
                await disk.passes(1_000)
                assert len(disk.begun) == begun
        disk.free.set()
        await asyncio.gather(*flushes, return_exceptions=True)
        disk.errors.clear()
        await disk.writer.flush()
        assert disk.writer.stored == disk.writer.accepted
        assert [first for first, _ in disk.batches] == [0, *(last for _, last in disk.batches)][: len(disk.batches)]
        assert disk.writer.state == "idle"

    asyncio.run(asyncio.wait_for(story(), 60))
