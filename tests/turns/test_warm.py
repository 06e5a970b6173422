"""Warm agents: made once per lane and session, released softly, cleaned up at boundaries."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

from seriatim.actors.live_turn import Turn
from seriatim.actors.turns import AgentRunner
from tests.turns.harness import Ear, job


class Agent:
    """Counts its turns and notes its hooks."""

    def __init__(self, session: str, log: list[str]) -> None:
        self.session = session
        self.log = log
        self.turns = 0
        self.unblock = asyncio.Event()
        log.append(f"made {session}")

    async def run(self, turn: Turn) -> str:
        """Answer with how many turns this agent has seen."""
        self.turns += 1
        if turn.idempotency_key.endswith("stuck"):
            turn.emit("x")
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                await self.unblock.wait()
        return f"{self.session} {self.turns}"

    def commit_memory(self) -> None:
        """A plain hook: runs off the loop."""
        assert threading.current_thread() is not threading.main_thread()
        self.log.append("commit")

    async def release(self) -> str:
        """An async hook; what it gives back is kept."""
        self.log.append("release")
        return "browser"

    def adopt(self, kept: str) -> None:
        """Takes what the agent before it kept."""
        self.log.append(f"adopt {kept}")

    def cleanup(self) -> None:
        """The whole teardown."""
        self.log.append("cleanup")

    def memory_bytes(self) -> int:
        """Its logical size."""
        return 1000


class World:
    """A runner whose factory makes `Agent`s."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.made: list[Agent] = []
        self.errors: list[str] = []
        self.runner = AgentRunner(
            asyncio.get_running_loop(),
            agent_factory=self.make,
            on_error=lambda where, error: self.errors.append(where),
        )
        self.generation = 0

    async def make(self, session: str) -> Agent:
        """An async factory, so that agents may use the loop."""
        self.made.append(Agent(session, self.log))
        return self.made[-1]

    def start(self, session: str = "s1", key: str = "") -> Ear:
        """Start the lane's next turn."""
        self.generation += 1
        ear = Ear()
        self.runner.start(job(generation=self.generation, session=session, idempotency_key=key), ear)
        return ear

    async def turn(self, session: str = "s1") -> str | None:
        """Run the lane's next turn to its end."""
        ear = self.start(session)
        await ear.until(lambda: bool(ear.ends))
        return ear.ends[0].text


def run(scenario: Callable[[World], Awaitable[None]]) -> list[str]:
    """Run a scenario; what the hooks noted, closing included."""

    async def whole() -> list[str]:
        world = World()
        await scenario(world)
        await world.runner.close(5)
        return world.log

    return asyncio.run(whole())


def test_a_lane_keeps_its_agent_between_turns() -> None:
    """Two turns of a session are served by one agent; closing commits and cleans up."""

    async def scenario(w: World) -> None:
        assert [await w.turn(), await w.turn()] == ["s1 1", "s1 2"]

    assert run(scenario) == ["made s1", "commit", "cleanup"]


def test_eviction_is_soft_and_happens_once() -> None:
    """Commit, then release, once; the next turn gets a new agent that takes over what was kept."""

    async def scenario(w: World) -> None:
        await w.turn()
        assert [w.runner.evict("lane"), w.runner.evict("lane")] == [1000, 0]
        assert await w.turn() == "s1 1"

    assert run(scenario) == ["made s1", "commit", "release", "made s1", "adopt browser", "commit", "cleanup"]


def test_a_boundary_cleans_up() -> None:
    """Another session gets another agent; the old one is torn down wholly."""

    async def scenario(w: World) -> None:
        assert [await w.turn("s1"), await w.turn("s2")] == ["s1 1", "s2 1"]

    log = run(scenario)
    assert sorted(log) == sorted(["made s1", "commit", "cleanup", "made s2", "commit", "cleanup"])


def test_an_agent_at_work_is_not_evicted() -> None:
    """Mid-turn there is nothing to release."""

    async def scenario(w: World) -> None:
        ear = w.start(key="stuck")
        await ear.until(lambda: bool(ear.told))
        assert w.runner.evict("lane") == 0
        w.made[0].unblock.set()
        w.runner.cancel("lane", 1, "user")
        await ear.until(lambda: bool(ear.ends))

    run(scenario)


def test_an_agent_that_was_to_go_goes_when_it_is_free() -> None:
    """A cancelled turn still uses the agent when its lane rests: it is released, softly, when that turn has unwound."""
    told: list[int] = []

    async def scenario(w: World) -> None:
        ear = w.start(key="stuck")
        await ear.until(lambda: bool(ear.told))
        w.runner.cancel("lane", 1, "user")
        w.runner.evict("lane", told.append)
        assert (w.log, told) == (["made s1"], [0])
        w.made[0].unblock.set()
        await ear.until(lambda: bool(ear.ends))
        assert await w.turn() == "s1 1"
        assert w.log == ["made s1", "commit", "release", "made s1", "adopt browser"]

    run(scenario)


def test_who_evicts_hears_when_the_hooks_are_over() -> None:
    """With the agent's bytes, once; at once where there is none, and none after close."""
    told: list[int] = []

    async def scenario(w: World) -> None:
        w.runner.evict("lane", told.append)
        assert told == [0]
        await w.turn()
        w.runner.evict("lane", lambda size: told.append(size + len(w.log)))
        assert told == [0]
        await w.turn()
        assert told == [0, 1000 + len(["made", "commit", "release"])]
        await w.runner.close(5)
        w.runner.evict("lane", told.append)
        assert told[2:] == [0]

    run(scenario)


def test_a_stuck_turn_does_not_share_its_agent() -> None:
    """While a cancelled turn holds an agent, the lane's next turn gets another; the old one is cleaned up at last."""

    async def scenario(w: World) -> None:
        old = w.start(key="stuck")
        await old.until(lambda: bool(old.told))
        w.runner.cancel("lane", 1, "user")
        assert await w.turn() == "s1 1"
        assert len(w.made) == 2
        w.made[0].unblock.set()
        await old.until(lambda: bool(old.ends))

    assert run(scenario).count("cleanup") == 2


def test_a_failing_factory_fails_its_turn_only() -> None:
    """The error is the turn's; the next turn tries again."""

    async def whole() -> None:
        tries: list[str] = []

        def factory(session: str) -> Any:
            tries.append(session)
            if len(tries) == 1:
                raise SystemExit("no model")
            return lambda turn: "hi"

        runner = AgentRunner(asyncio.get_running_loop(), agent_factory=factory, on_error=lambda where, error: None)
        ends = []
        for generation in (1, 2):
            ear = Ear()
            runner.start(job(generation=generation), ear)
            await ear.until(lambda ear=ear: bool(ear.ends))  # type: ignore[misc]
            ends.append(ear.ends[0])
        assert [(end.reason, end.text) for end in ends] == [("failed", None), ("completed", "hi")]
        await runner.close(5)

    asyncio.run(whole())


def test_failing_hooks_are_told_and_stop_nothing() -> None:
    """A release still happens after a commit_memory that failed."""

    async def whole() -> list[str]:
        log: list[str] = []

        class Bad:
            def run(self, turn: Turn) -> str:
                return "hi"

            def commit_memory(self) -> None:
                raise OSError

            def release(self) -> None:
                log.append("release")

            def memory_bytes(self) -> int:
                raise ValueError

        runner = AgentRunner(
            asyncio.get_running_loop(), agent_factory=lambda s: Bad(), on_error=lambda where, error: log.append(where)
        )
        ear = Ear()
        runner.start(job(), ear)
        await ear.until(lambda: bool(ear.ends))
        assert runner.evict("lane") > 0
        await runner.close(5)
        return log

    assert asyncio.run(whole()) == ["memory_bytes", "commit_memory", "release"]


def test_one_agent_for_all_lanes_is_cleaned_up_at_close() -> None:
    """A shared agent's cleanup runs once, when the runner closes."""

    async def whole() -> list[str]:
        log: list[str] = []
        runner = AgentRunner(asyncio.get_running_loop(), Agent("shared", log))
        await runner.close(5)
        return log

    assert asyncio.run(whole()) == ["made shared", "cleanup"]
