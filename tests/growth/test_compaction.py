"""Lane logs are compacted at rest: the archive stands for what is gone, and nothing else changes."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from seriatim.actors.upkeep import CompactLane, Growth
from seriatim.errors import CorruptionError, LogCompactedError
from seriatim.events import lane_log
from seriatim.lane import LaneState, apply_lane
from seriatim.snapshots import lane_from_snapshot, lane_snapshot
from seriatim.storage.audit import audit
from seriatim.storage.checkpoints import read_whole
from seriatim.storage.contract import Archive, Store
from seriatim.storage.memory import MemoryDisk, MemoryStore
from seriatim.storage.sqlite import SqliteStore
from tests.growth.worlds import SOON, Life, texts

SMALL = Growth(events=10, rest_events=1, compact_events=40)


@pytest.fixture(params=["memory", "sqlite"])
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Store]:
    """An owner of one medium."""
    disk = MemoryDisk()
    if request.param == "memory":
        return lambda: MemoryStore(disk)
    return lambda: SqliteStore(tmp_path / "state.db")


def told(life: Life) -> LaneState:
    """The lane part by archive and events, of the only live lane; without its session."""
    archive, events = read_whole(life.look, life.log)
    state = LaneState(life.key) if archive is None else lane_from_snapshot(life.key, archive.version, archive.data)
    for event in events:
        apply_lane(state, event)
    return state


def test_a_long_lane_log_begins_with_an_archive(open_store: Callable[[], Store]) -> None:
    """Law 1 holds over archive and events as over the counters, the state is the same, and the conversation goes on."""
    life = Life(open_store, SMALL)
    life.talk(30)
    archive = life.look.archive(life.log)
    assert isinstance(archive, Archive)
    assert archive.base > 40
    with pytest.raises(LogCompactedError):
        life.look.read(life.log)
    found = audit(life.look)
    assert found.holds, found
    assert found.logs.accepted == found.logs.answered == 30
    assert lane_snapshot(told(life)) == lane_snapshot(life.state)
    assert life.errors == []
    life.end()
    again = Life(open_store, SMALL)
    again.say("and now?")
    assert texts(again.jobs[0].history)[-1] == "re: 29"
    assert again.state.accepted == 31
    assert audit(again.look).holds
    again.end()


def test_compaction_repeats_itself(open_store: Callable[[], Store]) -> None:
    """The log stays short however long the lane lives; every archive goes on from the one before."""
    life = Life(open_store, SMALL)
    bases = set()
    for _ in range(40):
        life.talk(2)
        archive = life.look.archive(life.log)
        bases.add(0 if archive is None else archive.base)
        assert life.state.head - max(bases) < 60
    assert len(bases) > 3
    found = audit(life.look)
    assert found.holds
    assert found.logs.accepted == 80
    life.end()


def test_without_checkpoints_an_archive_is_enough(open_store: Callable[[], Store]) -> None:
    """Checkpoints are a cache even of a compacted lane."""
    life = Life(open_store, Growth(events=10_000, rest_events=10_000, compact_events=40))
    life.talk(30)
    state = life.state
    assert life.look.archive(life.log) is not None
    assert life.look.checkpoint(life.log, "state") is None
    life.end()
    again = Life(open_store, SOON)
    again.say("/status")
    assert again.state.accepted == state.accepted + 1
    assert again.state.bound == state.bound
    assert lane_snapshot(told(again)) == lane_snapshot(again.state)
    again.end()


def test_a_redelivery_of_an_archived_message_is_a_duplicate(open_store: Callable[[], Store]) -> None:
    """Keys outlive the events, so the message isn't accepted a second time."""
    life = Life(open_store, SMALL)
    life.say("the first", message_id="first")
    life.talk(30)
    assert life.look.archive(life.log) is not None
    again = life.say("the first", message_id="first")
    assert again.outcome == "duplicate"
    assert life.state.accepted == 31
    life.end()


def test_nothing_is_compacted_below_the_bound_or_when_switched_off(open_store: Callable[[], Store]) -> None:
    """A lane shorter than the bound keeps all its events, and with 0 each does."""
    life = Life(open_store, SOON)
    life.talk(30)
    assert life.look.archive(life.log) is None
    assert len(life.look.read(life.log)) == life.state.head
    life.end()
    life = Life(open_store, Growth(compact_events=100_000))
    life.talk(2)
    assert life.look.archive(life.log) is None
    life.end()


def test_open_work_keeps_its_events(open_store: Callable[[], Store]) -> None:
    """While something waits or is owed nothing is compacted; once all is over, it is."""
    life = Life(open_store, SMALL)
    life.talk(3)
    life.runtime.slots._free = 0
    for number in range(60):
        life.say(f"wait {number}")
    assert life.state.waiting
    assert life.look.archive(life.log) is None
    life.runtime.slots._free = 1
    life.runtime.slots.give_back(life.key)
    life.say("go")
    life.talk(2)
    assert not life.state.waiting
    assert life.look.archive(life.log) is not None
    assert audit(life.look).holds
    life.end()


def test_a_fold_that_disagrees_is_not_archived(open_store: Callable[[], Store]) -> None:
    """When the live lane's word isn't what its log tells, nothing goes, and the operator hears of it."""
    life = Life(open_store, SOON)
    life.talk(12)
    told_state = {**lane_snapshot(life.state), "answered": 11}
    life.runtime._upkeep.signal(CompactLane(life.key, life.state.head, told_state))
    life.run()
    assert life.look.archive(life.log) is None
    assert [error for error in life.errors if "CorruptionError" in error]
    life.runtime._upkeep.signal(CompactLane(life.key, life.state.head, lane_snapshot(life.state)))
    life.run()
    assert life.look.archive(life.log) is not None
    life.end()


def test_lanes_wait_for_each_other(open_store: Callable[[], Store]) -> None:
    """Wishes that come together are all served."""
    life = Life(open_store, SOON)
    for chat in ("1", "2", "3"):
        life.talk(4, chat)
    states = [gate.durable for gate in life.runtime.directory.gates()]
    for state in states:
        life.runtime._upkeep.signal(CompactLane(state.key, state.head, lane_snapshot(state)))
    life.run()
    assert all(life.look.archive(lane_log(state.key)) is not None for state in states)
    assert audit(life.look).holds
    assert life.errors == []
    life.end()


def test_a_damaged_archive_is_an_error(tmp_path: Path) -> None:
    """It is part of the truth: its lane isn't served on a guess, and the balance says so."""
    path = tmp_path / "state.db"
    life = Life(lambda: SqliteStore(path), Growth(events=10_000, rest_events=10_000, compact_events=40))
    life.talk(12)
    life.end()
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("UPDATE archives SET answered = answered - 1, merged = merged + 1")
    connection.close()
    again = Life(lambda: SqliteStore(path), SOON)
    receipt = again.say("and now?")
    assert receipt.outcome == "refused"
    assert receipt.reason == "quarantined"
    (log,) = again.look.logs("lane:")
    with pytest.raises(CorruptionError):
        again.look.archive(log)
    assert not audit(again.look).holds
    again.end()
