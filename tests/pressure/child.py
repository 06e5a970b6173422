"""A gateway of its own process that holds real memory under a pinned budget; prints what it saw as one line of JSON.

``python -m tests.pressure.child HOME LANES ROOM_MIB``: ROOM_MIB over what it begins with is the budget, 0 is none. Each
lane has turns whose tools give results of 300 KB; its agent keeps what it saw, in pieces that the C library keeps when
they are freed.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any
from unittest import mock

from seriatim import GatewayConfig, Turn
from seriatim.actors.machine import ThisMachine, own_anon_bytes
from seriatim.config import AgentCacheConfig, AgentConfig
from seriatim.pressure import MIB
from tests.gateway.bots import balance_holds, bot

RESULTS = 8
RESULT_CHARS = 300_000
PIECE_BYTES = 16_000  # well under what malloc maps by itself, and over what Python's own allocator keeps
AGENT_PIECES = 250


def _read(page: int) -> str:
    return str(page) * RESULT_CHARS


class Keeper:
    """An agent that keeps memory and says nothing of it."""

    def __init__(self, session: str) -> None:
        self.kept: list[bytearray] = []

    async def run(self, turn: Turn) -> str:
        """Look things up at length; then tell how much it remembers."""
        self.kept += [bytearray(PIECE_BYTES) for _ in range(AGENT_PIECES)]
        for number in range(RESULTS):
            await turn.step("reading").call("read", {"page": number}, _read, effects="read")
        return f"{turn.number} {len(turn.history)} {sum(len(said.text) for said in turn.history)}"


async def main(home: Path, lanes: int, room_mib: int) -> dict[str, Any]:
    """Fill the lanes one after the other, each in two turns; what came of it."""
    async with bot(None, home / "warm-up", agent_factory=Keeper) as it:
        await it.ask("hi")
    began = own_anon_bytes()
    budget_mb = began // MIB + room_mib if room_mib else 0
    cache = AgentCacheConfig(memory_high_mb=budget_mb)
    config = GatewayConfig(agent=AgentConfig(agent_cache=cache))
    peak = 0
    answers: list[list[str | None]] = []
    async with bot(None, home / "state", config=config, agent_factory=Keeper) as it:
        runtime = it.gateway._runtime
        assert runtime is not None
        for lane in range(lanes):
            answers.append([(await it.ask("first", str(lane))).text])
            peak = max(peak, own_anon_bytes())
        for lane in range(lanes):
            answers[lane].append((await it.ask("second", str(lane))).text)
            peak = max(peak, own_anon_bytes())
        facts = it.health["memory"]
        live = len(runtime.directory.live)
    return {
        "began": began,
        "budget": budget_mb * MIB,
        "peak": peak,
        "memory": facts,
        "live": live,
        "answers": answers,
        "balance": balance_holds(home / "state"),
        "errors": [f"{where}: {error!r}" for where, error in it.errors],
    }


if __name__ == "__main__":
    nowhere = Path(sys.argv[1]) / "no control groups"
    with mock.patch("seriatim.opening.ThisMachine", return_value=ThisMachine(nowhere)):  # this process alone
        print(json.dumps(asyncio.run(main(Path(sys.argv[1]), *map(int, sys.argv[2:])))))
