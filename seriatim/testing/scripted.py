"""A turn runner for simulation: the same port as the real one, without threads, loop or time.

A script decides what each turn does; nothing happens until the simulator advances a turn, one thing at a time,
in whatever order its seed says. `ScriptedRunner.ran` is what the outside world saw of the tools.

Left out of its model: the order in which threads of one agent interleave, and errors of the runner itself;
tests/turns holds the real runner to the same contract.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Literal

from attrs import Factory, define, field, frozen

from seriatim.actors import endings
from seriatim.actors.outlet import Outlet, Tell
from seriatim.actors.steps import Batch, Call, Effects, Gated, StepGate
from seriatim.actors.summaries import UNABLE, Summed
from seriatim.errors import SeriatimError
from seriatim.turn import (
    Approve,
    Delegate,
    DelegationEnded,
    Message,
    Silence,
    Steer,
    TurnAsks,
    TurnDelta,
    TurnEnded,
    TurnJob,
    Wish,
)


class _Never:
    def __repr__(self) -> str:
        return "NEVER"


NEVER: Final = _Never()
"""As a script's end: the turn goes on until it is cancelled or closed."""


@frozen
class ScriptCall:
    """One tool call: what it gives back, or the error that it raises (``error``: its text)."""

    name: str
    result: Any = None
    error: str | None = None
    effects: Effects = "write"
    args: dict[str, Any] = Factory(dict)


@frozen
class ScriptStep:
    """One step; ``serial`` as in ``Turn.step``."""

    text: str
    calls: tuple[ScriptCall, ...]
    serial: bool = False


@frozen
class Script:
    """One turn: its deltas, then its wishes (each waits for its answer), then its steps, then its end.

    ``work``: what the background work that it wishes for gives, None: it goes on until it is ended.

    ``end``: what the agent returns (str, Reply, Silence, None, or a wrong type), an exception that it
    raises, or NEVER. ``on_cancel``: it unwinds, answers ``end`` all the same, or ignores the cancellation
    until the runner is closed.
    """

    end: Any = "ok"
    deltas: tuple[str, ...] = ()
    steps: tuple[ScriptStep, ...] = ()
    wishes: tuple[Wish, ...] = ()
    work: str | None = "done"
    on_cancel: Literal["unwind", "answer", "ignore"] = "unwind"


WORDS: Final = (
    *["plain"] * 6,
    *("tool", "tools", "serial", "rounds", "long", "fail", "silent", "never", "late", "stuck"),
    *("ask", "steer", "delegate", "watch"),
)
"""What ``by_first_word`` knows; most often it just answers."""


_WISHES: Final[dict[str, tuple[Wish, ...]]] = {
    "ask": (Approve("May I?"),),
    "steer": (Steer(), Steer()),
    "delegate": (Delegate("errand"),),
    "watch": (Delegate("watch"),),
}


def by_first_word(job: TurnJob) -> Script:
    """An agent that does what the first word of its first message says, and repeats what it is told (``echoes``)."""
    reply = "re: " + " | ".join(claim.text for claim in job.claims)
    match job.claims[0].text.split(maxsplit=1)[0]:
        case "tool":
            return Script(reply, steps=(ScriptStep("let me", (ScriptCall("save", 1),)),))
        case "tools":
            return Script(reply, steps=(ScriptStep("both", (ScriptCall("save", 1), ScriptCall("send", 2))),))
        case "serial":
            calls = (ScriptCall("save", 1), ScriptCall("send", 2), ScriptCall("look", 3, effects="read"))
            return Script(reply, steps=(ScriptStep("in turn", calls, serial=True),))
        case "rounds":
            return Script(reply, steps=tuple(ScriptStep(f"{n}", (ScriptCall("save", n),)) for n in range(2)))
        case "long":
            return Script(reply + " " + " ".join(f"word{n}" for n in range(45)))
        case "fail":
            return Script(ValueError("the agent broke"))
        case "silent":
            return Script(Silence("nothing to say"))
        case "never":
            return Script(NEVER, deltas=("re",))
        case "draft":
            return Script(NEVER if job.attempt == 1 else reply, deltas=("so", " far"))
        case "late":
            return Script(reply, on_cancel="answer", steps=(ScriptStep("let me", (ScriptCall("save", 1),)),))
        case "stuck":
            return Script(reply, on_cancel="ignore", deltas=("re",) * 6)
        case word:
            work = None if word == "watch" else "done"
            return Script(reply, deltas=("re",), wishes=_WISHES.get(word, ()), work=work)


def echoes(text: str) -> bool:
    """Whether the reply of ``by_first_word`` to this message surely holds its text."""
    return text.split(maxsplit=1)[0] not in ("long", "fail", "silent", "never")


@frozen
class Ran:
    """One tool call that really ran."""

    lane: str
    session: str
    turn: int
    generation: int
    attempt: int
    call: str
    name: str
    effects: Effects


@define(eq=False)
class _Playing:
    job: TurnJob
    script: Script
    outlet: Outlet
    gate: StepGate
    tell: Tell
    why: str | None = None
    deltas: int = 0
    steps: int = 0
    wishes: int = 0
    token: str = ""
    batch: Batch | None = None
    unrun: list[tuple[Gated, ScriptCall]] = field(factory=list)


class ScriptedRunner:
    """The TurnRunner port, played from scripts. Single-threaded.

    ``script(job)`` is asked at each start. ``warm_bytes``: what evicting a lane's warm agent frees; each
    lane has one after its first turn, 0 means never.
    """

    def __init__(self, script: Callable[[TurnJob], Script], warm_bytes: int = 0) -> None:
        self._script = script
        self._warm_bytes = warm_bytes
        self._playing: dict[tuple[str, int], _Playing] = {}
        self._warm: set[str] = set()
        self._planned: dict[tuple[str, int, str], tuple[str | None, Tell]] = {}
        self._works: dict[tuple[str, str], tuple[str | None, Tell]] = {}
        self._closed = False
        self.ran: list[Ran] = []
        self.errors: list[tuple[str, BaseException]] = []

    def start(self, job: TurnJob, tell: Tell) -> None:
        """See TurnRunner.start; nothing is told before the first ``advance``, unless it can't start."""
        outlet = Outlet(tell, lambda where, error: self.errors.append((where, error)))
        if self._closed:
            outlet.end(endings.interrupted(job, "the runner is closed"))
        elif (job.lane, job.generation) in self._playing:
            outlet.end(endings.failed(job, ValueError("it was started before")))
        else:
            gate = StepGate(job, outlet)
            self._playing[job.lane, job.generation] = _Playing(job, self._script(job), outlet, gate, tell)
            if self._warm_bytes:
                self._warm.add(job.lane)

    def cancel(self, lane: str, generation: int, why: str) -> None:
        """See TurnRunner.cancel."""
        for name in [name for name in self._planned if name[:2] == (lane, generation)]:
            del self._planned[name]
        turn = self._playing.get((lane, generation))
        if turn is not None and turn.why is None:
            turn.why = why
            turn.outlet.mute()
            turn.gate.close(why)

    def release(self, lane: str, generation: int, calls: tuple[str, ...]) -> None:
        """See TurnRunner.release."""
        turn = self._playing.get((lane, generation))
        if turn is not None:
            turn.gate.release(calls)

    def proceed(self, lane: str, generation: int, calls: tuple[str, ...]) -> None:
        """See TurnRunner.proceed."""
        turn = self._playing.get((lane, generation))
        if turn is not None:
            turn.gate.proceed(calls)

    def answered(self, lane: str, generation: int, token: str, value: Any) -> None:
        """See TurnRunner.answered."""
        planned = self._planned.pop((lane, generation, token), None)
        if planned is not None and value is not None and not self._closed:
            self._works[lane, value] = planned
        turn = self._playing.get((lane, generation))
        if turn is not None and turn.token == token:
            turn.token = ""

    def end_delegations(self, lane: str, names: tuple[str, ...]) -> None:
        """See TurnRunner.end_delegations."""
        for name in [name for name in self._works if name[1] in names]:
            del self._works[name]

    def delegations(self, lane: str) -> frozenset[str]:
        """See TurnRunner.delegations."""
        return frozenset(name for where, name in self._works if where == lane)

    def output(self, lane: str, name: str) -> str:
        """See TurnRunner.output; all work has given the same so far."""
        return "some" if (lane, name) in self._works else ""

    def compress(self, lane: str, session: str, history: Sequence[Message], done: Summed) -> None:
        """See TurnRunner.compress: no script can."""
        done(None, UNABLE)

    def evict(self, lane: str, done: Callable[[int], object] | None = None) -> int:
        """See TurnRunner.evict."""
        size = 0
        if not self._closed and lane in self._warm and not any(name[0] == lane for name in self._playing):
            self._warm.discard(lane)
            size = self._warm_bytes
        if done is not None:
            done(size)
        return size

    async def close(self, grace_s: float) -> None:
        """See TurnRunner.close."""
        self._closed = True
        self._works.clear()
        for turn in list(self._playing.values()):
            late = turn.why is not None
            self._end(turn, _aborted(turn) if late else endings.interrupted(turn.job, "the runner was closed"))

    def running(self) -> tuple[tuple[str, int], ...]:
        """Lane and generation of each turn that has not ended, in the order of their starts."""
        return tuple(self._playing)

    @property
    def live(self) -> int:
        """Turns that run and are wanted, and background work."""
        return sum(1 for turn in self._playing.values() if turn.why is None) + len(self._works)

    def ready(self) -> tuple[tuple[str, int], ...]:
        """Those of them that ``advance`` would move; with -1 for a lane whose background work may end."""
        turns = [name for name, turn in self._playing.items() if self._next(turn) is not None]
        return (
            *turns,
            *dict.fromkeys((lane, -1) for (lane, _), (gives, _) in self._works.items() if gives is not None),
        )

    def advance(self, lane: str, generation: int) -> bool:
        """Let one turn do one thing; False if it is waiting, stuck or over."""
        if generation == -1:
            return self._end_work(lane)
        turn = self._playing.get((lane, generation))
        action = None if turn is None else self._next(turn)
        if action is None:
            return False
        action()
        return True

    def _end_work(self, lane: str) -> bool:
        for (where, name), (gives, tell) in self._works.items():
            if where == lane and gives is not None:
                del self._works[where, name]
                tell(DelegationEnded(name, "completed", gives))
                return True
        return False

    def run(self) -> int:
        """Advance whatever is ready, in order of starts, until nothing is; how many things were done."""
        done = 0
        while ready := self.ready():
            done += sum(self.advance(*name) for name in ready)
        return done

    def _next(self, turn: _Playing) -> Callable[[], None] | None:
        script = turn.script
        if turn.why is not None:
            return None if script.on_cancel == "ignore" else lambda: self._end(turn, _aborted(turn))
        if turn.batch is not None:
            return self._next_call(turn)
        if turn.deltas < len(script.deltas):
            return lambda: self._delta(turn)
        if turn.token:
            return None
        if turn.wishes < len(script.wishes):
            return lambda: self._wish(turn)
        if turn.steps < len(script.steps):
            return lambda: self._offer(turn, script.steps[turn.steps])
        return None if script.end is NEVER else lambda: self._end(turn, _ending(turn))

    def _next_call(self, turn: _Playing) -> Callable[[], None] | None:
        for gated, call in turn.unrun:
            if gated.may_run.done():
                return lambda: self._run_call(turn, gated, call)
        batch = turn.batch
        if batch is None or not all(gated.recorded.done() for gated in batch.calls):
            return None
        return lambda: self._step_done(turn)

    def _delta(self, turn: _Playing) -> None:
        turn.outlet.say(TurnDelta(turn.job.number, turn.job.generation, turn.script.deltas[turn.deltas]))
        turn.deltas += 1

    def _wish(self, turn: _Playing) -> None:
        job, wish = turn.job, turn.script.wishes[turn.wishes]
        turn.wishes += 1
        turn.token = f"{turn.wishes} wish"
        if isinstance(wish, Delegate):
            self._planned[job.lane, job.generation, turn.token] = (turn.script.work, turn.tell)
        turn.outlet.say(TurnAsks(job.number, job.generation, turn.token, wish))

    def _offer(self, turn: _Playing, step: ScriptStep) -> None:
        turn.batch = Batch(step.text, step.serial)
        turn.steps += 1
        for call in step.calls:
            gated = turn.gate.declare(Call(call.name, call.args, lambda: None, call.effects))
            turn.batch.calls.append(gated)
            turn.unrun.append((gated, call))
        if not step.calls:
            turn.batch = None
            return
        turn.gate.offer(turn.batch)

    def _run_call(self, turn: _Playing, gated: Gated, call: ScriptCall) -> None:
        job, batch = turn.job, turn.batch
        assert batch is not None
        turn.unrun.remove((gated, call))
        self.ran.append(
            Ran(job.lane, job.session, job.number, job.generation, job.attempt, gated.tool.id, call.name, call.effects)
        )
        failed = call.error is not None
        turn.gate.finished(batch, gated, call.error if failed else call.result, error=failed)

    def _step_done(self, turn: _Playing) -> None:
        batch = turn.batch
        assert batch is not None
        turn.batch = None
        raised = [call.error for call in turn.script.steps[turn.steps - 1].calls if call.error is not None]
        if raised:
            # Like an agent that doesn't catch what its tool raised.
            self._end(turn, endings.failed(turn.job, RuntimeError(raised[0])))

    def _end(self, turn: _Playing, ended: TurnEnded) -> None:
        self._playing.pop((turn.job.lane, turn.job.generation), None)
        turn.gate.close("the turn has ended")
        turn.outlet.end(ended)


def _ending(turn: _Playing) -> TurnEnded:
    end = turn.script.end
    if isinstance(end, BaseException):
        return endings.failed(turn.job, end)
    try:
        return endings.completed(turn.job, end)
    except SeriatimError as exc:
        return endings.failed(turn.job, exc)


def _aborted(turn: _Playing) -> TurnEnded:
    late = _ending(turn) if turn.script.on_cancel == "answer" and turn.script.end is not NEVER else None
    return endings.aborted(turn.job, turn.why or "", late)
