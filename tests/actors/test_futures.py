"""PooledFuture beyond what Pykka's own suite checks."""

from __future__ import annotations

import asyncio
import threading
import traceback
from typing import Any

import freezegun
import pykka
import pytest

from seriatim.actors.futures import PooledFuture

from .worlds import WAIT_S


def test_await_leaves_the_loop_running() -> None:
    """Awaiting suspends the task only: another task settles the future."""

    async def main() -> Any:
        future: PooledFuture[int] = PooledFuture()
        asyncio.get_running_loop().call_soon(future.set, 7)
        return await future

    assert asyncio.run(asyncio.wait_for(main(), WAIT_S)) == 7


def test_await_works_across_threads() -> None:
    """A future settled on another thread wakes the task, with its exception too."""

    async def main() -> None:
        future: PooledFuture[int] = PooledFuture()
        threading.Thread(target=future.fail, args=(KeyError("x"),)).start()
        with pytest.raises(KeyError):
            await future

    asyncio.run(asyncio.wait_for(main(), WAIT_S))


def test_a_cancelled_wait_harms_nobody() -> None:
    """A task cancelled while it awaits goes; the future can still be settled, also after the loop is closed."""
    future: PooledFuture[int] = PooledFuture()

    async def main() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(_wait(future), 0.001)

    asyncio.run(main())
    future.set(1)
    assert future.get() == 1


async def _wait(future: PooledFuture[Any]) -> Any:
    return await future


def test_derived_futures_are_awaited_without_a_thread() -> None:
    """map, filter, join and reduce wait for their sources, not in a thread."""

    async def main() -> None:
        source: PooledFuture[Any] = PooledFuture()
        other: PooledFuture[Any] = PooledFuture()
        loop = asyncio.get_running_loop()
        loop.call_soon(source.set, [1, 2, 3])
        loop.call_soon(other.set, [4])
        before = threading.active_count()
        assert await source.map(sum) == 6
        assert await source.filter(lambda n: n > 1) == [2, 3]
        assert await source.reduce(lambda a, b: a + b) == 6
        assert await source.join(other) == [[1, 2, 3], [4]]
        assert threading.active_count() == before

    asyncio.run(asyncio.wait_for(main(), WAIT_S))


def test_an_opaque_hook_is_awaited_in_a_thread() -> None:
    """A user's own get-hook may block; awaiting it doesn't block the loop."""
    gate = threading.Event()

    async def main() -> Any:
        future: PooledFuture[Any] = PooledFuture()
        future.set_get_hook(lambda timeout: gate.wait(WAIT_S) and "done")
        asyncio.get_running_loop().call_soon(gate.set)
        return await future

    assert asyncio.run(asyncio.wait_for(main(), WAIT_S)) == "done"


def test_callbacks_run_once_each_and_failures_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Callbacks run at settling, or at once afterwards; one that raises doesn't keep the others from it."""
    future: PooledFuture[int] = PooledFuture()
    seen: list[int] = []

    def clumsy(_: object) -> None:
        raise ZeroDivisionError

    future.add_done_callback(clumsy)
    future.add_done_callback(lambda done: seen.append(done.get()))
    future.set(5)
    future.add_done_callback(lambda done: seen.append(done.get()))
    assert seen == [5, 5]
    assert "ZeroDivisionError" in caplog.text


def test_a_timeout_is_pykkas() -> None:
    """get(timeout=) raises pykka.Timeout, and takes a zero."""
    with pytest.raises(pykka.Timeout):
        PooledFuture[int]().get(timeout=0)


def test_a_frozen_clock_does_not_stretch_a_timeout() -> None:
    """Under freezegun the timeout of get() still ends; Pykka's own future would wait for ever."""
    with freezegun.freeze_time("2026-01-01"), pytest.raises(pykka.Timeout):
        PooledFuture[int]().get(timeout=0.01)


def test_raising_again_does_not_grow_the_traceback() -> None:
    """However often a failed future is looked at, its exception stays the same size (trap 1)."""
    future: PooledFuture[int] = PooledFuture()
    future.fail(KeyError("x"))
    lengths: set[int] = set()
    for _ in range(5):
        with pytest.raises(KeyError) as raised:
            future.get()
        lengths.add(len(traceback.extract_tb(raised.value.__traceback__)))
    assert len(lengths) == 1
