"""Commands through a whole gateway: what the agent is then given, in a warm lane and after a restart."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import attrs
import pytest

from seriatim import GatewayConfig
from seriatim.config import AgentConfig, CommandsConfig
from seriatim.testing.fake_platform import FakePlatform
from seriatim.turn import Message, Reply, Usage
from tests.gateway.bots import Bot, balance_holds, bot, run, until


class Seen:
    """An agent that keeps what it was given, and can sum up."""

    def __init__(self, tokens: int = 0) -> None:
        self.histories: list[list[str]] = []
        self.texts: list[str] = []
        self.tokens = tokens
        self.summed: list[list[str]] = []

    async def run(self, turn: Any) -> Reply:
        """Remember, and number the answers."""
        self.histories.append([message.text for message in turn.history])
        self.texts.append(turn.text)
        return Reply(f"answer {len(self.texts)}", Usage(last_prompt_tokens=self.tokens))

    def compress(self, history: Any) -> str:
        """A summary names what it stands for."""
        told: list[Message] = list(history)
        self.summed.append([message.text for message in told])
        return "sum of " + ", ".join(message.text for message in told if message.role == "user")


async def said(bot: Bot, *texts: str) -> list[str]:
    """Say one after the other, each when the one before is answered; the last answers."""
    for text in texts:
        count = len(bot.platform.texts())
        bot.say(text)
        await bot.heard(count + 1)
    return bot.platform.texts()


def test_the_agent_sees_what_is_left(tmp_path: Path) -> None:
    """B07: after /undo, /redo and /retry in a warm lane the agent is given the history as it is then."""
    agent = Seen()
    platform = FakePlatform()

    async def story() -> None:
        async with bot(agent, tmp_path, platform) as b:
            await said(b, "a", "b", "/undo", "c")
            assert agent.histories[-1] == ["a", "answer 1"]
            await said(b, "/undo", "/redo", "d")
            assert agent.histories[-1] == ["a", "answer 1", "c", "answer 3"]
            await said(b, "/retry")
            assert (agent.histories[-1], agent.texts[-1]) == (["a", "answer 1", "c", "answer 3"], "d")
            assert b.errors == []
        async with bot(agent, tmp_path, platform) as b:
            await said(b, "e")
            assert agent.histories[-1] == ["a", "answer 1", "c", "answer 3", "d", "answer 5"]
            await said(b, "/undo 2", "f")
            assert agent.histories[-1] == ["a", "answer 1", "c", "answer 3"]
            assert b.errors == []

    run(story())
    assert balance_holds(tmp_path)


def test_a_conversation_that_is_taken_up_again_goes_on(tmp_path: Path) -> None:
    """/resume: the agent gets that conversation's history, now and after a restart."""
    agent = Seen()
    platform = FakePlatform()

    async def story() -> None:
        async with bot(agent, tmp_path, platform) as b:
            await said(b, "/new plan", "a", "/new trip", "b", "/resume plan", "c")
            assert agent.histories[-1] == ["a", "answer 1"]
            await said(b, "/resume 'trip'", "d")
            assert agent.histories[-1] == ["b", "answer 2"]
            assert b.errors == []
        async with bot(agent, tmp_path, platform) as b:
            await said(b, "/resume plan", "e")
            assert agent.histories[-1] == ["a", "answer 1", "c", "answer 3"]
            assert b.errors == []

    run(story())
    assert balance_holds(tmp_path)


def test_the_agent_sums_up(tmp_path: Path) -> None:
    """/compress: the agent's own ``compress`` makes the summary, and the next turn is given it."""
    agent = Seen()
    config = GatewayConfig(agent=AgentConfig(compress_keep_turns=1))

    async def story() -> None:
        async with bot(agent, tmp_path, config=config) as b:
            await said(b, "a", "b", "c")
            b.say("/compress")
            await until(lambda: any("became one" in text for text in b.platform.texts()))
            assert agent.summed == [["a", "answer 1", "b", "answer 2"]]
            await said(b, "d")
            assert agent.histories[-1] == ["sum of a, b", "c", "answer 3"]
            assert b.errors == []

    run(story())


def test_a_warm_agent_sums_up_its_own(tmp_path: Path) -> None:
    """With an agent for each conversation, that one is asked, and it goes on with the next turn."""
    made: list[Seen] = []

    def factory(session: str) -> Seen:
        made.append(Seen())
        return made[-1]

    config = GatewayConfig(agent=AgentConfig(compress_keep_turns=1))

    async def story() -> None:
        async with bot(None, tmp_path, config=config, agent_factory=factory) as b:
            await said(b, "a", "b")
            b.say("/compress")
            await until(lambda: any("became one" in text for text in b.platform.texts()))
            await said(b, "c")
            assert len(made) == 1
            assert made[0].summed == [["a", "answer 1"]]
            assert made[0].histories[-1] == ["sum of a", "b", "answer 2"]

    run(story())


def test_an_agent_that_cannot_sum_up(tmp_path: Path) -> None:
    """Without ``compress`` the command says so; one that raises is told of, and nothing changes."""

    async def plain(turn: Any) -> str:
        return "yes"

    class Raises(Seen):
        def compress(self, history: Any) -> str:
            raise OSError

    async def story(agent: Any, home: Path, says: str, errors: list[str]) -> None:
        async with bot(agent, home, config=GatewayConfig(agent=AgentConfig(compress_keep_turns=1))) as b:
            await said(b, "a", "b")
            b.say("/compress")
            await until(lambda: any(says in text for text in b.platform.texts()))
            assert [where for where, _ in b.errors] == errors

    run(story(plain, tmp_path / "plain", "this agent can't", []))
    run(story(Raises(), tmp_path / "raises", "the agent failed", ["compress"]))


def test_a_crowded_conversation_is_compressed_by_itself(tmp_path: Path) -> None:
    """Above ``agent.compress_above_tokens`` the next turn begins with the summary, and nobody is told."""
    agent = Seen(tokens=1000)
    config = GatewayConfig(agent=AgentConfig(compress_above_tokens=500, compress_keep_turns=1))

    async def story() -> None:
        async with bot(agent, tmp_path, config=config) as b:
            await said(b, "a", "b", "c")
            assert agent.histories[-1] == ["sum of a", "b", "answer 2"]
            await said(b, "d")
            assert agent.histories[-1][1:] == ["c", "answer 3"]
            assert b.platform.texts() == [f"answer {number}" for number in range(1, 5)]
            assert b.errors == []

    run(story())
    assert balance_holds(tmp_path)


def test_a_hung_summary_does_not_keep_the_gateway(tmp_path: Path) -> None:
    """A stop breaks a summary off; the message that waited for it is answered after the restart."""

    class Hangs(Seen):
        async def compress(self, history: Any) -> str:  # type: ignore[override]
            await asyncio.Event().wait()
            raise AssertionError

    config = GatewayConfig(agent=AgentConfig(compress_above_tokens=500, compress_keep_turns=1))
    platform = FakePlatform()

    async def story() -> None:
        async with bot(Hangs(tokens=1000), tmp_path, platform, config=config) as b:
            await said(b, "a", "b")
            b.say("c")
            await until(lambda: b.gateway.balance()["waiting"] == 1)
        async with bot(Seen(), tmp_path, platform, config=GatewayConfig()) as b:
            assert (await b.heard(3))[-1] == "answer 1"

    run(story())
    assert balance_holds(tmp_path)


def test_an_operator_restarts(tmp_path: Path) -> None:
    """/restart of an operator asks for the restart, once its answer is owed; anybody else's doesn't."""
    config = attrs.evolve(GatewayConfig(), operators=("fake:u1",), commands=CommandsConfig())

    async def story() -> None:
        async with bot(Seen(), tmp_path, config=config) as b:
            b.platform.say("/restart", user_id="u2")
            assert (await b.heard(1))[-1] == "Only operators may do that."
            assert not b.gateway.restart_asked.is_set()
            b.platform.say("/restart", user_id="u1")
            await b.gateway.restart_asked.wait()
            assert "Restarting" in (await b.heard(2))[-1]

    run(story())


def test_ones_own_conversation_is_taken_along(tmp_path: Path) -> None:
    """From a direct message one takes up what one said in a group, never what somebody else did; there it is gone."""
    agent, platform = Seen(), FakePlatform()
    group = {"chat_id": "-5", "chat_type": "group"}

    async def story() -> None:
        async with bot(agent, tmp_path, platform) as b:

            async def told(user: str, text: str, **where: str) -> str:
                count = len(platform.texts())
                platform.say(text, user_id=user, **{"chat_id": f"dm {user}", **where})
                return (await b.heard(count + 1))[-1]

            await told("alice", "/new plan", **group)
            await told("alice", "a", **group)
            await told("bob", "b")
            assert "There is no conversation" in await told("bob", "/resume plan")
            assert "There is no conversation" in await told("bob", "/resume plan", **group)
            assert "1. plan" in await told("alice", "/resume")
            assert await told("alice", "/resume 1") == "Taken up again: plan."
            await told("alice", "c")
            assert agent.histories[-1] == ["a", "answer 1"]
            await told("alice", "d", **group)
            assert agent.histories[-1] == []
            assert "There is no conversation" in await told("alice", "/resume plan", **group)
            assert b.errors == []

    run(story())
    assert balance_holds(tmp_path)


def test_what_comes_right_behind_a_resume_is_said_in_that_conversation(tmp_path: Path) -> None:
    """Though the supervisor has to move it from another lane first; where it isn't moved, it is said in the old one."""
    go, running = asyncio.Event(), asyncio.Event()
    histories: dict[str, list[str]] = {}

    async def agent(turn: Any) -> str:
        histories[turn.text] = [message.text for message in turn.history]
        if turn.text == "slow":
            running.set()
            await go.wait()
        return f"re {turn.text}"

    platform = FakePlatform()
    group = {"chat_id": "-5", "chat_type": "group"}

    async def story() -> None:
        async with bot(agent, tmp_path, platform) as b:
            for count, (text, where) in enumerate([("/new plan", group), ("a", group), ("mine", {})], 1):
                platform.say(text, user_id="alice", **where)
                await b.heard(count)
            platform.say("/resume plan", user_id="alice")
            platform.say("next", user_id="alice")
            assert (await b.heard(5))[-2:] == ["Taken up again: plan.", "re next"]
            assert histories["next"] == ["a", "re a"]
            platform.say("/new other", user_id="alice", **group)
            await b.heard(6)
            platform.say("slow", user_id="alice", **group)
            await running.wait()
            platform.say("/resume other", user_id="alice")
            platform.say("more", user_id="alice")
            assert "busy" in (await b.heard(8))[-2]
            assert histories["more"] == ["a", "re a", "next", "re next"]
            go.set()
            await b.at_rest()
            assert b.errors == []

    run(story())
    assert balance_holds(tmp_path)


def test_a_busy_lane_keeps_its_conversation(tmp_path: Path) -> None:
    """While a turn runs in the other lane nothing is moved; the command is answered, and works afterwards."""
    go = asyncio.Event()

    async def slow(turn: Any) -> str:
        if turn.text == "slow":
            await go.wait()
        return f"re {turn.text}"

    platform = FakePlatform()
    group = {"chat_id": "-5", "chat_type": "group"}

    async def story() -> None:
        async with bot(slow, tmp_path, platform) as b:
            platform.say("/new plan", user_id="alice", **group)
            await b.heard(1)
            platform.say("slow", user_id="alice", **group)
            await until(lambda: b.health["turns_running"] == 1)
            platform.say("/resume plan", user_id="alice")
            assert "busy" in (await b.heard(2))[-1]
            go.set()
            await b.heard(3)
            await b.at_rest()
            platform.say("/resume plan", user_id="alice")
            assert (await b.heard(4))[-1] == "Taken up again: plan."
            assert b.errors == []

    run(story())
    assert balance_holds(tmp_path)


@pytest.mark.parametrize("text", ["/new", "/stop", "/status", "/queue more"])
def test_a_gateway_that_stops_takes_no_commands(tmp_path: Path, text: str) -> None:
    """While it drains, commands are refused like all messages, with the reason; the running turn ends as if alone."""
    go = asyncio.Event()

    async def slow(turn: Any) -> str:
        await go.wait()
        return f"re {turn.text}"

    async def story() -> None:
        async with bot(slow, tmp_path) as b:
            b.say("a")
            await until(lambda: b.health["turns_running"] == 1)
            stopping = asyncio.ensure_future(b.gateway.stop())
            await until(lambda: b.health["state"] == "stopping")
            receipt = await b.accept(text)
            assert (receipt.outcome, receipt.reason) == ("refused", "stopping")
            go.set()
            assert await stopping
            assert b.platform.texts() == ["re a"]

    run(story())
    assert balance_holds(tmp_path)
