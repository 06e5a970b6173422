"""Crashes and closing."""

from __future__ import annotations

from seriatim.commits import Hot, Refused
from seriatim.errors import StoreUnhealthyError

from .world import LANE, SESSION, StoreWorld, born, commit, events, kinds, one, part


class LifeClaims:
    """What a crash and a close leave."""

    def test_everything_durable_survives_a_crash(self, world: StoreWorld) -> None:
        """After a crash logs, headers, bindings, keys, rows and ids are as they were."""
        store, hot = world.open(), Hot(1, 1, 0, "running", 5, 1, 0, 0, 0)
        store.commit([born(count=9), commit("c", part(LANE, 9, hot=hot), unique=("k",))])
        world.crash()
        store = world.open()
        reader = store.reader()
        assert len(reader.read(LANE)) == 10
        assert reader.read(SESSION) == list(events(0, 9))
        assert reader.header(SESSION) == {"id": SESSION}
        assert reader.binding(SESSION) == LANE
        assert reader.has_keys(["k"]) == {"k"}
        assert reader.open_work() == [(LANE, hot)]
        assert kinds(store.commit([born(count=9)])) == ["Durable"]

    def test_the_epoch_survives_a_crash(self, world: StoreWorld) -> None:
        """An owner after a crash has a larger epoch than any before."""
        before = world.open().epoch
        world.crash()
        assert world.open().epoch > before

    def test_a_crash_without_any_commit(self, world: StoreWorld) -> None:
        """A store that crashed before its first commit opens empty."""
        world.open()
        world.crash()
        assert world.open().reader().logs("") == []

    def test_a_closed_store_refuses(self, world: StoreWorld) -> None:
        """After close a commit is surely absent; closing again is nothing."""
        store = world.open()
        store.close()
        store.close()
        outcome = one(store, commit("c", part(LANE, 0)))
        assert isinstance(outcome, Refused)
        assert isinstance(outcome.error, StoreUnhealthyError)
        assert world.open().reader().read(LANE) == []

    def test_a_closed_store_keeps_everything(self, world: StoreWorld) -> None:
        """What was durable is there after a close and a reopening."""
        store = world.open()
        store.commit([born(count=3)])
        store.close()
        assert len(world.open().reader().read(SESSION)) == 3

    def test_a_reader_outlives_its_store(self, world: StoreWorld) -> None:
        """A reader goes on after the owner has closed, and sees the next owner's commits."""
        store = world.open()
        reader = store.reader()
        store.commit([commit("c", part(LANE, 0))])
        store.close()
        assert len(reader.read(LANE)) == 1
        world.open().commit([commit("d", part(LANE, 1))])
        assert len(reader.read(LANE)) == 2
        reader.close()
        reader.close()
