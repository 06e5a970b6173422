"""Warm agents: one per lane, made by the host's factory, kept between turns.

Hooks, all optional, plain or async: ``commit_memory()`` before the agent goes; ``release()`` for a soft
release, whose result (terminal, browser, processes) is kept under the lane and handed to the next agent of
the same session by ``adopt(kept)``; ``cleanup()`` at a conversation boundary and at shutdown, on the agent or
on what its release kept; ``memory_bytes()`` says how large it is; ``compress(history)`` sums up older messages
(see ``summaries``). Plain hooks and factories run on threads.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Any, Final

from attrs import define, field

from seriatim.actors.calling import call_contained
from seriatim.actors.outlet import Report

RETIRE_S_MAX: Final = 30.0
"""How long a lane's next turn waits for the hooks of the agent before it, in seconds."""


@define(eq=False)
class Warm:
    """A lane's agent: being made or ready, and the generations that use it."""

    session: str
    made: asyncio.Task[Any]
    users: set[int] = field(factory=set)
    replaced: bool = False
    resting: str | None = None
    """The lane that has gone to rest meanwhile: who still uses the agent then releases it."""

    @property
    def usable(self) -> bool:
        """Being made, or made without an error."""
        return not self.made.done() or (not self.made.cancelled() and self.made.exception() is None)


class WarmAgents:
    """The warm agents of all lanes. All methods on the loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, factory: Callable[[str], Any], report: Report) -> None:
        self._loop = loop
        self._factory = factory
        self._report = report
        self._warm: dict[str, Warm] = {}
        self._kept: dict[str, tuple[str, Any]] = {}
        self._retiring: dict[str, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()

    async def take(self, lane: str, session: str, generation: int) -> Warm:
        """The lane's agent for a turn, made if need be. Raises what the factory raised.

        An agent that a cancelled turn has not let go of is not shared with the next turn: that one gets a
        new agent. An agent of another session is retired with cleanup.
        """
        retiring = self._retiring.get(lane)
        if retiring is not None:
            await asyncio.wait({retiring}, timeout=RETIRE_S_MAX)
        warm = self._warm.get(lane)
        if warm is not None and (warm.users or warm.session != session or not warm.usable):
            self._replace(lane, warm)
            warm = None
        if warm is None:
            warm = Warm(session, self._spawn(self._make(lane, session)))
            self._warm[lane] = warm
        warm.users.add(generation)
        try:
            # A cancelled turn doesn't break off the making: the lane's next turn will want the agent.
            await asyncio.shield(warm.made)
        except BaseException:
            if warm.made.done() and self._warm.get(lane) is warm:
                del self._warm[lane]
            self.give_back(warm, generation)
            raise
        return warm

    def give_back(self, warm: Warm, generation: int) -> None:
        """The turn has let go of the agent."""
        warm.users.discard(generation)
        if warm.users:
            return
        if warm.replaced:
            self._spawn(self._retire(warm, soft_for=None))
        elif warm.resting is not None and self._warm.get(warm.resting) is warm:
            self.evict(warm.resting)

    def evict(self, lane: str, done: Callable[[int], object] | None = None) -> int:
        """Begin the soft release of an idle agent; its logical bytes, or 0 if there is none to release yet.

        One that a cancelled turn has not let go of is released when it has, unless the lane takes it up again.
        ``done`` is called with the bytes when the hooks are over; at once if there are none.
        """
        warm = self._warm.get(lane)
        if warm is None or warm.users or not warm.made.done() or not warm.usable or lane in self._retiring:
            if warm is not None and warm.users:
                warm.resting = lane
            if done is not None:
                done(0)
            return 0
        del self._warm[lane]
        size = self._size(warm.made.result())
        task = self._spawn(self._retire(warm, soft_for=lane))
        self._retiring[lane] = task
        task.add_done_callback(lambda _: self._retiring.pop(lane, None))
        if done is not None:
            task.add_done_callback(lambda _: done(size))
        return size

    async def close(self, timeout_s: float) -> None:
        """Full cleanup of every agent and of what releases kept; waits at most ``timeout_s``."""
        for warm in list(self._warm.values()):
            self._spawn(self._retire(warm, soft_for=None))
        self._warm.clear()
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=timeout_s)
        kept = [self._spawn(self._hook(thing, "cleanup")) for _, thing in self._kept.values()]
        self._kept.clear()
        if kept:
            await asyncio.wait(kept, timeout=timeout_s)
        for task in set(self._tasks):
            task.cancel()

    def _replace(self, lane: str, warm: Warm) -> None:
        del self._warm[lane]
        warm.replaced = True
        if not warm.users:
            self._spawn(self._retire(warm, soft_for=None))

    async def _make(self, lane: str, session: str) -> Any:
        agent = await call_contained(self._factory, session)
        for_session, kept = self._kept.pop(lane, (session, None))
        if kept is not None:
            if for_session == session and callable(getattr(agent, "adopt", None)):
                await self._hook(agent, "adopt", kept)
            else:
                await self._hook(kept, "cleanup")
        return agent

    async def _retire(self, warm: Warm, soft_for: str | None) -> None:
        try:
            agent = await warm.made
        except Exception:  # told to the turn that wanted the agent; there is nothing to retire
            return
        await self._hook(agent, "commit_memory")
        if soft_for is None:
            await self._hook(agent, "cleanup")
            return
        kept = await self._hook(agent, "release")
        if kept is not None:
            self._kept[soft_for] = (warm.session, kept)

    async def _hook(self, owner: Any, name: str, *args: Any) -> Any:
        hook = getattr(owner, name, None)
        if not callable(hook):
            return None
        try:
            return await call_contained(hook, *args)
        except Exception as exc:  # a failing hook is told and stops nothing
            self._report(name, exc)
            return None

    def _size(self, agent: Any) -> int:
        measure: Any = getattr(agent, "memory_bytes", None)
        try:
            return sys.getsizeof(agent) if measure is None else max(1, int(measure()))
        except Exception as exc:  # as for hooks
            self._report("memory_bytes", exc)
            return sys.getsizeof(agent)

    def _spawn(self, work: Any) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = self._loop.create_task(work)
        self._tasks.add(task)  # the loop itself holds tasks weakly
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(_seen)
        return task


def _seen(task: asyncio.Task[Any]) -> None:
    if not task.cancelled():
        task.exception()  # a factory's error reaches the turn that waits; without one there is nobody to tell
