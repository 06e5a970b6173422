"""Archives and checkpoints of every format that had them are still what they were."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from seriatim.snapshots import lane_from_snapshot, lane_snapshot
from seriatim.storage.audit import audit
from seriatim.storage.sqlite import SqliteStore
from tests.golden.compacted import told
from tests.golden.make import FOLDER

FILES = sorted(FOLDER.glob("compacted_v*.db.gz"))


def test_there_is_one() -> None:
    """Compaction came with format 2."""
    assert FILES


@pytest.mark.parametrize("packed", FILES, ids=lambda packed: packed.name)
def test_an_old_archive_stands_for_the_same(tmp_path: Path, packed: Path) -> None:
    """Its checksum holds, its counts are counted, and the fold goes on from it."""
    path = tmp_path / "state.db"
    path.write_bytes(gzip.decompress(packed.read_bytes()))
    store = SqliteStore(path)
    reader = store.reader()
    golden = json.loads(packed.with_name(packed.name.replace(".db.gz", ".json")).read_text())
    found = told(reader)
    assert {log: lane["archive"] for log, lane in found.items()} == {log: g["archive"] for log, g in golden.items()}
    version = max(lane["archive"][1] for lane in golden.values() if lane["archive"])
    for log, lane in golden.items():  # its form is that of its day; what it says is the same
        lane["state"] = lane_snapshot(lane_from_snapshot(log.removeprefix("lane:"), version, lane["state"]))
        for later in ("facts", "active_at"):  # what that day's fold didn't keep
            lane["state"][later] = found[log]["state"][later]
    assert json.loads(json.dumps(found)) == json.loads(json.dumps(golden))
    assert any(lane["archive"] for lane in golden.values())
    assert any(lane["surface"] for lane in golden.values())
    assert audit(reader).holds
    reader.close()
    store.close()
