"""Questions of a turn to its people: asked once, answered by id alone, through crashes and restarts."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from seriatim import GatewayConfig
from seriatim.actors.running import QUIET_MS, RunningTurns
from seriatim.approvals import ListApprovals, ResolveApproval
from seriatim.batch import Rules
from seriatim.config import AgentConfig, StopConfig, TurnsConfig
from seriatim.effects import Answered, ApprovalDue, Deliver, WishAnswered
from seriatim.mail import ApprovalExpired, Ask, DrainTimedOut
from seriatim.testing.clock import VirtualClock
from seriatim.turn import Approve, TurnAsks
from tests.core.bench import Bench
from tests.core.test_merging import beside, check_told_alike, merged
from tests.gateway.bots import Bot, bot, run, until


def asks(bench: Bench, token: str = "1 approve", question: str = "May I?") -> None:
    """The running agent asks its people."""
    running = bench.gate.durable.running
    assert running is not None
    bench.tell(TurnAsks(running.turn, running.generation, token, Approve(question)))


def asked(rules: Rules | None = None) -> Bench:
    """A lane whose turn waits for an answer."""
    bench = Bench(rules)
    bench.said("do it", user="ann")
    asks(bench)
    return bench


def answers(bench: Bench) -> list[Any]:
    """What the agent was told."""
    return [told.value for told in bench.all(WishAnswered)]


def sent(bench: Bench) -> list[str]:
    """What the chat was told."""
    return [text for debt in bench.all(Deliver) for text in debt.parts]


def test_the_question_is_durable_and_sent_with_its_id() -> None:
    """People read the question and how to answer it; the log holds both, and the agent hears nothing yet."""
    bench = asked()
    assert sent(bench) == ["May I?\n\nTo allow it: /approve 1-1\nTo refuse it: /deny 1-1"]
    [event] = bench.lane_events("approval/asked")
    assert (event.data["id"], event.data["question"]) == ("1-1", "May I?")
    assert answers(bench) == []
    assert bench.fold() == bench.gate.durable


@pytest.mark.parametrize(
    ("command", "answer"), [("/approve 1-1", True), ("/deny 1-1", False), ("/APPROVE 1-1 ok", True)]
)
def test_an_answer_by_id_reaches_the_agent_once_it_is_durable(command: str, answer: bool) -> None:
    """The command is recorded with who gave it, and only then the agent goes on."""
    bench = asked()
    bench.say(command, user="ann")
    assert answers(bench) == []
    bench.drain()
    assert answers(bench) == [answer]
    [event] = bench.lane_events("approval/resolved")
    assert event.data == {"id": "1-1", "answer": "approved" if answer else "denied", "by": "ann"}


@pytest.mark.parametrize(
    "text", ["yes", "ok", "approve", "approve 1-1", "1-1", "👍", "/approve", "/approve 1-2", "/approve yes"]
)
def test_nothing_else_is_an_answer(text: str) -> None:
    """Bare words, a missing id or another one answer nothing."""
    bench = asked()
    bench.said(text, user="ann")
    assert answers(bench) == []
    assert bench.lane_events("approval/resolved") == []


def test_only_the_turns_people_and_operators_may_answer() -> None:
    """In a group, somebody else's word counts for nothing, and they are told."""
    bench = asked(Rules(operators=frozenset({"sim:boss"})))
    bench.said("/approve 1-1", user="bob")
    assert answers(bench) == []
    assert "those to decide" in sent(bench)[-1]
    bench.said("/deny 1-1", user="boss")
    assert answers(bench) == [False]


def test_a_turn_that_runs_again_gets_the_answer_that_there_is() -> None:
    """Answered while the turn was interrupted or before: the same question again isn't sent again."""
    bench = asked()
    bench.said("/approve 1-1", user="ann")
    bench.reopen()
    bench.forget()
    asks(bench)
    assert answers(bench) == [True]
    assert sent(bench) == []
    assert len(bench.lane_events("approval/asked")) == 1


def test_an_open_question_is_asked_once() -> None:
    """A turn that runs again waits on under the same id; another question is one of its own."""
    bench = asked()
    bench.reopen()
    bench.forget()
    asks(bench)
    assert (answers(bench), sent(bench)) == ([], [])
    bench.said("/approve 1-1", user="ann")
    assert answers(bench) == [True]
    asks(bench, "2 approve")
    assert bench.lane_events("approval/asked")[-1].data["id"] == "2-1"


@pytest.mark.parametrize("how", ["/stop", "/new", "answer", "fail"])
def test_what_ends_the_turn_answers_with_no(how: str) -> None:
    """No question outlives its turn, and what was open is recorded as denied."""
    bench = asked()
    if how == "answer":
        bench.answer()
    elif how == "fail":
        bench.tell(bench.end(None, "failed"))
    else:
        bench.said(how, user="ann")
    assert [event.data["answer"] for event in bench.lane_events("approval/resolved")] == ["denied"]
    assert bench.fold().approvals == ()
    bench.said("/approve 1-1", user="ann")
    assert "no open question 1-1" in sent(bench)[-1]
    assert bench.fold() == bench.gate.durable


def test_a_question_that_nobody_answers_is_denied_in_time() -> None:
    """The time runs from when it was asked, also through a restart; too late an answer is told so."""
    bench = asked(Rules(approval_ms=5_000))
    assert [due.at for due in bench.all(ApprovalDue)] == [6_000]
    bench.now.time += 3_000
    bench.reopen()
    bench.forget()
    asks(bench)
    assert [due.at for due in bench.all(ApprovalDue)] == [6_000]
    bench.tell(ApprovalExpired("1-1"))
    assert answers(bench) == [False]
    assert bench.lane_events("approval/resolved")[0].data["by"] == "timeout"
    bench.tell(ApprovalExpired("1-1"))
    assert len(bench.lane_events("approval/resolved")) == 1


def test_the_host_sees_and_answers_questions() -> None:
    """By the gateway's own calls; answering twice alike is harmless, otherwise it is told."""
    bench = asked()
    bench.tell(Ask("a", ListApprovals()))
    bench.tell(Ask("b", ResolveApproval("1-1", True)))
    bench.tell(Ask("c", ResolveApproval("1-1", True)))
    bench.tell(Ask("d", ResolveApproval("1-1", False)))
    told = [answer.value for answer in bench.all(Answered)]
    assert [question.question for question in told[0]] == ["May I?"]
    assert told[1:] == [True, True, False]
    assert answers(bench) == [True]


def test_the_hosts_same_answer_again_is_taken_as_given(tmp_path: Path) -> None:
    """While the turn goes on, when it has ended, and after a restart; the other answer, or another id, is not."""

    async def scenario() -> None:
        go = asyncio.Event()

        async def agent(turn: Any) -> str:
            allowed = await turn.approve("May I?")
            await go.wait()
            return f"allowed: {allowed}"

        async def told(world: Bot) -> list[bool]:
            again = [("1-1", True), ("1-1", False), ("1-2", True)]
            return [await world.gateway.resolve_approval(lane, name, approved=answer) for name, answer in again]

        async with bot(agent, tmp_path) as world:
            world.say("do it")
            await world.heard(1)
            [lane] = world.gateway._live().directory.live
            assert await told(world) == [True, False, False]
            go.set()
            await until(lambda: "allowed: True" in world.platform.texts())
            assert await told(world) == [True, False, False]
        async with bot(agent, tmp_path) as world:
            assert await told(world) == [True, False, False]

    run(scenario())


def test_the_same_question_at_once_is_one(tmp_path: Path) -> None:
    """Two tools that ask it in parallel get one answer to one message; asked again after that, it is another one."""

    async def scenario() -> None:
        async def agent(turn: Any) -> str:
            both = await asyncio.gather(turn.approve("May I?"), turn.approve("May I?"), turn.approve("And I?"))
            return f"{both} {await turn.approve('May I?')}"

        async with bot(agent, tmp_path) as world:
            world.say("do it")
            assert [text.splitlines()[0] for text in await world.heard(2)] == ["May I?", "And I?"]
            world.say("/approve 1-1")
            world.say("/deny 1-2")
            assert (await world.heard(5))[-1].splitlines()[0] == "May I?"
            world.say("/deny 1-3")
            assert "[True, True, False] False" in await world.heard(7)

    run(scenario())


def test_two_questions_of_one_name_are_told_apart_in_a_merged_lane() -> None:
    """Lanes that become one may both ask something as 1-1: that name means neither then and is answered with both, each
    has a new one that its turn hears of, and no timer set for the old name denies one.
    """
    one = Bench(Rules(approval_ms=1_000))
    other = beside(one)
    for bench, question in ((one, "Delete it?"), (other, "Print it?")):
        bench.said("do it", user="ann")
        asks(bench, question=question)
        bench.now.draining = True
        bench.start()
    pair = merged(one, other)
    check_told_alike(one, other, pair)
    one.now.draining = False
    one.reopen()
    one.forget()

    one.said("/approve 1-1", user="ann")
    [said] = sent(one)
    assert said.splitlines()[1:] == ["1-1a: Delete it?", "1-1b: Print it?"]
    assert said.splitlines()[0].endswith("Say which: /approve ID")
    one.now.time += 1_000
    one.tell(ApprovalExpired("1-1"))
    assert [asked.answer for asked in one.gate.durable.approvals] == ["", ""]
    one.said("/deny 1-1a", user="ann")
    one.said("/approve 1-1b", user="ann")
    assert [(asked.id, asked.answer) for asked in one.gate.durable.approvals] == [
        ("1-1a", "denied"),
        ("1-1b", "approved"),
    ]
    one.forget()
    asks(one, question="Delete it?")
    assert answers(one) == [False]
    one.answer()
    one.forget()
    asks(one, question="Print it?")
    assert answers(one) == [True]


def test_a_stop_while_people_are_asked_is_no_interruption() -> None:
    """However many stops find the turn waiting, it isn't given up; a crash counts, and a stop after the answer."""
    bench = asked()
    for reason in ("restart", "shutdown", "restart", "shutdown"):
        bench.tell(DrainTimedOut(f"{reason}_timeout"))
        assert bench.gate.durable.resume_reason == f"{reason}_waiting"
        bench.now.time += 1
        bench.reopen()
        assert bench.gate.durable.interruptions == 0
        asks(bench)
    bench.reopen()
    assert bench.gate.durable.interruptions == 1
    asks(bench)
    bench.said("/approve 1-1", user="ann")
    bench.tell(DrainTimedOut("restart_timeout"))
    bench.reopen()
    assert (bench.gate.durable.interruptions, bench.gate.durable.resume_reason) == (2, "restart_timeout")
    assert bench.fold() == bench.gate.durable


def test_a_stop_does_not_wait_for_people(tmp_path: Path) -> None:
    """Neither sooner nor later would they answer for it: it ends long before its drain, and the turn asks on."""

    async def scenario() -> None:
        async def agent(turn: Any) -> str:
            return f"allowed: {await turn.approve('May I?')}"

        async with bot(agent, tmp_path, stop=StopConfig(drain_s=15.0)) as world:
            world.say("do it")
            await world.heard(1)
            began = asyncio.get_running_loop().time()
            assert not await world.gateway.stop()  # the turn stays open
            assert asyncio.get_running_loop().time() - began < 10
        async with bot(agent, tmp_path, world.platform) as world:
            world.say("/approve 1-1")
            await until(lambda: "allowed: True" in world.platform.texts())
            assert len(world.platform.texts()) == 3

    run(scenario())


def test_what_only_waits_for_people_is_known() -> None:
    """Not a turn whose tool runs beside the question, that has just given a sign, or that waits for something else."""
    clock = VirtualClock()
    running = RunningTurns(clock, 0, lambda lane, mail: None)
    running.begin("a", 1, 1)
    assert running.waiting == 0
    running.asks("a", 1, 1, people=True)
    assert running.waiting == 0
    clock.advance(QUIET_MS)
    assert running.waiting == 1
    running.asks("a", 1, 1, people=False)
    clock.advance(QUIET_MS)
    assert running.waiting == 0
    running.asks("a", 1, -1, people=False)
    running.tells("a", 1, calls=2)
    running.goes_on("a", 1)
    clock.advance(QUIET_MS)
    assert running.waiting == 0
    running.tells("a", 1, calls=-1)  # one of them asks, the other has ended
    clock.advance(QUIET_MS)
    assert running.waiting == 1
    running.says("a", 1, "so far")
    assert running.waiting == 0
    clock.advance(QUIET_MS)
    running.asks("a", 1, -1, people=True)
    clock.advance(QUIET_MS)
    assert running.waiting == 0


def test_late_questions_of_a_stopped_turn_touch_nothing() -> None:
    """A turn that is over asks nobody."""
    bench = Bench()
    bench.said("one")
    bench.said("/stop")
    bench.forget()
    bench.tell(TurnAsks(1, 1, "1 approve", Approve("May I?")))
    assert (sent(bench), bench.lane_events("approval/asked")) == ([], [])


@pytest.mark.parametrize("kind", ["async", "plain", "tool"])
def test_agents_wait_for_their_people_without_falling_silent(kind: str, tmp_path: Path) -> None:
    """Async, blocking, or inside a tool: the turn outlasts its time-out while it waits, and goes on with the answer."""

    async def scenario() -> None:
        async def in_async(turn: Any) -> str:
            return f"allowed: {await turn.approve('May I?')}"

        def in_plain(turn: Any) -> str:
            return f"allowed: {turn.approve('May I?')}"

        async def in_tool(turn: Any) -> str:
            async def tool() -> bool:
                assert turn.call_id
                return bool(await turn.approve("May I?"))

            return f"allowed: {await turn.step().call('risky', {}, tool)}"

        agent = {"async": in_async, "plain": in_plain, "tool": in_tool}[kind]
        clock = VirtualClock()
        config = GatewayConfig(agent=AgentConfig(gateway_timeout=60), turns=TurnsConfig(approval_timeout_s=0))
        async with bot(agent, tmp_path, config=config, clock=clock) as world:
            world.say("do it")
            question = (await world.heard(1))[0]
            clock.advance(3_600_000)
            world.say(question.splitlines()[-2].removeprefix("To allow it: "))
            texts = await world.heard(3)
            assert sorted(texts[1:]) == ["Allowed.", "allowed: True"]

    run(scenario())


def test_an_answer_survives_the_restart(tmp_path: Path) -> None:
    """Asked before a restart, answered after it: the turn that runs again hears it and nobody is asked twice."""

    async def scenario() -> None:
        tries: list[int] = []

        async def agent(turn: Any) -> str:
            tries.append(turn.attempt)
            return f"allowed: {await turn.approve('May I?')}"

        async with bot(agent, tmp_path) as world:
            world.say("do it")
            question = (await world.heard(1))[0]
            await world.gateway.stop(drain_s=0)
        async with bot(agent, tmp_path, world.platform) as world:
            await until(lambda: len(tries) == 2)
            world.say(question.splitlines()[-2].removeprefix("To allow it: "))
            await until(lambda: "allowed: True" in world.platform.texts())
            assert world.platform.texts().count(question) == 1

    run(scenario())


def test_a_cancelled_wait_ends(tmp_path: Path) -> None:
    """/stop while a plain agent's thread waits for an answer: the thread ends, typed."""

    async def scenario() -> None:
        seen: list[str] = []

        def agent(turn: Any) -> str:
            try:
                return str(turn.approve("May I?"))
            except BaseException as error:
                seen.append(type(error).__name__)
                raise

        async with bot(agent, tmp_path) as world:
            world.say("do it")
            await world.heard(1)
            world.say("/stop")
            await until(lambda: seen)
            assert seen == ["TurnCancelledError"]
            await asyncio.sleep(0)

    run(scenario())
