"""Makes ``compacted_v<format>``: a database in which archives and checkpoints stand for events that are gone.

``python -m tests.golden.compacted``, once per format that changes their tables or checksums; kept like the others.
"""

from __future__ import annotations

import gzip
import json
import sqlite3
import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

from seriatim.actors import surfaces
from seriatim.actors.upkeep import Growth
from seriatim.events import session_log
from seriatim.snapshots import lane_snapshot
from seriatim.storage.contract import StoreReader
from seriatim.storage.projections import folded
from seriatim.storage.schema import FORMAT
from seriatim.storage.sqlite import SqliteStore
from tests.golden.make import FOLDER
from tests.growth.worlds import Life


def told(reader: StoreReader) -> dict[str, Any]:
    """Archives, checkpoints, and the state that they and the events since lead to."""
    lanes: dict[str, Any] = {}
    for log in reader.logs("lane:"):
        archive, kept = reader.archive(log), reader.checkpoint(log, "state")
        state = folded(reader, log)
        surface = reader.checkpoint(session_log(state.bound or ""), "surface")
        lanes[log] = {
            "archive": None if archive is None else [archive.base, archive.version, archive.data],
            "counts": None if archive is None else [archive.counts.accepted, archive.counts.answered],
            "checkpoint": None if kept is None else [kept.seq, kept.version, kept.data],
            "surface": None if surface is None else [surface.seq, surface.version, surface.data],
            "state": lane_snapshot(state),
        }
    return lanes


def main() -> None:
    """Write both files."""
    soon = mock.patch.object(surfaces, "CHECKPOINT_EVENTS", 12)
    with tempfile.TemporaryDirectory() as folder, soon:
        path = Path(folder) / "state.db"
        for _ in range(2):
            life = Life(lambda: SqliteStore(path), Growth(events=10, rest_events=1, compact_events=40))
            life.talk(12, "1")
            life.talk(3, "2")
            life.end()
        connection = sqlite3.connect(path)
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.close()
        store = SqliteStore(path)
        reader = store.reader()
        facts = told(reader)
        reader.close()
        store.close()
        packed = gzip.compress(path.read_bytes(), mtime=0)
    (FOLDER / f"compacted_v{FORMAT}.db.gz").write_bytes(packed)
    (FOLDER / f"compacted_v{FORMAT}.json").write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
