"""`seriatim sweep`: the content of attachments that no log refers to."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from seriatim.cli import main
from seriatim.media import Media
from seriatim.model import MessageEvent
from seriatim.storage.home import Home
from seriatim.storage.spool import Spool, Spooled
from seriatim.storage.sqlite import SqliteStore
from tests.gateway.bots import bot, echo, event, run

DAY_MS = 86_400_000


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with an attachment that is used, an old one that isn't, and a young one that isn't."""
    home = tmp_path / "home"

    async def life() -> None:
        async with bot(echo, home) as it:
            said = event("look")
            picture = Media("photo", data=b"used")
            await (await it.gateway.accept(MessageEvent("look", said.source, media=(picture,)))).answered()

    run(life())
    store = SqliteStore(home / "state.db")
    now = round(time.time() * 1000)
    store.put_blob(b"used", now - 30 * DAY_MS)
    store.put_blob(b"left", now - 30 * DAY_MS)
    store.put_blob(b"young", now)
    store.close()
    return home


def blobs(home: Path) -> set[bytes]:
    """What is kept."""
    return {path.read_bytes() for path in (home / "blobs").rglob("*") if path.is_file()}


def test_what_no_log_refers_to_goes_and_the_rest_stays(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A dry run says so and removes nothing; a sweep removes what is old and unused, and a second one finds nothing."""
    everything = {b"used", b"left", b"young"}
    for more, said, kept in (
        (["--dry-run"], "1 attachments (4 bytes) would be removed", everything),
        ([], "1 attachments (4 bytes) removed", everything - {b"left"}),
        ([], "0 attachments (0 bytes) removed", everything - {b"left"}),
    ):
        assert main(["sweep", "--home", str(home), *more]) == 0
        assert said in capsys.readouterr().out
        assert blobs(home) == kept


def test_a_sweep_that_could_take_too_much_is_refused(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of a home that is served, that has messages in its spool, or that isn't there; and of what is too young."""
    owned = Home.own(home)
    assert main(["sweep", "--home", str(home)]) == 2
    owned.close(clean=True)
    assert main(["sweep", "--home", str(home), "--older-than", "0.5"]) == 2
    assert main(["sweep", "--home", str(home / "none")]) == 2
    assert not (home / "none").exists()
    spool = Spool(home)
    spool.open()
    spool.append([Spooled("i1", "key", "/", 1, event("waits"))])
    capsys.readouterr()
    assert main(["sweep", "--home", str(home)]) == 2
    assert "spool" in capsys.readouterr().err
    assert len(blobs(home)) == 3
