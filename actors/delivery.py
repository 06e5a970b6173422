"""DeliveryActor: sends what lanes owe through one platform account.

Per chat in order, part by part. It decides nothing durable: before an attempt that must be recorded it asks
the lane, and it reports what came of each. What it holds in memory can be lost: the ledger in the lane logs
brings it back.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Final, Protocol

from attrs import frozen
from msgspec import Struct
from msgspec.structs import replace

from seriatim.actors.clockwork import signal_later
from seriatim.actors.pooled import PooledActor
from seriatim.actors.refs import Ref
from seriatim.actors.showing import Delta, Drafts, Idle, Working
from seriatim.clock import Clock
from seriatim.effects import Deliver, DropDelivery, Owes, SendPart
from seriatim.errors import SendError
from seriatim.ledger import TOO_MANY_DOUBTS, TOO_OLD
from seriatim.mail import AttemptWanted, DraftGone, Mail, PartAbandoned, PartFailed, PartSettled
from seriatim.model import Outbound, Target
from seriatim.outbox import Channel, marked

RETRY_MS_MIN = 500
RETRY_MS_MAX = 60_000
DOWN_POLL_MS = 1_000
SOON_MS = 2_000
"""A stop waits for what goes on within that time: a shorter pause, or a send that began no longer ago."""
WAIT_RECORDED_MS = 5_000
"""A wait that the platform asked for and that is longer than this is kept over a restart."""

_FIRST_ONLY: Final = (0,)


class SendDone(Struct, frozen=True):
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


class TakeUp(Struct, frozen=True):
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
    """The time to go on with a chat has come; "" when it is time to see whether the platform is back."""

    chat: str


class _Job(Struct, eq=False):
    """One owed reply in a chat's queue; ``due`` are the parts that are left, in order.

    ``target``: the debt's, without what turned out to be gone. ``draft``: the message that the first part is edited
    into, "" where it is a message of its own. ``since``: when it was owed, epoch ms; ``born``: by the
    monotonic clock, once it was looked at.
    """

    lane: str
    effect: Deliver
    chat: _Chat
    due: tuple[int, ...]
    recorded: bool
    target: Target
    since: int
    draft: str
    attempt: int = 0
    failures: int = 0
    ambiguous: int = 0
    asked: bool = False
    sending: bool = False
    moves_to: Target | None = None
    began: float = 0.0
    born: float | None = None


class _Chat(Struct, eq=False):
    """A chat's replies, oldest first. ``rests_until``: of the clock's monotonic ms, None without an end in sight."""

    id: str
    jobs: list[_Job]
    resting: bool = False
    rests_until: float | None = None


class DeliveryActor(PooledActor):
    """One account's delivery. ``post`` gives mail to a lane by key, live or not. Runs on the loop dispatcher.

    ``age_ms_max``: how long a reply is tried before it is abandoned; ``ambiguous_max``: how many answers may leave
    open whether a part arrived (a crash counts by the ledger's record, not here). ``ended`` hears of each debt it is
    through with, ``starts`` how to ask it how many are moving.
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
        starts: Callable[[Callable[[], int]], None],
        drafts: Drafts | None = None,
        chat_moved: Callable[[str, str, str], object] = lambda lane, old, new: None,
    ) -> None:
        super().__init__()
        self.account = account
        self._chat_moved = chat_moved
        self._ended = ended
        self._starts = starts
        self._sender = sender
        self._post = post
        self._clock = clock
        self._rng = rng
        self._age_ms_max = age_ms_max
        self._ambiguous_max = ambiguous_max
        self._chats: dict[str, _Chat] = {}
        self._jobs: dict[str, _Job] = {}
        self._cut_off: dict[str, None] = {}
        """Chats that wait for the platform to be back: one timer for all of them."""
        self._drafts = drafts
        if drafts is not None:
            drafts.busy = lambda target: _chat_of(target) in self._chats
            drafts.settled = self._draft_settled

    def on_start(self) -> None:
        """Say how to ask what moves; drafts have timers, which need to know whom to tell."""
        if self._drafts is not None:
            self._drafts.ref = self.own_ref
        self._starts(self.moving)

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
            if not message.chat:
                self._look_again()
                return
            chat = self._chats.get(message.chat)
            if chat is not None:
                chat.resting = False
                self._advance(chat)
        elif self._drafts is not None:
            self._drafts.on_receive(message)

    def moving(self) -> int:
        """Replies that will go on soon by themselves. A pause that is long, or a send that hangs, holds no stop up."""
        now = self._clock.monotonic_ms()
        return sum(len(chat.jobs) for chat in self._chats.values() if _moves(chat, now))

    # --- debts -----------------------------------------------------------------------------------------

    def _take_up(self, message: TakeUp) -> None:
        effect = message.effect
        delivery, target = effect.delivery, effect.target
        known = self._jobs.get(delivery)
        if known is not None:
            # A new incarnation of the lane lists its debts: what it was asked has died with the one before.
            known.asked = False
            known.lane = message.lane
            if target.chat_id != known.effect.target.chat_id:
                self._readdress(known, target)
                return
            if effect.since > known.since:
                self._try_on(known, effect)
            self._advance(known.chat)
            return
        draft, drafts = effect.draft, self._drafts
        if drafts is not None and effect.claim:
            draft = drafts.ended(message.lane, effect.claim, delivery) or draft
        channel: Channel | None = None
        if (
            effect.due == _FIRST_ONLY
            and not effect.until
            and (drafts is None or not drafts.under_way(delivery))
            and _chat_of(target) not in self._chats
            and self._clock.now_ms() - effect.since <= self._age_ms_max
        ):
            channel = self._sender.channel(target)
            if channel.up and (effect.first_attempt_recorded or channel.idempotent):
                self._send_at_once(message.lane, effect, draft)
                return
        job = self._file(message.lane, effect, draft)
        chat = job.chat
        if effect.until and not chat.resting and (wait_ms := effect.until - self._clock.now_ms()) > 0:
            self._rest(chat, min(wait_ms, self._age_ms_max))  # a clock that jumped holds nobody up for ever
            return
        self._advance(chat, channel)

    def _send_at_once(self, lane: str, effect: Deliver, draft: str) -> None:
        """The plain way: one part, and nothing before it in its chat. It is filed only if it isn't over by then."""
        began, delivery = self._clock.monotonic_ms(), effect.delivery
        out = Outbound(
            delivery,
            0,
            len(effect.parts),
            effect.parts[0],
            effect.target,
            f"{delivery}.0",
            1,
            False,
            draft,
            lane,
        )
        done = self._sender.send(out, self._sent)
        if done is not None and done.error is None:
            self._post(lane, PartSettled(delivery, 0, done.message_id))
            self._ended(delivery)
            return
        job = self._file(lane, effect, draft)
        self._age_of(job, began)
        job.sending, job.began, job.attempt = True, began, 1
        if done is not None:
            self._done(done)

    def _file(self, lane: str, effect: Deliver, draft: str) -> _Job:
        """A job for it, the last of its chat's."""
        chat, recorded = self._chat_at(effect.target), effect.first_attempt_recorded
        job = _Job(lane, effect, chat, effect.due, recorded, effect.target, effect.since, draft)
        self._jobs[effect.delivery] = job
        chat.jobs.append(job)
        return job

    def _chat_at(self, target: Target) -> _Chat:
        chat_id = _chat_of(target)
        chat = self._chats.get(chat_id)
        if chat is None:
            chat = self._chats[chat_id] = _Chat(chat_id, [])
        return chat

    def _draft_settled(self, delivery: str, message_id: str) -> None:
        """What the reply waited for is known: the message to edit it into, if there is one."""
        job = self._jobs.get(delivery)
        if job is not None:
            job.draft = message_id
            self._advance(job.chat)

    def _try_on(self, job: _Job, effect: Deliver) -> None:
        """Somebody asked for it: at once, with its age from now on."""
        job.since, job.failures, job.ambiguous = effect.since, 0, 0
        job.born = None
        job.target = effect.target
        job.chat.resting = False

    def _look_again(self) -> None:
        """One look for all: whether the platform is back, and whose time is over meanwhile."""
        waiting, self._cut_off = self._cut_off, {}
        for chat_id in waiting:
            chat = self._chats.get(chat_id)
            if chat is not None:
                chat.resting = False
                self._advance(chat)

    def _readdress(self, job: _Job, target: Target) -> None:
        """The chat has another id now; a part that is on its way to the old one is waited for first."""
        if job.sending:
            job.moves_to = target
            return
        before = job.chat
        before.jobs.remove(job)
        job.moves_to = None
        job.effect = replace(job.effect, target=target)
        job.target = target
        job.chat = self._chat_at(target)
        job.chat.jobs.append(job)
        self._advance(before)
        self._advance(job.chat)

    def _debts(self, message: Debts) -> None:
        owed = frozenset(message.effect.deliveries)
        for delivery, job in list(self._jobs.items()):
            if job.lane == message.lane and delivery not in owed:
                self._drop(DropDelivery(job.effect.target, delivery))

    def _drop(self, message: DropDelivery) -> None:
        job = self._jobs.get(message.delivery)
        if job is None:
            return
        # What is on its way can't be called back; its end is heard in _done.
        job.due = tuple(part for part in job.due if part < message.first)
        if job.sending or job.due:
            return
        job.chat.jobs.remove(job)
        self._forget(job)
        self._advance(job.chat)

    def _advance(self, chat: _Chat, channel: Channel | None = None) -> None:
        """Do the next thing for a chat: ask for an attempt, or send. ``channel``: as it is now, if that is known."""
        jobs = chat.jobs
        while jobs and not chat.resting:
            job = jobs[0]
            if job.sending or job.asked:
                return
            if not job.due:
                del jobs[0]
                self._forget(job)
                continue
            now = self._clock.monotonic_ms()
            if self._age_of(job, now) > self._age_ms_max:
                self._give_up(job, TOO_OLD)
                continue
            if self._drafts is not None and self._drafts.under_way(job.effect.delivery):
                return  # its end tells whether there is a message to edit
            channel = channel or self._sender.channel(job.effect.target)
            if not channel.up:
                chat.resting, chat.rests_until = True, None
                if not self._cut_off:
                    signal_later(self._clock, DOWN_POLL_MS, self.own_ref, _Retry(""))
                self._cut_off[chat.id] = None
            elif channel.idempotent or (job.recorded and not job.due[0]):
                self._send(job, now, max(1, job.attempt))
            else:
                job.asked = True
                self._post(job.lane, AttemptWanted(job.effect.delivery, job.due[0]))
            return
        if not jobs:
            del self._chats[chat.id]

    def _age_of(self, job: _Job, now: float) -> float:
        """How long it has been owed, ms: by the wall when it is first looked at, from then on by what this process has
        lived. A wall clock that is set meanwhile makes nothing old.
        """
        if job.born is None:
            job.born = now - max(0, self._clock.now_ms() - job.since)
        return now - job.born

    def _give_up(self, job: _Job, reason: str, detail: str = "") -> None:
        self._post(job.lane, PartAbandoned(job.effect.delivery, job.due[0], reason, detail))
        del job.chat.jobs[0]
        self._forget(job)

    def _forget(self, job: _Job) -> None:
        if self._jobs.pop(job.effect.delivery, None) is not None:
            self._ended(job.effect.delivery)

    # --- sends -----------------------------------------------------------------------------------------

    def _permitted(self, message: SendPart) -> None:
        job = self._jobs.get(message.delivery)
        if job is None:
            return
        if job.asked and not job.sending and job.due and job.due[0] == message.part:
            job.asked = False
            now = self._clock.monotonic_ms()
            self._send(job, now, message.attempt, repeat=message.marked, look=message.look)

    def _send(self, job: _Job, now: float, attempt: int, *, repeat: bool = False, look: bool = False) -> None:
        effect, part = job.effect, job.due[0]
        delivery, text = effect.delivery, effect.parts[part]
        job.sending = True
        job.began = now
        job.attempt = attempt
        out = Outbound(
            delivery,
            part,
            len(effect.parts),
            marked(text) if repeat else text,
            job.target,
            f"{delivery}.{part}",
            attempt,
            look,
            job.draft if part == 0 else "",
            job.lane,
        )
        done = self._sender.send(out, self._sent)
        if done is None:
            return
        if len(job.due) == 1 and len(job.chat.jobs) == 1:
            self._done(done)
        else:
            self.own_ref.signal(done)  # many parts sent in one go would hold everybody else up

    def _sent(self, done: SendDone) -> None:
        """What the sender calls, on whichever thread."""
        self.own_ref.signal(done)

    def _done(self, message: SendDone) -> None:
        job = self._jobs.get(message.delivery)
        if job is None:
            return
        job.sending = False
        error = message.error
        if error is None:
            job.failures = job.ambiguous = 0
            job.due = job.due[1:]
            self._post(job.lane, PartSettled(message.delivery, message.part, message.message_id))
        elif job.due:
            self._failed(job, message.part, error)
        if job.moves_to is not None and message.delivery in self._jobs:
            self._readdress(job, job.moves_to)
        else:
            self._advance(job.chat)

    def _failed(self, job: _Job, part: int, error: SendError) -> None:
        delivery = job.effect.delivery
        if error.moved_to is not None:
            self._chat_moved(job.lane, job.effect.target.chat_id, error.moved_to)
        if self._lost_its_place(job, part, error):
            self._post(job.lane, PartFailed(delivery, part, error.reason))
            job.recorded = False
            return
        if error.permanent:
            self._give_up(job, error.code or "refused", error.reason)
            return
        wait: float
        if error.retry_after_s is not None:
            # No longer than the reply may wait: a platform that asks for a week gets its silence, and no answer.
            left = self._age_ms_max - self._age_of(job, self._clock.monotonic_ms())
            wait = min(error.retry_after_s * 1000, max(1, left) + 1)
        else:
            backed_off = min(RETRY_MS_MIN * 2 ** min(job.failures, 10), RETRY_MS_MAX)
            wait = backed_off * (0.75 + 0.5 * self._rng.random())
        if not error.ambiguous:
            long = error.retry_after_s is not None and wait >= WAIT_RECORDED_MS
            until = self._clock.now_ms() + int(wait) if long else 0
            self._post(job.lane, PartFailed(delivery, part, error.reason, until))
        else:
            job.ambiguous += 1
            if job.ambiguous >= self._ambiguous_max:
                self._give_up(job, TOO_MANY_DOUBTS)
                return
        job.recorded = False  # from now on each attempt has a record of its own
        job.failures += 1
        self._rest(job.chat, wait)

    def _lost_its_place(self, job: _Job, part: int, error: SendError) -> bool:
        """Whether what the part hung on is gone, so that it is sent without: draft, message replied to, thread."""
        if job.draft and not part and error.permanent:
            job.draft = ""
            self._post(job.lane, DraftGone(job.effect.delivery))
        elif error.ambiguous:
            return False
        elif error.code in ("anchor", "thread") and job.target.reply_to_id is not None:
            job.target = replace(job.target, reply_to_id=None)
        elif error.code == "thread" and job.target.thread_id is not None:
            job.target = replace(job.target, thread_id=None)
        else:
            return False
        return True

    def _rest(self, chat: _Chat, wait_ms: float) -> None:
        chat.resting, chat.rests_until = True, self._clock.monotonic_ms() + wait_ms
        signal_later(self._clock, wait_ms, self.own_ref, _Retry(chat.id))


def _moves(chat: _Chat, now: float) -> bool:
    if chat.resting:
        return chat.rests_until is not None and chat.rests_until - now <= SOON_MS
    job = chat.jobs[0] if chat.jobs else None
    return job is not None and not (job.sending and now - job.began > SOON_MS)


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
        self._shows: set[tuple[str, str]] = set()
        self._moving: list[Callable[[], int]] = []

    def starts(self, moving: Callable[[], int]) -> None:
        """A delivery is there; ``moving`` counts what will go on soon."""
        self._moving.append(moving)

    @property
    def moving(self) -> int:
        """Debts that will go on soon by themselves: not those that wait for a platform, or whose send hangs."""
        return sum(count() for count in self._moving)

    @property
    def shows(self) -> bool:
        """Whether any account shows what a running turn does."""
        return bool(self._shows)

    def show(self, platform: str, account: str, message: Working | Delta | Idle) -> None:
        """Tell an account's delivery about a running turn, if its platform shows such."""
        if (platform, account) in self._shows:
            self._accounts[platform, account][0].signal(message)

    @property
    def pending(self) -> int:
        """Debts that were handed over and that no delivery is through with."""
        return len(self._open)

    def ended(self, delivery: str) -> None:
        """A delivery is through with a debt."""
        self._open.discard(delivery)

    def add(self, platform: str, account: str, ref: Ref[Any], sender: Sender, *, shows: bool = False) -> None:
        """Serve ``account`` of ``platform`` through ``ref``. ``shows``: drafts, or the typing hint."""
        self._accounts[platform, account] = (ref, sender)
        if shows:
            self._shows.add((platform, account))

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
