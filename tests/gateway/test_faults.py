"""Errors that mean something to loops, threads and processes, out of agents, adapters and stores; and two owners."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from seriatim import Turn
from seriatim.commits import Commit, Outcome
from seriatim.config import StopConfig
from seriatim.decide import FAILED_TEXT
from seriatim.errors import GatewayClosedError, OwnershipLostError, StoreUnhealthyError
from seriatim.model import Outbound, Sent
from seriatim.storage.audit import audit
from seriatim.storage.sqlite import SqliteStore
from seriatim.storage.sqlite_reader import SqliteReader
from seriatim.testing.fake_platform import FakePlatform

from .bots import balance_holds, bot, echo, run, until

ERRORS = (asyncio.CancelledError, SystemExit, KeyboardInterrupt, GeneratorExit, RuntimeError)
each_error = pytest.mark.parametrize("error", ERRORS)


@each_error
@pytest.mark.parametrize("sort", ["async", "plain"])
def test_an_agent_that_raises_anything_ends_its_turn_only(
    tmp_path: Path, sort: str, error: type[BaseException]
) -> None:
    """The turn ends as failed, its waiter is released, the lane and the loop go on (B141)."""

    def fail(turn: Turn) -> str:
        if turn.text == "fail":
            raise error
        return f"echo {turn.text}"

    async def fail_async(turn: Turn) -> str:
        return fail(turn)

    async def main() -> None:
        async with bot(fail if sort == "plain" else fail_async, tmp_path) as it:
            end = await it.ask("fail")
            assert (end.outcome, end.reason, end.text) == ("answered", "failed", None)
            assert (await it.ask("next")).text == "echo next"
            assert it.health["lane_restarts"] == 0

    run(main())
    assert balance_holds(tmp_path)


class Throwing(FakePlatform):
    """An adapter whose first sends raise."""

    def __init__(self, error: type[BaseException], times: int = 1, *, later: bool = False) -> None:
        super().__init__()
        self.error = error
        self.times = times
        self.later = later

    async def send(self, out: Outbound) -> Sent:
        """Raise, after a wait if *later*; then behave."""
        if self.later:
            await asyncio.sleep(0)
        if self.times:
            self.times -= 1
            raise self.error
        return await super().send(out)


@pytest.mark.parametrize("error", [asyncio.CancelledError, SystemExit, RuntimeError])
@pytest.mark.parametrize("later", [False, True], ids=["at once", "after a wait"])
def test_an_adapter_that_raises_anything_in_send_only_delays(
    tmp_path: Path, error: type[BaseException], later: bool
) -> None:
    """The send counts as perhaps arrived and is repeated; delivery and loop live, waiters hear their end (B141)."""
    platform = Throwing(error, later=later)

    async def main() -> None:
        async with bot(echo, tmp_path, platform) as it:
            it.say("one")
            texts = await it.heard(1)
            assert texts[0].endswith("echo one")
            it.say("two")
            assert (await it.heard(2))[1] == "echo two"
            await it.at_rest()
            assert it.health["state"] == "running"

    run(main())
    assert balance_holds(tmp_path)


@pytest.mark.parametrize("later", [False, True], ids=["at once", "after a wait"])
def test_a_ctrl_c_inside_a_send_is_recorded_and_then_the_hosts(tmp_path: Path, later: bool) -> None:
    """A KeyboardInterrupt on the main thread may be a real one: it reaches the host, and the debt stays owed (B141)."""
    platform = Throwing(KeyboardInterrupt, later=later)

    async def main() -> None:
        async with bot(echo, tmp_path, platform) as it:
            it.say("one")
            await asyncio.Event().wait()

    with pytest.raises(KeyboardInterrupt):
        run(main())
    assert balance_holds(tmp_path)

    async def next_start() -> list[str]:
        async with bot(echo, tmp_path, platform) as it:
            return await it.heard(1)  # the stop may have sent it already, or this start does

    assert run(next_start())[0].endswith("echo one")


@pytest.mark.parametrize("error", [asyncio.CancelledError, SystemExit, RuntimeError])
def test_an_adapter_that_raises_anything_in_run_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    """run() that raises, cancels itself or exits is reported and begun again; the others are served (B141)."""
    monkeypatch.setattr("seriatim.opening.ADAPTER_RETRY_S", (0.0,))

    class Flapping(FakePlatform):
        starts = 0

        async def run(self, inbox: Any) -> None:
            self.starts += 1
            if self.starts < 3:
                raise error
            await super().run(inbox)

    platform = Flapping()

    async def main() -> None:
        async with bot(echo, tmp_path, platform) as it:
            it.say("one")
            assert await it.heard(1) == ["echo one"]
            assert [type(told) for _, told in it.errors] == [error, error]

    run(main())


class Raising(SqliteStore):
    """A store whose commit raises once, before or after the commit is durable."""

    error: type[BaseException] = RuntimeError
    when = "before"
    left = 1

    def commit(self, commits: Sequence[Commit]) -> list[Outcome]:
        """Raise once."""
        if not self.left:
            return list(super().commit(commits))
        self.left -= 1
        if self.when == "after":
            super().commit(commits)
        raise self.error


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("error", [asyncio.CancelledError, SystemExit, KeyboardInterrupt, RuntimeError])
def test_a_store_that_raises_anything_is_an_unknown_outcome(
    tmp_path: Path, error: type[BaseException], when: str
) -> None:
    """What escapes from a commit leaves open what was written: it is offered again, nothing lost or doubled (B141)."""

    def open_store() -> SqliteStore:
        store = Raising(tmp_path / "state.db")
        store.error, store.when = error, when
        return store

    async def main() -> None:
        async with bot(echo, tmp_path, store=open_store) as it:
            it.say("one")
            assert await it.heard(1) == ["echo one"]
            await it.at_rest()
            assert it.gateway.balance()["accepted"] == 1
            assert it.health["store"] == "works"

    run(main())
    assert balance_holds(tmp_path)


@pytest.mark.parametrize("error", [asyncio.CancelledError, SystemExit, KeyboardInterrupt])
def test_a_store_whose_opening_raises_anything_fails_the_start(tmp_path: Path, error: type[BaseException]) -> None:
    """Nobody waits for a store that will never open: the start raises, and its home is free again."""

    def open_store() -> SqliteStore:
        raise error

    async def main() -> None:
        with pytest.raises(StoreUnhealthyError, match=error.__name__):
            async with asyncio.timeout(10), bot(echo, tmp_path, store=open_store):
                pass
        async with bot(echo, tmp_path) as it:
            it.say("one")
            assert await it.heard(1) == ["echo one"]

    run(main())


# --- a handler's exception -----------------------------------------------------------------------------


@pytest.mark.parametrize("always", [False, True], ids=["first only", "always"])
def test_a_failing_handler_is_told_once_and_not_repeated(tmp_path: Path, always: bool) -> None:
    """An agent raises at its first call, or at each: each turn ends as failed with its reason, its user is told once,
    and nothing runs twice by itself (B144).
    """
    calls: list[tuple[str, int]] = []

    async def fail(turn: Turn) -> str:
        calls.append((turn.text, turn.attempt))
        if always or len(calls) == 1:
            raise LookupError("the reason")
        return f"echo {turn.text}"

    async def main() -> list[str]:
        async with bot(fail, tmp_path) as it:
            it.say("one")
            await it.heard(1)
            it.say("two")
            texts = await it.heard(2)
            await it.at_rest()
            assert [type(error) for _, error in it.errors] == [LookupError] * (2 if always else 1)
            return texts

    told = FAILED_TEXT.format(how="failed")
    assert run(main()) == [told, told if always else "echo two"]
    assert calls == [("one", 1), ("two", 1)]
    reader = SqliteReader(tmp_path / "state.db")
    try:
        (session,) = reader.logs("session:")
        ends = [event.data["reason"] for event in reader.read(session) if event.type == "turn/end"]
    finally:
        reader.close()
    assert ends[0]["kind"] == "failed"
    assert "the reason" in ends[0]["detail"]
    assert ends[1]["kind"] == ("failed" if always else "completed")


# --- two owners ----------------------------------------------------------------------------------------


def test_the_loser_of_a_store_stops_and_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two runtimes on one store, the old one still at work: once the new one has taken over, the old one's late turn
    changes nothing, its warm state is dropped, and it accepts nothing any more (B142).
    """
    path = tmp_path / "state.db"
    evicted: list[str] = []

    async def main() -> None:
        finish = asyncio.Event()
        cancelled = asyncio.Event()

        async def slow(turn: Turn) -> str:
            try:
                await finish.wait()
            except asyncio.CancelledError:
                cancelled.set()
                raise
            return "from the old one"

        stop = StopConfig(drain_s=0.1, watchdog_s=10.0)
        async with bot(slow, tmp_path / "old", store=lambda: SqliteStore(path), stop=stop) as old:
            runner = old.gateway._runner
            assert runner is not None
            monkeypatch.setattr(runner, "evict", evicted.append)
            waiting = await old.accept("for K", message_id="1")
            async with bot(echo, tmp_path / "new", store=lambda: SqliteStore(path)) as new:
                assert (await new.ask("more for K")).outcome == "answered"
                balance = new.gateway.balance()
                finish.set()
                await until(lambda: old.health["state"] == "failed")
                with pytest.raises(GatewayClosedError, match="taken over"):
                    await old.accept("late", lane="other")
                await new.at_rest()
                assert new.gateway.balance()["accepted"] == balance["accepted"]
                assert (await new.ask("still mine")).text == "echo still mine"
            assert any(isinstance(error, OwnershipLostError) for _, error in old.errors)
            assert waiting.end is None
        with pytest.raises(GatewayClosedError):
            await waiting.answered()

    run(main())
    assert len(evicted) == 1
    reader = SqliteReader(path)
    try:
        assert audit(reader).holds
        texts = [event.data.get("text") for log in reader.logs("session:") for event in reader.read(log)]
    finally:
        reader.close()
    assert "from the old one" not in texts


# --- fork ----------------------------------------------------------------------------------------------


def test_a_forked_child_has_no_gateway(tmp_path: Path) -> None:
    """In the child every door says so, stop does nothing, and the parent's lock, files and lanes are as before."""

    async def main() -> None:
        async with bot(echo, tmp_path) as it:
            await it.ask("before")
            read, write = os.pipe()
            child = os.fork()
            if child == 0:  # pragma: no cover  (another process)
                told = b""
                for door in (lambda: it.gateway.submit(None), it.gateway.balance):  # type: ignore[arg-type]
                    try:
                        door()
                    except GatewayClosedError as error:
                        told += b"closed " if "forked" in str(error) else b"odd "
                stopping = it.gateway.stop()
                try:
                    stopping.send(None)
                except StopIteration as end:
                    told += b"stopped" if end.value is False else b"odd"
                os.write(write, told)
                os._exit(0)
            await until(lambda: os.waitpid(child, os.WNOHANG)[0])
            assert os.read(read, 100) == b"closed closed stopped"
            os.close(read)
            os.close(write)
            assert (await it.ask("after")).text == "echo after"
        assert (tmp_path / ".clean_shutdown").exists()

    run(main())


def test_a_drain_that_runs_out_marks_the_turn_and_leaves_it_open(tmp_path: Path) -> None:
    """B54: a turn that outlives the drain stays open in the log, marked with reason and time, and the next start runs
    it again; no clean mark is left beside it.
    """

    async def first() -> bool:
        begun = asyncio.Event()

        async def stuck(turn: Turn) -> str:
            begun.set()
            while True:
                try:
                    await asyncio.sleep(3600)
                except asyncio.CancelledError:
                    return "too late"

        stop = StopConfig(drain_s=0.05, watchdog_s=10.0)
        async with bot(stuck, tmp_path, stop=stop) as it:
            it.say("long")
            await begun.wait()
            return await it.gateway.stop(reason="restart")

    assert run(first()) is False
    assert not (tmp_path / ".clean_shutdown").exists()
    reader = SqliteReader(tmp_path / "state.db")
    try:
        ((lane, hot),) = reader.open_work()
        assert hot.phase == "running"
        (marked,) = [event for event in reader.read(lane) if event.type == "resume/marked"]
        assert marked.data["reason"] == "restart_timeout"
        assert marked.time > 0
    finally:
        reader.close()

    async def second() -> list[str]:
        async def answer(turn: Turn) -> str:
            return f"attempt {turn.attempt}"

        async with bot(answer, tmp_path) as it:
            return await it.heard(1)

    assert run(second()) == ["attempt 2"]


def test_a_late_word_on_a_closed_user_loop_harms_nobody(tmp_path: Path) -> None:
    """A user awaits a receipt on a loop of his own and closes it: the lane's answer finds nobody, and goes on."""

    async def main() -> None:
        free = asyncio.Event()

        async def slow(turn: Turn) -> str:
            await free.wait()
            return "late"

        async with bot(slow, tmp_path) as it:
            receipt = await it.accept("x")

            def wait_and_give_up() -> None:
                async def wait() -> None:
                    with pytest.raises(TimeoutError):
                        await asyncio.wait_for(receipt.answered(), 0.01)

                asyncio.run(wait())

            user = threading.Thread(target=wait_and_give_up)
            user.start()
            await until(lambda: not user.is_alive())
            free.set()
            assert (await receipt.answered()).text == "late"
            assert it.errors == []

    run(main())
