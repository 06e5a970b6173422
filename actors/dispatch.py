"""Dispatchers: who runs an actor, and on which thread.

Behind one small port stand the loop dispatcher (the gateway's event loop), the pool (a few worker threads), the pinned
one (a single worker, for what is bound to a thread) and, in ``simulation``, the deterministic one. They all do the same
thing: take a mailbox that has mail, and call ``activate`` on it, never on two threads at once, until it rests.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from seriatim.errors import BlockingAskError, DispatcherClosedError
from seriatim.limits import EXTRA_WORKERS_MAX

if TYPE_CHECKING:
    from .futures import PooledFuture

__all__ = ["Dispatcher", "LoopDispatcher", "PinnedDispatcher", "PoolDispatcher", "Runnable"]

logger = logging.getLogger("seriatim.actors")

# -- the port --------------------------------------------------------------------------------------


class Runnable(Protocol):
    """What a dispatcher knows of a mailbox."""

    def activate(self, envelopes_max: int) -> bool:
        """Serve up to so many envelopes; True: queue me again."""
        ...


class Dispatcher(Protocol):
    """Runs mailboxes. All methods may be called on any thread.

    Attributes:
        name: for threads, logs and error texts.
    """

    name: str

    def schedule(self, *mailboxes: Runnable) -> None:
        """Run *mailboxes* soon. The caller holds their ``idle`` flags, so each is queued at most once.

        Raises:
            DispatcherClosedError: none of them will ever run.
        """
        ...

    def before_wait(self, future: PooledFuture[Any], /) -> None:
        """A thread outside all actors is about to block on an answer from one of this dispatcher's.

        Raises:
            BlockingAskError: the answer could only come from the thread that would block.
        """
        ...

    def close(self) -> None:
        """Take no more mailboxes. Stop the actors first; the threads end when they have run what is queued."""
        ...


def activate_logged(mailbox: Runnable, envelopes_max: int) -> bool:
    """Activate on a worker thread: whatever escapes is a bug of ours, and must not cost the worker its life."""
    try:
        return mailbox.activate(envelopes_max)
    except BaseException:  # a pool without workers would be worse
        logger.exception("an activation failed in the engine")
        return False


# -- worker threads --------------------------------------------------------------------------------

_RETIRE: Any = object()  # the worker that takes it ends
_CLOSE: Any = object()  # all workers end; one of it travels through the queue behind the mailboxes


class PoolDispatcher:
    """A few daemon threads that share one run queue: for actors that compute or block for a while.

    More workers don't make Python code faster (one GIL); they are for handlers that release it. A mailbox that still
    has mail after *envelopes_max* envelopes goes to the back of the queue: 8 to 16 cost no throughput, larger values
    cost the others their latency. Threads start at the first use.
    """

    def __init__(self, workers: int = 2, envelopes_max: int = 12, name: str = "pool") -> None:
        if workers < 1 or envelopes_max < 1:
            raise ValueError("a pool needs at least one worker and one envelope an activation")
        self.name = name
        self.workers = workers
        self.envelopes_max = envelopes_max
        self._runs: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._put = self._runs.put
        self._guard = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._blocked = 0
        self._closed = False

    def schedule(self, *mailboxes: Runnable) -> None:
        """Queue for whichever worker is free. Any thread."""
        if not self._threads:
            self._start_workers()
        if self._closed:
            raise DispatcherClosedError(f"dispatcher {self.name!r} is closed")
        for mailbox in mailboxes:
            self._put(mailbox)

    def before_wait(self, future: PooledFuture[Any], /) -> None:
        """Nothing to do: the workers go on."""

    def close(self) -> None:
        """Workers end after what is queued now; returns at once."""
        with self._guard:
            if self._closed:
                return
            self._closed = True
            self._put(_CLOSE)

    def join(self, timeout_s: float | None = None) -> bool:
        """After ``close``: wait for the workers, each up to *timeout_s* seconds; whether all have ended."""
        for thread in list(self._threads):
            if thread is not threading.current_thread():
                thread.join(timeout_s)
        return not any(thread.is_alive() for thread in self._threads)

    def compensated(self) -> AbstractContextManager[None]:
        """One worker more while this one blocks. Only plain actors, with Pykka's semantics, are allowed to block."""
        return self._lend_worker()

    @contextmanager
    def _lend_worker(self) -> Iterator[None]:
        with self._guard:
            if self._blocked >= EXTRA_WORKERS_MAX:
                raise RuntimeError(f"{EXTRA_WORKERS_MAX} actors of dispatcher {self.name!r} block on each other")
            self._blocked += 1
        self._spawn(f"{self.name}-extra")
        try:
            yield
        finally:
            with self._guard:
                self._blocked -= 1
            self._put(_RETIRE)

    def _start_workers(self) -> None:
        with self._guard:
            if not self._threads and not self._closed:
                self._threads = [self._spawn(f"{self.name}-{n}") for n in range(self.workers)]

    def _spawn(self, name: str) -> threading.Thread:
        thread = threading.Thread(target=self._work, name=name, daemon=True)
        thread.start()
        return thread

    def _work(self) -> None:
        get, put, envelopes_max = self._runs.get, self._put, self.envelopes_max
        while True:
            mailbox = get()
            if mailbox is _RETIRE:
                return
            if mailbox is _CLOSE:
                rest = not self._runs.empty()
                put(_CLOSE)  # behind the rest, or for the next worker
                if rest:
                    continue
                return
            if activate_logged(mailbox, envelopes_max):
                put(mailbox)
            mailbox = None  # else an idle worker would keep the last actor it ran alive


class PinnedDispatcher(PoolDispatcher):
    """One daemon thread: all hooks of its actors run there, on_start to on_stop. SQLite, anything thread-bound."""

    def __init__(self, name: str = "pinned", envelopes_max: int = 64) -> None:
        super().__init__(workers=1, envelopes_max=envelopes_max, name=name)

    def compensated(self) -> AbstractContextManager[None]:
        """Refused: a second worker would break the promise."""
        raise RuntimeError(f"an actor on the pinned dispatcher {self.name!r} may not block on another actor")


# -- the event loop --------------------------------------------------------------------------------

HANDOFF_LOOK_EVERY = 2  # activations between two looks at whether a group is together: a look is three calls
SLOW_YIELD_MS = 4.0  # the writer that it lets in may stage a group meanwhile; beside a CPU hog it costs 5 ms and more
# sched_yield comes back before a waiting thread has woken, and then that one gets the GIL only after a switch interval:
# with 64 lanes loop and writer ran in lockstep. sleep(0) costs us some 80 us a time and lets it in for good: so it is
# done for whole groups only.
yield_gil: Callable[[], object] = functools.partial(time.sleep, 0)
# Hand-offs without a yield after a slow one; doubles each time. Few at first: one hiccup is no CPU hog, and without a
# yield loop and writer work in turns.
YIELDS_SKIPPED_MIN, YIELDS_SKIPPED_MAX = 2, 4096


class LoopDispatcher:
    """Runs actors on an asyncio loop, between its other callbacks: handlers are short and never block.

    Wake-ups are coalesced: however many mailboxes become ready, at most one pass is scheduled. A pass makes at most
    *pass_max* activations, then lets the loop breathe. What the actors have collected meanwhile (commits) is given to
    another thread by *handoff*: inside a pass as soon as a group is together, and at its end whatever there is. Inside
    a pass the GIL is then offered, so that the other thread starts at once. Where a CPU-bound thread makes that offer
    cost a switch interval (5 ms), it is left out for a while.

    Ctrl-C: a KeyboardInterrupt that escapes a handler on the main thread is contained as a crash first and then raised
    out of the pass to the host: it can't be told from a real one, and a process must stay interruptible. One that
    Python raises between two lines of the engine itself isn't covered; under ``asyncio.run`` none is raised there.

    Close the dispatcher or its loop only after the actors are stopped: mail that is queued then stays unserved.

    Attributes:
        handoff: see __init__; may be set later, on the loop's thread.
        passes, activations, handoffs, slow_yields: counters, for tests and health pages.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        pass_max: int = 64,
        pass_ms_max: float = 10.0,
        handoff: Callable[[bool], bool] | None = None,
        envelopes_max: int = 16,
        name: str = "loop",
    ) -> None:
        """
        Args:
            loop: where passes run; it need not run yet.
            pass_max: activations a pass.
            pass_ms_max: a pass also ends after an activation that finds it this old: the loop is the host's.
            handoff: hands on what was collected and says whether it did; if its argument is true, only a whole group.
                Called on the loop thread; must not block or raise.
            envelopes_max: envelopes an activation.
            name: for error texts.
        """
        self.name = name
        self.loop = loop
        self.pass_max = pass_max
        self.pass_ms_max = pass_ms_max
        self.envelopes_max = envelopes_max
        self.handoff = handoff
        self._ready: deque[Runnable] = deque()
        self._resting = threading.Lock()  # held: a pass is scheduled or running
        self._closed = False
        self._yields_to_skip = 0
        self._skip_next = YIELDS_SKIPPED_MIN
        self.passes = self.activations = self.handoffs = self.slow_yields = 0

    def schedule(self, *mailboxes: Runnable) -> None:
        """Queue for the next pass, or the one that is running. Any thread."""
        if self._closed:
            raise DispatcherClosedError(f"dispatcher {self.name!r} is closed")
        self._ready.extend(mailboxes)
        if self._resting.acquire(False):
            try:
                self._arm()
            except RuntimeError as error:
                self._closed = True
                raise DispatcherClosedError(f"the event loop of dispatcher {self.name!r} is closed") from error

    def before_wait(self, future: PooledFuture[Any], /) -> None:
        """Refuse to block the loop on an answer that only the loop can give."""
        if self._on_loop():
            target = future.target
            raise BlockingAskError("the event loop's thread", target.label() if target is not None else "an actor")

    def close(self) -> None:
        """Take no more mailboxes; a pass that is scheduled still runs what is queued."""
        self._closed = True

    def _on_loop(self) -> bool:
        try:
            return asyncio.get_running_loop() is self.loop
        except RuntimeError:
            return False

    def _arm(self) -> None:
        if self._on_loop():
            self.loop.call_soon(self._pass)
        else:
            self.loop.call_soon_threadsafe(self._pass)

    def _pass(self) -> None:
        ready, envelopes_max = self._ready, self.envelopes_max
        activated = 0
        until_s = time.perf_counter() + self.pass_ms_max / 1000
        try:
            while ready and activated < self.pass_max and (not activated or time.perf_counter() < until_s):
                mailbox = ready.popleft()
                activated += 1
                if mailbox.activate(envelopes_max):
                    ready.append(mailbox)
                if not activated % HANDOFF_LOOK_EVERY and ready and self._hand_off(True):
                    self._offer_gil()
        finally:  # also when a Ctrl-C passes through: the others' mail must not be stranded
            self._end_pass(activated)

    def _end_pass(self, activated: int) -> None:
        self.passes += 1
        self.activations += activated
        self._hand_off(False)
        # No yield here: the loop polls its selector next, which releases the GIL anyway.
        if self._ready:
            self.loop.call_soon(self._pass)
            return
        self._resting.release()
        if self._ready and self._resting.acquire(False):  # a thread appended after our last look
            self.loop.call_soon(self._pass)

    def _hand_off(self, whole_group: bool) -> bool:
        if self.handoff is None:
            return False
        try:
            handed = self.handoff(whole_group)
        except Exception:
            logger.exception("the hand-off of dispatcher %r failed", self.name)
            return False
        self.handoffs += handed
        return handed

    def _offer_gil(self) -> None:
        if self._yields_to_skip:
            self._yields_to_skip -= 1
            return
        before = time.perf_counter()
        yield_gil()
        if (time.perf_counter() - before) * 1000 < SLOW_YIELD_MS:
            self._skip_next = max(YIELDS_SKIPPED_MIN, self._skip_next // 2)
            return
        self.slow_yields += 1
        self._yields_to_skip = self._skip_next
        self._skip_next = min(YIELDS_SKIPPED_MAX, self._skip_next * 2)
