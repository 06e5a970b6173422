"""ActorSystem: actors of our own, with a registry of their own, whose failures stay where they are.

What escapes a handler, CancelledError and SystemExit included, becomes a ``Crash`` value handed to ``on_crash``,
with all the mail the actor had not handled. Pykka's global registry is never touched, so the host's own Pykka
actors go on. Each accepted message has one fate: handled, or in a Crash, or a counted dead letter.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any, Literal, TypeAlias, TypeVar, cast, overload

import pykka
from attrs import frozen
from pykka import messages

from seriatim.clock import Clock

from .dispatch import (
    ActorDead,
    BlockingAsk,
    Dispatcher,
    DispatcherClosed,
    EngineError,
    MailboxFull,
    NameTaken,
    SystemStopping,
)
from .futures import PooledFuture
from .mailbox import NONE_OUT, Ask, Mailbox, StopFlag, take
from .pooled import PooledActor

__all__ = ["ActorSystem", "Crash", "DeadLetter", "DeadReason", "Phase", "Ref"]

logger = logging.getLogger("seriatim.actors")

A = TypeVar("A", bound=PooledActor)
Phase: TypeAlias = Literal["start", "receive", "stop"]
DeadReason: TypeAlias = Literal["refused", "signal", "stopped", "late", "closed"]

UNBOUNDED = 1 << 62  # more than a list can hold
CLOSED = -1  # a room that is always full: bound and death are one comparison on the sender's path


@frozen
class Crash:
    """What is left of an actor whose hook raised. Its name is free again when ``on_crash`` is called.

    Attributes:
        ref: the dead actor's handle.
        name: its name.
        error: what escaped. Its traceback holds the actor's frames: keep the value only for as long as needed.
        message: what was being handled; None in on_start, on_drained and on_stop.
        mail: data messages not yet begun, oldest first, the one being handled excluded.
        signals: runtime messages not yet begun, oldest first.
        phase: the hook: "start" for on_start, "receive" for on_receive and on_drained, "stop" for on_stop.
        at_ms: wall time, milliseconds since 1970.
    """

    ref: Ref[Any]
    name: str
    error: BaseException
    message: Any
    mail: tuple[Any, ...]
    signals: tuple[Any, ...]
    phase: Phase
    at_ms: int


@frozen
class DeadLetter:
    """A message that no handler will see and that is in no Crash.

    Attributes:
        ref: whom it was for.
        message: the message.
        reason: "stopped": it stood behind a stop; "late": sent from another thread while the actor died; "closed": its
            dispatcher was closed. (The reasons "refused", an ActorDead raised to the teller, and "signal", a signal to
            the dead, are only counted: the sender knows.)
    """

    ref: Ref[Any]
    message: Any
    reason: DeadReason


class Stop:
    """Ends the actor when its turn in the mailbox comes."""

    __slots__ = ("done",)

    def __init__(self, done: PooledFuture[bool]) -> None:
        self.done = done


class Empty:
    """Says that no mail waits: unlike None, no message."""

    __slots__ = ()


EMPTY = Empty()
PROXIED = frozenset({messages.ProxyCall, messages.ProxyGetAttr, messages.ProxySetAttr})
SPECIAL = PROXIED | {Ask, Stop, Empty, messages._ActorStop}  # looked at; any other message goes straight to on_receive


class Ref(pykka.ActorRef[A]):
    """Handle of an actor in a system. Cheap, thread-safe, outlives the actor.

    A ``pykka.ActorRef`` too, so that proxies and ``ask`` work, with one difference: ``stop()`` doesn't block.

    Attributes:
        name: unique among the live actors of its system.
    """

    __slots__ = ("_box", "name")

    def __init__(self, actor: A, box: ContainedMailbox, name: str) -> None:
        super().__init__(actor)
        self._box = box
        self.name = name

    def __str__(self) -> str:
        return f"{self.actor_class.__name__} {self.name!r}"

    def tell(self, message: Any) -> None:
        """Send data mail: served in order, per sender and altogether. Any thread.

        The bound is exact for a sender on the actor's own thread; from others, one batch more may slip in.

        Raises:
            MailboxFull: the mailbox holds *mailbox_max* data messages.
            ActorDead: the actor is dead, or was told to stop.
        """
        box = self._box
        if len(box.fresh) + len(box.out) >= box.room:
            raise box.refusal()
        box.fresh.append(message)
        if box.idle.acquire(False):
            try:
                box.dispatcher.schedule(box)
            except DispatcherClosed:
                box.orphan(message)
                raise ActorDead(self.name, "its dispatcher is closed") from None

    def signal(self, message: Any) -> bool:
        """Send runtime mail: served before data, in order among itself, exempt from the bound. Any thread, never raises.

        Returns:
            False if the actor is dead (counted in ``dead_letters``). A stopping actor still takes signals.
        """
        box = self._box
        if box.actor is None:
            box.system.count_dead("signal")
            return False
        if box.urgent is NONE_OUT:
            box.own_urgent()
        box.urgent.append(message)
        if box.idle.acquire(False):
            try:
                box.dispatcher.schedule(box)
            except DispatcherClosed:
                box.orphan(message)
                return False
        return True

    @overload
    def ask(self, message: Any, *, block: Literal[False], timeout: float | None = None) -> PooledFuture[Any]: ...
    @overload
    def ask(self, message: Any, *, block: Literal[True] = True, timeout: float | None = None) -> Any: ...
    @overload
    def ask(self, message: Any, *, block: bool = True, timeout: float | None = None) -> Any | PooledFuture[Any]: ...
    def ask(self, message: Any, *, block: bool = True, timeout: float | None = None) -> Any:
        """Send data mail that is answered with the handler's result. For the host and for tests: actors use tell.

        An exception in the handler goes to the asker *and* crashes the actor, because its state is half changed.
        """
        future: PooledFuture[Any] = PooledFuture()
        future.target = self._box
        try:
            self.tell(Ask(message, future))
        except EngineError as error:
            future.fail(error)
        return future.get(timeout=timeout) if block else future

    @overload  # type: ignore[override]  # Pykka's stop() blocks by default; in here nothing does
    def stop(self, *, block: Literal[True], timeout: float | None = None) -> bool: ...
    @overload
    def stop(self, *, block: Literal[False] = False, timeout: float | None = None) -> PooledFuture[bool]: ...
    def stop(self, *, block: bool = False, timeout: float | None = None) -> bool | PooledFuture[bool]:
        """Stop after the mail that waits now; later tells raise ActorDead. Any thread.

        Returns:
            A future: True once on_stop has run (or the actor crashed instead), False if it was dead before.
        """
        future = self._box.stop(now=False)
        return cast("bool", future.get(timeout=timeout)) if block else future

    def stop_now(self) -> PooledFuture[bool]:
        """Stop after the envelope being handled; waiting data mail becomes dead letters ("stopped"). Any thread."""
        return self._box.stop(now=True)

    @property
    def pending(self) -> int:
        """How much mail waits; a snapshot."""
        return self._box.qsize()


class ContainedMailbox(Mailbox):
    """The receive loop of a system's actor: what escapes is contained.

    Attributes:
        room: data messages that may wait; CLOSED once the actor is dead or was told to stop.
        capacity: what room was while open.
    """

    __slots__ = ("capacity", "name", "ref", "room", "stopped", "system")

    def __init__(self, system: ActorSystem, name: str, dispatcher: Dispatcher, mailbox_max: int | None) -> None:
        super().__init__()
        self.system = system
        self.name = name
        self.dispatcher = dispatcher
        self.room = self.capacity = UNBOUNDED if mailbox_max is None else mailbox_max
        self.stopped = StopFlag()
        self.ref: Ref[Any]

    def adopt(self, actor: PooledActor) -> None:
        """Called by ``PooledActor.__init__``, on the starter's thread."""
        self.actor = actor
        actor.actor_urn = f"urn:seriatim:{next(_urns)}"
        actor.actor_inbox = self
        actor.actor_stopped = self.stopped  # type: ignore[assignment]  # as in PooledActor.__init__
        actor._actor_ref = self.ref = Ref(actor, self, self.name)

    # -- the sender's side, off the fast path

    def refusal(self) -> EngineError:
        """Why ``tell`` can't take a message now."""
        if self.room == CLOSED:
            self.system.count_dead("refused")
            return ActorDead(self.name, "it is dead" if self.actor is None else "it is stopping")
        waiting = len(self.fresh) + len(self.out)
        return MailboxFull(self.name, self.capacity, self.taken + waiting + 1)

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
        elif now:
            self.room = CLOSED
            if not self.ref.signal(Stop(done)):
                done.set(False)
        else:
            self.room = CLOSED
            self.fresh.append(Stop(done))
            if self.idle.acquire(False):
                try:
                    self.wake()
                except DispatcherClosed:
                    self.orphan(None)
        return done

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
            while envelopes_max > 0:
                envelopes_max -= 1
                item = self._next()
                kind = item.__class__
                if kind not in SPECIAL:
                    receive(item)
                elif kind is Ask or kind in PROXIED:
                    _answer(actor, item)
                elif item is EMPTY:
                    break
                else:
                    phase = "stop"
                    self._stop(actor, item)
                    return False
            if self.out or self.fresh or self.urgent or self.urgent_out:
                return True
            item = None
            actor.on_drained()
        except BaseException as error:
            self._crash(actor, error, item, phase)
            return False
        return not self.empty()

    def _next(self) -> Any:
        """Take the next message out, runtime mail first; EMPTY if there is none."""
        if self.urgent_out:
            return self.urgent_out.pop()
        if self.urgent:
            self.urgent_out = take(self.urgent)
            return self.urgent_out.pop()
        if not self.out:
            if not self.fresh:
                return EMPTY
            self.out = take(self.fresh)
        self.taken += 1
        return self.out.pop()

    def peek(self) -> tuple[Phase | None, Any, bool]:
        """What the next activation begins with: phase, message, whether it is runtime mail. For the simulation.

        The phase is None if there is nothing to handle any more.
        """
        if self.actor is not None and not self.started:
            return "start", None, False
        if self.actor is None or self.empty():
            return None, None, False
        urgent = bool(self.urgent_out or self.urgent)
        reversed_part, rest = (self.urgent_out, self.urgent) if urgent else (self.out, self.fresh)
        item = reversed_part[-1] if reversed_part else rest[0]
        if isinstance(item, (Stop, messages._ActorStop)):
            return "stop", None, urgent
        return "receive", item.message if isinstance(item, Ask) else item, urgent

    def kill(self, error: BaseException) -> None:
        """In place of an activation: the actor dies of *error* as it begins its next envelope. For the simulation."""
        phase = self.peek()[0] or "receive"
        item = None if phase == "start" else self._next()
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
                _fail(item.reply_to, ActorDead(self.name, "it ended before handling the message"))
            elif item.__class__ is Stop:
                item.done.set(True)

    @staticmethod
    def _letters(items: list[Any]) -> Iterator[Any]:
        """The messages among *items*; asks are answered and stops done, so they are nobody's loss."""
        return (item for item in items if item.__class__ not in SPECIAL)

    def blocked_get(self, future: PooledFuture[Any], timeout: float | None) -> bool:
        """No actor of a system blocks."""
        target = future.target
        raise BlockingAsk(self.label(), target.label() if target is not None else "an actor")

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


class ActorSystem:
    """Starts, knows and stops actors of its own.

    Attributes:
        clock: stamps crashes; actors may use it.
        dead_letters: how many messages nobody will handle, by reason; see DeadLetter.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        on_crash: Callable[[Crash], None],
        on_dead_letter: Callable[[DeadLetter], None] | None = None,
    ) -> None:
        """
        Args:
            clock: the source of time.
            on_crash: told about each crash, on the dead actor's thread; short, doesn't raise: it signals a supervisor.
            on_dead_letter: told about each message lost with a stopped actor, same rules.
        """
        self.clock = clock
        self.dead_letters: dict[DeadReason, int] = {"refused": 0, "signal": 0, "stopped": 0, "late": 0, "closed": 0}
        self._on_crash = on_crash
        self._on_dead_letter = on_dead_letter
        self._refs: dict[str, Ref[Any]] = {}
        self._count_guard = threading.RLock()
        self._stopping = False

    def start(
        self,
        actor_class: type[A],
        *args: Any,
        dispatcher: Dispatcher,
        name: str,
        mailbox_max: int | None = None,
        **kwargs: Any,
    ) -> Ref[A]:
        """Make an actor and start it. Any thread; ``__init__`` runs here, all else on the dispatcher's thread.

        Args:
            actor_class: a PooledActor.
            dispatcher: runs it for life.
            name: unique among the system's live actors.
            mailbox_max: data messages that may wait; None for no bound.

        Raises:
            NameTaken, SystemStopping, DispatcherClosed: nothing was started. What ``__init__`` raises passes through.
        """
        if self._stopping:
            raise SystemStopping(f"no actor {name!r}: the system is stopping")
        if name in self._refs:
            raise NameTaken(f"an actor named {name!r} is alive")
        box = ContainedMailbox(self, name, dispatcher, mailbox_max)
        actor = actor_class.__new__(actor_class, *args, **kwargs)
        actor._prepared = box
        actor.__init__(*args, **kwargs)  # type: ignore[misc]  # as type.__call__ does, with the mailbox given first
        if box.actor is None:
            raise TypeError(f"{actor_class.__name__}.__init__ did not call super().__init__()")
        del actor._prepared
        ref: Ref[A] = box.ref
        box.idle.acquire(False)
        if self._refs.setdefault(name, ref) is not ref:
            raise NameTaken(f"an actor named {name!r} is alive")
        try:
            dispatcher.schedule(box)
        except DispatcherClosed:
            self._refs.pop(name, None)  # no ghost
            raise
        return ref

    def get(self, name: str) -> Ref[Any] | None:
        """The live actor of that name. Any thread."""
        return self._refs.get(name)

    def __len__(self) -> int:
        return len(self._refs)

    def __contains__(self, name: object) -> bool:
        return name in self._refs

    def __iter__(self) -> Iterator[Ref[Any]]:
        """The live actors, oldest first; a snapshot."""
        return iter(list(self._refs.values()))

    def stop_all(self, *, now: bool = False) -> PooledFuture[None]:
        """Stop one after the other, the last started first; nothing can be started any more. Any thread, doesn't block.

        Args:
            now: drop waiting data mail (dead letters) instead of serving it.

        Returns:
            Settled when the last one is gone: ``await`` it, or ``get(timeout=...)`` on a thread without actors.
        """
        self._stopping = True
        done: PooledFuture[None] = PooledFuture()
        refs = iter(list(self._refs.values())[::-1])

        def stop_next(_: object = None) -> None:
            for ref in refs:
                ended = ref.stop_now() if now else ref.stop()
                done.target = ref._box
                if not ended.ready:
                    ended.add_done_callback(stop_next)
                    return
            done.set(None)

        stop_next()
        return done

    # -- for the mailboxes

    def forget(self, ref: Ref[Any]) -> None:
        """The actor is gone. Its thread."""
        if self._refs.get(ref.name) is ref:
            del self._refs[ref.name]

    def crashed(self, crash: Crash) -> None:
        """Hand the crash on. Its thread."""
        try:
            self._on_crash(crash)
        except BaseException:
            logger.exception("on_crash failed for %s, which died of %r", crash.ref, crash.error)

    def count_dead(self, reason: DeadReason) -> None:
        """Count a message that nobody will handle. Any thread."""
        with self._count_guard:
            self.dead_letters[reason] += 1

    def bury(self, ref: Ref[Any], message: Any, reason: DeadReason) -> None:
        """Count a dead letter and hand it on."""
        self.count_dead(reason)
        if self._on_dead_letter is not None:
            try:
                self._on_dead_letter(DeadLetter(ref, message, reason))
            except BaseException:
                logger.exception("on_dead_letter failed for %s", ref)
