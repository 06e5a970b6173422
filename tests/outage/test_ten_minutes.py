"""Ten minutes without a store, in virtual time: memory bounded, order kept, producers told, nothing accepted lost."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import pytest

from seriatim import Gateway, MessageEvent, Platform, SessionSource
from seriatim.limits import SPOOL_WAITING_MAX
from seriatim.storage.audit import audit
from seriatim.storage.sqlite_reader import SqliteReader
from seriatim.testing.faulty_store import Fault
from tests.outage.world import World

LANES = 8
EVERY_MS = 6_000
"""Each lane's producer has something to say so often."""
RETRY_MS = 20_000
"""After a refusal it tries the same message again so much later, and no other before."""
OUTAGE_MS = 600_000
BEFORE = 2
"""Messages of each lane before the outage; so many follow it, too."""
DURING = OUTAGE_MS // EVERY_MS
TEXT = "x" * 4_000
STEP_MS = 500
PATIENCE_S = 0.2
"""How long a step of virtual time waits for the disk to sync what was said; some answers need time to pass."""


class Producer:
    """One person: messages in order, each again until it is accepted."""

    def __init__(self, world: World, gateway: Gateway, lane: int) -> None:
        self.accepted: list[str] = []
        self.told: Counter[str] = Counter()
        self.says = False
        self._world = world
        self._gateway = gateway
        self._lane = lane

    async def run(self) -> None:
        """Say everything."""
        for number in range(BEFORE + DURING + BEFORE):
            name = f"{self._lane}.{number}"
            source = SessionSource(Platform("fake"), chat_id=f"c{self._lane}", user_id=f"u{self._lane}")
            event = MessageEvent(f"{name} {TEXT}", source, account="fake", message_id=name)
            while True:
                self.says = True
                receipt = await self._gateway.accept(event)
                self.says = False
                if receipt.outcome != "refused":
                    break
                self.told[receipt.reason or ""] += 1
                await self._pass(RETRY_MS)
            self.told[receipt.reason or receipt.outcome] += 1
            self.accepted.append(name)
            await self._pass(EVERY_MS)

    async def _pass(self, ms: int) -> None:
        due = asyncio.Event()
        self._world.clock.call_later(ms, due.set)
        await due.wait()


async def _pass(world: World, producers: Sequence[Producer]) -> None:
    """A step of time, and what these are told of what they said then."""
    world.clock.advance(STEP_MS)
    await asyncio.sleep(0.001)
    loop = asyncio.get_running_loop()
    until_s = loop.time() + PATIENCE_S
    while any(producer.says for producer in producers) and loop.time() < until_s:  # noqa: ASYNC110  (who looks counts steps, and goes on all the same)
        await asyncio.sleep(0.001)


def told_by_logs(home: Path) -> dict[str, list[str]]:
    """The accepted messages of each lane in the order of its log; law 1 holds."""
    reader = SqliteReader(home / "state.db")
    found = audit(reader)
    assert found.holds, found
    assert found.counters.waiting == 0
    told: dict[str, list[str]] = {}
    for log in reader.logs("lane:"):
        names = [e.data["text"].split()[0] for e in reader.read(log) if e.type == "inbox/accepted"]
        told[names[0].partition(".")[0]] = names
    reader.close()
    return told


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "fault"),
    [
        ("refuse", Fault.REFUSED),
        ("refuse", Fault.UNKNOWN_LOST),
        ("spool", Fault.REFUSED),
        ("spool", Fault.UNKNOWN_DONE),
    ],
)
def test_ten_minutes(
    tmp_path: Path, mode: Literal["refuse", "spool"], fault: Fault, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever the store does for ten minutes, afterwards each accepted message is there, once and in its order."""
    world = World(tmp_path, mode)
    facts: dict[str, float] = {}

    async def scenario() -> None:
        async with world.gateway() as gateway:
            producers = [Producer(world, gateway, lane) for lane in range(LANES)]
            tasks = [asyncio.ensure_future(producer.run()) for producer in producers]
            async with asyncio.timeout(60):
                while not all(len(p.accepted) == BEFORE for p in producers):
                    await _pass(world, producers)
            tracemalloc.start()
            world.medium.fault = fault
            began = world.clock.monotonic_ms()
            tasks_most = waiting_most = 0
            while world.clock.monotonic_ms() - began < OUTAGE_MS:
                await _pass(world, producers if mode == "spool" else ())
                tasks_most = max(tasks_most, len(asyncio.all_tasks()))
                assert gateway._runtime is not None
                waiting_most = max(waiting_most, len(gateway._runtime.receipts))
            facts["grown_kB"] = tracemalloc.get_traced_memory()[0] // 1000
            tracemalloc.stop()
            facts["tasks_most"], facts["receipts_most"] = tasks_most, waiting_most
            facts["accepted_in_outage"] = sum(len(p.accepted) - BEFORE for p in producers)
            facts["spooled"] = gateway.health().get("spooled", 0)
            world.medium.fault = None
            async with asyncio.timeout(60):
                while not all(task.done() for task in tasks) or gateway.balance()["waiting"]:
                    world.clock.advance(STEP_MS)
                    await asyncio.sleep(0.001)
            await asyncio.gather(*tasks)
            facts["accepted"] = sum(len(p.accepted) for p in producers)
            facts["told"] = sum((p.told for p in producers), Counter())  # type: ignore[assignment]
            logs = told_by_logs(tmp_path)
            for lane, producer in enumerate(producers):
                assert logs[str(lane)] == producer.accepted
            assert facts["accepted"] == LANES * (BEFORE + DURING + BEFORE)

    world.run(scenario)
    with capsys.disabled():
        print(f"\n{mode}, {fault.name}: {facts}")
    told: Counter[str] = facts["told"]  # type: ignore[assignment]
    if mode == "spool":
        assert facts["accepted_in_outage"] == facts["spooled"] > LANES * DURING / 2
        assert told["spooled"] >= facts["spooled"]
        assert facts["tasks_most"] < 10 * LANES + 20
    else:
        # Refused and told so, or held back: whoever waits for the truth says nothing more.
        assert facts["accepted_in_outage"] == 0
        assert told["storage_unavailable"] + facts["receipts_most"] >= LANES
    assert facts["receipts_most"] <= 2 * LANES < SPOOL_WAITING_MAX
    assert facts["grown_kB"] < 3_000  # eight hundred messages of 4 kB were said
    said = [text.removeprefix("re ") for text in world.replies]
    order: dict[str, list[int]] = {}
    for text in said:
        for name in text.split(","):
            lane, _, number = name.split()[0].partition(".")
            order.setdefault(lane, []).append(int(number))
    assert all(numbers == sorted(set(numbers)) for numbers in order.values())
