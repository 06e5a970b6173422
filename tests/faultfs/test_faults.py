"""EIO and ENOSPC under a real gateway: nothing is lost or doubled, nothing contradictory leaves, service comes back."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import pytest

from tests.faultfs.disk import ALWAYS, EIO, ENOSPC, KILL, Call, Disk, File
from tests.faultfs.service import Service

pytestmark = pytest.mark.slow

LANES = ("a", "b", "c")
DURATIONS = {"once": 1, "for a while": 3, "always": ALWAYS}
PLACES: list[tuple[Call, File]] = [
    ("write", "wal"),
    ("sync", "wal"),
    ("write", "db"),
    ("sync", "db"),
    ("truncate", "wal"),
]
"""Where a commit, and the checkpoint at the reopening after a failure, can fail."""


def arm(disk: Disk, call: Call, file: File, number: int, count: int) -> None:
    """Have such calls fail. The database itself is only touched in a checkpoint: a first error brings one about.

    That one is always EIO, which leaves a commit in doubt: what finds no room is refused, and nothing is tried again.
    """
    disk.fail(call, file, number, count, partial=call == "write")
    if (call, file) not in PLACES[:2]:
        disk.fail("write", "wal", EIO, rule=1)


@pytest.mark.parametrize(("call", "file"), PLACES)
def test_nothing_is_lost_doubled_or_contradicted(tmp_path: Path, disk: Disk, call: Call, file: File) -> None:
    """Once, for a while, until mended, and killed in the fault, with either error: it comes back by itself (B101).

    A message is refused to its adapter once, and nothing comes of it; said again until taken, it is answered once.
    (What chats are told of it is best effort, and is seen in ``test_full_disk``.)
    """

    async def scenario() -> None:
        async with Service(tmp_path, disk) as service:
            world = service.platform.world
            world.keeps_refused = False

            def failed(wanted: int) -> bool:
                service.say_again()
                return disk.failed() >= wanted

            async def taken() -> None:
                await service.done()
                while service.say_again():
                    await service.done()

            await service.start()
            for number in (EIO, ENOSPC):
                for count in DURATIONS.values():
                    arm(disk, call, file, number, count)
                    for lane in LANES:
                        service.say(lane)
                    wanted = 3 if count == ALWAYS else count
                    await service.until(partial(failed, wanted), "no call has failed")
                    disk.mend()
                    await taken()
            arm(disk, call, file, EIO, ALWAYS)
            for lane in LANES:
                service.say(lane)
            await service.until(partial(failed, 1), "no call has failed")
            await service.kill()
            disk.mend()
            await service.start()
            await taken()
            verdict = await service.ended_well()
            assert verdict.accepted == verdict.answered == 7 * len(LANES)
            assert verdict.sent == verdict.accepted + len(world.refused)
            if (call, file) == ("write", "wal"):
                assert world.refused

    asyncio.run(scenario())


@pytest.mark.parametrize("place", PLACES[:2], ids=str)
def test_a_spool_goes_on_accepting(tmp_path: Path, disk: Disk, place: tuple[Call, File]) -> None:
    """With a spool what is said in the fault is acknowledged there, survives a kill, and is answered in order."""

    async def scenario() -> None:
        async with Service(tmp_path, disk, "--spool") as service:
            await service.start()
            service.say("a")
            await service.done()
            for ending in ("mended", "killed"):
                disk.fail(*place, ENOSPC, ALWAYS)
                for lane in LANES * 4:
                    service.say(lane)
                await service.until(lambda: service.all_acked, "not everything is acked")
                if ending == "killed":
                    await service.kill()
                disk.mend()
                if ending == "killed":
                    await service.start()
                await service.done()
            verdict = await service.ended_well()
            assert verdict.accepted == verdict.sent == 25
            assert not (service.home / "spool" / "inbound.jsonl").exists()
            assert len(service.notices) == 1

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("call", "file", "skip"), [("write", "db", 0), ("write", "db", 3), ("sync", "db", 0), ("truncate", "wal", 0)]
)
def test_a_kill_inside_a_checkpoint(tmp_path: Path, disk: Disk, call: Call, file: File, skip: int) -> None:
    """SIGKILL while pages go from the WAL into the database loses nothing that was told durable (B101)."""

    async def scenario() -> None:
        async with Service(tmp_path, disk) as service:
            await service.start()
            for lane in LANES:
                service.say(lane, "long")
            await service.done()
            disk.fail(call, file, KILL, 1, skip=skip)
            disk.fail("write", "wal", EIO, rule=1)  # brings about a reopening, which checkpoints
            for lane in LANES:
                service.say(lane, "long")
            await service.gone()
            disk.mend()
            await service.start()
            await service.done()
            await service.ended_well()

    asyncio.run(scenario())
