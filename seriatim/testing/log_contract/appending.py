"""What is appended: whole batches in order, taken at the call, under ids that are taken once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from seriatim.errors import (
    LogExistsError,
    LogNotFoundError,
    LosslessJsonError,
    PersistenceClosedError,
    SequenceMismatchError,
)
from seriatim.storage.event_log.persistence import SessionPersistence
from seriatim.storage.event_log.values import SessionEvent
from seriatim.testing.store_contract import bad_data

from .world import ID, LogWorld, event, header, kinds, opened, stored, told, turn


class Appending:
    """Contiguous, whole, lossless, taken at the call."""

    @told
    async def test_a_batch_off_the_cursor_is_refused(self, world: LogWorld) -> None:
        """A first number that isn't the head is refused and stores nothing, so nothing is there twice (contract 10)."""
        async with SessionPersistence(world.open()) as service:
            await stored(service, turn(0))
            for first in (0, 5, 7):
                with pytest.raises(SequenceMismatchError) as refused:
                    await service.append(ID, turn(first, 2))
                assert (refused.value.expected, refused.value.index, refused.value.got) == (6, 0, first)
            await service.append(ID, turn(6, 2))
            assert [e.seq for e in (await service.load(ID)).events] == list(range(12))

    @told
    async def test_a_hole_in_a_batch_is_refused(self, world: LogWorld) -> None:
        """A hole or a repetition inside the batch is refused whole (contract 11)."""
        async with SessionPersistence(world.open()) as service:
            await stored(service, turn(0))
            for second in (6, 8):
                with pytest.raises(SequenceMismatchError) as refused:
                    await service.append(ID, [event("turn/start", 6, turn=2), event("turn/end", second, turn=2)])
                assert (refused.value.expected, refused.value.index, refused.value.got) == (7, 1, second)
            assert len((await service.load(ID)).events) == 6

    @pytest.mark.parametrize("what", bad_data())
    def test_what_json_would_change_is_refused(self, world: LogWorld, what: str) -> None:
        """Data that JSON can't carry is refused by the event's type, at the call; nothing is stored (contract 12)."""

        async def story() -> None:
            async with SessionPersistence(world.open()) as service:
                await service.create(header())
                with pytest.raises(LosslessJsonError, match="some/type"):
                    await service.append(
                        ID, [event("turn/start", 0), SessionEvent("some/type", 1, 0, bad_data()[what])]
                    )
                with pytest.raises(LogNotFoundError):
                    await service.inspect(ID)

        asyncio.run(story())

    @told
    async def test_a_batch_is_taken_at_the_call(self, world: LogWorld) -> None:
        """What the caller does with its events after the call doesn't reach the log (coordinator 10)."""
        async with SessionPersistence(world.open()) as service:
            await service.create(header())
            mine = turn(0)
            data: dict[str, Any] = {"text": "said", "more": [1]}
            mine[1] = SessionEvent("user/message", 1, 0, data)
            pending = service.append(ID, mine)
            data["text"], data["late"] = "changed", True
            data["more"].append(2)
            mine.clear()
            await pending
            assert (await service.inspect(ID)).events[1].data == {"text": "said", "more": [1]}
            assert len((await service.inspect(ID)).events) == 6

    @told
    async def test_appends_keep_the_order_of_their_calls(self, world: LogWorld) -> None:
        """Batches that are offered at once are stored one after another, and a failure stops none after it."""
        async with SessionPersistence(world.open()) as service:
            await service.create(header())
            answers = await asyncio.gather(
                service.append(ID, turn(0)),
                service.append(ID, turn(99)),
                *(service.append(ID, turn(6 * n, n + 1)) for n in range(1, 9)),
                return_exceptions=True,
            )
            assert [type(a).__name__ for a in answers] == ["NoneType", "SequenceMismatchError", *["NoneType"] * 8]
            assert len((await service.load(ID)).events) == 54

    @told
    async def test_an_empty_batch_does_nothing(self, world: LogWorld) -> None:
        """An empty batch stores nothing, repairs nothing and needs no session (coordinator 33)."""
        async with SessionPersistence(world.open()) as service:
            await stored(service, opened(0))
            before = await service.list_snapshots()
        async with SessionPersistence(world.open()) as service:
            await service.append(ID, [])
            await service.append("nobody", [])
            assert await service.list_snapshots() == before

    @told
    async def test_an_append_adopts_a_stored_session(self, world: LogWorld) -> None:
        """The first append of a new life closes an open turn and goes on after the closers (coordinator 32)."""
        async with SessionPersistence(world.open()) as service:
            await stored(service, opened(0))
        async with SessionPersistence(world.open()) as service:
            with pytest.raises(SequenceMismatchError) as refused:
                await service.append(ID, turn(3, 2))
            assert refused.value.expected == 5
            await service.append(ID, turn(5, 2))
            assert kinds((await service.load(ID)).events)[3:6] == ["step/end", "turn/end", "turn/start"]

    @told
    async def test_an_id_is_taken_once(self, world: LogWorld) -> None:
        """An id that is in memory, on disk, or was stored in another life can't be created (coordinator 35)."""
        async with SessionPersistence(world.open()) as service:
            await service.create(header())
            with pytest.raises(LogExistsError):
                await service.create(header(cwd="/elsewhere"))
            await service.append(ID, turn(0))
            with pytest.raises(LogExistsError):
                await service.create(header())
        async with SessionPersistence(world.open()) as service:
            with pytest.raises(LogExistsError):
                await service.create(header(cwd="/elsewhere"))

    @told
    async def test_a_new_session_leaves_no_trace(self, world: LogWorld) -> None:
        """A session that was never appended to is in no list and in no later life (contract 6, coordinator 4)."""
        async with SessionPersistence(world.open()) as service:
            await service.create(header())
            assert (await service.list(), await service.list_snapshots()) == ([], [])
            with pytest.raises(LogNotFoundError):
                await service.load(ID)
        async with SessionPersistence(world.open()) as service:
            assert await service.list() == []
            await stored(service, turn(0))
            assert [h.id for h in await service.list()] == [ID]

    @told
    async def test_a_closed_service_takes_nothing(self, world: LogWorld) -> None:
        """Closing finishes what has begun, refuses all that is new, and may be repeated."""
        service = SessionPersistence(world.open())
        await service.create(header())
        begun = asyncio.gather(service.append(ID, turn(0)), service.append(ID, turn(6, 2)))
        await asyncio.sleep(0)
        await service.close()
        await service.close()
        await begun
        for refused in (service.append(ID, turn(12)), service.load(ID), service.inspect(ID), service.prepare(ID),
                        service.read_from(ID, 0), service.list(), service.create(header("b"))):  # fmt: skip
            with pytest.raises(PersistenceClosedError):
                await refused
        async with SessionPersistence(world.open()) as again:
            assert len((await again.load(ID)).events) == 12
