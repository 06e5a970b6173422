"""How commands have let people down elsewhere: leftovers of a /stop, late switches, turns that nobody can reach."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from seriatim.actors.supervisor import PassivateLane
from seriatim.effects import RunTurn
from seriatim.turn import Delegate, DelegationEnded, TurnAsks
from tests.commands.matrix import MID_TURN
from tests.core.bench import Bench
from tests.gateway.bots import Bot, balance_holds, bot, run, until


@pytest.mark.parametrize("text", MID_TURN)
def test_no_command_becomes_a_prompt(text: str) -> None:
    """B39: a command given while a turn runs is never a prompt, then or later: no turn follows it, nothing waits."""
    bench = Bench(free=100)
    bench.said("a")
    bench.said(text)
    if bench.gate.durable.running is not None:
        bench.answer()
    bench.reopen()
    assert len(bench.all(RunTurn)) == 1
    assert bench.gate.durable.waiting == {}


class Stubborn:
    """An agent whose first turn ignores its cancellation until it is let go."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.ran: list[str] = []
        self.over: list[str] = []

    async def run(self, turn: Any) -> str:
        """Hold on to the first one."""
        self.ran.append(turn.text)
        while turn.text == "first" and not self.go.is_set():
            try:
                await self.go.wait()
            except asyncio.CancelledError:
                continue
        self.over.append(turn.text)
        return f"re {turn.text}"


@asynccontextmanager
async def letting_go(agent: Stubborn) -> AsyncIterator[None]:
    """However a story ends, the agent ends too: nobody else could make it."""
    try:
        yield
    finally:
        agent.go.set()


def test_what_comes_after_a_stop_has_its_turn(tmp_path: Path) -> None:
    """B40: while a stopped turn still unwinds, the next message gets a whole turn and its reply."""
    agent = Stubborn()

    async def story() -> None:
        async with letting_go(agent), bot(agent, tmp_path) as b:
            b.say("first")
            await until(lambda: agent.ran == ["first"])
            b.say("/stop")
            await b.heard(1)
            b.say("hi")
            assert (await b.heard(2))[-1] == "re hi"
            assert agent.over == ["hi"]
            agent.go.set()
            await until(lambda: agent.over == ["hi", "first"])
            await b.at_rest()
            assert b.platform.texts()[1:] == ["re hi"]
            b.say("again")
            assert (await b.heard(3))[-1] == "re again"

    run(story())
    assert balance_holds(tmp_path)


def test_a_late_switch_does_not_undo_a_new(tmp_path: Path) -> None:
    """B42: who read "current = S1" and asks for S1 after a /new is told no; the lane stays on S2, S1 stays left."""

    async def story() -> None:
        async with bot(Stubborn(), tmp_path) as b:
            b.say("a")
            await b.heard(1)
            [entry] = await b.gateway.sessions.aio.list_sessions()
            first = entry.session_id
            b.say("/new")
            await b.heard(2)
            key = entry.session_key
            switched = await b.gateway.sessions.aio.switch_session(key, first, expected_session_id=first)
            assert switched is None
            [entry] = await b.gateway.sessions.aio.list_sessions()
            assert entry.session_id != first

    run(story())


@pytest.mark.parametrize("command", ["/stop", "/new"])
def test_a_running_turn_stays_within_reach(tmp_path: Path, command: str) -> None:
    """B44: a lane that is asked to go, or pruned, in mid-turn stays until the turn is over; commands still end it."""
    agent = Stubborn()

    async def story() -> None:
        async with letting_go(agent), bot(agent, tmp_path) as b:
            b.say("first")
            await until(lambda: agent.ran == ["first"])
            [key] = _lanes(b)
            supervisor = b.gateway._runtime.directory.supervisor  # type: ignore[union-attr]
            supervisor.signal(PassivateLane(key, "a test"))
            await b.gateway.sessions.aio.prune_old_entries(0)
            assert b.health["turns_running"] == 1
            b.say(command)
            await b.heard(1)
            assert b.health["turns_running"] == 0
            b.say("hi")
            assert (await b.heard(2))[-1] == "re hi"
            agent.go.set()
            await until(lambda: "first" in agent.over)
            await b.at_rest()

    run(story())
    assert balance_holds(tmp_path)


@pytest.mark.parametrize("leaving", ["/new", "/resume old"])
def test_background_work_stays_with_its_conversation(leaving: str) -> None:
    """B41: work that ends after a /new or a /resume starts no turn elsewhere, and what it found is told where it began.

    Kept in the conversation that /new leaves; of work that goes on through a /resume in the lane's log, fail closed.
    """
    bench = Bench(free=100)
    bench.said("/new old")
    bench.said("a")
    bench.answer()
    bench.said("/new")
    bench.said("dig")
    running = bench.gate.durable.running
    assert running is not None
    bench.tell(TurnAsks(running.turn, running.generation, "1 delegate", Delegate("dig")))
    bench.answer()
    began = bench.gate.durable.bound
    [work] = bench.gate.durable.delegations
    bench.said(leaving)
    assert bench.gate.durable.bound != began
    shown = bench.session_events()
    bench.forget()
    bench.tell(DelegationEnded(work.id, "completed", "found it"))
    assert bench.all(RunTurn) == []
    assert bench.session_events() == shown
    notices = [event.data["text"] for event in bench.session_events(began) if event.type == "wake/notice"]
    notices += [event.data["notice"] for event in bench.lane_events("inbox/dropped") if "notice" in event.data]
    assert [notice.partition(":")[0] for notice in notices] == ["[delegation 'dig'"]


def _lanes(b: Bot) -> list[str]:
    runtime = b.gateway._runtime
    assert runtime is not None
    return list(runtime.directory.live)
