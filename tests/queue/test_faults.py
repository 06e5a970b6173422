"""The known faults of queueing and turn serialisation, each as it was seen elsewhere (FAULTS, section 2)."""

from __future__ import annotations

import asyncio
import itertools
import random
from pathlib import Path
from typing import Any

import pytest

from seriatim import Media, MessageEvent, SessionSource
from seriatim.batch import Rules
from seriatim.effects import Ack, CancelTurn, Deliver, Finished, Nack, RunTurn
from seriatim.mail import Inbound, TurnBroken
from seriatim.testing.chance import Plan
from seriatim.testing.simulator import Simulator
from seriatim.turn import EndReason
from tests.core.bench import Bench
from tests.gateway.bots import balance_holds, bot, run, until

DAY_MS = 86_400_000


def texts(bench: Bench) -> list[list[str]]:
    """What each turn's agent was given."""
    return [[data["text"] for data, _ in run.claims] for run in bench.all(RunTurn)]


def outcomes(bench: Bench, ids: list[str]) -> list[str]:
    """What became of messages."""
    return [bench.outcome(inbox_id) for inbox_id in ids]


def test_no_follow_up_overwrites_another() -> None:
    """Text, photo, text while a turn runs: the next turn has all of them in order, and each is told so (B20)."""
    bench = Bench()
    bench.said("m1")
    bench.said("m2")
    photo = MessageEvent("m3", SessionSource("sim", "chat", user_id="u"), media=(Media("photo", url="u"),))
    bench.tell(Inbound("photo", "photo", photo, 2))
    bench.said("m4")
    bench.said("m5")
    bench.answer()
    assert texts(bench) == [["m1"], ["m2", "m3", "m4", "m5"]]
    assert [data.get("media") for data, _ in bench.all(RunTurn)[1].claims].count(None) == 3
    assert [ack.outcome for ack in bench.all(Ack)] == ["accepted", "accepted", "merged", "merged", "merged"]


def test_a_plain_message_displaces_no_queued_one() -> None:
    """/queue A, then B, then /queue C: A and C have full turns in that order, B one by its own rule (B21)."""
    bench = Bench()
    bench.said("run")
    for text in ("/queue A", "B", "/queue C"):
        bench.said(text)
    for _ in range(4):
        bench.answer()
    assert texts(bench) == [["run"], ["A"], ["B"], ["C"]]


@pytest.mark.parametrize("reason", ["completed", "failed", "aborted", "timeout"])
def test_a_queued_item_runs_however_the_turn_before_ends(reason: EndReason) -> None:
    """And what that one said is on its way before the item starts (B22)."""
    bench = Bench()
    bench.said("run")
    bench.said("/queue A")
    bench.forget()
    bench.tell(bench.end("reply" if reason == "completed" else None, reason))
    assert texts(bench) == [["A"]]
    kinds = [type(effect) for effect in bench.effects]
    if reason != "aborted":
        assert kinds.index(Deliver) < kinds.index(RunTurn)


def test_queued_is_told_only_of_what_is_stored() -> None:
    """With the queue full or the store away the answer is no, with its reason; nobody is told "queued" (B23)."""
    bench = Bench(Rules(waiting_max=2))
    bench.said("run")
    kept = bench.said("/queue A")
    full = bench.said("/queue B")
    bench.answer()
    away = bench.say("/queue C")
    assert away not in [ack.id for ack in bench.all(Ack)]
    bench.refuse()
    bench.drain()
    assert [ack.id for ack in bench.all(Ack)][-1] == kept
    assert {nack.id: nack.reason for nack in bench.all(Nack)} == {full: "queue_full", away: "storage_unavailable"}


def test_a_draining_gateway_says_no(tmp_path: Path) -> None:
    """Who writes while it stops is refused with "stopping", and counted (B23)."""

    async def main() -> None:
        go = asyncio.Event()

        async def agent(turn: Any) -> str:
            await go.wait()
            return str(turn.text)

        async with bot(agent, tmp_path) as it:
            running = await it.accept("a")
            stopping = asyncio.create_task(it.gateway.stop())
            await until(lambda: it.health["state"] == "stopping")
            late = await it.accept("b")
            assert (late.outcome, late.reason) == ("refused", "stopping")
            go.set()
            assert await stopping
            assert running.end is not None

    run(main())
    assert balance_holds(tmp_path)


def test_a_message_at_the_end_of_a_turn_is_neither_lost_nor_doubled() -> None:
    """Between the turn's last word and its commit, around a refusal, before and after: one turn for it (B24, B27)."""
    orders = set(itertools.permutations(("end", "say", "settle", "settle", "refuse")))
    for order in orders:
        bench = Bench()
        bench.said("run")
        end = bench.end()
        inbox_id = ""
        for step in order:
            if step == "end":
                bench.offer(end)
            elif step == "say":
                inbox_id = bench.say("follow")
            elif bench.offered is not None:
                bench.settle() if step == "settle" else bench.refuse()
        bench.drain()
        bench.tick(10_000)
        bench.drain()
        if inbox_id in [nack.id for nack in bench.all(Nack)]:
            assert texts(bench) == [["run"]]
        else:
            assert texts(bench) == [["run"], ["follow"]], order
        assert bench.gate.quiescent()
        assert not (bench.gate.durable.queue and bench.gate.durable.running is None)


def test_a_thousand_endings_meet_a_message() -> None:
    """In the simulator: people who write while turns end, a slow store, timers that fire early; nothing idle (B24)."""
    for seed in range(12):
        world = Simulator(seed, Plan(lanes=1, acts=40, people=3.0, lulls=0.0, steps=4_000, writer=0.3, timers=0.3))
        world.run()
        assert world.checked["no_idle_work"] > 0


def test_what_came_in_equals_what_came_of_it() -> None:
    """Ten thousand messages over fifty lanes with random ends, refusals, drains and restarts, at every step (B25)."""
    dice = random.Random(25)
    refused = accepted = said = 0
    for _ in range(50):
        bench = Bench(Rules(waiting_max=60), free=1_000)
        ids = []
        for _ in range(200):
            said += 1
            ids.append(bench.say(dice.choice(("a", "b", "/queue c", "/status"))))
            act = dice.random()
            if act < 0.3 and bench.offered is not None:
                bench.settle() if act < 0.25 else bench.refuse()
            elif act < 0.5 and bench.gate.durable.running is not None:
                bench.offer(bench.end("reply", dice.choice(("completed", "failed"))))
            elif act < 0.52:
                bench.drain()
                bench.now.draining = not bench.now.draining
                bench.reopen()
            state = bench.gate.durable
            assert state.accepted == state.answered + state.merged + state.dropped + len(state.waiting)
        bench.now.draining = False
        bench.drain()
        bench.reopen()
        for _ in range(len(ids)):
            if bench.gate.durable.running is not None:
                bench.answer()
        assert not bench.gate.durable.waiting
        nacked = {nack.id for nack in bench.all(Nack)}
        outcomes = bench.outcomes()
        lost = [i for i in ids if i and i not in nacked and i not in outcomes]
        # A message in flight or in the stash when the process died was never acked: its platform gives it again.
        acked = {ack.id for ack in bench.all(Ack)}
        assert not [i for i in lost if i in acked]
        refused += len(nacked)
        accepted += len(acked)
    assert said == 10_000
    assert accepted > 5_000
    assert refused > 0


@pytest.mark.parametrize("when", ["before", "during", "after"])
def test_a_resume_and_a_message_are_one_turn_after_the_other(when: str) -> None:
    """The message waits behind the turn that goes on; one reply each; never two turns at once (B26)."""
    bench = Bench()
    first = bench.said("a")
    second = bench.said("b") if when == "before" else ""
    bench.forget()
    bench.reopen()
    second = bench.said("b") if when == "during" else second
    assert texts(bench) == [["a"]]
    bench.answer()
    second = second or bench.said("b")
    bench.answer()
    assert texts(bench) == [["a"], ["b"]]
    assert outcomes(bench, [first, second]) == ["answered", "answered"]
    assert len(bench.all(Deliver)) == 2


def test_a_lane_is_free_when_its_turn_is_given_up() -> None:
    """Its agent ignores being cancelled; the second turn runs under a new generation, the late word touches nothing
    (B28).
    """
    bench = Bench()
    bench.said("a")
    late = bench.end("too late")
    second = bench.said("b")
    bench.tell(TurnBroken(late.turn, late.generation, "silent", "timeout"))
    assert [cancel.generation for cancel in bench.all(CancelTurn)] == [1]
    running = bench.gate.durable.running
    assert running is not None
    assert (running.ids, running.generation) == ((second,), 2)
    bench.tell(late)
    assert bench.gate.durable.running == running
    assert len(bench.lane_events("turn/late")) == 1
    bench.answer("b's")
    assert "too late" not in [part for deliver in bench.all(Deliver) for part in deliver.parts]


def test_a_message_from_another_session_has_its_own_turn() -> None:
    """A peer's word and a person's land in the running lane together: one order, one lane, a turn each (B31)."""
    bench = Bench()
    bench.said("user")
    bench.offer(bench.end())
    wake = bench.fresh("w")
    peer = MessageEvent("peer", SessionSource("sim", "chat"), internal=True, wake_kind="peer")
    bench.offer(Inbound(wake, "", peer, 4))
    person = bench.say("more")
    bench.drain()
    bench.answer()
    bench.answer()
    assert texts(bench) == [["user"], ["peer"], ["more"]]
    assert outcomes(bench, [wake, person]) == ["answered", "answered"]
    assert len({run.session for run in bench.all(RunTurn)}) == 1


def test_the_second_message_of_a_fresh_lane_waits_for_the_first() -> None:
    """Both arrive before the lane's first commit: one session, both run in order, no conflict is seen (B32)."""
    bench = Bench()
    first, second = bench.say("a"), bench.say("b")
    bench.drain()
    bench.answer()
    bench.answer()
    assert texts(bench) == [["a"], ["b"]]
    assert outcomes(bench, [first, second]) == ["answered", "answered"]
    assert len(bench.lane_events("route/bound")) == 1
    assert bench.all(Nack) == []


def test_a_lane_that_goes_to_rest_loses_no_message() -> None:
    """Asked to rest again and again while people write: one actor a key, each message once (B34)."""
    for seed in range(10):
        world = Simulator(seed, Plan(lanes=2, acts=25, people=1.0, lulls=0.3, rests=0.3, warm=1, steps=3_000))
        world.run()
        assert world.checked["one_actor_per_key"] > 10


def test_time_takes_nobodys_place() -> None:
    """Ten days in the queue, a clock that is set back, a restart in between: the order is that of arrival (B35)."""
    bench = Bench(Rules(freshness_ms=30 * DAY_MS))
    bench.said("run")
    for text in ("/queue a", "/queue b"):
        bench.said(text)
    bench.now.time += 10 * DAY_MS
    bench.said("/queue c")
    bench.now.time -= 10 * DAY_MS
    bench.reopen()
    bench.said("/queue d")
    for _ in range(5):
        bench.answer()
    assert [text for [text] in texts(bench)[-4:]] == ["a", "b", "c", "d"]


def test_stop_reaches_a_long_turn_and_no_other(tmp_path: Path) -> None:
    """/stop at step 3 of 30 ends it at its next step; "stop" is text; another lane's turn goes on (B38)."""

    async def main() -> None:
        steps: dict[str, int] = {}
        third = asyncio.Event()
        go = asyncio.Event()

        async def agent(turn: Any) -> str:
            name = str(turn.text)
            if name != "long":
                if name == "other":
                    await go.wait()
                return name
            for number in range(30):
                steps[name] = number
                if number == 3:
                    third.set()
                await turn.step(f"step {number}").call("look", {}, lambda: "seen")
            return "done"

        async with bot(agent, tmp_path) as it:
            other = await it.accept("other", "2")
            long = await it.accept("long")
            await third.wait()
            stopped = await it.ask("/stop")
            assert stopped.text is not None
            assert stopped.text.startswith("Stopped")
            assert (await long.answered()).reason == "aborted"
            at = steps["long"]
            assert at < 29
            assert (await it.ask("stop")).text == "stop"
            assert steps["long"] <= at + 1
            assert other.end is None
            go.set()
            assert (await other.answered()).text == "other"

    run(main())


def test_one_end_each() -> None:
    """Whoever waits for a message hears of exactly one end, whatever was merged into what (B20)."""
    bench = Bench()
    ids = [bench.said(text) for text in ("a", "b", "c", "/queue d")]
    for _ in range(3):
        bench.answer()
    told = [end.id for end in bench.all(Finished)]
    assert sorted(told) == sorted(ids)
    assert bench.all(Finished)[0].outcome == "answered"
