"""Blobs: content by its hash, kept while a log refers to it."""

from __future__ import annotations

import hashlib
from typing import Any, Final

import pytest

from seriatim.commits import Commit, Durable
from seriatim.errors import (
    BlobNotFoundError,
    BlobTooLargeError,
    CorruptionError,
    InvalidInputError,
    OwnershipLostError,
    StoreUnhealthyError,
)
from seriatim.limits import BLOB_BYTES_MAX, COMMIT_BLOBS_MAX
from seriatim.storage.contract import BlobsSwept, Erasure

from .world import LANE, SESSION, StoreWorld, born, commit, one, part, refusal

DATA: Final = b"\x00\xffpicture" * 100


def refer(blob: str, head: int = 0, **more: Any) -> Commit:
    """A commit whose event refers to the blob."""
    return commit(f"refer{head}", part(LANE, head), blobs=(blob,), **more)


class BlobClaims:
    """A blob is durable when its hash is told, is what the hash says, and stays while a log refers to it."""

    def test_a_blob_comes_back(self, world: StoreWorld) -> None:
        """Any bytes, none included, under the SHA-256 of their content."""
        store = world.open()
        for data in (DATA, b"", bytes(range(256)) * 5000):
            name = store.put_blob(data, 1)
            assert name == hashlib.sha256(data).hexdigest()
            assert store.reader().blob(name) == data

    def test_a_blob_is_durable_when_its_hash_is_told(self, world: StoreWorld) -> None:
        """A crash right after put_blob loses nothing."""
        name = world.open().put_blob(DATA, 1)
        world.crash()
        assert world.open().reader().blob(name) == DATA

    def test_the_same_content_is_kept_once(self, world: StoreWorld) -> None:
        """Two puts give one hash and one blob."""
        store = world.open()
        assert store.put_blob(DATA, 1) == store.put_blob(bytes(DATA), 2)
        assert store.sweep_blobs(9, dry_run=True) == BlobsSwept(1, len(DATA), more=False)

    def test_a_blob_too_large_is_refused(self, world: StoreWorld) -> None:
        """Beyond the bound nothing is kept and the error tells the bound."""
        store = world.open()
        with pytest.raises(BlobTooLargeError) as caught:
            store.put_blob(bytes(BLOB_BYTES_MAX + 1), 1)
        assert caught.value.bytes_max == BLOB_BYTES_MAX
        assert store.sweep_blobs(9, dry_run=True).count == 0

    def test_no_such_blob(self, world: StoreWorld) -> None:
        """An unknown hash, and whatever is no hash, a path among them, is BlobNotFound."""
        store = world.open()
        store.put_blob(DATA, 1)
        for name in ("0" * 64, "", "../state.db", "A" * 64, "\0", "ab", "0" * 63 + "\n"):
            with pytest.raises(BlobNotFoundError):
                store.reader().blob(name)

    def test_a_commit_may_only_name_what_is_there(self, world: StoreWorld) -> None:
        """A commit that refers to a missing blob is refused; once it was put, the same commit succeeds."""
        store, name = world.open(), hashlib.sha256(DATA).hexdigest()
        store.commit([commit("c", part(LANE, 0))])
        error = refusal(store, refer(name, 1))
        assert isinstance(error, BlobNotFoundError)
        assert error.hash == name
        store.put_blob(DATA, 1)
        assert one(store, refer(name, 1)) == Durable("refer1")

    def test_a_commit_names_a_bounded_number(self, world: StoreWorld) -> None:
        """Beyond the bound it is malformed."""
        store = world.open()
        name = store.put_blob(DATA, 1)
        many = commit("c", part(LANE, 0), blobs=(name,) * (COMMIT_BLOBS_MAX + 1))
        assert isinstance(refusal(store, many), InvalidInputError)

    def test_a_blob_that_a_log_refers_to_stays(self, world: StoreWorld) -> None:
        """However old, through reopening and crash; what nothing refers to goes beside it."""
        store = world.open()
        used, unused = store.put_blob(DATA, 1), store.put_blob(b"unused", 1)
        assert one(store, refer(used)) == Durable("refer0")
        world.crash()
        store = world.open()
        assert store.sweep_blobs(10**13) == BlobsSwept(1, 6, more=False)
        assert store.reader().blob(used) == DATA
        with pytest.raises(BlobNotFoundError):
            store.reader().blob(unused)

    def test_a_blob_in_its_grace_period_stays(self, world: StoreWorld) -> None:
        """One that was put at or after the given time isn't swept: its commit may be under way."""
        store = world.open()
        name = store.put_blob(DATA, 1000)
        assert store.sweep_blobs(1000).count == 0
        assert one(store, refer(name)) == Durable("refer0")

    def test_a_blob_put_again_is_young_again(self, world: StoreWorld) -> None:
        """The grace period counts from the last put, and never goes back."""
        store = world.open()
        name = store.put_blob(DATA, 1000)
        store.put_blob(DATA, 2000)
        store.put_blob(DATA, 500)
        assert store.sweep_blobs(2000).count == 0
        assert store.reader().blob(name) == DATA
        assert store.sweep_blobs(2001).count == 1

    def test_a_dry_run_removes_nothing(self, world: StoreWorld) -> None:
        """It tells just what the sweep then does."""
        store = world.open()
        names = [store.put_blob(bytes([n]) * (n + 1), 1) for n in range(5)]
        told = store.sweep_blobs(9, dry_run=True)
        assert [store.reader().blob(name)[0] for name in names] == list(range(5))
        assert store.sweep_blobs(9) == told == BlobsSwept(5, 15, more=False)

    def test_a_sweep_is_bounded(self, world: StoreWorld) -> None:
        """It stops at its limit and says that there is more; the next ones go on."""
        store = world.open()
        for n in range(5):
            store.put_blob(bytes([n]), 1)
        assert [store.sweep_blobs(9, limit=2) for _ in range(3)] == [
            BlobsSwept(2, 2, more=True), BlobsSwept(2, 2, more=True), BlobsSwept(1, 1, more=False),
        ]  # fmt: skip

    def test_erasing_a_log_lets_its_blobs_go(self, world: StoreWorld) -> None:
        """What only the erased log referred to is swept; what another log refers to as well stays."""
        store = world.open()
        own, shared = store.put_blob(b"own", 1), store.put_blob(b"shared", 1)
        store.commit([born(), refer(own, 1)])
        assert one(store, commit("both", part(LANE, 2), part(SESSION, 1), blobs=(shared,))) == Durable("both")
        assert store.sweep_blobs(9).count == 0
        store.erase(Erasure("erase", LANE, 2, 0))
        assert store.sweep_blobs(9) == BlobsSwept(1, 3, more=False)
        assert store.reader().blob(shared) == b"shared"

    def test_a_damaged_blob_is_never_handed_out(self, world: StoreWorld) -> None:
        """Content that isn't what its name says is a CorruptionError that names the blob."""
        store = world.open()
        name = store.put_blob(DATA, 1)
        world.damage_blob(name)
        with pytest.raises(CorruptionError) as caught:
            store.reader().blob(name)
        assert name in caught.value.where

    def test_putting_a_damaged_blob_again_mends_it(self, world: StoreWorld) -> None:
        """The content of the put counts, not that there is something of that name."""
        store = world.open()
        name = store.put_blob(DATA, 1)
        world.damage_blob(name)
        assert store.put_blob(DATA, 2) == name
        assert store.reader().blob(name) == DATA

    def test_who_has_lost_sweeps_nothing(self, world: StoreWorld) -> None:
        """An owner whose epoch is old, or that is closed, may not sweep; a closed one takes no blob."""
        old = world.open()
        name = old.put_blob(DATA, 1)
        new = world.open()
        with pytest.raises(OwnershipLostError):
            old.sweep_blobs(9)
        assert new.reader().blob(name) == DATA
        new.close()
        for call in (lambda: new.sweep_blobs(9), lambda: new.put_blob(b"x", 1)):
            with pytest.raises(StoreUnhealthyError):
                call()
