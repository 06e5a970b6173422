"""What an idle actor and an idle session cost, and what starting and stopping many costs; each in a fresh process.

``python -m benchmarks.actor_memory CASE N`` prints one JSON value; ``benchmarks.actors`` calls it. Linux only.
"""

from __future__ import annotations

import asyncio
import gc
import json
import resource
import subprocess
import sys
import tempfile
import time
import tracemalloc
from pathlib import Path
from typing import Any

import attrs

from benchmarks.actor_peers import Threaded
from seriatim import Gateway, GatewayConfig, MessageEvent, Platform, SessionSource
from seriatim.actors.dispatch import PoolDispatcher
from seriatim.actors.pooled import PooledActor
from seriatim.actors.supervisor import PassivateLane
from seriatim.actors.system import ActorSystem
from seriatim.mainloop import GC_THRESHOLD
from seriatim.testing.clock import VirtualClock


class Idle(PooledActor):
    """Does nothing."""


def resident_bytes() -> int:
    """What this process holds in memory now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def new_system() -> ActorSystem:
    """A system that must not see a crash."""

    def unexpected(crash: Any) -> None:
        raise AssertionError(crash)

    return ActorSystem(clock=VirtualClock(), on_crash=unexpected)


def idle_bytes(actors: int) -> float:
    """Resident bytes per idle pooled actor, its names and the system's registry included."""
    system, pool = new_system(), PoolDispatcher()
    names = [f"a{n}" for n in range(actors)]
    kept: list[Any] = [None] * actors
    gc.collect()
    before = resident_bytes()
    for n, name in enumerate(names):
        kept[n] = system.start(Idle, dispatcher=pool, name=name)
    kept[-1].stop().get()
    gc.collect()
    return (resident_bytes() - before) / actors


def idle_bytes_threading(actors: int) -> float:
    """The same of Pykka's ThreadingActor; its kernel stack is not in it."""
    kept: list[Any] = [None] * actors
    gc.collect()
    before = resident_bytes()
    for n in range(actors):
        kept[n] = Threaded.start()
    kept[-1].ask(0)
    gc.collect()
    return (resident_bytes() - before) / actors


def life(actors: int) -> dict[str, float]:
    """Microseconds to start and to stop one of so many; few are started several times, for a steadier figure.

    In a process as ``serve`` and ``run`` set it: there the cycle collector comes rarely. ``collected_life`` leaves it
    as Python has it, and as an embedding host may: then it looks again and again through all that was started.
    """
    gc.set_threshold(GC_THRESHOLD, *gc.get_threshold()[1:])
    return collected_life(actors)


def collected_life(actors: int) -> dict[str, float]:
    """As ``life``, with the collector as it is."""
    rounds = max(1, 20_000 // actors)
    started_s = stopped_s = 0.0
    for _ in range(rounds):
        system, pool = new_system(), PoolDispatcher()
        names = [f"a{n}" for n in range(actors)]
        gc.collect()
        begun = time.perf_counter()
        refs = [system.start(Idle, dispatcher=pool, name=name) for name in names]
        started_s += time.perf_counter() - begun
        refs[-1].ask(0)
        begun = time.perf_counter()
        system.stop_all().get()
        stopped_s += time.perf_counter() - begun
        pool.close()
    return {"start_us": started_s / rounds / actors * 1e6, "stop_us": stopped_s / rounds / actors * 1e6}


async def idle_sessions(sessions: int) -> dict[str, float]:
    """Allocated bytes per idle lane of a real gateway on SQLite, each with one answered turn and ready to rest.

    ``session``: what putting them all to rest gives back: actor, mailbox, gate, folded state, transcript, directory,
    the supervisor's record. ``all_in``: what a lane more costs the process, what the store and the tables of keys
    remember of it included.
    """

    async def answer(turn: Any) -> str:
        return "ok"

    async def say(n: int) -> None:
        source = SessionSource(platform=Platform("host"), chat_id=str(n), user_id=str(n))
        receipt = await gateway.accept(MessageEvent(text="hello", source=source))
        await receipt.answered()

    async def settled_bytes(live: int) -> int:
        assert runtime is not None
        while runtime.busy or len(runtime.system) != others + live:  # noqa: ASYNC110  (state, not an event)
            await asyncio.sleep(0.01)
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    plain = GatewayConfig().agent
    warm = attrs.evolve(plain, agent_cache=attrs.evolve(plain.agent_cache, max_size=10**6))
    told = 0
    with tempfile.TemporaryDirectory() as home:
        gateway = Gateway(answer, home=home, config=GatewayConfig(agent=warm))
        async with gateway:
            runtime = gateway._runtime  # noqa: SLF001  (measured from inside)
            assert runtime is not None
            others = len(runtime.system)
            few = sessions // 5
            live: list[int] = []
            for target in (few, sessions):
                while told < target:
                    burst = min(200, target - told)
                    await asyncio.gather(*(say(told + n) for n in range(burst)))
                    told += burst
                live.append(await settled_bytes(told))
            for key in list(runtime.directory.live):
                runtime.directory.supervisor.signal(PassivateLane(key, "benchmark"))
            at_rest = await settled_bytes(0)
    return {"session": (live[1] - at_rest) / sessions, "all_in": (live[1] - live[0]) / (sessions - few)}


def sessions(count: int) -> dict[str, float]:
    """As ``idle_sessions``."""
    tracemalloc.start()
    return asyncio.run(idle_sessions(count))


CASES: dict[str, Any] = {
    "idle": idle_bytes,
    "idle-threading": idle_bytes_threading,
    "life": life,
    "collected-life": collected_life,
    "sessions": sessions,
}


def in_child(case: str, n: int) -> Any:
    """Run a case in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.actor_memory", case, str(n)]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)


if __name__ == "__main__":
    print(json.dumps(CASES[sys.argv[1]](int(sys.argv[2]))))
