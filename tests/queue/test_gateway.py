"""The queue and wakes through a real gateway: real store, real loop, a platform beside it."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable
from pathlib import Path
from typing import Any, cast

import pytest

from seriatim import (
    Gateway,
    GatewayConfig,
    MessageEvent,
    Platform,
    SessionKey,
    SessionSource,
    parse_session_key,
)
from seriatim.errors import GatewayClosedError, InvalidInputError
from seriatim.testing.fake_platform import FakePlatform
from tests.gateway.bots import bot, event, run, until


class Held:
    """An agent whose first turn waits for ``go``."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.seen: list[list[str]] = []

    async def run(self, turn: Any) -> str:
        """Remember, wait, answer."""
        self.seen.append([claim.text for claim in turn.events])
        await self.go.wait()
        return f"re: {turn.text}"


def test_a_host_sees_and_steers_a_queue(tmp_path: Path) -> None:
    """List, edit, move, cancel, clear; receipts are told; a cancelled message has its end."""

    async def main() -> None:
        agent = Held()
        async with bot(agent, tmp_path) as it_bot:
            it = it_bot.gateway
            running = await it.accept(event("run"))
            first, second = await it.accept(event("/queue a")), await it.accept(event("/queue b"))
            third = await it.accept(event("/queue c"))
            assert [r.position for r in (running, first, second, third)] == [0, 1, 2, 3]
            queue = it.queue(running.session_key)
            assert await queue.move(third.message_id, 1)
            assert await queue.edit(first.message_id, "A")
            assert await it.cancel(second) == "cancelled"
            assert (await second.answered()).reason == "cancelled"
            assert [m.text for turn in await queue.list() for m in turn.messages] == ["c", "A"]
            assert await it.cancel(running) == "running"
            agent.go.set()
            assert (await first.answered()).text == "re: A"
            assert agent.seen == [["run"], ["c"], ["A"]]
            assert await it.cancel(first) == "gone"
            assert await queue.clear() == 0
            assert await queue.expire(0) == 0
            with pytest.raises(InvalidInputError, match=r"Receipt\.session_key"):
                it.queue("telegram:dm:1")
            with pytest.raises(InvalidInputError, match="no lane"):
                await it.queue("agent:main:telegram:dm:1").list()

    run(main())


def test_a_lane_at_rest_can_be_asked(tmp_path: Path) -> None:
    """Nobody has to have written in this process: the lane is read, and answers."""

    async def main() -> str:
        async with bot(Held(), tmp_path) as it_bot:
            it = it_bot.gateway
            key = (await it.accept(event("/queue a"))).session_key
            await it.accept(event("/queue b"))
            await it.stop(drain_s=0)
        agent = Held()
        agent.go.set()
        async with bot(agent, tmp_path) as it_bot:
            it = it_bot.gateway
            await until(lambda: len(agent.seen) == 2)
            other = (await it.accept(event("x", "other"))).session_key
            assert await it.queue(other.replace("other", "unheard")).list() == ()
            return key

    assert run(main())


def test_a_closed_gateway_answers_no_question(tmp_path: Path) -> None:
    """Whoever still holds the queue hears that it is over."""

    async def main() -> None:
        async with bot(Held(), tmp_path) as it_bot:
            it = it_bot.gateway
            it_queue = it.queue((await it.accept(event("/status"))).session_key)
        with pytest.raises(GatewayClosedError):
            await it_queue.list()

    run(main())


def test_a_wake_is_answered_in_the_lanes_chat(tmp_path: Path) -> None:
    """gateway.wake: a turn of the host's own, its reply where the lane's people read."""

    async def main() -> list[str]:
        platform = FakePlatform()
        agent = Held()
        agent.go.set()
        async with Gateway(agent, home=tmp_path, adapters=[platform]) as it:
            platform.say("hi", chat_id="room", chat_type="group", thread_id="t1")
            await until(lambda: platform.texts() == ["re: [7] hi"])
            key = next(iter(it._live().directory.live))
            receipt = await it.wake(key, "the job is done", kind="job")
            assert receipt.session_id
            assert (await receipt.answered()).text == "re: the job is done"
            await until(lambda: len(platform.received) == 2)
            assert platform.received[1].out.target.thread_id == "t1"
            late = await it.wake(key, "for another", session_id="s-gone")
            assert (await late.answered()).reason == "session_left"
            return platform.texts("room")

    assert run(main()) == ["re: [7] hi", "re: the job is done"]


def test_either_form_of_a_key_names_a_lane(tmp_path: Path) -> None:
    """What an entry calls its lane is good for the host's other calls, too; so is a SessionKey."""

    async def main() -> None:
        agent = Held()
        async with bot(agent, tmp_path) as it_bot:
            it = it_bot.gateway
            running, waiting = await it.accept(event("run")), await it.accept(event("/queue a"))
            [entry] = await it.sessions.aio.list_sessions()
            assert entry.session_key.startswith("agent:main:")
            key = parse_session_key(running.session_key)
            for form in (entry.session_key, key, running.session_key):
                [turn] = await it.queue(form).list()
                assert [m.id for m in turn.messages] == [waiting.message_id]
                assert await it.approvals(form) == ()
                assert not await it.resolve_approval(form, "1-1", approved=True)
            agent.go.set()
            woken = await it.wake(entry.session_key, "ping")
            assert woken.session_key == running.session_key
            assert (await woken.answered()).text == "re: ping"

    run(main())


def test_a_wake_needs_a_lane_of_this_configuration(tmp_path: Path) -> None:
    """A key that messages would never have is refused, not served beside the lane that was meant."""

    async def main() -> None:
        async with bot(Held(), tmp_path) as it_bot:
            it = it_bot.gateway
            with pytest.raises(InvalidInputError):
                await it.wake("v1:x:group:::room:t1:bob", "hello")
            with pytest.raises(InvalidInputError):
                await it.wake("nonsense", "hello")

    run(main())


def test_a_wake_that_nobody_would_hear_of_is_refused(tmp_path: Path) -> None:
    """Where no adapter serves the key's account and nobody has ever written there, the key is wrong; a lane that the
    host itself serves is woken, its reply in the receipt; and without any adapter every lane is the host's.
    """

    async def main() -> None:
        agent = Held()
        agent.go.set()
        key = SessionKey.from_source(SessionSource(Platform("fake"), "1", user_id="7"), GatewayConfig(), "other")
        async with bot(agent, tmp_path) as it_bot:
            it = it_bot.gateway
            with pytest.raises(InvalidInputError, match="no adapter serves fake as 'other'"):
                await it.wake(key, "hello")
            assert it.balance()["accepted"] == 0
            own = await it.accept(event("hi"))
            await own.answered()
            assert (await (await it.wake(own.session_key, "ping")).answered()).text == "re: ping"
        async with Gateway(agent, home=tmp_path) as it:
            assert (await (await it.wake(key, "pong")).answered()).text == "re: pong"

    run(main())


async def of_the_wrong_kind(it: Gateway) -> list[Awaitable[Any]]:
    """Calls of a gateway, each with an argument of another type than it takes."""
    running = await it.accept(event("run"))
    queue, other, number = it.queue(running.session_key), cast("Any", None), cast("Any", 1.5)
    return [
        queue.edit(running.message_id, other),
        queue.move(running.message_id, number),
        queue.move(running.message_id, other),
        queue.cancel(cast("Any", [])),
        queue.expire(other),
        queue.expire(math.inf),
        it.cancel(other),
        it.wake(other, "text"),
        it.approvals(other),
        it.read_media(other),
        it.stop(drain_s=cast("Any", "1")),
        it.stop(reason=cast("Any", "whim")),
        it.sessions.aio.rewrite_transcript("session", other),
    ]


def test_arguments_of_the_wrong_type_are_refused_by_name(tmp_path: Path) -> None:
    """Each such call raises InvalidInputError, changes nothing, and the gateway goes on."""

    async def main() -> None:
        agent = Held()
        async with bot(agent, tmp_path) as it_bot:
            it = it_bot.gateway
            for call in await of_the_wrong_kind(it):
                with pytest.raises(InvalidInputError):
                    await call
            with pytest.raises(InvalidInputError):
                it.queue(cast("Any", None))
            agent.go.set()
            assert (await (await it.accept(event("b"))).answered()).text == "re: b"

    run(main())


def test_a_message_with_media_of_another_type_is_refused() -> None:
    """What is no sequence of Media is the caller's error."""
    with pytest.raises(InvalidInputError):
        MessageEvent("t", event("t").source, media=cast("Any", 5))
