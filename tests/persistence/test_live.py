"""Live sessions over every medium: the coordinator's cases, by number, with the real in-memory store."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from seriatim.errors import (
    InvalidInputError,
    LogExistsError,
    LogNotFoundError,
    PersistenceClosedError,
    SequenceMismatchError,
    SessionGoneError,
    SessionLiveError,
    SessionReservedError,
    StoreUnhealthyError,
)
from seriatim.events import Event
from seriatim.storage.event_log.header import SessionHeader
from seriatim.storage.event_log.persistence import SessionPersistence
from seriatim.storage.event_log.session import Session
from seriatim.storage.event_log.values import CreateSessionOptions, RestoredSessionOptions, freeze_events
from seriatim.testing.log_gates import Gated

from .live_world import ID, TURN, Stage, end_turn, kinds, log_of, say_turn, stage, told

__all__ = ["stage"]


def seeded(**meta: Any) -> CreateSessionOptions:
    """Options with a turn as seed."""
    return CreateSessionOptions(log_of(*TURN), meta)


# Live and load


@told
async def test_a_flushed_session_survives(stage: Stage) -> None:
    """What was appended and flushed is there in the next life, to the letter (coordinator 1)."""
    async with stage.live() as (live, service, _):
        session = await live.create(ID)
        say_turn(session, 1)
        await live.flush(ID)
        assert (await service.load(ID)).events == session.events
        before = session.events
    async with stage.service() as (service, _):
        assert (await service.load(ID)).events == before


@told
async def test_an_open_live_turn_is_not_loaded(stage: Stage) -> None:
    """Load of a live session with an open turn rejects, and closes nothing; inspect shows it (coordinator 2)."""
    async with stage.live() as (live, service, _):
        session = await live.create(ID)
        say_turn(session, 1, end=False)
        with pytest.raises(SessionLiveError, match="open turn"):
            await service.load(ID)
        assert (await service.inspect(ID)).events == session.events
        end_turn(session, 1)
        assert kinds((await service.load(ID)).events)[-1] == "turn/end"
        assert await stage_kinds(service) == kinds(session.events)


@told
async def test_a_loaded_live_session_is_stored(stage: Stage) -> None:
    """All that load shows of a live session is durable, also what was appended just as the flush ended."""
    async with stage.live() as (live, service, gated):
        session = await live.create(ID)
        say_turn(session, 1)
        gate = gated.hold("append")

        async def go_on() -> None:
            await live.flush(ID)
            say_turn(session, 2)

        first = asyncio.ensure_future(go_on())
        await asyncio.to_thread(gate.arrived.wait, 30)
        loading = asyncio.ensure_future(service.load(ID))
        for _ in range(9):  # until it waits for the same flush
            await asyncio.sleep(0)
        gate.let_go()
        await first
        loaded = await loading
        assert loaded.events == session.events
        stored = gated.backend.read(ID)
        assert stored is not None
        assert stored.events == loaded.events


async def stage_kinds(service: SessionPersistence) -> list[str]:
    """Types of the stored events."""
    return kinds((await service.read_from(ID, 0)).events)


@told
async def test_liveness_is_asked_again_after_the_queue(stage: Stage) -> None:
    """A load that waits in the queue while the session becomes live doesn't repair it (coordinator 3)."""
    async with stage.live() as (live, service, _):
        session = await live.create(ID)
        say_turn(session, 1, end=False)
        await live.retire(ID)
    async with stage.live() as (live, service, gated):
        gate = gated.hold("read")
        first = asyncio.ensure_future(service.read_from(ID, 0))
        load = asyncio.ensure_future(service.load(ID))
        await asyncio.to_thread(gate.arrived.wait)
        options = CreateSessionOptions(log_of(*TURN[:3]))
        prepared = live.prepare(ID, options)
        prepared.session._events[:] = session.events  # the very log, times included
        publishing = asyncio.ensure_future(live.publish(prepared))
        await asyncio.sleep(0)
        gate.let_go()
        with pytest.raises(SessionLiveError):
            await load
        await asyncio.gather(first, publishing)
        assert await stage_kinds(service) == kinds(session.events)


@told
async def test_an_empty_live_session_is_nowhere(stage: Stage) -> None:
    """A live session without events can't be loaded and is in no list (coordinator 4)."""
    async with stage.live() as (live, service, _):
        await live.create(ID)
        await live.flush(ID)
        with pytest.raises(LogNotFoundError):
            await service.load(ID)
        assert await service.list() == []
        assert (await service.inspect(ID)).events == ()


# Headers


@told
async def test_the_header_comes_back(stage: Stage) -> None:
    """Seed length, delegation depth, parent and the rest round-trip through storage (coordinator 5, 6, 7)."""
    meta: dict[str, Any] = {"seed_length": 4, "delegation_depth": 2, "parent_session": "p", "cwd": "/srv"}
    meta |= {"origin": "subagent", "agent_preset": "x", "created_at": 7}
    async with stage.live() as (live, _, _):
        session = await live.create(ID, seeded(**meta))
        assert session.header == SessionHeader(id=ID, **meta)
    async with stage.live() as (live, service, _):
        assert (await service.list())[0] == session.header
        assert (await live.resume(ID)).header == session.header


# Seeds


@told
async def test_a_fork_s_seed_is_written_once(stage: Stage) -> None:
    """A fork stores what it inherited and its end-seed in one batch; another flush adds nothing (coordinator 14)."""
    async with stage.live() as (live, service, gated):
        parent = await live.create("parent", CreateSessionOptions(meta={"cwd": "/srv"}))
        say_turn(parent, 1)
        child = await live.fork(parent, ID)
        assert gated.calls["append"] == 0
        await live.flush(ID)
        await live.flush(ID)
        assert gated.calls["append"] == 1
        assert (child.header.parent_session, child.header.seed_length, child.header.cwd) == ("parent", 6, "/srv")
        assert await stage_kinds(service) == [*kinds(parent.events), "session/end-seed"]


@told
async def test_a_resumed_seed_is_not_rewritten(stage: Stage) -> None:
    """A resume writes its end-seed and what follows, never what was stored; numbers go on (coordinator 15)."""
    async with stage.live() as (live, _, _):
        say_turn(await live.create(ID, seeded(seed_length=6)), 2)
    for life in range(2, 4):
        async with stage.live() as (live, _, _):
            session = await live.resume(ID)
            assert session.header.seed_length == 6
            ends = [event.seq for event in session.events if event.type == "session/end-seed"]
            assert (len(ends), session.live_from) == (life, ends[-1])
            say_turn(session, life + 1)
    events = await stage.stored()
    assert [event.seq for event in events] == list(range(len(events)))
    assert kinds(events).count("turn/start") == 4


@told
async def test_a_seed_that_ends_itself_gets_no_second_end(stage: Stage) -> None:
    """An end-seed follows a given seed, also an empty one, but not another end-seed; without a seed there is none."""
    ended = log_of(*TURN, ("session/end-seed", {}))
    async with stage.live() as (live, _, _):
        whole = await live.create("a", CreateSessionOptions(ended))
        empty = await live.create("b", CreateSessionOptions([]))
        none = await live.create("c")
    assert (kinds(whole.events)[-2:], kinds(empty.events), kinds(none.events)) == (
        ["turn/end", "session/end-seed"],
        ["session/end-seed"],
        [],
    )


# Another service under the same sessions


@told
async def test_sessions_that_live_already_are_stored(stage: Stage) -> None:
    """Sessions that lived in memory alone are stored once a service is attached (coordinator 16)."""
    live = stage.sessions()
    session = await live.create(ID, seeded())
    say_turn(session, 2)
    assert live.states()[ID].state == "memory"
    async with stage.service() as (service, _):
        await live.attach(service)
        await stage.passes(live)
        assert await stage_kinds(service) == kinds(session.events)
        await live.close()


@told
async def test_a_service_is_left_with_everything_stored(stage: Stage) -> None:
    """Detaching stores all that waits; the sessions live on in memory (coordinator 17)."""
    async with stage.sessions() as live:
        async with stage.service() as (service, _):
            await live.attach(service)
            session = await live.create(ID)
            say_turn(session, 1)
            await live.detach()
            say_turn(session, 2)
        assert kinds(await stage.stored()) == kinds(session.events)[:6]
        assert live.get(ID) is session


@told
async def test_a_live_session_is_adopted_by_the_next_service(stage: Stage) -> None:
    """What is stored already is taken over, the rest written, a turn left open (coordinator 18, 19, 20)."""
    async with stage.sessions() as live:
        session = await live.create(ID)
        async with stage.service() as (service, gated):
            await live.attach(service)
            say_turn(session, 1, end=False)
            await live.flush(ID)
            session.append("assistant/message", {"turn": 1, "step": 1, "text": "", "calls": [{"id": "a"}]})
            gated.fail("append", StoreUnhealthyError("gone"))
            await stage.passes(live)
        assert [type(error) for _, error in stage.errors] == [StoreUnhealthyError]
        async with stage.service() as (service, gated):
            await live.attach(service)
            assert live.states()[ID].stored == 3
            await stage.passes(live)
            assert await stage_kinds(service) == kinds(session.events)
            assert gated.calls["append"] == 1
            assert session.open_turn == 1
            await live.close()


@told
async def test_a_torn_batch_is_cut_by_adoption(stage: Stage) -> None:
    """Adoption after a torn write cuts what was torn and writes the suffix after the whole batches."""
    if "torn" not in stage.world.capabilities:
        pytest.skip("this medium lacks the capability 'torn'")
    async with stage.sessions() as live:
        session = await live.create(ID)
        async with stage.service() as (service, _):
            await live.attach(service)
            say_turn(session, 1, end=False)
            await live.flush(ID)
        stage.world.tear(ID)
        end_turn(session, 1)
        async with stage.service() as (service, _):
            await live.attach(service)
            await live.flush(ID)
            assert await stage_kinds(service) == kinds(session.events)
            await live.close()


@told
async def test_another_log_is_not_taken_over(stage: Stage) -> None:
    """A live session whose stored log says something else is refused on attaching; the others are adopted."""
    async with stage.live() as (live, _, _):
        say_turn(await live.create(ID), 1, "one thing")
    live = stage.sessions()
    say_turn(await live.create(ID), 1, "another thing")
    say_turn(await live.create("b"), 1)
    async with stage.service() as (service, _):
        with pytest.raises(ExceptionGroup) as refused:
            await live.attach(service)
        assert [type(error) for error in refused.value.exceptions] == [LogExistsError]
        assert live.states()[ID].state == "blocked"
        await live.flush("b")
        with pytest.raises(LogExistsError):
            await live.flush(ID)
        with pytest.raises(ExceptionGroup):
            await live.close()
    assert (await stage.stored())[1].data["text"] == "one thing"


# Ownership


@told
async def test_a_stored_id_is_not_a_new_session_s(stage: Stage) -> None:
    """A new live session on a stored id, empty or with another seed, is refused, also once it was loaded
    (coordinator 21, 26).
    """
    async with stage.live() as (live, _, _):
        say_turn(await live.create(ID), 1)
    async with stage.live() as (live, service, _):
        for options in (None, seeded(), CreateSessionOptions([])):
            with pytest.raises(LogExistsError):
                await live.create(ID, options)
        await service.load(ID)
        with pytest.raises(LogExistsError):
            await live.create(ID)
        assert live.get(ID) is None
        assert (await live.resume(ID)).open_turn == 0


@told
async def test_an_abandoned_id_is_free_again(stage: Stage) -> None:
    """A session that was retired without an event leaves its id to others (coordinator 22)."""
    async with stage.live() as (live, service, _):
        await live.create(ID, CreateSessionOptions(meta={"cwd": "/a"}))
        await live.retire(ID)
        say_turn(await live.create(ID, CreateSessionOptions(meta={"cwd": "/b"})), 1)
        await live.flush(ID)
        assert [h.cwd for h in await service.list()] == ["/b"]


@told
async def test_a_retired_session_is_stored_first(stage: Stage) -> None:
    """Retiring stores what waits before it forgets; the object takes nothing more (coordinator 23)."""
    async with stage.live() as (live, service, _):
        session = await live.create(ID)
        say_turn(session, 1)
        await live.retire(ID)
        assert live.get(ID) is None
        assert (await service.load(ID)).events == session.events
        with pytest.raises(SessionGoneError):
            session.append("x/y", {})
        await live.retire(ID)


@told
async def test_publishing_twice_is_publishing_once(stage: Stage) -> None:
    """The same prepared session published again changes nothing and is observed once (coordinator 24)."""
    async with stage.live() as (live, _, gated):
        preparation = live.prepare(ID)
        session = await live.publish(preparation)
        assert await live.publish(preparation) is session
        preparation.dispose()
        say_turn(session, 1)
        await stage.passes(live)
        assert gated.calls["append"] == 1
        assert live.states()[ID].stored == 6


@told
async def test_what_could_not_be_published_is_not_published_later(stage: Stage) -> None:
    """A session that storage didn't take, or that was retired since, is never published dead: another is prepared."""
    async with stage.live() as (live, _, gated):
        with live.prepare(ID) as preparation:
            gated.fail("read", StoreUnhealthyError("away"))
            with pytest.raises(StoreUnhealthyError):
                await live.publish(preparation)
            with pytest.raises(SessionGoneError):
                await live.publish(preparation)
        with live.prepare(ID) as preparation:
            say_turn(await live.publish(preparation), 1)
            await live.retire(ID)
            with pytest.raises(SessionGoneError):
                await live.publish(preparation)
        assert live.get(ID) is None
    assert len(await stage.stored()) == 6


@told
async def test_an_id_that_was_only_created_can_be_claimed(stage: Stage) -> None:
    """A created session that nobody wrote to is a live session's if the folder is the same; its seed is then written
    (coordinator 25, 29, 31).
    """
    async with stage.live() as (live, service, _):
        for name, cwd in (("a", "/srv"), ("b", None), ("c", "/srv")):
            await service.create(SessionHeader(id=name, created_at=5, cwd=cwd))
        for name, other in (("a", "/else"), ("b", "/srv"), ("c", None)):
            with pytest.raises(LogExistsError):
                await live.create(name, seeded(cwd=other))
        session = await live.create("a", seeded(cwd="/srv"))
        await live.flush("a")
        assert kinds((await service.load("a")).events) == kinds(session.events)


@told
async def test_a_stored_log_can_be_claimed_by_who_has_it_whole(stage: Stage) -> None:
    """A seed that is the stored log appends nothing, one that goes on its suffix alone, and neither from another
    folder (coordinator 27, 28, 30).
    """
    log = log_of(*TURN, ("session/end-seed", {}))
    header = SessionHeader(id=ID, created_at=5, cwd="/srv")
    async with stage.service() as (service, _):
        await service.create(header)
        await service.append(ID, log)
    longer = [*log, Event("x/y", 7, 9, {}, True), Event("session/end-seed", 8, 9, {})]
    async with stage.live() as (live, service, gated):
        await service.load(ID)
        with pytest.raises(LogExistsError):
            await live.create(ID, CreateSessionOptions(log, {"cwd": "/else"}))
        await live.create(ID, CreateSessionOptions(log, {"cwd": "/srv"}))
        await live.flush(ID)
        assert gated.calls["append"] == 0
        await live.retire(ID)
        await live.create(ID, CreateSessionOptions(longer, {"cwd": "/srv"}))
        await live.flush(ID)
        assert gated.calls["append"] == 1
        assert (await service.load(ID)).events == freeze_events(longer)


@told
async def test_a_flush_before_storage_has_taken_the_session(stage: Stage) -> None:
    """A flush that comes while the session is being claimed waits for it, and begins at 0 (coordinator 39)."""
    live = stage.sessions()
    session = await live.create(ID)
    say_turn(session, 1)
    async with stage.service() as (service, gated):
        gate = gated.hold("read")
        attaching = asyncio.ensure_future(live.attach(service))
        await asyncio.to_thread(gate.arrived.wait)
        flush = asyncio.ensure_future(live.flush(ID))
        session.append("x/y", {}, ignorable=True)
        gate.let_go()
        await asyncio.gather(flush, attaching)
        assert await stage_kinds(service) == kinds(session.events)
        await live.close()


# Preparing


@told
async def test_a_preparation_keeps_its_id(stage: Stage) -> None:
    """While a session is prepared its id is nobody else's; disposed, twice, it is free and nothing was stored."""
    async with stage.live() as (live, service, _):
        preparation = live.prepare(ID, seeded())
        with pytest.raises(SessionReservedError):
            await live.create(ID)
        with pytest.raises(SessionReservedError):
            live.prepare(ID)
        assert (live.get(ID), service.supports_raw_artifacts is None) == (None, False)
        preparation.dispose()
        preparation.dispose()
        await live.create(ID)
        with pytest.raises(SessionLiveError):
            live.prepare(ID)


@told
async def test_stored_values_become_a_session_without_a_copy(stage: Stage) -> None:
    """Restored events are the very ones that were handed over; the header must be that id's."""
    events = freeze_events(log_of(*TURN))
    options = RestoredSessionOptions(events, SessionHeader(id=ID, created_at=1))
    async with stage.live() as (live, _, _):
        with pytest.raises(InvalidInputError, match="header"):
            live.prepare("other", options)
        session = await live.publish(live.prepare(ID, options))
        assert all(mine is theirs for mine, theirs in zip(session.events, events, strict=False))
        assert kinds(session.events)[-1] == "session/end-seed"


@told
async def test_only_the_prepared_object_is_published(stage: Stage) -> None:
    """While a stored session is prepared for a resume, another object with its id is refused; a second resume waits."""
    async with stage.live() as (live, _, _):
        say_turn(await live.create(ID), 1)
        await live.retire(ID)
        assert live._service is not None
        with await live._service.prepare(ID) as preparation:
            with pytest.raises((SessionReservedError, LogExistsError)):
                await live.create(ID, CreateSessionOptions(preparation.session.events))
            published = await live.publish(preparation)
        assert live.get(ID) is published
        with pytest.raises(SessionLiveError):
            await live.resume(ID)


@told
async def test_a_disposed_resume_changes_nothing(stage: Stage) -> None:
    """A prepared resume that is given up leaves the stored log as it was, and can be taken again."""
    async with stage.live() as (live, service, _):
        say_turn(await live.create(ID), 1)
        await live.retire(ID)
        before = await service.list_snapshots()
        (await service.prepare(ID)).dispose()
        assert await service.list_snapshots() == before
        assert kinds((await live.resume(ID)).events)[-1] == "session/end-seed"


# Writing through the service, retiring, closing


@told
async def test_the_service_appends_through_the_owner(stage: Stage) -> None:
    """An append to a live session goes into the session, is durable when it returns, and must go on at its head."""
    async with stage.live() as (live, service, gated):
        session = await live.create(ID)
        await service.append(ID, log_of(*TURN))
        assert (kinds(session.events), gated.calls["append"]) == ([kind for kind, _ in TURN], 1)
        with pytest.raises(SequenceMismatchError):
            await service.append(ID, log_of(*TURN))
        with pytest.raises(InvalidInputError):
            await service.append(ID, [Event("turn/end", 6, 0, {"turn": 1})])
        assert session.head == 6


@told
async def test_a_failed_retirement_is_tried_again(stage: Stage) -> None:
    """What can't be stored is kept and told; retiring again, or closing, stores it."""
    async with stage.live() as (live, service, gated):
        for name in ("a", "b"):
            say_turn(await live.create(name), 1)
        gated.fail("append", *[StoreUnhealthyError("full")] * 3)
        with pytest.raises(StoreUnhealthyError):
            await live.retire("a")
        assert live.is_live("a")
        with pytest.raises(ExceptionGroup) as refused:
            await live.close()
        assert len(refused.value.exceptions) == 2
        assert {name: state.stored for name, state in live.states().items()} == {"a": 0, "b": 0}
        await live.close()
        assert live.states() == {}
        assert sorted(header.id for header in await service.list()) == ["a", "b"]


@told
async def test_a_retirement_is_waited_for(stage: Stage) -> None:
    """Create and resume of an id wait for its retirement, which takes nothing from its successor."""
    async with stage.live() as (live, _, gated):
        session = await live.create(ID)
        say_turn(session, 1)
        gate = gated.hold("append")
        retiring = asyncio.ensure_future(live.retire(ID))
        await asyncio.to_thread(gate.arrived.wait)
        resumed = asyncio.ensure_future(live.resume(ID))
        again = asyncio.ensure_future(live.retire(ID))
        await asyncio.sleep(0)
        gate.let_go()
        await asyncio.gather(retiring, again)
        successor = await resumed
        assert live.get(ID) is successor
        assert successor is not session
        say_turn(successor, 2)
        await live.flush(ID)
    assert kinds(await stage.stored()).count("turn/start") == 2


@told
async def test_every_reader_waits_for_a_retirement(stage: Stage) -> None:
    """Load, inspect, read_from and prepare of a session that is being retired see all of it, repaired only then."""
    for operation in ("load", "inspect", "read_from", "prepare"):
        async with stage.live() as (live, service, gated):
            session = await live.create(operation)
            say_turn(session, 1)
            say_turn(session, 2, end=False)
            gate = gated.hold("append")
            retiring = asyncio.ensure_future(live.retire(operation))
            await asyncio.to_thread(gate.arrived.wait)
            args = (operation, 0) if operation == "read_from" else (operation,)
            reading = asyncio.ensure_future(getattr(service, operation)(*args))
            await asyncio.sleep(0)
            gate.let_go()
            await retiring
            found = await reading
            events = found.session.events if operation == "prepare" else found.events
            assert kinds(events)[:9] == kinds(session.events)


@told
async def test_a_service_that_was_replaced_writes_nothing(stage: Stage) -> None:
    """Attached to another service without a word to the first, a session is written by the second alone."""
    async with stage.sessions() as live, stage.service() as (service, first):
        await live.attach(service)
        session = await live.create(ID)
        say_turn(session, 1)
        other = SessionPersistence(second := Gated(stage.world.elsewhere()))
        await live.attach(other)
        await stage.passes(live)
        assert (first.calls["append"], second.calls["append"]) == (0, 1)
        assert (await other.load(ID)).events == session.events
        await live.close()
        await other.close()


@told
async def test_closed_is_closed(stage: Stage) -> None:
    """After close no session is made, prepared or resumed."""
    async with stage.live() as (live, _, _):
        await live.close()
        with pytest.raises(PersistenceClosedError):
            await live.create(ID)
        with pytest.raises(PersistenceClosedError):
            live.prepare(ID)


@told
async def test_a_cancelled_create_leaves_nothing_alive(stage: Stage) -> None:
    """Who is cancelled while a session is claimed leaves its id free."""
    async with stage.live() as (live, _, gated):
        gate = gated.hold("read")
        creating = asyncio.ensure_future(live.create(ID))
        await asyncio.to_thread(gate.arrived.wait)
        creating.cancel()
        with pytest.raises(asyncio.CancelledError):
            await creating
        gate.let_go()
        assert isinstance(await live.create(ID), Session)
