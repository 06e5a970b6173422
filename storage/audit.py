"""The balance of law 1, from the counters and from the logs, independently.

Reads only. Used by ``seriatim balance`` and by the proofs.
"""

from __future__ import annotations

from collections.abc import Iterator

from attrs import frozen

from seriatim.errors import SeriatimError
from seriatim.events import Data, Event, LogId

from .checkpoints import read_whole
from .contract import Balance, StoreReader


@frozen
class Audit:
    """What was found. ``problems`` says in words where the two disagree or a log can't be read."""

    counters: Balance
    logs: Balance
    lanes: int
    problems: tuple[str, ...]

    @property
    def holds(self) -> bool:
        """Whether both hold, agree, and everything could be read."""
        return self.counters.holds and self.logs.holds and not self.problems


def audit(reader: StoreReader) -> Audit:
    """Count every lane log, its archive first, and compare with the counters. Cost: one pass over all lane logs."""
    counters = reader.counters()
    total = Count()
    problems: list[str] = []
    lanes = 0
    for log in _all(reader, "lane:"):
        lanes += 1
        count = Count()
        try:
            archive, events = read_whole(reader, log)
            if archive is not None:
                count = Count.of(archive.counts)
            for event in events:
                count.take(event)
        except SeriatimError as error:
            problems.append(f"{log}: {error}")
        problems.extend(f"{log}: {problem}" for problem in count.problems)
        total.add(count)
    logs = total.balance()
    if logs != counters:
        problems.append(f"the logs say {logs}, the counters say {counters}")
    return Audit(counters, logs, lanes, tuple(problems))


def _all(reader: StoreReader, prefix: str) -> Iterator[LogId]:
    after = ""
    while page := reader.logs(prefix, after):
        yield from page
        after = page[-1]


class Count:
    """Counts by the events' plain meaning, not by the rules' fold: a fault there must show here."""

    def __init__(self) -> None:
        self.accepted = 0
        self.ends = {"answered": 0, "merged": 0, "dropped": 0}
        self.waiting: set[str] = set()
        self.ended: set[str] = set()
        self.problems: list[str] = []

    @classmethod
    def of(cls, counts: Balance) -> Count:
        """Goes on from what a compacted log's archive stands for."""
        made = cls()
        made.accepted = counts.accepted
        made.ends = {"answered": counts.answered, "merged": counts.merged, "dropped": counts.dropped}
        return made

    def take(self, event: Event) -> None:
        """Count one lane event."""
        if event.type == "lane/merged":
            self._moved(event.data)
            return
        room, _, what = event.type.partition("/")
        if room != "inbox":
            return
        data = event.data
        if what == "accepted":
            if data["id"] in self.waiting or data["id"] in self.ended:
                self.problems.append(f"{data['id']} was accepted twice")
            self.accepted += 1
            self.waiting.add(data["id"])
        elif what in self.ends:
            for inbox_id in data["ids"] if "ids" in data else [data["id"]]:
                if inbox_id not in self.waiting:
                    self.problems.append(f"{inbox_id} was {what} without waiting")
                self.waiting.discard(inbox_id)
                self.ended.add(inbox_id)
                self.ends[what] += 1

    def _moved(self, data: Data) -> None:
        """Messages that wait count where they wait."""
        if "into" in data:
            self.accepted -= len(data["ids"])
            if self.waiting != set(data["ids"]):
                self.problems.append("a merged lane kept messages, or gave some that it had not")
            self.waiting.clear()
        else:
            moved = [told["id"] for told, _, _ in data["waiting"]]
            self.accepted += len(moved)
            if len({*moved, *self.waiting, *self.ended}) < len(moved) + len(self.waiting) + len(self.ended):
                self.problems.append("a message came twice when lanes were merged")
            self.waiting.update(moved)

    def add(self, other: Count) -> None:
        """Add another lane's numbers."""
        self.accepted += other.accepted
        for name, count in other.ends.items():
            self.ends[name] += count
        self.waiting |= other.waiting

    def balance(self) -> Balance:
        """The sums."""
        return Balance(self.accepted, **self.ends, waiting=len(self.waiting))
