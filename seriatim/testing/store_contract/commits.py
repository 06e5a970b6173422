"""Commits: the same one again, and many at once."""

from __future__ import annotations

from seriatim.commits import Binding, Durable, Hot, Part
from seriatim.errors import HeadMismatchError
from seriatim.events import Event, LogId

from .world import LANE, SECOND, SESSION, StoreWorld, born, commit, events, kinds, one, part, refusal


class OnceClaims:
    """A commit whose id is present succeeds without a second write."""

    def test_the_same_commit_again_is_durable_without_a_second_write(self, world: StoreWorld) -> None:
        """A commit whose id is present is Durable, although its expected head is old by then."""
        store, again = world.open(), commit("c", part(LANE, 0, 2), unique=("k",))
        assert kinds(store.commit([again])) == ["Durable"]
        assert kinds(store.commit([again])) == ["Durable"]
        assert len(store.reader().read(LANE)) == 2

    def test_the_same_commit_again_on_a_later_head(self, world: StoreWorld) -> None:
        """The same when the log has moved on, and when the owner is a new one."""
        store, again = world.open(), commit("c", part(LANE, 0, 2))
        store.commit([again, commit("d", part(LANE, 2))])
        assert kinds(store.commit([again])) == ["Durable"]
        store = world.open()
        assert kinds(store.commit([again])) == ["Durable"]
        assert len(store.reader().read(LANE)) == 3

    def test_the_id_decides_before_anything_else(self, world: StoreWorld) -> None:
        """A present id is Durable even for a fenced writer, a wrong binding, taken keys, data that isn't JSON."""
        store = world.open()
        store.commit([commit("c", part(LANE, 0), unique=("k",))])
        store.fence(LANE, 9)
        broken = Part(LANE, 7, (Event("x/y", 3, 0, {"x": (1,)}),))
        assert one(store, commit("c", broken, part(SESSION, 4), unique=("k",))) == Durable("c")

    def test_the_same_commit_twice_in_a_group(self, world: StoreWorld) -> None:
        """Twice in one group is written once and Durable twice."""
        store, twice = world.open(), commit("c", part(LANE, 0), unique=("k",))
        assert store.commit([twice, twice]) == [Durable("c"), Durable("c")]
        assert len(store.reader().read(LANE)) == 1


class GroupClaims:
    """A group means what its commits would mean one after another."""

    def test_an_empty_group(self, world: StoreWorld) -> None:
        """No commits, no outcomes."""
        assert world.open().commit([]) == []

    def test_a_group_in_order(self, world: StoreWorld) -> None:
        """Commits of one log build on each other inside a group; outcomes keep the order."""
        store = world.open()
        outcomes = store.commit([commit(f"c{n}", part(LANE, n)) for n in range(20)])
        assert outcomes == [Durable(f"c{n}") for n in range(20)]
        assert store.reader().read(LANE) == [e for n in range(20) for e in events(n, 1)[:1]]

    def test_a_bad_commit_fails_alone(self, world: StoreWorld) -> None:
        """Every kind of refusal in the middle of a group leaves the others durable."""
        store = world.open()
        lanes = [LogId(f"lane:{n}") for n in range(8)]
        store.commit([commit("old", part(LANE, 0), unique=("taken",))])
        group = [commit(f"c{n}", part(log, 0, 2), lane=log, unique=(f"k{n}",)) for n, log in enumerate(lanes)]
        group.insert(1, commit("x1", part(LANE, 9)))
        group.insert(3, commit("x2", part(LANE, 1), unique=("taken",)))
        group.insert(5, commit("x3", Part(LANE, 1, (Event("x/y", 1, 0, {"x": (1,)}),))))
        group.insert(7, commit("old", part(LANE, 0), unique=("taken",)))
        expected = ["Durable"] * 12
        expected[1], expected[3], expected[5] = "HeadMismatchError", "KeysTakenError", "LosslessJsonError"
        assert kinds(store.commit(group)) == expected
        assert all(len(store.reader().read(log)) == 2 for log in lanes)
        assert len(store.reader().read(LANE)) == 1

    def test_a_commit_is_all_or_nothing(self, world: StoreWorld) -> None:
        """A wrong second part keeps the first, its keys, header, hot row and binding out as well."""
        store = world.open()
        store.commit([born()])
        hot = Hot(1, 5, 0, "x", 1, 5, 0, 0, 0)
        bad = commit(
            "c", part(LANE, 1, hot=hot), part(SESSION, 7), part(SECOND, 0),
            unique=("k",), bindings=(Binding(SECOND, None, LANE),),
        )  # fmt: skip
        assert isinstance(refusal(store, bad), HeadMismatchError)
        assert store.reader().header(SECOND) is None
        assert store.reader().open_work() == []
        assert one(store, commit("d", part(LANE, 1), unique=("k",))) == Durable("d")

    def test_what_rests_on_a_refused_commit_is_refused(self, world: StoreWorld) -> None:
        """A commit on the head that a refused one would have made is a mismatch."""
        store = world.open()
        store.commit([commit("c", part(LANE, 0), unique=("k",))])
        outcomes = store.commit([commit("d", part(LANE, 1), unique=("k",)), commit("e", part(LANE, 2))])
        assert kinds(outcomes) == ["KeysTakenError", "HeadMismatchError"]

    def test_a_large_group(self, world: StoreWorld) -> None:
        """A thousand commits of different sizes in one group are durable and in order."""
        store = world.open()
        logs = [LogId(f"lane:{n}") for n in range(1000)]
        group = [commit(f"c{n}", part(log, 0, 1 + n % 19), lane=log) for n, log in enumerate(logs)]
        assert kinds(store.commit(group)) == ["Durable"] * 1000
        reader = store.reader()
        assert all(len(reader.read(log)) == 1 + n % 19 for n, log in enumerate(logs))
