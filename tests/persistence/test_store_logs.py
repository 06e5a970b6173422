"""A gateway's store under the event-log service: lanes, doubt, and one bad header among many."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import pytest
from msgspec.structs import replace

from seriatim.errors import (
    SessionLiveError,
    SessionPersistenceCorruptionError,
    StoreUnhealthyError,
    WriteUnknownError,
)
from seriatim.events import session_log
from seriatim.storage import MemoryStore, SessionPersistence, SqliteStore
from seriatim.testing.faulty_store import Fault, FaultyStore
from seriatim.testing.log_contract import ID, header, opened, stored, turn
from seriatim.testing.store_contract import born


def test_a_lane_s_session_is_only_read(tmp_path: Path) -> None:
    """A session that is bound to a lane can be listed and looked at; only its lane appends to it, or repairs it."""
    store = SqliteStore(tmp_path / "state.db")

    async def story() -> None:
        async with SessionPersistence(store) as service:
            commit = born(session=session_log(ID), count=0)
            parts = tuple(
                replace(part, events=tuple(opened(0)), header=header().to_json())
                if part.log == session_log(ID)
                else part
                for part in commit.parts
            )
            store.commit([replace(commit, parts=parts)])
            assert [h.id for h in await service.list()] == [ID]
            assert len((await service.inspect(ID)).events) == 5
            assert len((await service.read_from(ID, 0)).events) == 3
            for refused in (service.append(ID, turn(3, 2)), service.load(ID), service.prepare(ID)):
                with pytest.raises(SessionLiveError, match="lane:a"):
                    await refused
            assert len((await service.read_from(ID, 0)).events) == 3

    asyncio.run(story())


def test_a_batch_in_doubt_is_stored_once() -> None:
    """A store that can't say what it wrote is asked again; what stays in doubt is offered again and is there once."""
    store = FaultyStore(MemoryStore())

    async def story() -> None:
        async with SessionPersistence(store) as service:
            await service.create(header())
            store.fail_next(Fault.UNKNOWN_LOST, 2)
            await service.append(ID, turn(0))
            for number, fault in enumerate((Fault.UNKNOWN_DONE, Fault.UNKNOWN_LOST), start=1):
                store.fail_next(fault, 3)
                with pytest.raises(WriteUnknownError):
                    await service.append(ID, turn(6 * number, number + 1))
                await service.append(ID, turn(6 * number, number + 1))
            store.fail_next(Fault.REFUSED)
            with pytest.raises(StoreUnhealthyError):
                await service.append(ID, turn(18, 4))
            await service.append(ID, turn(18, 4))
            assert [e.seq for e in (await service.load(ID)).events] == list(range(24))

    asyncio.run(story())


def test_one_bad_header_does_not_stop_a_list(tmp_path: Path) -> None:
    """A header that can't be read, or is another's, is a problem of its own; the others are listed (B114)."""
    path = tmp_path / "state.db"

    async def fill() -> None:
        async with SessionPersistence(SqliteStore(path)) as service:
            for number in range(20):
                await stored(service, turn(0), f"s{number:02}")

    asyncio.run(fill())
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE logs SET header = '{' WHERE id = 'session:s03'")
        connection.execute("UPDATE logs SET header = replace(header, 's05', 's06') WHERE id = 'session:s05'")
    connection.close()

    async def look() -> None:
        async with SessionPersistence(SqliteStore(path)) as service:
            page = await service.survey()
            assert {p.where: type(p.error) for p in page.problems} == {
                "s03": SessionPersistenceCorruptionError, "s05": SessionPersistenceCorruptionError,
            }  # fmt: skip
            listed = {h.id for h in await service.list()}
            assert listed == {f"s{n:02}" for n in range(20)} - {"s03", "s05"}
            assert len((await service.load("s04")).events) == 6

    asyncio.run(look())
