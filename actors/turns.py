"""The turn runner: runs agents outside the lanes, and tells the lanes what comes of it.

A turn is one task on the gateway's loop. Async agents run inside that task; plain functions and generators on
a daemon thread of their own, which the task awaits. How many there are at once is bounded by the caller's turn
slots; a plain agent that ignores its cancellation keeps its thread, is counted in ``late``, and no longer
holds anything of the lane.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from types import CoroutineType
from typing import Any, Protocol

from seriatim.actors import endings
from seriatim.actors.backstage import Backstage
from seriatim.actors.calling import (
    call_blocking,
    call_contained,
    entry_of,
    is_async,
    on_thread,
    resolve,
)
from seriatim.actors.delegating import Delegations
from seriatim.actors.eager import begin
from seriatim.actors.live_turn import Turn
from seriatim.actors.outlet import ENDED, Outlet, Report, Tell
from seriatim.actors.summaries import Summaries, Summed
from seriatim.actors.waits import Asker, running_turn
from seriatim.actors.warm import Warm, WarmAgents
from seriatim.errors import InvalidInputError, TurnCancelledError
from seriatim.prompts import Prompts
from seriatim.turn import Message, TurnEnded, TurnJob

_log = logging.getLogger("seriatim.turns")


class TurnRunner(Protocol):
    """The port. All but ``close`` are called on the loop's thread, return at once and never raise.

    A turn is named by lane and generation. Everything is idempotent; names of turns that have ended, and of
    calls that never were, are ignored.
    """

    def start(self, job: TurnJob, tell: Tell) -> None:
        """Run a turn. ``tell`` may be called from any thread, and before ``start`` returns.

        Exactly one TurnEnded is told, last, whatever happens.
        """
        ...

    def cancel(self, lane: str, generation: int, why: str) -> None:
        """The turn's answer is no longer wanted; its TurnEnded (aborted) comes when it has unwound."""
        ...

    def release(self, lane: str, generation: int, calls: tuple[str, ...]) -> None:
        """The commit that explains these calls is durable (T2, or the T3 whose ``next`` they were): run them."""
        ...

    def proceed(self, lane: str, generation: int, calls: tuple[str, ...]) -> None:
        """The commit with these calls' results is durable (T3): the agent may go on."""
        ...

    def answered(self, lane: str, generation: int, token: str, value: Any) -> None:
        """What the agent asked of its lane is durable; begins background work, if that was the wish."""
        ...

    def end_delegations(self, lane: str, names: tuple[str, ...]) -> None:
        """The end of this background work is durable: stop it; nothing more is told of it."""
        ...

    def delegations(self, lane: str) -> frozenset[str]:
        """The ids of the lane's background work that goes on."""
        ...

    def output(self, lane: str, name: str) -> str:
        """What background work has given so far; "" for unknown work."""
        ...

    def evict(self, lane: str, done: Callable[[int], object] | None = None) -> int:
        """Begin the soft release of the lane's idle warm agent; its logical bytes, 0 if none or in use.

        ``done`` is called once, with these bytes, when the agent's hooks are over; at once if there are none.
        """
        ...

    def compress(self, lane: str, session: str, history: Sequence[Message], done: Summed) -> None:
        """Have the lane's agent sum up ``history``; ``done`` is called once, with the text, or with None and why not.

        It may take up to COMPRESS_S_MAX; turns of the lane may run meanwhile.
        """
        ...

    async def close(self, grace_s: float) -> None:
        """Interrupt all turns, give them ``grace_s`` seconds to unwind, then clean warm agents up."""
        ...


class _Entry:
    """How an agent is called; found out once. Raises InvalidInputError for what can't be one."""

    __slots__ = ("call", "is_async")

    def __init__(self, agent: Any) -> None:
        self.call = entry_of(agent)
        self.is_async = is_async(self.call)


class _Running(Backstage, eq=False):
    """One turn that runs, and its task."""

    shutdown: bool = False
    task: asyncio.Task[None] | None = None
    # While a thread runs the agent, cancelling the task would only lose sight of the thread.
    on_thread: bool = False
    warm: Warm | None = None

    def ending(self, ended: TurnEnded) -> TurnEnded:
        """``ended`` as it counts: of a cancelled turn it comes too late."""
        if self.why is None:
            return ended
        return endings.interrupted(self.job, self.why) if self.shutdown else endings.aborted(self.job, self.why, ended)


class AgentRunner:
    """Runs a host's own agents. ``agent`` serves all lanes, or ``agent_factory(session_id)`` makes one per lane.

    ``loop``: the caller's; async agents run there. ``on_error(where, error)``: told of every error of agents
    and hooks; default is a log line without the error's text, which may quote a conversation. ``ends_with_tasks``: the
    loop's owner may end it by cancelling every task, as ``asyncio.run`` does. Raises
    InvalidInputError when there is not exactly one of agent and factory, or it is nothing that can be run.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        agent: Any = None,
        agent_factory: Callable[[str], Any] | None = None,
        on_error: Report | None = None,
        *,
        ends_with_tasks: bool = True,
    ) -> None:
        if (agent is None) == (agent_factory is None):
            raise InvalidInputError("agent", "exactly one of agent and agent_factory is needed")
        self._entry = None if agent_factory is not None else _Entry(agent)
        self._loop = loop
        self._ends_with_tasks = ends_with_tasks
        self._agent = agent
        self._on_error = on_error
        self._reporting: Report = self._report  # bound once, not at each turn
        self._running: dict[tuple[str, int], _Running] = {}
        self._launching: list[_Running] = []
        self._delegations = Delegations(loop, self._report)
        self._warm = None if agent_factory is None else WarmAgents(loop, agent_factory, self._report)
        self._summaries = Summaries(loop, agent, self._warm, self._report)
        self._closed = False
        self.prompts = Prompts()
        """What turns tell their agents of places and people."""

    @property
    def late(self) -> int:
        """Turns that were cancelled and have not unwound yet."""
        return sum(1 for running in self._running.values() if running.why is not None)

    @property
    def live(self) -> int:
        """Turns that run and are wanted."""
        return len(self._running) - self.late

    def start(self, job: TurnJob, tell: Tell) -> None:
        """See TurnRunner.start."""
        name = (job.lane, job.generation)
        outlet = Outlet(tell, self._reporting)
        running = _Running(job, outlet, tell, self.prompts, self._delegations, self._loop)
        if self._closed or self._loop.is_closed():
            outlet.end(endings.interrupted(job, "the runner is closed"))
        elif name in self._running:
            outlet.end(endings.failed(job, InvalidInputError("generation", "it was started before")))
        else:
            self._running[name] = running
            # Not here: agents begin when the lanes' pass is over and their commits are on the way, all in one callback.
            self._launching.append(running)
            if len(self._launching) == 1:
                self._loop.call_soon(self._launch_all)

    def cancel(self, lane: str, generation: int, why: str) -> None:
        """See TurnRunner.cancel."""
        running = self._running.get((lane, generation))
        if running is not None:
            self._stop(running, why)

    def release(self, lane: str, generation: int, calls: tuple[str, ...]) -> None:
        """See TurnRunner.release."""
        running = self._running.get((lane, generation))
        if running is not None and running.gate is not None:
            running.gate.release(calls)

    def proceed(self, lane: str, generation: int, calls: tuple[str, ...]) -> None:
        """See TurnRunner.proceed."""
        running = self._running.get((lane, generation))
        if running is not None and running.gate is not None:
            running.gate.proceed(calls)

    def answered(self, lane: str, generation: int, token: str, value: Any) -> None:
        """See TurnRunner.answered."""
        self._delegations.begin(lane, generation, token, value)
        running = self._running.get((lane, generation))
        if running is not None and running.wishes is not None:
            running.wishes.answered(token, value)

    def end_delegations(self, lane: str, names: tuple[str, ...]) -> None:
        """See TurnRunner.end_delegations."""
        self._delegations.end(names)

    def delegations(self, lane: str) -> frozenset[str]:
        """See TurnRunner.delegations."""
        return self._delegations.live(lane)

    def output(self, lane: str, name: str) -> str:
        """See TurnRunner.output."""
        return self._delegations.output(name)

    def evict(self, lane: str, done: Callable[[int], object] | None = None) -> int:
        """See TurnRunner.evict."""
        if self._warm is not None and not self._closed:
            return self._warm.evict(lane, done)
        if done is not None:
            done(0)
        return 0

    def compress(self, lane: str, session: str, history: Sequence[Message], done: Summed) -> None:
        """See TurnRunner.compress."""
        self._summaries.compress(lane, session, history, done)

    async def close(self, grace_s: float) -> None:
        """See TurnRunner.close. On the runner's loop, or on another once that one is closed."""
        self._closed = True
        self._summaries.close()
        if not self._loop.is_closed():
            self._delegations.close()
        turns = list(self._running.values())
        for running in turns:
            running.shutdown = running.shutdown or running.why is None
            self._stop(running, "the runner was closed")
        tasks = {running.task for running in turns if running.task is not None}
        alive = not self._loop.is_closed()
        if alive and tasks:
            await asyncio.wait(tasks, timeout=grace_s)
        for running in turns:
            if running.outlet.end(running.ending(endings.interrupted(running.job, "it did not stop in time"))):
                self._report("close", TimeoutError(f"a turn did not stop within {grace_s} s"))
            if alive and running.task is not None:
                running.task.cancel()
        if alive and self._warm is not None:
            await self._warm.close(grace_s)
        elif alive and self._agent is not None:
            await self._cleanup(grace_s)

    def _stop(self, running: _Running, why: str) -> None:
        if running.why is not None:
            return
        running.cancel(why)
        self._delegations.forget(running.job.lane, running.job.generation)
        self._on_loop(self._interrupt, running)

    def _interrupt(self, running: _Running) -> None:
        if running.task is not None and not running.on_thread:
            running.task.cancel()

    def _on_loop(self, fn: Callable[[_Running], None], running: _Running) -> None:
        """Call on the loop's thread, at once if this is it; not at all where the loop is closed."""
        try:
            if asyncio.get_running_loop() is self._loop:
                fn(running)
                return
        except RuntimeError:
            pass  # no loop runs on this thread
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(fn, running)

    def _launch_all(self) -> None:
        launching, self._launching = self._launching, []
        for running in launching:
            if running.why is None:
                running.task = begin(self._loop, self._turn(running))
            else:
                running.task = self._loop.create_task(self._turn(running))
                running.task.cancel()  # before its first step: the agent never hears of it
            if running.task.done():
                self._finished(running, running.task)
            else:
                running.task.add_done_callback(partial(self._finished, running))

    async def _turn(self, running: _Running) -> None:
        job = running.job
        running_turn.set(Asker(self, job.lane, asyncio.current_task()))
        try:
            turn = Turn(running)
            entry = self._entry or _Entry(await self._warm_agent(running))
            if entry.is_async:
                result = entry.call(turn)
                # The common case straight on: each coroutine in between costs every turn.
                if type(result) is CoroutineType:
                    result = await result
                if type(result) is not str:
                    result = await resolve(result, turn)
            else:
                result = await self._on_thread(running, entry, turn)
            ended = endings.completed(job, result)
        except (asyncio.CancelledError, GeneratorExit) as exc:
            if running.why is None and ended_from_outside() and self._shuts_down():
                ended = endings.interrupted(job, "the event loop is shutting down")
            else:
                ended = endings.failed(job, exc)
        except TurnCancelledError as exc:
            ended = endings.failed(job, exc)
        except BaseException as exc:  # also KeyboardInterrupt: an agent can't stop its host's loop
            self._report("agent", exc)
            ended = endings.failed(job, exc)
        # Before the end is told: the lane's next turn may start at once, and wants the agent.
        if running.warm is not None:
            self._let_go(running)
        running.outlet.end(ended if running.why is None else running.ending(ended))

    def _let_go(self, running: _Running) -> None:
        warm, running.warm = running.warm, None
        if warm is not None and self._warm is not None and not self._loop.is_closed():
            self._warm.give_back(warm, running.job.generation)

    def _finished(self, running: _Running, task: asyncio.Task[None]) -> None:
        """On the loop, when the turn's task is over, even if it was cancelled before its first step."""
        job = running.job
        self._running.pop((job.lane, job.generation), None)
        if running.warm is not None:
            self._let_go(running)
        if not running.outlet.ended:
            if self._shuts_down():
                ended = endings.interrupted(job, "the event loop is shutting down")
            else:
                ended = endings.failed(job, asyncio.CancelledError())
            running.outlet.end(running.ending(ended))
        # Of what was not used by now nothing will be: the outlet has ended, and nobody waits to be told so.
        running.close(ENDED)
        if running.gate is not None:
            for tool in list(running.gate.tasks):
                tool.cancel()
        if not task.cancelled() and task.exception() is not None:
            self._report("turn", task.exception() or RuntimeError())

    def _shuts_down(self) -> bool:
        """Whether all tasks of the loop are being ended.

        If only the turn's was, nobody would end the turn, and its lane would wait for ever.
        """
        if not self._loop.is_running():
            return True
        return self._ends_with_tasks and all(task.cancelling() for task in asyncio.all_tasks(self._loop))

    async def _warm_agent(self, running: _Running) -> Any:
        assert self._warm is not None
        job = running.job
        running.warm = await self._warm.take(job.lane, job.session, job.generation)
        return running.warm.made.result()

    async def _on_thread(self, running: _Running, entry: _Entry, turn: Turn) -> Any:
        running.on_thread = True
        thread = on_thread("seriatim-agent", call_blocking, entry.call, turn)
        thread.add_done_callback(lambda _: self._thread_done(running))
        result = await asyncio.wrap_future(thread)
        running.on_thread = False
        if running.why is not None and asyncio.iscoroutine(result):
            result.close()
            raise TurnCancelledError(running.why)
        return await resolve(result, turn)

    def _thread_done(self, running: _Running) -> None:
        # With the loop closed, nobody awaits the thread any more.
        if self._loop.is_closed():
            running.outlet.end(running.ending(endings.interrupted(running.job, "the event loop is closed")))

    async def _cleanup(self, timeout_s: float) -> None:
        hook = getattr(self._agent, "cleanup", None)
        if not callable(hook):
            return
        try:
            async with asyncio.timeout(timeout_s):
                await call_contained(hook)
        except Exception as exc:  # a failing hook is told and stops nothing
            self._report("cleanup", exc)

    def _report(self, where: str, error: BaseException) -> None:
        if self._on_error is None:
            _log.error("%s failed: %s", where, type(error).__name__)
            return
        try:
            self._on_error(where, error)
        except Exception as exc:  # the host's reporter must not end a turn
            _log.error("on_error itself failed: %s", type(exc).__name__)  # no text of errors in logs


def ended_from_outside() -> bool:
    """Whether this task was cancelled or dropped with its loop; what runs in it may raise the same by itself."""
    try:
        task = asyncio.current_task()
    except RuntimeError:  # no loop runs: the task is being collected
        return True
    return task is not None and task.cancelling() > 0
