"""Every cut of a JSONL log, and every flipped bit: what is read then.

    python -m tests.persistence.damage [--json]

Fault model: the file ends anywhere (a crash while a batch was written, or a disk that lost its end), or one bit is
another one (a disk that lies). Three answers are right: the content intact, a typed error, or, where the last batch was
hit, the state before it. Everything else, such as content that nobody wrote or a loss of batches that follow the one
that was hit, is counted as ``altered`` and must not occur.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from seriatim.errors import StoreError
from seriatim.storage.event_log.header import SessionHeader
from seriatim.storage.event_log.jsonl import JsonlLogs
from seriatim.storage.event_log.scan import Encoding
from seriatim.storage.event_log.values import SessionEvent, freeze_events

HEADER = SessionHeader(id="20260101_000000_0badcafe", created_at=1_767_225_600_000, cwd="/srv/é")
ANSWERS = ("intact", "before", "error", "altered")


def batches() -> list[tuple[SessionEvent, ...]]:
    """Three batches of a conversation with a tool; the last one has each kind of field."""
    told: list[list[tuple[str, dict[str, Any]]]] = [
        [("turn/start", {"turn": 1, "claims": ["a"]}), ("user/message", {"turn": 1, "text": "Wie spät ist es? 漢字"})],
        [
            ("step/start", {"turn": 1, "step": 1}),
            ("tool/call", {"turn": 1, "step": 1, "id": "c1", "name": "clock", "args": {"zone": "Europe/Berlin"}}),
        ],
        [
            ("tool/result", {"turn": 1, "step": 1, "id": "c1", "content": ["12:34", 12.5, None, True], "error": False}),
            ("assistant/message", {"turn": 1, "step": 1, "text": 'It\'s "12:34".\n\tÉ 👍', "calls": []}),
            ("turn/end", {"turn": 1, "reason": {"kind": "completed"}}),
        ],
    ]
    made, seq = [], 0
    for batch in told:
        events = []
        for kind, data in batch:
            rare = (tuple(range(seq)), "append") if kind == "assistant/message" else (None, None)
            events.append(SessionEvent(kind, seq, 1_767_225_600_000 + seq, data, kind == "turn/end", *rare))
            seq += 1
        made.append(freeze_events(events))
    return made


class Victim:
    """One log, whose bytes are replaced at will."""

    def __init__(self, folder: Path, encoding: Encoding) -> None:
        self.encoding: Encoding = encoding
        self.root = folder / encoding
        self.states: list[tuple[SessionEvent, ...]] = [()]
        self.ends: list[int] = []
        logs = JsonlLogs(self.root, encoding)
        self.path = Path(logs.locate(HEADER).path)
        for batch in batches():
            logs.append(HEADER.id, HEADER, len(self.states[-1]), batch)
            self.states.append(self.states[-1] + batch)
            self.ends.append(self.path.stat().st_size)
        self.content = self.path.read_bytes()

    def read(self, content: bytes) -> tuple[SessionEvent, ...] | None:
        """What a new reader makes of these bytes; None for a typed error. Any other error escapes."""
        # In place: to truncate a file and write it anew costs a sync on some file systems.
        with self.path.open("r+b") as file:
            file.write(content)
            file.truncate()
        try:
            found = JsonlLogs(self.root, self.encoding).read(HEADER.id)
        except StoreError:
            return None
        assert found is not None
        assert found.header == HEADER
        return found.events

    def judge(self, content: bytes, before: tuple[SessionEvent, ...]) -> str:
        """Which answer reading these bytes gives, when ``before`` is the state before what was hit."""
        found = self.read(content)
        if found is None:
            return "error"
        if found == self.states[-1]:
            return "intact"
        return "before" if found == before else "altered"

    def cuts(self) -> Iterator[str]:
        """The answer to each cut, from no byte at all to all but nothing."""
        # A raw batch is whole without its last line's end: nothing of what it says is missing.
        spare = 1 if self.encoding == "raw" else 0
        for end in range(len(self.content) + 1):
            whole = sum(end >= mark - spare for mark in self.ends)
            yield self.judge(self.content[:end], self.states[min(whole, len(self.states) - 2)])

    def flips(self, bits: Sequence[int] = range(8)) -> Iterator[str]:
        """The answer to each flipped bit of the last batch."""
        for place in range(self.ends[-2], len(self.content)):
            for bit in bits:
                content = bytearray(self.content)
                content[place] ^= 1 << bit
                yield self.judge(bytes(content), self.states[-2])

    def inner_flips(self, bits: Sequence[int] = range(8)) -> Iterator[str]:
        """The answer to each flipped bit of what comes before the last batch: nothing may be missing then."""
        for place in range(self.ends[-2]):
            for bit in bits:
                content = bytearray(self.content)
                content[place] ^= 1 << bit
                yield self.judge(bytes(content), self.states[-1])


def measure(folder: Path) -> dict[str, dict[str, int]]:
    """The counts of each answer, by encoding and kind of damage."""
    counted: dict[str, dict[str, int]] = {}
    encodings: tuple[Encoding, ...] = ("raw", "zstd")
    for encoding in encodings:
        victim = Victim(folder, encoding)
        for kind, answers in (
            ("cuts", victim.cuts()),
            ("flips", victim.flips()),
            ("inner flips", victim.inner_flips()),
        ):
            counts = Counter(answers)
            counted[f"{encoding} {kind}"] = {answer: counts[answer] for answer in ANSWERS}
    return counted


def main() -> int:
    """Run and print; 1 if anything was altered."""
    parser = argparse.ArgumentParser(description="Every cut of a JSONL log and every flipped bit.")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        counted = measure(Path(folder))
    total = {answer: sum(counts[answer] for counts in counted.values()) for answer in ANSWERS}
    if options.json:
        print(json.dumps({**counted, "total": total}))
    else:
        for name, counts in {**counted, "total": total}.items():
            print(f"{name:18}" + ", ".join(f"{answer} {count}" for answer, count in counts.items()))
    return 1 if total["altered"] else 0


if __name__ == "__main__":
    raise SystemExit(main())
