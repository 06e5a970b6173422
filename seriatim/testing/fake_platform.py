"""A chat platform for tests: it keeps what it got, gives again what wasn't acked, and fails on demand.

Fault model. Towards the bot: a message is given until it was acked (replay "ack"), from the first one not acked on
("cursor"), or once and only while somebody listens ("none"). From the bot: a send arrives, or is refused for good,
or fails surely, or fails without anybody knowing whether it arrived, or has to wait; the platform may be down. No
message is altered, and none overtakes another.

It has no thread, no clock and no randomness. Used from a loop it is an adapter (``run``, ``send``); a driver without
a loop uses ``pending``, ``ack`` and ``receive``.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Literal, cast

from attrs import define, frozen

from seriatim.adapters.base import AcceptReceipt, Bounces, Capabilities, Inbox
from seriatim.errors import SendCode, SendError
from seriatim.model import MessageEvent, Outbound, Platform, Sent, SessionSource, Target

FaultKind = Literal["plain", "permanent", "arrived", "lost", "hang"]


@frozen
class Fault:
    """What happens to one send.

    ``kind``: "plain" (surely not sent), "permanent" (refused for good), "arrived" and "lost" (ambiguous both; the
    platform has it, or not), "hang" (``send`` never ends and doesn't listen to being cancelled). ``wait_s``: with
    "plain", how long the platform asks to wait. ``code``: what a refusal is about.
    """

    kind: FaultKind
    wait_s: float | None = None
    code: SendCode | None = None


@frozen
class Received:
    """One message that the platform got from the bot; ``message_id`` is its id there, ``edits`` its former texts."""

    out: Outbound
    message_id: str
    edits: tuple[str, ...] = ()


@define
class Posted:
    """One message that somebody posted; ``given`` counts how often the bot was told, ``acked`` ends that."""

    event: MessageEvent
    given: int = 0
    acked: bool = False


class FakePlatform:
    """Platform and adapter in one; it outlives the gateways that come and go on it.

    ``received`` is what the platform got, in order; ``typed`` the typing hints; ``sends`` counts attempts. ``own_id``:
    the account's own user id there. ``missing`` names chats that don't exist there, ``gone`` messages and threads that
    don't any more. Not for use from several threads.
    """

    def __init__(
        self,
        name: str = "fake",
        *,
        account: str = "fake",
        capabilities: Capabilities = Capabilities(replay="ack"),  # noqa: B008  # frozen
        missing: Iterable[str] = ("nowhere",),
        own_id: str | None = None,
    ) -> None:
        self.platform = name
        self.account = account
        self.capabilities = capabilities
        self.missing = frozenset(missing)
        self.own_id = own_id
        self.gone: set[str] = set()
        self.posted: list[Posted] = []
        self.received: list[Received] = []
        self.typed: list[Target] = []
        self.sends = 0
        self._up = True
        self._inbox: Inbox | None = None
        self._listening = False
        self._faults: deque[Fault | None] = deque()
        self._changed = asyncio.Event()
        self._closed = False
        self.unstuck = asyncio.Event()
        """Lets sends that hang go on."""

    # What people do

    def say(self, text: str, *, chat_id: str = "1", user_id: str = "7", **source: Any) -> Posted:
        """Post ``text`` as a person would; ``source`` holds further fields of SessionSource."""
        number = len(self.posted) + 1
        where = SessionSource(platform=Platform(self.platform), chat_id=chat_id, user_id=user_id, **source)
        return self.post(MessageEvent(text, where, account=self.account, message_id=f"in{number}"))

    def post(self, event: MessageEvent) -> Posted:
        """Post ``event`` as it is; the same event twice is the platform's own duplicate."""
        posted = Posted(event)
        if self.capabilities.replay != "none" or (self._listening and self._up):
            self.posted.append(posted)
            self._changed.set()
        return posted

    def texts(self, chat_id: str | None = None) -> list[str]:
        """What people see of the bot, in one chat or in all."""
        return [got.out.text for got in self.received if chat_id in (None, got.out.target.chat_id)]

    # What the world does

    def bounce(self, got: Received, reason: str = "bounced") -> None:
        """Report that a message which was taken can't be delivered."""
        out = got.out
        cast("Bounces", self._inbox).bounced(out.lane, out.delivery, out.part, reason)

    def fail_next(self, *faults: Fault | FaultKind | None) -> None:
        """The next sends meet these, one each, in order; None lets one pass."""
        self._faults.extend(Fault(fault) if isinstance(fault, str) else fault for fault in faults)

    def go_down(self) -> None:
        """Sends fail plainly and nothing is given, until ``come_back``."""
        self._up = False

    def come_back(self) -> None:
        """The platform is up; with replay, what wasn't acked is given again."""
        self._up = True
        self.redeliver()

    def redeliver(self) -> None:
        """Give everything that wasn't acked once more, as platforms do after a while or a new connection."""
        for posted in self.posted:
            posted.given = 0 if self.capabilities.replay != "none" else posted.given
        self._changed.set()

    def close(self) -> None:
        """End of the source: ``run`` returns once everything has been given."""
        self._closed = True
        self._changed.set()

    # The synchronous face, for drivers without a loop

    def pending(self) -> list[Posted]:
        """What a bot that connects now is given, oldest first."""
        match self.capabilities.replay:
            case "ack":
                return [posted for posted in self.posted if not posted.acked]
            case "cursor":
                first = next((i for i, posted in enumerate(self.posted) if not posted.acked), len(self.posted))
                return self.posted[first:]
            case "none":
                return [posted for posted in self.posted if not posted.given]

    def ack(self, posted: Posted) -> None:
        """The bot has it durably."""
        posted.acked = True

    def receive(self, out: Outbound) -> Sent:
        """Take one send, as ``send`` does. Raises SendError as the next fault says."""
        self.sends += 1
        if not self._up:
            raise SendError("the platform is down")
        fault = self._faults.popleft() if self._faults else None
        if fault is not None and fault.kind == "permanent":
            raise SendError("refused", permanent=True, code=fault.code)
        if fault is not None and fault.kind == "plain":
            raise SendError("not now", retry_after_s=fault.wait_s, code=fault.code)
        if fault is not None and fault.kind == "lost":
            raise SendError("no answer", ambiguous=True)
        sent = self._take(out)
        if fault is not None:
            raise SendError("no answer", ambiguous=True)
        return sent

    def _take(self, out: Outbound) -> Sent:
        if out.target.chat_id in self.missing:
            raise SendError("no such chat", permanent=True, code="gone")
        limit = self.text_max(out.target)
        if limit and self._size(out.text) > limit:
            raise SendError(f"longer than {limit} {self.capabilities.text_unit}", permanent=True, code="too_long")
        if out.target.thread_id in self.gone:
            raise SendError("no such thread", code="thread")
        if out.target.reply_to_id in self.gone:
            raise SendError("the message replied to is gone", code="anchor")
        if out.edits:
            return self._edited(out)
        if self.capabilities.idempotent_send:
            for got in self.received:
                if got.out.idempotency_key == out.idempotency_key:
                    return Sent(got.message_id)
        got = Received(out, f"out{len(self.received) + 1}")
        self.received.append(got)
        return Sent(got.message_id)

    def _edited(self, out: Outbound) -> Sent:
        for at, got in enumerate(self.received):
            if got.message_id == out.edits and got.message_id not in self.gone:
                if got.out.text != out.text:
                    self.received[at] = Received(out, got.message_id, (*got.edits, got.out.text))
                return Sent(got.message_id)
        raise SendError("no such message", permanent=True)

    def _size(self, text: str) -> int:
        match self.capabilities.text_unit:
            case "bytes":
                return len(text.encode("utf-8", "replace"))
            case "utf16":
                return len(text.encode("utf-16-le", "replace")) // 2
            case "codepoints":
                return len(text)

    # The adapter

    async def run(self, inbox: Inbox) -> None:
        """Give what is pending, in order; ack what was accepted. Returns after ``close``.

        A refused message stays pending and is given again by ``redeliver`` or to the next ``run``.
        """
        self._listening = True
        self._inbox = inbox
        self._changed = asyncio.Event()  # a new one: the platform outlives the loops of its gateways
        self.redeliver()
        try:
            while True:
                self._changed.clear()
                if (posted := self._next()) is not None:
                    posted.given += 1
                    if _may_ack(await inbox.accept(posted.event)):
                        self.ack(posted)
                elif self._closed:
                    return
                else:
                    await self._changed.wait()
        finally:
            self._listening = False

    def _next(self) -> Posted | None:
        return next((posted for posted in self.pending() if not posted.given), None) if self._up else None

    @property
    def connected(self) -> bool:
        """Whether the platform can be reached."""
        return self._up

    @property
    def command_prefix(self) -> str | None:
        """As the configuration says."""
        return None

    def text_max(self, target: Target) -> int:
        """As the capabilities say, for every target."""
        del target
        return self.capabilities.text_max

    async def send(self, out: Outbound) -> Sent:
        """Send as ``receive`` does, after one turn of the loop, so that a caller can be cancelled before."""
        await asyncio.sleep(0)
        if self._faults and self._faults[0] is not None and self._faults[0].kind == "hang":
            self._faults.popleft()
            self.sends += 1
            while not self.unstuck.is_set():
                with suppress(asyncio.CancelledError):
                    await self.unstuck.wait()
        return self.receive(out)

    async def edit(self, out: Outbound) -> Sent:
        """Change a message, where the capabilities say ``edit``; faults strike as they do a send."""
        return await self.send(out)

    async def lookup(self, out: Outbound) -> Sent | None:
        """Whether the platform has the part, where the capabilities say ``lookup``."""
        await asyncio.sleep(0)
        if not self._up:
            raise SendError("the platform is down")
        found = (got for got in self.received if got.out.idempotency_key == out.idempotency_key)
        return next((Sent(got.message_id) for got in found), None)

    async def typing(self, target: Target) -> None:
        """Remember that it was shown."""
        self.typed.append(target)


def _may_ack(receipt: AcceptReceipt) -> bool:
    return receipt.outcome != "refused"
