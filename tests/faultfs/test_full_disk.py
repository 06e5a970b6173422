"""A file system that is really full."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from seriatim import Gateway, MessageEvent, SessionSource
from seriatim.actors.notices import REFUSED
from seriatim.commits import Durable, Refused
from seriatim.config import parse_config
from seriatim.storage.sqlite import SqliteStore
from seriatim.testing import FakePlatform
from seriatim.testing.store_contract import LANE, OTHER, born, commit, part
from tests.faultfs.disk import Disk
from tests.faultfs.service import Service
from tests.gateway.bots import run, until

pytestmark = pytest.mark.slow

SIZE_MB = 8
SOURCE = SessionSource("fake", "first", user_id="7")
LONG = "words " * 8_000


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A home on a file system of its own, of a few megabytes."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SIZE_MB}m,mode=0700", "tmpfs", str(home)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"a small file system can't be mounted here: {done.stderr.strip()}")
    yield home
    subprocess.run(["umount", str(home)], check=True)


@pytest.mark.parametrize("mode", ["refuse", "spool"])
def test_full_then_freed(tmp_path: Path, small: Path, disk: Disk, mode: str) -> None:
    """Until the disk is full, then with room again: what was acknowledged is there, the rest comes later (B101)."""
    ballast = small / "ballast"

    async def scenario() -> None:
        async with Service(tmp_path, disk, *(["--spool"] if mode == "spool" else [])) as service:
            await service.start()
            service.say("a")
            await service.done()
            free = os.statvfs(small)
            ballast.write_bytes(bytes(free.f_bavail * free.f_bsize - 600_000))
            for number in range(40):
                service.say(f"lane{number % 4}", LONG)
                await service.until(lambda: service.all_acked or "SQLITE_FULL" in service.log(), "nothing happens")
                if "SQLITE_FULL" in service.log():
                    break
            assert "SQLITE_FULL" in service.log()
            told = set(service.platform.world.acked)
            ballast.unlink()
            await service.done()
            service.say("a", "and on")
            await service.done()
            verdict = await service.ended_well()
            assert verdict.accepted == verdict.sent > 2
            assert len(told) > 1

    asyncio.run(scenario())
    held = {path.name for path in small.iterdir()}
    assert held <= {".clean_shutdown", "lock", "state.db", "state.db-shm", "state.db-wal", "spool", "sessions.json"}
    assert not (small / "spool" / "inbound.jsonl").exists()


def fill(ballast: Path) -> None:
    """Leave no room, to the last byte."""
    with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))


def read(store: SqliteStore) -> int:
    """How many events the lane has."""
    reader = store.reader()
    try:
        return len(reader.read(LANE))
    finally:
        reader.close()


def test_what_found_no_room_is_refused_and_not_found_after_a_crash(tmp_path: Path, small: Path) -> None:
    """The refusal is the truth: in the files as they are then, the commit is nowhere."""
    store = SqliteStore(small / "state.db")
    store.commit([born()])
    fill(small / "ballast")
    offered = commit("c", part(LANE, 1, 2_000))
    assert [type(outcome) for outcome in store.commit([offered, commit("d", part(OTHER, 0), lane=OTHER)])] == [
        Refused,
        Refused,
    ]
    image = tmp_path / "image"
    image.mkdir()
    for file in small.glob("state.db*"):
        if not file.name.endswith("-shm"):
            shutil.copy(file, image)
    crashed = SqliteStore(image / "state.db")
    assert read(crashed) == 1
    crashed.close()
    (small / "ballast").unlink()
    assert store.commit([offered]) == [Durable("c")]
    assert read(store) == 2_001
    store.close()


@pytest.mark.parametrize("mode", ["refuse", "spool"])
def test_each_chat_is_told_while_the_disk_is_full(small: Path, mode: str) -> None:
    """Also by an adapter that gives one message after another, from the first one on; with room all are answered."""

    async def scenario() -> None:
        platform = FakePlatform()
        config = parse_config({"storage": {"on_unavailable": mode}}, {})
        async with Gateway(lambda turn: "re " + turn.text[:9], small / "home", config, [platform]) as gateway:
            await (await gateway.accept(MessageEvent("hi", SOURCE))).answered()
            fill(small / "ballast")
            platform.say(LONG, chat_id="A")
            for chat in "BCDE":
                platform.say("hello", chat_id=chat, user_id=chat)
            await until(lambda: platform.texts().count(REFUSED) == 5)
            assert gateway.balance()["refused"] == 5
            (small / "ballast").unlink()
            platform.redeliver()
            await until(lambda: sum(text.startswith("re ") for text in platform.texts()) == 5)

    run(scenario())
