"""Makes the golden files of today's format: ``python -m tests.golden.make``, once per format, before it is released.

``state_v<format>.db.gz`` is a database as a killed gateway leaves it (its WAL folded in): turns that ended, one that
runs, a queue behind it, a merged follow-up, a command, a tool, a reply that is owed because its platform is down, text
of every kind. ``state_v<format>.json`` is what a reader of that format said of it. Both are committed and never made
again: whatever reads them later must still say the same.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import sqlite3
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from seriatim import Gateway, GatewayConfig, Turn
from seriatim.config import StopConfig
from seriatim.storage.contract import StoreReader
from seriatim.storage.schema import FORMAT
from seriatim.storage.sqlite_reader import SqliteReader
from seriatim.testing.clock import VirtualClock
from seriatim.testing.fake_platform import FakePlatform
from seriatim.testing.snapshot import snapshot_files

FOLDER = Path(__file__).parent


def told(reader: StoreReader) -> dict[str, Any]:
    """Everything that a reader says of a store, as plain JSON."""
    logs = {
        log: {
            "header": reader.header(log),
            "binding": reader.binding(log),
            "events": [
                [e.type, e.seq, e.time, e.data, e.ignorable, e.source_event_seqs, e.surface_op]
                for e in reader.read(log)
            ],
        }
        for prefix in ("lane:", "session:")
        for log in reader.logs(prefix)
    }
    counted = reader.counters()
    return {
        "logs": logs,
        "open": sorted([log, hot.open_turn, hot.waiting, hot.owed, hot.phase] for log, hot in reader.open_work()),
        "balance": [counted.accepted, counted.answered, counted.merged, counted.dropped, counted.waiting],
    }


async def _answer(turn: Turn) -> str:
    if "wait" in turn.text:
        await asyncio.Event().wait()
    if "until" in turn.text:
        await _let_go.wait()
    if "look" in turn.text:
        found = await turn.step("I look.").call("look", {"at": turn.text}, _look)
        return f"I found {found}."
    return "\n".join(f"{line}: {turn.text}" for line in range(3)) if "long" in turn.text else f"You said {turn.text}."


def _look(at: str) -> dict[str, Any]:
    return {"at": at, "count": 3, "share": 0.25, "none": None, "list": [True, "ß", "\u2028"]}


async def _live(home: Path, copy: Path) -> str:
    platform, down = FakePlatform(), FakePlatform("down", account="down")
    clock = VirtualClock()
    config = GatewayConfig(stop=StopConfig(drain_s=0))
    async with Gateway(_answer, home=home, config=config, adapters=[platform, down], clock=clock) as gateway:
        for chat, texts in _SAID.items():
            there = down if chat == "owing" else platform
            where = {"chat_type": "group", "chat_name": "The room"} if chat == "room" else {}
            for text in texts:
                clock.advance(250)
                posted = there.say(text, chat_id=chat, user_name="Zo\u00eb \U0001f600", **where)
                await _until(lambda posted=posted: posted.acked)  # type: ignore[misc]
        down.go_down()
        _let_go.set()
        clock.advance(5_000)
        await _until(lambda: gateway.health()["turns_running"] == 1 and gateway.health()["replies_pending"] == 1)
        clock.advance(5_000)
        await _until(lambda: gateway.balance()["merged"] == 1)
        return snapshot_files(home / "state.db", copy)


async def _until(done: Callable[[], bool]) -> None:
    for _ in range(1_000):
        await asyncio.sleep(0.005)
        if done():
            return
    raise TimeoutError


_let_go = asyncio.Event()
_SAID = {
    "1": ["hello", "look here", "a long story", "/status", "/new", "after it"],
    "2": ["wait for me", "first follow-up", "second follow-up", "/queue an item"],
    "3": ["line\u2028end, NUL \x00, half a pair \ud83d, \uffff", 'quotes " and \\ and </b>'],
    "room": ["in the room, until then", "and then", "and then again"],
    "owing": ["until you are there"],
}


def main() -> None:
    """Write both files."""
    with tempfile.TemporaryDirectory() as folder:
        copy = asyncio.run(_live(Path(folder, "home"), Path(folder, "copy")))
        connection = sqlite3.connect(copy)
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.close()
        reader = SqliteReader(copy)
        facts = told(reader)
        reader.close()
        packed = gzip.compress(Path(copy).read_bytes(), mtime=0)
    (FOLDER / f"state_v{FORMAT}.db.gz").write_bytes(packed)
    (FOLDER / f"state_v{FORMAT}.json").write_text(json.dumps(facts, indent=1, ensure_ascii=True) + "\n")


if __name__ == "__main__":
    main()
