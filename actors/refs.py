"""What an actor of a system looks like from outside: its handle, and the two ways in which mail can end unhandled."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar, cast, overload

import pykka
from attrs import frozen

from seriatim.errors import ActorDeadError, ActorError, DispatcherClosedError

from .dispatch import LoopDispatcher
from .futures import PooledFuture
from .mailbox import NONE_OUT, Ask, running
from .pooled import PooledActor

if TYPE_CHECKING:
    from .contained import ContainedMailbox
    from .dispatch import Dispatcher

__all__ = ["Crash", "DeadLetter", "DeadReason", "Handover", "Phase", "Ref", "signal_all"]

A = TypeVar("A", bound=PooledActor)
Phase: TypeAlias = Literal["start", "receive", "stop"]
DeadReason: TypeAlias = Literal["refused", "signal", "stopped", "late", "closed"]


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
        reason: "stopped": it stood behind a stop; "late": sent from another thread while the actor died; "closed":
            its dispatcher was closed. Two more reasons are only counted, because the sender knows: "refused", an
            ActorDeadError raised to the teller, and "signal", a signal to the dead.
    """

    ref: Ref[Any]
    message: Any
    reason: DeadReason


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
            MailboxFullError: the mailbox holds *mailbox_max* data messages.
            ActorDeadError: the actor is dead, or was told to stop.
        """
        box = self._box
        if len(box.fresh) + len(box.out) >= box.room:
            raise box.refusal()
        box.fresh.append(message)
        if box.idle.acquire(False):
            try:
                box.dispatcher.schedule(box)
            except DispatcherClosedError:
                box.orphan(message)
                raise ActorDeadError(self.name, "its dispatcher is closed") from None

    def signal(self, message: Any) -> bool:
        """Send runtime mail: served before data, in order among itself, exempt from the bound. Any thread, no errors.

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
            except DispatcherClosedError:
                box.orphan(message)
                return False
        return True

    def hand(self, message: Any) -> bool:
        """``signal``, but served before this returns if the actor rests. Only on the thread that runs the actor.

        Between neighbours on the loop it saves an activation; the actor keeps its order and its containment.
        """
        box = self._box
        if box.actor is None or not box.started or not box.idle.acquire(False):
            return self.signal(message)
        box.interject(message)
        return True

    # Without block, Pykka's overloads leave open what ask returns, and its stop() blocks. Here ask() is typed as what
    # it gives, and stop() doesn't block unless told to: hence what the checkers are told to overlook.
    @overload
    def ask(self, message: Any, *, block: Literal[False], timeout: float | None = None) -> PooledFuture[Any]: ...
    @overload
    def ask(self, message: Any, *, block: Literal[True] = True, timeout: float | None = None) -> Any: ...
    @overload
    def ask(self, message: Any, *, block: bool = True, timeout: float | None = None) -> Any | PooledFuture[Any]: ...
    def ask(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, message: Any, *, block: bool = True, timeout: float | None = None
    ) -> Any:
        """Send data mail that is answered with the handler's result. For the host and for tests: actors use tell.

        An exception in the handler goes to the asker *and* crashes the actor, because its state is half changed.

        Raises:
            BlockingAskError: it would block one of our actors; then nothing was sent.
        """
        future: PooledFuture[Any] = PooledFuture()
        future.target = self._box
        if block:
            _refuse_inside(future)
        try:
            self.tell(Ask(message, future))
        except ActorError as error:
            future.fail(error)
        return future.get(timeout=timeout) if block else future

    @overload  # type: ignore[override]  # see above
    def stop(self, *, block: Literal[True], timeout: float | None = None) -> bool: ...
    @overload
    def stop(self, *, block: Literal[False] = False, timeout: float | None = None) -> PooledFuture[bool]: ...
    def stop(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, *, block: bool = False, timeout: float | None = None
    ) -> bool | PooledFuture[bool]:
        """Stop after the mail that waits now; later tells raise ActorDeadError. Any thread.

        Returns:
            A future: True once on_stop has run (or the actor crashed instead), False if it was dead before.

        Raises:
            BlockingAskError: it would block one of our actors; then nobody was stopped.
        """
        if block:
            waited: PooledFuture[bool] = PooledFuture()
            waited.target = self._box
            _refuse_inside(waited)
        future = self._box.stop(now=False)
        return cast("bool", future.get(timeout=timeout)) if block else future

    def stop_now(self) -> PooledFuture[bool]:
        """Stop after the envelope being handled; waiting data mail becomes dead letters ("stopped"). Any thread."""
        return self._box.stop(now=True)

    def dismiss(self) -> list[Any] | None:
        """End the actor between two envelopes, with no hook run, and take the mail that it has not begun.

        Runtime mail first, each kind in its order; asks among it are answered with ActorDeadError. Only on the thread
        that runs the actor, and not from inside of it.

        Returns:
            The mail; None if the actor was dead before: then its mail is in its Crash, or was a dead letter.
        """
        return self._box.dismiss()

    @property
    def pending(self) -> int:
        """How much mail waits; a snapshot."""
        return self._box.qsize()


def _refuse_inside(future: PooledFuture[Any]) -> None:
    """Refuse to block one of our actors before anything was sent, so that the refused ask has no effect."""
    asker = running.seat.box
    if asker is not None and not asker.may_block:
        asker.blocked_get(future, None)


class Handover:
    """Mail for many actors of one loop dispatcher, run there as one: each is handed its message.

    Against a signal to each it saves the sender two calls an actor, and the loop an activation.
    """

    __slots__ = ("_dispatcher", "_mail")

    def __init__(self, dispatcher: LoopDispatcher, mail: Iterable[tuple[Ref[Any], Any]]) -> None:
        self._dispatcher = dispatcher
        self._mail = deque(mail)

    def activate(self, envelopes_max: int) -> bool:
        """Hand over so many; True: queue me again. The loop's thread."""
        mail = self._mail
        try:
            for _ in range(min(envelopes_max, len(mail))):
                ref, message = mail.popleft()
                ref.hand(message)
        except BaseException:  # a Ctrl-C on its way to the host (see containment)
            if mail:
                self._dispatcher.schedule(self)
            raise
        return bool(mail)


def signal_all(mail: Iterable[tuple[Ref[Any], Any]]) -> None:
    """``signal`` for a group; actors on a loop get theirs as one. Any thread.

    Waking the loop from another thread may hand it the GIL, and it would find the first message only.
    """
    by_dispatcher: dict[Dispatcher, list[tuple[Ref[Any], Any]]] = {}
    for ref, message in mail:
        by_dispatcher.setdefault(ref._box.dispatcher, []).append((ref, message))
    for dispatcher, group in by_dispatcher.items():
        if not isinstance(dispatcher, LoopDispatcher):
            for ref, message in group:
                ref.signal(message)
            continue
        try:
            dispatcher.schedule(Handover(dispatcher, group))
        except DispatcherClosedError:
            for ref, message in group:
                if not ref.signal(message):
                    ref._box.system.bury(ref, message, "closed")
