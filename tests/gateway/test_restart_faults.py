"""Known faults of restarts, each played on a real home: what the next start must make of it."""

from __future__ import annotations

import asyncio
import json
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from seriatim import GatewayConfig, MessageEvent, Platform, SessionSource, Turn
from seriatim.actors.session import SessionActor
from seriatim.actors.supervisor import PassivateLane
from seriatim.adapters.base import Capabilities
from seriatim.config import AdmissionConfig, StopConfig
from seriatim.mail import Inbound
from seriatim.storage.projections import rebuild
from seriatim.storage.sqlite_reader import SqliteReader
from seriatim.testing.fake_platform import FakePlatform
from seriatim.testing.snapshot import snapshot_files

from .bots import Bot, balance_holds, bot, echo, event, interrupted, run, until

LONG_S = 3600.0


def events(home: Path, prefix: str, *types: str) -> list[Any]:
    """The events of these types in the logs whose name begins so."""
    reader = SqliteReader(home / "state.db")
    try:
        logs = list(reader.logs(prefix, prefix, 100))
        return [event for log in logs for event in reader.read(log) if not types or event.type in types]
    finally:
        reader.close()


def killed(home: Path, copy: Path) -> Path:
    """What a SIGKILL right now would leave of the home."""
    snapshot_files(home / "state.db", copy)
    return copy


def test_recency_is_no_evidence(tmp_path: Path) -> None:
    """B53: killed during the drain, five chats idle and one amid a turn: that one is recovered; the others keep their
    session and hear nothing.
    """
    begun, go_on = asyncio.Event(), asyncio.Event()
    platform = FakePlatform()

    async def agent(turn: Turn) -> str:
        if turn.text == "long" and turn.attempt == 1:
            begun.set()
            await go_on.wait()
        return f"attempt {turn.attempt}: {turn.text}"

    async def first() -> dict[str, None]:
        async with bot(agent, tmp_path / "a", platform) as it:
            for chat in "12345":
                it.say("hi", chat)
            await it.heard(5)
            await it.at_rest()
            it.say("long", "6")
            await begun.wait()
            stopping = asyncio.ensure_future(it.gateway.stop(drain_s=LONG_S))
            await until(lambda: it.health["state"] == "stopping")
            bound = {e.data["session"]: None for e in events(tmp_path / "a", "lane:", "route/bound")}
            killed(tmp_path / "a", tmp_path / "b")
            go_on.set()
            await stopping
        return bound

    async def second() -> tuple[Any, list[str]]:
        platform.received.clear()
        async with bot(agent, tmp_path / "b", platform) as it:
            await it.heard(1)
            await it.at_rest()
            return it.health["start"], platform.texts()

    bound = run(first())
    start, said = run(second())

    assert start == {"after_clean_stop": False, "lanes_open": 1, "turns_open": 1}
    assert said == ["attempt 2: long"]
    assert {e.data["session"]: None for e in events(tmp_path / "b", "lane:", "route/bound")} == bound
    assert balance_holds(tmp_path / "b")


CHILD = """
import asyncio, json, os, signal, sys
from pathlib import Path
from seriatim import Gateway, MessageEvent, Platform, SessionSource
from seriatim.testing.fake_platform import FakePlatform

home, start = Path(sys.argv[1]), int(sys.argv[2])
platform = FakePlatform()

async def answer(turn):
    if turn.text != "restart the service":
        return "echo " + turn.text
    while not platform.texts("2"):
        await asyncio.sleep(0.01)
    with (home / "ran").open("a") as file:
        file.write("ran ")
    await turn.step("I do it").call("look", {}, lambda: "it runs", effects="write")
    await turn.step("now").call("kill", {}, lambda: os.kill(os.getpid(), signal.SIGKILL), effects="write")

def said(text, chat):
    where = SessionSource(platform=Platform("fake"), chat_id=chat, user_id="7")
    platform.post(MessageEvent(text, where, account="fake", message_id=f"{start} {chat}"))

async def main():
    async with Gateway(answer, home=home, adapters=[platform]) as gateway:
        said("hi", "2")
        if start == 1:
            said("restart the service", "1")
        while not platform.texts("2") or gateway._runtime.busy:
            await asyncio.sleep(0.01)
        if start == 5:
            said("are you back?", "1")
            while not platform.texts("1"):
                await asyncio.sleep(0.01)
        print(json.dumps([platform.texts("1"), platform.texts("2")]))

asyncio.run(main())
"""


def test_a_turn_that_restarts_the_service_is_not_run_for_ever(tmp_path: Path) -> None:
    """B55: its second step kills the process. Each attempt is counted before it is made; at the third start after it
    the conversation is suspended and its user told once; other lanes are served; no begun call is run again.
    """
    tmp_path.joinpath("home").mkdir()
    ended: list[tuple[int, str]] = []
    for start in range(1, 6):
        child = subprocess.run(
            [sys.executable, "-c", CHILD, str(tmp_path / "home"), str(start)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        ended.append((child.returncode, child.stdout))

    assert [code for code, _ in ended] == [-signal.SIGKILL] * 3 + [0, 0], ended
    told, other = json.loads(ended[3][1])
    assert len(told) == 1
    assert "given up" in told[0]
    assert "echo hi" in other
    assert json.loads(ended[4][1]) == [["echo are you back?"], ["echo hi"]]
    assert (tmp_path / "home" / "ran").read_text() == "ran ran ran "
    home = tmp_path / "home"
    assert [e.data["attempt"] for e in events(home, "lane:", "inbox/claimed") if e.data["attempt"] > 1] == [2, 3]
    results = [e.data for e in events(home, "session:", "tool/result")]
    assert [data.get("outcome") for data in results] == [None, "unknown"] * 3
    assert len({data["id"] for data in results}) == 6
    assert balance_holds(home)


@pytest.mark.parametrize(("before", "after"), [("UTC", "Asia/Bangkok"), ("Europe/Berlin", "America/New_York")])
def test_a_mark_is_as_fresh_in_another_zone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str, after: str
) -> None:
    """B58: a turn interrupted under one local time is resumed under another: ages count from the epoch."""

    async def answer(turn: Turn) -> str:
        return f"attempt {turn.attempt}"

    async def second() -> list[str]:
        async with bot(answer, tmp_path) as it:
            return await it.heard(1)

    try:
        monkeypatch.setenv("TZ", before)
        time.tzset()
        run(interrupted(tmp_path))
        monkeypatch.setenv("TZ", after)
        time.tzset()
        assert run(second()) == ["attempt 2"]
    finally:
        monkeypatch.undo()
        time.tzset()


def test_a_message_that_fails_at_the_start_closes_no_door(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """B59: three messages wait at the door of a start; the first kills its lane each time. It is refused with its
    reason, the other two run in their order, and so does what comes later.
    """
    monkeypatch.setattr("seriatim.actors.deaths.RESTART_MS", (0,))
    receive = SessionActor.on_receive

    def on_receive(self: SessionActor, message: Any) -> None:
        if type(message) is Inbound and message.event.text == "poison":
            raise ValueError("never works")
        receive(self, message)

    monkeypatch.setattr(SessionActor, "on_receive", on_receive)
    platform = FakePlatform(capabilities=Capabilities(replay="cursor"))
    for text in ("poison", "one", "two"):
        platform.say(text)

    async def main() -> tuple[list[str], Any]:
        async with bot(echo, tmp_path, platform) as it:
            await until(lambda: "two" in " ".join(platform.texts()))
            it.say("three")
            await until(lambda: "three" in " ".join(platform.texts()))
            return platform.texts(), [error for _, error in it.errors if "never works" in str(error)]

    said, errors = run(main())

    assert " ".join(said).replace("echo ", "").split() == ["one", "two", "three"]
    assert errors
    assert balance_holds(tmp_path)


def test_what_arrives_while_the_gateway_starts_is_taken_once(tmp_path: Path) -> None:
    """B61: the platform's cursor stands at what was accepted, and moves only then: three messages from before the
    connection are answered once, also when the process dies right after it has accepted the first.
    """
    platform = FakePlatform(capabilities=Capabilities(replay="cursor"))
    accepted = asyncio.Event()

    async def slow(turn: Turn) -> str:
        accepted.set()
        await asyncio.Event().wait()
        return ""

    async def first() -> None:
        platform.say("m101")
        async with bot(slow, tmp_path / "a", platform, stop=StopConfig(drain_s=0.0)) as it:
            await accepted.wait()
            killed(tmp_path / "a", tmp_path / "b")
            assert it.health["state"] == "running"

    async def second() -> list[str]:
        platform.say("m102")
        platform.say("m103")
        platform.posted[0].acked = False  # the kill came before the cursor was written
        platform.redeliver()
        platform.received.clear()
        async with bot(echo, tmp_path / "b", platform) as it:
            await until(lambda: "m103" in " ".join(platform.texts()))
            await it.at_rest()
            return platform.texts()

    run(first())
    said = run(second())

    assert sorted(" ".join(said).replace("echo ", "").split()) == ["m101", "m102", "m103"]
    assert all(posted.acked for posted in platform.posted)
    assert len(events(tmp_path / "b", "lane:", "inbox/accepted")) == 3


def test_an_old_backlog_is_judged_by_its_age(tmp_path: Path) -> None:
    """B62: a command of three hours ago is answered and does nothing; a text that old is dropped where the
    configuration says so; one of five seconds ago is answered. The log tells all of it.
    """
    platform = FakePlatform()
    now = time.time_ns() // 1_000_000
    old = now - 3 * 3_600_000
    source = SessionSource(platform=Platform("fake"), chat_id="1", user_id="7")
    for number, (text, at) in enumerate([("old", old), ("/stop", old), ("/restart", old), ("new", now - 5_000)]):
        platform.post(MessageEvent(text, source, account="fake", message_id=f"m{number}", received_at=at))

    async def main() -> bool:
        config = GatewayConfig(admission=AdmissionConfig(max_age_s=3600))
        async with bot(echo, tmp_path, platform, config=config) as it:
            await it.heard(3)
            await it.at_rest()
            return it.gateway.restart_asked.is_set()

    assert run(main()) is False
    said = platform.texts()
    assert sum("3 hours ago and was not carried out" in text for text in said) == 2
    assert said[-1] == "echo new"
    assert len(said) == 3
    assert [e.data["reason"] for e in events(tmp_path, "lane:", "inbox/dropped")] == ["stale"]
    assert events(tmp_path, "lane:", "route/suspended") == []
    assert balance_holds(tmp_path)


async def session_of(it: Bot, text: str) -> Any:
    """The session in which a message is answered."""
    receipt = await it.accept(text)
    await receipt.answered()
    return receipt.session_id


def test_a_lost_index_brings_no_ended_session_back(tmp_path: Path) -> None:
    """B64: /new ends the first session; then the index is lost and made anew from the logs. The second one goes on."""

    async def first() -> list[Any]:
        async with bot(echo, tmp_path) as it:
            sessions = [await session_of(it, "hi")]
            await (await it.accept("/new")).answered()
            return [*sessions, await session_of(it, "again")]

    async def second() -> Any:
        async with bot(echo, tmp_path) as it:
            return await session_of(it, "and again")

    before = run(first())
    assert before[0] != before[1]
    connection = sqlite3.connect(tmp_path / "state.db")
    connection.execute("DELETE FROM lanes")
    connection.commit()
    connection.close()
    rebuild(str(tmp_path / "state.db"))
    for mirror in tmp_path.glob("*.json"):
        mirror.unlink()

    assert run(second()) == before[1]


def test_resting_changes_nothing_that_lasts(tmp_path: Path) -> None:
    """B65: a lane is put to rest twice, and each time the next message goes on in its session, with its history."""
    lengths: list[int] = []

    async def agent(turn: Turn) -> str:
        lengths.append(len(turn.history))
        return "fine"

    async def main() -> list[Any]:
        async with bot(agent, tmp_path) as it:
            sessions = []
            for text in ("one", "two", "three"):
                sessions.append(await session_of(it, text))
                await it.at_rest()
                assert it.gateway._runtime is not None
                directory = it.gateway._runtime.directory
                (key,) = directory.live
                directory.supervisor.signal(PassivateLane(key, "idle"))
                await until(lambda directory=directory: not directory.live)  # type: ignore[misc]
            return sessions

    sessions = run(main())

    assert len(set(sessions)) == 1
    assert lengths == [0, 2, 4]
    assert events(tmp_path, "session:", "session/end-seed") == []


def test_a_kill_loses_nothing_that_was_flushed(tmp_path: Path) -> None:
    """B70: killed in the fourth of five turns, after its tool: three turns stand, the fourth up to that result."""
    killed_at = asyncio.Event()

    async def agent(turn: Turn) -> str:
        if turn.text == "fourth":
            await turn.step("let me see").call("look", {}, lambda: "a result", effects="write")
            killed(tmp_path / "a", tmp_path / "b")
            killed_at.set()
            await asyncio.Event().wait()
        return f"echo {turn.text}"

    async def first() -> None:
        async with bot(agent, tmp_path / "a", stop=StopConfig(drain_s=0.0)) as it:
            for text in ("first", "second", "third"):
                await it.ask(text)
            await it.gateway.accept(event("fourth"))
            await killed_at.wait()

    run(first())
    told = [e for e in events(tmp_path / "b", "session:") if e.type not in ("step/start", "step/end")]
    assert [e.data["reason"]["kind"] for e in told if e.type == "turn/end"] == ["completed"] * 3
    assert [e.data.get("text", e.data.get("content")) for e in told if e.type in ("user/message", "tool/result")] == [
        "first",
        "second",
        "third",
        "fourth",
        "a result",
    ]

    async def second() -> None:
        async with bot(echo, tmp_path / "b") as it:
            await it.at_rest()

    run(second())
    ends = [e.data["reason"]["kind"] for e in events(tmp_path / "b", "session:", "turn/end")]
    assert ends == ["completed"] * 3 + ["interrupted", "completed"]


def test_an_interrupted_turn_goes_on_by_itself(tmp_path: Path) -> None:
    """B74: nobody types anything after the start; the turn runs again once and its user hears the reply. Started once
    more, nothing is left to do.
    """
    run(interrupted(tmp_path))

    async def start() -> tuple[list[str], Any]:
        async with bot(echo, tmp_path) as it:
            await it.at_rest()
            await until(lambda: not it.health["start"]["turns_open"] or it.platform.texts())
            await it.at_rest()
            return it.platform.texts(), it.health["start"]["turns_open"]

    assert run(start()) == (["echo long"], 1)
    assert run(start()) == ([], 0)
