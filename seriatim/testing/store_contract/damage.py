"""Damage and foreign media are told for what they are, and left alone."""

from __future__ import annotations

from typing import Literal

import pytest

from seriatim.commits import Durable
from seriatim.errors import CorruptionError, FormatUnsupportedError

from .world import LANE, OTHER, SESSION, StoreWorld, born, commit, events, one, part


class DamageClaims:
    """What isn't what was written is never handed out as if it were."""

    def test_damage_is_found_and_says_where(self, world: StoreWorld) -> None:
        """Reading over a changed event is a CorruptionError with the log and the first event that can't be trusted."""
        store = world.open()
        store.commit([commit("c", part(LANE, 0, 2)), commit("d", part(LANE, 2, 3)), commit("e", part(LANE, 5))])
        world.damage(LANE, 3)
        with pytest.raises(CorruptionError) as caught:
            store.reader().read(LANE)
        assert (caught.value.log, caught.value.seq) == (LANE, 2)
        assert LANE in caught.value.where

    def test_damage_is_found_by_whoever_reads_it(self, world: StoreWorld) -> None:
        """A page that touches the changed event fails as well, in its own and in the next owner's reader."""
        store = world.open()
        store.commit([commit("c", part(LANE, 0, 2)), commit("d", part(LANE, 2, 3))])
        world.damage(LANE, 4)
        for reader in (store.reader(), world.open().reader()):
            with pytest.raises(CorruptionError):
                reader.read(LANE, 2, 3)

    def test_damage_stays_with_its_log(self, world: StoreWorld) -> None:
        """Other logs are read, listed and written as ever; the damaged one is still listed."""
        store = world.open()
        store.commit([born(), commit("b", part(OTHER, 0, 2), lane=OTHER)])
        world.damage(LANE, 0)
        assert store.reader().read(OTHER) == list(events(0, 2))
        assert [info.log for info in store.reader().scan("")] == [LANE, OTHER, SESSION]
        assert one(store, commit("c", part(OTHER, 2), lane=OTHER)) == Durable("c")

    def test_opening_mends_no_damage(self, world: StoreWorld) -> None:
        """A new owner, and commits behind the damage, leave it as it is and found."""
        world.open().commit([commit("c", part(LANE, 0, 2))])
        world.damage(LANE, 1)
        store = world.open()
        store.commit([commit("d", part(LANE, 2))])
        with pytest.raises(CorruptionError):
            store.reader().read(LANE)

    def test_a_newer_format_asks_for_an_upgrade(self, world: StoreWorld) -> None:
        """It is refused with that direction, never as damage, and left as it was."""
        self._refused(world, "newer", "upgrade")

    def test_an_older_format_without_a_path_says_so(self, world: StoreWorld) -> None:
        """Likewise with "no path"."""
        self._refused(world, "older", "no path")

    def test_another_programs_medium_is_foreign(self, world: StoreWorld) -> None:
        """Likewise with "foreign"."""
        self._refused(world, "foreign", "foreign")

    def _refused(self, world: StoreWorld, kind: Literal["newer", "older", "foreign"], direction: str) -> None:
        store = world.open()
        store.commit([born(count=3)])
        epoch = store.epoch
        store.close()
        world.relabel(kind)
        with pytest.raises(FormatUnsupportedError) as caught:
            world.open()
        assert caught.value.direction == direction
        world.relabel("own")
        store = world.open()
        assert store.epoch == epoch + 1
        assert store.reader().read(SESSION) == list(events(0, 3))
