"""A host that stops at odd moments, from odd places, and whose own parts raise."""

from __future__ import annotations

import asyncio
import math
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from seriatim import Gateway, GatewayConfig
from seriatim.actors.clockwork import SystemClock
from seriatim.actors.warden import WarmLanes
from seriatim.config import StopConfig
from seriatim.errors import GatewayClosedError, InvalidInputError, WrongThreadError
from seriatim.testing.clock import VirtualClock
from seriatim.testing.fake_platform import FakePlatform

from .bots import balance_holds, bot, echo, event, run, until


def test_a_stop_during_the_start_ends_in_a_stopped_gateway(tmp_path: Path) -> None:
    """Who stops a gateway that is just starting finds it stopped, not started behind the stop; its home is free."""

    async def main() -> tuple[bool, Any]:
        gateway = Gateway(echo, home=tmp_path)
        starting = asyncio.create_task(gateway.start())
        await asyncio.sleep(0)
        clean = await gateway.stop()
        await starting
        async with Gateway(echo, home=tmp_path):
            return clean, gateway.health()["state"]

    assert run(main()) == (True, "stopped")


def test_a_stop_during_a_start_that_fails_returns(tmp_path: Path) -> None:
    """Who waits for the end of a start hears of it, whatever that end is."""

    def broken() -> Any:
        raise OSError("no disk")

    async def main() -> bool:
        gateway = Gateway(echo, home=tmp_path, store=broken)
        starting = asyncio.create_task(gateway.start())
        await asyncio.sleep(0)
        clean = await gateway.stop()
        with pytest.raises(OSError, match="no disk"):
            await starting
        return clean

    assert run(main()) is False


@pytest.mark.parametrize("drain_s", [math.inf, 1e12, 0])
def test_a_drain_may_be_as_long_as_one_likes(tmp_path: Path, drain_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Endless or none: the stop ends with the last turn, and its watchdog stays awake."""
    died: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", died.append)

    async def main() -> bool:
        gateway = Gateway(echo, home=tmp_path)
        await gateway.start()
        await (await gateway.accept(event("hi"))).answered()
        return await gateway.stop(drain_s=drain_s)

    assert run(main()) is True
    assert died == []


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("home", 5),
        ("home", ""),
        ("home", "a\0b"),
        ("home", b"home"),
        ("config", {}),
        ("config", GatewayConfig),
        ("adapters", 5),
        ("adapters", [5]),
        ("adapters", [SimpleNamespace(platform="x", account="y", capabilities=None, run=run, text_max=len, send=None)]),
        ("on_error", 5),
        ("has_active_processes_fn", 5),
        ("clock", 5),
        ("clock", VirtualClock),
        ("ids", 5),
        ("store", 5),
        ("store", FakePlatform()),
    ],
)
def test_a_gateway_of_wrong_parts_is_not_made(tmp_path: Path, name: str, given: Any) -> None:
    """Its constructor names the argument that can't work."""
    parts: dict[str, Any] = {"home": tmp_path, name: given}
    with pytest.raises(InvalidInputError) as refused:
        Gateway(echo, **parts)

    assert refused.value.field == name


@pytest.mark.parametrize("drain_s", [math.nan, -1])
def test_a_drain_that_is_no_time_is_refused(tmp_path: Path, drain_s: float) -> None:
    """And the gateway goes on."""

    async def main() -> str:
        async with bot(echo, tmp_path) as it:
            with pytest.raises(InvalidInputError, match="drain_s"):
                await it.gateway.stop(drain_s=drain_s)
            return (await it.ask("still there?")).outcome

    assert run(main()) == "answered"


def test_a_block_that_is_cancelled_again_is_left_when_the_stop_has_ended(tmp_path: Path) -> None:
    """The second cancelling ends the drain, not the stop: the home is free behind it."""
    begun = asyncio.Event()

    async def long(turn: Any) -> str:
        begun.set()
        await asyncio.Event().wait()
        return ""

    async def main() -> tuple[bool, str]:
        gateway = Gateway(long, home=tmp_path, config=GatewayConfig(stop=StopConfig(drain_s=1e6)))

        async def host() -> None:
            async with gateway:
                await gateway.accept(event("hi"))
                await asyncio.Event().wait()

        hosting = asyncio.create_task(host())
        await begun.wait()
        hosting.cancel()
        await until(lambda: gateway.health()["state"] == "stopping")
        hosting.cancel()
        await asyncio.wait({hosting})
        state = gateway.health()["state"]
        async with bot(echo, tmp_path) as it:
            await it.at_rest()
        return hosting.cancelled(), state

    assert run(main()) == (True, "stopped")


def test_a_stop_from_another_loop_is_refused(tmp_path: Path) -> None:
    """With an error that says so; the gateway goes on and can still be stopped."""

    async def main() -> tuple[Any, str]:
        async with bot(echo, tmp_path) as it:
            raised: list[BaseException] = []

            def elsewhere() -> None:
                try:
                    asyncio.run(it.gateway.stop())
                except WrongThreadError as error:
                    raised.append(error)

            await asyncio.to_thread(elsewhere)
            return raised, (await it.ask("still there?")).outcome

    raised, outcome = run(main())

    assert "gateway's loop" in str(raised[0])
    assert outcome == "answered"


def test_run_where_it_cannot_be_says_what_to_use(tmp_path: Path) -> None:
    """On a running loop and off the main thread, before anything is started: the same gateway can be used that way."""
    gateway = Gateway(echo, home=tmp_path)

    async def main() -> str:
        with pytest.raises(WrongThreadError, match="`async with gateway:`"):
            gateway.run()
        with pytest.raises(WrongThreadError, match=r"`with gateway.started\(\):`"):
            await asyncio.to_thread(gateway.run)
        async with gateway:
            return str(gateway.health()["state"])

    assert run(main()) == "running"


class BreakingClock(SystemClock):
    """A host's clock that stops working when it is told to."""

    broken = False

    def monotonic_ms(self) -> float:
        """Raises once it is broken."""
        if self.broken:
            raise RuntimeError("no clock any more")
        return super().monotonic_ms()


def test_a_stop_that_fails_gives_the_home_up(tmp_path: Path) -> None:
    """An injected part breaks it: that is raised, turns end, and the next gateway of the process has the home."""
    ended = asyncio.Event()
    begun = asyncio.Event()

    async def long(turn: Any) -> str:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return ""

    async def main() -> str:
        clock = BreakingClock(asyncio.get_running_loop())
        gateway = Gateway(long, home=tmp_path, clock=clock)
        await gateway.start()
        await gateway.accept(event("hi"))
        await begun.wait()
        clock.broken = True
        with pytest.raises(RuntimeError, match="no clock any more"):
            await gateway.stop()
        await ended.wait()
        async with bot(echo, tmp_path) as it:
            assert it.health["start"]["turns_open"] == 1
            await it.at_rest()
        return str(gateway.health()["state"])

    assert run(main()) == "stopped"
    assert balance_holds(tmp_path)


def test_a_run_whose_host_raises_gives_the_home_up(tmp_path: Path) -> None:
    """What is to be called at the start raises: nobody else would stop the gateway."""

    def broken() -> None:
        raise ValueError("no banner")

    with pytest.raises(ValueError, match="no banner"):
        Gateway(echo, home=tmp_path).run(started=broken)

    async def main() -> Any:
        async with bot(echo, tmp_path) as it:
            return it.health["start"]["after_clean_stop"]

    assert run(main()) is True


def test_a_submit_to_a_closed_loop_is_refused_by_type(tmp_path: Path) -> None:
    """The host closed the loop under the gateway: a thread that goes on submitting gets a GatewayClosedError."""
    loop = asyncio.new_event_loop()
    gateway = Gateway(echo, home=tmp_path)
    loop.run_until_complete(gateway.start())
    loop.close()

    with pytest.raises(GatewayClosedError, match="loop was closed"):
        gateway.submit(event("hi"))


def test_a_forked_child_leaves_the_block_at_once(tmp_path: Path) -> None:
    """Its copy of the gateway says that it is one; the parent's gateway goes on."""
    code = f"""
import os, warnings
from seriatim import Gateway
warnings.simplefilter("ignore")
gateway = Gateway(lambda turn: "ok", home={str(tmp_path)!r})
with gateway.started():
    child = os.fork()
    state = gateway.health()["state"]
print(state, flush=True)
if child:
    os.waitpid(child, 0)
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)

    assert sorted(ran.stdout.split()) == ["forked", "running"]


def test_a_burst_over_the_cap_is_told_once() -> None:
    """Many turns begin before the warden looks: one word to it, not one each; the next turn says it again."""
    said: list[None] = []
    warm = WarmLanes(1, lambda: said.append(None))
    for key in ("a", "b", "c", "d"):
        warm.touched(key, 1)
    assert len(said) == 1

    assert warm.beyond() == ["a", "b", "c"]
    warm.touched("a", 1)

    assert len(said) == 2
    assert warm.beyond() == ["b", "c", "d"]


@pytest.mark.parametrize("by_host", [False, True], ids=["by itself", "by the host"])
def test_a_turn_whose_task_is_cancelled_by_others_fails(tmp_path: Path, by_host: bool) -> None:
    """While the loop goes on nobody else would end it: its slot and its lane are free again."""
    tasks: list[Any] = []

    async def agent(turn: Any) -> str:
        if turn.text != "bad":
            return "fine"
        tasks.append(asyncio.current_task())
        if not by_host:
            tasks[0].cancel()
        await asyncio.Event().wait()
        return "never"

    async def main() -> tuple[Any, Any, Any]:
        async with bot(agent, tmp_path) as it:
            bad = await it.accept("bad")
            await until(lambda: tasks)
            tasks[0].cancel()
            return await bad.answered(), (await it.ask("good")).text, it.health["turns_running"]

    end, good, running = run(main())

    assert (end.outcome, end.reason) == ("answered", "failed")
    assert good == "fine"
    assert running == 0


class OddPlatform(FakePlatform):
    """Its first run ends as *end* says."""

    def __init__(self, end: Callable[[], Any]) -> None:
        super().__init__()
        self.runs = 0
        self._end = end

    async def run(self, inbox: Any) -> None:
        """Once oddly, then as its base."""
        self.runs += 1
        if self.runs == 1:
            await self._end()
        await super().run(inbox)


class WeirdError(BaseException):
    """Nobody expects it."""


@pytest.mark.parametrize("error", [WeirdError(), GeneratorExit(), BaseExceptionGroup("two", [WeirdError()])], ids=repr)
def test_an_adapter_is_started_again_whatever_it_raises(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    """Reported, and up again after its wait."""
    monkeypatch.setattr("seriatim.opening.ADAPTER_RETRY_S", (0.0,))

    async def fail() -> None:
        raise error

    async def main() -> tuple[list[str], Any]:
        platform = OddPlatform(fail)
        async with bot(echo, tmp_path, platform) as it:
            it.say("hi")
            return await it.heard(1), it.errors

    heard, errors = run(main())

    assert heard == ["echo hi"]
    assert errors == [("adapter fake", error)]


def test_an_adapter_whose_clean_up_raises_is_not_started_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At a stop it was told to end and has, with an error: reported, and that is all."""
    monkeypatch.setattr("seriatim.opening.ADAPTER_RETRY_S", (0.0,))
    up = asyncio.Event()

    async def clean_up_badly() -> None:
        try:
            up.set()
            await asyncio.Event().wait()
        finally:
            raise ConnectionError("reset by peer")

    async def main() -> tuple[int, list[str]]:
        platform = OddPlatform(clean_up_badly)
        async with bot(echo, tmp_path, platform) as it:
            await up.wait()
        return platform.runs, [where for where, _ in it.errors]

    assert run(main()) == (1, ["adapter fake"])


def test_a_reporter_that_raises_costs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """on_error itself is broken: the adapter is started again all the same, and the stop comes to its end."""
    monkeypatch.setattr("seriatim.opening.ADAPTER_RETRY_S", (0.0,))

    def report(where: str, error: BaseException) -> None:
        raise RuntimeError("no reporter either")

    async def fail() -> None:
        raise ValueError("a bug")

    async def main() -> bool:
        platform = OddPlatform(fail)
        config = GatewayConfig(stop=StopConfig(drain_s=5.0, watchdog_s=10.0))
        gateway = Gateway(echo, home=tmp_path, config=config, adapters=[platform], on_error=report)
        await gateway.start()
        platform.say("hi")
        await until(lambda: platform.texts() == ["echo hi"])
        return await gateway.stop()

    assert run(main()) is True
