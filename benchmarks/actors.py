"""Our actors against other people's, in one run.

``python -m benchmarks.actors [--json] [--rounds 5] [--quick]``. Contenders take turns, round by round, and
ratios are of medians: absolute figures belong to one machine and one moment. Peers besides Pykka and asyncio need
``pip install -e '.[bench]'``; one that is missing is null, and said so under ``missing``.

- ``tell_vs_threading_1k``: messages a second, pool of two workers, to Pykka's ThreadingActor, both told from a thread;
- ``tell_vs_asyncio``: loop dispatcher to one task and queue per key, both told from their loop; ``pool_vs_asyncio``;
- ``vs_autogen``, ``vs_thespian``: pool of two workers to autogen-core and to Thespian's simple system;
- ``idle_bytes_per_actor``, ``idle_bytes_per_session``: see ``benchmarks.actor_memory``;
- ``start_100k_vs_1k``, ``stop_100k_vs_1k``: time per actor, the cycle collector as ``serve`` sets it;
  ``…_collected``: as Python sets it, where it looks through all actors again and again while so many are started;
- ``light_actor_p99_beside_4_busy_ms``: a light actor's delay beside four that always compute, on a pool of two;
  ``light_thread_p99_beside_4_busy_ms``: the same five on threads of their own.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import queue
import statistics
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from benchmarks.actor_memory import in_child, new_system
from benchmarks.actor_peers import BURST, PEERS, MissingError
from seriatim.actors.dispatch import Dispatcher, LoopDispatcher, PinnedDispatcher, PoolDispatcher
from seriatim.actors.pooled import PooledActor
from seriatim.actors.simulation import SimulationDispatcher
from seriatim.testing.clock import VirtualClock

BUSY = 4
BUSY_MS = 1.0
LIGHT_EVERY_S = 0.005
LIGHT_TELLS = 200


class Pooled(PooledActor):
    """Counts."""

    handled = 0

    def on_receive(self, message: Any) -> Any:
        """Count and echo."""
        self.handled += 1
        return message


# --- throughput ----------------------------------------------------------------------------------------


def on_pool(actors: int, per_actor: int, dispatcher: Dispatcher) -> float:
    """From the first tell until all are handled, told from this thread."""
    system = new_system()
    refs = [system.start(Pooled, dispatcher=dispatcher, name=f"a{n}") for n in range(actors)]
    begun = time.perf_counter()
    for _ in range(per_actor):
        for ref in refs:
            ref.tell(1)
    for answer in [ref.ask(0, block=False) for ref in refs]:
        answer.get()
    took_s = time.perf_counter() - begun
    system.stop_all().get()
    dispatcher.close()
    return actors * per_actor / took_s


def on_loop(actors: int, per_actor: int) -> float:
    """Sender and actors on one loop, told in bursts of four, as lanes are."""

    async def main() -> float:
        system = new_system()
        dispatcher = LoopDispatcher(asyncio.get_running_loop())
        refs = [system.start(Pooled, dispatcher=dispatcher, name=f"a{n}") for n in range(actors)]
        await asyncio.sleep(0)
        begun = time.perf_counter()
        for _ in range(per_actor // BURST):
            for ref in refs:
                for _ in range(BURST):
                    ref.tell(1)
            await asyncio.sleep(0)
        for answer in [ref.ask(0, block=False) for ref in refs]:
            await answer
        took_s = time.perf_counter() - begun
        await system.stop_all()
        return actors * (per_actor // BURST) * BURST / took_s

    return asyncio.run(main())


def contenders() -> dict[str, tuple[Callable[[int, int], float], int]]:
    """Everybody, with by how much fewer messages each gets than the fastest."""
    return {
        "pool-2": (lambda actors, n: on_pool(actors, n, PoolDispatcher(2)), 1),
        "pinned": (lambda actors, n: on_pool(actors, n, PinnedDispatcher()), 1),
        "loop": (on_loop, 1),
        "simulation": (lambda actors, n: on_pool(actors, n, SimulationDispatcher(1, VirtualClock())), 10),
        **PEERS,
    }


def throughput(actors: int, per_actor: int, rounds: int) -> tuple[dict[str, float], dict[str, str]]:
    """Messages a second of each contender, medians over interleaved rounds; and who was missing, with why."""
    seen: dict[str, list[float]] = {}
    missing: dict[str, str] = {}
    for _ in range(rounds):
        for name, (contender, fewer) in contenders().items():
            if name in missing:
                continue
            gc.collect()
            try:
                seen.setdefault(name, []).append(contender(actors, max(BURST, per_actor // fewer)))
            except MissingError as error:
                missing[name] = str(error)
    return {name: statistics.median(figures) for name, figures in seen.items() if figures}, missing


# --- latency -------------------------------------------------------------------------------------------


def compute() -> None:
    """Hold the interpreter for a while."""
    until = time.thread_time() + BUSY_MS / 1000
    while time.thread_time() < until:
        pass


def p99_ms(delays_s: list[float]) -> float:
    """The 99th percentile, in milliseconds."""
    return statistics.quantiles(delays_s, n=100)[98] * 1000


def delays_of(tell: Callable[[float], object], told: Callable[[], int]) -> None:
    """Tell the time now, two hundred times, every five milliseconds; return when all have been heard."""
    for _ in range(LIGHT_TELLS):
        tell(time.perf_counter())
        time.sleep(LIGHT_EVERY_S)  # the load's own pace
    while told() < LIGHT_TELLS:
        time.sleep(LIGHT_EVERY_S)


def light_actor_p99_ms() -> float:
    """A light actor on a pool of two workers, beside four that tell themselves to compute."""
    delays: list[float] = []
    over = threading.Event()

    class Busy(PooledActor):
        def on_receive(self, message: Any) -> None:
            compute()
            if not over.is_set():
                self.own_ref.tell(message)

    class Light(PooledActor):
        def on_receive(self, message: float) -> None:
            delays.append(time.perf_counter() - message)

    system, pool = new_system(), PoolDispatcher(2)
    for n in range(BUSY):
        busy = system.start(Busy, dispatcher=pool, name=f"busy{n}")
        for _ in range(2 * pool.envelopes_max):  # always more than an activation takes
            busy.tell(1)
    light = system.start(Light, dispatcher=pool, name="light")
    delays_of(light.tell, lambda: len(delays))
    over.set()
    system.stop_all(now=True).get()
    pool.close()
    return p99_ms(delays)


def light_thread_p99_ms() -> float:
    """The same five, each on a thread of its own with a queue."""
    delays: list[float] = []
    over = threading.Event()
    inbox: queue.SimpleQueue[float | None] = queue.SimpleQueue()

    def busy() -> None:
        while not over.is_set():
            compute()

    def light() -> None:
        while (message := inbox.get()) is not None:
            delays.append(time.perf_counter() - message)

    threads = [threading.Thread(target=busy) for _ in range(BUSY)] + [threading.Thread(target=light)]
    for thread in threads:
        thread.start()
    delays_of(inbox.put, lambda: len(delays))
    over.set()
    inbox.put(None)
    for thread in threads:
        thread.join()
    return p99_ms(delays)


# --- all of it -----------------------------------------------------------------------------------------


def run(actors: int, per_actor: int, rounds: int, *, quick: bool = False) -> dict[str, Any]:
    """Everything that the module's text lists. *quick*: small numbers, to see that it runs."""
    many = 10_000 if quick else 100_000
    told, missing = throughput(actors, per_actor, rounds)
    light: list[tuple[float, float]] = []
    lives: dict[str, list[tuple[dict[str, float], dict[str, float]]]] = {"life": [], "collected-life": []}
    for _ in range(1 if quick else min(rounds, 3)):
        light.append((light_actor_p99_ms(), light_thread_p99_ms()))
        for case, seen in lives.items():
            seen.append((in_child(case, 1000), in_child(case, many)))

    def ratio(ours: str, theirs: str) -> float | None:
        return round(told[ours] / told[theirs], 2) if theirs in told else None

    def per_actor_ratio(what: str, case: str = "life") -> float:
        return round(statistics.median(big[what] / small[what] for small, big in lives[case]), 2)

    sessions = in_child("sessions", 500 if quick else 3000)
    return {
        "tell_vs_threading_1k": ratio("pool-2", "threading"),
        "tell_vs_asyncio": ratio("loop", "asyncio"),
        "pool_vs_asyncio": ratio("pool-2", "asyncio"),
        "vs_autogen": ratio("pool-2", "autogen"),
        "vs_thespian": ratio("pool-2", "thespian"),
        "idle_bytes_per_actor": round(in_child("idle", many // 2)),
        "idle_bytes_per_threading_actor": round(in_child("idle-threading", 2000)),
        "idle_bytes_per_session": round(sessions["session"]),
        "idle_bytes_per_session_all_in": round(sessions["all_in"]),
        "start_100k_vs_1k": per_actor_ratio("start_us"),
        "stop_100k_vs_1k": per_actor_ratio("stop_us"),
        "start_100k_vs_1k_collected": per_actor_ratio("start_us", "collected-life"),
        "stop_100k_vs_1k_collected": per_actor_ratio("stop_us", "collected-life"),
        "light_actor_p99_beside_4_busy_ms": round(statistics.median(ours for ours, _ in light), 2),
        "light_thread_p99_beside_4_busy_ms": round(statistics.median(theirs for _, theirs in light), 2),
        "tells_per_s": {name: round(figure) for name, figure in told.items()},
        "missing": missing,
        "actors": actors,
        "rounds": rounds,
        "python": sys.version.split()[0],
        "cores": os.cpu_count(),
    }


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--actors", type=int, default=1000)
    parser.add_argument("--per-actor", type=int, default=200, help="messages for the fastest; slower ones get fewer")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="small numbers: whether it runs, not how fast")
    options = parser.parse_args()
    result = run(options.actors, options.per_actor, options.rounds, quick=options.quick)
    if options.json:
        print(json.dumps(result, indent=2))
        return
    for name, figure in result.items():
        print(f"{name:36} {figure}")


if __name__ == "__main__":
    main()
