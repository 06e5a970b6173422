"""The receive loop of a system's actor, and how its failures are contained.

Each message that a sender got rid of without an error has one fate: handled, or in a Crash, or a counted dead letter,
or handed over to who dismissed the actor.
"""

# Pykka's hooks have underscored partners; containment catches all there is

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Iterator
from typing import Any, Protocol

import pykka
from pykka import messages

from seriatim.clock import Clock
from seriatim.errors import ActorDeadError, ActorError, BlockingAskError, DispatcherClosedError, MailboxFullError
from seriatim.limits import RUNTIME_MAIL_AHEAD_MAX

from .dispatch import Dispatcher
from .futures import PooledFuture
from .mailbox import NONE_OUT, Ask, Mailbox, StopFlag, running, take
from .pooled import PooledActor
from .refs import Crash, DeadReason, Phase, Ref

__all__ = ["ContainedMailbox", "Keeper"]

logger = logging.getLogger("seriatim.actors")

UNBOUNDED = 1 << 62  # more than a list can hold
FEW = 4  # so many are taken out one by one: cheaper than moving the list
CLOSED = -1  # a room that is always full: bound and death are one comparison on the sender's path


class Keeper(Protocol):
    """What a mailbox needs of its system."""

    clock: Clock

    def forget(self, ref: Ref[Any]) -> None:
        """The actor is gone, its name free."""
        ...

    def crashed(self, crash: Crash) -> None:
        """It died of an error."""
        ...

    def count_dead(self, reason: DeadReason) -> None:
        """A message will not be handled, and its sender knows."""
        ...

    def bury(self, ref: Ref[Any], message: Any, reason: DeadReason) -> None:
        """A message will not be handled, and its sender doesn't know."""
        ...


class Stop:
    """Ends the actor when its turn in the mailbox comes."""

    __slots__ = ("done",)

    def __init__(self, done: PooledFuture[bool]) -> None:
        self.done = done


PROXIED = frozenset({messages.ProxyCall, messages.ProxyGetAttr, messages.ProxySetAttr})
SPECIAL = PROXIED | {Ask, Stop, messages._ActorStop}  # looked at; any other message goes straight to on_receive


class ContainedMailbox(Mailbox):
    """The receive loop of a system's actor: what escapes is contained.

    Attributes:
        ahead: runtime messages served in a row while data mail may have waited.
        room: data messages that may wait; CLOSED once the actor is dead or was told to stop.
        capacity: what room was while open.
    """

    may_block = False

    __slots__ = ("ahead", "capacity", "name", "ref", "room", "stopped", "system")

    def __init__(self, system: Keeper, name: str, dispatcher: Dispatcher, mailbox_max: int | None) -> None:
        super().__init__()
        self.system = system
        self.name = name
        self.dispatcher = dispatcher
        self.room = self.capacity = UNBOUNDED if mailbox_max is None else mailbox_max
        self.stopped = StopFlag()
        self.ahead = 0
        self.ref: Ref[Any]

    def adopt(self, actor: PooledActor) -> None:
        """Called by ``PooledActor.__init__``, on the starter's thread."""
        self.actor = actor
        actor.actor_urn = f"urn:seriatim:{next(_urns)}"
        actor.actor_inbox = self
        actor.actor_stopped = self.stopped  # type: ignore[assignment]  # as in PooledActor.__init__
        actor._actor_ref = self.ref = Ref(actor, self, self.name)

    # -- the sender's side, off the fast path

    def refusal(self) -> ActorError:
        """Why ``tell`` can't take a message now."""
        if self.room == CLOSED:
            self.system.count_dead("refused")
            return ActorDeadError(self.name, "it is dead" if self.actor is None else "it is stopping")
        waiting = len(self.fresh) + len(self.out)
        return MailboxFullError(self.name, self.capacity, self.taken + waiting + 1)

    def own_urgent(self) -> None:
        """Replace the shared empty list, once: two first signals may race."""
        with _urgent_guard:
            if self.urgent is NONE_OUT:
                self.urgent = []

    def stop(self, *, now: bool) -> PooledFuture[bool]:
        """Put the stop mark at its place. Any thread."""
        done: PooledFuture[bool] = PooledFuture()
        done.target = self
        if self.actor is None:
            done.set(False)
            return done
        self.room = CLOSED
        if now and self.urgent is NONE_OUT:
            self.own_urgent()
        (self.urgent if now else self.fresh).append(Stop(done))
        if self.idle.acquire(False):
            try:
                self.wake()
            except DispatcherClosedError:
                self.orphan(None)
        return done

    def dismiss(self) -> list[Any] | None:
        """See ``Ref.dismiss``. It may be queued at its dispatcher, which then finds it dead."""
        if self.actor is None:
            return None
        assert running.seat.box is not self, "an actor can't dismiss itself"
        self._retire()
        data, signals = self.drain()
        self._settle_marks(data + signals)
        return list(self._letters(signals + data))

    def orphan(self, refused: Any) -> None:
        """The dispatcher will never run this actor again: give up its mail, except *refused*, whose sender knows."""
        self._retire()
        data, signals = self.drain()
        self._settle_marks(data + signals)
        for message in self._letters(data + signals):
            if message is not refused:
                self.system.bury(self.ref, message, "closed")
        self.idle.release()

    # -- the serving side

    def _serve(self, envelopes_max: int) -> bool:
        actor = self.actor
        if actor is None:
            self._bury("late")
            return False
        item: Any = None
        phase: Phase = "receive"
        try:
            if not self.started:
                phase = "start"
                self.started = True
                actor.on_start()
                phase = "receive"
                envelopes_max -= 1
            receive = actor.on_receive
            while self.urgent or self.fresh or self.out or self.urgent_out:
                if envelopes_max <= 0:
                    return True
                envelopes_max -= 1
                item = self._next()
                kind = item.__class__
                if kind not in SPECIAL:
                    receive(item)
                elif kind is Ask or kind in PROXIED:
                    _answer(actor, item)
                else:
                    phase = "stop"
                    self._stop(actor, item)
                    return False
            item = None
            actor.on_drained()
        except BaseException as error:
            self._crash(actor, error, item, phase)
        return False  # what on_drained sent to itself is seen when the flag is released

    def interject(self, message: Any) -> None:
        """Serve one message inside another actor's activation. Our thread; the caller has just taken ``idle``.

        With it, what a neighbour that it was handed on to had to say about it: that costs no activation of its own.
        """
        actor, seat = self.actor, running.seat
        outer, seat.box = seat.box, self
        try:
            actor.on_receive(message)
            if self.urgent and not self.urgent_out and self.urgent[0].__class__ not in SPECIAL:
                message = self.urgent.pop(0)
                actor.on_receive(message)
        except BaseException as error:
            self._crash(actor, error, message, "receive")
        finally:
            seat.box = outer
            # _rest_or_wake, inline: each hand comes through here.
            self.idle.release()
            if (self.fresh or self.urgent or self.out or self.urgent_out) and self.idle.acquire(False):
                self.dispatcher.schedule(self)

    def _next(self) -> Any:
        """Take the next message out, runtime mail first; there is one."""
        # The count first: the look at the data is a call.
        if (self.urgent_out or self.urgent) and (self.ahead < RUNTIME_MAIL_AHEAD_MAX or not self._data_is_due()):
            self.ahead += 1
            if self.urgent_out:
                return self.urgent_out.pop()
            if len(self.urgent) < FEW:
                return self.urgent.pop(0)
            self.urgent_out = take(self.urgent)
            return self.urgent_out.pop()
        self.ahead = 0
        self.taken += 1
        if not self.out:
            if len(self.fresh) < FEW:
                return self.fresh.pop(0)
            self.out = take(self.fresh)
        return self.out.pop()

    def _data_is_due(self) -> bool:
        """Whether a flood of runtime mail, say of an actor that keeps waking itself, has starved data or a stop."""
        return self.ahead >= RUNTIME_MAIL_AHEAD_MAX and bool(self.out or self.fresh)

    def peek(self) -> tuple[Phase | None, Any, bool]:
        """What the next activation begins with: phase, message, whether it is runtime mail. For the simulation.

        The phase is None if there is nothing to handle any more.
        """
        if self.actor is not None and not self.started:
            return "start", None, False
        if self.actor is None or self.empty():
            return None, None, False
        urgent = bool(self.urgent_out or self.urgent) and not self._data_is_due()
        reversed_part, rest = (self.urgent_out, self.urgent) if urgent else (self.out, self.fresh)
        item = reversed_part[-1] if reversed_part else rest[0]
        if isinstance(item, (Stop, messages._ActorStop)):
            return "stop", None, urgent
        return "receive", item.message if isinstance(item, Ask) else item, urgent

    def kill(self, error: BaseException) -> None:
        """In place of an activation: the actor dies of *error* as it begins its next envelope. For the simulation."""
        phase = self.peek()[0] or "receive"
        item = None if phase == "start" or self.empty() else self._next()
        if phase == "stop":
            self._settle_marks([item])
            item = None
        if isinstance(item, Ask):
            _fail(item.reply_to, error)
        self.started = True
        self._crash(self.actor, error, item, phase)
        self._rest_or_wake()

    def _stop(self, actor: PooledActor, mark: Stop | messages._ActorStop) -> None:
        self.room = CLOSED
        self.stopped.set()
        done = mark.done if isinstance(mark, Stop) else None
        try:
            actor.on_stop()
        except BaseException as error:
            self._crash(actor, error, None, "stop")
        else:
            self._retire()
            self._bury("stopped")
        finally:
            if done is not None:
                done.set(True)

    def _crash(self, actor: PooledActor, error: BaseException, item: Any, phase: Phase) -> None:
        self.room = CLOSED
        self.stopped.set()
        if phase != "stop":
            try:
                actor.on_failure(type(error), error, error.__traceback__)
            except BaseException:
                logger.exception("on_failure of %s failed", self.ref)
        data, signals = self.drain()
        self._retire()
        self._settle_marks(data + signals)
        message = item.message if isinstance(item, Ask) else item
        mail, runtime = tuple(self._letters(data)), tuple(self._letters(signals))
        at_ms = self.system.clock.now_ms()
        self.system.crashed(Crash(self.ref, self.name, error, message, mail, runtime, phase, at_ms))
        if isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
            raise error  # may be a real Ctrl-C: contained, and now the host's

    def _retire(self) -> None:
        """From here on the actor doesn't exist: its memory may go, its name is free."""
        self.room = CLOSED
        self.stopped.set()
        self.actor = None
        self.system.forget(self.ref)

    def _bury(self, reason: DeadReason) -> None:
        data, signals = self.drain()
        self._settle_marks(data + signals)
        for message in self._letters(data + signals):
            self.system.bury(self.ref, message, reason)

    def _settle_marks(self, items: list[Any]) -> None:
        """Answer asks and stops that nobody will serve any more."""
        for item in items:
            if isinstance(item, Ask):
                _fail(item.reply_to, ActorDeadError(self.name, "it ended before handling the message"))
            elif item.__class__ is Stop:
                item.done.set(True)

    @staticmethod
    def _letters(items: list[Any]) -> Iterator[Any]:
        """The messages among *items*; asks are answered and stops done, so they are nobody's loss."""
        return (item for item in items if item.__class__ not in SPECIAL)

    def blocked_get(self, future: PooledFuture[Any], timeout: float | None) -> bool:
        """No actor of a system blocks."""
        target = future.target
        raise BlockingAskError(self.label(), target.label() if target is not None else "an actor")

    def label(self) -> str:
        """Class and name."""
        return str(self.ref)


def _answer(actor: PooledActor, item: Any) -> None:
    """Serve an ask or a proxy's message, on the actor's thread."""
    if item.__class__ is not Ask:
        actor._handle_receive(item)
        return
    try:
        proxied = item.message.__class__ in PROXIED
        answer = actor._handle_receive(item.message) if proxied else actor.on_receive(item.message)
    except BaseException as error:
        _fail(item.reply_to, error)
        raise
    item.reply_to.set(answer)


def _fail(future: pykka.Future[Any], error: BaseException) -> None:
    future.set_exception((type(error), error, error.__traceback__))


_urns = itertools.count(1)
_urgent_guard = threading.RLock()  # reentrant: a finaliser may signal while we hold it
