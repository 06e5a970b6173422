"""The gateway: a host's one object. It puts adapters, actors, agent and store together.

Embedded, ``async with Gateway(...)`` runs everything on the caller's loop and installs no signal handlers;
``run()`` and ``started()`` own a loop of their own.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import gc
import itertools
import logging
import os
import random
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import attrs

from seriatim.actors.calling import entry_of
from seriatim.actors.clockwork import SystemClock
from seriatim.actors.dispatch import LoopDispatcher, PinnedDispatcher
from seriatim.actors.ids import Ids
from seriatim.actors.notices import REFUSED, Notices
from seriatim.actors.outlet import Report
from seriatim.actors.receipts import Receipt
from seriatim.actors.runtime import Dispatchers, Opened, Runtime, Settings, lane_of, refusal_of, unique_key
from seriatim.actors.spooling import UNAVAILABLE, Admission, SpoolDoor
from seriatim.actors.turns import AgentRunner, ended_from_outside
from seriatim.actors.watchdog import SignalTap, Watchdog, dump_stacks
from seriatim.adapters.base import Adapter
from seriatim.adapters.sender import AdapterSender
from seriatim.batch import Rules
from seriatim.clock import Clock
from seriatim.config import GatewayConfig
from seriatim.errors import (
    CorruptionError,
    GatewayClosedError,
    InvalidInputError,
    OwnershipLostError,
    ReadOnlyError,
    StopOverdueError,
    StoreError,
    StoreUnhealthyError,
    WrongThreadError,
)
from seriatim.limits import SPOOL_RETRY_MS
from seriatim.model import MessageEvent
from seriatim.storage.contract import Store
from seriatim.storage.home import Home
from seriatim.storage.spool import Spool, look
from seriatim.storage.sqlite import SqliteStore

_log = logging.getLogger("seriatim.gateway")

ADAPTER_RETRY_S = (1.0, 5.0, 30.0, 60.0)
GC_THRESHOLD = 20_000
"""Objects that wait for the cycle collector in a process of our own (Python's own: 700, from 3.13 on 2,000)."""
REST_S_MAX = 3600.0
"""How long ``run`` waits, at the end of all input, for what is still being answered."""
SETTLE_S_MAX = 5.0
"""How long a stop waits, after the drain, for lazy events, for owed replies, for adapters to end, for the actors."""
STORE_S_MAX = 3.0
"""How long an overdue stop waits for the writer before the process ends without it."""
EXIT_OVERDUE = 3
"""The exit code of a process whose stop had to be broken off."""

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)

State = Literal["new", "starting", "running", "stopping", "stopped"]


class Gateway:
    """Accepts messages, runs one turn at a time per conversation, and delivers what is owed.

    ``answer``: the agent (``async def``, ``def``, a generator of either kind, or an object with ``run``); or
    ``agent_factory(session_id)`` makes one per conversation. ``home``: folder of everything durable.
    ``store``: another store than the home's (then nothing is written to the home), or a function that opens it on
    the writer's thread. ``clock`` and ``ids``: injected time and ids. ``on_error(where, error)`` hears of errors
    that are nobody's answer; default: the log.

    Raises InvalidInputError for arguments that can't work. Methods belong to the gateway's loop except where
    they say otherwise.
    """

    def __init__(
        self,
        answer: Any = None,
        home: str | os.PathLike[str] | None = None,
        config: GatewayConfig | None = None,
        adapters: Sequence[Adapter] = (),
        agent_factory: Callable[[str], Any] | None = None,
        store: Store | Callable[[], Store] | None = None,
        clock: Clock | None = None,
        ids: Ids | None = None,
        on_error: Report | None = None,
    ) -> None:
        if (answer is None) == (agent_factory is None):
            raise InvalidInputError("answer", "exactly one of answer and agent_factory is needed")
        if agent_factory is None:
            entry_of(answer)
        self.config = config or GatewayConfig()
        self.home = Path(home if home is not None else self.config.home)
        self.adapters = tuple(adapters)
        names = {(adapter.platform, adapter.account) for adapter in self.adapters}
        if len(names) != len(self.adapters):
            raise InvalidInputError("adapters", "two adapters serve the same account of one platform")
        self._answer = answer
        self._agent_factory = agent_factory
        self._open_store: Callable[[], Store] | None = store if store is None or callable(store) else lambda: store
        if store is not None and self.config.storage.on_unavailable == "spool":
            raise InvalidInputError("store", 'storage.on_unavailable = "spool" works with the home\'s own store only')
        self._clock = clock
        self._ids = ids
        self._on_error = _log_error if on_error is None else _contained(on_error)
        self._state: State = "new"
        self._pid = os.getpid()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._home: Home | None = None
        self._store: Store | None = None
        self._runtime: Runtime | None = None
        self._runner: AgentRunner | None = None
        self._tasks: dict[Adapter, asyncio.Task[None]] = {}
        self._stopped_clean = False
        self._failure: GatewayClosedError | None = None
        self._asked = asyncio.Event()
        self._hurry = asyncio.Event()
        self._stopping: asyncio.Task[bool] | None = None
        self._start_over = asyncio.Event()
        self._dispatchers: tuple[PinnedDispatcher, ...] = ()
        self._watchdog = Watchdog(self._overdue)
        self._owns_process = False
        self._senders: dict[Adapter, AdapterSender] = {}
        self._notices: Notices | None = None
        self._door: SpoolDoor | None = None
        self._unopened: StoreError | None = None
        self._reopening: asyncio.Task[None] | None = None

    # --- life ------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        """Open the home, take up what is open, let the adapters in. On the running loop, which becomes ours.

        Raises HomeError, HomeBusyError, FormatUnsupportedError, CorruptionError, StoreUnhealthyError: nothing was
        started then. With ``storage.on_unavailable = "spool"`` a database that can't be opened for the time being
        doesn't keep the gateway from starting: messages are spooled until it can.
        """
        if self._state != "new":
            raise GatewayClosedError(f"this gateway is {self._state}; make a new one")
        self._state = "starting"
        loop = self._loop = asyncio.get_running_loop()
        try:
            await self._prepare(loop)
            try:
                opened = await self._open(loop)
            except _FOR_NOW as error:
                if self._door is None:
                    raise
                await self._wait_for_store(error)
            else:
                self._begin(opened)
        except BaseException:
            self._state = "stopped"
            await asyncio.shield(loop.create_task(self._abandon()))
            raise
        else:
            self._state = "running"
            for adapter in self.adapters:
                self._tasks[adapter] = loop.create_task(self._serve(adapter), name=f"seriatim {adapter.account}")
        finally:
            self._start_over.set()

    async def _prepare(self, loop: asyncio.AbstractEventLoop) -> None:
        """Own the home; make what works without a store."""
        clock = self._clock = self._clock or SystemClock(loop)
        ids = self._ids = self._ids or Ids(clock)
        self._senders = {adapter: AdapterSender(adapter, loop, self._on_error) for adapter in self.adapters}
        notices = self._notices = Notices(clock, ids.fresh)
        for adapter, sender in self._senders.items():
            notices.add(adapter.platform, adapter.account, sender)
        spools = self.config.storage.on_unavailable == "spool"
        if self._open_store is None:
            self._home = Home.own(self.home, database_may_fail=spools)
            spools = spools or self._is_owed_a_spool()
        if spools:
            settings = settings_of(self.config)
            admission = Admission(
                lane=lambda event: lane_of(event, settings),
                refusal=lambda event: refusal_of(event, settings),
                key=unique_key,
                fresh_id=ids.fresh,
                receipt=Receipt,
            )
            self._door = SpoolDoor(Spool(self.home), admission, clock, notices, self._on_error)
            await self._door.open()

    def _is_owed_a_spool(self) -> bool:
        """Whether an earlier process kept messages under the other setting: accepted, so they are answered whatever the
        setting says now. That takes the spool's rules for this life; with it empty, the next one has its own again.
        """
        try:
            kept = len(look(self.home).messages)
        except StoreUnhealthyError as error:
            self._on_error("spool", error)
            return False
        if kept:
            _log.warning('%d messages are in the spool: on_unavailable is "spool" until the next start', kept)
            storage = attrs.evolve(self.config.storage, on_unavailable="spool")
            self.config = attrs.evolve(self.config, storage=storage)
        return bool(kept)

    async def _open(self, loop: asyncio.AbstractEventLoop) -> Opened:
        assert self._clock is not None
        assert self._ids is not None
        open_store = self._open_store
        if open_store is None:
            assert self._home is not None
            open_store = partial(SqliteStore, self._home.database)
        writer, reader = self._dispatchers = (PinnedDispatcher("seriatim-store"), PinnedDispatcher("seriatim-reader"))
        runner = self._runner = AgentRunner(loop, self._answer, self._agent_factory, self._on_error)
        lanes = LoopDispatcher(loop, handoff=self._flush)
        runtime = self._runtime = Runtime(
            clock=self._clock,
            ids=self._ids,
            dispatchers=Dispatchers(lanes, writer, reader),
            settings=settings_of(self.config),
            runner=runner,
            rng=random.Random(),
            on_error=self._on_error,
            on_fatal=self._on_fatal,
        )
        runtime.on_store = lambda trouble: loop.call_soon_threadsafe(self._on_store, trouble)
        ready: asyncio.Future[Opened] = loop.create_future()

        def told(result: Opened | BaseException) -> None:
            loop.call_soon_threadsafe(_resolve, ready, result)

        runtime.open(open_store, told)
        return await ready

    def _begin(self, opened: Opened) -> None:
        """The store is open: take up what is open in it."""
        runtime = self._runtime
        assert runtime is not None
        self._store, self._unopened = opened.store, None
        runtime.begin(opened.store.reader)
        for adapter, sender in self._senders.items():
            runtime.add_account(adapter.platform, adapter.account, sender)
        runtime.recover(opened.open_work)
        if self._door is not None:
            self._door.begin(runtime)

    async def _wait_for_store(self, error: StoreError) -> None:
        """Go on without a store, and try again in a while."""
        runtime, self._runtime, self._unopened = self._runtime, None, error
        if runtime is not None:
            await self._end_actors(runtime)
        if self._reopening is None:
            self._on_error("store", error)
            assert self._loop is not None
            self._reopening = self._loop.create_task(self._reopen(self._loop), name="seriatim store")

    async def _reopen(self, loop: asyncio.AbstractEventLoop) -> None:
        assert self._clock is not None
        for wait_ms in itertools.chain(SPOOL_RETRY_MS, itertools.repeat(SPOOL_RETRY_MS[-1])):
            due = asyncio.Event()
            self._clock.call_later(wait_ms, due.set)
            await due.wait()
            try:
                self._begin(await self._open(loop))
            except _FOR_NOW as error:
                await self._wait_for_store(error)
            except Exception as error:  # noqa: BLE001  (a foreign file put in its place, say: nothing to wait for)
                self._on_fatal("store", error)
                return
            else:
                _log.warning("the store could be opened")
                return

    def _on_store(self, trouble: str | None) -> None:
        if trouble is not None and self._door is not None:
            self._door.trouble()

    def _on_fatal(self, where: str, error: BaseException) -> None:
        """Any thread. Fail stop: nothing durable is lost, and the next start is an ordinary recovery."""
        self._on_error(where, error)
        if isinstance(error, OwnershipLostError):
            self._failure = GatewayClosedError("another process has taken over the store; this gateway has stopped")
        else:
            self._failure = GatewayClosedError(f"{where} died of {type(error).__name__}; start again")
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._asked.set)

    def _flush(self, whole_group: bool) -> bool:
        return self._runtime is not None and self._runtime.flush(whole_group)

    async def stop(self, *, drain_s: float | None = None, reason: Literal["shutdown", "restart"] = "shutdown") -> bool:
        """Accept nothing more, let running turns end, send what is owed, stop.

        Turns get ``drain_s`` seconds (default: the configuration's); those that run on are interrupted and run
        again at the next start. Returns whether all ended. Idempotent; whoever calls it later waits for the same
        end; during a start it waits for its end first. Cancelling the call doesn't cancel the stop. In a forked child
        it does nothing. Raises InvalidInputError, and WrongThreadError anywhere but on the gateway's loop.

        A thread outside the loop watches it: if it has not ended ``config.stop.watchdog_s`` seconds after the drain, as
        when something blocks the loop for ever, every thread's stack goes to the log and ``on_error`` gets a
        StopOverdueError. Under ``run()`` the process then ends, with exit code 3.
        """
        if self._pid != os.getpid():
            return False
        seconds = self.config.stop.drain_s if drain_s is None else drain_s
        if not seconds >= 0:
            raise InvalidInputError("drain_s", f"zero or more seconds are needed, not {seconds}")
        if self._state == "starting":
            self._check_loop("stop")
            await self._start_over.wait()
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
        return await self._drain(self._runtime, seconds, reason)

    async def _drain(self, runtime: Runtime, seconds: float, reason: str) -> bool:
        runtime.drain()
        # A second signal ends the wait: what still runs is interrupted and goes on at the next start.
        over = self._hurry.is_set
        await self._wait_until(lambda: runtime.slots.held == 0 or over(), 0.0 if self._failure else seconds)
        clean = runtime.slots.held == 0
        if not clean:
            runtime.drain_timed_out(f"{reason}_timeout")
        assert self._runner is not None
        await self._runner.close(0.0 if clean else 1.0)
        # What turns and commands still owe becomes durable, then leaves, then what came of it becomes durable.
        await self._settle(runtime)
        await self._wait_until(lambda: runtime.deliveries.pending == 0 or not self._connected(), SETTLE_S_MAX)
        await self._settle(runtime)
        await self._end_adapters()
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
        if not await self._end_actors(runtime):
            # Somebody's thread still has the store in its hands: the home stays ours for as long as the process lives.
            self._on_error("stop", TimeoutError(f"the actors did not end within {SETTLE_S_MAX:.0f} s"))
            return False
        clean = clean and self._failure is None
        if self._home is not None:
            self._home.close(clean=clean)
        return clean

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

    def run(self, *, started: Callable[[], None] | None = None) -> bool:
        """Own the process's main loop until SIGINT or SIGTERM, or until every adapter's input has ended.

        ``started`` is called once the home is ours, before the first message. The first signal drains; a second
        one ends the drain. Returns whether all turns ended. Main thread.

        A stop that gets stuck is broken off (see ``stop``), also when a signal finds the loop blocked for ever.
        """
        self._owns_process = True
        try:
            with _rare_collections():
                return asyncio.run(self._run(started))
        finally:
            self._watchdog.disarm()

    async def _run(self, started: Callable[[], None] | None) -> bool:
        loop = asyncio.get_running_loop()

        def on_signal() -> None:
            (self._hurry if self._asked.is_set() else self._asked).set()

        await self.start()
        gc.freeze()  # what stands now stays: no collection needs to look through it again
        for number in STOP_SIGNALS:
            loop.add_signal_handler(number, on_signal)
        tap = SignalTap(self._on_stop_signal)
        try:
            return await self._until_asked(started)
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
        clean = await self.stop()
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

    # --- the doors -------------------------------------------------------------------------------------

    async def accept(self, event: MessageEvent) -> Receipt:
        """Take a message in; returns once it is durable, known already, or refused (see Receipt.outcome).

        While the store fails in a way that leaves open what it wrote, the call waits for the truth, because either
        answer might be a lie; where messages are spooled meanwhile, for the spool. Cancelling the call doesn't take
        the message back. Raises GatewayClosedError, WrongThreadError, InvalidInputError.
        """
        return await self._accept(event, self.config.commands.prefix)

    async def _accept(self, event: MessageEvent, prefix: str) -> Receipt:
        self._check_open()
        if not isinstance(event, MessageEvent):
            raise InvalidInputError("event", f"a MessageEvent is needed, not {type(event).__name__}")
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            raise WrongThreadError("accept belongs to the gateway's loop; use gateway.submit(event) from elsewhere")
        future: asyncio.Future[Receipt] = loop.create_future()
        door = self._live() if self._door is None else self._door
        door.accept(event, prefix, partial(_resolve, future))
        receipt = await future
        if receipt.outcome == "pending":
            raise GatewayClosedError("the gateway stopped before it was known whether the message is durable")
        if (
            self._door is None
            and receipt.outcome == "refused"
            and receipt.reason == UNAVAILABLE
            and self._notices is not None
        ):
            self._notices.tell(event, REFUSED)
        return receipt

    def submit(self, event: MessageEvent) -> Future[Receipt]:
        """``accept`` from any thread. Raises GatewayClosedError."""
        self._check_open()
        assert self._loop is not None
        accepting = self.accept(event)
        try:
            return asyncio.run_coroutine_threadsafe(accepting, self._loop)
        except RuntimeError:
            accepting.close()
            raise GatewayClosedError("the event loop was closed under the gateway") from None

    def _check_open(self) -> None:
        if self._pid != os.getpid():
            raise GatewayClosedError("this process was forked from the gateway's; the gateway lives in the parent")
        if self._failure is not None:
            raise GatewayClosedError(str(self._failure))  # a new one each: a kept one would grow its traceback
        if self._state not in ("running", "stopping"):
            raise GatewayClosedError(f"the gateway is {self._state}")

    def _live(self) -> Runtime:
        """The actors. Raises StoreUnhealthyError while their store can't be opened."""
        self._check_open()
        if self._runtime is None or self._store is None:
            raise StoreUnhealthyError(f"the store isn't open: {self._unopened}")
        return self._runtime

    async def _serve(self, adapter: Adapter) -> None:
        """Keep an adapter running; one that raises is started again, with growing waits."""
        assert self._loop is not None
        prefix = adapter.command_prefix
        inbox = _Inbox(self, self.config.commands.prefix if prefix is None else prefix)
        failures = 0
        while True:
            began = self._loop.time()
            try:
                await adapter.run(inbox)
            except KeyboardInterrupt:
                raise  # the host's
            except BaseException as error:  # groups of a task group, for one, need not be Exceptions
                told_to_end = ended_from_outside()
                if told_to_end and isinstance(error, (asyncio.CancelledError, GeneratorExit)):
                    raise
                self._on_error(f"adapter {adapter.account}", error)
                if told_to_end:  # it failed while it cleaned up
                    return
            else:
                return
            failures = 1 if self._loop.time() - began > ADAPTER_RETRY_S[-1] else failures + 1
            await asyncio.sleep(ADAPTER_RETRY_S[min(failures, len(ADAPTER_RETRY_S)) - 1])

    # --- facts -----------------------------------------------------------------------------------------

    def balance(self) -> Mapping[str, int]:
        """Law 1 in numbers, as durable now: accepted = answered + merged + dropped + waiting; refused apart.

        The counts are of all time, refused of this process's life. What is only in the spool is accepted and waiting.
        Reads the store; any thread. Raises StoreUnhealthyError where it can't be read.
        """
        runtime = self._live()
        assert self._store is not None
        door = self._door
        reader = self._store.reader()
        try:
            counted = reader.counters()
            keys = [] if door is None else door.keys
            spooled = len(keys) - len(reader.has_keys(keys)) if keys else 0
        finally:
            reader.close()
        return {
            "accepted": counted.accepted + spooled,
            "answered": counted.answered,
            "merged": counted.merged,
            "dropped": counted.dropped,
            "waiting": counted.waiting + spooled,
            "refused": runtime.receipts.refused.total() if door is None else door.refused.total(),
        }

    def health(self) -> Mapping[str, Any]:
        """How things stand: state, adapters, store; lanes live, restarted after a crash and given up; turns running and
        waiting for a slot; replies owed; dead letters by reason (see actors.refs.DeadLetter). Any thread.

        ``storage`` holds the fields of ``StoreHealth``, the paths among them that agents' tools should be kept from.
        """
        runtime = self._runtime
        state: str = "failed" if self._failure is not None else self._state
        if self._pid != os.getpid():
            state = "forked"
        facts: dict[str, Any] = {"state": state, "adapters": {}, "store": str(self._unopened or "works")}
        if self._store is not None:
            facts["storage"] = attrs.asdict(self._store.health())
        if self._door is not None:
            facts["spooled"] = self._door.count
        for adapter in self.adapters:
            task = self._tasks.get(adapter)
            facts["adapters"][f"{adapter.platform}:{adapter.account}"] = {
                "connected": adapter.connected,
                "running": task is not None and not task.done(),
            }
        if runtime is not None:
            facts |= {
                "store": runtime.store_trouble or "works",
                "live_lanes": len(runtime.directory.live),
                "lane_restarts": runtime.directory.restarts,
                "lanes_quarantined": len(runtime.directory.quarantined),
                "turns_running": runtime.slots.held,
                "turns_waiting": runtime.slots.waiting,
                "replies_pending": runtime.deliveries.pending,
                "dead_letters": dict(runtime.system.dead_letters),
            }
        return facts


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


class _Inbox:
    """The door that an adapter gets: accepts with the adapter's own command prefix."""

    def __init__(self, gateway: Gateway, prefix: str) -> None:
        self._gateway = gateway
        self._prefix = prefix

    def accept(self, event: MessageEvent) -> Coroutine[Any, Any, Receipt]:
        """See adapters.base.Inbox."""
        return self._gateway._accept(event, self._prefix)  # noqa: SLF001  (two halves of one door)


def settings_of(config: GatewayConfig) -> Settings:
    """What the actors need of the configuration."""
    return Settings(
        keys=config,
        rules=Rules(
            collapse=config.queue.collapse,
            separate_attempt=config.delivery.separate_attempt,
            stop_suspends=config.commands.stop_suspends,
            freshness_ms=config.agent.gateway_auto_continue_freshness * 1000,
            attempts_ambiguous_max=config.delivery.attempts_ambiguous_max,
            refuse_behind=config.storage.on_unavailable == "spool",
            partial=config.delivery.partial,
        ),
        slots_max=config.turns.concurrency_max,
        warm_max=config.agent.agent_cache.max_size,
        age_ms_max=config.delivery.max_age_s * 1000,
        dm_without_ids=config.admission.dm_without_ids == "shared",
        silence_ms=config.agent.gateway_timeout * 1000,
    )


_FOR_NOW = (StoreUnhealthyError, CorruptionError, ReadOnlyError)
"""Why a store may not be opened today and be opened tomorrow: full, failing, or being restored."""


def _resolve(future: asyncio.Future[Any], result: Any) -> None:
    if future.done():
        return
    if isinstance(result, BaseException):
        future.set_exception(result)
    else:
        future.set_result(result)


def _contained(report: Report) -> Report:
    """A host's reporter that raises is logged; whoever reports, a task or a stop, goes on."""

    def tell(where: str, error: BaseException) -> None:
        try:
            report(where, error)
        except Exception as raised:  # noqa: BLE001
            _log.error("on_error raised %s when told of %s", type(raised).__name__, where)

    return tell


def _log_error(where: str, error: BaseException) -> None:
    _log.error("%s: %s", where, error, exc_info=error)
