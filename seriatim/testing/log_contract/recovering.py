"""What an interruption left is kept, and closed."""

from __future__ import annotations

import copy

import pytest

from seriatim.storage.event_log.persistence import SessionPersistence

from .world import ID, LogWorld, event, header, kinds, needs, opened, stored, told, turn


class Recovering:
    """An interrupted turn is kept, closed in the log by load and prepare, in memory only by inspect."""

    @told
    async def test_an_interrupted_turn_is_closed(self, world: LogWorld) -> None:
        """Inspect shows the closers and changes nothing; load stores them; what follows goes on there (contract 3)."""
        async with SessionPersistence(world.open()) as service:
            await stored(service, opened(0))
        async with SessionPersistence(world.open()) as service:
            before = await service.list_snapshots()
            seen = await service.inspect(ID)
            assert kinds(seen.events)[3:] == ["step/end", "turn/end"]
            assert seen.events[4].data["reason"] == {"kind": "interrupted"}
            assert {e.time for e in seen.events[3:]} == {1002}
            assert await service.list_snapshots() == before
            assert len((await service.read_from(ID, 0)).events) == 3

            loaded = await service.load(ID)
            after = await service.list_snapshots()
            assert loaded == seen
            assert after != before
            assert (await service.read_from(ID, 0)).events == seen.events
            await service.append(ID, turn(5, 2))
        async with SessionPersistence(world.open()) as service:
            again = await service.load(ID)
            assert (again.events[:5], len(again.events)) == (seen.events, 11)

    @told
    async def test_a_call_that_was_only_asked_for_was_not_started(self, world: LogWorld) -> None:
        """A requested call without a record gets "not started", before step and turn end (contract 4)."""
        asked = event("assistant/message", 3, turn=1, step=1, text="", calls=[{"id": "c1", "name": "f", "args": {}}])
        async with SessionPersistence(world.open()) as service:
            await stored(service, [*opened(0), asked])
        async with SessionPersistence(world.open()) as service:
            events = (await service.load(ID)).events
            assert kinds(events)[4:] == ["tool/result", "step/end", "turn/end"]
            assert (events[4].data["id"], events[4].data["outcome"]) == ("c1", "not started")
            assert events[4].source_event_seqs is None

    @told
    async def test_the_outcome_of_a_recorded_call_is_unknown(self, world: LogWorld) -> None:
        """A recorded call without a result gets one that cites it and says what to do (contract 5)."""
        asked = event("assistant/message", 3, turn=1, step=1, text="", calls=[{"id": "c1", "name": "f", "args": {}}])
        call = event("tool/call", 4, turn=1, step=1, id="c1", name="f", args={}, effects="write")
        async with SessionPersistence(world.open()) as service:
            await stored(service, [*opened(0), asked, call])
        async with SessionPersistence(world.open()) as service:
            events = (await service.load(ID)).events
            assert kinds(events)[5:] == ["tool/result", "step/end", "turn/end"]
            result = events[5]
            assert (result.data["id"], result.data["outcome"], result.source_event_seqs) == ("c1", "unknown", (4,))
            assert "look" in result.data["content"]
            assert [e.data["id"] for e in events if e.type in ("tool/call", "tool/result")] == ["c1", "c1"]

    @told
    async def test_a_torn_end_and_an_open_turn_are_repaired_at_once(self, world: LogWorld) -> None:
        """One load cuts what was torn and closes the turn; inspect before it touches neither (coordinator 40)."""
        needs(world, "torn")
        async with SessionPersistence(world.open()) as service:
            await stored(service, opened(0))
        world.tear(ID)
        async with SessionPersistence(world.open()) as service:
            before = await service.list_snapshots()
            seen = await service.inspect(ID)
            assert (len(seen.events), seen.lost_bytes > 0) == (5, True)
            assert (await service.read_from(ID, 1)).events == tuple(opened(0)[1:])
            assert await service.list_snapshots() == before
            loaded = await service.load(ID)
            assert (loaded.events, loaded.lost_bytes) == (seen.events, 0)
            await service.append(ID, turn(5, 2))
        async with SessionPersistence(world.open()) as service:
            assert len((await service.load(ID)).events) == 11

    @told
    async def test_a_torn_end_is_cut_by_the_next_append(self, world: LogWorld) -> None:
        """What is appended after a torn batch is whole, and nothing fuses with what was torn."""
        needs(world, "torn")
        async with SessionPersistence(world.open()) as service:
            await stored(service, turn(0))
        for number in (1, 2, 3):
            world.tear(ID)
            async with SessionPersistence(world.open()) as service:
                await service.append(ID, turn(6 * number, number + 1))
        async with SessionPersistence(world.open()) as service:
            found = await service.load(ID)
            assert (found.lost_bytes, len(found.events)) == (0, 24)

    @told
    async def test_views_cannot_be_changed(self, world: LogWorld) -> None:
        """What load and inspect give refuses every change, and goes back into a log as it is (coordinator 8, 9)."""
        async with SessionPersistence(world.open()) as service:
            await stored(service, turn(0))
            for view in (await service.load(ID), await service.inspect(ID), await service.read_from(ID, 0)):
                with pytest.raises(AttributeError):
                    view.meta.id = "x"  # type: ignore[misc]
                with pytest.raises(AttributeError):
                    view.events[1].seq = 9  # type: ignore[misc]
                with pytest.raises(TypeError):
                    view.events[1].data["text"] = "changed"
                with pytest.raises(TypeError):
                    view.events[0].data["claims"].append("x")
                assert type(view.events) is tuple
            source = await service.inspect(ID)
            await service.create(header("copy"))
            await service.append("copy", source.events)
            assert (await service.load("copy")).events == source.events
            assert copy.deepcopy(source.events[0].data) == {"turn": 1, "claims": []}
