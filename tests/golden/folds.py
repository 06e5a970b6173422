"""What the golden files fold to: ``python -m tests.golden.folds`` writes ``folds_v<format>.json`` where there is none.

Of each lane the snapshot of its state, of each session that of its part and what it shows. Made once per format, when
its golden file is; whatever folds the same events later must come to the same. The snapshots are golden themselves: an
archive of their version may lie in somebody's file for ever.
"""

from __future__ import annotations

import gzip
import json
import tempfile
from pathlib import Path
from typing import Any

from seriatim.events import session_log
from seriatim.lane import SessionPart, apply_session, fold
from seriatim.snapshots import STATE_VERSION, lane_snapshot, session_snapshot
from seriatim.storage.contract import StoreReader
from seriatim.storage.sqlite import SqliteStore
from seriatim.surface import fold as fold_surface
from tests.golden.make import FOLDER


def folded(reader: StoreReader) -> dict[str, Any]:
    """Everything that the rules make of a store, as plain JSON."""
    lanes = {}
    for log in reader.logs("lane:"):
        state = fold(log.removeprefix("lane:"), reader.read(log), lambda session: reader.read(session_log(session)))
        lanes[log] = lane_snapshot(state)
    sessions = {}
    for log in reader.logs("session:"):
        events = reader.read(log)
        part = SessionPart(log.removeprefix("session:"))
        for event in events:
            apply_session(part, event)
        sessions[log] = {**session_snapshot(part), "shows": fold_surface(events).seqs()}
    return {"version": STATE_VERSION, "lanes": lanes, "sessions": sessions}


def as_then(told: dict[str, Any], golden: dict[str, Any]) -> dict[str, Any]:
    """What is told today, without what the golden file's version didn't tell; rows that have grown are cut."""
    return {
        name: {field: _cut(told[name][field], kept) for field, kept in data.items()} for name, data in golden.items()
    }


def _cut(now: Any, then: Any) -> Any:
    if isinstance(now, list) and isinstance(then, list) and then and isinstance(then[0], list):
        return [_cut(one, other) for one, other in zip(now, then, strict=True)]
    return now[: len(then)] if isinstance(now, list) and isinstance(then, list) and then else now


def unpacked(number: int, folder: Path) -> Path:
    """The golden database of a format, as a file of its own."""
    path = folder / "state.db"
    path.write_bytes(gzip.decompress((FOLDER / f"state_v{number}.db.gz").read_bytes()))
    return path


def main() -> None:
    """Write what is missing."""
    for packed in FOLDER.glob("state_v*.db.gz"):
        number = int(packed.name.removeprefix("state_v").partition(".")[0])
        target = FOLDER / f"folds_v{number}.json"
        if target.exists():
            continue
        with tempfile.TemporaryDirectory() as folder:
            store = SqliteStore(unpacked(number, Path(folder)))
            reader = store.reader()
            target.write_text(json.dumps(folded(reader), ensure_ascii=False, indent=1) + "\n")
            reader.close()
            store.close()


if __name__ == "__main__":
    main()
