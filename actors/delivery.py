"""DeliveryActor: sends what lanes owe through one platform account.

Per chat in order, part by part. It decides nothing durable: before an attempt that must be recorded it asks
the lane, and it reports what came of each. What it holds in memory can be lost: the ledger in the lane logs
brings it back.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import attrs
from attrs import Factory, define, frozen

from seriatim.actors.clockwork import signal_later
from seriatim.actors.pooled import PooledActor
from seriatim.actors.refs import Ref
from seriatim.clock import Clock
from seriatim.effects import Deliver, DropDelivery, Owes, SendPart
from seriatim.errors import SendError
from seriatim.mail import AttemptWanted, Mail, PartAbandoned, PartFailed, PartSettled
from seriatim.model import Outbound, Target
from seriatim.outbox import Channel, marked

if TYPE_CHECKING:
    from attrs import frozen as value
else:
    value = attrs.define

RETRY_MS_MIN = 500
RETRY_MS_MAX = 60_000
DOWN_POLL_MS = 1_000


@value
class SendDone:
    """What came of one send. ``error`` None: the platform has it, under ``message_id`` if it said so."""

    delivery: str
    part: int
    message_id: str | None
    error: SendError | None


class Sender(Protocol):
    """The port to one account's adapter. Called on the loop's thread; returns at once."""

    def send(self, out: Outbound, done: Callable[[SendDone], None]) -> SendDone | None:
        """Begin to send. What came of it is returned if it is known by then, else told to ``done``, on any thread."""
        ...

    def channel(self, target: Target) -> Channel:
        """The way to ``target`` as of now."""
        ...


@value
class TakeUp:
    """A lane owes a reply."""

    lane: str
    effect: Deliver


@frozen
class Debts:
    """Everything that a lane owes, told by a new incarnation."""

    lane: str
    effect: Owes


@frozen
class _Retry:
    """The time to go on with a chat has come."""

    chat: str


@define
class _Job:
    """One owed reply in a chat's queue; ``due`` are the parts that are left, in order."""

    lane: str
    effect: Deliver
    due: deque[int]
    recorded: bool
    attempt: int = 0
    failures: int = 0
    ambiguous: int = 0
    asked: bool = False
    sending: bool = False


@define
class _Chat:
    jobs: deque[_Job] = Factory(deque)
    resting: bool = False


class DeliveryActor(PooledActor):
    """One account's delivery. ``post`` gives mail to a lane by key, live or not. Runs on the loop dispatcher.

    ``age_ms_max``: how long a reply is tried before it is abandoned; ``ambiguous_max``: how many answers may leave
    open whether a part arrived (a crash counts by the ledger's record, not here). ``ended`` hears of each debt it is
    through with.
    """

    def __init__(
        self,
        account: str,
        sender: Sender,
        post: Callable[[str, Mail], None],
        clock: Clock,
        rng: random.Random,
        age_ms_max: int,
        ambiguous_max: int,
        ended: Callable[[str], None],
    ) -> None:
        super().__init__()
        self.account = account
        self._ended = ended
        self._sender = sender
        self._post = post
        self._clock = clock
        self._rng = rng
        self._age_ms_max = age_ms_max
        self._ambiguous_max = ambiguous_max
        self._chats: dict[str, _Chat] = {}
        self._jobs: dict[str, tuple[str, _Job]] = {}

    def on_receive(self, message: Any) -> None:
        """Take a debt up, go on with one, or hear what came of a send."""
        kind = type(message)
        if kind is TakeUp:
            self._take_up(message)
        elif kind is SendDone:
            self._done(message)
        elif kind is SendPart:
            self._permitted(message)
        elif kind is DropDelivery:
            self._drop(message)
        elif kind is Debts:
            self._debts(message)
        elif kind is _Retry:
            chat = self._chats.get(message.chat)
            if chat is not None:
                chat.resting = False
                self._advance(message.chat)

    # --- debts -----------------------------------------------------------------------------------------

    def _take_up(self, message: TakeUp) -> None:
        effect = message.effect
        known = self._jobs.get(effect.delivery)
        if known is not None:
            # A new incarnation of the lane lists its debts: what it was asked has died with the one before.
            known[1].asked = False
            self._advance(known[0])
            return
        chat_id = _chat_of(effect.target)
        job = _Job(message.lane, effect, deque(effect.due), effect.first_attempt_recorded)
        self._jobs[effect.delivery] = (chat_id, job)
        chat = self._chats.get(chat_id)
        if chat is None:
            chat = self._chats[chat_id] = _Chat()
        chat.jobs.append(job)
        self._advance(chat_id)

    def _debts(self, message: Debts) -> None:
        owed = frozenset(message.effect.deliveries)
        for delivery, (_, job) in list(self._jobs.items()):
            if job.lane == message.lane and delivery not in owed:
                self._drop(DropDelivery(job.effect.target, delivery))

    def _drop(self, message: DropDelivery) -> None:
        known = self._jobs.get(message.delivery)
        if known is None:
            return
        chat_id, job = known
        chat = self._chats[chat_id]
        # What is on its way can't be called back; its end is heard in _done.
        job.due = deque(part for part in job.due if part < message.first)
        if job.sending or job.due:
            return
        chat.jobs.remove(job)
        self._forget(job)
        self._advance(chat_id)

    def _advance(self, chat_id: str) -> None:
        """Do the next thing for a chat: ask for an attempt, or send."""
        chat = self._chats[chat_id]
        while chat.jobs and not chat.resting:
            job = chat.jobs[0]
            if job.sending or job.asked:
                return
            if not job.due:
                chat.jobs.popleft()
                self._forget(job)
                continue
            if self._clock.now_ms() - job.effect.since > self._age_ms_max:
                self._give_up(chat, job, "too old")
                continue
            channel = self._sender.channel(job.effect.target)
            if not channel.up:
                self._rest(chat_id, chat, DOWN_POLL_MS)
            elif job.recorded or channel.idempotent:
                self._send(job, max(1, job.attempt), repeat=False)
            else:
                job.asked = True
                self._post(job.lane, AttemptWanted(job.effect.delivery, job.due[0]))
            return
        if not chat.jobs:
            del self._chats[chat_id]

    def _give_up(self, chat: _Chat, job: _Job, reason: str) -> None:
        self._post(job.lane, PartAbandoned(job.effect.delivery, job.due[0], reason))
        chat.jobs.popleft()
        self._forget(job)

    def _forget(self, job: _Job) -> None:
        if self._jobs.pop(job.effect.delivery, None) is not None:
            self._ended(job.effect.delivery)

    # --- sends -----------------------------------------------------------------------------------------

    def _permitted(self, message: SendPart) -> None:
        known = self._jobs.get(message.delivery)
        if known is None:
            return
        job = known[1]
        if job.asked and not job.sending and job.due and job.due[0] == message.part:
            job.asked = False
            self._send(job, message.attempt, repeat=message.marked)

    def _send(self, job: _Job, attempt: int, *, repeat: bool) -> None:
        effect, part = job.effect, job.due[0]
        job.sending = True
        job.attempt = attempt
        text = effect.parts[part]
        out = Outbound(
            effect.delivery,
            part,
            len(effect.parts),
            marked(text) if repeat else text,
            effect.target,
            f"{effect.delivery}.{part}",
            attempt,
        )
        done = self._sender.send(out, self._sent)
        if done is None:
            return
        if len(job.due) == 1 and len(self._chats[_chat_of(effect.target)].jobs) == 1:
            self._done(done)
        else:
            self.own_ref.signal(done)  # many parts sent in one go would hold everybody else up

    def _sent(self, done: SendDone) -> None:
        """What the sender calls, on whichever thread."""
        self.own_ref.signal(done)

    def _done(self, message: SendDone) -> None:
        known = self._jobs.get(message.delivery)
        if known is None:
            return
        chat_id, job = known
        job.sending = False
        error = message.error
        if error is None:
            job.failures = job.ambiguous = 0
            if job.due:
                job.due.popleft()
            self._post(job.lane, PartSettled(message.delivery, message.part, message.message_id))
        elif job.due:
            self._failed(chat_id, job, message.part, error)
        self._advance(chat_id)

    def _failed(self, chat_id: str, job: _Job, part: int, error: SendError) -> None:
        chat = self._chats[chat_id]
        if error.permanent:
            self._give_up(chat, job, error.reason)
            return
        if not error.ambiguous:
            self._post(job.lane, PartFailed(job.effect.delivery, part, error.reason))
        else:
            job.ambiguous += 1
            if job.ambiguous >= self._ambiguous_max:
                self._give_up(chat, job, "too many attempts of unknown outcome")
                return
        job.recorded = False  # from now on each attempt has a record of its own
        job.failures += 1
        if error.retry_after_s is not None:
            wait = error.retry_after_s * 1000
        else:
            wait = min(RETRY_MS_MIN * 2 ** min(job.failures - 1, 10), RETRY_MS_MAX) * (0.75 + 0.5 * self._rng.random())
        self._rest(chat_id, chat, wait)

    def _rest(self, chat_id: str, chat: _Chat, wait_ms: float) -> None:
        chat.resting = True
        signal_later(self._clock, wait_ms, self.own_ref, _Retry(chat_id))


def _chat_of(target: Target) -> str:
    return target.chat_id if target.thread_id is None else f"{target.chat_id}\n{target.thread_id}"


class Deliveries:
    """Which delivery serves which account: how lanes reach them. Loop thread only.

    A delivery that rests is served at once, inside the lane's activation.
    A debt to an account that isn't there now stays in the ledger until a start at which it is.
    """

    def __init__(self) -> None:
        self._accounts: dict[tuple[str, str], tuple[Ref[Any], Sender]] = {}
        self._open: set[str] = set()

    @property
    def pending(self) -> int:
        """Debts that were handed over and that no delivery is through with."""
        return len(self._open)

    def ended(self, delivery: str) -> None:
        """A delivery is through with a debt."""
        self._open.discard(delivery)

    def add(self, platform: str, account: str, ref: Ref[Any], sender: Sender) -> None:
        """Serve ``account`` of ``platform`` through ``ref``."""
        self._accounts[platform, account] = (ref, sender)

    def serves(self, platform: str, account: str) -> bool:
        """Whether anybody delivers for this account."""
        return (platform, account) in self._accounts

    def take_up(self, lane: str, effect: Deliver) -> None:
        """Hand a debt over."""
        found = self._accounts.get((effect.target.platform, effect.target.account))
        if found is not None:
            self._open.add(effect.delivery)
            found[0].hand(TakeUp(lane, effect))

    def owes(self, lane: str, effect: Owes) -> None:
        """Tell every delivery what a lane owes in all."""
        for ref, _ in self._accounts.values():
            ref.hand(Debts(lane, effect))

    def tell(self, target: Target | None, effect: SendPart | DropDelivery) -> None:
        """Pass an effect to the target's delivery; to all of them where the target is unknown."""
        if target is None:
            for ref, _ in self._accounts.values():
                ref.hand(effect)
            return
        found = self._accounts.get((target.platform, target.account))
        if found is not None:
            found[0].hand(effect)

    def channel(self, target: Target) -> Channel:
        """The way to ``target`` as of now."""
        found = self._accounts.get((target.platform, target.account))
        return _NO_WAY if found is None else found[1].channel(target)


_NO_WAY = Channel()
