"""``seriatim balance`` over the home of a gateway that was killed inside a turn."""

from __future__ import annotations

import asyncio
import json
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.command import seriatim
from tests.kill.process import Armed, Child

WAIT_S_MAX = 60.0
LINES = "".join(f"m{number} hello\n" for number in range(1, 8))
CONFIG = """
home = "home"
[agent]
factory = "tests.e2e.agent:make"
"""


async def _killed(folder: Path) -> None:
    """Talk to a gateway in ``folder``, kill it inside its second turn; on the way, look at it while it lives."""
    (folder / "seriatim.toml").write_text(CONFIG.replace('"home"', f'"{folder / "home"}"'))
    (folder / "said").write_text(LINES)
    child = await Child.start(
        "tests.e2e.child",
        ["chat", "--config", str(folder / "seriatim.toml")],
        folder / "log",
        Armed("mid-turn", 2),
        stdin=folder / "said",
    )
    try:
        assert await asyncio.wait_for(asyncio.shield(child.halted), WAIT_S_MAX) == "mid-turn"
        live = seriatim(folder, "balance")
        assert live.returncode == 0, live
    finally:
        await child.kill()


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with answered and waiting messages."""
    folder = tmp_path_factory.mktemp("killed")
    asyncio.run(_killed(folder))
    return folder / "home"


@pytest.fixture
def home(killed: Path, tmp_path: Path) -> Path:
    """A copy of it, to tamper with."""
    return shutil.copytree(killed, tmp_path / "copy")


@pytest.fixture
def database(home: Path) -> Iterator[sqlite3.Connection]:
    """Its database."""
    connection = sqlite3.connect(home / "state.db", isolation_level=None)
    try:
        yield connection
    finally:
        connection.close()


def test_the_balance_of_a_killed_gateway_holds(home: Path) -> None:
    """Counters and logs agree: accepted = answered + merged + dropped + waiting, with some of them waiting."""
    done = seriatim(home.parent, "balance", "--home", str(home), "--json")
    assert done.returncode == 0, done
    found = json.loads(done.stdout)
    assert found["holds"]
    for side in ("counters", "logs"):
        count = found[side]
        assert count["accepted"] == sum(count[name] for name in ("answered", "merged", "dropped", "waiting"))
        assert count["answered"] == 1
        assert count["waiting"] > 0


def test_the_text_says_the_same(home: Path) -> None:
    """A line for the counters, one for the logs, and the verdict."""
    done = seriatim(home.parent, "balance", "--home", str(home))
    assert done.returncode == 0
    assert [line.split(":")[0] for line in done.stdout.splitlines()] == ["counters", "logs", "The balance holds."]


@pytest.mark.parametrize(
    "tampering",
    [
        "UPDATE lanes SET answered = answered + 1",
        "UPDATE lanes SET accepted = accepted + 1, answered = answered + 1",
        "UPDATE lanes SET waiting = 0, dropped = dropped + waiting",
        "DELETE FROM lanes",
        "DELETE FROM events WHERE type = 'inbox/answered'",
        "UPDATE events SET data = replace(data, 'hello', 'hullo') WHERE type = 'inbox/accepted'",
        "UPDATE events SET type = 'inbox/dropped' WHERE type = 'inbox/answered'",
        "DELETE FROM commits WHERE part = 0 AND first > 0",
    ],
)
def test_what_was_tampered_with_does_not_hold(home: Path, database: sqlite3.Connection, tampering: str) -> None:
    """A changed hot row, a changed, missing or renamed event: exit code 1, and the words say that it doesn't hold."""
    changed = database.execute(tampering).rowcount
    database.close()
    assert changed > 0
    done = seriatim(home.parent, "balance", "--home", str(home))
    assert done.returncode == 1, done
    assert "does NOT hold" in done.stdout
    assert done.stderr == ""


def test_a_home_that_is_none_says_so(tmp_path: Path) -> None:
    """Exit code 2, one line, nothing made."""
    done = seriatim(tmp_path, "balance", "--home", str(tmp_path / "nowhere"))
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert str(tmp_path / "nowhere") in done.stderr
    assert list(tmp_path.iterdir()) == []
