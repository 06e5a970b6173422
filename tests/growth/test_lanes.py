"""A lane that has grown long starts from its checkpoints, and its history is read when a turn needs it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from seriatim.commits import Commit, Part
from seriatim.events import Event, lane_log, session_log
from seriatim.lane import LaneState, fold
from seriatim.storage.contract import Checkpoint, Store
from seriatim.storage.memory import MemoryDisk, MemoryStore
from seriatim.storage.sqlite import SqliteStore
from tests.growth.worlds import Life, texts

Lives = Callable[..., Life]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A database of its own."""
    return tmp_path / "state.db"


@pytest.fixture
def lives(path: Path) -> Iterator[Lives]:
    """Lives of the process on one database, one after the other."""
    made: list[Life] = []

    def live(seed: int = 1) -> Life:
        if made:
            made[-1].end()
        made.append(Life(lambda: SqliteStore(path), seed=seed))
        return made[-1]

    yield live
    made[-1].end()


def told(life: Life) -> LaneState:
    """The fold of all events of the only live lane."""
    key, reader = life.key, life.look
    return fold(key, reader.read(lane_log(key)), lambda session: reader.read(session_log(session)))


def sql(path: Path, *statements: str) -> None:
    """Change the file behind everybody's back."""
    connection = sqlite3.connect(path, isolation_level=None)
    for statement in statements:
        connection.execute(statement)
    connection.close()


def test_a_lane_takes_checkpoints_as_it_grows(lives: Lives) -> None:
    """After a few turns both logs have one, near their heads."""
    life = lives()
    life.talk(6)
    lane = life.look.checkpoint(life.log, "state")
    session = life.look.checkpoint(session_log(life.state.bound or ""), "state")
    assert isinstance(lane, Checkpoint)
    assert isinstance(session, Checkpoint)
    assert 0 <= life.state.head - lane.seq < 10
    assert life.state.session is not None
    assert 0 <= life.state.session.head - session.seq < 10


def test_a_short_lane_has_none(lives: Lives) -> None:
    """One turn is below the bound: nothing is written beside its commits."""
    life = lives()
    life.talk(1)
    assert life.look.checkpoint(life.log, "state") is None


def test_going_to_rest_takes_one(lives: Lives) -> None:
    """The next activation then has nothing to fold."""
    life = lives()
    life.talk(1)
    key = life.key
    life.rest()
    life.read.clear()
    life.say("again")
    assert life.key == key
    assert [count for _, _, count in life.read[:2]] == [0, 0]


def test_an_activation_reads_only_the_tail(lives: Lives) -> None:
    """A lane of many turns is live after reading a few events; its history is read once, before the turn."""
    lives().talk(30)
    life = lives()
    life.say("and now?")
    lane, session, history, *more = life.read
    assert not more
    assert lane[0] == life.log
    assert lane[2] < 10
    assert session[2] < 10
    assert history[0] == session[0]
    assert texts(life.jobs[0].history) == [text for n in range(30) for text in (str(n), f"re: {n}")]
    assert life.state == told(life)


def test_history_is_read_once_an_incarnation(lives: Lives) -> None:
    """The second turn goes on with what the first one read."""
    lives().talk(10)
    life = lives()
    life.talk(2)
    assert len(life.read) == 3
    assert texts(life.jobs[1].history)[-4:] == ["9", "re: 9", "0", "re: 0"]


def test_what_is_said_while_history_is_read_is_not_lost(lives: Lives) -> None:
    """Messages that come before the history does wait in order, and their turns see all that was before."""
    lives().talk(10)
    for seed in range(5):
        life = lives(seed)
        before = ["one", "two", "three"]
        for text in before:
            life.say(text, run=False)
        life.run()
        said = texts(life.jobs[-1].history) + [claim.text for claim in life.jobs[-1].claims]
        assert [text for text in said if text in before][-3:] == before
        assert life.state == told(life)


def lived_in() -> MemoryDisk:
    """A disk on which a lane has had ten turns, and is at rest."""
    disk = MemoryDisk()
    life = Life(lambda: MemoryStore(disk))
    life.talk(10)
    life.end()
    return disk


def claimed(disk: MemoryDisk, seed: int, text: str) -> Life:
    """A life on it up to the commit that claims ``text`` for a turn; its history may not be there yet."""
    life = Life(lambda: MemoryStore(disk), seed=seed)
    life.say(text, run=False)
    while not any(gate.durable.running for gate in life.runtime.directory.gates()):
        life.dispatcher.step()
    return life


def test_a_stop_before_the_history_is_there_starts_no_turn() -> None:
    """In whatever order stop and history come, the next turn has its history, and no slot is lost."""
    disk = lived_in()
    never_began = 0
    for seed in range(12):
        life = claimed(disk, seed, "never mind")
        life.say("/stop")
        never_began += not life.jobs
        assert life.runtime.slots.held == 0
        life.say("now")
        assert [claim.text for claim in life.jobs[-1].claims] == ["now"]
        assert life.state == told(life)
        life.say("/new")
        life.talk(5)
        life.end()
    assert 0 < never_began < 12


def test_an_incarnation_that_ends_before_the_history_is_there_loses_no_turn() -> None:
    """Its log moves on behind its back: the successor doesn't take a turn for running that never began."""
    disk = lived_in()
    waited = 0
    for seed in range(12):
        life = claimed(disk, seed, "one")
        waited += not life.jobs
        head = life.state.head
        late = Event("turn/late", head, 1, {"turn": 1, "generation": 1, "reason": "test"})
        life.store.commit([Commit(f"foreign {seed}", life.log, 10**6, (Part(life.log, head, (late,)),))])
        life.say("two", run=False)
        life.wait()
        said = [claim.text for job in life.jobs for claim in job.claims]
        assert said[-1] == "two"
        assert "one" in said
        assert not life.state.waiting
        assert life.runtime.slots.held == 0
        assert life.state == told(life)
        life.end()
    assert waited > 0


@pytest.mark.parametrize(
    "damage",
    [
        "DELETE FROM checkpoints",
        "UPDATE checkpoints SET version = version + 1",
        "UPDATE checkpoints SET crc = crc + 1",
        "UPDATE checkpoints SET data = replace(data, 'accepted\":', 'accepted\":1')",
        "UPDATE checkpoints SET seq = seq - 2",
        "UPDATE checkpoints SET chain = chain + 1",
        "UPDATE checkpoints SET data = 'not JSON'",
    ],
)
def test_an_odd_checkpoint_costs_only_time(lives: Lives, path: Path, damage: str) -> None:
    """Without checkpoints, or with ones that aren't what was kept, state and history are the same; new ones come."""
    life = lives()
    life.talk(12)
    key = life.key
    life.end()
    sql(path, damage)
    life = lives()
    life.say("and now?")
    assert life.key == key
    assert life.state.accepted == 13
    assert life.state == told(life)
    assert texts(life.jobs[0].history) == [text for n in range(12) for text in (str(n), f"re: {n}")]
    assert life.look.checkpoint(life.log, "state") is not None
    assert life.errors == []


def test_history_that_cannot_be_read_fails_its_turn(lives: Lives, path: Path) -> None:
    """The user is answered, the operator told, and the lane goes on; a fresh conversation works."""
    life = lives()
    life.talk(12)
    life.end()
    sql(path, "UPDATE events SET data = replace(data, 'text', 'test') WHERE at = (SELECT min(at) + 8 FROM events)")
    life = lives()
    receipt = life.say("and now?")
    assert receipt.end is not None
    assert receipt.end.reason == "failed"
    assert life.errors
    assert "CorruptionError" in life.errors[0]
    assert life.runtime.slots.held == 0
    life.say("/new")
    assert life.say("hello").end is not None
    assert [claim.text for claim in life.jobs[-1].claims] == ["hello"]


def test_a_new_conversation_has_its_own_checkpoint(lives: Lives) -> None:
    """After /new the old session's checkpoint isn't the new one's."""
    life = lives()
    life.talk(10)
    old = life.state.bound
    life.say("/new")
    life.talk(10)
    new = life.state.bound
    assert old != new
    life = lives()
    life.say("and now?")
    assert life.state == told(life)
    assert texts(life.jobs[0].history) == [text for n in range(10) for text in (str(n), f"re: {n}")]


def test_the_store_in_memory_serves_as_well() -> None:
    """Checkpoints are the port's, not SQLite's."""
    disk = MemoryDisk()

    def open_store() -> Store:
        return MemoryStore(disk)

    first = Life(open_store)
    first.talk(12)
    first.end()
    life = Life(open_store)
    life.say("and now?")
    assert life.read[0][2] < 10
    assert len(texts(life.jobs[0].history)) == 24
    life.end()
