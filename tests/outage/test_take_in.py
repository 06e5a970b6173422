"""A crash at any point of the take-in: what was spooled is in the store once, in order, and the spool goes away."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from seriatim.commits import Commit, Outcome
from seriatim.storage.audit import audit
from seriatim.storage.contract import Store
from seriatim.storage.spool import SPOOL
from seriatim.storage.sqlite import SqliteStore
from seriatim.storage.sqlite_reader import SqliteReader
from seriatim.testing.faulty_store import FaultyStore
from seriatim.testing.snapshot import snapshot_files
from tests.outage.world import Medium, World

SAID = [("1", "a0"), ("2", "b0"), ("1", "/queue a1"), ("1", "a2")]


class Photographed(Medium):
    """A store that keeps what a kill before or after each commit would leave of the home."""

    def __init__(self, home: Path, folder: Path) -> None:
        super().__init__()
        self.home, self.folder = home, folder
        self.taken: list[Path] = []

    def open(self, path: str) -> Store:
        """Open it, to be photographed at each commit."""
        if self.shut:
            return super().open(path)
        return FaultyStore(SqliteStore(path), before=self._before, after=self._after)

    def _before(self, commits: Sequence[Commit]) -> None:
        self._take()

    def _after(self, commits: Sequence[Commit], outcomes: Sequence[Outcome]) -> None:
        self._take()

    def _take(self) -> None:
        copy = self.folder / f"{len(self.taken)}"
        snapshot_files(self.home / "state.db", copy)
        copy.chmod(0o700)
        # The spool last: it may be gone, or go meanwhile, only when the store, as copied before, has everything.
        try:
            shutil.copytree(self.home / SPOOL, copy / SPOOL)
        except (FileNotFoundError, shutil.Error):
            shutil.rmtree(copy / SPOOL, ignore_errors=True)
        self.taken.append(copy)


def test_a_crash_at_any_point_of_the_take_in(tmp_path: Path) -> None:
    """Started again from what a kill before or after each commit left, every message is accepted once, in its order."""
    world = World(tmp_path / "home")
    medium = world.medium = Photographed(tmp_path / "home", tmp_path / "crashes")
    medium.shut = True

    async def outage() -> None:
        async with world.gateway():
            for chat, text in SAID:
                posted = world.platform.say(text, chat_id=chat, user_id=chat)
                await world.until(lambda posted=posted: posted.acked)  # type: ignore[misc]

    async def take_in() -> None:
        async with world.gateway() as gateway:
            await world.until(lambda: not world.spool_file.exists() and gateway.balance()["waiting"] == 0)

    world.run(outage)
    medium.shut = False
    world.run(take_in)
    with_spool = [copy for copy in medium.taken if (copy / SPOOL / "inbound.jsonl").exists()]
    assert len(with_spool) >= 2 * len(SAID)
    for copy in medium.taken:
        again = World(copy)

        async def finish(again: World = again) -> None:
            async with again.gateway() as gateway:
                await again.until(lambda: not again.spool_file.exists() and gateway.balance()["waiting"] == 0)

        again.run(finish)
        reader = SqliteReader(copy / "state.db")
        assert audit(reader).holds
        found = {
            log: [event.data["text"] for event in reader.read(log) if event.type == "inbox/accepted"]
            for log in reader.logs("lane:")
        }
        reader.close()
        assert sorted(found.values()) == [["a0", "a1", "a2"], ["b0"]], copy
