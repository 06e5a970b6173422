"""Unique keys: a duplicate is known as one."""

from __future__ import annotations

from typing import Final

import pytest

from seriatim.commits import Durable, Part, Refused
from seriatim.errors import InvalidInputError, KeysTakenError, OwnershipLostError
from seriatim.events import Event, LogId
from seriatim.storage.contract import KeysPruned

from .world import LANE, OTHER, SESSION, StoreWorld, commit, kinds, one, part, refusal


class KeyClaims:
    """A key is taken once in the whole store, by a commit that is durable."""

    def test_a_taken_key_is_a_duplicate(self, world: StoreWorld) -> None:
        """A key that is there refuses the commit and is named; the commit's other keys stay free."""
        store = world.open()
        store.commit([commit("c", part(LANE, 0), unique=("k1", "k2"))])
        outcome = one(store, commit("d", part(LANE, 1), unique=("k3", "k2")))
        assert isinstance(outcome, Refused)
        assert isinstance(outcome.error, KeysTakenError)
        assert outcome.keys_found == ("k2",)
        assert store.reader().has_keys(["k1", "k2", "k3"]) == {"k1", "k2"}

    def test_all_taken_keys_are_named(self, world: StoreWorld) -> None:
        """Every found key is named, in the commit's order: each message of theirs gets its ack."""
        store = world.open()
        store.commit([commit("c", part(LANE, 0), unique=("k1", "k2", "k3"))])
        outcome = one(store, commit("d", part(LANE, 1), unique=("k3", "x", "k1")))
        assert isinstance(outcome, Refused)
        assert outcome.keys_found == ("k3", "k1")

    def test_keys_are_unique_over_lanes(self, world: StoreWorld) -> None:
        """A key belongs to the whole store, not to a lane."""
        store = world.open()
        store.commit([commit("c", part(LANE, 0), unique=("k",))])
        outcome = one(store, commit("d", part(OTHER, 0), lane=OTHER, unique=("k",)))
        assert kinds([outcome]) == ["KeysTakenError"]
        assert store.reader().read(OTHER) == []

    def test_keys_are_found_before_anything_else_refuses(self, world: StoreWorld) -> None:
        """A commit with found keys says so even if its head, fence, binding or data is wrong too."""
        store = world.open()
        store.commit([commit("c", part(LANE, 0), unique=("k",))])
        wrong_head = commit("d", part(LANE, 7), unique=("k",))
        wrong_data = commit("e", Part(LANE, 1, (Event("x/y", 1, 0, {"x": (1,)}),)), unique=("new", "k"))
        unbound = commit("f", part(LANE, 1), part(SESSION, 0), unique=("k",))
        assert kinds(store.commit([wrong_head, wrong_data, unbound])) == ["KeysTakenError"] * 3
        store.fence(LANE, 9)
        assert kinds(store.commit([commit("g", part(LANE, 1), unique=("k",))])) == ["KeysTakenError"]

    def test_keys_are_known_after_reopening(self, world: StoreWorld) -> None:
        """A redelivery to the next owner is still a duplicate."""
        world.open().commit([commit("c", part(LANE, 0), unique=("k",))])
        store = world.open()
        assert kinds(store.commit([commit("d", part(LANE, 1), unique=("k",))])) == ["KeysTakenError"]

    def test_a_key_twice_in_a_group(self, world: StoreWorld) -> None:
        """Of two commits of a group with one key the first is durable, the second a duplicate."""
        store = world.open()
        outcomes = store.commit(
            [commit("c", part(LANE, 0), unique=("k",)), commit("d", part(OTHER, 0), lane=OTHER, unique=("k",))]
        )
        assert kinds(outcomes) == ["Durable", "KeysTakenError"]
        assert isinstance(outcomes[1], Refused)
        assert outcomes[1].keys_found == ("k",)

    def test_a_refused_commit_takes_no_key(self, world: StoreWorld) -> None:
        """A key of a refused commit of the group is free for the next one."""
        store = world.open()
        bad = commit("c", part(LANE, 5, header=None), unique=("k",))
        good = commit("d", part(OTHER, 0), lane=OTHER, unique=("k",))
        assert kinds(store.commit([bad, good])) == ["LogNotFoundError", "Durable"]

    def test_a_key_twice_in_a_commit_is_malformed(self, world: StoreWorld) -> None:
        """The same key twice in one commit is the caller's mistake."""
        error = refusal(world.open(), commit("c", part(LANE, 0), unique=("k", "k")))
        assert isinstance(error, InvalidInputError)

    def test_has_keys_of_nothing(self, world: StoreWorld) -> None:
        """No keys asked, none found; unsound ones are simply not there."""
        reader = world.open().reader()
        assert reader.has_keys([]) == set()
        assert reader.has_keys(["", "\0", "\ud800"]) == set()

    def test_many_duplicates_in_a_group(self, world: StoreWorld) -> None:
        """A storm of redeliveries is refused one by one, the new ones among them are durable."""
        store = world.open()
        logs = [LogId(f"lane:{n}") for n in range(64)]
        store.commit([commit(f"c{n}", part(log, 0), lane=log, unique=(f"k{n}",)) for n, log in enumerate(logs)])
        store = world.open()
        again = [
            commit(f"d{n}", part(log, 1), lane=log, unique=(f"k{n if n % 2 else n + 1000}",))
            for n, log in enumerate(logs)
        ]
        assert kinds(store.commit(again)) == ["Durable", "KeysTakenError"] * 32


HOUR: Final = 3_600_000


class WindowClaims:
    """Old unique keys are forgotten: never one inside the window, and a bounded number at a time."""

    def test_a_key_is_kept_for_its_window(self, world: StoreWorld) -> None:
        """Until a whole window has passed since a call saw it, a key stays; then it goes, and is free again."""
        store = world.open()
        store.commit([commit("c", part(LANE, 0), unique=("k", "l"))])
        assert store.prune_keys(1000, HOUR) == KeysPruned(0, 2, None)
        assert store.prune_keys(1000 + HOUR - 1, HOUR).dropped == 0
        assert store.prune_keys(1000 + HOUR, HOUR).dropped == 2
        assert store.reader().has_keys(["k", "l"]) == set()
        assert one(store, commit("d", part(LANE, 1), unique=("k",))) == Durable("d")

    def test_younger_keys_stay(self, world: StoreWorld) -> None:
        """A key that came after the call which a prune goes back to is not touched."""
        store = world.open()
        store.commit([commit("c", part(LANE, 0), unique=("old",))])
        store.prune_keys(1000, HOUR)
        store.commit([commit("d", part(LANE, 1), unique=("young",))])
        assert store.prune_keys(1000 + HOUR, HOUR).dropped == 1
        assert store.reader().has_keys(["old", "young"]) == {"young"}
        assert store.prune_keys(1000 + 2 * HOUR, HOUR).dropped == 1

    def test_times_of_events_play_no_part(self, world: StoreWorld) -> None:
        """A key whose event claims to be from long ago is as young as its commit."""
        store = world.open()
        store.prune_keys(1000, HOUR)
        old = Part(LANE, 0, (Event("a/b", 0, -(10**12), {}),), header={})
        store.commit([commit("c", old, unique=("k",))])
        assert store.prune_keys(1000 + HOUR, HOUR).dropped == 0

    def test_a_clock_that_steps_back_drops_nothing_early(self, world: StoreWorld) -> None:
        """What a clock that was ahead had marked is forgotten, so keys only live longer."""
        store = world.open()
        store.commit([commit("c", part(LANE, 0), unique=("k",))])
        store.prune_keys(50 * HOUR, HOUR)
        assert store.prune_keys(0, HOUR).dropped == 0
        assert store.prune_keys(HOUR - 1, HOUR).dropped == 0
        assert store.prune_keys(HOUR, HOUR).dropped == 1

    def test_a_call_looks_at_so_many_keys(self, world: StoreWorld) -> None:
        """Work is bounded by the limit; from call to call all keys have their turn, each once."""
        store = world.open()
        store.commit([commit("c", part(LANE, 0), unique=tuple(f"k{n}" for n in range(7)))])
        store.prune_keys(0, HOUR)
        done = [store.prune_keys(HOUR, HOUR, limit=3)]
        while (after := done[-1].after) is not None:
            done.append(store.prune_keys(HOUR, HOUR, after=after, limit=3))
        assert [(page.seen, page.dropped) for page in done] == [(3, 3), (3, 3), (1, 1)]
        assert store.reader().has_keys([f"k{n}" for n in range(7)]) == set()

    def test_a_dry_run_counts_and_changes_nothing(self, world: StoreWorld) -> None:
        """It tells what the call would drop; it isn't remembered as a call that has seen the keys."""
        store = world.open()
        store.commit([commit("c", part(LANE, 0), unique=("k", "l", "m"))])
        assert store.prune_keys(0, HOUR, dry_run=True).dropped == 0
        assert store.prune_keys(HOUR, HOUR, dry_run=True).dropped == 0
        store.prune_keys(HOUR, HOUR)
        assert store.prune_keys(2 * HOUR, HOUR, limit=2, dry_run=True) == KeysPruned(2, 2, "l")
        assert store.reader().has_keys(["k", "l", "m"]) == {"k", "l", "m"}
        assert store.prune_keys(2 * HOUR, HOUR, limit=2) == KeysPruned(2, 2, "l")

    def test_the_window_outlives_the_owner(self, world: StoreWorld) -> None:
        """A reopening or a crash neither makes keys older nor younger."""
        store = world.open()
        store.commit([commit("c", part(LANE, 0), unique=("k",))])
        store.prune_keys(0, HOUR)
        world.crash()
        store = world.open()
        store.commit([commit("d", part(LANE, 1), unique=("l",))])
        assert store.prune_keys(HOUR - 1, HOUR).dropped == 0
        assert store.prune_keys(HOUR, HOUR).dropped == 1
        assert store.reader().has_keys(["k", "l"]) == {"l"}

    def test_who_has_lost_forgets_no_keys(self, world: StoreWorld) -> None:
        """An owner whose epoch is old may not prune."""
        old = world.open()
        old.commit([commit("c", part(LANE, 0), unique=("k",))])
        old.prune_keys(0, HOUR)
        world.open()
        with pytest.raises(OwnershipLostError):
            old.prune_keys(HOUR, HOUR)
        assert world.open().reader().has_keys(["k"]) == {"k"}
