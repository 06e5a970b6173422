"""The future behind ask and stop: Pykka's interface, plus callbacks and an ``await`` that doesn't block the loop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import queue
import sys
import threading
from collections.abc import Callable, Generator
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

import pykka

from .mailbox import running

if TYPE_CHECKING:
    from .mailbox import Mailbox

__all__ = ["PooledFuture"]

T = TypeVar("T")
ExcInfo: TypeAlias = tuple[type[BaseException] | None, BaseException | None, TracebackType | None]

logger = logging.getLogger("seriatim.actors")


class PooledFuture(pykka.Future[T]):
    """A value that comes later.

    ``get()`` blocks like Pykka's, but never inside one of our actors (see ``BlockingAskError``). Waiting goes through a
    lock with a time-out in C, so a frozen clock (freezegun) can't stretch it. ``await`` suspends only the task.

    Attributes:
        target: the mailbox the answer comes from, for error texts and for dispatchers that must keep running meanwhile.
    """

    def __init__(self) -> None:
        super().__init__()
        self._guard = threading.Lock()
        self._outcome: tuple[Any, ExcInfo | None] | None = None
        self._callbacks: list[Callable[[PooledFuture[Any]], None]] = []
        self._hook_guard: threading.RLock | None = None
        self._sources: tuple[PooledFuture[Any], ...] = ()
        self.target: Mailbox | None = None

    # -- the answering side

    def set(self, value: Any | None = None) -> None:
        """Settle with a value. Any thread; ``queue.Full`` the second time, as Pykka's."""
        self._settle((value, None))

    def set_exception(self, exc_info: ExcInfo | None = None) -> None:
        """Settle with an exception, by default the one being handled. Any thread."""
        assert exc_info is None or len(exc_info) == 3
        self._settle((None, exc_info or sys.exc_info()))

    def fail(self, error: BaseException) -> None:
        """Settle with *error*. Any thread."""
        self._settle((None, (type(error), error, error.__traceback__)))

    def _settle(self, outcome: tuple[Any, ExcInfo | None]) -> None:
        with self._guard:
            if self._outcome is not None or self._get_hook is not None:
                raise queue.Full
            self._outcome = outcome
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            self._call(callback)

    def set_get_hook(self, func: Callable[[float | None], Any]) -> None:
        """Compute the value when it is asked for. See Pykka."""
        with self._guard:
            if self._outcome is not None:
                raise queue.Full
            self._hook_guard = threading.RLock()
            super().set_get_hook(func)

    # -- the waiting side

    @property
    def ready(self) -> bool:
        """Whether ``get()`` would return or raise at once."""
        if self._get_hook is not None:
            return bool(self._sources) and all(source.ready for source in self._sources)
        return self._outcome is not None

    def get(self, *, timeout: float | None = None) -> Any:
        """The value, or the exception; waits up to *timeout* seconds, then ``pykka.Timeout``.

        Raises:
            BlockingAskError: if this would block inside one of our actors, or on the loop that must answer.
        """
        if self._get_hook is not None:
            assert self._hook_guard is not None
            with self._hook_guard:
                return super().get(timeout=timeout)
        if self._outcome is None and not self._wait(timeout):
            raise pykka.Timeout(f"{timeout} seconds")
        assert self._outcome is not None
        value, exc_info = self._outcome
        if exc_info is None:
            return value
        exc_type, error, traceback = exc_info
        if error is None:
            assert exc_type is not None
            error = exc_type()
        # with_traceback every time: raising one object again and again would grow its traceback for ever
        raise error.with_traceback(traceback)

    def _wait(self, timeout: float | None) -> bool:
        asker = running.seat.box
        if asker is not None:
            return asker.blocked_get(self, timeout)
        if self.target is not None:
            self.target.dispatcher.before_wait(self)
        return self.block(timeout)

    def block(self, timeout: float | None) -> bool:
        """Block this thread until settled; False after *timeout* seconds. For those who know that they may."""
        if self._outcome is not None:
            return True
        gate = threading.Lock()
        gate.acquire()
        self.add_done_callback(lambda _: gate.release())
        return gate.acquire(timeout=-1 if timeout is None else max(0.0, timeout))

    def add_done_callback(self, callback: Callable[[PooledFuture[Any]], None]) -> None:
        """Call *callback* with this future once settled: on the settling thread, or here and now if it already is.

        A future with an opaque get-hook has no settling thread; a daemon thread waits for it then.
        """
        if self._get_hook is not None:
            self._after_sources(callback)
            return
        with self._guard:
            if self._outcome is None:
                self._callbacks.append(callback)
                return
        self._call(callback)

    def _call(self, callback: Callable[[PooledFuture[Any]], None]) -> None:
        try:
            callback(self)
        except Exception:
            logger.exception("a callback of a future failed")

    def _after_sources(self, callback: Callable[[PooledFuture[Any]], None]) -> None:
        pending = [source for source in self._sources if not source.ready]
        if pending:
            pending[0].add_done_callback(lambda _: self._after_sources(callback))
        elif self._sources:
            self._call(callback)
        else:
            threading.Thread(target=self._wait_for_hook, args=(callback,), name="seriatim-hook", daemon=True).start()

    def _wait_for_hook(self, callback: Callable[[PooledFuture[Any]], None]) -> None:
        with contextlib.suppress(BaseException):  # whoever looks at the future meets it again
            self.get()
        self._call(callback)

    def __await__(self) -> Generator[Any, None, T]:
        """Suspend the task until settled. Outside asyncio it falls back to Pykka's one yield and a blocking get."""
        if not self.ready:
            try:
                loop = asyncio.get_running_loop()
            except RuntimeError:
                yield None
                return cast("T", self.get())
            waiter: asyncio.Future[None] = loop.create_future()

            def wake() -> None:
                if not waiter.done():  # the task may have been cancelled
                    waiter.set_result(None)

            def settled(_: PooledFuture[Any]) -> None:
                with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                    loop.call_soon_threadsafe(wake)

            self.add_done_callback(settled)
            yield from waiter
        return cast("T", self.get())

    __iter__ = __await__

    # -- derived futures remember what they wait for, so that awaiting them needs no thread

    def _derived(self, future: pykka.Future[Any], *sources: pykka.Future[Any]) -> Any:
        if all(isinstance(source, PooledFuture) for source in sources):
            cast("PooledFuture[Any]", future)._sources = cast("tuple[PooledFuture[Any], ...]", sources)  # ours
        return future

    def filter(self, func: Callable[[Any], bool]) -> Any:
        """See Pykka."""
        return self._derived(super().filter(func), self)  # type: ignore[misc]  # Pykka types self as Future[Iterable]

    def join(self, *futures: pykka.Future[Any]) -> Any:
        """See Pykka."""
        return self._derived(super().join(*futures), self, *futures)

    def map(self, func: Callable[[T], Any]) -> Any:
        """See Pykka."""
        return self._derived(super().map(func), self)

    def reduce(self, func: Callable[..., Any], *args: Any) -> Any:
        """See Pykka."""
        return self._derived(super().reduce(func, *args), self)  # type: ignore[misc]  # as filter
