"""The scripted agent: runs turns with steps and tools, fails, stays silent, ignores being cancelled."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from attrs import Factory, define

from seriatim.effects import Proceed, ReleaseCalls, RunTurn
from seriatim.mail import Mail
from seriatim.turn import StepOffered, ToolCall, ToolFinished, TurnEnded


@define
class Run:
    """One turn being run. ``steps``: how many are left before it ends."""

    lane: str
    effect: RunTurn
    steps: int
    cancelled: bool = False
    ended: bool = False
    waits: str = ""
    calls: int = 0


@define
class Agents:
    """Every running turn of the process, by lane and generation."""

    rng: Random
    post: Callable[[str, Mail], None]
    later: Callable[[int, Callable[[], None]], None]
    runs: dict[tuple[str, int], Run] = Factory(dict)

    def live(self, lane: str) -> list[Run]:
        """Turns of ``lane`` that run on and were not cancelled."""
        return [r for r in self.runs.values() if r.lane == lane and not r.cancelled and not r.ended]

    def start(self, lane: str, effect: RunTurn) -> None:
        """Begin a turn."""
        run = Run(lane, effect, self.rng.choice((0, 0, 0, 1, 2)))
        self.runs[lane, effect.generation] = run
        self._soon(run)

    def cancel(self, lane: str, generation: int) -> None:
        """Ask a turn to stop; half of the agents don't listen."""
        run = self.runs.get((lane, generation))
        if run is None or run.ended or run.cancelled:
            return
        run.cancelled = True
        if self.rng.random() < 0.5:
            run.steps = 0
            run.waits = ""
        self._soon(run)

    def release(self, lane: str, effect: ReleaseCalls) -> None:
        """Calls are recorded: run them."""
        run = self.runs.get((lane, effect.generation))
        for call in effect.calls:
            if run is not None and run.waits == "release " + call:
                run.waits = ""
                self.later(self.rng.randint(1, 60), lambda call=call: self._finish(run, call))  # type: ignore[misc]

    def proceed(self, lane: str, effect: Proceed) -> None:
        """A result is durable: go on."""
        run = self.runs.get((lane, effect.generation))
        if run is not None and run.waits == "proceed " + effect.call_id:
            run.waits = ""
            self._soon(run)

    def _soon(self, run: Run) -> None:
        self.later(self.rng.choice((1, 20, 150, 600)), lambda: self._go_on(run))

    def _go_on(self, run: Run) -> None:
        if run.ended or run.waits:
            return
        effect = run.effect
        if run.steps > 0:
            run.steps -= 1
            run.calls += 1
            call = f"c{effect.generation}.{run.calls}"
            run.waits = "release " + call
            self.post(run.lane, StepOffered(effect.number, effect.generation, "", (ToolCall(call, "tool", {}),)))
            return
        run.ended = True
        fate = self.rng.random()
        if run.cancelled and fate < 0.5:
            ended = TurnEnded(effect.number, effect.generation, "aborted", None, detail="cancelled")
        elif fate < 0.08:
            ended = TurnEnded(effect.number, effect.generation, "failed", None, detail="scripted")
        elif fate < 0.12:
            ended = TurnEnded(effect.number, effect.generation, "completed", None)
        else:
            text = f"<g{effect.generation}> " + " ".join(c[0]["id"] for c in effect.claims[:4])
            if fate > 0.9:
                text += " word" * 60
            ended = TurnEnded(effect.number, effect.generation, "completed", text)
        self.post(run.lane, ended)

    def _finish(self, run: Run, call: str) -> None:
        if run.ended:
            return
        run.waits = "proceed " + call
        self.post(run.lane, ToolFinished(run.effect.number, run.effect.generation, call, "ok"))
