"""What a session shows is read from its newest snapshot and the events since, for whatever was done to it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

from seriatim.actors import surfaces
from seriatim.actors.surfaces import read_messages
from seriatim.actors.transcript import Transcript
from seriatim.commits import Commit, Durable, Part
from seriatim.edits import compress
from seriatim.events import Event, LogId
from seriatim.storage.memory import MemoryStore
from seriatim.surface import fold, model_context
from tests.growth.worlds import CountingReader
from tests.persistence.histories import History

LOG = LogId("session:s")


class Session:
    """A session's log in a store."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.events: list[Event] = []
        self.read: list[tuple[LogId, int, int]] = []
        self.reader: Any = CountingReader(self.store.reader(), self.read)

    def append(self, events: Sequence[Event]) -> None:
        """One commit."""
        header = None if self.events else {"id": "s"}
        part = Part(LOG, len(self.events), tuple(events), None, header)
        (outcome,) = self.store.commit([Commit(f"c{len(self.events)}", LOG, 1, (part,))])
        assert type(outcome) is Durable, outcome
        self.events += events

    def shown(self) -> list[Event]:
        """What a reader finds; the snapshot is kept if one is due."""
        self.read.clear()
        messages, snapshot = read_messages(self.reader, LOG, len(self.events))
        if snapshot is not None:
            self.store.keep([snapshot])
        return list(messages)


def events_of(history: History) -> list[Event]:
    """Some actions more."""
    before = len(history.log)
    actions = [history.turn] * 5 + [history.undo, history.redo, history.retry, history.compress, history.prune]
    for _ in range(history.random.randint(1, 6)):
        history.random.choice([*actions, history.rewrite, history.wipe])()
    return history.log[before:]


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Snapshots are due soon, reach back a little, and short gaps are skipped."""
    monkeypatch.setattr(surfaces, "CHECKPOINT_EVENTS", 12)
    monkeypatch.setattr(surfaces, "SURFACE_TURNS_KEPT", 2)
    monkeypatch.setattr(surfaces, "SURFACE_SKIP_EVENTS", 3)


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize("seed", range(25))
def test_what_is_read_is_what_the_whole_log_shows(seed: int) -> None:
    """After each of many commits, with snapshots of any age, and for a transcript that was there all the time."""
    history, session, chance = History(seed), Session(), random.Random(seed)
    warm = Transcript()
    warm.begin("s")
    for _ in range(14):
        events = events_of(history)
        if not events:
            continue
        session.append(events)
        warm.extend(events)
        if chance.random() < 0.6:
            expected = model_context(fold(session.events), session.events.__getitem__)
            found = session.shown()
            assert found == expected
            if warm.missing:
                warm.complete(read_messages(session.store.reader(), LOG, warm.missing)[0])
            assert [message.data for message in warm.before(10**9)] == [event.data for event in expected]


def test_a_compressed_session_is_not_read_from_its_beginning() -> None:
    """A summary and the turns after it cost what they cost, however long the log before them is."""
    history, session = History(1), Session()
    while len(history.log) < 3_000:
        history.turn()
    seqs = history.surface.seqs()
    summary = compress(history.surface, seqs[0], seqs[-1], "in short", 1)
    history.append("compress", (summary,))
    session.append([*history.log[: summary.seq + 1]])
    assert [event.seq for event in session.shown()] == [summary.seq]
    before = len(history.log)
    for _ in range(3):
        history.turn()
    session.append(history.log[before:])
    shown = session.shown()
    assert shown[0].seq == summary.seq
    assert sum(count for _, _, count in session.read) < 100
