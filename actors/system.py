"""ActorSystem: actors of our own, with a registry of their own, whose failures stay where they are.

What escapes a handler, CancelledError and SystemExit included, becomes a ``Crash`` value handed to ``on_crash``,
with all the mail the actor had not handled. Pykka's global registry is never touched, so the host's own Pykka
actors go on. Each accepted message has one fate: handled, or in a Crash, or a counted dead letter.
"""

# parts of one engine see each other's insides, and containment catches all there is

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from seriatim.clock import Clock
from seriatim.errors import ActorError, NameTakenError, SystemStoppingError

from .contained import ContainedMailbox
from .dispatch import Dispatcher
from .futures import PooledFuture
from .pooled import PooledActor
from .refs import Crash, DeadLetter, DeadReason, Phase, Ref

__all__ = ["ActorSystem", "Crash", "DeadLetter", "DeadReason", "Phase", "Ref"]

logger = logging.getLogger("seriatim.actors")

A = TypeVar("A", bound=PooledActor)


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
            NameTakenError, SystemStoppingError, DispatcherClosedError: nothing was started. What ``__init__`` raises
                passes through.
        """
        self._refuse_if_stopping(name)
        if name in self._refs:
            raise NameTakenError(f"an actor named {name!r} is alive")
        box = ContainedMailbox(self, name, dispatcher, mailbox_max)
        actor = actor_class.__new__(actor_class, *args, **kwargs)
        actor._prepared = box
        actor.__init__(*args, **kwargs)  # type: ignore[misc]  # as type.__call__ does, with the mailbox given first
        if box.actor is None:
            raise TypeError(f"{actor_class.__name__}.__init__ did not call super().__init__()")
        del actor._prepared
        ref: Ref[A] = box.ref
        if self._refs.setdefault(name, ref) is not ref:
            box.orphan(None)
            raise NameTakenError(f"an actor named {name!r} is alive")
        try:
            self._refuse_if_stopping(name)  # again: stop_all may have taken its list before this one was in it
            dispatcher.schedule(box)
        except ActorError:
            box.orphan(None)  # no ghost
            raise
        return ref

    def _refuse_if_stopping(self, name: str) -> None:
        if self._stopping:
            raise SystemStoppingError(f"no actor {name!r}: the system is stopping")

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
