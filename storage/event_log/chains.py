"""One after another per session, side by side across sessions; and work that outlives whoever waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Hashable
from contextlib import asynccontextmanager
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Chains:
    """A queue per session id, first come first served. One that is idle is forgotten; a failure stops none."""

    def __init__(self) -> None:
        self._locks: dict[str, tuple[asyncio.Lock, list[None]]] = {}

    @asynccontextmanager
    async def turn(self, session_id: str) -> AsyncIterator[None]:
        """Wait for all that came before, and keep out what comes after."""
        lock, waiting = self._locks.setdefault(session_id, (asyncio.Lock(), []))
        waiting.append(None)
        try:
            async with lock:
                yield
        finally:
            waiting.pop()
            if not waiting:
                self._locks.pop(session_id, None)

    def __len__(self) -> int:
        return len(self._locks)


class Work:
    """Runs what must settle as itself once it has begun: who waits may be cancelled, the work goes on."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()
        self._shared: dict[Hashable, asyncio.Task[Any]] = {}

    async def do(self, step: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """Its result. Cancelling the caller leaves it running."""
        return await asyncio.shield(self.start(step(*args, **kwargs)))

    async def share(
        self, key: Hashable, step: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """The result of the one that is running under ``key``, or of a new one."""
        task = self._shared.get(key)
        if task is None or task.done():  # a finished one may be older than what the caller has seen
            task = self._shared[key] = self.start(step(*args, **kwargs))
            task.add_done_callback(lambda done: self._unshare(key, done))
        result: T = await asyncio.shield(task)
        return result

    def start(self, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Begin; the task is kept until it is over, and its error isn't reported twice."""
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    async def drain(self) -> None:
        """Return when nothing is running any more."""
        while self._tasks:
            await asyncio.wait(list(self._tasks))

    def _unshare(self, key: Hashable, task: asyncio.Task[Any]) -> None:
        if self._shared.get(key) is task:
            del self._shared[key]

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # whoever still waits gets it; if nobody does, nobody is told of it at exit
