"""gateway.sessions: the same store, through the lanes' actors."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from seriatim import Gateway, GatewayConfig, MessageEvent, Reply, SessionSource, SessionStore, Turn
from seriatim.actors.session_files import SESSIONS
from seriatim.errors import GatewayClosedError, LaneBusyError, StoreUnhealthyError, WriteUnknownError, WrongThreadError
from seriatim.turn import Usage

SOURCE = SessionSource("telegram", "1", user_id="7", chat_name="Desk")


def run(work: Awaitable[Any]) -> Any:
    """One loop's life, bounded."""

    async def bounded() -> Any:
        return await asyncio.wait_for(work, 60)

    return asyncio.run(bounded())


def event(text: str, source: SessionSource = SOURCE, **more: Any) -> MessageEvent:
    """A message."""
    return MessageEvent(text, source, **more)


async def echo(turn: Turn) -> Reply:
    """Says what it was told, and what it cost."""
    return Reply(f"{turn.boundary}: {turn.text}", Usage(input=3, output=2, estimated_cost_usd=0.5, cost_status="exact"))


async def told(gateway: Gateway, text: str, source: SessionSource = SOURCE) -> str | None:
    """The reply."""
    receipt = await gateway.accept(event(text, source))
    return (await receipt.answered()).text


def test_a_host_sees_what_people_did(tmp_path: Path) -> None:
    """The entry of a lane that messages made: origin, activity, sums with costs, and its transcript."""

    async def work() -> None:
        async with Gateway(echo, tmp_path / "home") as gateway:
            await told(gateway, "hi")
            [entry] = await gateway.sessions.aio.list_sessions()
            assert entry.session_key == "agent:main:telegram:dm:1"
            assert (entry.display_name, entry.total_tokens, entry.estimated_cost_usd) == ("Desk", 5, 0.5)
            loaded = await gateway.sessions.aio.load_transcript(entry.session_id)
            assert [(message["role"], message["content"]) for message in loaded] == [
                ("user", "hi"),
                ("assistant", "none: hi"),
            ]
            assert await gateway.sessions.aio.lookup_by_session_id(entry.session_id) == entry

    run(work())


def test_a_transcript_that_is_written_back_is_the_same(tmp_path: Path) -> None:
    """What a platform's message had besides its text survives a rewrite of what was loaded."""

    async def work() -> None:
        async with Gateway(echo, tmp_path / "home") as gateway:
            await (await gateway.accept(event("hi", message_id="42"))).answered()
            sessions = gateway.sessions.aio
            [entry] = await sessions.list_sessions()
            loaded = await sessions.load_transcript(entry.session_id)
            assert loaded[0]["message_id"] == "42"
            assert await sessions.rewrite_transcript(entry.session_id, loaded)
            again = await sessions.load_transcript(entry.session_id)
            assert [{**m, "timestamp": ""} for m in again] == [{**m, "timestamp": ""} for m in loaded]

    run(work())


def test_what_a_host_does_the_agent_sees(tmp_path: Path) -> None:
    """A reset is a fresh boundary for the next turn, a suspension a suspended one, an append is history."""
    histories: list[list[str]] = []

    async def look(turn: Turn) -> str:
        histories.append([message.text for message in turn.history])
        return str(turn.boundary)

    async def work() -> None:
        async with Gateway(look, tmp_path / "home") as gateway:
            sessions = gateway.sessions.aio
            entry = await sessions.get_or_create_session(SOURCE)
            assert await sessions.append_to_transcript(entry.session_id, {"role": "user", "content": "before"})
            assert await told(gateway, "a") == "none"
            assert histories[-1] == ["before"]
            assert (await sessions.reset_session(entry.session_key)) is not None
            assert await told(gateway, "b") == "fresh"
            assert await told(gateway, "c") == "none"
            assert await sessions.suspend_session(entry.session_key)
            assert await told(gateway, "d") == "suspended"
            back = await sessions.switch_session(entry.session_key, entry.session_id)
            assert back is not None
            assert await told(gateway, "e") == "none"
            assert histories[-1] == ["before", "a", "none"]
            assert await sessions.rewind_session(entry.session_id, 1) == {
                "rewound_count": 2,
                "turns_undone": 1,
                "target_text": "e",
            }
            assert await told(gateway, "f") == "none"
            assert histories[-1] == ["before", "a", "none"]

    run(work())


def test_a_running_turn_is_not_written_over(tmp_path: Path) -> None:
    """Transcripts and switches wait for nobody: LaneBusyError; flags and activity are taken at once."""
    running, go = asyncio.Event(), asyncio.Event()

    async def slow(turn: Turn) -> str:
        running.set()
        await go.wait()
        return "done"

    async def work() -> None:
        async with Gateway(slow, tmp_path / "home") as gateway:
            sessions = gateway.sessions.aio
            receipt = await gateway.accept(event("a"))
            await running.wait()
            [entry] = await sessions.list_sessions()
            with pytest.raises(LaneBusyError):
                await sessions.append_to_transcript(entry.session_id, {"role": "user", "content": "x"})
            assert await sessions.update_session(entry.session_key, last_prompt_tokens=5)
            assert await sessions.recover_interrupted_turns(0) == 0
            assert await sessions.prune_old_entries(1e-9) == 0
            go.set()
            assert (await receipt.answered()).text == "done"

    run(work())


def test_a_plain_agent_may_block_on_it(tmp_path: Path) -> None:
    """Its thread waits for its own lane, which serves mail while the turn runs."""
    store: list[SessionStore] = []

    def agent(turn: Turn) -> str:
        [entry] = store[0].list_sessions()
        assert store[0].update_session(entry.session_key, last_prompt_tokens=4)
        return "fine"

    async def work() -> None:
        async with Gateway(agent, tmp_path / "home") as gateway:
            store.append(gateway.sessions)
            assert await told(gateway, "hi") == "fine"
            with pytest.raises(WrongThreadError, match=r"\.aio\.list_sessions"):
                gateway.sessions.list_sessions()

    run(work())


def test_each_call_keeps_its_place_among_messages(tmp_path: Path) -> None:
    """A reset asked for between two messages falls between them."""

    async def work() -> None:
        async with Gateway(echo, tmp_path / "home") as gateway:
            await told(gateway, "first")
            [entry] = await gateway.sessions.aio.list_sessions()
            one = await gateway.accept(event("one"))
            await one.answered()
            await gateway.sessions.aio.reset_session(entry.session_key)
            assert await told(gateway, "two") == "fresh: two"

    run(work())


def test_a_session_moves_between_lanes(tmp_path: Path) -> None:
    """One commit for both lanes: ours goes on with it, the other one starts fresh; a compare-and-set guards it."""
    other = SessionSource("telegram", "2", user_id="8")

    async def work() -> None:
        async with Gateway(echo, tmp_path / "home") as gateway:
            sessions = gateway.sessions.aio
            await told(gateway, "ours")
            await told(gateway, "theirs", other)
            one = await sessions.get_or_create_session(SOURCE)
            two = await sessions.get_or_create_session(other)
            assert await sessions.switch_session(one.session_key, two.session_id, expected_session_id="x") is None
            moved = await sessions.switch_session(one.session_key, two.session_id, expected_session_id=one.session_id)
            assert moved is not None
            assert (moved.session_key, moved.session_id) == (one.session_key, two.session_id)
            assert await told(gateway, "more") == "none: more"
            loaded = await sessions.load_transcript(two.session_id)
            assert [m["content"] for m in loaded if m["role"] == "user"] == ["theirs", "more"]
            assert (await sessions.get_or_create_session(other)).session_id not in (one.session_id, two.session_id)

    run(work())


def test_accounts_are_lanes_of_their_own(tmp_path: Path) -> None:
    """A source names the lane that its messages made, under whatever account they came."""

    async def work() -> None:
        async with Gateway(echo, tmp_path / "home") as gateway:
            await (await gateway.accept(event("hi", account="bot"))).answered()
            [entry] = await gateway.sessions.aio.list_sessions()
            found = await gateway.sessions.aio.update_session(entry.session_key)
            assert found

    run(work())


@pytest.mark.parametrize("written", [True, False])
def test_an_append_whose_lane_dies_is_told_as_unsure(tmp_path: Path, written: bool) -> None:
    """It is never done twice: the caller is told to look, and sees one message or none; the lane goes on."""
    errors: list[str] = []

    async def work() -> None:
        home = tmp_path / "home"
        async with Gateway(echo, home, on_error=lambda where, error: errors.append(str(error))) as gateway:
            sessions = gateway.sessions.aio
            entry = await sessions.get_or_create_session(SOURCE)
            assert gateway._runtime is not None
            port: Any = gateway._runtime._port
            real = port.offer

            def dies(commit: Any, reply_to: Any) -> None:
                port.offer = real
                if written:
                    real(commit, reply_to)
                raise RuntimeError("the lane dies")

            port.offer = dies
            with pytest.raises(WriteUnknownError):
                await sessions.append_to_transcript(entry.session_id, {"role": "user", "content": "x"})
            assert await told(gateway, "hi") == "none: hi"
            loaded = await sessions.load_transcript(entry.session_id)
            assert [message["content"] for message in loaded] == [*(["x"] * written), "hi", "none: hi"]

    run(work())
    assert errors == ["the lane dies"]


def test_a_stopped_gateway_says_so_and_has_written_its_mirror(tmp_path: Path) -> None:
    """sessions.json is flushed by the stop; afterwards calls are refused, never left hanging."""

    async def work() -> SessionStore:
        async with Gateway(echo, tmp_path / "home") as gateway:
            await told(gateway, "hi")
            return gateway.sessions

    sessions = run(work())
    content = json.loads((tmp_path / "home" / SESSIONS).read_text())
    assert content["agent:main:telegram:dm:1"]["total_tokens"] == 5
    with pytest.raises((GatewayClosedError, StoreUnhealthyError)):
        sessions.list_sessions()
    with pytest.raises((GatewayClosedError, StoreUnhealthyError)):
        sessions.get_or_create_session(SOURCE)


def test_before_the_start_there_are_none(tmp_path: Path) -> None:
    """A typed error, not None."""
    with pytest.raises(GatewayClosedError):
        _ = Gateway(echo, tmp_path / "home").sessions


def test_old_sessions_are_taken_over_by_a_gateway(tmp_path: Path) -> None:
    """An older system's file is there, no log is: its lanes go on, under their session ids."""
    with SessionStore(tmp_path / "old") as old:
        kept = old.get_or_create_session(SOURCE)
    (tmp_path / "new").mkdir(mode=0o700)
    (tmp_path / "new" / SESSIONS).write_text((tmp_path / "old" / SESSIONS).read_text())

    async def work() -> None:
        async with Gateway(echo, tmp_path / "new") as gateway:
            assert await gateway.sessions.aio.list_sessions() == [kept]
            receipt = await gateway.accept(event("hi"))
            assert receipt.session_id == kept.session_id
            await receipt.answered()

    run(work())


def test_housekeeping_forgets_what_is_long_unused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By session_store_max_age_days, and never a session with active processes."""
    monkeypatch.setattr("seriatim.opening.PRUNE_FIRST_MS", 1)
    old, kept = SessionSource("telegram", "old"), SessionSource("telegram", "kept")
    with SessionStore(tmp_path / "home", GatewayConfig(write_sessions_json=False)) as store:
        day_ago = WallShift(-2 * 86_400_000)
        monkeypatch.setattr(store._ops._door, "_clock", day_ago)
        monkeypatch.setattr(store._ops._door.lanes, "_clock", day_ago)  # type: ignore[attr-defined]
        for source in (old, kept):
            store.get_or_create_session(source)

    async def work() -> None:
        active: Callable[[str], bool] = lambda key: key.endswith("kept")  # noqa: E731
        config = GatewayConfig(session_store_max_age_days=1)
        async with Gateway(echo, tmp_path / "home", config, has_active_processes_fn=active) as gateway:
            left = await gateway.sessions.aio.list_sessions()
            while len(left) > 1:  # each look yields until a thread has read the store
                left = await gateway.sessions.aio.list_sessions()
            assert [entry.session_key for entry in left] == ["agent:main:telegram:dm:kept"]

    run(work())


class WallShift:
    """The wall clock, shifted."""

    def __init__(self, by_ms: int) -> None:
        self._by_ms = by_ms

    def now_ms(self) -> int:
        """Epoch ms."""
        return time.time_ns() // 1_000_000 + self._by_ms


def test_sessions_of_a_stopped_gateway_say_so(tmp_path: Path) -> None:
    """Kept beyond the end, the awaitable twins raise what the blocking calls raise."""

    async def work() -> None:
        async with Gateway(echo, tmp_path / "home") as gateway:
            kept = gateway.sessions
        with pytest.raises(StoreUnhealthyError, match="closed"):
            await kept.aio.list_sessions()
        with pytest.raises(StoreUnhealthyError, match="closed"):
            await asyncio.to_thread(kept.list_sessions)

    run(work())
