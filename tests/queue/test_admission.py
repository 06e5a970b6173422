"""Admission: turn slots shared fairly, budgets, refusals that say why and are told."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from seriatim import GatewayConfig, MessageEvent, Reply, SessionSource
from seriatim.actors.slots import RESUMES_EVERY, TurnSlots
from seriatim.batch import Rules
from seriatim.budgets import FREE, SLOWED, WARNED, Budgets, Limits
from seriatim.config import BudgetsConfig, QueueConfig, TurnsConfig
from seriatim.effects import Deliver, Nack, RunTurn, WantSlot
from seriatim.turn import Usage
from tests.core.bench import Bench
from tests.gateway.bots import bot, run, until


class Lanes:
    """Stands for lanes that wait: who was granted a slot, in order."""

    def __init__(self, slots: TurnSlots) -> None:
        self.slots = slots
        self.granted: list[str] = []

    def wants(self, lane: str, person: str, *, resumes: bool = False) -> None:
        """A lane finds no slot free, and waits."""
        lanes, name = self, lane

        class Ref:
            def signal(self, mail: Any) -> bool:
                del mail
                lanes.granted.append(name)
                return True

        ref: Any = Ref()
        if not self.slots.try_take(lane, person):
            self.slots.want(lane, ref, person, resumes=resumes)
        else:
            self.granted.append(lane)

    def serve(self, count: int) -> list[str]:
        """So many turns end, one after another; who began meanwhile."""
        before = len(self.granted)
        for _ in range(count):
            running = next(iter(self.slots._held))
            self.slots.give_back(running)
        return self.granted[before:]


def test_a_person_with_many_lanes_starves_nobody() -> None:
    """Twenty lanes of one person wait, then one of another's: he waits for one of them, not for twenty (B29)."""
    lanes = Lanes(TurnSlots(1))
    lanes.wants("a0", "ann")
    for number in range(1, 20):
        lanes.wants(f"a{number}", "ann")
    lanes.wants("b1", "bob")
    lanes.wants("b2", "bob")
    lanes.wants("c1", "cy")
    assert lanes.serve(6) == ["a1", "b1", "c1", "a2", "b2", "a3"]


def test_one_persons_lanes_are_served_in_order() -> None:
    """First come, first served, among one's own and among strangers alike."""
    lanes = Lanes(TurnSlots(1))
    for lane in ("a", "b", "c"):
        lanes.wants(lane, lane)
    assert lanes.serve(2) == ["b", "c"]


def test_resumed_turns_yield_to_fresh_input() -> None:
    """Twenty lanes to resume at boot and one new message: it waits for what runs, not for twenty (B29)."""
    lanes = Lanes(TurnSlots(2))
    for number in range(20):
        lanes.wants(f"r{number}", f"p{number}", resumes=True)
    assert lanes.granted == ["r0", "r1"]
    lanes.wants("new", "ann")
    assert lanes.serve(2) == ["new", "r2"]


def test_resumed_turns_have_a_share() -> None:
    """Where fresh input never ends, one grant in a few goes to a turn that was interrupted."""
    lanes = Lanes(TurnSlots(1))
    lanes.wants("busy", "x")
    lanes.wants("r", "y", resumes=True)
    for number in range(2 * RESUMES_EVERY):
        lanes.wants(f"n{number}", f"p{number}")
    assert "r" in lanes.serve(RESUMES_EVERY)


def test_a_lane_whose_input_is_fresh_moves_up() -> None:
    """It waited with an interrupted turn; then somebody writes there: from then on it counts as fresh."""
    lanes = Lanes(TurnSlots(1))
    lanes.wants("busy", "x")
    lanes.wants("r1", "a", resumes=True)
    lanes.wants("r2", "b", resumes=True)
    lanes.wants("r2", "b")
    assert lanes.slots.waiting == 2
    assert lanes.serve(2) == ["r2", "r1"]


def test_a_person_may_be_held_to_some_turns_at_once() -> None:
    """turns.per_user_max: their other lanes wait while others run, also with slots to spare."""
    lanes = Lanes(TurnSlots(4, per_user_max=2))
    for lane in ("a1", "a2", "a3", "a4"):
        lanes.wants(lane, "ann")
    lanes.wants("b1", "bob")
    assert lanes.granted == ["a1", "a2", "b1"]
    assert lanes.serve(1) == ["a3"]
    assert lanes.slots.held == 3


def test_a_lane_that_is_gone_waits_no_more() -> None:
    """It gives back what it held and its place; the others move up."""
    lanes = Lanes(TurnSlots(1))
    lanes.wants("a", "x")
    lanes.wants("b", "x")
    lanes.wants("c", "x")
    lanes.slots.give_back_all("b")
    assert lanes.slots.waiting == 1
    lanes.slots.give_back_all("a")
    assert lanes.granted == ["a", "c"]


def test_the_lane_says_for_whom_it_waits() -> None:
    """A person's message by the person, over all lanes; an interrupted turn as such, unless fresh input waits too."""
    bench = Bench(free=0)
    bench.said("a", user_id_alt="alt")
    assert bench.all(WantSlot) == [WantSlot("sim:alt", resumes=False)]
    bench = Bench()
    bench.said("a")
    bench.reopen()
    bench.forget()
    bench.free = bench._slots = 0
    bench.reopen()
    assert bench.all(WantSlot)[-1] == WantSlot("sim:u", resumes=True)
    bench.said("b")
    assert bench.all(WantSlot)[-1] == WantSlot("sim:u", resumes=False)


# --- budgets ----------------------------------------------------------------------------------------------


def test_what_is_used_expires() -> None:
    """Within a sliding window; who has used nothing is free."""
    budgets = Budgets(Limits(turns=2, window_ms=1_000))
    assert budgets.standing("ann", 0) is FREE
    budgets.began("ann", 0)
    budgets.began("ann", 500)
    assert budgets.standing("ann", 600).level == "over"
    assert budgets.standing("bob", 600) is FREE
    assert budgets.standing("ann", 1_000).level == "free"
    assert budgets.standing("ann", 1_500) is FREE


@pytest.mark.parametrize("limits", [Limits(tokens=100), Limits(cost_usd=1.0)])
def test_tokens_and_cost_count(limits: Limits) -> None:
    """Near the end people are warned, once."""
    budgets = Budgets(limits)
    budgets.spent("ann", 0, 79, 0.79)
    assert budgets.standing("ann", 1) is FREE
    budgets.spent("ann", 1, 1, 0.011)
    assert budgets.standing("ann", 2).tell == WARNED
    budgets.began("ann", 2, WARNED)
    assert budgets.standing("ann", 3).tell == ""
    assert budgets.standing("ann", 3).level == "warn"


def test_a_used_up_budget_slows() -> None:
    """The next turn waits its time from the last one's start, and the person hears why, once."""
    bench = Bench(Rules(budgets=True))
    budgets = Budgets(Limits(turns=1, over="slow", slow_ms=5_000))
    bench.now.standing = budgets.standing
    bench.said("a")
    budgets.began("sim:u", bench.now.time)
    bench.answer()
    bench.now.time += 1_000
    bench.said("b")
    assert len(bench.all(RunTurn)) == 1
    bench.tick(3_999)
    assert len(bench.all(RunTurn)) == 1
    bench.forget()
    bench.tick(1)
    bench.drain()
    assert len(bench.all(RunTurn)) == 1
    assert [deliver.parts[0] for deliver in bench.all(Deliver)] == [SLOWED]


def test_wakes_and_commands_cost_nobody() -> None:
    """A wake is the host's own; a command is always answered."""
    bench = Bench(Rules(budgets=True))
    budgets = Budgets(Limits(turns=1, over="slow", slow_ms=5_000))
    bench.now.standing = budgets.standing
    budgets.began("sim:u", bench.now.time)
    bench.wake()
    assert len(bench.all(RunTurn)) == 1
    bench.said("/status")
    assert len(bench.all(Deliver)) == 1


def test_a_full_lane_says_so() -> None:
    """queue.waiting_max: refused with its reason, in order, and nothing else changes."""
    bench = Bench(Rules(waiting_max=2))
    for text in ("a", "b", "c"):
        bench.said(text)
    assert [nack.reason for nack in bench.all(Nack)] == ["queue_full"]
    bench.answer()
    bench.said("d")
    assert len(bench.all(Nack)) == 1


def here(user: str, chat: str) -> SessionSource:
    """Where somebody writes."""
    return SessionSource("host", chat, user_id=user)


def test_a_blocked_person_is_refused_and_told(tmp_path: Path) -> None:
    """Through a real gateway: warned, then refused with "over_budget", counted; others and commands go through."""

    async def main() -> None:
        async def agent(turn: Any) -> Reply:
            return Reply(turn.text, usage=Usage(total=60))

        config = GatewayConfig(budgets=BudgetsConfig(tokens=100, over="block", warn_at=0.5))
        async with bot(agent, tmp_path, config=config) as it:
            it.say("one")
            assert await it.heard(1) == ["one"]
            it.say("two")
            assert await it.heard(3) == ["one", WARNED, "two"]
            it.say("three", chat_id="another")
            [told] = await it.heard(1, "another")
            assert told.startswith("You have used")
            assert it.gateway.balance()["refused"] == 1
            it.say("/status")
            await it.heard(4, "1")
            other = await it.gateway.accept(MessageEvent("four", here("8", "1")))
            assert (await other.answered()).text == "four"

    run(main())


def test_refusals_are_typed_and_in_order(tmp_path: Path) -> None:
    """C is refused before D is attempted; the caller sees the hole in his order (B37)."""

    async def main() -> list[tuple[str, str | None]]:
        go = asyncio.Event()

        async def agent(turn: Any) -> str:
            await go.wait()
            return str(turn.text)

        config = GatewayConfig(queue=QueueConfig(waiting_max=2))
        async with bot(agent, tmp_path, config=config) as it:
            told: list[tuple[str, str | None]] = []
            first = None
            for text in "ABCD":
                if text == "D":
                    go.set()
                    assert first is not None
                    await first.answered()
                    go.clear()
                receipt = await it.gateway.accept(MessageEvent(text, here("7", "1")))
                first = first or receipt
                told.append((receipt.outcome, receipt.reason))
            go.set()
            return told

    assert run(main()) == [("accepted", None), ("accepted", None), ("refused", "queue_full"), ("accepted", None)]


def test_a_crowd_of_lanes_lets_a_stranger_in(tmp_path: Path) -> None:
    """Through a real gateway with two slots: ten lanes of one person wait, and a stranger is served after few (B29)."""

    async def main() -> list[str]:
        order: list[str] = []
        go = asyncio.Event()

        async def agent(turn: Any) -> str:
            order.append(turn.text)
            await go.wait()
            return str(turn.text)

        config = GatewayConfig(turns=TurnsConfig(concurrency_max=2))
        async with bot(agent, tmp_path, config=config) as it:
            receipts = [await it.gateway.accept(MessageEvent(f"a{n}", here("ann", f"a{n}"))) for n in range(10)]
            receipts.append(await it.gateway.accept(MessageEvent("b", here("bob", "b"))))
            await until(lambda: it.health["turns_waiting"] == 9)
            go.set()
            for receipt in receipts:
                await receipt.answered()
            return order

    assert run(main()).index("b") <= 4
