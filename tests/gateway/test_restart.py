"""Stopping and starting again: what a start finds of the life before, and who hears of a planned restart."""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path
from typing import Any

import pytest

from seriatim import Gateway, GatewayConfig, Turn
from seriatim.actors import counts as counting
from seriatim.config import AgentConfig, StopConfig
from seriatim.storage import home as homes
from seriatim.storage.mirror import read_mirror

from .bots import Bot, bot, echo, event, interrupted, run, until


async def attempt(turn: Turn) -> str:
    """Says how often it was begun."""
    return f"attempt {turn.attempt}"


async def found(home: Path) -> Any:
    """What the next start found; its one interrupted turn has been answered then."""
    async with bot(attempt, home) as it:
        assert await it.heard(1) == ["attempt 2"]
        return it.health["start"]


def test_a_clean_stop_leaves_its_mark_and_the_next_start_nothing_to_do(tmp_path: Path) -> None:
    """The mark is taken away at once: a crash of the life that found it must not find it again."""

    async def main() -> tuple[Any, bool]:
        async with bot(echo, tmp_path) as it:
            await it.ask("hi")
        async with bot(echo, tmp_path) as it:
            return it.health["start"], (tmp_path / homes.CLEAN).exists()

    assert run(main()) == ({"after_clean_stop": True, "lanes_open": 0, "turns_open": 0}, False)


def test_a_mark_that_lies_hides_no_open_turn(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """B54: the log decides. A true-looking mark beside an open turn is reported, and the turn runs again."""
    assert run(interrupted(tmp_path)) is False
    homes._write_marker(tmp_path)

    with caplog.at_level(logging.WARNING, "seriatim.gateway"):
        start = run(found(tmp_path))

    assert start == {"after_clean_stop": True, "lanes_open": 1, "turns_open": 1}
    assert "1 turns open all the same" in caplog.text


@pytest.mark.parametrize("text", [b"", b"\xff\xfe", b"store x epoch 1 event 1", b"1" * 100_000], ids=len)
def test_a_mark_of_another_life_is_none(tmp_path: Path, text: bytes) -> None:
    """Empty, damaged, from another store or epoch: the start is as after a crash, and isn't kept from anything."""
    assert run(interrupted(tmp_path)) is False
    (tmp_path / homes.CLEAN).write_bytes(text)

    assert run(found(tmp_path)) == {"after_clean_stop": False, "lanes_open": 1, "turns_open": 1}


def test_a_restart_is_told_to_who_runs_the_gateway(tmp_path: Path) -> None:
    """An embedding host that stops for a restart, or an operator who asks for one, sets the same event."""

    async def main() -> list[bool]:
        told = []
        async with bot(echo, tmp_path) as it:
            told.append(it.gateway.restart_asked.is_set())
            assert it.gateway._runtime is not None
            it.gateway._runtime.on_restart()
            told.append(it.gateway.restart_asked.is_set())
            assert await still_answers(it)
        async with bot(echo, tmp_path) as it:
            await it.gateway.stop(reason="restart")
            told.append(it.gateway.restart_asked.is_set())
        return told

    assert run(main()) == [False, True, True]


async def still_answers(it: Bot) -> bool:
    """Whether the gateway takes a message and answers it."""
    return (await it.ask("still there?")).text == "echo still there?"


def test_a_turn_that_is_alone_on_a_loop_of_our_own_fails_when_it_is_cancelled(tmp_path: Path) -> None:
    """No other task runs there; all the same nobody is about to end the loop, so its lane must not wait for that."""

    async def agent(turn: Turn) -> str:
        if turn.text == "bad":
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await asyncio.Event().wait()
        return f"echo {turn.text}"

    with Gateway(agent, home=tmp_path).started() as gateway:
        bad = gateway.submit(event("bad")).result(60).wait(60)
        good = gateway.submit(event("good")).result(60).wait(60)

    assert (bad.outcome, bad.reason) == ("answered", "failed")
    assert good.text == "echo good"


def counts(home: Path) -> Any:
    """What the mirror says."""
    return read_mirror(home / counting.FILE)


def test_the_mirror_tells_interruptions_in_a_row(tmp_path: Path) -> None:
    """It counts up with each interruption and is empty again when the turn has been answered; it is of the seed's form,
    key to count.
    """

    async def waits_for_two() -> Any:
        async def long(turn: Turn) -> str:
            await asyncio.Event().wait()
            return ""

        async with bot(long, tmp_path, stop=StopConfig(drain_s=0.0)) as it:
            await until(lambda: it.health["turns_running"])

        return counts(tmp_path)

    assert run(interrupted(tmp_path)) is False
    assert run(waits_for_two()) == {"agent:main:fake:dm:1": 1}
    assert run(waits_for_two()) == {"agent:main:fake:dm:1": 2}
    run(answered_at_last(tmp_path))
    assert counts(tmp_path) == {}


async def answered_at_last(home: Path) -> list[str]:
    """A life in which the interrupted turn is answered."""
    async with bot(echo, home) as it:
        return await it.heard(1)


@pytest.mark.parametrize(
    "text", ["", '{"agent:main', "[]", '{"agent:main:fake:dm:1": "3", "x": true, "y": -1, "z": 99}', "\0" * 64]
)
def test_a_bad_counter_file_counts_as_none(tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str) -> None:
    """B56: empty, truncated, of another form or from the future: a warning, and the start goes on as if there were
    none; nobody is suspended for what a file says.
    """
    assert run(interrupted(tmp_path)) is False
    (tmp_path / counting.FILE).write_text(text)
    os.utime(tmp_path / counting.FILE, (2**33, 2**33))

    with caplog.at_level(logging.WARNING, "seriatim.mirror"):
        said = run(answered_at_last(tmp_path))

    assert said == ["echo long"]
    assert counting.FILE in caplog.text
    assert counts(tmp_path) == {}


@pytest.mark.parametrize("reason", ["restart", "shutdown"])
def test_why_a_turn_is_to_be_resumed_stands_in_its_entry(tmp_path: Path, reason: str) -> None:
    """A drain's reason from the stop to the next life's entry; beyond the freshness it stays until somebody writes."""
    assert run(interrupted(tmp_path, reason)) is False

    async def main() -> list[Any]:
        config = GatewayConfig(agent=AgentConfig(gateway_auto_continue_freshness=0))
        async with bot(echo, tmp_path, config=config) as it:
            await it.at_rest()
            (before,) = await it.gateway.sessions.aio.list_sessions()
            it.say("long")  # the platform's first number, which the life before knows
            it.say("and now?")
            assert await it.heard(1) == ["echo long\nand now?"]
            await it.at_rest()
            (after,) = await it.gateway.sessions.aio.list_sessions()
            return [before.resume_pending, before.resume_reason, before.last_resume_marked_at is not None, after]

    *before, after = run(main())

    assert before == [True, f"{reason}_timeout", True]
    assert (after.resume_pending, after.suspended) == (False, False)
