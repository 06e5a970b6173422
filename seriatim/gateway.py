"""The gateway: a host's one object. It puts adapters, actors, agent and store together.

Embedded, ``async with Gateway(...)`` runs everything on the caller's loop and installs no signal handlers;
``run()`` and ``started()`` own a loop of their own. Here are its doors and what it tells about itself; how it starts,
stops and owns a loop stands in ``opening``, ``stopping`` and ``mainloop``.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from functools import partial
from typing import Any, Literal, TypeVar

import attrs

from seriatim.actors.again import accepted_before, answer_given, end_of
from seriatim.actors.keeping import content_of, with_blobs
from seriatim.actors.lane_queue import LaneQueue, asked
from seriatim.actors.notices import REFUSALS, REFUSED
from seriatim.actors.receipts import End, Receipt
from seriatim.actors.runtime import Runtime, lane_of
from seriatim.actors.sessions import SessionStore
from seriatim.actors.spooling import UNAVAILABLE
from seriatim.adapters.base import Adapter
from seriatim.adapters.normalising import Normaliser
from seriatim.aliases import Alias, Learnt
from seriatim.approvals import ListApprovals, ResolveApproval
from seriatim.errors import GatewayClosedError, InvalidInputError, StoreError, StoreUnhealthyError, WrongThreadError
from seriatim.events import lane_log
from seriatim.keys import SessionKey, canonical_key, is_text_form, parse_session_key
from seriatim.lane import Approval
from seriatim.mail import Bounced
from seriatim.mainloop import OwnLoop
from seriatim.media import Media
from seriatim.model import MessageEvent, Platform, SessionSource
from seriatim.opening import resolve
from seriatim.queue_edits import CancelOutcome
from seriatim.storage.contract import Store, StoreReader
from seriatim.storage.ledger import find, undelivered
from seriatim.undelivered import AbandonDelivery, RetryDelivery, SendAgain, Undelivered

T = TypeVar("T")

_log = logging.getLogger("seriatim.gateway")

OWN_ECHO = "own echo"
"""Why a message that the bot's own account has said is a duplicate."""


class Gateway(OwnLoop):
    """Accepts messages, runs one turn at a time per conversation, and delivers what is owed.

    ``answer``: the agent (``async def``, ``def``, a generator of either kind, or an object with ``run``); or
    ``agent_factory(session_id)`` makes one per conversation. ``home``: folder of everything durable.
    ``store``: another store than the home's (then nothing is written to the home), or a function that opens it on
    the writer's thread. ``clock`` and ``ids``: injected time and ids. ``on_error(where, error)`` hears of errors
    that are nobody's answer; default: the log. ``has_active_processes_fn(session_key)``: whether background processes
    run for a session, which is then kept from being forgotten (``session_store_max_age_days``). ``restart_asked``: an
    asyncio.Event that is set when an operator asks for a restart; an embedding host waits for it, stops this gateway
    with reason "restart" and makes a new one.

    Raises InvalidInputError for arguments that can't work. Methods belong to the gateway's loop except where
    they say otherwise.
    """

    # --- the doors -------------------------------------------------------------------------------------

    async def accept(self, event: MessageEvent) -> Receipt:
        """Take a message in; returns once it is durable, known already, or refused (see Receipt.outcome).

        While the store fails in a way that leaves open what it wrote, the call waits for the truth, because either
        answer might be a lie; where messages are spooled meanwhile, for the spool. Cancelling the call doesn't take
        the message back. Raises GatewayClosedError, WrongThreadError, InvalidInputError.
        """
        return await self._accept(event, self.config.commands.prefix)

    async def _accept(self, event: MessageEvent, prefix: str) -> Receipt:
        if self._state != "running" or self._failure is not None or self._pid != os.getpid():
            self._check_open()  # says why not, unless it merely stops
        if not isinstance(event, MessageEvent):
            raise InvalidInputError("event", f"a MessageEvent is needed, not {type(event).__name__}")
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            raise WrongThreadError("accept belongs to the gateway's loop; use gateway.submit(event) from elsewhere")
        if event.media and any(media.data is not None for media in event.media):
            try:
                event = await with_blobs(event, self._kept_in(), self._now_ms())
            except StoreUnhealthyError:
                return self._refused(event, UNAVAILABLE)
            self._check_open()
        future: asyncio.Future[Receipt] = loop.create_future()
        door = self._door or self._open_runtime()
        door.accept(event, prefix, partial(resolve, future))
        receipt = await future
        if receipt.outcome == "accepted":
            return receipt
        if receipt.outcome == "pending":
            raise GatewayClosedError("the gateway stopped before it was known whether the message is durable")
        if receipt.outcome == "refused" and self._notices is not None:
            told = REFUSALS.get(receipt.reason or "")
            if told is not None and (self._door is None or receipt.reason != UNAVAILABLE):  # else the door tells it
                self._notices.tell(event, told)
        return receipt

    def _refused(self, event: MessageEvent, reason: str) -> Receipt:
        """A receipt for what didn't come as far as a lane."""
        assert self._ids is not None
        receipt = Receipt(self._ids.fresh(), canonical_key(event.source, self.config, event.account))
        receipt.outcome, receipt.reason = "refused", reason
        receipt._finish(End("refused", None, reason))  # noqa: SLF001  (no table holds it)
        counted = self._door if self._door is not None else self._live().receipts
        counted.refused[reason] += 1
        if self._notices is not None:
            self._notices.tell(event, REFUSED)
        return receipt

    def _kept_in(self) -> Store:
        if self._store is None:
            raise StoreUnhealthyError(f"the store isn't open: {self._unopened}")
        return self._store

    async def read_media(self, media: Media) -> bytes:
        """The content of an attachment that was kept (``media.blob``). Raises InvalidInputError where none was,
        BlobNotFoundError, CorruptionError, StoreUnhealthyError.
        """
        self._check_open()
        if not isinstance(media, Media):
            raise InvalidInputError("media", f"a Media is needed, not {type(media).__name__}")
        if media.blob is None:
            raise InvalidInputError("media", "its content isn't kept here; it may have a url")
        return await content_of(media, self._kept_in())

    def expecting(
        self, source: SessionSource, album_id: str, account: str = ""
    ) -> contextlib.AbstractContextManager[None]:
        """While the block lasts, an item of this album is being made ready; accept it inside the block.

        Its turn waits for it, ten seconds at most.
        """
        self._check_open()
        if self._runtime is None:
            return contextlib.nullcontext()
        return self._runtime.expecting(source, account, album_id)

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

    async def wake(
        self, session_key: str | SessionKey, text: str, *, session_id: str | None = None, kind: str = ""
    ) -> Receipt:
        """Start a turn of the host's own in a lane, when its time comes; nobody said ``text``.

        ``session_id``: what the wake is for; where the lane has left that session by then (/stop doesn't leave it), the
        wake is dropped{session_left} and its text kept in the log. ``kind``: what it is about, in a word of the host's.
        Survives /stop, /new and /reset. The reply goes to the lane's chat (where several people write it names nobody);
        where no adapter serves that, to the receipt alone. Raises as ``accept``, and InvalidInputError where no adapter
        of this gateway's serves the key's account and nobody has ever written in such a lane: nobody would hear of it.
        """
        lane = await self._lane(session_key)
        event = self._wake_event(lane, text, session_id, kind)
        await self._check_served(lane, event)
        return await self.accept(event)

    async def _check_served(self, lane: str, event: MessageEvent) -> None:
        platform = event.source.platform.name
        if not self.adapters or event.account in self._accounts(platform) or self._runtime is None:
            return
        if await self._read(lambda reader: reader.info(lane_log(lane))) is None:
            whom = f"{platform} as {event.account!r}" if event.account else platform
            raise InvalidInputError("session_key", f"no adapter serves {whom}, and no lane has this key")

    def _wake_event(self, session_key: str, text: str, session_id: str | None, kind: str) -> MessageEvent:
        key = parse_session_key(session_key)
        source = SessionSource(
            platform=Platform(key.platform),
            chat_id=key.chat_id,
            chat_type=key.chat_type,
            user_id=key.participant or None,
            thread_id=key.thread_id or None,
            guild_id=key.scope or None,
        )
        if canonical_key(source, self.config, key.account) != session_key:
            raise InvalidInputError("session_key", "this configuration has no such lane")
        return MessageEvent(
            text, source, account=key.account, internal=True, wake_session_id=session_id, wake_kind=kind or None
        )

    def queue(self, session_key: str | SessionKey) -> LaneQueue:
        """What waits in a lane, to see and to steer. Raises InvalidInputError for what can be no lane's key."""
        if not isinstance(session_key, SessionKey) and not is_text_form(session_key):
            parse_session_key(session_key)
        return LaneQueue(partial(self._lane, session_key), self._live, self._now_ms)

    async def _lane(self, session_key: str | SessionKey) -> str:
        """The canonical key of a lane that is named in either form; the seed's is looked up among the known lanes.

        Raises InvalidInputError for one that no lane has, AmbiguousKeyError where two have it.
        """
        if isinstance(session_key, SessionKey):
            return session_key.canonical
        if not is_text_form(session_key):
            parse_session_key(session_key)
            return session_key
        lane = await self.sessions.aio.lane(session_key)
        if lane is None:
            raise InvalidInputError("session_key", "no lane has this key")
        return lane

    async def learn_alias(
        self,
        platform: str,
        old: str,
        new: str,
        *,
        kind: Literal["user", "chat"] = "user",
        account: str = "",
        scope: str = "",
    ) -> Learnt:
        """Two ids of a platform mean the same: ``kind`` "user", a person (on WhatsApp a LID and a number); "chat", a
        group that the platform moved to a new id, to which replies go from now on.

        Returns "learnt" once that is durable; at once "known" if it is, and "reversed" if a chat is known to have moved
        from ``new`` to ``old``: that changes nothing, and replies go on to ``old``. Lanes that this makes one are
        merged, when none of their turns runs: what waits and what is owed goes along, and the longer conversation goes
        on. ``account`` and ``scope``: the bot account and the guild or workspace in which the ids hold. Never tell a
        name that can pass to somebody else. Raises StoreUnhealthyError while only spooling, GatewayClosedError,
        InvalidInputError.
        """
        return await self._learn(Alias(platform, old, new, kind, account, scope))

    async def _learn(self, alias: Alias) -> Learnt:
        runtime = self._live()
        if runtime.aliases.told_back(alias):
            _log.warning("%s tells that a chat moved back to its old id; replies go on to the new one", alias.platform)
            return "reversed"
        if runtime.aliases.knows(alias):
            return "known"
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        runtime.learn_alias(alias, partial(resolve, future))
        await future
        return "learnt"

    def _now_ms(self) -> int:
        assert self._clock is not None
        return self._clock.now_ms()

    async def cancel(self, receipt: Receipt) -> CancelOutcome:
        """Take a message back that still waits: it is dropped{cancelled}. See ``LaneQueue.cancel``."""
        if not isinstance(receipt, Receipt):
            raise InvalidInputError("receipt", f"a Receipt is needed, not {type(receipt).__name__}")
        return await self.queue(receipt.session_key).cancel(receipt.message_id)

    async def approvals(self, session_key: str | SessionKey) -> tuple[Approval, ...]:
        """What the lane's turns ask and nobody has answered, oldest first: each with its ``id`` and ``question``.

        Raises InvalidInputError for what is no lane's key, StoreUnhealthyError, GatewayClosedError. On the loop.
        """
        lane = await self._lane(session_key)
        asked_of: tuple[Approval, ...] = await asked(self._live(), lane, ListApprovals())
        return asked_of

    async def resolve_approval(self, session_key: str | SessionKey, approval_id: str, *, approved: bool) -> bool:
        """Answer a question in its people's place, durably. False where there is none of that id, or it has got the
        other answer; the same one again is True, also when its turn has gone on or ended meanwhile (for as long as the
        lane's log tells of it, see ``receipt``). A turn's end answers with no what is open.

        Raises as ``approvals``.
        """
        lane = await self._lane(session_key)
        if await asked(self._live(), lane, ResolveApproval(approval_id, approved)):
            return True
        answer = await self._read(lambda reader: answer_given(reader, lane, approval_id))
        return answer == ("approved" if approved else "denied")

    async def receipt(self, event: MessageEvent) -> Receipt | None:
        """The receipt of a message that was accepted before, by an earlier process too: its answer, or the way to wait
        for it. None where it was never accepted (or so long ago that its lane's log was compacted).

        ``event``: as it was handed in then, with its ``message_id``. Raises InvalidInputError without one,
        StoreUnhealthyError, GatewayClosedError. On the gateway's loop.
        """
        if event.message_id is None:
            raise InvalidInputError("message_id", "only a message with an id can be found again")
        runtime = self._live()
        lane = lane_of(event, runtime.settings)
        inbox_id = await self._read(lambda reader: accepted_before(reader, lane, event))
        if inbox_id is None:
            return None
        receipt = runtime.receipts.take_up(inbox_id, lane)
        if receipt.end is None:
            found = await self._read(lambda reader: end_of(reader, lane, inbox_id))
            receipt.session_key = found.lane
            if found.end is not None:
                runtime.receipts.found(inbox_id, None, found.end)
        return receipt

    async def _read(self, look: Callable[[StoreReader], T]) -> T:
        """Read the store off the loop."""
        self._live()
        assert self._store is not None
        store = self._store

        def read() -> T:
            reader = store.reader()
            try:
                return look(reader)
            finally:
                reader.close()

        return await asyncio.to_thread(read)

    def undelivered(self, *, given_up: bool = False) -> list[Undelivered]:
        """Replies that have not arrived, oldest first; ``given_up``: also those that are no longer tried.

        Reads the store; any thread. Raises StoreUnhealthyError where it can't be read.
        """
        self._live()
        assert self._store is not None
        reader = self._store.reader()
        try:
            return undelivered(reader, given_up=given_up)
        finally:
            reader.close()

    async def retry_delivery(self, delivery: str) -> bool:
        """Have an undelivered reply tried on at once, its age beginning again; one that was given up is owed anew, with
        a notice if it may have arrived. False when it has arrived meanwhile.

        ``delivery``: its id, or the beginning of one. Raises InvalidInputError for an id that names none or several,
        StoreUnhealthyError, GatewayClosedError. On the gateway's loop.
        """
        reply, doubtful = await self._read(lambda reader: find(reader, delivery))
        question = SendAgain(reply, doubtful) if reply.state == "given up" else RetryDelivery(reply.delivery)
        return bool(await asked(self._live(), reply.lane, question))

    async def abandon_delivery(self, delivery: str) -> bool:
        """Give an undelivered reply up; nobody is told. False when nothing of it is owed any more. Else as above."""
        reply, _ = await self._read(lambda reader: find(reader, delivery))
        return bool(await asked(self._live(), reply.lane, AbandonDelivery(reply.delivery)))

    def _check_open(self) -> None:
        if self._pid != os.getpid():
            raise GatewayClosedError("this process was forked from the gateway's; the gateway lives in the parent")
        if self._failure is not None:
            raise GatewayClosedError(str(self._failure))  # a new one each: a kept one would grow its traceback
        if self._state not in ("running", "stopping"):
            raise GatewayClosedError(f"the gateway is {self._state}")

    @property
    def sessions(self) -> SessionStore:
        """The sessions of this gateway; each change goes through its lane's actor. Any thread, see SessionStore.

        Raises GatewayClosedError before the start, and StoreUnhealthyError while the store can't be opened.
        """
        if self._sessions is None:
            self._live()
            raise StoreUnhealthyError("the store isn't open")
        return self._sessions

    def _live(self) -> Runtime:
        """The actors. Raises StoreUnhealthyError while their store can't be opened."""
        self._check_open()
        return self._open_runtime()

    def _open_runtime(self) -> Runtime:
        """The same, where it was looked already whether the gateway is open."""
        if self._runtime is None or self._store is None:
            raise StoreUnhealthyError(f"the store isn't open: {self._unopened}")
        return self._runtime

    def _inbox(self, adapter: Adapter) -> _Inbox:
        prefix = adapter.command_prefix
        return _Inbox(self, adapter, self.config.commands.prefix if prefix is None else prefix)

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
        waiting for a slot; replies owed; dead letters by reason (see actors.refs.DeadLetter); memory (see
        actors.pressure.MemoryFacts). Any thread.

        ``start`` tells what this start found: whether the stop before was a clean one (None without a home), and the
        lanes and turns that were open. ``storage`` holds the fields of ``StoreHealth``, the paths among them that
        agents' tools should be kept from.
        """
        runtime = self._runtime
        state: str = "failed" if self._failure is not None else self._state
        if self._pid != os.getpid():
            state = "forked"
        facts: dict[str, Any] = {"state": state, "adapters": {}, "store": str(self._unopened or "works")}
        if self._found:
            facts["start"] = dict(self._found)
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
                "memory": attrs.asdict(runtime.memory),
            }
        return facts


class _Inbox:
    """The door that an adapter gets: accepts with the adapter's own command prefix and names, and never what the
    account itself has said.
    """

    def __init__(self, gateway: Gateway, adapter: Adapter, prefix: str) -> None:
        self._gateway = gateway
        self._adapter = adapter
        self._prefix = prefix
        self._own: Any = adapter if hasattr(adapter, "own_id") else None
        self._normaliser = Normaliser(adapter)

    def expecting(self, source: SessionSource, album_id: str) -> contextlib.AbstractContextManager[None]:
        """See adapters.base.Inbox."""
        return self._gateway.expecting(
            self._normaliser.event(MessageEvent("", source)).source, album_id, self._adapter.account
        )

    def accept(self, event: MessageEvent) -> Coroutine[Any, Any, Receipt]:
        """See adapters.base.Inbox."""
        if self._own is not None and _is_own(event, self._own.own_id):
            return _known(event)
        if not self._normaliser.idle:
            return self._accept(event)
        return self._gateway._accept(event, self._prefix)  # noqa: SLF001  (two halves of one door)

    def bounced(self, lane: str, delivery: str, part: int, reason: str) -> None:
        """See adapters.base.Bounces."""
        if type(part) is not int or type(delivery) is not str or type(reason) is not str:
            raise InvalidInputError("bounced", "delivery and reason are texts, part is a number")
        runtime = self._gateway._runtime  # noqa: SLF001
        if runtime is not None and lane:
            runtime.directory.post(lane, Bounced(delivery, part, reason))

    async def _accept(self, event: MessageEvent) -> Receipt:
        event = self._normaliser.event(event)
        alias = self._normaliser.alias(event)
        if alias is not None:
            with contextlib.suppress(StoreError):  # a later message tells it again
                await self._gateway._learn(alias)  # noqa: SLF001
        return await self._gateway._accept(event, self._prefix)  # noqa: SLF001

    async def learn_alias(self, old: str, new: str, *, kind: Literal["user", "chat"] = "user", scope: str = "") -> None:
        """See adapters.base.Inbox."""
        adapter = self._adapter
        await self._gateway.learn_alias(adapter.platform, old, new, kind=kind, account=adapter.account, scope=scope)


def _is_own(event: MessageEvent, own_id: str | None) -> bool:
    source = event.source
    return own_id is not None and not event.internal and own_id in (source.user_id, source.user_id_alt)


async def _known(event: MessageEvent) -> Receipt:
    """The receipt of an echo: the logs have it as a reply. It may be acked, and is nobody's turn."""
    receipt = Receipt("", "")
    receipt.outcome, receipt.reason = "duplicate", OWN_ECHO
    receipt._finish(End("duplicate", None, OWN_ECHO))  # noqa: SLF001  (it has no table)
    return receipt
