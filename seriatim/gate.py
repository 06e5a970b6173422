"""The Gate: waiting for a commit.

One gate per lane incarnation, at most one commit in flight. While it is, mail waits in the stash; what a
commit explains leaves only when the commit is durable. Driven by the lane's actor, on its thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from msgspec import Struct, field

from seriatim.batch import Batch, Now, Rules
from seriatim.commits import Commit, Durable, Outcome, Refused, Unknown
from seriatim.decide import RULES
from seriatim.effects import AckDuplicate, Answered, Effect, Nack, Permit, ReadShown
from seriatim.errors import (
    BindingMismatchError,
    CommitTooLargeError,
    HeadMismatchError,
    KeysTakenError,
    OwnershipLostError,
    SeriatimError,
    StoreUnhealthyError,
)
from seriatim.events import lane_log, weight
from seriatim.lane import LaneState
from seriatim.limits import (
    COMMIT_BYTES_MAX,
    COMMIT_MESSAGES_MAX,
    COMMIT_RETRY_MS,
    COMMIT_SESSIONS_MAX,
    STASH_BYTES_MAX,
    STASH_MESSAGES_MAX,
)
from seriatim.mail import (
    LAZY,
    ApprovalExpired,
    Ask,
    Bounced,
    DraftGone,
    DraftShown,
    DrainTimedOut,
    HoldOver,
    Inbound,
    Mail,
    MoveRefused,
    PartAbandoned,
    PartFailed,
    PartSettled,
    Recover,
    SlotGranted,
    TurnBroken,
    at_the_door,
)
from seriatim.moving import Moving
from seriatim.shown import Loaded, Wanted
from seriatim.turn import DelegationEnded, StepOffered, ToolFinished, TurnAsks, TurnEnded

LAZY_WINDOW_MS = 200
REPEATABLE = frozenset({
    *(Inbound, Ask, MoveRefused, PartSettled, PartAbandoned, Bounced, DraftShown, DraftGone),
    *(DelegationEnded, ApprovalExpired),
})  # fmt: skip
"""What may be decided twice: a successor hears it again where nobody knows what became of it."""
_AHEAD_OF_KEPT = frozenset({Inbound, Ask, SlotGranted})
_ONCE = frozenset({PartFailed, StepOffered, ToolFinished, TurnAsks, TurnEnded, DrainTimedOut, TurnBroken})


class Out(Struct):
    """What the shell has to do after a step of the gate, in this order.

    ``effects``: may leave now, in order, with their permits. ``internal``: leave nothing, need no permit.
    ``slots_back``: turn slots taken for turns that didn't start. ``commit``: offer it to the writer.
    ``wake_at``: call ``tick`` then (epoch ms), None when nothing waits for time. ``stale``: the logs are
    not what the gate believed: the incarnation must end and its successor fold them again. ``lost``: a newer
    owner has taken over. ``failed``: a kept message that raises; the incarnation must end. After these three
    the gate only collects mail for its successor.
    """

    effects: list[tuple[Permit, Effect]] = field(default_factory=list)
    internal: list[Effect] = field(default_factory=list)
    slots_back: int = 0
    commit: Commit | None = None
    wake_at: int | None = None
    stale: bool = False
    lost: bool = False
    failed: BaseException | None = None


class Gate:
    """Stages what mail makes true, offers it as commits, and releases effects when they are durable.

    ``durable`` is the fold of the logs whenever nothing is in flight. Nobody outside reads the staged state.
    """

    __slots__ = (
        "_absent",
        "_alone",
        "_batch",
        "_commit_id",
        "_hold_at",
        "_in_flight",
        "_kept",
        "_last_durable",
        "_lazy",
        "_lazy_at",
        "_loaded",
        "_mail",
        "_over",
        "_refusals",
        "_retry_at",
        "_stash",
        "_stash_bytes",
        "_unheard",
        "_unknown",
        "_wanted",
        "durable",
        "incarnation",
        "lane",
        "rules",
    )

    def __init__(self, incarnation: int, state: LaneState, rules: Rules, commit_id: Callable[[], str]) -> None:
        self.durable = state
        self.rules = rules
        self.incarnation = incarnation
        self.lane = lane_log(state.key)
        self._commit_id = commit_id
        self._last_durable = "fold"
        self._batch: Batch | None = None
        self._mail: Sequence[Mail] = ()
        self._in_flight: Commit | None = None
        self._stash: list[Mail] = []  # bounded, mostly taken as a whole; a deque costs an idle lane 760 bytes
        self._stash_bytes = 0
        self._lazy: list[Mail] = []
        self._lazy_at: int | None = None
        self._hold_at: int | None = None
        self._kept: list[Mail] = []
        self._retry_at: int | None = None
        self._refusals = 0
        self._alone = 0
        self._unheard: tuple[Mail, ...] = ()  # nearly no lane has any
        self._unknown = False
        self._over = False
        self._absent = False
        self._wanted: Wanted | Moving | None = None
        self._loaded: Loaded | None = None

    # --- the three doors -------------------------------------------------------------------------------

    def offer(self, message: Mail, now: Now) -> Out:
        """Take one message in. Never raises for what a message holds."""
        kind = type(message)
        out = Out()
        if kind in LAZY:
            self.put_off(message, now.time)
        elif self._in_flight is None:
            if self._goes_next(message):
                mail = [*self._lazy, message]
                self._lazy, self._lazy_at = [], None
                self._stage(mail, now, out)
            elif self._wanted is None:
                self._put_in(message)
            else:
                self._put_behind(message, out)
            if self._in_flight is None:
                self._advance(now, out)
        elif kind is Inbound and not self._has_room(message):
            out.internal.append(Nack(message.id, "lane_busy"))  # type: ignore[union-attr]
        else:
            self._put_in(message)
        if self._in_flight is None or self._unknown:
            out.wake_at = self._wake_at()
        return out

    def put_off(self, message: Mail, time: int) -> int | None:
        """``offer`` of lazy mail, without an Out: there is nothing to do for it before the ``wake_at`` given back."""
        self._lazy.append(message)
        if self._lazy_at is None:
            self._lazy_at = time + LAZY_WINDOW_MS
        return self._wake_at()

    def _put_behind(self, message: Mail, out: Out) -> None:
        """Take mail in while something is waited for; it may be that: an answer stands before what waited for it."""
        wanted = self._wanted
        if type(message) is MoveRefused and type(wanted) is Moving and message.command.id == wanted.order.command.id:
            self._wanted = None
            self._put_back([message])
        elif type(message) is Inbound and not self._has_room(message):
            out.internal.append(Nack(message.id, "lane_busy"))
        else:
            self._put_in(message)

    def settled(self, outcome: Outcome, now: Now) -> Out:
        """Take the writer's answer to the commit in flight; others are answers to a dead incarnation."""
        out = Out()
        commit, batch = self._in_flight, self._batch
        if commit is None or batch is None or outcome.commit != commit.id:
            return out
        if type(outcome) is Durable:
            self._in_flight = self._batch = None
            self._refusals = 0
            self._unknown = False
            self._last_durable = commit.id
            self._release(batch, commit.id, out)
            if self._stash or self._kept or self._lazy or self._hold_at is not None:
                self._advance(now, out)
            elif self._retry_at is None:
                return out  # nearly always: nothing waits, not even for time
        elif type(outcome) is Unknown:
            # Staged state and effects stay; the same commit is offered again and finds itself, or is written.
            self._unknown = True
            self._back_off(now)
        else:
            assert type(outcome) is Refused
            self._in_flight = self._batch = None
            self._unknown = False
            out.slots_back += batch.slots_taken
            self._refused(outcome, now, out)
        if self._in_flight is None or self._unknown:
            out.wake_at = self._wake_at()
        return out

    def read(self, loaded: Loaded, now: Now) -> Out:
        """Take the answer to a ReadShown; what waited for it is decided."""
        out = Out()
        wanted = self._wanted
        if type(wanted) is Wanted and (wanted.session, wanted.whole, wanted.besides) == (
            loaded.session,
            loaded.whole,
            loaded.besides,
        ):
            self._wanted, self._loaded = None, loaded
            self._advance(now, out)
            self._loaded = None
        out.wake_at = self._wake_at()
        return out

    def tick(self, now: Now) -> Out:
        """Time has come for what ``wake_at`` named; harmless at any time."""
        out = Out()
        if self._in_flight is not None:
            # Only after an Unknown: a second copy of a commit in flight could land after the first was refused.
            if self._unknown and self._retry_at is not None and now.time >= self._retry_at:
                self._retry_at = None
                out.commit = self._in_flight
        else:
            self._advance(now, out)
        out.wake_at = self._wake_at()
        return out

    def flush(self, now: Now) -> Out:
        """Make lazy mail durable now (before a passivation, a stop)."""
        if self._lazy_at is not None:
            self._lazy_at = now.time
        return self.tick(now)

    def quiescent(self) -> bool:
        """Whether nothing is in flight, stashed, lazy or kept: ``durable`` is all there is."""
        return not (self._in_flight or self._stash or self._lazy or self._kept)

    def may_end(self) -> bool:
        """Whether the incarnation may end here, all that it has decided being durable; ``leftover`` is the rest."""
        return type(self._wanted) is Moving or self.quiescent()

    @property
    def over(self) -> bool:
        """Whether the incarnation has to end."""
        return self._over

    def holds(self, kind: type[Mail]) -> bool:
        """Whether a message of ``kind`` still waits to be decided."""
        return any(type(m) is kind for m in (*self._stash, *self._kept))

    def heard(self, kind: type[Mail]) -> bool:
        """Whether a message of ``kind`` waits to be decided, or is part of the commit in flight."""
        return any(type(m) is kind for m in (*self._mail, *self._stash, *self._kept))

    def pass_on(self, message: Mail) -> None:
        """Keep mail that came when the incarnation was over for its successor, behind what it has heard itself."""
        self._unheard += (message,)

    def leftover(self) -> list[Mail]:
        """What a dying incarnation's successor must hear (again): inbound mail, delivery's reports, what was passed on.

        What is in flight may be durable or not: only what is harmless to decide twice is told again.
        """
        undecided = (*self._kept, *self._lazy, *self._stash)
        if self._absent:
            undecided = (*self._mail, *undecided)
            in_flight = []
        else:
            in_flight = [m for m in self._mail if type(m) in REPEATABLE and not _is_once(m)]
        heard = (m for m in undecided if type(m) in REPEATABLE or type(m) in _ONCE)
        return [*in_flight, *heard, *self._unheard]

    def unsure(self) -> list[str]:
        """Tokens of questions that a dying incarnation has in flight and that must not be decided twice."""
        return [] if self._absent else [m.token for m in self._mail if type(m) is Ask and _is_once(m)]

    # --- batches ---------------------------------------------------------------------------------------

    def _advance(self, now: Now, out: Out) -> None:
        """Decide what waits into the next commit, until one is in flight or nothing waits."""
        while self._in_flight is None and self._wanted is None and not self._over and self._due(now):
            self._stage(self._gather(now), now, out)

    def _stage(self, mail: list[Mail], now: Now, out: Out) -> None:
        """Decide ``mail`` into a commit, and have it offered if there is anything to make durable."""
        batch, mail = self._decide(mail, now, out)
        if batch is None:
            return
        if not batch.lane_events and not batch.sessions:
            # Nothing new to make durable: what it wants done is explained by what already is.
            self._release(batch, self._last_durable, out)
            return
        self._batch, self._mail = batch, mail
        self._in_flight = out.commit = batch.close(self._commit_id(), self.lane, self.incarnation)

    def _goes_next(self, message: Mail) -> bool:
        """Whether the next commit, with nothing in flight, is this message and what lazily waited: nearly always."""
        if self._stash or self._kept or self._alone or self._over or self._wanted is not None:
            return False
        lazy = len(self._lazy)
        return not lazy or (lazy < COMMIT_MESSAGES_MAX and _size(message) <= COMMIT_BYTES_MAX)

    def _due(self, now: Now) -> bool:
        if self._stash or (self._kept and self._kept_due(now)):
            return True
        if self._hold_at is not None and now.time >= self._hold_at:
            self._hold_at = None
            self._stash.append(HoldOver())
            return True
        return self._lazy_at is not None and now.time >= self._lazy_at

    def _kept_due(self, now: Now) -> bool:
        """Whether kept mail, of which there is some, is to be decided now."""
        # Nothing is decided before a recovery: a dead incarnation's turn would pass for a running one.
        return self._retry_at is None or now.time >= self._retry_at or type(self._kept[0]) is Recover

    def _gather(self, now: Now) -> list[Mail]:
        """The mail of the next commit: kept mail that is due, lazy mail, then the stash up to the bounds."""
        if not self._kept and not self._alone and self._stash_bytes <= COMMIT_BYTES_MAX:
            mail = [*self._lazy, *self._stash]
            if len(mail) <= COMMIT_MESSAGES_MAX:  # the common case: all of it
                self._lazy, self._lazy_at = [], None
                self._stash.clear()
                self._stash_bytes = 0
                return mail
        if self._lazy:
            self._put_back(self._lazy)
            self._lazy, self._lazy_at = [], None
        if self._kept and self._kept_due(now):
            self._put_back(self._kept)
            self._kept, self._retry_at = [], None
        elif self._kept:
            self._hold_behind_kept()
        mail = []
        size = 0
        stash = self._stash
        count_max = COMMIT_MESSAGES_MAX
        if self._alone:
            count_max, self._alone = 1, self._alone - 1
        while stash and len(mail) < count_max:
            more = _size(stash[0])
            if size + more > COMMIT_BYTES_MAX and mail:
                break
            size += more
            mail.append(stash.pop(0))
        self._stash_bytes -= size
        return mail

    def _decide(self, mail: list[Mail], now: Now, out: Out) -> tuple[Batch | None, list[Mail]]:
        """Decide ``mail`` on one fork; what does not fit goes back, what raises is taken out."""
        while mail:
            batch = Batch(self.durable.fork(), self.rules, now, self._loaded, self._hold_at)
            for index, message in enumerate(mail):
                try:
                    RULES[type(message)](batch, message)
                except (Wanted, Moving) as wanted:
                    # What came before is made durable first, so that what is read, or moved, is as far as the lane is.
                    out.slots_back += batch.slots_taken
                    self._put_back(mail[index:])
                    mail = mail[:index]
                    if not mail:
                        self._wait_for(wanted, out)
                    break
                except Exception as error:  # noqa: BLE001  (whatever a rule raises, the lane goes on)
                    # The fork is spoilt: redo the batch without the message.
                    out.slots_back += batch.slots_taken
                    mail = mail[:index] + mail[index + 1 :]
                    if (inbound := at_the_door(message)) is not None:
                        out.internal.append(Nack(inbound.id, f"error: {type(error).__name__}"))
                    elif type(message) is Ask:
                        told = SeriatimError(f"the question could not be decided: {type(error).__name__}")
                        out.internal.append(Answered(message.token, None, told))
                    else:
                        out.failed = error
                        self._over = True
                    break
                if batch.size > COMMIT_BYTES_MAX and index + 1 < len(mail):
                    self._put_back(mail[index + 1 :])
                    return batch, mail[: index + 1]
                if len(batch.sessions) > COMMIT_SESSIONS_MAX:
                    assert index, "one message touches more sessions than a commit may"
                    out.slots_back += batch.slots_taken
                    self._put_back(mail[index:])
                    mail = mail[:index]
                    break
            else:
                return batch, mail
        return None, mail

    def _wait_for(self, wanted: Wanted | Moving, out: Out) -> None:
        """Decide nothing until what the first message of the stash needs is there."""
        self._wanted = wanted
        if type(wanted) is Moving:
            self._stash_bytes -= _size(self._stash.pop(0))
            out.internal.append(wanted.order)
        else:
            assert type(wanted) is Wanted
            out.internal.append(ReadShown(wanted.session, wanted.whole, wanted.besides))

    def _release(self, batch: Batch, commit_id: str, out: Out) -> None:
        self.durable = batch.state
        self._hold_at = batch.hold_at
        self._mail = ()
        if batch.after:
            permit = Permit(commit_id, self.lane, self.incarnation)
            out.effects.extend([(permit, effect) for effect in batch.after])
        if batch.internal:
            out.internal.extend(batch.internal)

    # --- refusals --------------------------------------------------------------------------------------

    def _refused(self, outcome: Refused, now: Now, out: Out) -> None:
        mail, self._mail = list(self._mail), ()
        error = outcome.error
        if isinstance(error, KeysTakenError):
            found = set(outcome.keys_found)
            again = []
            for told in mail:
                message = at_the_door(told)
                if message is not None and message.key in found:
                    out.internal.append(AckDuplicate(message.id))
                else:
                    again.append(told)
            if len(again) < len(mail):
                self._put_back(again)
            else:
                self._unavailable(mail, now, out)
        elif isinstance(error, (HeadMismatchError, BindingMismatchError)):
            self._mail = mail
            self._over = self._absent = out.stale = True
            return
        elif isinstance(error, OwnershipLostError):
            self._mail = mail
            self._over = self._absent = out.lost = True
            return
        elif error.repeatable:
            self._unavailable(mail, now, out)
        else:
            self._hopeless(mail, error, out)
        self._advance(now, out)

    def _hopeless(self, mail: list[Mail], error: SeriatimError, out: Out) -> None:
        """Repeating can't help: decide the messages one by one; a turn whose word can't be kept ends as failed."""
        if len(mail) > 1:
            self._alone = len(mail)
            self._put_back(mail)
            return
        message = mail[0]
        why = "too large" if isinstance(error, CommitTooLargeError) else "malformed"
        if (inbound := at_the_door(message)) is not None:
            out.internal.append(Nack(inbound.id, why.replace(" ", "_")))
        elif type(message) is Ask:
            out.internal.append(Answered(message.token, None, error))
        elif type(message) is TurnEnded and message.detail != (detail := f"the reply was {why}"):
            self._put_back([TurnEnded(message.turn, message.generation, "failed", None, detail=detail)])
        elif isinstance(message, StepOffered | ToolFinished | TurnAsks):
            self._put_back([TurnBroken(message.turn, message.generation, f"what a tool did was {why}")])
        else:
            self._over = True
            out.failed = error

    def _unavailable(self, mail: list[Mail], now: Now, out: Out) -> None:
        """Tell senders no; decide what has happened anyway again later; go on with the stash at once.

        Where the refused are kept elsewhere and offered again, those behind them are refused with them: else they
        would get in before.
        """
        if self.rules.refuse_behind:
            mail = [*mail, *(message for message in self._stash if type(message) is Inbound)]
            behind, self._stash, self._stash_bytes = self._stash, [], 0
            self._put_back([message for message in behind if type(message) is not Inbound])
        for message in mail:
            if type(message) is Inbound:
                out.internal.append(Nack(message.id, "storage_unavailable"))
            elif type(message) is Ask:
                told = StoreUnhealthyError("the store refuses; nothing was changed")
                out.internal.append(Answered(message.token, None, told))
            else:
                self._kept.append(message)
        if self._kept:
            self._back_off(now)

    def _hold_behind_kept(self) -> None:
        """What reports later than kept mail is decided after it: a call's result, say, not before the call."""
        stash, self._stash, self._stash_bytes = self._stash, [], 0
        for message in stash:
            if type(message) in _AHEAD_OF_KEPT:
                self._put_in(message)
            else:
                self._kept.append(message)

    def _put_in(self, message: Mail) -> None:
        self._stash.append(message)
        self._stash_bytes += _size(message)

    def _put_back(self, mail: list[Mail]) -> None:
        self._stash[:0] = mail
        self._stash_bytes += sum(map(_size, mail))

    def _back_off(self, now: Now) -> None:
        self._retry_at = now.time + COMMIT_RETRY_MS[min(self._refusals, len(COMMIT_RETRY_MS) - 1)]
        self._refusals += 1

    # --- bounds and time -------------------------------------------------------------------------------

    def _has_room(self, message: Mail) -> bool:
        return len(self._stash) < STASH_MESSAGES_MAX and self._stash_bytes + _size(message) <= STASH_BYTES_MAX

    def _wake_at(self) -> int | None:
        if self._over or self._wanted is not None:
            return None
        if self._in_flight is not None:
            return self._retry_at if self._unknown else None
        if self._hold_at is not None:
            return min(at for at in (self._hold_at, self._lazy_at, self._retry_at) if at is not None)
        if self._lazy_at is None:
            return self._retry_at
        return self._lazy_at if self._retry_at is None else min(self._lazy_at, self._retry_at)


def _is_once(message: Mail) -> bool:
    return type(message) is Ask and getattr(message.question, "once", False)


def _size(message: Mail) -> int:
    """Roughly what the message adds to a commit, in bytes; the store has the exact bound."""
    if type(message) is Inbound:  # most often
        return message.size
    measure = _SIZES.get(type(message))
    return 0 if measure is None else measure(message)


_SIZES: Final[dict[type[Any], Callable[[Any], int]]] = {
    TurnEnded: lambda m: len(m.text or ""),
    StepOffered: lambda m: len(m.text) + sum(weight(call.args) for call in (*m.calls, *m.later)),
    ToolFinished: lambda m: weight(m.content),
}
