"""Every store holds to one contract about checkpoints and archives."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from seriatim.testing.growth_contract import GrowthContract
from tests.storage.worlds import MemoryWorld, SqliteWorld


class TestMemory(GrowthContract):
    """The store in memory."""

    @pytest.fixture
    def world(self) -> MemoryWorld:
        """A disk of its own."""
        return MemoryWorld()


class TestSqlite(GrowthContract):
    """The gateway's store."""

    @pytest.fixture
    def world(self, tmp_path: Path) -> Iterator[SqliteWorld]:
        """A folder of its own."""
        made = SqliteWorld(tmp_path)
        yield made
        made.close()
