"""Replies that have not arrived: seen, tried on and given up by the operator, in a running gateway and in a stopped
home.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from seriatim.cli import main as command
from seriatim.errors import InvalidInputError
from seriatim.outbox import RECOVERED_NOTICE
from seriatim.storage.audit import audit
from seriatim.storage.sqlite_reader import SqliteReader
from seriatim.testing.clock import VirtualClock
from seriatim.testing.fake_platform import FakePlatform, Fault

from .bots import echo, run, until
from .test_delivery import HOUR_MS, MINUTE_MS, goes_on, lane_events, passes, settle, timed


def home_with_debts(home: Path, clock: VirtualClock, platform: FakePlatform) -> None:
    """A home that stopped owing two replies, the first of them perhaps arrived, and having given one up."""

    async def main() -> None:
        async with timed(echo, home, platform, clock) as (it, _):
            platform.fail_next(Fault("permanent", code="blocked"))
            it.say("never", "x")
            await until(lambda: platform.sends == 1)
            await goes_on(it, clock, MINUTE_MS)
            for chat, fault in (("a", Fault("lost")), ("b", Fault("plain", wait_s=3600))):
                platform.fail_next(fault)
                sends = platform.sends
                it.say("hi", chat)
                await until(lambda sends=sends: platform.sends > sends)  # type: ignore[misc]
            await passes(it, clock, 250)
            platform.go_down()

    run(main())
    platform.sends = 0


def listed(home: Path, capsys: pytest.CaptureFixture[str], *more: str) -> list[dict[str, object]]:
    """What the command lists."""
    assert command(["undelivered", "--home", str(home), "--json", *more]) == 0
    found: list[dict[str, object]] = json.loads(capsys.readouterr().out)
    return found


def test_a_stopped_home_tells_what_has_not_arrived(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two owed, one in doubt and one that waits; with --given-up the refused one, too; texts only where asked for."""
    clock = VirtualClock()
    home_with_debts(tmp_path, clock, FakePlatform())
    found = listed(tmp_path, capsys)
    assert [(reply["state"], reply["target"]["chat_id"]) for reply in found] == [  # type: ignore[index]
        ("in doubt", "a"),
        ("waiting", "b"),
    ]
    assert found[1]["until"] > clock.now_ms()  # type: ignore[operator]
    assert "texts" not in found[0]
    found = listed(tmp_path, capsys, "--given-up", "--text")
    assert [(reply["state"], reply["reason"], reply["texts"]) for reply in found] == [
        ("given up", "blocked", ["echo never"]),
        ("in doubt", "", ["echo hi"]),
        ("waiting", "", ["echo hi"]),
    ]
    assert command(["undelivered", "--home", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert "2 undelivered." in shown
    assert "hi" not in shown


def test_abandoning_asks_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without --yes nothing is written; with it the reply is given up, the other stays, and nobody is told of it."""
    clock, platform = VirtualClock(), FakePlatform()
    home_with_debts(tmp_path, clock, platform)
    name = str(listed(tmp_path, capsys)[0]["delivery"])
    before = (tmp_path / "state.db").read_bytes()
    assert command(["undelivered", "--home", str(tmp_path), "--abandon", name]) == 0
    assert "--yes" in capsys.readouterr().out
    assert (tmp_path / "state.db").read_bytes() == before
    assert command(["undelivered", "--home", str(tmp_path), "--abandon", name, "--yes"]) == 0
    capsys.readouterr()
    assert [reply["target"]["chat_id"] for reply in listed(tmp_path, capsys)] == ["b"]  # type: ignore[index]
    assert {e.data["reason"] for e in lane_events(tmp_path, "delivery/abandoned")} == {"blocked", "operator"}

    async def main() -> None:
        platform.come_back()
        async with timed(echo, tmp_path, platform, clock) as (it, _):
            it.say("more", "a")
            await until(lambda: platform.texts("a"))
            assert platform.texts("a") == ["echo more"]

    run(main())
    reader = SqliteReader(tmp_path / "state.db")
    assert audit(reader).holds
    reader.close()


def test_what_is_retried_offline_goes_out_at_the_next_start(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The one that waits leaves without its wait, the given-up one is owed anew; the clean mark stays what it was."""
    clock, platform = VirtualClock(), FakePlatform()
    home_with_debts(tmp_path, clock, platform)
    marked = (tmp_path / ".clean_shutdown").exists()
    given_up, _, waiting = (str(reply["delivery"]) for reply in listed(tmp_path, capsys, "--given-up"))
    for name in (given_up, waiting):
        assert command(["undelivered", "--home", str(tmp_path), "--retry", name]) == 0
    assert "next start" in capsys.readouterr().out
    assert (tmp_path / ".clean_shutdown").exists() is marked
    assert [reply["state"] for reply in listed(tmp_path, capsys, "--given-up")].count("given up") == 0

    async def main() -> None:
        platform.come_back()
        async with timed(echo, tmp_path, platform, clock) as (it, _):
            await until(lambda: it.health["replies_pending"] or len(platform.received) >= 3)
            await goes_on(it, clock, MINUTE_MS)
            assert platform.texts("b") == ["echo hi"]
            assert platform.texts("x") == ["echo never"]
            assert platform.texts("a") == [RECOVERED_NOTICE + "echo hi"]

    run(main())
    assert listed(tmp_path, capsys, "--given-up") == []


def test_a_home_that_is_served_is_listed_and_not_changed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """While a gateway owns the home the command lists, and refuses to retry or abandon, naming the owner."""

    async def main() -> None:
        platform = FakePlatform()
        async with timed(echo, tmp_path, platform) as (it, _):
            platform.fail_next(Fault("plain", wait_s=600))
            it.say("hi")
            await until(it.gateway.undelivered)
            [reply] = await asyncio.to_thread(listed, tmp_path, capsys)
            name = str(reply["delivery"])
            for act in (["--retry", name], ["--abandon", name, "--yes"]):
                code = await asyncio.to_thread(command, ["undelivered", "--home", str(tmp_path), *act])
                assert code == 2
                assert "owned by" in capsys.readouterr().err

    run(main())


def test_a_running_gateway_tries_on_at_once(tmp_path: Path) -> None:
    """A reply in a long wait is retried by the host: sent now. One near its age lives on. An unknown id is refused."""

    async def main() -> None:
        platform = FakePlatform()
        async with timed(echo, tmp_path, platform) as (it, clock):
            platform.fail_next(Fault("plain", wait_s=20 * 3600))
            it.say("hi")
            await until(it.gateway.undelivered)
            await passes(it, clock, HOUR_MS)
            [reply] = it.gateway.undelivered()
            assert (reply.state, reply.texts) == ("waiting", ("echo hi",))
            assert await it.gateway.retry_delivery(reply.delivery)
            assert await it.heard(1) == ["echo hi"]
            await passes(it, clock, 1_000)
            with pytest.raises(InvalidInputError):
                await it.gateway.retry_delivery(reply.delivery)
            assert it.gateway.undelivered() == []

    run(main())


def test_a_running_gateway_gives_up_on_demand(tmp_path: Path) -> None:
    """Abandoned by the host: never sent, the chat goes on, and no turn tells of it; it can be owed again, once."""

    async def main() -> None:
        platform = FakePlatform()
        async with timed(echo, tmp_path, platform) as (it, clock):
            platform.fail_next(Fault("plain", wait_s=600))
            it.say("hi")
            await until(it.gateway.undelivered)
            await settle(it)  # its first attempt has failed, and is no longer in doubt
            [reply] = it.gateway.undelivered()
            assert await it.gateway.abandon_delivery(reply.delivery)
            await passes(it, clock, 700_000)
            it.say("more")
            assert await it.heard(1) == ["echo more"]
            await passes(it, clock, 1_000)
            [given_up] = it.gateway.undelivered(given_up=True)
            assert (given_up.state, given_up.reason) == ("given up", "operator")
            assert await it.gateway.retry_delivery(given_up.delivery)
            assert (await it.heard(2))[1] == "echo hi"
            await passes(it, clock, 1_000)
            assert it.gateway.undelivered(given_up=True) == []

    run(main())
