"""Sessions that are live, and their owner."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from seriatim.errors import (
    LogExistsError,
    LogNotFoundError,
    SequenceMismatchError,
    SessionLiveError,
    SessionReservedError,
)
from seriatim.events import Event
from seriatim.storage.event_log.persistence import SessionPersistence
from seriatim.storage.event_log.values import RestoredSessionOptions, SessionInspection, freeze_events
from seriatim.testing.log_gates import Gated

from .world import ID, LogWorld, ended, event, header, opened, stored, told, turn


class LiveOwner:
    """An owner of sessions in memory, as small as one can be: what is live is what it was told."""

    def __init__(self) -> None:
        self.live: dict[str, list[Event]] = {}
        self.flushed: list[str] = []
        self.appended: list[tuple[str, int]] = []

    def is_live(self, session_id: str) -> bool:
        """Whether it was told so."""
        return session_id in self.live

    def restore(self, options: RestoredSessionOptions) -> Any:
        """The options themselves."""
        return options

    async def snapshot(self, session_id: str) -> SessionInspection:
        """What it was told."""
        return SessionInspection(header(session_id), freeze_events(self.live[session_id]))

    async def flush(self, session_id: str) -> None:
        """Remembered."""
        self.flushed.append(session_id)

    async def retired(self, session_id: str) -> None:
        """It lets go of none."""

    async def append(self, session_id: str, events: Sequence[Event]) -> None:
        """Remembered, and taken into the live session."""
        self.appended.append((session_id, len(events)))
        self.live[session_id] += events


class Owning:
    """A live session is its owner's; others look at it, or ask the owner."""

    @told
    async def test_a_live_session_is_shown_as_it_is(self, world: LogWorld) -> None:
        """Inspect borrows the owner's view, open turn and all, and adds no closers."""
        owner = LiveOwner()
        async with SessionPersistence(world.open(), owner=owner) as service:
            await stored(service, turn(0))
            owner.live[ID] = [*turn(0), *opened(6, 2)]
            assert len((await service.inspect(ID)).events) == 9
            assert len((await service.read_from(ID, 0)).events) == 6

    @told
    async def test_an_open_live_turn_is_never_closed_by_load(self, world: LogWorld) -> None:
        """Load flushes a live session; it gives the balanced one and refuses the open one (coordinator 2)."""
        owner = LiveOwner()
        async with SessionPersistence(world.open(), owner=owner) as service:
            await stored(service, opened(0))
            owner.live[ID] = [*opened(0)]
            with pytest.raises(SessionLiveError):
                await service.load(ID)
            owner.live[ID] += ended(3)
            assert len((await service.load(ID)).events) == 6
            assert owner.flushed == [ID, ID, ID]  # the last: what it shows is durable
            assert len((await service.read_from(ID, 0)).events) == 3
            owner.live["empty"] = []
            with pytest.raises(LogNotFoundError):
                await service.load("empty")

    @told
    async def test_liveness_is_asked_again_after_waiting(self, world: LogWorld) -> None:
        """A session that becomes live while its operation waits is not repaired or reserved (coordinator 3)."""
        async with SessionPersistence(world.open()) as service:
            await stored(service, opened(0))
        gated, owner = Gated(world.open()), LiveOwner()
        async with SessionPersistence(gated, owner=owner) as service:
            gate = gated.hold("read")
            ahead = asyncio.ensure_future(service.read_from(ID, 0))
            await asyncio.to_thread(gate.arrived.wait, 60)
            behind = [asyncio.ensure_future(step) for step in (service.load(ID), service.prepare(ID))]
            adding = asyncio.ensure_future(service.append(ID, turn(5, 2)))
            for _ in range(20):
                await asyncio.sleep(0)
            owner.live[ID] = [*opened(0)]
            gate.let_go()
            await ahead
            for late in (*behind, adding):
                with pytest.raises(SessionLiveError):
                    await late
            assert gated.calls["append"] == 0

    @told
    async def test_a_live_session_is_changed_through_its_owner(self, world: LogWorld) -> None:
        """An append to a live session goes to its owner, whose own writing reaches the log."""
        owner = LiveOwner()
        async with SessionPersistence(world.open(), owner=owner) as service:
            await service.create(header())
            owner.live[ID] = []
            await service.append(ID, turn(0))
            assert owner.appended == [(ID, 6)]
            with pytest.raises(LogNotFoundError):
                await service.read_from(ID, 0)
            await service.append(ID, owner.live[ID], by=owner)
            assert len((await service.read_from(ID, 0)).events) == 6
            with pytest.raises(SessionLiveError):
                await service.prepare(ID)

    @told
    async def test_a_claim_writes_what_is_missing(self, world: LogWorld) -> None:
        """A live log that begins with what is stored claims it, and its rest is appended (coordinator 25, 27, 28)."""
        async with SessionPersistence(world.open()) as service:
            lazy, session = header("lazy"), object()
            await service.create(lazy)
            assert await service.claim(lazy, turn(0), session) == 0
            await stored(service, turn(0))
            await service.load(ID)
            assert await service.claim(header(), turn(0), session) == 6
            assert await service.claim(header(), turn(0), session) == 6
            await service.release(ID, session)
            assert await service.claim(header(), [*turn(0), *opened(6, 2)], session) == 6
            await service.append(ID, opened(6, 2))
            assert len((await service.read_from(ID, 0)).events) == 9

    @told
    async def test_an_open_turn_is_not_closed_by_a_claim(self, world: LogWorld) -> None:
        """A live session that is taken up by a new service goes on in its turn (coordinator 18-20)."""
        async with SessionPersistence(world.open()) as service:
            await stored(service, opened(0))
        async with SessionPersistence(world.open()) as service:
            assert await service.claim(header(), [*opened(0), *ended(3)], object()) == 3
            await service.append(ID, ended(3))
            assert (await service.load(ID)).events == tuple(turn(0))

    @told
    async def test_a_stranger_in_a_live_log_closes_no_turn(self, world: LogWorld) -> None:
        """An owner whose log somebody else has continued is refused each time, and its open turn is left alone."""
        owner, backend = LiveOwner(), world.open()
        async with SessionPersistence(backend, owner=owner) as service:
            session = object()
            await service.claim(header(), opened(0), session)
            await service.append(ID, opened(0), by=owner)
            backend.append(ID, header(), 3, [event("todo/write", 3)])
            for _ in range(2):
                with pytest.raises(SequenceMismatchError) as refused:
                    await service.append(ID, ended(3), by=owner)
                assert refused.value.expected == 4
            assert len((await service.read_from(ID, 0)).events) == 4
            await service.release(ID, session)

    @told
    async def test_a_claim_must_fit_what_is_stored(self, world: LogWorld) -> None:
        """Another object's id, another beginning, or no beginning at all is refused (coordinator 21, 26)."""
        other = [*turn(0)]
        other[1] = event("user/message", 1, turn=1, text="other")
        async with SessionPersistence(world.open()) as service:
            await stored(service, turn(0))
            for events in ([], turn(0)[:5], other, [*other, *turn(6, 2)]):
                with pytest.raises(LogExistsError):
                    await service.claim(header(), events, object())
            mine = object()
            await service.claim(header(), turn(0), mine)
            with pytest.raises(SessionLiveError):
                await service.claim(header(), turn(0), object())
            await service.release(ID, object())
            with pytest.raises(SessionLiveError):
                await service.claim(header(), turn(0), object())

    @told
    async def test_a_claim_keeps_to_its_folder(self, world: LogWorld) -> None:
        """Another working directory is another session's, lazy or stored, with or without one (coordinator 29-31)."""
        async with SessionPersistence(world.open()) as service:
            await service.create(header("lazy", cwd="/srv/a"))
            await stored(service, turn(0), cwd="/srv/a")
            await stored(service, turn(0), "none")
            for session_id, cwd in (("lazy", "/srv/b"), (ID, "/srv/b"), (ID, None), ("none", "/srv/b")):
                events = [] if session_id == "lazy" else turn(0)
                with pytest.raises(LogExistsError):
                    await service.claim(header(session_id, cwd=cwd), events, object())

    @told
    async def test_only_the_prepared_object_is_published(self, world: LogWorld) -> None:
        """A reservation gives way to its own session object alone; its disposal then does nothing."""
        async with SessionPersistence(world.open(), owner=LiveOwner()) as service:
            await stored(service, turn(0))
            preparation = await service.prepare(ID)
            with pytest.raises(SessionReservedError):
                await service.claim(header(), turn(0), object())
            assert await service.claim(header(), turn(0), preparation.session) == 6
            preparation.dispose()
            await service.append(ID, turn(6, 2))
            assert len((await service.inspect(ID)).events) == 12

    @told
    async def test_an_abandoned_id_can_be_used_again(self, world: LogWorld) -> None:
        """An id that never stored anything is free when its live session has gone (coordinator 22)."""
        async with SessionPersistence(world.open()) as service:
            session = object()
            await service.claim(header(), [], session)
            with pytest.raises(LogExistsError):
                await service.create(header())
            await service.release(ID, session)
            await stored(service, turn(0))
