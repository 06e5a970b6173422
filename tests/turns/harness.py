"""One script, three ways to run it: an async agent, a plain one, and the scripted runner."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from seriatim.actors.calling import on_thread
from seriatim.actors.live_turn import Turn
from seriatim.actors.steps import Call
from seriatim.actors.turns import AgentRunner, TurnRunner
from seriatim.model import SessionSource
from seriatim.testing.scripted import NEVER, Script, ScriptCall, ScriptedRunner
from seriatim.turn import Claim, StepOffered, Told, ToolFinished, TurnEnded, TurnJob

KINDS = ("async", "plain", "scripted")
SOURCE = SessionSource("local", chat_id="1", user_id="7", user_name="Ada")


def claim(text: str = "hi", name: str = "Ada", claim_id: str = "c1", time: int = 0) -> Claim:
    """One accepted message."""
    return Claim(claim_id, text, SessionSource("local", chat_id="1", user_name=name), None, time, "human")


def job(lane: str = "lane", generation: int = 1, **fields: Any) -> TurnJob:
    """A turn's job with plain defaults."""
    values: dict[str, Any] = {
        "session": "s1",
        "number": 1,
        "attempt": 1,
        "claims": (claim(),),
        "history": (),
        "boundary": "none",
        "had_activity": False,
        "resumed_from": None,
        "idempotency_key": f"{lane}/{generation}",
        "shared": False,
    }
    return TurnJob(lane=lane, generation=generation, **(values | fields))


class Ear:
    """What was told, in order; other tasks can wait for it."""

    def __init__(self) -> None:
        self.told: list[Told] = []
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        self.answer: Callable[[Told], None] | None = None

    def __call__(self, message: Told) -> None:
        """Take a message, on any thread."""
        self.told.append(message)
        if self.answer is not None:
            self.answer(message)
        try:
            self._loop.call_soon_threadsafe(self._changed.set)
        except RuntimeError:
            return  # the loop is closed; nobody waits

    async def until(self, wanted: Callable[[], bool]) -> None:
        """Wait until ``wanted`` holds; it is looked at whenever something was told."""
        async with asyncio.timeout(10):
            while not wanted():
                self._changed.clear()
                if wanted():
                    return
                await self._changed.wait()

    def of(self, kind: type[Any]) -> list[Any]:
        """The messages of one kind."""
        return [message for message in self.told if isinstance(message, kind)]

    @property
    def ends(self) -> list[TurnEnded]:
        """The ends told so far."""
        return self.of(TurnEnded)


WARM_BYTES = 1000


class Harness:
    """A runner of one kind, with the scripts its turns play, found by idempotency key.

    ``warm``: each lane has an agent of its own, of WARM_BYTES.
    """

    def __init__(self, kind: str, *, warm: bool = False) -> None:
        self.kind = kind
        self.scripts: dict[str, Script] = {}
        self.ran: list[str] = []
        self.scripted: ScriptedRunner | None = None
        self.runner: TurnRunner
        if kind == "scripted":
            self.scripted = ScriptedRunner(
                lambda job: self.scripts[job.idempotency_key], warm_bytes=WARM_BYTES if warm else 0
            )
            self.runner = self.scripted
        else:
            agent = self._play_async if kind == "async" else self._play
            self.runner = AgentRunner(
                asyncio.get_running_loop(),
                None if warm else agent,
                (lambda session: _Warm(agent)) if warm else None,
                on_error=lambda where, error: None,
            )

    def start(self, script: Script, lane: str = "lane", generation: int = 1) -> Ear:
        """Start a turn that plays ``script``."""
        ear = Ear()
        self.scripts[f"{lane}/{generation}"] = script
        self.runner.start(job(lane, generation), ear)
        return ear

    def obey(self, ear: Ear, lane: str = "lane", generation: int = 1) -> None:
        """Be a lane whose commits are durable at once."""

        def answer(message: Told) -> None:
            if isinstance(message, StepOffered):
                self.runner.release(lane, generation, tuple(call.id for call in message.calls))
            elif isinstance(message, ToolFinished):
                self.runner.release(lane, generation, tuple(call.id for call in message.next))
                self.runner.proceed(lane, generation, (message.call_id,))

        ear.answer = answer

    async def until(self, ear: Ear, wanted: Callable[[], bool]) -> None:
        """Drive the runner until ``wanted`` holds."""
        if self.scripted is not None:
            self.scripted.run()
            self.ran = [ran.name for ran in self.scripted.ran]
        await ear.until(wanted)

    async def ended(self, ear: Ear) -> TurnEnded:
        """Drive the runner until the turn has ended; its end, which is the only one and comes last."""
        await self.until(ear, lambda: bool(ear.ends))
        await self.quiet()
        assert len(ear.ends) == 1
        assert ear.told[-1] is ear.ends[0]
        return ear.ends[0]

    async def quiet(self) -> None:
        """Give everything that could happen the chance to: it can miss a fault, never make one up."""
        if self.scripted is not None:
            self.scripted.run()
            self.ran = [ran.name for ran in self.scripted.ran]
            return
        for _ in range(10):
            await asyncio.sleep(0)
        await asyncio.wrap_future(on_thread("quiet", lambda: None))
        for _ in range(10):
            await asyncio.sleep(0)

    def _tool(self, call: ScriptCall) -> Call:
        def fn(**_: Any) -> Any:
            self.ran.append(call.name)
            if call.error is not None:
                raise RuntimeError(call.error)
            return call.result

        return Call(call.name, call.args, fn, call.effects)

    async def _play_async(self, turn: Turn) -> Any:
        script = self.scripts[turn.idempotency_key]
        try:
            for delta in script.deltas:
                turn.emit(delta)
            for step in script.steps:
                await turn.step(step.text, serial=step.serial).calls(*map(self._tool, step.calls))
            if script.end is NEVER:
                await asyncio.Event().wait()
        except asyncio.CancelledError:
            if script.on_cancel != "answer":
                raise
        return _give(script.end)

    def _play(self, turn: Turn) -> Any:
        script = self.scripts[turn.idempotency_key]
        for delta in script.deltas:
            turn.emit(delta)
        for step in script.steps:
            turn.step(step.text, serial=step.serial).calls(*map(self._tool, step.calls))
        if script.end is NEVER:
            turn.cancelled.wait()
            return None
        return _give(script.end)


def _give(end: Any) -> Any:
    if isinstance(end, BaseException):
        raise end
    return None if end is NEVER else end


class _Warm:
    """A lane's own agent."""

    def __init__(self, run: Callable[[Turn], Any]) -> None:
        self.run = run

    def memory_bytes(self) -> int:
        """Its logical size."""
        return WARM_BYTES


def play(kind: str, scenario: Callable[[Harness], Awaitable[None]], *, warm: bool = False) -> None:
    """Run a scenario on a loop of its own, and close the runner."""

    async def whole() -> None:
        harness = Harness(kind, warm=warm)
        await scenario(harness)
        await harness.runner.close(5)

    asyncio.run(whole())
