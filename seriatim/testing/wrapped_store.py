"""A store around another one: everything goes through, and a subclass changes what it is about."""

from __future__ import annotations

from collections.abc import Sequence

from seriatim.commits import Commit, Outcome
from seriatim.events import LogId
from seriatim.limits import BLOBS_SWEPT_MAX, KEYS_PRUNED_MAX
from seriatim.storage.contract import (
    Archive,
    BlobsSwept,
    Checkpoint,
    Erasure,
    KeysPruned,
    Store,
    StoreHealth,
    StoreReader,
)


class WrappedStore:
    """Hands every call on to ``inner``."""

    def __init__(self, inner: Store) -> None:
        self.inner = inner

    @property
    def epoch(self) -> int:
        """See ``Store.epoch``."""
        return self.inner.epoch

    def commit(self, commits: Sequence[Commit]) -> list[Outcome]:
        """See ``Store.commit``."""
        return self.inner.commit(commits)

    def fence(self, lane: LogId, incarnation: int) -> None:
        """See ``Store.fence``."""
        self.inner.fence(lane, incarnation)

    def keep(self, checkpoints: Sequence[Checkpoint]) -> int:
        """See ``Store.keep``."""
        return self.inner.keep(checkpoints)

    def compact(self, archive: Archive, parts_max: int) -> bool:
        """See ``Store.compact``."""
        return self.inner.compact(archive, parts_max)

    def erase(self, erasure: Erasure) -> Outcome:
        """See ``Store.erase``."""
        return self.inner.erase(erasure)

    def prune_keys(
        self, now: int, window_ms: int, *, after: str = "", limit: int = KEYS_PRUNED_MAX, dry_run: bool = False
    ) -> KeysPruned:
        """See ``Store.prune_keys``."""
        return self.inner.prune_keys(now, window_ms, after=after, limit=limit, dry_run=dry_run)

    def put_blob(self, data: bytes, time: int) -> str:
        """See ``Store.put_blob``."""
        return self.inner.put_blob(data, time)

    def sweep_blobs(self, before: int, *, limit: int = BLOBS_SWEPT_MAX, dry_run: bool = False) -> BlobsSwept:
        """See ``Store.sweep_blobs``."""
        return self.inner.sweep_blobs(before, limit=limit, dry_run=dry_run)

    def health(self) -> StoreHealth:
        """See ``Store.health``."""
        return self.inner.health()

    def reader(self) -> StoreReader:
        """See ``Store.reader``."""
        return self.inner.reader()

    def close(self) -> None:
        """See ``Store.close``."""
        self.inner.close()
