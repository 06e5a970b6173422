"""PooledActor: Pykka's actor without a thread of its own.

Started the plain way, ``MyActor.start()``, it keeps Pykka's semantics to the letter, the global registry and "stop all
on a BaseException" included; Pykka's own test suite runs over it. Started by an ``ActorSystem`` it is contained
instead (``system``). Either way Pykka sees only what it documents for implementors of new actor types.
"""

# an implementor of Pykka's hooks calls their underscored partners, and its loop contains all

from __future__ import annotations

import logging
import os
import sys
import uuid
from typing import TYPE_CHECKING, Any, ClassVar, Self

import pykka
from pykka import ActorRegistry, messages

from .dispatch import PoolDispatcher
from .futures import PooledFuture
from .mailbox import Ask, Mailbox, StopFlag, take

if TYPE_CHECKING:
    from .refs import Ref

__all__ = ["PlainMailbox", "PooledActor", "default_pool"]

pykka_logger = logging.getLogger("pykka")  # where Pykka's users look for these lines

_default_pools: dict[int, PoolDispatcher] = {}  # by process id: after a fork the threads exist in the parent only


def default_pool() -> PoolDispatcher:
    """The pool that plain actors share, made at the first use and anew in a forked child."""
    pool = _default_pools.get(os.getpid())
    if pool is None:  # two that race make two, one of which never starts a thread
        pool = _default_pools.setdefault(os.getpid(), PoolDispatcher(name="seriatim-pool"))
    return pool


class PlainMailbox(Mailbox):
    """The receive loop with Pykka's rules. Compare ``pykka.Actor._actor_loop``: same cases, same order."""

    __slots__ = ()

    def _serve(self, envelopes_max: int) -> bool:
        actor: PooledActor | None = self.actor
        if actor is None:
            self._bury()
            return False
        if not self.started:
            self.started = True
            try:
                actor.on_start()
            except BaseException as error:
                actor._handle_failure(type(error), error, error.__traceback__)
        stopped = actor.actor_stopped
        while not stopped.is_set():
            if not self.out:
                if not self.fresh:
                    return False
                self.out = take(self.fresh)
            if not envelopes_max:
                return True
            envelopes_max -= 1
            item = self.out.pop()
            if item.__class__ is Ask:
                self._handle(actor, item.message, item.reply_to)
            else:
                self._handle(actor, item, None)
        self.actor = None  # breaks the cycle actor -> inbox -> actor
        self._bury()
        return False

    def _handle(self, actor: PooledActor, message: Any, reply_to: pykka.Future[Any] | None) -> None:
        try:
            response = actor._handle_receive(message)
            if reply_to is not None:
                reply_to.set(response)
        except Exception as error:
            if reply_to is not None:
                pykka_logger.info("Exception returned from %s to caller:", actor, exc_info=True)
                reply_to.set_exception()
                return
            actor._handle_failure(*sys.exc_info())
            try:
                actor.on_failure(type(error), error, error.__traceback__)
            except Exception:
                actor._handle_failure(*sys.exc_info())
        except BaseException as error:
            pykka_logger.debug("%r in %s. Stopping all actors.", error, actor)
            actor._stop()
            ActorRegistry.stop_all()

    def _bury(self) -> None:
        """Answer what nobody will handle. Mail that raced with the death comes here too, so no ask waits for ever."""
        for item in self.drain()[0]:
            if item.__class__ is not Ask:
                continue
            if isinstance(item.message, messages._ActorStop):
                item.reply_to.set(None)
            else:
                error = pykka.ActorDeadError("the actor stopped before handling the message")
                item.reply_to.set_exception((pykka.ActorDeadError, error, None))

    def blocked_get(self, future: PooledFuture[Any], timeout: float | None) -> bool:
        """Pykka lets an actor block on another one; the pool lends a worker meanwhile."""
        assert isinstance(self.dispatcher, PoolDispatcher)
        with self.dispatcher.compensated():
            return future.block(timeout)


class PooledActor(pykka.Actor):
    """An actor that a dispatcher runs, a few envelopes at a time, never on two threads at once.

    ``start()`` is Pykka's: global registry, shared pool, blocking asks allowed, daemon threads (so the process may end
    while actors live). ``ActorSystem.start`` gives containment and a dispatcher of one's choice. Hooks run on the
    dispatcher's thread, ``__init__`` on the starter's.

    Attributes:
        dispatcher: the pool for plain starts of this class; None is the shared one.
    """

    dispatcher: ClassVar[PoolDispatcher | None] = None

    _prepared: Mailbox | None = None  # set by ActorSystem on the instance, before __init__

    def __init__(self, *_args: Any, **_kwargs: Any) -> None:
        """See Pykka; call it before anything else of yours."""
        # Pykka's __init__ is not called: it would make a threading.Event and a uuid, 1.3 KiB and 3 us an actor.
        mailbox = self._prepared
        if mailbox is None:
            mailbox = self._create_actor_inbox()
            mailbox.actor = self
            self.actor_urn = uuid.uuid4().urn
            self.actor_inbox = mailbox
            self.actor_stopped = StopFlag()  # type: ignore[assignment]  # quacks like Event, 40 bytes instead of 718
            self._actor_ref = pykka.ActorRef(self)
        else:
            mailbox.adopt(self)

    @property
    def own_ref(self) -> Ref[Self]:
        """The handle with ``signal`` and a ``stop`` that doesn't block; only for actors started by an ActorSystem."""
        return self._actor_ref  # type: ignore[return-value]  # a cast is a call, and lanes ask for this all the time

    @staticmethod
    def _create_actor_inbox() -> PlainMailbox:
        return PlainMailbox()

    @staticmethod
    def _create_future() -> PooledFuture[Any]:
        return PooledFuture()

    def _start_actor_loop(self) -> None:
        mailbox = self.actor_inbox
        assert isinstance(mailbox, PlainMailbox)
        mailbox.dispatcher = type(self).dispatcher or default_pool()
        mailbox.wake()

    def stop(self) -> None:
        """Stop after the mail that waits now; the same as ``actor_ref.stop(block=False)``."""
        self.actor_ref.stop(block=False)

    def on_drained(self) -> None:
        """Run code when all mail that waited is handled: the moment to write a group, say. Only in an ActorSystem.

        Called on the actor's thread at the end of an activation that leaves no mail; not when only its budget is spent.
        """
