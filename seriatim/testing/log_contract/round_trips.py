"""What is appended is what is read."""

from __future__ import annotations

import asyncio

import pytest

from seriatim.errors import InvalidInputError, LogNotFoundError, SequenceMismatchError
from seriatim.events import Event
from seriatim.storage.event_log.persistence import SessionPersistence
from seriatim.storage.event_log.values import SessionEvent
from seriatim.testing.store_contract import GOOD_DATA

from .world import ID, LogWorld, header, stored, told, turn


class RoundTrips:
    """What is appended is what is read."""

    @told
    async def test_what_is_appended_is_loaded(self, world: LogWorld) -> None:
        """Load gives the same header and identical events, in this life and in the next (contract 1)."""
        whole = header(cwd="/srv/é", parent_session="p", seed_length=2, origin="subagent", delegation_depth=3,
                       agent_preset="x")  # fmt: skip
        events = [*turn(0), SessionEvent("x/y", 6, -5, dict(GOOD_DATA), True)]
        async with SessionPersistence(world.open()) as service:
            await service.create(whole)
            await service.append(ID, events)
            found = await service.load(ID)
            assert (found.meta, found.events) == (whole, tuple(events))
        async with SessionPersistence(world.open()) as service:
            found = await service.load(ID)
            assert (found.meta, found.events) == (whole, tuple(events))
            assert [type(v) for v in found.events[6].data["numbers"]] == [float] * len(GOOD_DATA["numbers"])

    @told
    async def test_surface_fields_come_back(self, world: LogWorld) -> None:
        """The envelope's rare fields come back as they were, an empty list of sources included."""
        events = [
            SessionEvent("user/message", 0, 1, {"text": "a"}, False, (), "append"),
            SessionEvent("assistant/message", 1, 1, {}, False, (0,), {"op": "replace", "start": 0, "end": 0}),
        ]
        async with SessionPersistence(world.open()) as service:
            await stored(service, events)
        async with SessionPersistence(world.open()) as service:
            assert (await service.inspect(ID)).events == tuple(events)

    def test_a_fractional_time_is_refused(self, world: LogWorld) -> None:
        """A header with a fractional time can't be made; the id is free for a sound one (contract 2)."""
        with pytest.raises(InvalidInputError):
            header(created_at=0.5)

        async def story() -> None:
            async with SessionPersistence(world.open()) as service:
                await stored(service, turn(0))
                assert len((await service.load(ID)).events) == 6

        asyncio.run(story())

    @told
    async def test_any_id_is_kept_apart(self, world: LogWorld) -> None:
        """Ids that look like paths, options or each other are as good as any, and none becomes another's."""
        ids = ["..", ".", "/etc/passwd", "a/b", "a\\b", "a:b", "-x", "~002e", "A", "a", "é", "e\u0301", "漢👍", " ",
               "CON", "x" * 4096, "x" * 4095 + "y", "session:a", "%2e", "a\nb"]  # fmt: skip
        async with SessionPersistence(world.open()) as service:
            for number, session_id in enumerate(ids):
                await stored(service, turn(0, text=str(number)), session_id)
        async with SessionPersistence(world.open()) as service:
            assert sorted(h.id for h in await service.list()) == sorted(ids)
            for number, session_id in enumerate(ids):
                found = await service.inspect(session_id)
                assert (found.meta.id, found.events[1].data["text"]) == (session_id, str(number))

    @told
    async def test_whatever_is_accepted_can_be_loaded(self, world: LogWorld) -> None:
        """A batch is refused when it is offered, or it can be read: nothing is accepted and then fails (B120)."""
        odd: list[Event] = [
            SessionEvent("", 0, 0, {}), SessionEvent("a\n", 0, 0, {}), SessionEvent("x" * 300, 0, 0, {}),
            SessionEvent("a", True, 0, {}), SessionEvent("a", 0, 0.5, {}), SessionEvent("a", 0, 2**53, {}),  # type: ignore[arg-type]
            SessionEvent("a", 0, 0, {}, 1), SessionEvent("a", 0, 0, {}, True, (-1,)),  # type: ignore[arg-type]
            SessionEvent("a", 0, 0, {}, True, (0.5,)), SessionEvent("batch/end", 0, 0, {"count": 1}, True),  # type: ignore[arg-type]
            SessionEvent("session/header", 0, 0, {}, True), SessionEvent("a", 0, 0, {"\x00": "\x1f\u2028"}, True),
            SessionEvent("a", 0, -(2**53) + 1, {"": [[[]]]}, True), SessionEvent("a", 0, 0, {}, True, None, [1]),
        ]  # fmt: skip
        async with SessionPersistence(world.open()) as service:
            accepted = 0
            for number, one in enumerate(odd):
                await service.create(header(f"s{number}"))
                try:
                    await service.append(f"s{number}", [one])
                except (InvalidInputError, SequenceMismatchError):
                    with pytest.raises(LogNotFoundError):
                        await service.inspect(f"s{number}")
                    continue
                accepted += 1
                assert (await service.inspect(f"s{number}")).events == (one,)
                assert (await service.read_from(f"s{number}", 0)).events == (one,)
            assert accepted >= 5
