"""The event-log service in four figures, each against something that was measured in the same run.

    python -m benchmarks.persistence [--json] [--turns N] [--sessions N] [--rounds N]

``zstd_bytes_per_turn``: bytes on disk of a turn with one tool (four batches, 11 events, some 3 KB of raw lines) in a
compressed log. ``append_vs_file_floor``: seconds of ``write`` and ``fsync`` of the same lines to a plain file, per
second of ``SessionPersistence.append``, medians of batches (1 is the floor itself). ``open_vs_json``: CPU seconds of
``json.loads`` of the same lines, per CPU second of a cold ``inspect``, which also reads, decompresses, checks and
freezes. ``list_100k_vs_1k``: seconds of a page of 100 sessions of 100,000 in SQLite, per second of the same page of
1,000 (1 is no growth).
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from seriatim.commits import Commit, Durable, Part
from seriatim.events import session_log
from seriatim.storage.event_log.header import SessionHeader
from seriatim.storage.event_log.jsonl import JsonlLogs
from seriatim.storage.event_log.lines import encode_events
from seriatim.storage.event_log.persistence import SessionPersistence
from seriatim.storage.event_log.scan import Encoding
from seriatim.storage.event_log.store_logs import StoreLogs
from seriatim.storage.event_log.values import SessionEvent
from seriatim.storage.sqlite import SqliteStore

ID = "20260101_000000_0badcafe"
HEADER = SessionHeader(id=ID, created_at=1_767_225_600_000)
PAGE = 100
GROUP = 500
_LETTERS = "eeeeetttaaaooiinnsshhrrdlcumwfgypbvk"


class Talk:
    """Text as people and tools write it, in numbers: 4,000 words of a language of its own, the frequent ones often."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._words = ["".join(self._chance.choices(_LETTERS, k=self._chance.randint(1, 10))) for _ in range(4000)]
        self._weights = [1 / (rank + 3) for rank in range(len(self._words))]

    def text(self, chars: int) -> str:
        """So many characters of it."""
        return " ".join(self._chance.choices(self._words, self._weights, k=chars // 4))[:chars]

    def turn(self, number: int, first: int) -> list[list[SessionEvent]]:
        """A turn in the batches in which a gateway commits it: start, call, result, answer."""
        call = f"call_{self._chance.getrandbits(64):016x}"
        here = {"turn": number, "step": 1}
        asked = {"path": f"/srv/data/{self._chance.choice(self._words)}.log", "lines": self._chance.randint(1, 400)}
        told: list[list[tuple[str, dict[str, Any]]]] = [
            [
                ("turn/start", {"turn": number, "claims": [f"telegram:bot:7:{number}"]}),
                ("user/message", {"turn": number, "id": f"m{number}", "text": self.text(180), "at": 1_767_225_600_000}),
                ("step/start", here),
            ],
            [
                ("assistant/message", {**here, "text": self.text(60), "calls": [{"id": call}]}),
                ("tool/call", {**here, "id": call, "name": "read_file", "args": asked, "effects": "read"}),
            ],
            [
                ("tool/result", {**here, "id": call, "content": self.text(900)}),
                ("step/end", here),
                ("step/start", {"turn": number, "step": 2}),
            ],
            [
                ("assistant/message", {
                    "turn": number, "step": 2, "text": self.text(600), "finish": "stop",
                    "usage": {"input": self._chance.randint(500, 9000), "output": self._chance.randint(50, 400)},
                }),
                ("step/end", {"turn": number, "step": 2}),
                ("turn/end", {"turn": number, "reason": {"kind": "completed"}}),
            ],
        ]  # fmt: skip
        batches, seq = [], first
        for batch in told:
            batches.append([
                SessionEvent(kind, seq + n, 1_767_225_600_000 + 1000 * number + n, data)
                for n, (kind, data) in enumerate(batch)
            ])  # fmt: skip
            seq += len(batch)
        return batches


def batches(turns: int) -> list[list[SessionEvent]]:
    """So many turns, batch by batch."""
    talk, made, seq = Talk(1), [], 0
    for number in range(1, turns + 1):
        for batch in talk.turn(number, seq):
            made.append(batch)
            seq += len(batch)
    return made


class Floor:
    """A plain file that takes the same lines, ready made, each batch written and synced."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)

    def append(self, content: bytes) -> float:
        """Seconds that it took."""
        start = time.perf_counter()
        os.write(self._descriptor, content)
        os.fsync(self._descriptor)
        return time.perf_counter() - start

    def close(self) -> None:
        """Done."""
        os.close(self._descriptor)


async def append_all(folder: Path, told: list[list[SessionEvent]]) -> dict[str, list[float]]:
    """Seconds of each batch: the floor and both encodings by turns, so that a busy disk is busy for all of them."""
    seconds: dict[str, list[float]] = {"floor": [], "zstd": [], "raw": []}
    least = Floor(folder / "floor")
    encodings: tuple[Encoding, ...] = ("zstd", "raw")
    services = {str(encoding): SessionPersistence(JsonlLogs(folder / encoding, encoding)) for encoding in encodings}
    for service in services.values():
        await service.create(HEADER)
    names = list(seconds)
    for batch in told:
        names.append(names.pop(0))  # whoever syncs right after another has less to wait for
        for name in names:
            if name == "floor":
                seconds[name].append(least.append(b"".join(encode_events(batch, batch[0].seq))))
                continue
            start = time.perf_counter()
            await services[name].append(ID, batch)
            seconds[name].append(time.perf_counter() - start)
    for service in services.values():
        await service.close()
    least.close()
    return seconds


def appending(folder: Path, turns: int, rounds: int) -> dict[str, Any]:
    """Bytes per turn and the ratio to the floor, by encoding."""
    told = batches(turns)
    ratios: dict[str, list[float]] = {"zstd": [], "raw": []}
    sizes: dict[str, int] = {}
    for number in range(rounds):
        place = folder / str(number)
        place.mkdir()
        seconds = asyncio.run(append_all(place, told))
        for name, found in ratios.items():
            # The first batch makes the file, which the floor's file doesn't.
            found.append(statistics.median(seconds["floor"][1:]) / statistics.median(seconds[name][1:]))
            (file,) = (place / name).glob("*/*/session.*")
            sizes[name] = file.stat().st_size
    return {
        "zstd_bytes_per_turn": round(sizes["zstd"] / turns),
        "raw_bytes_per_turn": round(sizes["raw"] / turns),
        "append_vs_file_floor": round(statistics.median(ratios["zstd"]), 3),
        "append_vs_file_floor_raw": round(statistics.median(ratios["raw"]), 3),
    }


def opening(folder: Path, turns: int, rounds: int) -> dict[str, Any]:
    """CPU of json alone against CPU of a cold inspect."""
    told = batches(turns)
    logs = JsonlLogs(folder / "open")
    for first in range(0, len(told), 4):
        batch = [event for part in told[first : first + 4] for event in part]
        logs.append(ID, HEADER, batch[0].seq, batch)
    lines = [line for batch in told for line in encode_events(batch, batch[0].seq)]

    async def inspect() -> None:
        async with SessionPersistence(JsonlLogs(folder / "open")) as service:
            assert len((await service.inspect(ID)).events) == len(lines)

    ratios = [
        _cpu(lambda: [json.loads(line) for line in lines]) / _cpu(lambda: asyncio.run(inspect())) for _ in range(rounds)
    ]
    return {"open_vs_json": round(statistics.median(ratios), 3), "opened_events": len(lines)}


def _cpu(step: Callable[[], object]) -> float:
    gc.collect()
    start = time.process_time()
    step()
    return time.process_time() - start


def listing(folder: Path, sessions: int, rounds: int) -> dict[str, Any]:
    """A page of few against a page of many sessions."""
    few, many = (_filled(folder / f"{count}.db", count) for count in (1000, sessions))
    for logs in (few, many):
        _page(logs, 0)  # the file's pages into the cache
    steps = [number / (rounds * 40) for number in range(rounds * 20)]
    ratios = [_page(many, int(sessions * step)) / _page(few, int(1000 * step)) for step in steps]
    few.close()
    many.close()
    return {"list_100k_vs_1k": round(statistics.median(ratios), 3), "listed_of": sessions}


def _filled(path: Path, count: int) -> StoreLogs:
    store = SqliteStore(path)
    event = SessionEvent("session/end-seed", 0, 1, {})
    for start in range(0, count, GROUP):
        commits = []
        for number in range(start, start + GROUP):  # one commit each, as sessions are made
            name = f"{number:08}"
            log = session_log(name)
            header = SessionHeader(id=name, created_at=number).to_json()
            commits.append(Commit(name, log, 0, (Part(log, 0, (event,), None, header),)))
        assert all(type(outcome) is Durable for outcome in store.commit(commits))
    return StoreLogs(store)


def _page(logs: StoreLogs, after: int) -> float:
    start = time.perf_counter()
    page = logs.page(f"{after:08}", PAGE)
    seconds = time.perf_counter() - start
    assert len(page.snapshots) == PAGE
    return seconds


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description="The event-log service against what it stands on.")
    parser.add_argument("--json", action="store_true", help="print JSON only")
    parser.add_argument("--turns", type=int, default=100, help="turns of a log")
    parser.add_argument("--sessions", type=int, default=100_000, help="sessions of the larger list")
    parser.add_argument("--rounds", type=int, default=5, help="runs, of which the median counts")
    parser.add_argument("--folder", help="where the files are made (default: the temporary folder)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        result = appending(folder, options.turns, options.rounds)
        result |= opening(folder, options.turns * 20, options.rounds)
        result |= listing(folder, options.sessions, options.rounds)
    print(json.dumps(result) if options.json else "\n".join(f"{key}: {value}" for key, value in result.items()))


if __name__ == "__main__":
    main()
