"""Real threads at a tiny switch interval: order, exclusion, and the fate of each message."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pykka
import pytest

from seriatim.actors.pooled import PooledActor
from seriatim.errors import ActorDeadError, MailboxFullError

from . import stress
from .worlds import WAIT_S, Recorder, World, log_of, world_of


@pytest.fixture(autouse=True)
def _often() -> Iterator[None]:
    """Switch threads five hundred times as often as usual."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


@pytest.fixture(params=["pool", "loop"])
def threaded(request: pytest.FixtureRequest) -> Iterator[World]:
    """A world in which actors run on threads of their own."""
    with world_of(request.param) as world:
        yield world


class Exclusive(PooledActor):
    """Notices a second thread inside, and messages out of order."""

    def __init__(self) -> None:
        super().__init__()
        self.inside = False
        self.last: dict[int, int] = {}
        self.faults = 0

    def on_receive(self, message: Any) -> Any:
        """Check order and exclusion."""
        if message == "faults":
            return self.faults, sum(self.last.values())
        if self.inside:
            self.faults += 1
        self.inside = True
        sender, n = message
        if self.last.get(sender, 0) != n - 1:
            self.faults += 1
        self.last[sender] = n
        self.inside = False
        return None


def in_threads(count: int, body: Any) -> None:
    """Run body(k) on so many threads, to the end."""
    threads = [threading.Thread(target=body, args=(k,)) for k in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S * 3)
        assert not thread.is_alive()


def test_one_thread_at_a_time_and_no_message_lost(threaded: World) -> None:
    """Four senders, many actors: no overlap, order kept per sender, nothing lost."""
    refs = [threaded.start(Exclusive) for _ in range(20)]

    def send(k: int) -> None:
        for n in range(1, 501):
            for ref in refs:
                (ref.tell if k % 2 else ref.signal)((k, n))

    in_threads(4, send)
    assert [ref.ask("faults", timeout=WAIT_S) for ref in refs] == [(0, 2000)] * len(refs)


def test_an_ask_that_races_with_a_stop_is_answered(threaded: World) -> None:
    """However a stop and an ask meet, the ask ends: with its answer or with ActorDeadError (Pykka's hangs)."""
    for _ in range(300):
        ref = threaded.start(Recorder)
        answers: list[Any] = []
        barrier = threading.Barrier(2)

        def ask(_: int, ref: Any = ref, answers: list[Any] = answers, barrier: threading.Barrier = barrier) -> None:
            barrier.wait(WAIT_S)
            answers.append(ref.ask("x", block=False))

        thread = threading.Thread(target=ask, args=(0,))
        thread.start()
        barrier.wait(WAIT_S)
        stopped = ref.stop()
        thread.join(WAIT_S)
        with contextlib.suppress(ActorDeadError):
            assert answers[0].get(timeout=WAIT_S) == "x"
        assert stopped.get(timeout=WAIT_S) is True


def test_plain_actors_dont_lose_asks_either() -> None:
    """The same race over Pykka's own ActorRef: the mailbox buries what comes late."""
    for _ in range(300):
        ref = Recorder.start()
        barrier = threading.Barrier(2)
        answers: list[Any] = []

        def ask(_: int, ref: Any = ref, answers: list[Any] = answers, barrier: threading.Barrier = barrier) -> None:
            barrier.wait(WAIT_S)
            answers.append(ref.ask("x", block=False))

        thread = threading.Thread(target=ask, args=(0,))
        thread.start()
        barrier.wait(WAIT_S)
        ref.stop()
        thread.join(WAIT_S)
        with contextlib.suppress(pykka.ActorDeadError):
            assert answers[0].get(timeout=WAIT_S) == "x"


def test_each_message_has_exactly_one_fate(threaded: World) -> None:
    """While an actor crashes under fire, each accepted message is handled, or in its crash, or a dead letter."""
    for _ in range(50):
        handled: list[Any] = []

        class Fragile(PooledActor):
            def on_receive(self, message: Any, handled: list[Any] = handled) -> None:
                handled.append(message)  # the one that kills counts as handled: it is Crash.message
                if len(handled) == 40:
                    raise ValueError

        ref = threaded.start(Fragile)
        accepted: list[Any] = []

        def send(k: int, ref: Any = ref, accepted: list[Any] = accepted) -> None:
            for n in range(50):
                try:
                    ref.tell((k, n))
                except ActorDeadError:
                    return
                accepted.append((k, n))

        in_threads(3, send)
        crash = threaded.crash()
        log_of(threaded.start(Recorder))
        fates = Counter(handled) + Counter(crash.mail)
        while sum(fates.values()) < len(accepted):
            fates[threaded.letters.get(timeout=WAIT_S).message] += 1
        assert fates == Counter(accepted)


def test_the_bound_holds_under_fire(threaded: World) -> None:
    """Senders on several threads overshoot the bound by one batch at most; what was refused is not handled."""
    gate = threading.Event()
    ref = threaded.start(Recorder, mailbox_max=100)
    ref.tell(lambda me: gate.wait(WAIT_S) and None)
    accepted: list[Any] = []

    def send(k: int) -> None:
        for n in range(200):
            try:
                ref.tell((k, n))
            except MailboxFullError:
                continue
            accepted.append((k, n))

    in_threads(3, send)
    gate.set()
    assert len(accepted) <= 100 + 3
    done = threading.Event()
    ref.signal(lambda me: me.actor_ref.signal("end"))
    while ref.pending:
        done.wait(0.001)
    log = log_of(ref)
    assert Counter(entry for entry in log if entry != "end") == Counter(accepted)


def test_a_sample_of_the_stress_holds() -> None:
    """The stress command's own run, small: no overlap, no order broken, nothing lost, no ask hung."""
    counted = stress.run(30_000)
    assert counted.messages >= 30_000
    assert counted.stops >= 7
    assert counted.holds, counted
