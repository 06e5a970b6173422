"""Where systems of this kind are known to lose or leak sessions, this one doesn't: one claim for each weakness."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import warnings
from collections.abc import Callable, Iterator
from datetime import UTC
from pathlib import Path
from typing import Any

import pytest

from seriatim import Gateway, GatewayConfig, MessageEvent, SessionSource, SessionStore, Turn
from seriatim.actors import entries as entries_module
from seriatim.actors import loading
from seriatim.commits import Refused, Unknown
from seriatim.errors import CorruptionError, OwnershipLostError, StoreUnhealthyError
from seriatim.settings import build


def dm(chat: str = "1", **more: Any) -> SessionSource:
    """A direct chat."""
    return SessionSource("telegram", chat, user_id="7", **more)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SessionStore]:
    """A store without a mirror."""
    with SessionStore(tmp_path / "home", GatewayConfig(write_sessions_json=False)) as opened:
        yield opened


def commits(store: SessionStore) -> list[Any]:
    """All that is offered to the store's database from now on."""
    seen: list[Any] = []
    inner = store._ops._door.lanes._store  # type: ignore[attr-defined]
    real = inner.commit

    def commit(group: Any) -> Any:
        seen.extend(group)
        return real(group)

    inner.commit = commit
    return seen


@pytest.mark.parametrize("lanes", [1, 40])
def test_an_update_writes_one_event_however_many_sessions_there_are(store: SessionStore, lanes: int) -> None:
    """No whole index is written again with each message."""
    entry = [store.get_or_create_session(dm(str(chat))) for chat in range(lanes)][-1]
    seen = commits(store)
    assert store.update_session(entry.session_key, last_prompt_tokens=3)
    [commit] = seen
    assert sum(len(part.events) for part in commit.parts) == 1


def test_a_lookup_by_session_id_folds_one_lane(store: SessionStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is an index, not a scan: one lane is read for a hit, none for a miss."""
    made = [store.get_or_create_session(dm(str(chat))) for chat in range(20)]
    folded: list[str] = []
    real = loading.read_state

    def reading(reader: Any, key: str) -> Any:
        folded.append(key)
        return real(reader, key)

    monkeypatch.setattr(entries_module, "read_state", reading)
    assert store.lookup_by_session_id(made[7].session_id) == made[7]
    assert len(folded) == 1
    assert store.lookup_by_session_id("20200101_000000_00000000") is None
    assert len(folded) == 1


def test_a_switch_to_nowhere_is_refused(store: SessionStore) -> None:
    """The lane stays where it is, and its transcript can be written."""
    entry = store.get_or_create_session(dm())
    assert store.switch_session(entry.session_key, "20200101_000000_00000000") is None
    assert store.append_to_transcript(entry.session_id, {"role": "user", "content": "x"})


def test_an_append_that_fails_is_an_error(store: SessionStore) -> None:
    """It is not kept for later behind the caller's back, and nothing is dropped silently."""
    entry = store.get_or_create_session(dm())
    inner = store._ops._door.lanes._store  # type: ignore[attr-defined]
    inner.commit = lambda group: [Refused(commit.id, StoreUnhealthyError("the disk is full")) for commit in group]
    with pytest.raises(StoreUnhealthyError):
        store.append_to_transcript(entry.session_id, {"role": "user", "content": "x"})
    del inner.commit
    assert store.load_transcript(entry.session_id) == []
    assert store.append_to_transcript(entry.session_id, {"role": "user", "content": "y"})
    assert [message["content"] for message in store.load_transcript(entry.session_id)] == ["y"]


@pytest.mark.parametrize("written", [True, False])
def test_a_move_whose_outcome_is_unknown_troubles_no_later_call(store: SessionStore, written: bool) -> None:
    """It is told as unsure, once: whatever came of it, both lanes are asked as they are in the store."""
    one, other = store.get_or_create_session(dm("1")), store.get_or_create_session(dm("2"))
    inner = store._ops._door.lanes._store  # type: ignore[attr-defined]
    real = inner.commit

    def lost_sight(group: Any) -> Any:
        if written:
            real(group)
        return [Unknown(commit.id, "the disk is gone") for commit in group]

    inner.commit = lost_sight
    with pytest.raises(StoreUnhealthyError, match="not known"):
        store.switch_session(one.session_key, other.session_id)
    inner.commit = real
    assert store.update_session(one.session_key)
    assert store.update_session(other.session_key) is not written
    assert store.append_to_transcript(other.session_id, {"role": "user", "content": "still there"})


def test_who_has_lost_the_home_is_told_so(tmp_path: Path) -> None:
    """Its lock was deleted and another opened it: no later write is said to be unsure, for that would be for ever."""
    with SessionStore(tmp_path) as first:
        entry, other = first.get_or_create_session(dm("1")), first.get_or_create_session(dm("2"))
        (tmp_path / "lock").unlink()
        with SessionStore(tmp_path) as second:
            for write in (
                lambda: first.update_session(entry.session_key),
                lambda: first.append_to_transcript(entry.session_id, {"role": "user", "content": "x"}),
                lambda: first.get_or_create_session(dm("3")),
                lambda: first.switch_session(entry.session_key, other.session_id),
            ):
                with pytest.raises(OwnershipLostError):
                    write()
            assert second.load_transcript(entry.session_id) == []
            assert len(second.list_sessions()) == 2
            assert second.update_session(entry.session_key)


def test_a_forked_child_owns_nothing(tmp_path: Path) -> None:
    """Its copy of the store writes nothing and says why; the parent goes on."""
    with SessionStore(tmp_path) as store:
        entry = store.get_or_create_session(dm())
        assert in_a_child(lambda: store.update_session(entry.session_key)) == "OwnershipLostError"
        assert store.update_session(entry.session_key)


def in_a_child(call: Callable[[], object]) -> str:
    """What a forked child's call raises, by its name; "" where it raises nothing."""
    reads, writes = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # threads run beside the fork: that is the case
        child = os.fork()
    if not child:
        try:
            call()
        except BaseException as error:  # noqa: BLE001  (its name is what is asked)
            os.write(writes, type(error).__name__.encode())
        finally:
            os._exit(0)
    os.close(writes)
    os.waitpid(child, 0)
    with os.fdopen(reads) as told:
        return told.read()


def test_a_call_that_is_broken_off_troubles_no_later_one(store: SessionStore) -> None:
    """A Ctrl-C in the middle of a commit: the next call for that lane doesn't wait for it."""
    entry = store.get_or_create_session(dm())
    inner = store._ops._door.lanes._store  # type: ignore[attr-defined]
    real = inner.commit

    def broken_off(group: Any) -> Any:
        raise KeyboardInterrupt

    inner.commit = broken_off
    with pytest.raises(KeyboardInterrupt):
        store.update_session(entry.session_key)
    inner.commit = real
    assert store.update_session(entry.session_key)


def test_a_transcript_that_cannot_be_read_does_not_look_empty(tmp_path: Path) -> None:
    """A damaged log raises; it is no new conversation."""
    with SessionStore(tmp_path / "home") as store:
        entry = store.get_or_create_session(dm())
        store.append_to_transcript(entry.session_id, {"role": "user", "content": "precious"})
    with sqlite3.connect(tmp_path / "home" / "state.db") as file:
        changed = file.execute("UPDATE events SET data = replace(data, 'precious', 'damaged!')").rowcount
    file.close()
    assert changed
    with SessionStore(tmp_path / "home") as store, pytest.raises(CorruptionError):
        store.load_transcript(entry.session_id)


def test_times_are_aware_utc(store: SessionStore) -> None:
    """Whatever the machine's zone."""
    entry = store.get_or_create_session(dm())
    store.mark_resume_pending(entry.session_key)
    [marked] = store.list_sessions()
    for moment in (marked.created_at, marked.updated_at, marked.last_resume_marked_at):
        assert moment is not None
        assert moment.tzinfo is UTC


def test_who_was_authorised_by_a_role_still_is_after_a_restart(tmp_path: Path) -> None:
    """is_bot and role_authorized are part of what is stored."""
    source = dm(is_bot=True, role_authorized=True)
    with SessionStore(tmp_path / "home") as store:
        store.get_or_create_session(source)
    with SessionStore(tmp_path / "home") as store:
        [entry] = store.list_sessions()
    assert entry.origin == source


def test_a_notice_that_was_told_is_not_told_again_after_a_crash(tmp_path: Path) -> None:
    """The commit that starts the turn consumes it: what a killed process leaves behind says so."""
    told: list[str] = []

    async def agent(turn: Turn) -> str:
        told.append(turn.boundary)
        return "done"

    async def life(text: str, *, reset: bool) -> None:
        async with Gateway(agent, tmp_path / "home") as gateway:
            if reset:
                entry = await gateway.sessions.aio.get_or_create_session(dm())
                await gateway.sessions.aio.reset_session(entry.session_key)
            await (await gateway.accept(MessageEvent(text, dm()))).answered()

    asyncio.run(life("a", reset=True))
    asyncio.run(life("b", reset=False))
    assert told == ["fresh", "none"]


def test_asking_lanes_that_rest_keeps_none_of_them_awake(tmp_path: Path) -> None:
    """A prune, or a host that looks at many sessions, doesn't leave an actor behind for each."""

    async def work() -> int:
        config = build(GatewayConfig, {"agent": {"agent_cache": {"max_size": 3}}})
        async with Gateway(lambda turn: "x", tmp_path / "home", config) as gateway:
            for chat in range(30):
                await gateway.sessions.aio.get_or_create_session(dm(str(chat)))
            for _ in range(30):
                if gateway.health()["live_lanes"] <= 4:
                    break
                await gateway.sessions.aio.get_or_create_session(dm("0"))
            return int(gateway.health()["live_lanes"])

    assert asyncio.run(work()) <= 4
