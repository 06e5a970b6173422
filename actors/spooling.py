"""SpoolDoor: the gateway's door where ``storage.on_unavailable`` is "spool".

While the store works it hands messages on to the lanes. While it doesn't, and until everything kept meanwhile is in
the store, every message goes to the spool: it is accepted when its line is on disk, and taken in later, lane by lane
in the order of acceptance, under its unique key, so that nothing is lost or doubled by a crash on the way. Runs on
the gateway's loop; the spool's file is touched on a thread beside it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, Protocol

from attrs import define, frozen

from seriatim.actors.calling import on_thread
from seriatim.actors.notices import KEPT, REFUSED, Notices
from seriatim.actors.receipts import End, Receipt, Settled
from seriatim.clock import Clock
from seriatim.errors import GatewayClosedError, SeriatimError
from seriatim.limits import SPOOL_GROUP_MAX, SPOOL_RETRY_MS, SPOOL_WAITING_MAX
from seriatim.model import AcceptOutcome, MessageEvent
from seriatim.storage.spool import Spool, Spooled

_log = logging.getLogger("seriatim.spool")

UNAVAILABLE: Final = "storage_unavailable"
_TAKEN: Final = frozenset({"accepted", "merged", "duplicate"})
"""Outcomes after which a message is in the store."""
_LATER: Final = frozenset({UNAVAILABLE, "lane_busy", "queue_full", "notes_full", "stopping", "pending"})
"""Answers to a message that is kept already after which it is offered again, if need be by the next process."""


class Lanes(Protocol):
    """What the door needs of the runtime."""

    @property
    def store_trouble(self) -> str | None:
        """Why the store fails now; None while it works."""
        ...

    def accept(
        self, event: MessageEvent, prefix: str, settled: Settled, *, inbox_id: str = "", key: str = ""
    ) -> Receipt:
        """Offer a message to its lane."""
        ...

    def turn_away(self) -> None:
        """Have the lanes refuse what they were offered and haven't decided."""
        ...


@frozen
class Admission:
    """What the door asks of the runtime's rules, which work without a store. ``lane``: the message's lane;
    ``refusal``: why it may not come in; ``key``: its unique key, "" without one.
    """

    lane: Callable[[MessageEvent], str]
    refusal: Callable[[MessageEvent], str | None]
    key: Callable[[MessageEvent], str]
    fresh_id: Callable[[], str]
    receipt: Callable[[str, str], Receipt]


@define(eq=False)
class _Entry:
    """A message from the door to the end of its way. ``receipt`` is the host's, ``settled`` until its outcome is known.
    ``message``: until it is kept; from then on the spool has it.

    ``spooling``: it has been handed to the spool. ``answer``: it is with its lane, which hasn't answered.
    ``followed``: the lane has taken it, and the host's receipt hears of its end.
    """

    message: Spooled | None
    receipt: Receipt
    settled: Settled | None
    spooling: bool = False
    answer: asyncio.Future[None] | None = None
    followed: bool = False


class SpoolDoor:
    """Accepts through the lanes or into the spool. ``on_error(where, error)`` hears of what is nobody's answer."""

    def __init__(
        self,
        spool: Spool,
        admission: Admission,
        clock: Clock,
        notices: Notices,
        on_error: Callable[[str, BaseException], None],
    ) -> None:
        self._spool = spool
        self._admission = admission
        self._clock = clock
        self._notices = notices
        self._on_error = on_error
        self._loop = asyncio.get_running_loop()
        self._lanes: Lanes | None = None
        self._offered: dict[str, _Entry] = {}  # with their lanes, in order of arrival
        self._waiting: deque[_Entry] = deque()  # for the next sync
        self._kept: dict[str, _Entry] = {}  # spooled by this process, not yet taken in
        self._file = asyncio.Lock()
        self._writing: asyncio.Task[None] | None = None
        self._taking: asyncio.Task[None] | None = None
        self._backlog = False
        self._closed = False
        self.refused: Counter[str] = Counter()
        """Messages refused, by reason."""

    # --- life ------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Find what an earlier process kept. Raises StoreUnhealthyError."""
        await self._on_thread(self._spool.open)
        for problem in self._spool.problems:
            self._on_error("spool", SeriatimError(problem))
        self._backlog = len(self._spool) > 0

    def begin(self, lanes: Lanes) -> None:
        """The store is open: take in what is kept."""
        self._lanes = lanes
        if self._backlog:
            self._take_in_soon()

    def trouble(self) -> None:
        """The store has begun to fail: what its lanes haven't answered is kept now, in the order in which it came."""
        for entry in list(self._offered.values()):
            self._keep(entry)

    async def close(self) -> None:
        """Take nothing in any more; what is kept is taken in at the next start. Its lane answers who still waits."""
        self._closed = True
        if self._taking is not None:
            self._taking.cancel()
        await asyncio.gather(*filter(None, (self._taking, self._writing)), return_exceptions=True)
        error = GatewayClosedError("the gateway stopped; what was accepted is answered at the next start")
        for entry in self._kept.values():
            entry.receipt._finish(error)

    @property
    def engaged(self) -> bool:
        """Whether messages go to the spool now."""
        return self._lanes is None or self._lanes.store_trouble is not None or self._backlog

    @property
    def taking_in(self) -> bool:
        """Whether kept messages are on their way into a store that works."""
        return self._backlog and self._lanes is not None and self._lanes.store_trouble is None

    @property
    def count(self) -> int:
        """Messages in the spool, those that are in the store by now included until all are."""
        return len(self._spool)

    @property
    def keys(self) -> list[str]:
        """Their unique keys."""
        return list(self._spool.keys)

    # --- the door --------------------------------------------------------------------------------------

    def accept(self, event: MessageEvent, prefix: str, settled: Settled) -> None:
        """Take a message in; ``settled`` is called with its receipt once the outcome is known."""
        ask = self._admission
        inbox_id = ask.fresh_id()
        receipt = ask.receipt(inbox_id, ask.lane(event))
        # Without an id of the platform's the message is known by its own: it may be offered more than once.
        key = ask.key(event) or f"spool:{inbox_id}"
        entry = _Entry(Spooled(inbox_id, key, prefix, self._clock.now_ms(), event), receipt, settled)
        refusal = "stopping" if self._closed else ask.refusal(event)
        if refusal is not None:
            self._settle(entry, "refused", refusal)
        elif self.engaged:
            self._keep(entry)
        else:
            self._offer(entry)

    def _offer(self, entry: _Entry) -> None:
        assert self._lanes is not None
        message = entry.message
        assert message is not None
        answer = entry.answer = self._loop.create_future()
        self._offered[message.id] = entry

        def answered(receipt: Receipt) -> None:
            entry.answer = None
            if not answer.done():  # a stop gave up waiting for it
                answer.set_result(None)
            self._offered.pop(message.id, None)
            if receipt.outcome in _TAKEN:
                self._follow(receipt, entry)
                self._settle(entry, receipt.outcome, receipt.reason)
            elif entry.spooling:
                pass  # the spool has the say
            elif receipt.outcome == "pending":  # the gateway stops before anybody knows
                self._follow(receipt, entry)
                self._settle(entry, "pending", None)
            elif receipt.reason == UNAVAILABLE:
                self._keep(entry)
            else:
                self._settle(entry, "refused", receipt.reason)

        self._lanes.accept(message.event, message.prefix, answered, inbox_id=message.id, key=message.key)

    def _settle(self, entry: _Entry, outcome: AcceptOutcome | Literal["pending"], reason: str | None) -> None:
        settled, entry.settled = entry.settled, None
        if settled is None:
            return
        receipt = entry.receipt
        receipt.outcome, receipt.reason = outcome, reason
        if outcome == "refused":
            self.refused[reason or ""] += 1
            if reason == UNAVAILABLE:
                assert entry.message is not None
                self._notices.tell(entry.message.event, REFUSED)
            receipt._finish(End("refused", None, reason or ""))
        elif outcome == "duplicate":
            receipt._finish(End("duplicate", None, "accepted before"))
        settled(receipt)

    # --- into the spool --------------------------------------------------------------------------------

    def _keep(self, entry: _Entry) -> None:
        if entry.spooling:
            return
        if self._closed or len(self._waiting) >= SPOOL_WAITING_MAX:
            self._settle(entry, "refused", UNAVAILABLE)
            return
        entry.spooling = True
        if not self._backlog:
            self._backlog = True
            if self._lanes is not None:
                # One that still lies in a mailbox must not get in before this one, which is taken in later.
                self._lanes.turn_away()
        self._waiting.append(entry)
        if self._writing is None or self._writing.done():
            self._writing = self._loop.create_task(self._write(), name="seriatim spool")

    async def _write(self) -> None:
        """Keep what waits, group by group."""
        while self._waiting:
            async with self._file:
                group = [self._waiting.popleft() for _ in range(min(len(self._waiting), SPOOL_GROUP_MAX))]
                fresh: dict[str, tuple[_Entry, Spooled]] = {}
                for entry in group:
                    assert entry.message is not None
                    if entry.message.key not in self._spool.keys:
                        fresh.setdefault(entry.message.key, (entry, entry.message))
                try:
                    if fresh:
                        await self._on_thread(self._spool.append, [message for _, message in fresh.values()])
                except SeriatimError as error:
                    self._not_kept(group, error)
                    continue
            kept = dict(fresh.values())
            for entry in group:
                message = kept.get(entry)
                if message is None:
                    self._settle(entry, "duplicate", None)
                    continue
                entry.message = None
                self._kept[message.key] = entry
                self._settle(entry, "accepted", "spooled")
                self._notices.tell(message.event, KEPT)
        self._take_in_soon()

    def _not_kept(self, group: Sequence[_Entry], error: SeriatimError) -> None:
        self._on_error("spool", error)
        for entry in group:
            entry.spooling = False
            if entry.answer is None:  # else its lane still owes an answer
                self._settle(entry, "refused", UNAVAILABLE)

    # --- out of the spool ------------------------------------------------------------------------------

    def _take_in_soon(self) -> None:
        if self._lanes is not None and not self._closed and (self._taking is None or self._taking.done()):
            self._taking = self._loop.create_task(self._take_in(), name="seriatim take-in")

    async def _take_in(self) -> None:
        """Bring everything kept into the store; then, and only then, the spool goes away."""
        place, failures = 0, 0
        hopeless: list[Spooled] = []
        while True:
            try:
                async with self._file:
                    batch, place = await self._on_thread(self._spool.read, place, SPOOL_GROUP_MAX)
                    if not batch:
                        await self._on_thread(self._spool.keep_only, hopeless)
                        place = self._spool.size  # behind those that no lane takes: the next start asks again
                if not batch and (self._writing is None or self._writing.done()):
                    self._backlog = False  # nothing came meanwhile: from here on the lanes get it first
                    if self._lanes is not None and not hopeless:
                        _log.warning("everything that was spooled is in the store")
                    return
                if not batch:
                    await asyncio.sleep(0)
                    continue
                while batch:
                    batch, refused = await self._admit(batch)
                    hopeless += refused
                    failures = failures + 1 if batch else 0
                    if batch:
                        await self._pause(SPOOL_RETRY_MS[min(failures, len(SPOOL_RETRY_MS)) - 1])
            except SeriatimError as error:
                failures += 1
                self._on_error("spool", error)
                await self._pause(SPOOL_RETRY_MS[min(failures, len(SPOOL_RETRY_MS)) - 1])

    async def _admit(self, batch: Sequence[Spooled]) -> tuple[list[Spooled], list[Spooled]]:
        """Offer a batch, each lane's messages in turn: what has to be offered again, and what no lane takes."""
        lanes: dict[str, list[Spooled]] = {}
        for message in batch:
            lanes.setdefault(self._admission.lane(message.event), []).append(message)
        again: set[str] = set()
        hopeless: list[Spooled] = []

        async def one_lane(messages: list[Spooled]) -> None:
            for number, message in enumerate(messages):
                reason = await self._admit_one(message)
                if reason in _LATER:
                    again.update(later.key for later in messages[number:])
                    return
                if reason is not None:
                    self._on_error("spool", SeriatimError(f"a kept message is not taken in: {reason}"))
                    hopeless.append(message)

        await asyncio.gather(*map(one_lane, lanes.values()))
        return [message for message in batch if message.key in again], hopeless

    async def _admit_one(self, message: Spooled) -> str | None:
        """Have a kept message in the store; None when it is, else why not."""
        assert self._lanes is not None
        entry = self._kept.get(message.key)
        if entry is not None and entry.answer is not None:
            await entry.answer  # it was on its way when the store began to fail; a second one would get in between
        if entry is None or not entry.followed:
            answer: asyncio.Future[Receipt] = self._loop.create_future()

            def answered(receipt: Receipt) -> None:
                if not answer.done():  # a stop gave up waiting for it
                    answer.set_result(receipt)

            self._lanes.accept(message.event, message.prefix, answered, inbox_id=message.id, key=message.key)
            receipt = await answer
            if receipt.outcome not in _TAKEN:
                return receipt.reason or receipt.outcome
            if entry is not None:
                self._follow(receipt, entry)
        self._kept.pop(message.key, None)
        return None

    def _follow(self, told: Receipt, entry: _Entry) -> None:
        """Let the host's receipt say what the lane's says, its end included."""
        host = entry.receipt
        entry.followed = True
        host.session_id, host.position = told.session_id, told.position
        told._future().add_done_callback(lambda end: host._finish(end.exception() or end.result()))  # type: ignore[arg-type]

    # --- beside the loop -------------------------------------------------------------------------------

    async def _pause(self, ms: float) -> None:
        due = asyncio.Event()
        self._clock.call_later(ms, due.set)
        await due.wait()

    async def _on_thread(self, work: Callable[..., Any], *arguments: Any) -> Any:
        """Do it beside the loop; whoever is cancelled meanwhile waits for its end, since the file is one."""
        done = asyncio.wrap_future(on_thread("seriatim-spool", work, *arguments))
        try:
            return await asyncio.shield(done)
        except asyncio.CancelledError:
            await asyncio.wait({done})
            raise
