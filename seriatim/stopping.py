"""Stopping: nothing more is accepted, turns end or stay open in the log, what is owed leaves, the home is given up.

Each wait has a bound, and a thread outside the loop watches all of it (``actors/watchdog.py``).
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import logging
import os
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Literal, Self

from seriatim.actors.calling import on_thread
from seriatim.actors.runtime import Runtime
from seriatim.actors.watchdog import dump_stacks
from seriatim.errors import InvalidInputError, StopOverdueError, WrongThreadError
from seriatim.opening import Opening

_log = logging.getLogger("seriatim.gateway")

SETTLE_S_MAX = 5.0
"""How long a stop waits, after the drain, for lazy events, for owed replies, for adapters to end, for the actors."""
STORE_S_MAX = 3.0
"""How long an overdue stop waits for the writer before the process ends without it."""
EXIT_OVERDUE = 3
"""The exit code of a process whose stop had to be broken off."""


class Stopping(Opening):
    """A gateway as far as its end goes."""

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop. Cancelling this ends the drain; the block is left, cancelled, when the stop has ended."""
        stopping = asyncio.ensure_future(self.stop())
        cancelled: asyncio.CancelledError | None = None
        while not stopping.done():
            try:
                await asyncio.shield(stopping)
            except asyncio.CancelledError as told:
                if stopping.cancelled():  # the loop shuts down and ends whatever runs
                    raise
                cancelled = told
                self._hurry.set()
        stopping.result()
        if cancelled is not None:
            raise cancelled

    async def stop(self, *, drain_s: float | None = None, reason: Literal["shutdown", "restart"] = "shutdown") -> bool:
        """Accept nothing more, let running turns end, send what is owed, stop.

        Turns get ``drain_s`` seconds (default: the configuration's); those that run on are interrupted and run
        again at the next start; one that only waits for a person's answer is not waited for. Returns whether all ended.
        Idempotent; whoever calls it later waits for the same end; during a start it waits for its end first. Cancelling
        the call doesn't cancel the stop. In a forked child it does nothing. ``reason`` "restart" is told to who runs
        the gateway (``restart_asked``), and stands in the log of each turn that is interrupted ("restart_timeout").
        Raises InvalidInputError, and WrongThreadError anywhere but on the gateway's loop.

        A thread outside the loop watches it: if it has not ended ``config.stop.watchdog_s`` seconds after the drain, as
        when something blocks the loop for ever, every thread's stack goes to the log and ``on_error`` gets a
        StopOverdueError. Under ``run()`` the process then ends, with exit code 3.
        """
        if self._pid != os.getpid():
            return False
        seconds = self.config.stop.drain_s if drain_s is None else drain_s
        if type(seconds) not in (int, float) or not seconds >= 0:
            raise InvalidInputError("drain_s", f"zero or more seconds are needed, not {seconds!r}")
        if reason not in ("shutdown", "restart"):
            raise InvalidInputError("reason", f'"shutdown" or "restart" is needed, not {reason!r}')
        if self._state == "starting":
            self._check_loop("stop")
            await self._start_over.wait()
        if reason == "restart":
            self.restart_asked.set()
        if self._stopping is None:
            if self._state != "running" or self._loop is None:
                return self._stopped_clean
            self._check_loop("stop")
            self._state = "stopping"
            self._watch(seconds)
            self._stopping = self._loop.create_task(self._stop_watched(seconds, reason))
        if not self._stopping.done():
            self._check_loop("stop")
        return await asyncio.shield(self._stopping)

    def _check_loop(self, call: str) -> None:
        if asyncio.get_running_loop() is not self._loop:
            raise WrongThreadError(f"{call} belongs to the gateway's loop, and another one runs here")

    async def _stop_watched(self, seconds: float, reason: str) -> bool:
        try:
            return await self._stop(seconds, reason)
        finally:
            if not self._owns_process:  # else the loop's own end is watched, too
                self._watchdog.disarm()

    async def _stop(self, seconds: float, reason: str) -> bool:
        if self._reopening is not None:
            self._reopening.cancel()
            await asyncio.gather(self._reopening, return_exceptions=True)
        if self._door is not None:
            await self._door.close()
        if self._store is None or self._runtime is None:
            await self._end_adapters()
            await self._abandon()
            self._state = "stopped"
            return False
        try:
            return await self._drain(self._runtime, seconds, reason)
        except Exception:  # of an injected part, say
            await self._break_off()
            raise

    async def _break_off(self) -> None:
        """A stop that failed half-way leaves turns open in the log, but no actor alive and the home nobody's."""
        assert self._runner is not None
        for step in (partial(self._runner.close, 0.0), self._end_adapters, self._abandon):
            try:
                await step()
            except Exception as error:  # noqa: BLE001  (the others are to be done all the same)
                self._on_error("stop", error)
        self._state = "stopped"

    async def _drain(self, runtime: Runtime, seconds: float, reason: str) -> bool:
        runtime.drain()
        # A second signal ends the wait: what still runs is interrupted and goes on at the next start.
        over = self._hurry.is_set
        # Nor do people answer sooner for it: a turn that only waits for them asks again at the next start.
        await self._wait_until(
            lambda: runtime.slots.held <= runtime.running.waiting or over(), 0.0 if self._failure else seconds
        )
        clean = runtime.slots.held == 0
        if not clean:
            runtime.drain_timed_out(f"{reason}_timeout")
        assert self._runner is not None
        await self._runner.close(0.0 if clean else 1.0)
        # What turns and commands still owe becomes durable, then leaves, then what came of it becomes durable.
        await self._settle(runtime)
        await self._wait_until(lambda: runtime.deliveries.moving == 0 or not self._connected(), SETTLE_S_MAX)
        await self._settle(runtime)
        await self._end_adapters()
        for sender in self._senders.values():
            await sender.close()
        self._stopped_clean = await self._close(runtime, clean=clean)
        self._state = "stopped"
        return self._stopped_clean

    async def _end_adapters(self) -> None:
        """Cancel their tasks; one that doesn't listen is left behind and named."""
        for task in self._tasks.values():
            task.cancel()
        if self._tasks:
            ended, deaf = await asyncio.wait(self._tasks.values(), timeout=SETTLE_S_MAX)
            for task in ended:
                if not task.cancelled():
                    task.exception()  # heard: the log has what an adapter died of
            for task in deaf:
                self._on_error(task.get_name(), TimeoutError(f"did not end within {SETTLE_S_MAX:.0f} s"))

    async def _end_actors(self, runtime: Runtime) -> bool:
        """Stop the actors, then their threads; whether all ended in time."""
        stopped = runtime.stop()
        await self._wait_until(lambda: bool(stopped.ready), SETTLE_S_MAX)
        for dispatcher in self._dispatchers:
            dispatcher.close()
        return bool(stopped.ready)

    async def _close(self, runtime: Runtime, *, clean: bool) -> bool:
        """Stop the actors, then give the home up; whether all of it went in good order."""
        await self._close_sessions()
        if not await self._end_actors(runtime):
            # Somebody's thread still has the store in its hands: the home stays ours for as long as the process lives.
            self._on_error("stop", TimeoutError(f"the actors did not end within {SETTLE_S_MAX:.0f} s"))
            return False
        clean = clean and self._failure is None
        if self._counts is not None:
            await asyncio.wrap_future(on_thread("seriatim-mirror", self._counts.flush))
        if self._home is not None:
            self._home.close(clean=clean)
        return clean

    async def _close_sessions(self) -> None:
        """No housekeeping any more; the mirror is written for the last time."""
        if self._housekeeping is not None:
            self._housekeeping.cancel()
            await asyncio.gather(self._housekeeping, return_exceptions=True)
        if self._sessions is not None:
            await asyncio.to_thread(self._sessions.close)

    async def _abandon(self) -> None:
        """Undo a start that failed or was cancelled."""
        if self._runtime is not None:
            await self._close(self._runtime, clean=False)
        elif self._home is not None:
            self._home.close(clean=False)

    def _watch(self, drain_s: float) -> None:
        """Have the stop end in time. Any thread."""
        self._watchdog.arm(drain_s + self.config.stop.watchdog_s)

    def _overdue(self) -> None:
        """On the watchdog's thread. Turns that run stay open in the log: the next start takes them up."""
        if self._owns_process:
            # Should even this get stuck, in on_error say, a thread that needs no interpreter lock ends the process.
            with contextlib.suppress(Exception):  # no usable standard error
                faulthandler.dump_traceback_later(2 * STORE_S_MAX, exit=True)
        error = StopOverdueError(self.config.stop.watchdog_s)
        _log.critical("%s; this is where every thread is:\n%s", error, dump_stacks(self._loop))
        with contextlib.suppress(Exception):
            self._on_error("stop", error)
        if self._owns_process:
            if self._runtime is not None:
                self._runtime.close_store(STORE_S_MAX)
            os._exit(EXIT_OVERDUE)

    async def _settle(self, runtime: Runtime) -> None:
        runtime.flush_lanes()
        await self._wait_until(runtime.settled, SETTLE_S_MAX)

    def _connected(self) -> bool:
        return any(adapter.connected for adapter in self.adapters)

    async def _wait_until(self, done: Callable[[], bool], seconds: float) -> bool:
        assert self._loop is not None
        until = self._loop.time() + seconds
        while not done():
            left = until - self._loop.time()
            if left <= 0:
                return False
            await asyncio.sleep(min(0.02, left))
        return True
