"""The event-log service holds to one contract over every backend."""

from __future__ import annotations

from pathlib import Path

import pytest

from seriatim.testing.log_contract import LogContract

from .worlds import MEDIA, JsonlWorld, Medium, MemoryWorld, SqliteWorld


class TestLogs(LogContract):
    """Memory, SQLite, JSONL raw and zstd."""

    @pytest.fixture(params=MEDIA, ids=lambda medium: medium.name)
    def world(self, request: pytest.FixtureRequest, tmp_path: Path) -> MemoryWorld | SqliteWorld | JsonlWorld:
        """A fresh medium."""
        medium: Medium = request.param
        return medium.make(tmp_path)
