"""Write-behind when storage fails: nothing is lost, doubled, reordered or promised too early, over every medium."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path

import pytest
from msgspec.structs import replace

from seriatim.commits import Commit, Durable, Part, Refused
from seriatim.errors import LogExistsError, LogNotFoundError, StoreUnhealthyError, WriteUnknownError
from seriatim.events import Event, session_log
from seriatim.limits import WRITE_BATCH_EVENTS_MAX
from seriatim.storage.memory import MemoryStore
from seriatim.storage.sqlite import SqliteStore

from .live_world import ID, TURN, Stage, kinds, log_of, say_turn, stage, told
from .worlds import JsonlWorld

__all__ = ["stage"]
FULL = StoreUnhealthyError("the disk is full")
LOST = WriteUnknownError("the answer was lost")


def numbers(events: Iterable[Event]) -> list[int]:
    """Their sequence numbers."""
    return [event.seq for event in events]


@told
async def test_a_batch_that_failed_leaves_no_hole(stage: Stage) -> None:
    """Refused before it was written, with new events meanwhile: numbers stay contiguous, each stored once (B121)."""
    async with stage.live() as (live, _, gated):
        session = await live.create(ID)
        for errors in ([], [FULL], [FULL, FULL, FULL], []):
            gated.fail("append", *errors)
            for _ in range(len(errors) + 1):
                say_turn(session, session.head // 6 + 1)
                await stage.passes(live)
        assert live.states()[ID].state == "idle"
        assert len(stage.errors) == 4
    assert numbers(await stage.stored()) == list(range(session.head))


@pytest.mark.parametrize("error", [LOST, FULL], ids=["unknown", "wrong"])
@pytest.mark.parametrize("flushed", [True, False], ids=["flush", "window"])
def test_a_lost_answer_is_found_to_be_stored(stage: Stage, error: Exception, *, flushed: bool) -> None:
    """Written, but the answer is lost (or even says "absent"): found stored, not written again, no livelock (B121)."""

    @told
    async def story(stage: Stage) -> None:
        async with stage.live() as (live, _, gated):
            session = await live.create(ID)
            say_turn(session, 1)
            await stage.passes(live)
            gated.fail_late("append", error)
            say_turn(session, 2)
            if flushed:
                with pytest.raises(type(error)):
                    await live.flush(ID)
            else:
                await stage.passes(live)
            assert live.states()[ID].state == "blocked"
            say_turn(session, 3)
            await stage.passes(live)
            assert (live.states()[ID].state, live.states()[ID].stored) == ("idle", 18)
            assert gated.calls["append"] <= 4
        assert numbers(await stage.stored()) == list(range(18))

    story(stage)


@told
async def test_a_restart_in_the_middle_of_a_failure(stage: Stage) -> None:
    """Failing, stopped and started again: what was stored is contiguous, and the new life goes on after it (B121)."""
    async with stage.service() as (service, gated):
        live = stage.sessions()
        await live.attach(service)
        session = await live.create(ID)
        say_turn(session, 1)
        await live.flush(ID)
        gated.fail_late("append", LOST)
        gated.fail("append", *[None, FULL, FULL])
        for number in (2, 3):
            say_turn(session, number)
            await stage.passes(live)
    async with stage.live() as (live, _, _):
        again = await live.resume(ID)
        assert kinds(again.events).count("turn/start") == 2
        say_turn(again, 3)
    events = await stage.stored()
    assert numbers(events) == list(range(len(events)))


@told
async def test_one_write_at_a_time(stage: Stage) -> None:
    """While a batch is being written no other of its session is begun, however many windows end (B121)."""
    async with stage.live() as (live, _, gated):
        session = await live.create(ID)
        say_turn(session, 1)
        gate = gated.hold("append")
        stage.clock.advance(200)
        await asyncio.to_thread(gate.arrived.wait)
        for number in (2, 3):
            say_turn(session, number)
            stage.clock.advance(1000)
            await asyncio.sleep(0)
        assert gated.calls["append"] == 1
        gate.let_go()
        await stage.passes(live)
        assert gated.calls["append"] == 2
    assert numbers(await stage.stored()) == list(range(18))


@told
async def test_what_was_accepted_stays_in_line(stage: Stage) -> None:
    """Three failures in a row, then success: one batch, first in line, in order, nothing twice (B122)."""
    async with stage.live() as (live, _, gated):
        session = await live.create(ID)
        gated.fail("append", FULL, FULL, FULL)
        for number in (1, 2, 3):
            say_turn(session, number)
            await stage.passes(live)
            assert (live.states()[ID].state, live.states()[ID].stored) == ("blocked", 0)
        await live.flush(ID)
        assert live.states()[ID].error is None
    assert (await stage.stored()) == list(session.events)


@told
async def test_a_flush_retries_at_once_and_tells(stage: Stage) -> None:
    """An explicit flush after a failure writes at once and raises what it meets; it tells nobody else (B122)."""
    async with stage.live() as (live, _, gated):
        session = await live.create(ID)
        say_turn(session, 1)
        gated.fail("append", FULL, FULL)
        await stage.passes(live)
        with pytest.raises(StoreUnhealthyError, match="full"):
            await live.flush(ID)
        assert [name for name, _ in stage.errors] == [ID]
        await live.flush(ID)
        assert live.states()[ID].error is None
        session.append("plugin/thing", {}, ignorable=True)
        gated.fail("append", FULL)
        with pytest.raises(StoreUnhealthyError, match="full"):
            await live.flush(ID)
        assert (live.states()[ID].state, live.states()[ID].error) == ("blocked", FULL)
    assert len(await stage.stored()) == 7


@told
async def test_a_shutdown_tells_what_it_could_not_store(stage: Stage) -> None:
    """Closing while storage fails raises with each session's error, and says how much of it is stored (B122)."""
    async with stage.live() as (live, _, gated):
        session = await live.create(ID)
        say_turn(session, 1)
        await live.flush(ID)
        say_turn(session, 2)
        gated.fail("append", FULL)
        with pytest.raises(ExceptionGroup, match="1 live sessions could not be stored") as refused:
            await live.close()
        assert refused.value.exceptions == (FULL,)
        assert [(s.stored, s.events) for s in live.states().values()] == [(6, 12)]


@told
async def test_later_events_wait_for_the_failed_batch(stage: Stage) -> None:
    """While the first batch fails nothing behind it is written and nothing loops; the state says blocked (B123)."""
    async with stage.live() as (live, _, gated):
        session = await live.create(ID)
        say_turn(session, 1)
        gate = gated.hold("append")
        gated.fail("append", FULL)
        stage.clock.advance(200)
        await asyncio.to_thread(gate.arrived.wait)
        say_turn(session, 2)
        stage.clock.advance(200)
        gate.let_go()
        await stage.passes(live, 0)
        await stage.passes(live, 1_000_000)
        assert live.states()[ID].state == "blocked"
        assert gated.calls["append"] == 1
        await live.flush(ID)
        assert gated.calls["append"] == 2
    assert (await stage.stored()) == list(session.events)


@told
async def test_success_is_told_after_the_commit(stage: Stage) -> None:
    """An append that fails before it is durable raises and leaves nothing; the same batch goes through later (B124)."""
    batch = log_of(*TURN, *(("x/y", {"key": n}) for n in range(9)))
    async with stage.service() as (service, gated):
        live = stage.sessions()
        await live.attach(service)
        await live.create(ID)
        gated.fail("append", FULL)
        marked = [e if n < 6 else type(e)(e.type, e.seq, e.time, e.data, True) for n, e in enumerate(batch)]
        with pytest.raises(StoreUnhealthyError):
            await service.append(ID, marked)
        with pytest.raises(LogNotFoundError):
            await service.read_from(ID, 0)
    # Killed here: nothing of it was promised, and nothing stands in the way of the same events again.
    async with stage.live() as (live, service, _):
        session = await live.create(ID)
        await service.append(ID, marked)
        assert numbers((await service.read_from(ID, 0)).events) == list(range(15))
        assert session.head == 15


def test_a_stranger_s_log_is_left_alone(tmp_path: Path) -> None:
    """Where another process has gone on with the log, each flush is refused and writes nothing, closers neither."""

    @told
    async def story(stage: Stage) -> None:
        async with stage.service() as (service, _), stage.service() as (stranger, _):
            live = stage.sessions()
            await live.attach(service)
            session = await live.create(ID)
            say_turn(session, 1)
            await live.flush(ID)
            await stranger.append(ID, [Event("turn/start", 6, 0, {"turn": 2, "claims": ["theirs"]})])
            say_turn(session, 2)
            for _ in range(3):
                with pytest.raises(LogExistsError):
                    await live.flush(ID)
            assert len((await stranger.read_from(ID, 0)).events) == 7

    story(Stage(JsonlWorld(tmp_path, "raw")))


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_keys_are_claimed_by_commits_alone(tmp_path: Path, kind: str) -> None:
    """A commit that is refused claims none of its fifteen keys; the same ones go through with the next (B124)."""
    store = MemoryStore() if kind == "memory" else SqliteStore(tmp_path / "state.db")
    reader, keys = store.reader(), tuple(f"key-{n}" for n in range(15))
    events = tuple(Event("x/y", n, 0, {}, True) for n in range(15))

    def commit(name: str, head: int) -> Commit:
        part = Part(session_log("s"), head, tuple(replace(e, seq=head + e.seq) for e in events), None, {"n": 1})
        return Commit(name, session_log("s"), 0, (part,), keys)

    try:
        assert isinstance(store.commit([commit("a", 7)])[0], Refused)
        assert reader.has_keys(keys) == set()
        assert store.commit([commit("b", 0)]) == [Durable("b")]
        assert reader.has_keys(keys) == set(keys)
    finally:
        reader.close()
        store.close()


@told
async def test_a_long_outage_is_made_good_in_bounded_batches(stage: Stage) -> None:
    """Ten thousand events that waited are stored in order, none of the writes larger than the bound."""
    async with stage.live() as (live, _, gated):
        session = await live.create(ID)
        gated.fail("append", FULL)
        session.append("x/y", {}, ignorable=True)
        await stage.passes(live)
        for _ in range(10_000):
            session.append("x/y", {}, ignorable=True)
        await live.flush(ID)
        assert gated.calls["append"] == 2 + 10_001 // WRITE_BATCH_EVENTS_MAX
    assert numbers(await stage.stored()) == list(range(10_001))


@told
async def test_what_no_write_can_hold_is_halved(stage: Stage) -> None:
    """A batch too large for the backend is stored in smaller ones."""
    async with stage.live() as (live, _, _):
        session = await live.create(ID)
        for _ in range(5):
            session.append("x/y", {"text": "x" * 6_000_000}, ignorable=True)
        await live.flush(ID)
        assert live.states()[ID].stored == 5
    assert len(await stage.stored()) == 5
