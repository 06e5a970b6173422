"""Every store holds to one contract."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from seriatim.testing.store_contract import StoreContract

from .worlds import MemoryWorld, SqliteWorld


class TestMemory(StoreContract):
    """The store in memory."""

    @pytest.fixture
    def world(self) -> MemoryWorld:
        """A disk of its own."""
        return MemoryWorld()


class TestSqlite(StoreContract):
    """The gateway's store."""

    @pytest.fixture
    def world(self, tmp_path: Path) -> Iterator[SqliteWorld]:
        """A folder of its own."""
        made = SqliteWorld(tmp_path)
        yield made
        made.close()
