"""A turn that waits for its own end, by whatever way, is told so at once."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from seriatim.errors import WaitCycleError, WrongThreadError

from .bots import Bot, bot, echo, event, run


def test_a_turn_that_awaits_its_own_lane_is_refused(tmp_path: Path) -> None:
    """The turn asks its own lane and awaits the answer: the error names the circle, and the lane goes on (B136)."""
    refused: list[WaitCycleError] = []

    async def main() -> None:
        async def answer(turn: Any) -> str:
            if turn.text == "ask yourself":
                receipt = await it.accept("follow-up")
                with pytest.raises(WaitCycleError) as caught:
                    await receipt.answered()
                refused.append(caught.value)
            return f"done {turn.text}"

        async with bot(answer, tmp_path) as it:
            end = await it.ask("ask yourself")
            assert end.text == "done ask yourself"
            await it.at_rest()
            assert it.gateway.balance()["answered"] == 2

    run(main())
    (cycle,) = [error.cycle for error in refused]
    assert len(cycle) == 2
    assert cycle[0] == cycle[1]
    assert " -> ".join(cycle) in str(refused[0])


def test_two_turns_that_await_each_other_are_refused(tmp_path: Path) -> None:
    """A asks B, B asks A: the one that would close the circle gets the error, the other its answer (B136)."""
    caught: list[WaitCycleError] = []

    async def main() -> list[str | None]:
        async def answer(turn: Any) -> str:
            me = turn.source.chat_id
            if turn.text != "start":
                return f"{me} heard {turn.text}"
            other = "b" if me == "a" else "a"
            await both.wait()
            receipt = await it.accept(f"from {me}", lane=other)
            try:
                return f"{me} got: {(await receipt.answered()).text}"
            except WaitCycleError as error:
                caught.append(error)
                return f"{me} was refused"

        both = asyncio.Barrier(2)
        async with bot(answer, tmp_path) as it:
            ends = await asyncio.gather(it.ask("start", "a"), it.ask("start", "b"))
            await it.at_rest()
            return [end.text for end in ends]

    texts = run(main())
    (error,) = caught
    assert len(error.cycle) == 3
    assert len(set(error.cycle)) == 2
    refused = 0 if texts[0] == "a was refused" else 1
    asked = "b" if refused == 0 else "a"
    assert texts[refused] == f"{'ab'[refused]} was refused"
    assert texts[1 - refused] == f"{asked} got: {'ab'[refused]} heard from {asked}"


def test_a_turn_may_await_another_lane(tmp_path: Path) -> None:
    """Without a circle a turn gets the other lane's answer, one after the other or side by side."""

    async def main() -> str | None:
        async def answer(turn: Any) -> str:
            if turn.text != "ask around":
                return f"{turn.source.chat_id} says hi"
            first = await it.ask("hi", "x")
            second, third = await asyncio.gather(it.ask("hi", "y"), it.ask("hi", "z"))
            return ", ".join(str(end.text) for end in (first, second, third))

        async with bot(answer, tmp_path) as it:
            return (await it.ask("ask around")).text

    assert run(main()) == "x says hi, y says hi, z says hi"


def test_a_task_that_the_turn_left_behind_may_wait(tmp_path: Path) -> None:
    """What a turn starts and doesn't wait for is no circle: it hears its lane's answer after the turn's end."""

    async def main() -> str | None:
        async def answer(turn: Any) -> str:
            if turn.text == "later":
                waiting.append(asyncio.create_task(it.ask("follow-up")))
            return f"done {turn.text}"

        waiting: list[asyncio.Task[Any]] = []
        async with bot(answer, tmp_path) as it:
            await it.ask("later")
            return str((await waiting[0]).text)

    assert run(main()) == "done follow-up"


def test_a_plain_agent_that_blocks_on_its_own_lane_is_refused(tmp_path: Path) -> None:
    """A sync agent's thread is the turn: receipt.wait() for its own lane raises instead of hanging (B136)."""

    async def main() -> tuple[str | None, str | None]:
        def answer(turn: Any) -> str:
            if not turn.text.startswith("ask"):
                return f"{turn.source.chat_id} says hi"
            receipt = it.gateway.submit(event("hi", turn.text.removeprefix("ask "))).result()
            try:
                return f"got: {receipt.wait(timeout_s=60).text}"
            except WaitCycleError:
                return "refused"

        async with bot(answer, tmp_path) as it:
            ends = (await it.ask("ask 1")).text, (await it.ask("ask 2")).text
            await it.at_rest()
            return ends

    assert run(main()) == ("refused", "got: 2 says hi")


def test_blocking_on_a_receipt_on_a_loop_is_refused(tmp_path: Path) -> None:
    """receipt.wait() on a thread whose loop it would stall names the awaitable twin; a known end is given (B136)."""

    async def main() -> None:
        async def slow(turn: Any) -> str:
            await free.wait()
            return "ok"

        free = asyncio.Event()
        it: Bot
        async with bot(slow, tmp_path) as it:
            receipt = await it.accept("x")
            with pytest.raises(WrongThreadError, match=r"answered\(\)"):
                receipt.wait()
            free.set()
            assert (await receipt.answered()).text == "ok"
            assert receipt.wait().text == "ok"

    run(main())


def test_lanes_of_two_gateways_are_not_confused(tmp_path: Path) -> None:
    """A lane of the same name in another gateway of this process is another lane: no circle."""

    async def main() -> str | None:
        async def answer(turn: Any) -> str:
            return f"other says {(await other.ask('hi')).text}"

        async with bot(echo, tmp_path / "other") as other, bot(answer, tmp_path / "one") as it:
            return (await it.ask("hi")).text

    assert run(main()) == "other says echo hi"
