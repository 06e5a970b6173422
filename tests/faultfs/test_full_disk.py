"""A file system that is really full."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faultfs.disk import Disk
from tests.faultfs.service import Service

pytestmark = pytest.mark.slow

SIZE_MB = 8
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
