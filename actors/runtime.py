"""The actors of one gateway, put together. The gateway stands them on real threads, the simulator on one.

Everything here is called on the lanes' thread (the loop's), except where a method says otherwise.
"""

from __future__ import annotations

import itertools
import logging
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from hashlib import sha256
from typing import Any

import pykka
from attrs import Factory, frozen
from msgspec.structs import replace

from seriatim.actors.asks import Asks, Done
from seriatim.actors.deaths import LaneCrashed
from seriatim.actors.delivery import Deliveries, DeliveryActor, Sender
from seriatim.actors.directory import Directory, key_of
from seriatim.actors.dispatch import Dispatcher
from seriatim.actors.ids import Ids
from seriatim.actors.loading import LaneReader
from seriatim.actors.machine import Machine
from seriatim.actors.merging import LearnAlias, MoveSession
from seriatim.actors.persistence import CommitPort, PersistenceActor
from seriatim.actors.pressure import Look, MemoryFacts
from seriatim.actors.receipts import Receipt, Receipts
from seriatim.actors.refs import Crash, DeadLetter, Ref
from seriatim.actors.running import RunningTurns
from seriatim.actors.session import FOR_SUCCESSOR, Flush, LanePorts, Switches
from seriatim.actors.showing import Drafts
from seriatim.actors.slots import TurnSlots
from seriatim.actors.supervisor import Awaken, SupervisorActor, SupervisorPorts
from seriatim.actors.system import ActorSystem
from seriatim.actors.turns import TurnRunner
from seriatim.actors.upkeep import Growth, UpkeepActor
from seriatim.actors.warden import CacheWardenActor, Crowded, MemoryWatch, WarmLanes
from seriatim.aliases import ALIASES, Alias, AliasTable
from seriatim.batch import Rules
from seriatim.budgets import Budgets, Limits, person_of
from seriatim.clock import Clock
from seriatim.commands import parse_command
from seriatim.commits import Hot
from seriatim.effects import MoveHere
from seriatim.errors import ActorError, InvalidInputError, StoreUnhealthyError
from seriatim.events import LogId
from seriatim.keys import KeySettings, canonical_key, escape_part, escaped, key_parts
from seriatim.limits import MEDIA_WEIGHT
from seriatim.mail import Ask, DrainTimedOut, Inbound
from seriatim.model import MessageEvent, SessionSource
from seriatim.pressure import Pressure
from seriatim.storage.contract import Store, StoreReader

_log = logging.getLogger("seriatim.runtime")


@frozen
class Dispatchers:
    """Who runs what: lanes, delivery, supervisor and warden on one, the writer and the reader on theirs."""

    lanes: Dispatcher
    writer: Dispatcher
    reader: Dispatcher


@frozen
class Settings:
    """What the actors need of the configuration; see GatewayConfig."""

    keys: KeySettings
    rules: Rules
    slots_max: int
    warm_max: int
    age_ms_max: int
    dm_without_ids: bool
    growth: Growth = Factory(Growth)
    idle_ms: int = 0
    per_user_max: int = 0
    budgets: Limits = Factory(Limits)
    silence_ms: int = 0
    pressure: Pressure = Factory(Pressure)


@frozen
class Opened:
    """The store is open. ``open_work``: the lanes that a start has to look at; ``store_id``: the store's own."""

    store: Store
    open_work: Sequence[tuple[LogId, Hot]]
    store_id: str = ""


class Runtime:
    """One gateway's actors. ``on_error(where, error)`` hears of what is nobody's answer.

    ``on_fatal``: an actor that all lanes need has died, on its thread. Nothing durable is lost; stop and start again.

    ``at_once``: commits go to the writer one by one (where no loop dispatcher flushes them). ``machine``: whose memory
    the warden watches, if the settings have a budget.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        ids: Ids,
        dispatchers: Dispatchers,
        settings: Settings,
        runner: TurnRunner,
        rng: random.Random,
        on_error: Callable[[str, BaseException], None],
        on_fatal: Callable[[str, BaseException], None],
        at_once: bool = False,
        machine: Machine | None = None,
    ) -> None:
        self.clock = clock
        self.ids = ids
        self.settings = settings
        self.dispatchers = dispatchers
        self.runner = runner
        self.receipts = Receipts(runner)
        self.asks = Asks()
        self.expected: Counter[tuple[str, str]] = Counter()
        """Items of albums (lane, album) that are on their way in."""
        self.deliveries = Deliveries()
        self.directory = Directory()
        self.slots = TurnSlots(settings.slots_max, settings.per_user_max)
        self.budgets = Budgets(settings.budgets) if settings.budgets.any else None
        self.running = RunningTurns(clock, settings.silence_ms, self.directory.post)
        self.switches = Switches()
        self.aliases = AliasTable()
        """Which ids mean the same; filled on the writer's thread before anybody else looks."""
        self.warm = WarmLanes(settings.warm_max, self._on_crowded, self.look_at_memory)
        self.memory = MemoryFacts()
        """What the warden has seen and done about memory."""
        self._machine = machine
        self.system = ActorSystem(clock=clock, on_crash=self._on_crash, on_dead_letter=self._on_dead_letter)
        self._arrivals = itertools.count(1)
        self._rng = rng
        self._on_error = on_error
        self._on_fatal = on_fatal
        self._at_once = at_once
        self.store_trouble: str | None = None
        """Why the store fails now; None while it works."""
        self.on_store: Callable[[str | None], object] = lambda reason: None
        """Called on the writer's thread when that changes."""
        self.on_routed: Callable[[str], object] = lambda key: None
        """Called on the lanes' thread with the key of a lane that is bound to another session than before."""
        self.on_counted: Callable[[str, int], object] = lambda lane, count: None
        """Called on the lanes' thread with a lane's interruptions in a row, as durable."""
        self.on_restart: Callable[[], object] = lambda: None
        """Called on the lanes' thread when an operator has asked for a restart, durably."""
        self._port: CommitPort | None = None
        self._writer: Ref[PersistenceActor]
        self._reader: Ref[LaneReader]
        self._upkeep: Ref[UpkeepActor]
        self._supervisor: Ref[SupervisorActor]
        self._warden: Ref[CacheWardenActor]

    # --- start -----------------------------------------------------------------------------------------

    def open(
        self,
        open_store: Callable[[], Store],
        opened: Callable[[Opened | BaseException], None],
    ) -> None:
        """Start the writer. ``opened`` is called on the writer's thread."""
        self._writer = self.system.start(
            PersistenceActor,
            open_store,
            partial(_opened, self.aliases, opened),
            self._on_trouble,
            dispatcher=self.dispatchers.writer,
            name="persistence",
        )
        self._port = CommitPort(self._writer, at_once=self._at_once)

    @property
    def handoff(self) -> Callable[[bool], bool]:
        """Hands the lanes' commits to the writer, for the loop dispatcher (which see). After ``open``."""
        assert self._port is not None
        return self._port.flush

    def begin(self, open_reader: Callable[[], StoreReader]) -> None:
        """Start the other actors. ``open_reader`` is called on the reader's thread."""
        lanes = self.dispatchers.lanes
        beside = self.dispatchers.reader
        self._reader = self.system.start(LaneReader, open_reader, self._writer, dispatcher=beside, name="reader")
        self._upkeep = self.system.start(
            UpkeepActor,
            open_reader,
            self._writer,
            self.settings.growth.step_commits,
            self._on_error,
            dispatcher=beside,
            name="upkeep",
        )
        ports = SupervisorPorts(
            system=self.system,
            directory=self.directory,
            writer=self._writer,
            reader=self._reader,
            receipts=self.receipts,
            asks=self.asks,
            runner=self.runner,
            slots=self.slots,
            switches=self.switches,
            clock=self.clock,
            dispatcher=lanes,
            rules=self.settings.rules,
            fresh_id=self.ids.fresh,
            lane_ports=self._lane_ports,
            on_error=self._on_error,
            gone=self.warm.gone,
            aliases=self.aliases,
            on_lost=partial(self._on_fatal, "store"),
        )
        self._supervisor = self.system.start(SupervisorActor, ports, dispatcher=lanes, name="supervisor")
        self.directory.supervisor = self._supervisor
        self._warden = self.system.start(
            CacheWardenActor,
            self._supervisor,
            self.warm,
            self.clock,
            self.settings.idle_ms,
            self._memory_watch(),
            dispatcher=lanes,
            name="warden",
        )

    def _memory_watch(self) -> MemoryWatch | None:
        pressure = self.settings.pressure
        if self._machine is None or not pressure.memory_high:
            return None
        return MemoryWatch(pressure, self._machine, self.directory.stays, self._on_error, self.memory)

    def look_at_memory(self) -> None:
        """Have the warden look at memory before its time."""
        self._warden.signal(Look())

    def add_account(self, platform: str, account: str, sender: Sender, drafts: Drafts | None = None) -> None:
        """Deliver through ``sender`` what is owed to this account; ``drafts``: what its platform can show besides."""
        actor_ref = self.system.start(
            DeliveryActor,
            account,
            sender,
            self.directory.post,
            self.clock,
            self._rng,
            self.settings.age_ms_max,
            self.settings.rules.attempts_ambiguous_max,
            self.deliveries.ended,
            self.deliveries.starts,
            drafts,
            self._chat_moved,
            dispatcher=self.dispatchers.lanes,
            name=f"delivery:{platform}:{account}",
        )
        self.deliveries.add(platform, account, actor_ref, sender, shows=drafts is not None)

    def recover(self, open_work: Sequence[tuple[LogId, Hot]]) -> None:
        """Make every lane with open work live, and nothing else."""
        for log, _ in open_work:
            key = log.removeprefix("lane:")
            self.directory.starting.add(key)
            self._supervisor.signal(Awaken(key))

    # --- the door --------------------------------------------------------------------------------------

    def accept(
        self,
        event: MessageEvent,
        prefix: str,
        settled: Callable[[Receipt], None],
        *,
        inbox_id: str = "",
        key: str = "",
    ) -> Receipt:
        """Take a message in; ``settled`` is called with the receipt once the outcome is known.

        ``inbox_id`` and ``key`` (its unique key): of a message that has them already.
        """
        source, switches = event.source, self.switches
        aliased = self.aliases.head  # nothing was ever learnt in most homes
        lane = canonical_key(source, self.settings.keys, event.account)
        # A lane that is still to go into another serves until it has, so that its turn can be stopped.
        if aliased and lane not in self.directory.live:
            lane = self.aliases.present(lane)
        inbox_id = inbox_id or self.ids.fresh()
        receipt = self.receipts.open(inbox_id, lane, settled)
        if switches.draining:
            self.receipts.refuse(inbox_id, "stopping")
            return receipt
        if not source.chat_id and (refusal := refusal_of(event, self.settings)) is not None:
            self.receipts.refuse(inbox_id, refusal)
            return receipt
        key = key or unique_key(event)  # by the id that the platform gave, whatever it means by now
        command, args = "", ""
        if event.text.startswith(prefix) and not event.internal and event.edit_of is None:
            found = parse_command(event.text, prefix)
            if found is not None:
                command, args = found
        if self.budgets is not None and not command and not event.internal and event.edit_of is None:
            person = person_of(event.source.to_dict())
            if self.budgets.blocks(person, self.clock.now_ms()):
                self.receipts.refuse(inbox_id, "over_budget")
                return receipt
        if aliased:
            event = self._readdressed(event)
        by_receipt = not self.deliveries.serves(source.platform.name, event.account)
        size = len(event.text) + MEDIA_WEIGHT * len(event.media)
        arrival = next(self._arrivals)
        message = Inbound(inbox_id, key, event, size, command, args, by_receipt, prefix, switches.wave, arrival)
        try:
            self.directory.submit(lane, message)
        except ActorError:
            self.receipts.refuse(inbox_id, "lane_busy")
        return receipt

    @contextmanager
    def expecting(self, source: SessionSource, account: str, album: str) -> Iterator[None]:
        """While the block lasts, an item of this album is being made ready: its turn waits for it, within bounds."""
        name = canonical_key(source, self.settings.keys, account), album
        self.expected[name] += 1
        try:
            yield
        finally:
            self.expected[name] -= 1
            if not self.expected[name]:
                del self.expected[name]

    def ask(self, lane: str, question: Any, done: Done) -> None:
        """Ask a lane, live or not, in order with its other mail; ``done`` is called once."""
        token = self.ids.fresh()
        self.asks.open(token, done)
        try:
            self.directory.submit(lane, Ask(token, question))
        except ActorError as error:
            self.asks.fail(token, error)

    def _readdressed(self, event: MessageEvent) -> MessageEvent:
        """The message with its chat's id as of now: that is where the reply goes."""
        source = event.source
        chat = self.aliases.chat(source.platform.name, event.account, source.guild_id or "", source.chat_id)
        return event if chat == source.chat_id else replace(event, source=source.changed(chat_id=chat))

    def learn_alias(self, alias: Alias, done: Callable[[BaseException | None], None]) -> None:
        """Record that two ids mean the same, and merge the lanes that this makes one; see ``LearnAlias``."""
        if self.aliases.knows(alias):
            done(None)
        else:
            self._supervisor.signal(LearnAlias(alias, done))

    def _chat_moved(self, lane: str, old: str, new: str) -> None:
        """A platform refused a send because the chat has another id now."""
        platform, _, scope, account, *_ = key_parts(lane)
        try:
            alias = Alias(platform, old, new, "chat", account, scope)
        except InvalidInputError as error:  # whatever the platform calls its chats, the delivery lives
            self._on_error("alias", error)
            return
        self.learn_alias(alias, lambda error: None if error is None else self._on_error("alias", error))

    def move_session(self, order: MoveSession) -> None:
        """Bind a session to another lane; see ``MoveSession``."""
        self._supervisor.signal(order)

    def _move_here(self, key: str, effect: MoveHere) -> None:
        self.move_session(
            MoveSession(effect.session, key, "resume", effect.expected, command=effect.command, text=effect.text)
        )

    def turn_away(self) -> None:
        """What was accepted so far and no lane has decided yet is refused: whoever offers it keeps it, in its order."""
        self.switches.wave += 1

    # --- stop ------------------------------------------------------------------------------------------

    def drain(self) -> None:
        """Accept nothing more and start no turn."""
        self.switches.draining = True

    @property
    def busy(self) -> bool:
        """Whether a turn runs or waits, a reply is on its way, or a lane is not at rest."""
        return bool(self.slots.held or self.slots.waiting or self.deliveries.pending) or not self.directory.at_rest

    def drain_timed_out(self, reason: str) -> None:
        """Record in each lane whose turn runs on that it is to be resumed."""
        self._supervisor.signal(DrainTimedOut(reason))

    def flush_lanes(self) -> None:
        """Have every live lane make its lazy events durable."""
        for ref in self.directory.live.values():
            ref.signal(Flush())

    def settled(self) -> bool:
        """Whether all that live lanes know is durable."""
        return self.directory.at_rest

    def stop(self) -> Any:
        """Stop all actors, the writer last; a future that is set when they are gone."""
        self.switches.stopped = True
        self.receipts.close()
        self.running.close()
        self.asks.close()
        return self.system.stop_all()

    def close_store(self, timeout_s: float) -> bool:
        """Have the writer finish what it was given and close the store; whether it did within *timeout_s* seconds.

        For a thread outside the loop that has given the loop up.
        """
        writer = self.system.get("persistence")
        if writer is None:
            return True
        try:
            return writer.stop(block=True, timeout=timeout_s)
        except pykka.Timeout:
            return False

    # --- wiring ----------------------------------------------------------------------------------------

    def _lane_ports(self, supervisor: Ref[Any]) -> LanePorts:
        assert self._port is not None
        return LanePorts(
            clock=self.clock,
            writer=self._port,
            receipts=self.receipts,
            asks=self.asks,
            runner=self.runner,
            slots=self.slots,
            deliveries=self.deliveries,
            budgets=self.budgets,
            expects=lambda lane, album: self.expected[lane, album] > 0,
            fresh_id=self.ids.fresh,
            session_id=self.ids.session,
            switches=self.switches,
            supervisor=supervisor,
            post=self.directory.post,
            channel=self.deliveries.channel,
            running=self.running,
            reader=self._reader,
            compact=self._upkeep.signal,
            growth=self.settings.growth,
            on_error=self._on_error,
            routed=lambda key: self.on_routed(key),  # noqa: PLW0108  (as restart, below)
            touched=self.warm.touched,
            turned=self.warm.turned,
            move=self._move_here,
            counted=lambda lane, count: self.on_counted(lane, count),  # noqa: PLW0108  (as below)
            restart=lambda: self.on_restart(),  # noqa: PLW0108  (whoever hears of it is named later)
        )

    def _on_crowded(self) -> None:
        self._warden.signal(Crowded())

    def _on_trouble(self, reason: str | None) -> None:
        """On the writer's thread."""
        self.store_trouble = reason
        self.on_store(reason)
        if reason is None:
            _log.warning("the store works again")
        else:
            self._on_error("store", StoreUnhealthyError(f"{reason}; messages are refused or wait until it works again"))

    def _on_crash(self, crash: Crash) -> None:
        if key_of(crash.name) is not None:
            self._supervisor.signal(LaneCrashed(crash))
        else:
            self._on_fatal(crash.name, crash.error)

    def _on_dead_letter(self, letter: DeadLetter) -> None:
        """Mail that raced with its lane's death goes to the successor."""
        key = key_of(letter.ref.name)
        if key is not None and isinstance(letter.message, FOR_SUCCESSOR):
            self.directory.route(key, letter.message)


def _opened(aliases: AliasTable, tell: Callable[[Opened | BaseException], None], store: Store | BaseException) -> None:
    """On the writer's thread: read the aliases and the index of open work before anything is written."""
    if isinstance(store, BaseException):
        tell(store)
        return
    try:
        reader = store.reader()
        try:
            for event in reader.read(ALIASES, aliases.head):
                aliases.apply(event)
            work, store_id = reader.open_work(), reader.store_id
        finally:
            reader.close()
    except Exception as error:
        tell(error)
        return
    tell(Opened(store, work, store_id))


def lane_of(event: MessageEvent, settings: Settings) -> str:
    """The lane that a message belongs to."""
    return canonical_key(event.source, settings.keys, event.account)


def refusal_of(event: MessageEvent, settings: Settings) -> str | None:
    """Why a message is not let in, whatever its lane says; None where it is."""
    source = event.source
    nameless = source.chat_type == "dm" and not (source.chat_id or source.user_id or source.user_id_alt)
    return "dm_without_ids" if nameless and not settings.dm_without_ids else None


def unique_key(event: MessageEvent) -> str:
    """By what a message is known for ever; "" where its platform gave no id.

    Of an edit: the message that it changes, when, and what it says then, since platforms give it under the old id.
    """
    if event.edit_of is None and event.message_id is None:
        return ""
    source = event.source
    # Platforms number messages within a chat, whatever thread they show it in. Where a chat has no id, its other
    # side stands for it; a scope keeps equal ids apart, as it does for lanes.
    chat = source.chat_id or f"user {source.user_id_alt or source.user_id or ''}"
    place = escaped(source.platform.name, event.account, source.guild_id or "", chat)
    if event.edit_of is not None:
        said = "deleted" if event.deleted else sha256(event.text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
        at = event.message_id if event.message_id not in (None, event.edit_of) else str(event.received_at or "")
        return f"edit:{place}:" + ":".join(map(escape_part, (event.edit_of, at or "", said)))
    return f"inbound:{place}:{escape_part(event.message_id or '')}"
