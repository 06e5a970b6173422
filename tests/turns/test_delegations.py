"""Background work of a turn: who owns it, how it ends, and where that is told."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from seriatim.actors.supervisor import PassivateLane
from seriatim.batch import Rules
from seriatim.effects import Deliver, EndDelegations, RunTurn, WishAnswered
from seriatim.errors import InvalidInputError
from seriatim.limits import DELEGATIONS_MAX
from seriatim.turn import Approve, Delegate, DelegationEnded, TurnAsks
from tests.core.bench import Bench
from tests.core.test_merging import beside, check_told_alike, merged
from tests.gateway.bots import bot, run, until


def delegated(rules: Rules | None = None, *, over: bool = True) -> tuple[Bench, str]:
    """A lane with background work, whose turn is over or runs on; the work's id."""
    bench = Bench(rules)
    bench.now.output = lambda lane, work: "half"
    bench.said("do it")
    bench.tell(TurnAsks(1, 1, "1 delegate", Delegate("dig")))
    if over:
        bench.answer()
    [work] = bench.gate.durable.delegations
    return bench, work.id


def wakes(bench: Bench) -> list[str]:
    """What was told of background work."""
    return [event.data["text"] for event in bench.lane_events("inbox/accepted") if event.data["kind"] == "wake"]


async def seen(world: Any, text: str) -> None:
    """The chat has read it."""
    await until(lambda: text in world.platform.texts())


def sent(bench: Bench) -> list[str]:
    """What the chat was told."""
    return [text for debt in bench.all(Deliver) for text in debt.parts]


def test_its_start_is_durable_before_it_begins() -> None:
    """The agent, and with it the runner, gets the id from the commit that records the start."""
    bench = Bench()
    bench.said("do it")
    bench.offer(TurnAsks(1, 1, "1 delegate", Delegate("dig")))
    assert bench.all(WishAnswered) == []
    bench.drain()
    [begun] = bench.lane_events("delegation/started")
    assert [told.value for told in bench.all(WishAnswered)] == [begun.data["id"]]
    assert (begun.data["name"], begun.data["session"]) == ("dig", bench.fold().bound)
    assert bench.fold() == bench.gate.durable


@pytest.mark.parametrize("status", ["completed", "failed"])
def test_its_end_comes_back_as_a_wake_of_its_session(status: Any) -> None:
    """With its status and output, pinned to the session that began it, to where that turn's message came from."""
    bench, work = delegated()
    bench.forget()
    bench.tell(DelegationEnded(work, status, "found it"))
    assert wakes(bench) == [f"[delegation 'dig': {status}] found it"]
    [turn] = bench.all(RunTurn)
    assert turn.claims[0][0]["wakeSession"] == bench.fold().bound
    assert turn.claims[0][0]["source"]["user_id"] == "u"
    bench.answer("told")
    assert sent(bench) == ["told"]
    bench.tell(DelegationEnded(work, "completed", "again"))
    assert len(wakes(bench)) == 1
    assert bench.fold() == bench.gate.durable


def test_stop_reaches_it_on_an_idle_lane() -> None:
    """The work is ended with what it gave so far, once; then there is nothing left to stop."""
    bench, work = delegated(Rules(stop_suspends=False))
    bench.forget()
    bench.said("/stop")
    assert sent(bench)[0] == "Stopped."
    assert [end.ids for end in bench.all(EndDelegations)] == [(work,)]
    assert wakes(bench) == ["[delegation 'dig': interrupted] half"]
    bench.answer(None)
    bench.tell(DelegationEnded(work, "completed", "too late"))
    bench.said("/stop")
    assert sent(bench)[-1] == "No active task to stop."
    assert len(wakes(bench)) == 1
    assert bench.fold() == bench.gate.durable


def test_a_stopped_sessions_notice_runs_in_it() -> None:
    """The stop suspends the session; the wake of its work still runs there and lifts nothing."""
    bench, _ = delegated()
    session = bench.fold().bound
    bench.said("/stop")
    running = bench.fold().running
    assert running is not None
    assert (running.kind, running.session) == ("wake", session)
    bench.answer(None)
    bench.said("hello")
    assert bench.fold().bound != session


@pytest.mark.parametrize("command", ["/new", "/reset"])
def test_a_new_conversation_is_not_polluted_by_it(command: str) -> None:
    """The notice stays in the session that began the work; the new one has no turn for it."""
    bench, work = delegated()
    session = bench.fold().bound
    bench.forget()
    bench.said(command)
    assert [end.ids for end in bench.all(EndDelegations)] == [(work,)]
    notices = [event.data["text"] for event in bench.session_events(session) if event.type == "wake/notice"]
    assert notices == ["[delegation 'dig': interrupted] half"]
    assert bench.all(RunTurn) == []
    assert bench.fold().bound != session


def test_a_running_turns_stop_takes_its_work_along() -> None:
    """One /stop ends the turn and the work that it began."""
    bench, work = delegated(over=False)
    bench.said("/stop")
    assert [end.ids for end in bench.all(EndDelegations)] == [(work,)]
    assert bench.fold().delegations == ()


def test_what_a_crash_cut_off_is_told_as_interrupted() -> None:
    """The next start finds the work open, though nothing else is, and runs none of it again."""
    bench, _ = delegated()
    assert [log for log, _ in bench.store.reader().open_work()] == ["lane:lane-x"]
    bench.reopen()
    assert wakes(bench) == ["[delegation 'dig': interrupted]"]
    assert bench.fold().delegations == ()
    bench.answer(None)
    bench.reopen()
    assert len(wakes(bench)) == 1


def test_a_lane_has_a_bound_of_it() -> None:
    """One more than may be isn't begun, and the agent is told."""
    bench = Bench()
    bench.said("do it")
    for number in range(DELEGATIONS_MAX + 1):
        bench.tell(TurnAsks(1, 1, f"{number}", Delegate("dig")))
    assert [told.value is None for told in bench.all(WishAnswered)] == [False] * DELEGATIONS_MAX + [True]


def test_late_work_of_a_stopped_turn_never_begins() -> None:
    """A turn that is over begins nothing."""
    bench = Bench()
    bench.said("do it")
    bench.said("/stop")
    bench.tell(TurnAsks(1, 1, "1 delegate", Delegate("dig")))
    assert bench.lane_events("delegation/started") == []


def test_every_kind_of_function_is_background_work(tmp_path: Path) -> None:
    """Async, plain, and generators of either kind outlive their turn and tell what they gave; errors are told too."""

    async def scenario() -> None:
        async def waits(n: int) -> int:
            await asyncio.sleep(0)
            return n + 1

        def plain(n: int) -> str:
            return f"plain {n}"

        def steps(n: int) -> Iterator[str]:
            yield "a"
            yield "b"

        def fails(n: int) -> Iterator[str]:
            yield "so far"
            raise ValueError("no")

        works = {"waits": waits, "plain": plain, "steps": steps, "fails": fails}

        async def agent(turn: Any) -> str:
            if turn.text in works:
                await turn.delegate(turn.text, works[turn.text], {"n": 1})
                return "begun"
            return str(turn.text)

        async with bot(agent, tmp_path) as world:
            for name, told in (
                ("waits", "[delegation 'waits': completed] 2"),
                ("plain", "[delegation 'plain': completed] plain 1"),
                ("steps", "[delegation 'steps': completed] ab"),
                ("fails", "[delegation 'fails': failed] so far\nValueError: no"),
            ):
                world.say(name)
                await seen(world, told)
            assert [where for where, _ in world.errors] == ["delegation"]

    run(scenario())


def test_work_that_hears_nothing_is_ended_all_the_same(tmp_path: Path) -> None:
    """/stop on an idle lane frees it from a thread that ignores it; what that gives at last is nobody's."""

    async def scenario() -> None:
        released = threading.Event()

        def stubborn() -> Iterator[str]:
            yield "half"
            released.wait()
            yield "whole"

        async def agent(turn: Any) -> str:
            if turn.text == "go":
                await turn.delegate("dig", stubborn)
                return "begun"
            return str(turn.text)

        async with bot(agent, tmp_path) as world:
            world.say("go")
            await world.heard(1)
            runtime = world.gateway._runtime
            assert runtime is not None
            [lane] = runtime.directory.live
            [work] = runtime.runner.delegations(lane)
            await until(lambda: runtime.runner.output(lane, work) == "half")
            world.say("/stop")
            await until(lambda: "[delegation 'dig': interrupted] half" in world.platform.texts())
            released.set()
            await world.at_rest()
            assert not any("whole" in text for text in world.platform.texts())
            assert runtime.runner.delegations(lane) == frozenset()

    run(scenario())


def test_a_lane_with_background_work_is_not_put_to_rest(tmp_path: Path) -> None:
    """Asked to rest, it stays: nobody else could be told of the end."""

    async def scenario() -> None:
        released = asyncio.Event()

        async def agent(turn: Any) -> str:
            if turn.text == "go":
                await turn.delegate("dig", released.wait)
                return "begun"
            return str(turn.text)

        async with bot(agent, tmp_path) as world:
            world.say("go")
            await world.heard(1)
            await world.at_rest()
            runtime = world.gateway._runtime
            assert runtime is not None
            [lane] = runtime.directory.live
            serves = runtime.directory.live[lane]
            runtime.directory.supervisor.signal(PassivateLane(lane, "test"))
            assert await world.gateway.approvals(lane) == ()  # served behind that wish
            assert runtime.directory.live[lane] is serves
            released.set()
            await until(lambda: "[delegation 'dig': completed] true" in world.platform.texts())

    run(scenario())


def test_background_work_of_a_merged_lane_is_told_in_the_other() -> None:
    """A lane that becomes another's takes its work along: it is ended there, and its end told there."""
    one = Bench()
    other = beside(one)
    other.said("do it")
    other.tell(TurnAsks(1, 1, "1 delegate", Delegate("dig")))
    other.answer()
    pair = merged(one, other)
    check_told_alike(one, other, pair)
    [work] = pair.lane.delegations
    one.forget()
    one.now.draining = False
    one.start()
    assert [end.ids for end in one.all(EndDelegations)] == [(work.id,)]
    assert wakes(one) == ["[delegation 'dig': interrupted]"]


def test_an_open_question_follows_a_merged_lane() -> None:
    """What an interrupted turn has asked is open in the lane that takes it over."""
    one = Bench()
    other = beside(one)
    other.said("do it")
    other.tell(TurnAsks(1, 1, "1 approve", Approve("May I?")))
    other.now.draining = True
    other.start()
    pair = merged(one, other)
    check_told_alike(one, other, pair)
    assert [asked.question for asked in pair.lane.approvals] == ["May I?"]


def test_arguments_that_are_no_mapping_are_refused(tmp_path: Path) -> None:
    """Nothing is begun for them, and the agent hears it as InvalidInputError."""

    async def answer(turn: Any) -> str:
        try:
            await turn.delegate("dig", print, [1])
        except InvalidInputError as exc:
            return str(exc.field)
        return "begun"

    async def main() -> None:
        async with bot(answer, tmp_path) as it:
            assert (await it.ask("go")).text == "args"

    run(main())
