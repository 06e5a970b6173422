"""Durable, Refused, Unknown: what is told when the medium fails."""

from __future__ import annotations

from seriatim.commits import Durable
from seriatim.events import LogId
from seriatim.storage.contract import Erasure

from .world import LANE, OTHER, StoreWorld, commit, kinds, one, part


class OutcomeClaims:
    """Refused is surely absent, Durable is there, and whatever is neither is Unknown until it is settled."""

    def test_an_io_error_before_the_write_is_unknown(self, world: StoreWorld) -> None:
        """Offered again, the commit is written once, and is Durable."""
        store, offered = world.open(), commit("c", part(LANE, 0), unique=("k",))
        world.fail(store, done=False)
        assert kinds(store.commit([offered])) == ["Unknown"]
        assert one(store, offered) == Durable("c")
        assert len(store.reader().read(LANE)) == 1

    def test_an_io_error_after_the_write_is_unknown(self, world: StoreWorld) -> None:
        """Offered again, the commit is found, not written twice, and is Durable."""
        store, offered = world.open(), commit("c", part(LANE, 0), unique=("k",))
        world.fail(store, done=True)
        assert kinds(store.commit([offered])) == ["Unknown"]
        assert one(store, offered) == Durable("c")
        assert len(store.reader().read(LANE)) == 1

    def test_doubt_is_settled_under_a_new_epoch(self, world: StoreWorld) -> None:
        """Nothing that the failed handle may still write can come after the answer."""
        store = world.open()
        before = store.epoch
        world.fail(store, done=False)
        store.commit([commit("c", part(LANE, 0))])
        store.commit([commit("c", part(LANE, 0))])
        assert store.epoch > before

    def test_a_whole_group_is_in_doubt(self, world: StoreWorld) -> None:
        """Each of a failed group is Unknown; offered again, each is there once."""
        store = world.open()
        group = [commit(f"c{n}", part(LogId(f"lane:{n}"), 0, 3), lane=LogId(f"lane:{n}")) for n in range(9)]
        world.fail(store, done=True)
        assert kinds(store.commit(group)) == ["Unknown"] * 9
        assert kinds(store.commit(group)) == ["Durable"] * 9
        assert [info.head for info in store.reader().scan("lane:")] == [3] * 9

    def test_what_rests_on_doubt_is_in_doubt(self, world: StoreWorld) -> None:
        """A duplicate of a key of the failed group is no duplicate yet: an ack of it might be a lie."""
        store = world.open()
        group = [commit("c", part(LANE, 0), unique=("k",)), commit("d", part(OTHER, 0), lane=OTHER, unique=("k",))]
        world.fail(store, done=False)
        assert kinds(store.commit(group)) == ["Unknown", "Unknown"]
        assert kinds(store.commit(group)) == ["Durable", "KeysTakenError"]

    def test_what_rests_on_nothing_new_is_refused_all_the_same(self, world: StoreWorld) -> None:
        """What checks refuse before any write keeps its reason beside a group in doubt, a known duplicate too."""
        store = world.open()
        store.commit([commit("a", part(LANE, 0), unique=("k",))])
        world.fail(store, done=False)
        group = [commit("c", part(OTHER, 0), lane=OTHER), commit("d", part(LANE, 9), unique=("k",))]
        assert kinds(store.commit(group)) == ["Unknown", "KeysTakenError"]

    def test_others_go_on_after_doubt(self, world: StoreWorld) -> None:
        """A commit of another lane doesn't wait for the one in doubt to be offered again."""
        store = world.open()
        world.fail(store, done=False)
        store.commit([commit("c", part(LANE, 0))])
        assert one(store, commit("d", part(OTHER, 0), lane=OTHER)) == Durable("d")
        assert one(store, commit("c", part(LANE, 0))) == Durable("c")

    def test_doubt_that_a_new_owner_made_final(self, world: StoreWorld) -> None:
        """Who has lost the store may still ask: what arrived is Durable, what didn't is OwnershipLost."""
        for done, answer in ((True, "Durable"), (False, "OwnershipLostError")):
            old = world.open()
            offered = commit(f"c{done}", part(LogId(f"lane:{done}"), 0), lane=LogId(f"lane:{done}"))
            world.fail(old, done=done)
            assert kinds(old.commit([offered])) == ["Unknown"]
            world.open()
            assert kinds(old.commit([offered])) == [answer]
            assert kinds(old.commit([commit(f"new{done}", part(LANE, 0))])) == ["OwnershipLostError"]

    def test_doubt_outlives_the_handle(self, world: StoreWorld) -> None:
        """A store closed in doubt never says that the commit is absent; the next owner knows."""
        store, offered = world.open(), commit("c", part(LANE, 0))
        world.fail(store, done=True)
        store.commit([offered])
        store.close()
        assert kinds(store.commit([offered, commit("d", part(OTHER, 0), lane=OTHER)])) == [
            "Unknown", "StoreUnhealthyError",
        ]  # fmt: skip
        assert one(world.open(), offered) == Durable("c")

    def test_an_erasure_in_doubt(self, world: StoreWorld) -> None:
        """An erasure that failed is Unknown; given again, it is done, and told once."""
        store = world.open()
        for done in (True, False):
            log = LogId(f"lane:{done}")
            store.commit([commit(f"c{done}", part(log, 0), lane=log)])
            order = Erasure(f"erase{done}", log, 2, 0)
            world.fail(store, done=done)
            assert kinds([store.erase(order)]) == ["Unknown"]
            assert store.erase(order) == Durable(order.id)
            assert store.reader().read(log) == []
        assert len(store.reader().read(LogId("system"))) == 2
