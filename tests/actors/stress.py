"""Races on real threads: ``python -m tests.actors.stress [--messages 5000000] [--json]``.

Threads are switched five hundred times as often as usual while four senders tell, signal and ask fifty actors on each
dispatcher in turn, and while actors stop under their askers. Counted: two threads in one actor (overlaps), a sender's
messages out of order, messages without a fate (losses), asks that never end (hung). All must be 0.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pykka
from attrs import asdict, define

from seriatim.actors.dispatch import Dispatcher, LoopDispatcher, PinnedDispatcher, PoolDispatcher
from seriatim.actors.pooled import PooledActor
from seriatim.actors.system import ActorSystem, Crash, Ref
from seriatim.errors import ActorDeadError
from seriatim.testing.clock import VirtualClock

from .worlds import running_loop

SWITCH_S = 1e-5
SENDERS = 4
ACTORS = 50
HUNG_S = 60.0
ASKS_SHARE = 50
"""One ask in a race with a stop for so many messages: each costs an actor."""


@define
class Counted:
    """What happened in all; the last four must be 0."""

    messages: int = 0
    asks: int = 0
    stops: int = 0
    overlaps: int = 0
    order_breaks: int = 0
    losses: int = 0
    hung: int = 0

    @property
    def holds(self) -> bool:
        """Whether nothing went wrong."""
        return not (self.overlaps or self.order_breaks or self.losses or self.hung)


class Exclusive(PooledActor):
    """Notices a second thread inside, and messages of one sender out of order."""

    def __init__(self) -> None:
        super().__init__()
        self.inside = threading.Lock()
        self.last: dict[int, int] = {}
        self.handled = self.overlaps = self.order_breaks = 0

    def on_receive(self, message: Any) -> Any:
        """Check exclusion and order; answer what was counted."""
        alone = self.inside.acquire(False)
        self.overlaps += not alone
        try:
            if message is None:
                return self.handled, self.overlaps, self.order_breaks
            sender, n = message
            if self.last.get(sender, -1) >= n:
                self.order_breaks += 1
            self.last[sender] = n
            self.handled += 1
            return n
        finally:
            if alone:
                self.inside.release()


@contextmanager
def dispatchers() -> Iterator[dict[str, Dispatcher]]:
    """Each kind that has threads, several pools among them."""
    with running_loop() as loop:
        pools = {f"pool of {n}": PoolDispatcher(workers=n) for n in (1, 2, 4, 8)}
        pinned = PinnedDispatcher()
        yield {**pools, "pinned": pinned, "loop": LoopDispatcher(loop)}
        for pool in (*pools.values(), pinned):
            pool.close()


@contextmanager
def switching() -> Iterator[None]:
    """Switch threads at every opportunity."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_S)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def in_threads(bodies: list[Callable[[], None]]) -> int:
    """Run them side by side; how many never ended."""
    threads = [threading.Thread(target=body, daemon=True) for body in bodies]
    for thread in threads:
        thread.start()
    until = time.monotonic() + HUNG_S + len(threads)
    alive = 0
    for thread in threads:
        while thread.is_alive() and time.monotonic() < until:
            thread.join(HUNG_S)
        alive += thread.is_alive()
    return alive


def flood(dispatcher: Dispatcher, messages: int, counted: Counted) -> None:
    """So many messages from all senders to all actors: a third signalled, a few asked, the rest told."""
    crashes: list[Crash] = []
    system = ActorSystem(clock=VirtualClock(), on_crash=crashes.append)
    refs = [system.start(Exclusive, dispatcher=dispatcher, name=f"e{n}") for n in range(ACTORS)]
    rounds = max(1, messages // (SENDERS * ACTORS))
    asked: list[Any] = []

    def send(sender: int) -> None:
        # Runtime mail overtakes data, so each way of sending is a stream with an order of its own.
        for n in range(rounds):
            for ref in refs:
                if n % 3 == 2:
                    ref.signal((sender, n))
                elif n % 97 == 0:
                    asked.append(ref.ask((sender + SENDERS, n), block=False))
                else:
                    ref.tell((sender + SENDERS, n))

    begun = in_threads([lambda k=k: send(k) for k in range(SENDERS)])  # type: ignore[misc]  # bound by its default
    counted.hung += begun + _unanswered(asked)
    for ref in refs:
        try:
            handled, overlaps, order_breaks = ref.ask(None, timeout=HUNG_S)
        except (pykka.Timeout, ActorDeadError):
            counted.hung += 1
            continue
        counted.losses += rounds * SENDERS - handled
        counted.overlaps += overlaps
        counted.order_breaks += order_breaks
    counted.messages += rounds * SENDERS * ACTORS
    counted.asks += len(asked)
    counted.losses += len(crashes)
    system.stop_all().get(timeout=HUNG_S)


def race(start: Callable[[], Any], asks: int, counted: Counted) -> None:
    """So many actors that are stopped while two threads ask and tell them: each ask ends, one way or the other."""
    for _ in range(asks // 2):
        ref = start()
        asked: list[Any] = []
        begin = threading.Barrier(3)

        def ask(ref: Any = ref, asked: list[Any] = asked, begin: threading.Barrier = begin) -> None:
            begin.wait(HUNG_S)
            asked.append(ref.ask((threading.get_ident(), 0), block=False))

        def stop(ref: Any = ref, begin: threading.Barrier = begin) -> None:
            begin.wait(HUNG_S)
            ref.stop(block=False)

        counted.hung += in_threads([ask, ask, stop]) + _unanswered(asked)
        counted.messages += 2
        counted.asks += 2
        counted.stops += 1


def _unanswered(asked: list[Any]) -> int:
    hung = 0
    for future in asked:
        try:
            future.get(timeout=HUNG_S)
        except pykka.ActorDeadError:
            pass  # Pykka's own refs say it so
        except ActorDeadError:
            pass
        except pykka.Timeout:
            hung += 1
    return hung


def run(messages: int, say: Callable[[str], object] = lambda _: None) -> Counted:
    """All of it, shared out among the dispatchers."""
    counted = Counted()
    with switching(), dispatchers() as kinds:
        racing = max(2 * (len(kinds) + 1), messages // ASKS_SHARE // 10)
        for name, dispatcher in kinds.items():
            flood(dispatcher, (messages - racing) // len(kinds) + SENDERS * ACTORS, counted)
            say(f"{name}: {counted}")
            system = ActorSystem(clock=VirtualClock(), on_crash=lambda crash: None)
            names = iter(range(messages + 2))

            def start(
                system: ActorSystem = system, names: Iterator[int] = names, kind: Dispatcher = dispatcher
            ) -> Ref[Exclusive]:
                return system.start(Exclusive, dispatcher=kind, name=f"r{next(names)}")

            race(start, racing // (len(kinds) + 1), counted)
        race(Exclusive.start, racing // (len(kinds) + 1), counted)
    return counted


def main() -> int:
    """Command line; 0 if nothing went wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=5_000_000)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    begun = time.monotonic()
    counted = run(options.messages, lambda text: None if options.json else print(text, flush=True))
    result = asdict(counted) | {
        "holds": counted.holds,
        "switch_interval_s": SWITCH_S,
        "seconds": round(time.monotonic() - begun, 1),
        "python": sys.version.split()[0],
    }
    print(json.dumps(result) if options.json else result)
    return 0 if counted.holds else 1


if __name__ == "__main__":
    sys.exit(main())
