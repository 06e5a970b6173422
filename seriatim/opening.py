"""Opening: the home is owned, the store opened, what is open in it taken up, the adapters let in.

A store that can't be opened for the time being is tried again, where messages may be spooled meanwhile.
"""

from __future__ import annotations

import abc
import asyncio
import hmac
import itertools
import logging
import os
import random
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import attrs

from seriatim.actors.clockwork import SystemClock
from seriatim.actors.counts import RestartCounts
from seriatim.actors.dispatch import LoopDispatcher, PinnedDispatcher
from seriatim.actors.entries import Entries
from seriatim.actors.ids import Ids
from seriatim.actors.machine import ThisMachine
from seriatim.actors.notices import Notices
from seriatim.actors.outlet import Report
from seriatim.actors.receipts import Receipt
from seriatim.actors.runtime import Dispatchers, Opened, Runtime, Settings, lane_of, refusal_of, unique_key
from seriatim.actors.session_door import GatewayDoor
from seriatim.actors.session_files import open_with_mirror
from seriatim.actors.sessions import SessionStore
from seriatim.actors.showing import Drafts
from seriatim.actors.spooling import Admission, SpoolDoor
from seriatim.actors.turns import AgentRunner, ended_from_outside
from seriatim.actors.watchdog import Watchdog
from seriatim.adapters.base import Adapter, Inbox
from seriatim.adapters.sender import AdapterSender
from seriatim.arguments import check_functions
from seriatim.batch import Rules
from seriatim.budgets import Limits
from seriatim.clock import Clock
from seriatim.config import GatewayConfig
from seriatim.context import PII_SAFE
from seriatim.errors import (
    CorruptionError,
    GatewayClosedError,
    InvalidInputError,
    OwnershipLostError,
    ReadOnlyError,
    StoreError,
    StoreUnhealthyError,
)
from seriatim.limits import PRESSURE_MS, SPOOL_RETRY_MS
from seriatim.model import Platform
from seriatim.parts import check_agent, check_ports, check_types
from seriatim.pressure import Pressure
from seriatim.prompts import Prompts
from seriatim.storage.contract import Store
from seriatim.storage.home import Home
from seriatim.storage.spool import Spool, look
from seriatim.storage.sqlite import SqliteStore

_log = logging.getLogger("seriatim.gateway")

ADAPTER_RETRY_S = (1.0, 5.0, 30.0, 60.0)
PRUNE_FIRST_MS = 60_000
"""How long after the start old sessions are looked for the first time: a start has other work."""
PRUNE_MS = 3_600_000
"""How often afterwards."""

State = Literal["new", "starting", "running", "stopping", "stopped"]


class Opening(abc.ABC):
    """A gateway as far as its start goes; its subclasses stop it, own a loop for it, and open its doors."""

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
        has_active_processes_fn: Callable[[str], bool] | None = None,
        on_error: Report | None = None,
    ) -> None:
        check_agent(answer, agent_factory)
        check_types(home, config, adapters)
        check_ports(store, clock, ids)
        check_functions(on_error=on_error, has_active_processes_fn=has_active_processes_fn)
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
        self._has_active_processes_fn = has_active_processes_fn
        self._sessions: SessionStore | None = None
        self._housekeeping: asyncio.Task[None] | None = None
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
        self._failure: GatewayClosedError | None = None
        self.restart_asked = asyncio.Event()
        self._asked = asyncio.Event()
        self._hurry = asyncio.Event()
        self._stopping: asyncio.Task[bool] | None = None
        self._stopped_clean = False
        self._watchdog = Watchdog(self._overdue)
        self._owns_process = False
        self._owns_thread = False
        self._counts: RestartCounts | None = None
        self._found: Mapping[str, Any] = {}
        self._start_over = asyncio.Event()
        self._dispatchers: tuple[PinnedDispatcher, ...] = ()
        self._senders: dict[Adapter, AdapterSender] = {}
        self._notices: Notices | None = None
        self._door: SpoolDoor | None = None
        self._unopened: StoreError | None = None
        self._reopening: asyncio.Task[None] | None = None

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
        prefix = self.config.commands.prefix
        self._senders = {adapter: AdapterSender(adapter, loop, self._on_error, prefix) for adapter in self.adapters}
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
            opener = partial(SqliteStore, self._home.database)
            open_store = partial(open_with_mirror, opener, self.home, self.config, self._clock, self._ids)
        writer, reader = self._dispatchers = (PinnedDispatcher("seriatim-store"), PinnedDispatcher("seriatim-reader"))
        runner = self._runner = AgentRunner(
            loop, self._answer, self._agent_factory, self._on_error, ends_with_tasks=not self._owns_thread
        )
        lanes = LoopDispatcher(loop)
        runtime = self._runtime = Runtime(
            clock=self._clock,
            ids=self._ids,
            dispatchers=Dispatchers(lanes, writer, reader),
            settings=settings_of(self.config),
            runner=runner,
            rng=random.Random(),
            on_error=self._on_error,
            on_fatal=self._on_fatal,
            machine=ThisMachine(),
        )
        runtime.on_store = lambda trouble: loop.call_soon_threadsafe(self._on_store, trouble)
        runtime.on_restart = self._on_restart
        if self._home is not None and self._counts is None:
            self._counts = RestartCounts(self._home.folder, self._clock, self._on_error)
        if self._counts is not None:
            runtime.on_counted = self._counts.noted
        ready: asyncio.Future[Opened] = loop.create_future()

        def told(result: Opened | BaseException) -> None:
            loop.call_soon_threadsafe(resolve, ready, result)

        runtime.open(open_store, told)
        lanes.handoff = runtime.handoff
        return await ready

    def _begin(self, opened: Opened) -> None:
        """The store is open: take up what is open in it."""
        runtime = self._runtime
        assert runtime is not None
        self._store, self._unopened = opened.store, None
        if self._runner is not None:
            self._runner.prompts = prompts_of(self.config, self.adapters, opened.store_id)
        runtime.begin(opened.store.reader)
        for adapter, sender in self._senders.items():
            able = adapter.capabilities
            drafts = None
            if able.edit or able.typing:
                drafts = Drafts(sender, runtime.directory.post, runtime.clock, edits=able.edit, types=able.typing)
            runtime.add_account(adapter.platform, adapter.account, sender, drafts)
        self._sessions = self._make_sessions(opened, runtime)
        self._found = self._look_at(opened)
        runtime.recover(opened.open_work)
        if self._door is not None:
            self._door.begin(runtime)

    def _make_sessions(self, opened: Opened, runtime: Runtime) -> SessionStore:
        loop = self._loop
        assert loop is not None
        door = GatewayDoor(loop, self._live, lambda: self._state == "stopped", self._accounts)
        folder = None if self._home is None else self.home
        made = SessionStore.through(
            door, Entries(opened.store.reader), self.config, self._has_active_processes_fn, folder
        )
        runtime.on_routed = made.note_route
        if self.config.session_store_max_age_days:
            self._housekeeping = loop.create_task(self._prune(made), name="seriatim housekeeping")
        return made

    def _accounts(self, platform: str) -> list[str]:
        return [adapter.account for adapter in self.adapters if str(adapter.platform) == platform]

    async def _prune(self, sessions: SessionStore) -> None:
        """Forget, now and then, the routes that nobody has used for so long."""
        assert self._clock is not None
        wait_ms = PRUNE_FIRST_MS
        while True:
            due = asyncio.Event()
            self._clock.call_later(wait_ms, due.set)
            await due.wait()
            wait_ms = PRUNE_MS
            try:
                gone = await sessions.aio.prune_old_entries(self.config.session_store_max_age_days)
            except Exception as error:  # noqa: BLE001  (a store that fails for a while, a host's callback)
                self._on_error("housekeeping", error)
            else:
                if gone:
                    _log.info("%d sessions unused for long are forgotten; their logs are kept", gone)

    @abc.abstractmethod
    def _live(self) -> Runtime:
        """The actors; raises why there are none."""

    def _look_at(self, opened: Opened) -> dict[str, Any]:
        """What the index of open work says at the start; the marker of a clean stop decides nothing, the logs do."""
        turns = sum(hot.open_turn for _, hot in opened.open_work)
        clean = None if self._home is None else self._home.was_clean
        if clean and turns:
            _log.warning("the stop before left its marker, and %d turns open all the same; they are recovered", turns)
        return {"after_clean_stop": clean, "lanes_open": len(opened.open_work), "turns_open": turns}

    def _on_restart(self) -> None:
        """An operator has asked: under ``run`` it begins, elsewhere it is the host's to carry out."""
        self.restart_asked.set()
        if self._owns_process:
            self._asked.set()
        else:
            _log.warning("an operator has asked for a restart; the host carries it out (Gateway.restart_asked)")

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

    @abc.abstractmethod
    async def _abandon(self) -> None:
        """Undo a start that failed or was cancelled."""

    @abc.abstractmethod
    async def _end_actors(self, runtime: Runtime) -> bool:
        """Stop the actors, then their threads; whether all ended in time."""

    @abc.abstractmethod
    def _overdue(self) -> None:
        """A stop got stuck. On the watchdog's thread."""

    @abc.abstractmethod
    def _inbox(self, adapter: Adapter) -> Inbox:
        """The door that an adapter gets."""

    async def _serve(self, adapter: Adapter) -> None:
        """Keep an adapter running; one that raises is started again, with growing waits."""
        assert self._loop is not None
        inbox = self._inbox(adapter)
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


def prompts_of(config: GatewayConfig, adapters: Sequence[Adapter], store_id: str) -> Prompts:
    """What turns tell their agents. The installation's secret is the store's id, which nobody outside it knows."""
    return Prompts(
        group_sessions_per_user=config.group_sessions_per_user,
        thread_sessions_per_user=config.thread_sessions_per_user,
        connected=tuple(dict.fromkeys(Platform(adapter.platform) for adapter in adapters)),
        home_channels=config.home_channels,
        redact=config.privacy.redact_pii,
        secret=hmac.digest(b"pseudonyms", store_id.encode(), "sha256"),
        safe=PII_SAFE | {adapter.platform for adapter in adapters if adapter.capabilities.pii_safe},
    )


def settings_of(config: GatewayConfig) -> Settings:
    """What the actors need of the configuration."""
    told, cache = config.budgets, config.agent.agent_cache
    budgets = Limits(
        window_ms=round(told.window_s * 1000),
        turns=told.turns,
        tokens=told.tokens,
        cost_usd=told.cost_usd,
        warn_at=told.warn_at,
        over=told.over,
        slow_ms=round(told.slow_s * 1000),
    )
    return Settings(
        keys=config,
        rules=Rules(
            collapse=config.queue.collapse,
            album_window_ms=config.queue.album_window_ms,
            budgets=budgets.any,
            waiting_max=config.queue.waiting_max,
            edit_running=config.queue.edit_running,
            edit_after=config.queue.edit_after,
            separate_attempt=config.delivery.separate_attempt,
            stop_suspends=config.commands.stop_suspends,
            freshness_ms=config.agent.gateway_auto_continue_freshness * 1000,
            attempts_ambiguous_max=config.delivery.attempts_ambiguous_max,
            bot_exchanges_max=config.admission.bot_exchanges_max,
            operators=frozenset(config.operators),
            compress_above_tokens=config.agent.compress_above_tokens,
            compress_keep_turns=config.agent.compress_keep_turns,
            refuse_behind=config.storage.on_unavailable == "spool",
            command_age_ms_max=config.commands.max_age_s * 1000 or None,
            text_age_ms_max=config.admission.max_age_s * 1000 or None,
            partial=config.delivery.partial,
            busy=config.queue.busy,
            approval_ms=config.turns.approval_timeout_s * 1000,
        ),
        slots_max=config.turns.concurrency_max,
        per_user_max=config.turns.per_user_max,
        budgets=budgets,
        warm_max=cache.max_size,
        idle_ms=cache.idle_ttl_secs * 1000,
        age_ms_max=config.delivery.max_age_s * 1000,
        dm_without_ids=config.admission.dm_without_ids == "shared",
        silence_ms=config.agent.gateway_timeout * 1000,
        pressure=Pressure(
            memory_high=cache.memory_high_mb,
            per_pass=cache.max_evictions_per_pass,
            protect_recent=cache.protect_recent,
            every_ms=PRESSURE_MS,
        ),
    )


_FOR_NOW = (StoreUnhealthyError, CorruptionError, ReadOnlyError)
"""Why a store may not be opened today and be opened tomorrow: full, failing, or being restored."""


def resolve(future: asyncio.Future[Any], result: Any) -> None:
    """Give a future its result, or its error; nothing where it has one already. On its loop."""
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
