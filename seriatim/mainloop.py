"""A loop of the gateway's own: ``run`` owns the process's main loop and its signals, ``started`` a loop thread."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Self

from seriatim.actors.watchdog import SignalTap
from seriatim.errors import StopOverdueError, WrongThreadError
from seriatim.stopping import SETTLE_S_MAX, Stopping

GC_THRESHOLD = 20_000
"""Objects that wait for the cycle collector in a process of our own (Python's own: 700, from 3.13 on 2,000)."""
REST_S_MAX = 3600.0
"""How long ``run`` waits, at the end of all input, for what is still being answered."""

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class OwnLoop(Stopping):
    """A gateway that can run by itself."""

    def run(self, *, started: Callable[[], None] | None = None) -> bool:
        """Own the process's main loop until SIGINT or SIGTERM, until every adapter's input has ended, or until an
        operator asks for a restart (``restart_asked`` is set then; it is the caller's to start anew).

        ``started`` is called once the home is ours, before the first message. The first signal drains; a second
        one ends the drain. Returns whether all turns ended.

        Raises WrongThreadError where an event loop runs already, and elsewhere than on the main thread; nothing was
        started then. A stop that gets stuck is broken off (see ``stop``), also when a signal finds the loop blocked for
        ever.
        """
        _check_main()
        self._owns_process = True
        try:
            with _rare_collections():
                return asyncio.run(self._run(started))
        finally:
            self._watchdog.disarm()

    async def _run(self, started: Callable[[], None] | None) -> bool:
        loop = asyncio.get_running_loop()

        def on_signal() -> None:
            self.restart_asked.clear()  # who sends a signal wants an end
            (self._hurry if self._asked.is_set() else self._asked).set()

        await self.start()
        gc.freeze()  # what stands now stays: no collection needs to look through it again
        for number in STOP_SIGNALS:
            loop.add_signal_handler(number, on_signal)
        tap = SignalTap(self._on_stop_signal)
        try:
            return await self._until_asked(started)
        except Exception:
            await self.stop(drain_s=0.0)  # where it was ``started`` that raised: nobody else would
            raise
        finally:
            tap.close()

    def _on_stop_signal(self, number: int) -> None:
        """On the tap's thread: from now on the stop is watched, whether or not the loop hears of it."""
        if number in STOP_SIGNALS:
            self._watch(0.0 if self._asked.is_set() else self.config.stop.drain_s)

    async def _until_asked(self, started: Callable[[], None] | None) -> bool:
        if started is not None:
            started()
        asked = asyncio.ensure_future(self._asked.wait())
        if self._tasks:
            # Waiting for them, not gathering: to cancel a gather is to cancel the adapters, which the drain needs.
            ended = asyncio.ensure_future(asyncio.wait(self._tasks.values()))
            await asyncio.wait({asked, ended}, return_when=asyncio.FIRST_COMPLETED)
            ended.cancel()
        else:
            await asked
        if not self._asked.is_set():
            await self._wait_until(lambda: self._asked.is_set() or not self._busy(), REST_S_MAX)
        asked.cancel()
        clean = await self.stop(reason="restart" if self.restart_asked.is_set() else "shutdown")
        if self._failure is not None:
            raise self._failure
        return clean

    def _busy(self) -> bool:
        """Whether input that has ended still has consequences: lanes that recover, turns, replies on their way."""
        if self._door is not None and self._door.taking_in:
            return True
        return self._runtime is not None and self._runtime.busy

    @contextlib.contextmanager
    def started(self) -> Iterator[Self]:
        """Run on a loop thread of our own while the ``with`` block lasts; use ``submit`` inside. Any thread.

        Raises StopOverdueError at its end if the loop is blocked for ever; its daemon thread is left behind then.
        """
        self._owns_thread = True
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever, name="seriatim-loop", daemon=True)
        thread.start()
        try:
            asyncio.run_coroutine_threadsafe(self.start(), loop).result()
            try:
                yield self
            finally:
                if self._pid == os.getpid():
                    self._stop_from_outside(loop)
        finally:
            if self._pid == os.getpid():  # a forked child has neither the thread nor the loop
                loop.call_soon_threadsafe(loop.stop)
                thread.join(SETTLE_S_MAX)
                if not thread.is_alive():  # else it is blocked for ever, and a daemon
                    loop.close()

    def _stop_from_outside(self, loop: asyncio.AbstractEventLoop) -> None:
        stopped = asyncio.run_coroutine_threadsafe(self.stop(), loop)
        until_s = min(self.config.stop.drain_s + self.config.stop.watchdog_s, threading.TIMEOUT_MAX)
        try:
            stopped.result(until_s)
        except TimeoutError:
            self._watchdog.arm(0.0)  # the loop may not have come so far
            raise StopOverdueError(self.config.stop.watchdog_s) from None


def _check_main() -> None:
    """Raise WrongThreadError where this thread can't have a loop of ours with signals on it."""
    if threading.current_thread() is not threading.main_thread():
        raise WrongThreadError("run() needs the main thread, for its signals; elsewhere use `with gateway.started():`")
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise WrongThreadError("run() makes an event loop, and one runs here: use `async with gateway:` on it")


@contextlib.contextmanager
def _rare_collections() -> Iterator[None]:
    """Have the cycle collector run less often, in a process of our own only: it is the host's when embedded.

    A turn leaves some hundred objects behind, nearly all freed without it.
    """
    before = gc.get_threshold()
    gc.set_threshold(GC_THRESHOLD, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
