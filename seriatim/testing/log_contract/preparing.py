"""Sessions that are reserved, and those that are kept ready."""

from __future__ import annotations

import asyncio

import pytest

from seriatim.errors import (
    InvalidInputError,
    SequenceMismatchError,
    SessionReservedError,
    StoreUnhealthyError,
    WriteUnknownError,
)
from seriatim.storage.event_log.persistence import SessionPersistence
from seriatim.testing.log_gates import Gated

from .world import ID, LogWorld, header, next_life, opened, stored, told, turn


class Preparing:
    """Reservations, and the sessions that are kept ready."""

    @told
    async def test_a_look_and_a_resume_read_once(self, world: LogWorld) -> None:
        """Inspect, inspect again and prepare of an unchanged session share one read of its log."""
        async with next_life(world, turn(0)) as (service, gated):
            first = await service.inspect(ID)
            assert (await service.inspect(ID)).events is first.events
            with await service.prepare(ID) as preparation:
                assert preparation.session.events is first.events
            assert (await service.load(ID)).events is first.events
            assert gated.calls["read"] == 1

    @told
    async def test_a_preparation_keeps_others_out(self, world: LogWorld) -> None:
        """While a session is reserved it can be looked at, not appended to; a second resume waits for the first."""
        async with SessionPersistence(world.open()) as service:
            await stored(service, turn(0))
            preparation = await service.prepare(ID)
            with pytest.raises(SessionReservedError):
                await service.append(ID, turn(6, 2))
            assert len((await service.inspect(ID)).events) == 6
            second = asyncio.ensure_future(service.prepare(ID))
            loading = asyncio.ensure_future(service.load(ID))
            for _ in range(20):
                await asyncio.sleep(0)
            assert not second.done()
            assert not loading.done()
            preparation.dispose()
            preparation.dispose()
            (await second).dispose()
            assert len((await loading).events) == 6
            await service.append(ID, turn(6, 2))

    @told
    async def test_a_cancelled_resume_reserves_nothing(self, world: LogWorld) -> None:
        """Whoever is cancelled while a session is prepared leaves it free, repaired and ready."""
        async with next_life(world, opened(0)) as (service, gated):
            await gated.hold("append").cut_off(service.prepare(ID))
            await service.append(ID, turn(5, 2))
            assert len((await service.read_from(ID, 0)).events) == 11

    @told
    async def test_few_sessions_are_kept_ready(self, world: LogWorld) -> None:
        """The least recently used one is let go at the bound; one that is reserved doesn't count and stays."""
        names = [f"s{n}" for n in range(4)]
        async with SessionPersistence(world.open()) as service:
            for name in names:
                await stored(service, turn(0), name)
        gated = Gated(world.open())
        async with SessionPersistence(gated, prepared_max=2) as service:
            preparation = await service.prepare("s0")
            for name in ("s1", "s2", "s1", "s3"):  # s2 is then the oldest
                await service.inspect(name)
            reads = gated.calls["read"]
            for name in ("s1", "s3", "s0"):
                await service.inspect(name)
            assert gated.calls["read"] == reads
            await service.inspect("s2")
            assert gated.calls["read"] == reads + 1
            preparation.dispose()
        for bad in (0, -1, 1.5, True):
            with pytest.raises(InvalidInputError):
                SessionPersistence(world.open(), prepared_max=bad)  # type: ignore[arg-type]

    @told
    async def test_a_changed_log_is_read_again(self, world: LogWorld) -> None:
        """An append, ours or a stranger's, makes what was kept of a log useless."""
        async with SessionPersistence(world.open()) as service:
            await stored(service, turn(0))
        backend = world.open()
        gated = Gated(backend)
        async with SessionPersistence(gated) as service:
            await service.inspect(ID)
            await service.append(ID, turn(6, 2))
            assert len((await service.inspect(ID)).events) == 12
            backend.append(ID, header(), 12, turn(12, 3))  # behind the service's back
            assert len((await service.inspect(ID)).events) == 18
            with await service.prepare(ID) as preparation:
                assert len(preparation.session.events) == 18

    @told
    async def test_a_stranger_s_append_is_found_out(self, world: LogWorld) -> None:
        """A batch at a head that a stranger has passed is refused with the true head, and the next one fits."""
        backend = world.open()
        async with SessionPersistence(backend) as service:
            await stored(service, turn(0))
            backend.append(ID, header(), 6, turn(6, 2))
            with pytest.raises(SequenceMismatchError) as refused:
                await service.append(ID, turn(6, 2, "mine"))
            assert refused.value.expected == 12
            await service.append(ID, turn(12, 3))

    @told
    async def test_a_failed_read_is_not_kept(self, world: LogWorld) -> None:
        """An error of one read reaches its readers; the next reader reads anew."""
        async with next_life(world, turn(0)) as (service, gated):
            gated.fail("read", StoreUnhealthyError("the disk is away"))
            with pytest.raises(StoreUnhealthyError):
                await service.inspect(ID)
            assert len((await service.inspect(ID)).events) == 6

    @told
    async def test_a_failed_append_can_be_repeated(self, world: LogWorld) -> None:
        """A batch that is absent, or whose fate nobody knows, is offered again and is there once (B121)."""
        gated = Gated(world.open())
        async with SessionPersistence(gated) as service:
            await service.create(header())
            gated.fail("append", StoreUnhealthyError("full"), WriteUnknownError("lost"))
            with pytest.raises(StoreUnhealthyError):
                await service.append(ID, turn(0))
            with pytest.raises(WriteUnknownError):
                await service.append(ID, turn(0))
            await service.append(ID, turn(0))
            gated.fail_late("append", WriteUnknownError("written, and the answer lost"))
            with pytest.raises(WriteUnknownError):
                await service.append(ID, turn(6, 2))
            await service.append(ID, [*turn(6, 2), *turn(12, 3)])
            assert [e.seq for e in (await service.load(ID)).events] == list(range(18))
