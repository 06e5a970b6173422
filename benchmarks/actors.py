"""Pooled actors against Pykka's ThreadingActor, in one run.

``python -m benchmarks.actors [--json] [--actors 1000] [--rounds 3]``. Ratios are what counts; absolute figures belong
to one machine and one moment. Memory is measured in a child process per case (Linux only).
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import resource
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pykka

from seriatim.actors.dispatch import Dispatcher, LoopDispatcher, PinnedDispatcher, PoolDispatcher
from seriatim.actors.pooled import PooledActor
from seriatim.actors.simulation import SimulationDispatcher
from seriatim.actors.system import ActorSystem
from seriatim.testing.clock import VirtualClock


class Pooled(PooledActor):
    """Counts."""

    handled = 0

    def on_receive(self, message: Any) -> Any:
        """Count and echo."""
        self.handled += 1
        return message


class Threaded(pykka.ThreadingActor):
    """Counts on a thread of its own."""

    use_daemon_thread = True
    handled = 0

    def on_receive(self, message: Any) -> Any:
        """Count and echo."""
        self.handled += 1
        return message


def tells_per_s(refs: list[Any], per_actor: int) -> float:
    """From the first tell until all are handled, told from this thread."""
    begun = time.perf_counter()
    for _ in range(per_actor):
        for ref in refs:
            ref.tell(1)
    for answer in [ref.ask(0, block=False) for ref in refs]:
        answer.get()
    return len(refs) * per_actor / (time.perf_counter() - begun)


async def tells_per_s_on_loop(refs: list[Any], per_actor: int) -> float:
    """The same, told from the loop's own thread in bursts of four, as lanes do."""
    begun = time.perf_counter()
    for _ in range(per_actor // 4):
        for ref in refs:
            for _ in range(4):
                ref.tell(1)
        await asyncio.sleep(0)
    for answer in [ref.ask(0, block=False) for ref in refs]:
        await answer
    return len(refs) * (per_actor // 4) * 4 / (time.perf_counter() - begun)


def asks_per_s(refs: list[Any], count: int) -> float:
    """Blocking round trips from this thread."""
    begun = time.perf_counter()
    for n in range(count):
        refs[n % len(refs)].ask(n)
    return count / (time.perf_counter() - begun)


def new_system() -> ActorSystem:
    """A system that must not see a crash."""

    def unexpected(crash: Any) -> None:
        raise AssertionError(crash)

    return ActorSystem(clock=VirtualClock(), on_crash=unexpected)


def measure_pooled(dispatcher: Dispatcher, actors: int, per_actor: int) -> dict[str, float]:
    """Start, tell, ask and stop on one dispatcher."""
    system = new_system()
    begun = time.perf_counter()
    refs = [system.start(Pooled, dispatcher=dispatcher, name=f"a{n}") for n in range(actors)]
    started_us = (time.perf_counter() - begun) / actors * 1e6
    figures = {
        "tells_per_s": tells_per_s(refs, per_actor),
        "asks_per_s": asks_per_s(refs, 2000),
        "start_us": started_us,
    }
    begun = time.perf_counter()
    system.stop_all().get()
    figures["stop_us"] = (time.perf_counter() - begun) / actors * 1e6
    dispatcher.close()
    return figures


def measure_threaded(actors: int, per_actor: int) -> dict[str, float]:
    """Pykka as it comes."""
    begun = time.perf_counter()
    refs = [Threaded.start() for _ in range(actors)]
    started_us = (time.perf_counter() - begun) / actors * 1e6
    figures = {
        "tells_per_s": tells_per_s(refs, per_actor),
        "asks_per_s": asks_per_s(refs, 2000),
        "start_us": started_us,
    }
    begun = time.perf_counter()
    for ref in reversed(refs):
        ref.stop()
    figures["stop_us"] = (time.perf_counter() - begun) / actors * 1e6
    return figures


def on_loop_thread(body: Callable[[asyncio.AbstractEventLoop], dict[str, float]]) -> dict[str, float]:
    """Run *body* here, beside a loop on a thread of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    figures = body(loop)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()
    return figures


def measure_on_loop(actors: int, per_actor: int) -> dict[str, float]:
    """Sender and actors on one loop."""

    async def main() -> float:
        system = new_system()
        dispatcher = LoopDispatcher(asyncio.get_running_loop())
        refs = [system.start(Pooled, dispatcher=dispatcher, name=f"a{n}") for n in range(actors)]
        figure = await tells_per_s_on_loop(refs, per_actor)
        await system.stop_all()
        return figure

    return {"tells_per_s": asyncio.run(main())}


def cases(actors: int, per_actor: int) -> dict[str, Callable[[], dict[str, float]]]:
    """Every contender, each with fresh actors."""
    return {
        "threading": lambda: measure_threaded(actors, max(1, per_actor // 10)),
        "pool-1": lambda: measure_pooled(PoolDispatcher(1), actors, per_actor),
        "pool-2": lambda: measure_pooled(PoolDispatcher(2), actors, per_actor),
        "pinned": lambda: measure_pooled(PinnedDispatcher(), actors, per_actor),
        "loop, told from a thread": lambda: on_loop_thread(
            lambda loop: measure_pooled(LoopDispatcher(loop), actors, per_actor)
        ),
        "loop, told from the loop": lambda: measure_on_loop(actors, per_actor),
        "simulation": lambda: measure_pooled(SimulationDispatcher(1, VirtualClock()), actors, max(1, per_actor // 10)),
    }


def resident_bytes() -> int:
    """What this process holds in memory now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def idle_bytes(kind: str, actors: int) -> float:
    """Resident bytes per idle actor, measured in this process: call it in a fresh one."""
    system, pool = new_system(), PoolDispatcher()
    names = [f"a{n}" for n in range(actors)]
    kept: list[Any] = [None] * actors
    gc.collect()
    before = resident_bytes()
    for n, name in enumerate(names):
        kept[n] = Threaded.start() if kind == "threading" else system.start(Pooled, dispatcher=pool, name=name)
    kept[-1].ask(0)
    gc.collect()
    return (resident_bytes() - before) / actors


def idle_bytes_in_child(kind: str, actors: int) -> float:
    """The same in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.actors", "--memory-child", kind, "--actors", str(actors)]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def run(actors: int, per_actor: int, rounds: int) -> dict[str, Any]:
    """All cases, interleaved; medians over *rounds*, and ratios to Pykka's ThreadingActor."""
    seen: dict[str, list[dict[str, float]]] = {}
    for _ in range(rounds):
        for name, case in cases(actors, per_actor).items():
            gc.collect()
            seen.setdefault(name, []).append(case())
    result: dict[str, Any] = {"actors": actors, "rounds": rounds, "python": sys.version.split()[0], "cases": {}}
    for name, figures in seen.items():
        result["cases"][name] = {key: statistics.median(figure[key] for figure in figures) for key in figures[0]}
    base = result["cases"]["threading"]["tells_per_s"]
    for figures_of_case in result["cases"].values():
        figures_of_case["tell_ratio"] = figures_of_case["tells_per_s"] / base
    result["idle_bytes"] = {
        "threading": idle_bytes_in_child("threading", 2000),
        "pooled": idle_bytes_in_child("pooled", 50_000),
    }
    return result


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--actors", type=int, default=1000)
    parser.add_argument("--per-actor", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--memory-child", choices=("threading", "pooled"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.memory_child:
        print(idle_bytes(options.memory_child, options.actors))
        return
    result = run(options.actors, options.per_actor, options.rounds)
    if options.json:
        print(json.dumps(result, indent=2))
        return
    for name, figures in result["cases"].items():
        print(f"{name:26}", "  ".join(f"{key} {value:,.1f}" for key, value in figures.items()))
    print("bytes per idle actor:", {kind: round(value) for kind, value in result["idle_bytes"].items()})


if __name__ == "__main__":
    main()
