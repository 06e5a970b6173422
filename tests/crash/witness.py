"""What is durable, by the store's own word, and whether each effect is explained by it (law 2)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from seriatim.commits import Commit, Durable, Outcome
from seriatim.events import Event, LogId
from seriatim.storage.contract import Archive, Checkpoint, StoreReader
from seriatim.storage.sqlite import SqliteStore


class Witness:
    """The facts of all durable events that effects are judged by; filled from the file, then commit by commit."""

    def __init__(self) -> None:
        self.messages: set[str] = set()
        self.running: dict[str, int | None] = {}
        self.claimed: set[tuple[str, int]] = set()
        self.calls: set[tuple[str, str]] = set()
        self.results: set[tuple[str, str]] = set()
        self.attempts: Counter[tuple[str, int]] = Counter()
        self.owed: set[str] = set()
        self.heads: dict[str, int] = {}

    def read(self, reader: StoreReader, whole: Callable[[StoreReader, LogId], Sequence[Event]]) -> None:
        """Take in what the file holds; ``whole`` gives all events of a log."""
        for log in all_logs(reader):
            self.take(log, whole(reader, log))

    def take(self, log: LogId, events: Sequence[Event]) -> None:
        """Take in durable events; those that are known are passed over."""
        for event in events:
            if event.seq == self.heads.get(log, 0):
                self.heads[log] = event.seq + 1
                self._take(log, event)

    def _take(self, log: LogId, event: Event) -> None:
        data = event.data
        owner = log.partition(":")[2]
        match event.type:
            case "inbox/accepted":
                self.messages.add(data.get("messageId", ""))
            case "inbox/claimed":
                self.running[owner] = data["generation"]
                self.claimed.add((owner, data["generation"]))
            case "inbox/answered" if data["by"] == "turn":
                self.running[owner] = None
            case "inbox/interrupted":
                self.running[owner] = None
            case "tool/call":
                self.calls.add((owner, data["id"]))
            case "tool/result":
                self.results.add((owner, data["id"]))
            case "delivery/owed":
                self.owed.add(data["id"])
                if data.get("attempt"):
                    self.attempts.update((data["id"], part) for part in range(len(data["parts"])))
            case "delivery/attempt":
                self.attempts[data["id"], data["part"]] += 1
            case _:
                pass


def all_logs(reader: StoreReader) -> list[LogId]:
    """Every log of the store."""
    logs: list[LogId] = []
    for prefix in ("lane:", "session:"):
        while page := reader.logs(prefix, logs[-1] if logs and logs[-1].startswith(prefix) else ""):
            logs += page
    return logs


class WitnessedStore:
    """The real store, with the witness beside it; below any fault that is played.

    ``watched`` is called with a name and what to do, for each step of upkeep; ``archived`` gets the events that go.
    """

    def __init__(
        self,
        inner: SqliteStore,
        witness: Witness,
        watched: Callable[[str, Callable[[], Any]], Any],
        archived: dict[LogId, list[Event]],
    ) -> None:
        self.inner = inner
        self._watched = watched
        self._archived = archived
        self._witness = witness
        self._readers: list[StoreReader] = []

    @property
    def epoch(self) -> int:
        """See ``Store.epoch``."""
        return self.inner.epoch

    def commit(self, commits: Sequence[Commit]) -> list[Outcome]:
        """See ``Store.commit``."""
        outcomes = self.inner.commit(commits)
        for commit, outcome in zip(commits, outcomes, strict=True):
            if type(outcome) is Durable:
                for part in commit.parts:
                    self._witness.take(part.log, part.events)
        return outcomes

    def fence(self, lane: LogId, incarnation: int) -> None:
        """See ``Store.fence``."""
        self.inner.fence(lane, incarnation)

    def keep(self, checkpoints: Sequence[Checkpoint]) -> int:
        """See ``Store.keep``."""
        kept: int = self._watched("keep", partial(self.inner.keep, checkpoints))
        return kept

    def compact(self, archive: Archive, parts_max: int) -> bool:
        """See ``Store.compact``."""
        reader = self.inner.reader()
        events = self._archived.setdefault(archive.log, [])
        if archive.base > len(events):
            events += reader.read(archive.log, len(events), archive.base - len(events))
        reader.close()
        more: bool = self._watched("compact", partial(self.inner.compact, archive, parts_max))
        return more

    def reader(self) -> StoreReader:
        """See ``Store.reader``; closed with the store."""
        reader = self.inner.reader()
        self._readers.append(reader)
        return reader

    def close(self) -> None:
        """Close the store and every reader of it."""
        for reader in self._readers:
            reader.close()
        self.inner.close()
