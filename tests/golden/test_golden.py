"""Files of every format that was ever committed are still understood."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from seriatim.storage.audit import audit
from seriatim.storage.home import Home
from seriatim.storage.schema import FORMAT
from seriatim.storage.sqlite import SqliteStore
from tests.golden.make import FOLDER, told

FORMATS = sorted(int(file.name.removeprefix("state_v").partition(".")[0]) for file in FOLDER.glob("state_v*.db.gz"))


@pytest.fixture(params=FORMATS)
def golden(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, dict[str, Any]]:
    """A home with the database of one format, and what its readers said of it."""
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    packed = (FOLDER / f"state_v{request.param}.db.gz").read_bytes()
    (home / "state.db").write_bytes(gzip.decompress(packed))
    return home, json.loads((FOLDER / f"state_v{request.param}.json").read_text())


def test_the_first_format_is_kept() -> None:
    """There is a golden file of the first format."""
    assert FORMATS[0] == 1


def test_what_an_old_file_held_is_there_after_its_migration(golden: tuple[Path, dict[str, Any]]) -> None:
    """Every log, event, binding, counter and open lane of an old file is told as its own readers told it."""
    home, facts = golden
    owned = Home.own(home)
    store = SqliteStore(owned.database)
    reader = store.reader()
    found = audit(reader)
    assert found.holds, found
    assert json.loads(json.dumps(told(reader))) == facts
    reader.close()
    store.close()
    again = SqliteStore(owned.database)
    assert again._connection is not None
    assert again._connection.execute("PRAGMA user_version").fetchone() == (FORMAT,)
    again.close()
    owned.close(clean=False)
