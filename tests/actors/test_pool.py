"""Pool and pinned dispatchers: fairness, threads, and the traps met while they were built."""

from __future__ import annotations

import sqlite3
import threading
from typing import Any

import pykka
import pytest

from seriatim.actors.dispatch import PinnedDispatcher, PoolDispatcher
from seriatim.actors.pooled import PooledActor
from seriatim.actors.system import ActorSystem

from .worlds import WAIT_S, Recorder, World, world_of


def test_a_busy_mailbox_does_not_starve_the_others() -> None:
    """An actor with much mail gives way after its share of envelopes (trap 6)."""
    order: list[str] = []
    with world_of("pinned") as world:
        pool = PoolDispatcher(workers=1, envelopes_max=8)
        world.dispatcher = pool
        busy, light = world.start(Recorder), world.start(Recorder)
        done = threading.Event()

        def fill(_: Any) -> None:
            for _n in range(100):
                busy.tell(lambda me: order.append("busy"))
            light.tell(lambda me: order.append("light"))
            busy.tell(lambda me: done.set())

        busy.tell(fill)
        world.wait(done)
        assert order.index("light") <= 16
        world.system.stop_all().get(timeout=WAIT_S)
        pool.close()


def test_a_pinned_actor_keeps_a_thread_bound_connection() -> None:
    """SQLite opened in on_start is used and closed on the same thread (trap 4)."""
    with world_of("pinned") as world:

        class Store(PooledActor):
            def on_start(self) -> None:
                self.db = sqlite3.connect(":memory:")  # check_same_thread stays on
                self.db.execute("CREATE TABLE t (n)")

            def on_receive(self, message: Any) -> Any:
                self.db.execute("INSERT INTO t VALUES (?)", (message,))
                return self.db.execute("SELECT count(*) FROM t").fetchone()[0]

            def on_stop(self) -> None:
                self.db.close()

        ref = world.start(Store)
        for n in range(399):
            ref.tell(n)
        assert ref.ask(400, timeout=WAIT_S) == 400
        assert ref.stop(block=True, timeout=WAIT_S)
        assert world.crashes.empty()


def test_all_actors_of_a_pinned_dispatcher_share_one_daemon_thread() -> None:
    """Pinned means one thread, named after the dispatcher, which doesn't keep the process alive."""
    with world_of("pinned") as world:
        refs = [world.start(Recorder) for _ in range(5)]
        threads = {ref.ask(lambda me: threading.current_thread(), timeout=WAIT_S) for ref in refs}
        (thread,) = threads
        assert thread.daemon
        assert thread.name.startswith("pinned")


def test_close_runs_what_is_queued_first() -> None:
    """Mail that is queued when the pool is closed is still handled, then the workers end."""
    with world_of("pinned") as world:
        pool = PoolDispatcher(workers=2)
        world.dispatcher = pool
        ref = world.start(Recorder)
        for n in range(1000):
            ref.tell(n)
        asked = ref.ask("log", block=False)
        pool.close()
        assert pool.join(WAIT_S)
        assert asked.get(timeout=WAIT_S) == list(range(1000))


class Chain(PooledActor):
    """Asks one more of its kind, blocking, until depth is used up: allowed to plain actors, as in Pykka."""

    def on_receive(self, message: Any) -> Any:
        """How deep the chain went."""
        if message == 0:
            return 0
        ref = Chain.start()
        try:
            return 1 + ref.ask(message - 1, block=True)
        finally:
            ref.stop(block=False)


def test_plain_actors_may_block_on_each_other() -> None:
    """A chain of sixty nested blocking asks ends on two workers, because a blocked one is replaced (trap 3)."""
    ref = Chain.start()
    assert ref.ask(60, timeout=WAIT_S) == 60
    ref.stop()


def test_a_pinned_dispatcher_lends_no_worker() -> None:
    """Compensation on a pinned dispatcher would break its promise, so it is an error."""
    with pytest.raises(RuntimeError, match="pinned"):
        PinnedDispatcher().compensated()


def test_plain_actors_are_in_pykkas_registry_and_system_actors_are_not() -> None:
    """start() is Pykka's start(); a system keeps its actors to itself."""
    plain = Recorder.start()
    try:
        with world_of("pool") as world:
            own = world.start(Recorder)
            assert pykka.ActorRegistry.get_by_urn(plain.actor_urn) is plain
            assert pykka.ActorRegistry.get_by_urn(own.actor_urn) is None
    finally:
        plain.stop()


def test_bad_sizes_are_refused() -> None:
    """A pool without workers or envelopes is the caller's mistake."""
    with pytest.raises(ValueError, match="at least one"):
        PoolDispatcher(workers=0)
    with pytest.raises(ValueError, match="at least one"):
        PoolDispatcher(envelopes_max=0)


def test_many_starts_and_stops_stay_linear() -> None:
    """The registry is a dict: stopping the newest of many costs no scan (20,000 actors in a few seconds at most)."""
    world: World
    with world_of("pool") as world:
        system: ActorSystem = world.system
        for n in range(20_000):
            system.start(Recorder, dispatcher=world.dispatcher, name=f"a{n}")
        assert len(system) == 20_000
        system.stop_all().get(timeout=30)
        assert len(system) == 0
