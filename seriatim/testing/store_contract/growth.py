"""Claims about what keeps long logs fast: checkpoints and archives."""

from __future__ import annotations

from typing import Any

import pytest

from seriatim.commits import Durable, Hot
from seriatim.errors import (
    HeadMismatchError,
    InvalidInputError,
    LogCompactedError,
    LogNotFoundError,
    LosslessJsonError,
    OwnershipLostError,
    StoreUnhealthyError,
)
from seriatim.events import LogId
from seriatim.storage.checkpoints import read_whole
from seriatim.storage.contract import Archive, Balance, Checkpoint, Store, StoreReader

from .world import LANE, SESSION, StoreWorld, born, commit, one, part

NOTHING = Balance(0, 0, 0, 0, 0)


def grown(store: Store, commits: int, each: int = 2) -> None:
    """A lane of so many commits of so many events each."""
    for number in range(commits):
        made = commit(f"c{number}", part(LANE, number * each, each), unique=(f"key {number}",))
        assert type(one(store, made)) is Durable


def checkpoint(seq: int, **changed: Any) -> Checkpoint:
    """The lane's checkpoint at ``seq``."""
    fields: dict[str, Any] = {"log": LANE, "of": "state", "seq": seq, "version": 1, "data": {"n": seq, "ü": ["\n"]}}
    return Checkpoint(**{**fields, **changed})


def archive(base: int, counts: Balance = NOTHING, **changed: Any) -> Archive:
    """What stands for the lane's first ``base`` events."""
    fields: dict[str, Any] = {"log": LANE, "base": base, "version": 1, "counts": counts, "data": {"n": base}}
    return Archive(**{**fields, **changed})


def compacted(store: Store, base: int) -> None:
    """Compact to the end."""
    while store.compact(archive(base), 2):
        pass


def seqs(reader: StoreReader, from_seq: int) -> list[int]:
    """The numbers of the lane's events from there on."""
    return [event.seq for event in reader.read(LANE, from_seq)]


class GrowthClaims:
    """Claims about `Store.keep`, `Store.compact`, `StoreReader.checkpoint` and `StoreReader.archive`."""

    # Checkpoints

    def test_a_checkpoint_comes_back_as_it_was(self, world: StoreWorld) -> None:
        """What was kept at the end of a commit is read with equal fields."""
        store = world.open()
        grown(store, 2)
        assert store.keep([checkpoint(4)]) == 1
        assert store.reader().checkpoint(LANE, "state") == checkpoint(4)

    def test_there_is_none_before_one_was_kept(self, world: StoreWorld) -> None:
        """Neither a log without one, nor a log that doesn't exist, nor the other fold has a checkpoint."""
        store = world.open()
        grown(store, 2)
        store.keep([checkpoint(2)])
        reader = store.reader()
        assert reader.checkpoint(LANE, "surface") is None
        assert reader.checkpoint(SESSION, "state") is None

    def test_a_later_checkpoint_replaces_the_earlier(self, world: StoreWorld) -> None:
        """One checkpoint a fold and log: space is bounded."""
        store = world.open()
        grown(store, 3)
        assert store.keep([checkpoint(2), checkpoint(6, of="surface")]) == 2
        assert store.keep([checkpoint(4)]) == 1
        reader = store.reader()
        assert reader.checkpoint(LANE, "state") == checkpoint(4)
        assert reader.checkpoint(LANE, "surface") == checkpoint(6, of="surface")

    def test_a_checkpoint_belongs_to_the_end_of_a_commit(self, world: StoreWorld) -> None:
        """Inside a commit, beyond the head, at nothing, or of no log: it is left out, and the others are kept."""
        store = world.open()
        grown(store, 2)
        offered = [checkpoint(3), checkpoint(9), checkpoint(0), checkpoint(2, log=LogId("lane:none")), checkpoint(2)]
        assert store.keep(offered) == 1
        assert store.reader().checkpoint(LANE, "state") == checkpoint(2)

    def test_a_malformed_checkpoint_is_refused(self, world: StoreWorld) -> None:
        """Data that JSON would change is the caller's fault."""
        store = world.open()
        grown(store, 1)
        with pytest.raises(LosslessJsonError):
            store.keep([checkpoint(2, data={"x": (1, 2)})])

    def test_checkpoints_change_no_event(self, world: StoreWorld) -> None:
        """Keeping one leaves log, counters and keys as they are, and the next commit succeeds."""
        store = world.open()
        grown(store, 1)
        before = store.reader().read(LANE)
        store.keep([checkpoint(2)])
        assert store.reader().read(LANE) == before
        assert type(one(store, commit("next", part(LANE, 2, header=None)))) is Durable

    def test_an_earlier_owner_keeps_nothing(self, world: StoreWorld) -> None:
        """Who has lost the store neither changes a checkpoint nor raises."""
        first = world.open()
        grown(first, 2)
        world.open()
        assert first.keep([checkpoint(2)]) == 0
        assert first.reader().checkpoint(LANE, "state") is None

    def test_a_closed_store_keeps_nothing(self, world: StoreWorld) -> None:
        """Upkeep that comes too late is no error."""
        store = world.open()
        grown(store, 1)
        store.close()
        assert store.keep([checkpoint(2)]) == 0

    # Archives

    def test_an_archive_stands_for_the_beginning(self, world: StoreWorld) -> None:
        """After compaction the log is read from its base on, and the archive comes back as it was."""
        store = world.open()
        grown(store, 5)
        compacted(store, 6)
        reader = store.reader()
        assert reader.archive(LANE) == archive(6)
        assert seqs(reader, 6) == [6, 7, 8, 9]
        assert seqs(reader, 8) == [8, 9]
        assert seqs(reader, 7) == [7, 8, 9]

    def test_what_is_gone_is_never_taken_for_empty(self, world: StoreWorld) -> None:
        """Reading below the base is refused with the base."""
        store = world.open()
        grown(store, 3)
        compacted(store, 4)
        with pytest.raises(LogCompactedError) as caught:
            store.reader().read(LANE)
        assert caught.value.base == 4

    def test_the_whole_of_a_log_is_archive_and_events(self, world: StoreWorld) -> None:
        """Who reads all gets both; without an archive, all events."""
        store = world.open()
        grown(store, 3)
        assert read_whole(store.reader(), LANE) == (None, store.reader().read(LANE))
        compacted(store, 4)
        whole = read_whole(store.reader(), LANE)
        assert whole[0] == archive(4)
        assert [event.seq for event in whole[1]] == [4, 5]

    def test_the_steps_of_a_compaction_are_bounded(self, world: StoreWorld) -> None:
        """A call removes at most so many commits and says whether there are more; the log reads alike at each step."""
        store = world.open()
        grown(store, 6)
        steps = []
        while True:
            steps.append(store.compact(archive(10), 2))
            assert seqs(store.reader(), 10) == [10, 11]
            if not steps[-1]:
                break
        assert steps == [True, True, False]

    def test_a_log_compacted_to_its_head_goes_on(self, world: StoreWorld) -> None:
        """Nothing is left to read, and the next commit follows the removed events: here, and for the next owner."""
        store = world.open()
        grown(store, 3)
        compacted(store, 6)
        assert seqs(store.reader(), 6) == []
        assert type(one(store, commit("next", part(LANE, 6, 2)))) is Durable
        world.crash()
        again = world.open()
        assert seqs(again.reader(), 6) == [6, 7]
        assert type(one(again, commit("after", part(LANE, 8, 1)))) is Durable
        assert seqs(again.reader(), 6) == [6, 7, 8]

    def test_unique_keys_outlive_their_events(self, world: StoreWorld) -> None:
        """A redelivery of a message whose events were removed is still a duplicate."""
        store = world.open()
        grown(store, 3)
        compacted(store, 6)
        assert store.reader().has_keys(["key 0", "key 2"]) == {"key 0", "key 2"}
        (refused,) = store.commit([commit("again", part(LANE, 6, 1), unique=("key 0",))])
        assert getattr(refused, "keys_found", None) == ("key 0",)

    def test_a_removed_commit_is_not_written_twice(self, world: StoreWorld) -> None:
        """Offered again, whether or not its id is still known, it leaves nothing new."""
        store = world.open()
        grown(store, 3)
        compacted(store, 6)
        store.commit([commit("c0", part(LANE, 0, 2), unique=("key 0",))])
        store.commit([commit("c1", part(LANE, 2, 2), unique=("key 1",))])
        assert seqs(store.reader(), 6) == []

    def test_a_compaction_goes_on_after_a_crash(self, world: StoreWorld) -> None:
        """Killed between two steps, the archive stands, the log reads the same, and the rest goes at the next call."""
        store = world.open()
        grown(store, 6)
        assert store.compact(archive(8), 1)
        world.crash()
        again = world.open()
        assert again.reader().archive(LANE) == archive(8)
        assert seqs(again.reader(), 8) == [8, 9, 10, 11]
        assert again.compact(archive(8), 100) is False
        assert seqs(again.reader(), 8) == [8, 9, 10, 11]

    def test_a_log_is_compacted_again(self, world: StoreWorld) -> None:
        """A later archive takes the place of the earlier."""
        store = world.open()
        grown(store, 6)
        compacted(store, 4)
        compacted(store, 10)
        assert store.reader().archive(LANE) == archive(10)
        assert seqs(store.reader(), 10) == [10, 11]

    def test_a_base_never_goes_back(self, world: StoreWorld) -> None:
        """An archive below the present one is refused and changes nothing."""
        store = world.open()
        grown(store, 6)
        compacted(store, 8)
        with pytest.raises(HeadMismatchError):
            store.compact(archive(4), 10)
        assert store.reader().archive(LANE) == archive(8)

    def test_a_base_is_the_end_of_a_commit(self, world: StoreWorld) -> None:
        """Inside one, or beyond the head, it is refused."""
        store = world.open()
        grown(store, 3)
        for base in (3, 8):
            with pytest.raises(HeadMismatchError):
                store.compact(archive(base), 10)
        assert store.reader().archive(LANE) is None
        assert seqs(store.reader(), 0) == [0, 1, 2, 3, 4, 5]

    def test_an_archive_hides_no_open_work(self, world: StoreWorld) -> None:
        """Counts that don't hold, or tell of something that waits, are refused."""
        store = world.open()
        grown(store, 3)
        for counts in (Balance(2, 1, 0, 0, 1), Balance(2, 1, 0, 0, 0)):
            with pytest.raises(InvalidInputError):
                store.compact(archive(4, counts), 10)
        assert store.reader().archive(LANE) is None

    def test_no_log_no_archive(self, world: StoreWorld) -> None:
        """A log that doesn't exist can't be compacted."""
        with pytest.raises(LogNotFoundError):
            world.open().compact(archive(2), 10)

    def test_an_earlier_owner_compacts_nothing(self, world: StoreWorld) -> None:
        """Who has lost the store is told, and nothing is removed."""
        first = world.open()
        grown(first, 3)
        second = world.open()
        with pytest.raises(OwnershipLostError):
            first.compact(archive(4), 10)
        assert seqs(second.reader(), 0) == [0, 1, 2, 3, 4, 5]

    def test_a_closed_store_compacts_nothing(self, world: StoreWorld) -> None:
        """It says so."""
        store = world.open()
        grown(store, 3)
        store.close()
        with pytest.raises(StoreUnhealthyError):
            store.compact(archive(4), 10)

    def test_compaction_keeps_the_counters(self, world: StoreWorld) -> None:
        """Hot rows, other logs and bindings are as before."""
        store = world.open()
        hot = Hot(0, 0, 0, "idle", 5, 2, 2, 0, 0)
        assert type(one(store, born())) is Durable
        assert type(one(store, commit("c", part(LANE, 1, 2, hot=hot), part(SESSION, 1, 2)))) is Durable
        session = store.reader().read(SESSION)
        compacted(store, 3)
        reader = store.reader()
        assert reader.counters() == Balance(2, 2, 0, 0, 0)
        assert reader.binding(SESSION) == LANE
        assert reader.read(SESSION) == session

    def test_a_checkpoint_in_the_removed_part_is_gone(self, world: StoreWorld) -> None:
        """Once its commit is removed it proves nothing; one above the base still serves."""
        store = world.open()
        grown(store, 6)
        store.keep([checkpoint(4), checkpoint(10, of="surface")])
        compacted(store, 8)
        assert store.reader().checkpoint(LANE, "state") is None
        assert store.reader().checkpoint(LANE, "surface") == checkpoint(10, of="surface")
