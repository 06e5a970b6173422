"""What readers are shown: suffixes, revisions, lists, artifacts; and what their cancelling does."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from seriatim.errors import InvalidInputError, LogNotFoundError, RawArtifactsUnsupportedError
from seriatim.storage.event_log.persistence import SessionPersistence
from seriatim.storage.event_log.values import SessionPersistenceSnapshot
from seriatim.testing.log_gates import Gated

from .world import ID, LogWorld, ended, header, next_life, opened, stored, told, turn


class Reading:
    """Suffixes, revisions, lists, artifacts, cancellation."""

    @told
    async def test_a_suffix_is_read_as_it_lies(self, world: LogWorld) -> None:
        """Whole, suffix, at the end, far past it, an open turn without closers; bad numbers, no log (contract 8)."""
        events = [*turn(0), *opened(6, 2)]
        async with SessionPersistence(world.open()) as service:
            await stored(service, events)
            for _ in range(2):
                for first in (0, 1, 6, 8, 9, 10, 10**9):
                    found = await service.read_from(ID, first)
                    assert (found.meta, found.events) == (header(), tuple(events[first:]))
            for bad in (-1, 0.5, True, "0", None):
                with pytest.raises(InvalidInputError):
                    await service.read_from(ID, bad)  # type: ignore[arg-type]
            with pytest.raises(LogNotFoundError):
                await service.read_from("nobody", 0)

    @told
    async def test_a_revision_changes_with_its_log_alone(self, world: LogWorld) -> None:
        """Equal while nothing changes, over lives and looks; another after an append or repair (contract 9)."""
        async with SessionPersistence(world.open()) as service:
            await stored(service, turn(0))
            await stored(service, turn(0), "other")
            (one,) = [s for s in await service.list_snapshots() if s.header.id == ID]
            await service.inspect(ID)
            await service.load(ID)
            await service.append("other", turn(6, 2))
            assert one in await service.list_snapshots()
        async with SessionPersistence(world.open()) as service:
            assert one in await service.list_snapshots()
            seen = {one.revision}
            for number in range(1, 4):
                await service.append(ID, opened(6, 2) if number == 1 else turn(6 * number, number + 1))
                if number == 1:
                    await service.append(ID, ended(9, 2))
                (now,) = [s for s in await service.list_snapshots() if s.header.id == ID]
                assert now.revision not in seen
                seen.add(now.revision)

    @told
    async def test_a_revision_names_its_source(self, world: LogWorld) -> None:
        """Two stores with the same session in them never show equal revisions."""
        async with SessionPersistence(world.open()) as here, SessionPersistence(world.elsewhere()) as there:
            await stored(here, turn(0))
            await stored(there, turn(0))
            assert (await here.list_snapshots())[0].revision != (await there.list_snapshots())[0].revision

    @told
    async def test_a_list_shows_every_session(self, world: LogWorld) -> None:
        """Every session that holds events is listed once, by pages of any size too; an empty medium lists none."""
        async with SessionPersistence(world.open()) as service:
            assert (await service.list(), await service.list_snapshots()) == ([], [])
            headers = [header(f"s{n}", cwd=f"/srv/{n % 3}" if n % 4 else None) for n in range(23)]
            for one in headers:
                await service.create(one)
                await service.append(one.id, turn(0))
            assert sorted(await service.list(), key=lambda h: h.id) == sorted(headers, key=lambda h: h.id)
            for limit in (1, 7, 23, 100):
                found: list[SessionPersistenceSnapshot] = []
                after = None
                while True:
                    page = await service.survey(after, limit)
                    found += page.snapshots
                    assert len(page.snapshots) <= limit
                    if page.next is None:
                        break
                    after = page.next
                assert sorted(s.header.id for s in found) == sorted(h.id for h in headers)

    @told
    async def test_the_artifact_is_what_is_stored(self, world: LogWorld) -> None:
        """Where there are artifacts: the text as stored, its header, and where it lies; None for no session."""
        async with SessionPersistence(world.open()) as service:
            if "raw" not in world.capabilities:
                assert (service.supports_raw_artifacts, service.locate(header())) == (False, None)
                with pytest.raises(RawArtifactsUnsupportedError):
                    await service.read_raw(ID)
                return
            assert service.supports_raw_artifacts
            assert await service.read_raw(ID) is None
            place = service.locate(header())
            assert place is not None
            await stored(service, turn(0, text="é"))
            found = await service.read_raw(ID)
            assert found is not None
            assert (found.meta, found.filename) == (header(), "session.jsonl")
            assert '"text":"é"' in found.content
            assert service.locate(header()) == place

    @told
    async def test_who_is_missing_is_told_so(self, world: LogWorld) -> None:
        """Every reading operation on a session that isn't there says that it isn't (coordinator 34)."""
        async with SessionPersistence(world.open()) as service:
            for missing in (service.load("nobody"), service.inspect("nobody"), service.prepare("nobody"),
                            service.inspect("nobody", salvage=True), service.append("nobody", turn(0))):  # fmt: skip
                with pytest.raises(LogNotFoundError):
                    await missing
            with pytest.raises(InvalidInputError):
                await service.inspect("")

    @told
    async def test_a_cancelled_reader_is_told_its_reason(self, world: LogWorld) -> None:
        """Cancelled before it began, a reading operation ends with the very reason and reads nothing (contract 7)."""
        gated = Gated(world.open())
        async with SessionPersistence(gated) as service:
            await stored(service, turn(0))
            gated.calls.clear()
            operations: list[Coroutine[Any, Any, Any]] = [
                service.list(), service.list_snapshots(), service.inspect(ID), service.read_from(ID, 0),
            ]  # fmt: skip
            reason = object()
            for operation in operations:
                task = asyncio.ensure_future(operation)
                task.cancel(reason)
                with pytest.raises(asyncio.CancelledError) as cancelled:
                    await task
                assert cancelled.value.args == (reason,)
            assert not gated.calls
            assert len(await service.list()) == 1
            assert len((await service.inspect(ID)).events) == 6

    @told
    async def test_a_cancelled_reader_takes_only_itself(self, world: LogWorld) -> None:
        """Readers of one session share one read; cancelling one of them leaves the read to the others."""
        async with next_life(world, turn(0)) as (service, gated):
            gate = gated.hold("read")
            readers = [asyncio.ensure_future(service.inspect(ID)) for _ in range(5)]
            await asyncio.to_thread(gate.arrived.wait, 60)
            readers[0].cancel("enough")
            with pytest.raises(asyncio.CancelledError, match="enough"):
                await readers[0]
            gate.let_go()
            found = await asyncio.gather(*readers[1:])
            assert {len(view.events) for view in found} == {6}
            assert gated.calls["read"] == 1

    @told
    async def test_a_read_that_nobody_waits_for_is_kept(self, world: LogWorld) -> None:
        """When all readers are cancelled the read goes on, and the next reader finds what it brought."""
        async with next_life(world, turn(0)) as (service, gated):
            await gated.hold("read").cut_off(service.inspect(ID))
            assert len((await service.inspect(ID)).events) == 6
            assert gated.calls["read"] == 1

    @told
    async def test_a_cancelled_append_is_whole(self, world: LogWorld) -> None:
        """An append that has begun settles as itself: who cancelled its caller finds all of it."""
        gated = Gated(world.open())
        async with SessionPersistence(gated) as service:
            await service.create(header())
            await gated.hold("append").cut_off(service.append(ID, turn(0)))
            await service.append(ID, turn(6, 2))
            assert len((await service.load(ID)).events) == 12
