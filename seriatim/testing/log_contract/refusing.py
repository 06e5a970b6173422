"""What this version can't read faithfully, and what isn't what was written."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from seriatim.errors import SessionFormatUnsupportedError, SessionPersistenceCorruptionError
from seriatim.storage.event_log.header import SESSION_FORMAT_VERSION
from seriatim.storage.event_log.persistence import SessionPersistence
from seriatim.storage.event_log.values import SessionEvent

from .world import ID, LogWorld, needs, stored, told, turn


class Refusing:
    """What this version can't read faithfully, and what isn't what was written."""

    @told
    async def test_a_newer_format_asks_for_an_upgrade(self, world: LogWorld) -> None:
        """A log of a newer format is refused with that direction, on every path, unchanged (coordinator 36; B118)."""
        needs(world, "version")
        await self._refused(world, SESSION_FORMAT_VERSION + 1, "upgrade")

    @pytest.mark.parametrize("version", [0, -1, "2", None, 1.5])
    def test_an_older_or_strange_format_has_no_path(self, world: LogWorld, version: Any) -> None:
        """Any other version is refused as one without a path, never as damage (coordinator 37; B118)."""
        needs(world, "version")
        asyncio.run(self._refused(world, version, "no path"))

    async def _refused(self, world: LogWorld, version: Any, direction: str) -> None:
        async with SessionPersistence(world.open()) as service:
            await stored(service, turn(0))
            await stored(service, turn(0), "sound")
        world.set_version(ID, version)
        backend = world.open()
        async with SessionPersistence(backend) as service:
            revision = backend.revision(ID)
            for refused in (service.load(ID), service.inspect(ID), service.prepare(ID), service.read_from(ID, 0),
                            service.append(ID, turn(6, 2)), service.inspect(ID, salvage=True),
                            *([service.read_raw(ID)] if service.supports_raw_artifacts else [])):  # fmt: skip
                with pytest.raises(SessionFormatUnsupportedError) as error:
                    await refused
                assert error.value.direction == direction
                if service.supports_raw_artifacts:
                    assert error.value.location is not None
            assert backend.revision(ID) == revision
            page = await service.survey()
            assert [s.header.id for s in page.snapshots] == ["sound"]
            assert [type(p.error) for p in page.problems] == [SessionFormatUnsupportedError]
            assert [h.id for h in await service.list()] == ["sound"]

    @told
    async def test_an_unknown_event_must_be_marked(self, world: LogWorld) -> None:
        """An unknown type is refused on every reading path unless it is marked ignorable (coordinator 38)."""
        strange = SessionEvent("plugin/odd", 6, 0, {"x": 1})
        async with SessionPersistence(world.open()) as service:
            await stored(service, [*turn(0), SessionEvent("plugin/odd", 6, 0, {"x": 1}, True)])
            await stored(service, [*turn(0), strange], "b")
            assert len((await service.inspect(ID)).events) == 7
            assert (await service.read_from(ID, 6)).events[0].ignorable
            for refused in (service.load("b"), service.inspect("b"), service.prepare("b"),
                            service.read_from("b", 0), service.read_from("b", 7)):  # fmt: skip
                with pytest.raises(SessionFormatUnsupportedError, match="plugin/odd") as error:
                    await refused
                assert error.value.direction == "upgrade"
            await service.append("b", turn(7, 2))  # a live session's durability is never refused for it
            partial = await service.inspect("b", salvage=True)
            assert (partial.partial, len(partial.events)) == (True, 12)
            assert len(await service.list()) == 2

    @told
    async def test_damage_is_told_and_never_written_over(self, world: LogWorld) -> None:
        """A damaged log is refused on every path, stays as it is, and shows what can be trusted as partial."""
        needs(world, "damage")
        async with SessionPersistence(world.open()) as service:
            await stored(service, turn(0, text="damage me"))
            for number in (1, 2):
                await service.append(ID, turn(6 * number, number + 1))
            await stored(service, turn(0), "sound")
        world.damage(ID)
        async with SessionPersistence(world.open()) as service:
            for refused in (service.load(ID), service.inspect(ID), service.prepare(ID), service.read_from(ID, 0),
                            service.append(ID, turn(18, 4))):  # fmt: skip
                with pytest.raises(SessionPersistenceCorruptionError):
                    await refused
            partial = await service.inspect(ID, salvage=True)
            assert partial.partial
            assert partial.problems
            # Memory checks a log as a whole, so there is nothing of it left to trust.
            assert [e.seq for e in partial.events] in (list(range(6, 18)), [])
            assert "damage me" not in repr(partial.events)
            assert len((await service.load("sound")).events) == 6
            assert (await service.inspect("sound", salvage=True)).partial is False
