"""What only the real runner can get wrong: threads, generators, loops that close, agents that won't stop."""

from __future__ import annotations

import asyncio
import functools
import gc
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from seriatim.actors.live_turn import Turn
from seriatim.actors.turns import AgentRunner
from seriatim.errors import InvalidInputError, TurnCancelledError
from seriatim.limits import REPLY_BYTES_MAX, STEP_CALLS_MAX
from seriatim.turn import Reply, Silence, StepOffered, Told, ToolFinished, TurnDelta
from tests.turns.harness import Ear, job

ROOT = Path(__file__).parents[2]


class World:
    """A runner for one agent, and a lane whose commits are durable at once."""

    def __init__(self, agent: Any) -> None:
        self.errors: list[tuple[str, BaseException]] = []
        self.loop = asyncio.get_running_loop()
        self.runner = AgentRunner(self.loop, agent, on_error=lambda where, error: self.errors.append((where, error)))

    def start(self, generation: int = 1) -> Ear:
        """Start a turn."""
        ear = Ear()
        ear.answer = functools.partial(self.obey, generation)
        self.runner.start(job(generation=generation), ear)
        return ear

    def obey(self, generation: int, message: Told) -> None:
        """Release and proceed at once, from whatever thread tells."""
        if isinstance(message, StepOffered):
            self.runner.release("lane", generation, tuple(call.id for call in message.calls))
        elif isinstance(message, ToolFinished):
            self.runner.release("lane", generation, tuple(call.id for call in message.next))
            self.runner.proceed("lane", generation, (message.call_id,))


def run(agent: Any, scenario: Callable[[World], Awaitable[None]]) -> None:
    """Run a scenario around one agent."""

    async def whole() -> None:
        world = World(agent)
        await scenario(world)
        await world.runner.close(5)

    asyncio.run(whole())


def outcome(agent: Any) -> tuple[Any, list[str], Ear]:
    """Reason, text and detail of one turn, and its deltas."""
    heard: list[Ear] = []

    async def scenario(world: World) -> None:
        ear = world.start()
        await ear.until(lambda: bool(ear.ends))
        heard.append(ear)

    run(agent, scenario)
    (end,) = heard[0].ends
    return (end.reason, end.text, end.detail), [delta.text for delta in heard[0].of(TurnDelta)], heard[0]


async def coroutine(turn: Turn) -> str:
    """An async agent."""
    return turn.text


async def async_generator(turn: Turn) -> AsyncIterator[str]:
    """An async generator."""
    yield turn.text[0]
    yield turn.text[1]


def generator(turn: Turn) -> Iterator[str]:
    """A plain generator."""
    yield turn.text[0]
    yield turn.text[1]


class WithRun:
    """An object whose run is async; that it can also be called doesn't matter."""

    async def run(self, turn: Turn) -> str:
        """Answer."""
        return turn.text

    def __call__(self, turn: Turn) -> str:
        """Not what is wanted."""
        raise AssertionError


class Callable_:  # noqa: N801 - the name says what it is
    """An object that is called."""

    async def __call__(self, turn: Turn) -> str:
        """Answer."""
        return turn.text


@pytest.mark.parametrize(
    "agent",
    [
        coroutine,
        generator,
        async_generator,
        WithRun(),
        WithRun().run,
        Callable_(),
        functools.partial(coroutine),
        lambda turn: turn.text,
        lambda turn: coroutine(turn),  # noqa: PLW0108 - the lambda is what is tested, here and below
        lambda turn: generator(turn),  # noqa: PLW0108
        lambda turn: async_generator(turn),  # noqa: PLW0108
    ],
)
def test_every_kind_of_agent_answers(agent: Any) -> None:
    """Functions, generators, objects and what wraps them all work alike."""
    assert outcome(agent)[0] == ("completed", "hi", None)


@pytest.mark.parametrize("agent", [generator, async_generator])
def test_chunks_are_shown_and_joined(agent: Any) -> None:
    """What a generator yields is shown as it comes."""
    assert outcome(agent)[1] == ["h", "i"]


def test_a_generator_may_give_the_whole_at_its_end() -> None:
    """A Reply returned or yielded stands for the chunks, and brings usage along."""

    def returns(turn: Turn) -> Iterator[str]:
        yield "a"
        return Reply("whole")  # type: ignore[return-value]

    async def yields(turn: Turn) -> AsyncIterator[Any]:
        yield "a"
        yield Silence("thought better of it")

    assert outcome(returns)[0] == ("completed", "whole", None)
    assert outcome(yields)[0] == ("completed", None, "thought better of it")


@pytest.mark.parametrize("bad", [WithRun, 42, None])
def test_what_is_no_agent_is_refused_at_once(bad: Any) -> None:
    """A class instead of an instance, or nothing at all, is told when the runner is made."""

    async def whole() -> None:
        with pytest.raises(InvalidInputError):
            AgentRunner(asyncio.get_running_loop(), bad)

    asyncio.run(whole())


def test_chunks_must_be_text() -> None:
    """A chunk of another type fails the turn with a clear detail."""

    def agent(turn: Turn) -> Iterator[Any]:
        yield 1

    assert outcome(agent)[0] == ("failed", None, "InvalidInputError: chunk: text is needed, the agent yielded int")


def test_endless_chunks_meet_the_bound() -> None:
    """A generator that never ends is stopped by the size of what it said."""
    closed = threading.Event()

    def agent(turn: Turn) -> Iterator[str]:
        try:
            while True:
                yield "x" * (REPLY_BYTES_MAX // 4)
        finally:
            closed.set()

    (reason, text, _), _, _ = outcome(agent)
    assert (reason, "too large" in (text or ""), closed.is_set()) == ("failed", True, True)


@pytest.mark.parametrize(
    "error", [asyncio.CancelledError(), StopIteration(), GeneratorExit(), KeyboardInterrupt(), SystemExit()]
)
@pytest.mark.parametrize("kind", ["async", "plain"])
def test_awkward_errors_end_the_turn_and_not_the_loop(error: BaseException, kind: str) -> None:
    """Errors that mean something to loops, threads or generators end their turn like any other."""

    async def a(turn: Turn) -> str:
        raise error

    def p(turn: Turn) -> str:
        raise error

    assert outcome(a if kind == "async" else p)[0][0] == "failed"


def test_an_error_that_has_no_text_is_told() -> None:
    """An error whose own text fails still ends its turn."""

    class BrokenError(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    def agent(turn: Turn) -> str:
        raise BrokenError

    assert outcome(agent)[0] == ("failed", None, "BrokenError: (its text can't be read)")


def test_errors_are_reported() -> None:
    """The host hears the error itself, with its traceback."""

    async def scenario(world: World) -> None:
        ear = world.start()
        await ear.until(lambda: bool(ear.ends))
        ((where, error),) = world.errors
        assert (where, type(error), error.__traceback__ is not None) == ("agent", ZeroDivisionError, True)

    run(lambda turn: 1 // 0, scenario)


def test_a_stuck_plain_agent_holds_nothing() -> None:
    """The lane's next turn runs beside it; its own end is told once, when it unwinds, with what came too late."""
    unblock = threading.Event()

    def agent(turn: Turn) -> str:
        if turn.idempotency_key == "lane/1":
            turn.emit("begun")
            unblock.wait()
            turn.emit("late")
            return "too late"
        return "next"

    async def scenario(world: World) -> None:
        old = world.start()
        await old.until(lambda: bool(old.told))
        world.runner.cancel("lane", 1, "user")
        assert (world.runner.late, world.runner.live) == (1, 0)
        new = world.start(generation=2)
        await new.until(lambda: bool(new.ends))
        assert (new.ends[0].text, old.ends) == ("next", [])
        unblock.set()
        await old.until(lambda: bool(old.ends))
        assert len(old.told) == 2
        (end,) = old.ends
        assert (end.reason, end.text, end.detail) == ("aborted", "too late", "user")

    run(agent, scenario)


def test_a_cancelled_generator_is_closed_at_its_next_yield() -> None:
    """A generator that never ends does, after cancel, and its finally block runs."""
    closed = threading.Event()

    def agent(turn: Turn) -> Iterator[str]:
        try:
            while True:
                yield "x"
                turn.cancelled.wait()
        finally:
            closed.set()

    async def scenario(world: World) -> None:
        ear = world.start()
        await ear.until(lambda: bool(ear.told))
        world.runner.cancel("lane", 1, "user")
        await ear.until(lambda: bool(ear.ends))
        assert (ear.ends[0].reason, closed.is_set()) == ("aborted", True)

    run(agent, scenario)


def test_an_async_agent_that_swallows_its_cancel_is_late() -> None:
    """It keeps running, says nothing any more, and its end comes when it is done."""
    go_on: list[asyncio.Event] = []

    async def agent(turn: Turn) -> str:
        go_on.append(asyncio.Event())
        turn.emit("x")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await go_on[0].wait()
        turn.emit("unheard")
        return "late"

    async def scenario(world: World) -> None:
        ear = world.start()
        await ear.until(lambda: bool(ear.told))
        world.runner.cancel("lane", 1, "user")
        await asyncio.sleep(0)
        assert world.runner.late == 1
        go_on[0].set()
        await ear.until(lambda: bool(ear.ends))
        assert ([type(m).__name__ for m in ear.told], ear.ends[0].text) == (["TurnDelta", "TurnEnded"], "late")

    run(agent, scenario)


def test_a_start_on_a_closed_loop_is_interrupted() -> None:
    """Without a loop the end is told at once, from the caller's thread."""
    loop = asyncio.new_event_loop()
    runner = AgentRunner(loop, coroutine)
    loop.close()
    told: list[Told] = []
    runner.start(job(), told.append)
    assert [end.reason for end in told] == ["interrupted"]  # type: ignore[union-attr]


def test_a_loop_that_ends_interrupts_its_turns() -> None:
    """When the host's loop is torn down, async and plain turns end as interrupted, and nothing hangs."""
    told: list[Told] = []
    unblock = threading.Event()

    async def a(turn: Turn) -> None:
        await asyncio.Event().wait()

    async def whole() -> None:
        for agent in (a, lambda turn: unblock.wait()):
            runner = AgentRunner(asyncio.get_running_loop(), agent)
            runner.start(job(), told.append)
            # Kept alive beyond the loop, as a host would.
            runners.append(runner)
        await asyncio.sleep(0)

    runners: list[AgentRunner] = []
    asyncio.run(whole())
    unblock.set()
    assert [end.reason for end in told] == ["interrupted", "interrupted"]  # type: ignore[union-attr]


def test_a_loop_closed_under_a_thread_still_ends_its_turn() -> None:
    """A loop that was stopped and closed without clean-up: the thread itself tells the end."""
    told: list[Told] = []
    ended, unblock = threading.Event(), threading.Event()

    def tell(message: Told) -> None:
        told.append(message)
        ended.set()

    def agent(turn: Turn) -> str:
        unblock.wait()
        return "unheard"

    loop = asyncio.new_event_loop()
    runner = AgentRunner(loop, agent)

    async def begin() -> None:
        runner.start(job(), tell)

    async def turn_of_the_loop() -> None:
        await asyncio.sleep(0)

    loop.run_until_complete(begin())
    loop.run_until_complete(turn_of_the_loop())
    (task,) = asyncio.all_tasks(loop)
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    loop.close()
    unblock.set()
    assert ended.wait(10)
    assert [end.reason for end in told] == ["interrupted"]  # type: ignore[union-attr]
    del task
    gc.collect()


def test_the_interpreter_exits_with_a_stuck_agent() -> None:
    """Neither a stuck plain agent nor a stuck hook keeps a finished process alive."""
    code = """
import asyncio, threading
from seriatim.actors.turns import AgentRunner
from tests.turns.harness import job
async def main():
    runner = AgentRunner(asyncio.get_running_loop(), lambda turn: threading.Event().wait())
    started = []
    runner.start(job(), started.append)
    await asyncio.sleep(0)
    await runner.close(0.05)
    print([end.reason for end in started])
asyncio.run(main())
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=30, check=True
    )
    assert done.stdout.strip() == "['interrupted']"


def test_a_lane_that_is_gone_breaks_no_agent() -> None:
    """A tell that raises is reported; the turn still runs to its end."""

    async def whole() -> None:
        errors: list[str] = []
        done = asyncio.Event()

        async def agent(turn: Turn) -> str:
            turn.emit("x")
            done.set()
            return "hi"

        def tell(message: Told) -> None:
            raise RuntimeError("no such actor")

        runner = AgentRunner(asyncio.get_running_loop(), agent, on_error=lambda where, error: errors.append(where))
        runner.start(job(), tell)
        await done.wait()
        await runner.close(5)
        assert errors == ["tell", "tell"]

    asyncio.run(whole())


# --- tools -------------------------------------------------------------------------------------------


def test_tools_may_be_plain_or_async() -> None:
    """Both kinds work from both kinds of agent."""

    async def slow(n: int) -> int:
        await asyncio.sleep(0)
        return n + 1

    async def a(turn: Turn) -> str:
        step = turn.step("go")
        return f"{await step.call('a', {'n': 1}, slow)} {await turn.step().call('b', {'n': 2}, lambda n: n + 1)}"

    def p(turn: Turn) -> str:
        step = turn.step("go")
        return f"{step.call('a', {'n': 1}, slow)} {step.call('b', {'n': 2}, lambda n: n + 1)}"

    assert outcome(a)[0][1] == outcome(p)[0][1] == "2 3"


def test_gathered_calls_share_one_offer() -> None:
    """Calls declared without an await in between are one message of the model."""

    async def agent(turn: Turn) -> str:
        step = turn.step("both")
        return str(await asyncio.gather(step.call("a", {}, lambda: 1), step.call("b", {}, lambda: 2, "read")))

    (_, text, _), _, ear = outcome(agent)
    (offered,) = ear.of(StepOffered)
    assert (text, [call.name for call in offered.calls]) == ("[1, 2]", ["a", "b"])


def test_a_call_after_its_step_is_a_message_of_its_own() -> None:
    """A later call costs a commit of its own, with empty text."""

    def agent(turn: Turn) -> str:
        step = turn.step("one")
        return f"{step.call('a', {}, lambda: 1)}{step.call('b', {}, lambda: 2)}"

    (_, text, _), _, ear = outcome(agent)
    assert (text, [offered.text for offered in ear.of(StepOffered)]) == ("12", ["one", ""])


def test_a_tools_own_error_reaches_the_agent() -> None:
    """The agent catches what its tool raised, and goes on."""

    async def agent(turn: Turn) -> str:
        try:
            await turn.step().call("a", {}, lambda: dict[str, int]()["key"])
        except KeyError as exc:
            return f"caught {exc}"
        return "not reached"

    (_, text, _), _, ear = outcome(agent)
    assert text == "caught 'key'"
    assert (ear.of(ToolFinished)[0].error, ear.of(ToolFinished)[0].content) == (True, "KeyError: 'key'")


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
def test_a_tool_can_not_stop_the_loop(error: type[BaseException]) -> None:
    """What would end a loop ends the tool, and reaches the agent as an error."""

    async def tool() -> None:
        raise error

    async def agent(turn: Turn) -> str:
        try:
            await turn.step().call("a", {}, tool)
        except RuntimeError as exc:
            return str(exc)
        return "not reached"

    assert outcome(agent)[0][1] == f"the tool raised {error.__name__}"


def test_a_call_given_up_is_recorded() -> None:
    """An agent that stops waiting for a tool leaves a result behind, so that the next step can go."""

    async def agent(turn: Turn) -> str:
        started = asyncio.Event()

        async def tool() -> None:
            started.set()
            await asyncio.Event().wait()

        call = turn.step("one").call("a", {}, tool)
        await started.wait()
        call.cancel()
        never = turn.step("two").call("b", {}, tool)
        never.cancel()  # before its first step
        return str(await turn.step("three").call("c", {}, lambda: 3))

    (_, text, _), _, ear = outcome(agent)
    assert text == "3"
    offered = [call.id for offer in ear.of(StepOffered) for call in offer.calls]
    assert offered == [done.call_id for done in ear.of(ToolFinished)]
    assert {done.content for done in ear.of(ToolFinished)} == {"cancelled", 3}


def test_a_later_serial_call_given_up_does_not_start_another_twice() -> None:
    """Giving up a call that waits its turn leaves the running one alone."""
    ran: list[str] = []

    async def agent(turn: Turn) -> str:
        going, go = asyncio.Event(), asyncio.Event()

        async def first() -> None:
            ran.append("a")
            going.set()
            await go.wait()

        step = turn.step("", serial=True)
        calls = [step.call("a", {}, first), step.call("b", {}, lambda: ran.append("b"))]
        calls.append(step.call("c", {}, lambda: ran.append("c")))
        await going.wait()
        calls[1].cancel()
        await asyncio.sleep(0)
        go.set()
        await asyncio.gather(calls[0], calls[2])
        return " ".join(ran)

    assert outcome(agent)[0][1] == "a c"


def test_a_tool_may_not_call_tools_of_its_turn() -> None:
    """It would wait for itself, so it is refused."""

    async def agent(turn: Turn) -> str:
        async def tool() -> None:
            await turn.step().call("inner", {}, lambda: 1)

        try:
            await turn.step().call("outer", {}, tool)
        except InvalidInputError as exc:
            return exc.reason
        return "not reached"

    assert outcome(agent)[0][1] == "a tool can't call tools of its own turn"


@pytest.mark.parametrize(
    ("name", "args", "effects"),
    [
        ("", {}, "write"),
        (5, {}, "write"),
        ("a", {"x": (1,)}, "write"),
        ("a", {"x": {1}}, "read"),
        ("a", [("x", 1)], "write"),
        ("a", None, "write"),
        ("a", {}, ""),
    ],
)
def test_malformed_calls_are_refused_before_anything_runs(name: Any, args: Any, effects: Any) -> None:
    """A call that no log could hold is the agent's error, and is offered to nobody."""

    async def agent(turn: Turn) -> str:
        with pytest.raises(InvalidInputError):
            turn.step().call(name, args, lambda **_: None, effects)
        return "ok"

    (_, text, _), _, ear = outcome(agent)
    assert (text, ear.of(StepOffered)) == ("ok", [])


def test_what_is_no_function_is_never_recorded_as_a_call() -> None:
    """Only what could run is offered to the log."""

    async def agent(turn: Turn) -> str:
        nothing: Any = None
        with pytest.raises(InvalidInputError):
            turn.step().call("a", {}, nothing)
        return "ok"

    (_, text, _), _, ear = outcome(agent)
    assert (text, ear.of(StepOffered)) == ("ok", [])


def test_a_step_has_a_bound() -> None:
    """More calls than STEP_CALLS_MAX in one step are refused."""

    async def agent(turn: Turn) -> str:
        step = turn.step()
        calls = [step.call("a", {}, int) for _ in range(STEP_CALLS_MAX)]
        with pytest.raises(InvalidInputError):
            step.call("a", {}, int)
        return str(sum(await asyncio.gather(*calls)))

    assert outcome(agent)[0][1] == "0"


def test_a_result_that_is_not_json_is_recorded_as_text() -> None:
    """The agent gets the object; the log gets its text, cut with a note if need be."""

    async def agent(turn: Turn) -> str:
        step = turn.step()
        small, large = await step.calls(_call(lambda: {1, 2}), _call(lambda: "ä" * 1_000_000))
        return f"{small} {len(large)}"

    (_, text, _), _, ear = outcome(agent)
    assert text == "{1, 2} 1000000"
    contents = {done.call_id: done.content for done in ear.of(ToolFinished)}
    assert contents["t1a1c1"] == "{1, 2}"
    assert contents["t1a1c2"].endswith("[cut: the whole result had 2000002 bytes]")


def _call(fn: Callable[[], Any]) -> Any:
    from seriatim.actors.steps import Call

    return Call("tool", {}, fn)


def test_a_plain_agent_that_waits_is_woken_by_cancel() -> None:
    """Blocked in a call, it gets TurnCancelledError and can clean up."""
    caught: list[str] = []

    def agent(turn: Turn) -> str:
        try:
            turn.step().call("a", {}, lambda: caught.append("ran"))
        except TurnCancelledError as exc:
            caught.append(exc.reason)
            raise
        return "not reached"

    async def scenario(world: World) -> None:
        ear = Ear()
        world.runner.start(job(), ear)
        await ear.until(lambda: bool(ear.told))
        world.runner.cancel("lane", 1, "user")
        await ear.until(lambda: bool(ear.ends))
        assert (caught, ear.ends[0].reason, world.errors) == (["user"], "aborted", [])

    run(agent, scenario)


def test_nothing_is_told_after_the_end() -> None:
    """Threads and tasks that an agent leaves behind are not heard any more."""
    kept: list[Turn] = []

    async def agent(turn: Turn) -> str:
        kept.append(turn)
        turn.step("left").call("a", {}, lambda: None)
        return "done"

    (_, text, _), _, ear = outcome(agent)
    kept[0].emit("late")
    with pytest.raises(TurnCancelledError):
        kept[0].step().call("b", {}, lambda: None)
    assert (text, [type(message).__name__ for message in ear.told]) == ("done", ["TurnEnded"])
