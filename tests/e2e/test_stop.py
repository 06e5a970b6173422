"""A stop that can't end by itself: an agent, a hook or an adapter that blocks the loop for ever, and SIGTERM."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from pathlib import Path

import pytest

from seriatim import Gateway, GatewayConfig, Turn
from seriatim.config import StopConfig
from seriatim.errors import StopOverdueError
from seriatim.stopping import EXIT_OVERDUE
from seriatim.storage.audit import audit
from seriatim.storage.sqlite_reader import SqliteReader
from seriatim.testing.fake_platform import FakePlatform

from .command import WAIT_S_MAX
from .served import Served

BUDGET_S = 1.0
"""What the settings below give a stop: drain and watchdog together."""
SLACK_S = 30.0
"""For a slow machine, and the time that the writer may take."""

AGENTS = """
import threading, time, sys

def say(text):
    sys.stdout.write(text)
    sys.stdout.flush()

class Agent:
    async def run(self, turn):
        if turn.text == "stuck":
            say("BLOCKED")
            time.sleep(3600)
        if turn.text == "locked":
            say("BLOCKED")
            lock = threading.Lock()
            lock.acquire()
            lock.acquire()
        return f"attempt {turn.attempt}: {turn.text}"

    def cleanup(self):
        pass

class Closing(Agent):
    async def cleanup(self):
        say("BLOCKED")
        time.sleep(3600)

def make(session):
    return Agent()

def make_closing(session):
    return Closing()
"""


SETTINGS = "[stop]\ndrain_s = 0.3\nwatchdog_s = 0.7\n"


def terminated(serving: Served) -> tuple[int, float]:
    """SIGTERM; the exit code, and how many seconds it took."""
    began = time.monotonic()
    code = serving.end(signal.SIGTERM)
    return code, time.monotonic() - began


@pytest.mark.parametrize(
    ("factory", "line"), [("make", "stuck"), ("make", "locked")], ids=["sleeping for ever", "a lock twice"]
)
def test_sigterm_ends_a_process_whose_loop_is_blocked(tmp_path: Path, factory: str, line: str) -> None:
    """An agent blocks the loop for ever: within the budget stacks are told, the exit code is not zero, the turn stays
    open, nothing accepted is lost, and the next start answers (B145).
    """
    with Served(tmp_path, SETTINGS, agents=AGENTS, factory=factory) as serving:
        serving.say("hello")
        serving.until("attempt 1: hello")
        serving.say(line)
        serving.until("BLOCKED")
        code, took_s = terminated(serving)
    assert code == EXIT_OVERDUE
    assert BUDGET_S <= took_s < BUDGET_S + SLACK_S
    assert "this is where every thread is" in serving.told
    assert "served_agents.py" in serving.told
    reader = SqliteReader(serving.home / "state.db")
    try:
        (_, hot), *others = reader.open_work()
        assert (hot.phase, others) == ("running", [])
        assert audit(reader).holds
    finally:
        reader.close()
    assert not (serving.home / ".clean_shutdown").exists()

    async def next_start() -> list[str]:
        async def answer(turn: Turn) -> str:
            return f"attempt {turn.attempt}: {turn.text}"

        platform = FakePlatform("local", account="terminal")
        async with Gateway(answer, home=serving.home, adapters=[platform]) as gateway:
            while not platform.received:
                assert gateway.health()["state"] == "running"
                await asyncio.sleep(0.01)
        return platform.texts()

    assert asyncio.run(asyncio.wait_for(next_start(), WAIT_S_MAX)) == [f"attempt 2: {line}"]


def test_sigterm_ends_a_process_whose_clean_up_blocks(tmp_path: Path) -> None:
    """A warm agent's cleanup blocks the loop during the stop itself: the watchdog ends that too (B145)."""
    with Served(tmp_path, SETTINGS, agents=AGENTS, factory="make_closing") as serving:
        serving.say("hello")
        serving.until("attempt 1: hello")
        code, took_s = terminated(serving)
    assert code == EXIT_OVERDUE
    assert took_s < BUDGET_S + SLACK_S
    assert "cleanup" in serving.told
    reader = SqliteReader(serving.home / "state.db")
    try:
        assert audit(reader).holds
    finally:
        reader.close()


def test_an_adapter_that_ignores_its_end_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An adapter that swallows its cancellation holds no stop up: it is named, and the stop goes on (B145)."""

    class Deaf(FakePlatform):
        async def run(self, inbox: object) -> None:
            while not ended.is_set():
                try:
                    await ended.wait()
                except asyncio.CancelledError:
                    continue

    ended = asyncio.Event()
    errors: list[tuple[str, BaseException]] = []

    async def main() -> bool:
        gateway = Gateway(
            lambda turn: "ok", home=tmp_path, adapters=[Deaf()], on_error=lambda *told: errors.append(told)
        )
        await gateway.start()
        clean = await gateway.stop()
        ended.set()
        return clean

    monkeypatch.setattr("seriatim.stopping.SETTLE_S_MAX", 0.05)
    assert asyncio.run(main()) is True
    assert [(where, type(error)) for where, error in errors] == [("seriatim fake", TimeoutError)]


def test_an_embedded_gateway_tells_its_host_that_the_stop_is_stuck(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a loop thread of its own, a blocked loop is an error at the end of the block, with the stacks told; the
    host's process goes on (B145).
    """
    blocked, free, told = threading.Event(), threading.Event(), threading.Event()
    errors: list[BaseException] = []

    async def answer(turn: Turn) -> str:
        blocked.set()
        free.wait()
        return "late"

    config = GatewayConfig(stop=StopConfig(drain_s=0.1, watchdog_s=0.2))
    platform = FakePlatform()
    platform.say("hello")

    def on_error(where: str, error: BaseException) -> None:
        errors.append(error)
        told.set()

    gateway = Gateway(answer, home=tmp_path, config=config, adapters=[platform], on_error=on_error)
    monkeypatch.setattr("seriatim.stopping.SETTLE_S_MAX", 0.1)
    with pytest.raises(StopOverdueError), gateway.started():
        assert blocked.wait(WAIT_S_MAX)
    assert told.wait(WAIT_S_MAX)
    assert isinstance(errors[0], StopOverdueError)
    free.set()  # whoever gets his loop back finds the stop still under way
    loop = gateway._loop
    assert loop is not None
    (left_behind,) = [thread for thread in threading.enumerate() if thread.name == "seriatim-loop"]
    left_behind.join(WAIT_S_MAX)
    loop.run_until_complete(gateway.stop())
    assert gateway.health()["state"] == "stopped"
    loop.close()
