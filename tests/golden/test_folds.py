"""Files of every format that was ever committed fold to what they folded to then."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from seriatim.errors import FormatUnsupportedError
from seriatim.events import Data, session_log
from seriatim.lane import fold
from seriatim.snapshots import STATE_VERSION, lane_from_snapshot, lane_snapshot, session_from_snapshot, session_snapshot
from seriatim.storage.contract import StoreReader
from seriatim.storage.memory import MemoryStore
from seriatim.storage.sqlite import SqliteStore
from seriatim.testing.store_contract import LANE, commit, one, part
from seriatim.upcasters import UPCASTERS, upcast
from tests.golden.folds import as_then, folded, unpacked
from tests.golden.make import FOLDER
from tests.golden.test_golden import FORMATS


@pytest.fixture(params=FORMATS)
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """A reader of a migrated golden file, and what it folded to."""
    store = SqliteStore(unpacked(request.param, tmp_path))
    reader = store.reader()
    yield reader, json.loads((FOLDER / f"folds_v{request.param}.json").read_text())
    reader.close()
    store.close()


def test_an_old_file_folds_to_the_same_state(opened: tuple[StoreReader, dict[str, Any]]) -> None:
    """Lanes, sessions and what they show."""
    reader, golden = opened
    told = folded(reader)
    assert as_then(told["sessions"], golden["sessions"]) == golden["sessions"]
    assert as_then(told["lanes"], golden["lanes"]) == golden["lanes"]


def test_an_old_snapshot_is_the_state_that_it_was(opened: tuple[StoreReader, dict[str, Any]]) -> None:
    """An archive holds such a snapshot for ever: brought up to date, it equals today's fold in all that it told."""
    reader, golden = opened
    for log, data in golden["lanes"].items():
        key = log.removeprefix("lane:")
        state = fold(key, reader.read(log), lambda session: reader.read(session_log(session)))
        state.session = None
        upcast_now = lane_snapshot(lane_from_snapshot(key, golden["version"], data))
        now = lane_snapshot(state)
        assert upcast_now.keys() == now.keys()
        assert as_then({log: upcast_now}, {log: data}) == {log: data}
        if golden["version"] == STATE_VERSION:
            assert upcast_now == now
    if golden["version"] == STATE_VERSION:  # a session has no archive, and a checkpoint of another version is ignored
        for data in golden["sessions"].values():
            assert session_snapshot(session_from_snapshot(data)) == {k: v for k, v in data.items() if k != "shows"}


def test_each_golden_file_has_its_folds() -> None:
    """``python -m tests.golden.folds`` makes those that are missing."""
    for number in FORMATS:
        assert (FOLDER / f"folds_v{number}.json").exists()
        assert gzip.decompress((FOLDER / f"state_v{number}.db.gz").read_bytes())[:15] == b"SQLite format 3"


# --- upcasters -------------------------------------------------------------------------------------------


def _renamed(data: Data) -> Data:
    return {"count": data["n"], **{name: value for name, value in data.items() if name != "n"}}


def _doubled(data: Data) -> Data:
    return {**data, "count": 2 * data["count"]}


@pytest.fixture
def changed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The payload of a type has changed twice since."""
    monkeypatch.setitem(UPCASTERS, "inbox/accepted", (_renamed, _doubled))


@pytest.mark.usefixtures("changed")
@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({"n": 3, "x": 1}, {"count": 6, "x": 1, "v": 3}),
        ({"count": 3, "v": 2}, {"count": 6, "v": 3}),
        ({"count": 6, "v": 3}, {"count": 6, "v": 3}),
    ],
)
def test_every_older_form_becomes_the_newest(data: Data, expected: Data) -> None:
    """From whichever version on, step by step; what was read stays as it was."""
    before = dict(data)
    assert upcast("inbox/accepted", data) == expected
    assert data == before
    assert upcast("inbox/claimed", data) is data


@pytest.mark.usefixtures("changed")
@pytest.mark.parametrize("version", [4, 0, "2", None])
def test_a_form_that_only_newer_ones_know_is_refused(version: Any) -> None:
    """Nobody guesses at it."""
    with pytest.raises(FormatUnsupportedError):
        upcast("inbox/accepted", {"count": 1, "v": version})


def _memory(_: Path) -> MemoryStore:
    return MemoryStore()


def _sqlite(folder: Path) -> SqliteStore:
    return SqliteStore(folder / "state.db")


@pytest.mark.parametrize("make", [_memory, _sqlite])
@pytest.mark.parametrize("ignorable", [False, True])
def test_readers_see_the_newest_form_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path], Any], ignorable: bool
) -> None:
    """Written long ago, the event is read as if it were written today, by either store and with rare fields too."""
    store = make(tmp_path)
    offered = part(LANE, 0, 3)
    offered = replace(offered, events=tuple(replace(event, ignorable=ignorable) for event in offered.events))
    one(store, commit("c", offered))
    monkeypatch.setitem(UPCASTERS, "inbox/accepted", (_renamed, _doubled))
    reader = store.reader()
    assert [event.data for event in reader.read(LANE)] == [{"count": 2 * n, "v": 3} for n in range(3)]
    reader.close()
    store.close()
