"""What the event-log page promises in passing, each shown by itself."""

from __future__ import annotations

import inspect
import logging
import sqlite3
from pathlib import Path
from typing import get_args

import attrs
import pytest

from seriatim.errors import HeadMismatchError, SessionFormatUnsupportedError, StoreUnhealthyError
from seriatim.events import Event
from seriatim.limits import PREPARE_TRIES_MAX
from seriatim.storage.event_log.header import SessionHeader
from seriatim.storage.event_log.persistence import SessionPersistence
from seriatim.storage.event_log.values import CreateSessionOptions
from seriatim.turn import EndReason, TurnEnded
from tests.core.bench import Bench

from .live_world import ID, Stage, kinds, say_turn, stage, told
from .worlds import JsonlWorld, SqliteWorld

__all__ = ["stage"]


def is_there(path: Path) -> bool:
    """Whether there is anything of that name."""
    return path.exists()


def test_the_service_has_the_seed_s_operations() -> None:
    """Ten operations, coroutines all but locate and the question whether there are artifacts."""
    waiting = ("create", "append", "prepare", "load", "inspect", "read_from", "list", "list_snapshots", "read_raw")
    for name in waiting:
        operation = getattr(SessionPersistence, name)
        told = inspect.signature(operation).return_annotation
        assert inspect.iscoroutinefunction(operation) or str(told).startswith("Coroutine"), name
    assert not inspect.iscoroutinefunction(SessionPersistence.locate)
    assert isinstance(SessionPersistence.supports_raw_artifacts, property)


@told
async def test_locate_touches_nothing(stage: Stage) -> None:
    """Locate gives JSONL's absolute path before anything is there, and makes nothing; a store has none to give."""
    header = SessionHeader(id=ID, created_at=1, cwd="/srv/app")
    async with stage.service() as (service, gated):
        found = service.locate(header)
        assert gated.calls.total() == 0
        if isinstance(stage.world, JsonlWorld):
            assert found is not None
            path = Path(found.path)
            assert (found.kind, path.is_absolute(), is_there(path)) == ("jsonl", True, False)
            assert not is_there(path.parent)
            assert path.is_relative_to(stage.world.folder)
            assert ID in path.parts[-2]
            await service.create(header)
            assert not is_there(path)
            await service.append(ID, [Event("x/y", 0, 0, {}, True)])
            assert is_there(path)
        else:
            assert found is None


@told
async def test_a_header_is_no_message(stage: Stage) -> None:
    """No field of the header shows in the log or in the derived messages, and none can be set."""
    meta = {"cwd": "/somewhere/strange", "agent_preset": "preset-x"}
    async with stage.live() as (live, _, _):
        session = await live.create(ID, CreateSessionOptions(meta=meta))
        say_turn(session, 1)
        said = repr([session.events, session.messages()])
        assert not [word for word in ("strange", "preset-x", ID) if word in said]
        with pytest.raises(attrs.exceptions.FrozenInstanceError):
            session.header.cwd = "/else"  # type: ignore[misc]


@told
async def test_a_refusal_names_the_artifact(stage: Stage) -> None:
    """Where a session has a file of its own, the refusal of a newer version and of an unknown type name its path."""
    async with stage.service() as (service, _):
        await service.create(SessionHeader(id=ID, created_at=1))
        await service.append(ID, [Event("strange/thing", 0, 0, {})])
        where = service.locate(SessionHeader(id=ID, created_at=1))
        with pytest.raises(SessionFormatUnsupportedError) as refused:
            await service.load(ID)
        assert (where.path if where else None) == refused.value.location
        assert where is None or where.path in str(refused.value)
    stage.world.set_version(ID, 99)
    async with stage.service() as (service, _):
        with pytest.raises(SessionFormatUnsupportedError, match="upgrade") as refused:
            await service.load(ID)
        assert where is None or where.path in str(refused.value)


@told
async def test_an_artifact_says_what_it_is(stage: Stage) -> None:
    """The artifact comes with its own first line's header and its name without the compression's suffix."""
    if "raw" not in stage.world.capabilities:
        pytest.skip("this medium lacks the capability 'raw'")
    header = SessionHeader(id=ID, created_at=1, cwd="/srv")
    async with stage.service() as (service, _):
        await service.create(header)
        await service.append(ID, [Event("x/y", 0, 0, {"é": 1}, True)])
        artifact = await service.read_raw(ID)
        assert artifact is not None
        assert (artifact.meta, artifact.filename) == (header, "session.jsonl")
        first = artifact.content.splitlines()[0]
        assert '"id":"' + ID in first.replace(" ", "")
        assert '"é":1' in artifact.content


@told
async def test_a_revision_costs_no_read(stage: Stage) -> None:
    """Listing revisions reads no log, however many events it has."""
    async with stage.live() as (live, service, gated):
        for name in ("a", "b"):
            say_turn(await live.create(name), 1)
            await live.flush(name)
        gated.calls.clear()
        revisions = [snapshot.revision for snapshot in await service.list_snapshots()]
        assert gated.calls == {"page": 1}
        assert len(set(revisions)) == 2


@told
async def test_a_repair_that_is_always_overtaken_is_given_up(stage: Stage) -> None:
    """Where a stranger writes before each try to close a turn, load ends with an error after a bounded number."""
    async with stage.service() as (service, _):
        await service.create(SessionHeader(id=ID, created_at=1))
        await service.append(ID, [Event("turn/start", 0, 5, {"turn": 1})])
    async with stage.service() as (service, gated):
        gated.fail("append", *[HeadMismatchError(ID, 1, 2)] * (2 * PREPARE_TRIES_MAX))
        with pytest.raises(StoreUnhealthyError, match="faster"):
            await service.load(ID)
        assert gated.calls["append"] == PREPARE_TRIES_MAX
        gated.fail("append")
        assert kinds((await service.load(ID)).events) == ["turn/start", "turn/end"]


def test_a_row_is_an_event(tmp_path: Path) -> None:
    """SQLite keeps a row an event, and a column a field of the envelope."""
    world = SqliteWorld(tmp_path)
    stage = Stage(world)

    @told
    async def story(stage: Stage) -> None:
        async with stage.service() as (service, _):
            await service.create(SessionHeader(id=ID, created_at=1))
            await service.append(
                ID,
                [
                    Event("user/message", 0, 5, {"text": "a"}, False, None, "append"),
                    Event("assistant/message", 1, 6, {}, True, (0,), {"op": "replace", "start": 0, "end": 0}),
                ],
            )

    story(stage)
    with sqlite3.connect(world.path) as connection:
        rows = connection.execute(
            "SELECT seq, type, time, data, source_event_seqs, surface_op, ignorable FROM events ORDER BY seq"
        ).fetchall()
    connection.close()
    assert rows == [
        (0, "user/message", 5, '{"text":"a"}', None, '"append"', None),
        (1, "assistant/message", 6, "{}", "[0]", '{"op":"replace","start":0,"end":0}', 1),
    ]


@told
async def test_a_live_view_holds_its_end_seed(stage: Stage) -> None:
    """Inspection of a resumed live session shows the end of what it was given."""
    async with stage.live() as (live, service, _):
        say_turn(await live.create(ID), 1)
        await live.retire(ID)
        await live.resume(ID)
        assert kinds((await service.inspect(ID)).events)[-1] == "session/end-seed"


def test_a_failure_is_told_to_the_hook_and_the_logger(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    """A failed background write is told once to the hook and once to the log of the program, never to the session's."""

    @told
    async def story(stage: Stage) -> None:
        async with stage.live() as (live, _, gated):
            session = await live.create(ID)
            say_turn(session, 1)
            before = session.events
            gated.fail("append", StoreUnhealthyError("full"))
            await stage.passes(live)
            assert session.events == before

    with caplog.at_level(logging.WARNING, "seriatim.event_log"):
        story(stage)
    assert [name for name, _ in stage.errors] == [ID]
    assert len([record for record in caplog.records if ID in record.getMessage()]) == 1


@pytest.mark.parametrize("reason", get_args(EndReason))
def test_only_recovery_says_interrupted(reason: EndReason) -> None:
    """However a running turn ends, "interrupted" is not written; the next start's recovery writes it."""
    bench = Bench()
    bench.said("hi")
    bench.tell(TurnEnded(1, 1, reason, "text"))

    ends = [event.data["reason"]["kind"] for event in bench.session_events() if event.type == "turn/end"]
    assert ends == ([] if reason == "interrupted" else [reason])
    bench.reopen()
    ends = [event.data["reason"]["kind"] for event in bench.session_events() if event.type == "turn/end"]
    assert ends == [reason]
