"""Who may write: bindings, epochs, incarnations."""

from __future__ import annotations

from seriatim.commits import Binding, Durable
from seriatim.errors import BindingMismatchError, LogNotFoundError, OwnershipLostError
from seriatim.events import LogId

from .world import LANE, OTHER, SECOND, SESSION, StoreWorld, born, commit, kinds, one, part, refusal


class BindingClaims:
    """A session belongs to at most one lane."""

    def test_a_binding_is_readable(self, world: StoreWorld) -> None:
        """The lane that a session was bound to, after a reopening too; None without one."""
        store = world.open()
        store.commit([born()])
        assert store.reader().binding(SESSION) == LANE
        assert world.open().reader().binding(SESSION) == LANE
        assert store.reader().binding(SECOND) is None

    def test_a_session_part_needs_its_binding(self, world: StoreWorld) -> None:
        """A session that isn't bound to the writer refuses its events."""
        store = world.open()
        error = refusal(store, commit("c", part(LANE, 0), part(SESSION, 0)))
        assert isinstance(error, BindingMismatchError)
        assert (error.session, error.expected, error.actual) == (SESSION, LANE, None)

    def test_another_lane_may_not_write_the_session(self, world: StoreWorld) -> None:
        """A lane that lost its session can't write it any more."""
        store = world.open()
        store.commit([born(), commit("b", part(OTHER, 0), lane=OTHER)])
        error = refusal(store, commit("c", part(OTHER, 1), part(SESSION, 1), lane=OTHER))
        assert isinstance(error, BindingMismatchError)
        assert (error.expected, error.actual) == (OTHER, LANE)

    def test_a_binding_moves_by_compare_and_set(self, world: StoreWorld) -> None:
        """The right expectation moves the session, and its events come with the same commit."""
        store = world.open()
        store.commit([born(), commit("b", part(OTHER, 0), lane=OTHER)])
        move = (Binding(SESSION, LANE, OTHER),)
        assert one(store, commit("c", part(OTHER, 1), part(SESSION, 1), lane=OTHER, bindings=move)) == Durable("c")
        assert store.reader().binding(SESSION) == OTHER
        assert isinstance(refusal(store, commit("d", part(LANE, 1), part(SESSION, 2))), BindingMismatchError)

    def test_a_wrong_expectation_is_refused(self, world: StoreWorld) -> None:
        """Of two moves of one session in a group the second finds it gone."""
        store = world.open()
        third = LogId("lane:c")
        store.commit([born(), commit("b", part(OTHER, 0), lane=OTHER), commit("t", part(third, 0), lane=third)])
        outcomes = store.commit(
            [
                commit("c", part(OTHER, 1), lane=OTHER, bindings=(Binding(SESSION, LANE, OTHER),)),
                commit("d", part(third, 1), lane=third, bindings=(Binding(SESSION, LANE, third),)),
            ]
        )
        assert kinds(outcomes) == ["Durable", "BindingMismatchError"]
        assert store.reader().binding(SESSION) == OTHER

    def test_a_binding_can_be_released(self, world: StoreWorld) -> None:
        """None as the new lane frees the session for any other."""
        store = world.open()
        store.commit([born(), commit("b", part(OTHER, 0), lane=OTHER)])
        assert one(store, commit("c", part(LANE, 1), bindings=(Binding(SESSION, LANE, None),))) == Durable("c")
        assert store.reader().binding(SESSION) is None
        assert isinstance(refusal(store, commit("d", part(LANE, 2), part(SESSION, 1))), BindingMismatchError)
        taken = commit("e", part(OTHER, 1), lane=OTHER, bindings=(Binding(SESSION, None, OTHER),))
        assert one(store, taken) == Durable("e")

    def test_a_session_that_is_not_there_cannot_be_bound(self, world: StoreWorld) -> None:
        """Binding no log is LogNotFound."""
        error = refusal(world.open(), commit("c", part(LANE, 0), bindings=(Binding(SESSION, None, LANE),)))
        assert isinstance(error, LogNotFoundError)

    def test_an_unbound_session_writes_for_itself(self, world: StoreWorld) -> None:
        """A commit whose writer is the session itself needs the session unbound (the event-log service)."""
        store = world.open()
        assert one(store, commit("c", part(SESSION, 0), lane=SESSION)) == Durable("c")
        store.commit([commit("d", part(LANE, 0), bindings=(Binding(SESSION, None, LANE),))])
        assert isinstance(refusal(store, commit("e", part(SESSION, 1), lane=SESSION)), BindingMismatchError)


class OwnerClaims:
    """Epochs and incarnations make a late writer harmless."""

    def test_each_opening_raises_the_epoch(self, world: StoreWorld) -> None:
        """The epoch only rises."""
        epochs = [world.open().epoch for _ in range(3)]
        assert epochs == sorted(set(epochs))

    def test_an_old_owner_has_lost(self, world: StoreWorld) -> None:
        """After another opening every new commit of the old owner is OwnershipLost, for good."""
        old = world.open()
        old.commit([commit("c", part(LANE, 0))])
        new = world.open()
        for name in ("d", "e"):
            assert kinds(old.commit([commit(name, part(LANE, 1))])) == ["OwnershipLostError"]
        assert one(new, commit("f", part(LANE, 1))) == Durable("f")
        assert len(new.reader().read(LANE)) == 2

    def test_a_smaller_incarnation_is_fenced(self, world: StoreWorld) -> None:
        """After a fence a smaller incarnation of that lane has lost; the fence's own and larger ones go on."""
        store = world.open()
        store.commit([commit("c", part(LANE, 0), incarnation=2)])
        store.fence(LANE, 3)
        assert isinstance(refusal(store, commit("d", part(LANE, 1), incarnation=2)), OwnershipLostError)
        assert one(store, commit("e", part(LANE, 1), incarnation=3)) == Durable("e")
        assert one(store, commit("f", part(LANE, 2), incarnation=4)) == Durable("f")

    def test_a_fence_binds_its_lane_only(self, world: StoreWorld) -> None:
        """Other lanes are not touched by a fence."""
        store = world.open()
        store.fence(LANE, 3)
        assert one(store, commit("c", part(OTHER, 0), lane=OTHER)) == Durable("c")

    def test_a_fence_never_goes_back(self, world: StoreWorld) -> None:
        """A late, smaller fence doesn't let an older writer in again."""
        store = world.open()
        store.fence(LANE, 5)
        store.fence(LANE, 2)
        assert isinstance(refusal(store, commit("c", part(LANE, 0), incarnation=3)), OwnershipLostError)

    def test_a_fence_holds_in_the_middle_of_a_group(self, world: StoreWorld) -> None:
        """A fenced commit of a group fails alone."""
        store = world.open()
        store.fence(LANE, 5)
        group = [commit("c", part(LANE, 0), incarnation=1), commit("d", part(OTHER, 0), lane=OTHER)]
        assert kinds(store.commit(group)) == ["OwnershipLostError", "Durable"]
