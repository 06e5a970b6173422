"""What comes in twice, from ourselves, or from other bots."""

from __future__ import annotations

import asyncio
from pathlib import Path

import attrs
import pytest
from msgspec.structs import replace

from seriatim import GatewayConfig, MessageEvent, Platform, SessionSource, Turn
from seriatim.adapters.base import Capabilities
from seriatim.config import AdmissionConfig, StopConfig
from seriatim.limits import BOTS_REST_MS
from seriatim.model import Outbound, Sent
from seriatim.testing.clock import VirtualClock
from seriatim.testing.fake_platform import FakePlatform

from .bots import Bot, balance_holds, bot, echo, run, until
from .test_delivery import HOUR_MS, crash_image, lane_events, passes, settle, timed


class Counting:
    """An agent that keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.hold: asyncio.Event | None = None

    async def __call__(self, turn: Turn) -> str:
        """One turn."""
        self.asked.append(turn.text)
        if self.hold is not None:
            await self.hold.wait()
        return f"re {turn.text}"


# --- twice -------------------------------------------------------------------------------------------------


def test_a_message_that_is_given_again_runs_once(tmp_path: Path) -> None:
    """Given again during its turn, after it, hours later, after a restart, and by another instance of the adapter: one
    turn, and each delivery may be acked (B84).
    """
    clock, agent = VirtualClock(), Counting()
    platform = FakePlatform()

    async def first() -> None:
        agent.hold = asyncio.Event()
        async with timed(agent, tmp_path, platform, clock) as (it, _):
            posted = platform.say("once")
            await until(lambda: agent.asked)
            again = platform.post(posted.event)
            await until(lambda: again.acked)
            agent.hold.set()
            await it.heard(1)
            for _ in range(2):
                again = platform.post(posted.event)
                await until(lambda again=again: again.acked)  # type: ignore[misc]
                await passes(it, clock, 6 * HOUR_MS)

    async def second() -> None:
        other = FakePlatform()
        async with timed(agent, tmp_path, other, clock) as (it, _):
            again = other.post(platform.posted[0].event)
            await until(lambda: again.acked)
            assert (await it.gateway.accept(platform.posted[0].event)).outcome == "duplicate"
            await settle(it)

    run(first())
    agent.hold = None
    run(second())
    assert agent.asked == ["once"]
    assert platform.texts() == ["re once"]
    assert balance_holds(tmp_path)


@pytest.mark.parametrize("replay", ["ack", "cursor"])
def test_a_crash_between_accept_and_ack_costs_nothing(tmp_path: Path, replay: str) -> None:
    """Accepted durably, killed before the platform was told: the platform gives it again, with what came meanwhile,
    and each is answered once, in order (B84).
    """
    agent = Counting()
    platform = FakePlatform(capabilities=Capabilities(replay=replay))  # type: ignore[arg-type]

    async def first() -> None:
        async with bot(agent, tmp_path / "home", platform) as it:
            platform.say("a")
            await it.heard(1)
            await it.at_rest()
            crash_image(tmp_path / "home", tmp_path / "image")
            platform.posted[0].acked = False

    async def second() -> None:
        for text in ("b", "c"):
            platform.say(text)
        async with bot(agent, tmp_path / "image", platform) as it:
            await until(lambda: all(posted.acked for posted in platform.posted))
            await it.at_rest()

    run(first())
    run(second())
    assert agent.asked[0] == "a"
    assert "\n".join(agent.asked[1:]) == "b\nc"


def test_the_cursor_moves_only_behind_what_was_accepted(tmp_path: Path) -> None:
    """While the store takes its time the platform's cursor stands still; it moves once ``accept`` has returned."""
    platform = FakePlatform(capabilities=Capabilities(replay="cursor"))
    seen: list[bool] = []

    async def main() -> None:
        async with bot(echo, tmp_path, platform) as it:
            accept = type(it.gateway)._accept

            async def watched(gateway: object, event: MessageEvent, prefix: str) -> object:
                seen.append(platform.posted[-1].acked)
                receipt = await accept(it.gateway, event, prefix)
                seen.append(platform.posted[-1].acked)
                return receipt

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(type(it.gateway), "_accept", watched)
                platform.say("x")
                await until(lambda: platform.posted[-1].acked)

    run(main())
    assert seen == [False, False]


def test_an_id_is_one_of_its_chat_and_account(tmp_path: Path) -> None:
    """The same message id in another chat, or at another account, is another message."""

    async def main() -> None:
        async with bot(echo, tmp_path) as it:
            source = SessionSource(platform=Platform("host"), chat_id="1", user_id="7")
            event = MessageEvent("x", source, message_id="42")
            others = (replace(event, source=attrs.evolve(source, chat_id="2")), replace(event, account="b"))
            outcomes = [(await it.gateway.accept(each)).outcome for each in (event, *others, event)]
            assert outcomes == ["accepted", "accepted", "accepted", "duplicate"]

    run(main())


# --- from ourselves ----------------------------------------------------------------------------------------


def test_our_own_echo_is_nobody_s_turn(tmp_path: Path) -> None:
    """A platform shows the account its own messages: they are acked, and neither stored nor answered (B153)."""
    agent = Counting()
    platform = FakePlatform(own_id="bot7")

    async def main() -> None:
        async with bot(agent, tmp_path, platform) as it:
            platform.say("hi", chat_id="g", chat_type="group")
            [reply] = await it.heard(1)
            for fields in ({"user_id": "bot7"}, {"user_id": "x", "user_id_alt": "bot7"}):
                echoed = platform.say(reply, chat_id="g", chat_type="group", **fields)
                await until(lambda echoed=echoed: echoed.acked)  # type: ignore[misc]
            await it.at_rest()
            assert it.gateway.balance()["accepted"] == 1

    run(main())
    assert agent.asked == ["hi"]


# --- from other bots ---------------------------------------------------------------------------------------


def bots_config(limit: int) -> GatewayConfig:
    """So many exchanges with bots."""
    return GatewayConfig(
        admission=AdmissionConfig(bot_exchanges_max=limit), stop=StopConfig(drain_s=1.0, watchdog_s=10.0)
    )


class OtherBot(FakePlatform):
    """A bot in the chat that answers everything, as ours does."""

    def receive(self, out: Outbound) -> Sent:
        """Each word of ours is answered by one of theirs."""
        sent = super().receive(out)
        self.say(f"and {len(self.received)}", is_bot=True, user_id="other", chat_type="group")
        return sent


def test_two_bots_come_to_an_end(tmp_path: Path) -> None:
    """A bot that answers each of our answers: after so many exchanges ours is silent, with the reason in the log; a
    person's word begins anew (B153).
    """
    platform = OtherBot()
    config = attrs.evolve(bots_config(3), group_sessions_per_user=False)

    async def talk(it: Bot, text: str, upto: int) -> None:
        platform.say(text, user_id="p", chat_type="group")
        await it.heard(upto)
        await it.at_rest()
        await until(lambda: all(posted.acked for posted in platform.posted))
        await it.at_rest()
        assert len(platform.received) == upto

    async def main() -> None:
        async with bot(echo, tmp_path, platform, config=config) as it:
            await talk(it, "hi", 4)
            await talk(it, "again", 8)

    run(main())
    assert [event.data["reason"] for event in lane_events(tmp_path, "inbox/dropped")] == ["bots", "bots"]
    assert balance_holds(tmp_path)


def test_bots_are_ignored_on_demand_and_commands_are_no_way_around(tmp_path: Path) -> None:
    """With a bound of 0 no bot is answered, not even its commands; people are."""
    platform = FakePlatform()

    async def main() -> None:
        async with bot(echo, tmp_path, platform, config=bots_config(0)) as it:
            for text in ("hi", "/help", "/queue x"):
                posted = platform.say(text, is_bot=True)
                await until(lambda posted=posted: posted.acked)  # type: ignore[misc]
            platform.say("hi")
            assert await it.heard(1) == ["echo hi"]
            await it.at_rest()
            assert it.gateway.balance()["dropped"] == 3

    run(main())


def test_after_a_rest_a_bot_is_answered_again(tmp_path: Path) -> None:
    """The bound is for exchanges in a row: ten quiet minutes end one. A bot that keeps talking stays unheard."""
    platform = FakePlatform()

    async def main() -> None:
        async with timed(echo, tmp_path, platform, config=bots_config(1)) as (it, clock):
            for number, wait_ms in enumerate((0, BOTS_REST_MS - 1_000, BOTS_REST_MS - 1_000, BOTS_REST_MS + 1_000)):
                await passes(it, clock, wait_ms)
                posted = platform.say(f"n{number}", is_bot=True)
                await until(lambda posted=posted: posted.acked)  # type: ignore[misc]
                await settle(it)
            assert await it.heard(2) == ["echo n0", "echo n3"]

    run(main())
