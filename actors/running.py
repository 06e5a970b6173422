"""What the gateway knows of the turns that run: their last sign of life, and what they have shown of their reply.

A turn is silent while its agent gives no sign: no piece of text, no step, no tool result. One that is silent for too
long is ended by its lane as ``timeout``, whether or not its agent hears of it. What the agent waits for isn't its own
silence: the commits of its steps and results, and the answers of people that it asked.

One timer serves all turns: a plain turn costs an entry. None of this is durable; what a turn has shown is kept with
its end if that isn't its answer (see ``recovery.close_turn``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from msgspec import Struct

from seriatim.clock import Clock, Timer
from seriatim.limits import PARTIAL_CHARS_MAX
from seriatim.mail import TurnBroken

SILENT: Final = "no sign of life for {0:g} s"


QUIET_MS: Final = 500
"""A turn that has just asked may go on with something else meanwhile: it gives a sign of that, or waits only."""


class _Run(Struct, eq=False):
    """One turn: since when it is silent (monotonic ms), what holds it up, what it has shown.

    ``people``: those of the answers it waits for that are people's to give; ``calls``: tools that run.
    """

    turn: int
    generation: int
    since: float
    commits: bool = False
    asks: int = 0
    people: int = 0
    calls: int = 0
    ended: bool = False
    shown: list[str] | None = None
    chars: int = 0


class RunningTurns:
    """One for all lanes, by their keys. Loop thread only.

    ``silence_ms``: how long a turn may be silent, 0 for ever. ``tell(lane, mail)`` reaches a lane.
    """

    def __init__(self, clock: Clock, silence_ms: int, tell: Callable[[str, Any], None]) -> None:
        self.silence_ms = silence_ms
        self._clock = clock
        self._tell = tell
        self._runs: dict[str, _Run] = {}
        self._timer: Timer | None = None

    def begin(self, lane: str, turn: int, generation: int) -> None:
        """The lane's turn starts now; the one before is forgotten."""
        self._runs[lane] = _Run(turn, generation, self._clock.monotonic_ms())
        if self._timer is None:
            self._watch()

    def over(self, lane: str) -> None:
        """The lane's turn has ended, durably."""
        self._runs.pop(lane, None)

    def close(self) -> None:
        """The gateway stops: nobody's silence is measured any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.silence_ms = 0

    def says(self, lane: str, generation: int, text: str) -> None:
        """A piece of the reply is shown; without text, the agent only says that it lives."""
        run = self._of(lane, generation)
        if run is None:
            return
        run.since = self._clock.monotonic_ms()
        if text and run.chars < PARTIAL_CHARS_MAX:
            if run.shown is None:
                run.shown = []
            run.shown.append(text[: PARTIAL_CHARS_MAX - run.chars])
            run.chars += len(text)

    def tells(self, lane: str, generation: int, *, text: bool = False, calls: int = 0) -> None:
        """The agent told what needs a commit, and waits for it. ``text``: what it has shown is said by that. ``calls``:
        so many tools more run then (or less).
        """
        run = self._of(lane, generation)
        if run is not None:
            run.since = self._clock.monotonic_ms()
            run.commits = True
            run.calls = max(0, run.calls + calls)
            if text:
                run.shown, run.chars = None, 0

    def goes_on(self, lane: str, generation: int) -> None:
        """What the agent waited for is durable."""
        run = self._of(lane, generation)
        if run is not None:
            run.since = self._clock.monotonic_ms()
            run.commits = False
            if self._timer is None:
                self._watch()

    def asks(self, lane: str, generation: int, more: int, *, people: bool) -> None:
        """The agent waits for ``more`` answers more (or less) from outside; ``people``: a person has to give them."""
        run = self._of(lane, generation)
        if run is not None:
            run.since = self._clock.monotonic_ms()
            run.asks = max(0, run.asks + more)
            if people:
                run.people = max(0, run.people + more)
            if self._timer is None:
                self._watch()

    @property
    def waiting(self) -> int:
        """Turns that do nothing but wait for people's answers, as far as can be seen from here."""
        now = self._clock.monotonic_ms()
        return sum(
            0 < run.people == run.asks and run.calls <= run.people and now - run.since >= QUIET_MS
            for run in self._runs.values()
        )

    def shown(self, lane: str, generation: int) -> str:
        """What the turn has shown and not said in a message since."""
        run = self._of(lane, generation)
        return "" if run is None or run.shown is None else "".join(run.shown)

    def _watch(self) -> None:
        if self.silence_ms:
            self._timer = self._clock.call_later(self.silence_ms, self._look)

    def _of(self, lane: str, generation: int) -> _Run | None:
        run = self._runs.get(lane)
        return run if run is not None and run.generation == generation else None

    def _look(self) -> None:
        """End whoever has been silent for too long; look again when the next may be."""
        self._timer = None
        now = self._clock.monotonic_ms()
        oldest: float | None = None
        for lane, run in list(self._runs.items()):
            if run.ended or run.commits or run.asks:
                continue  # who goes on begins to be watched again
            if now - run.since >= self.silence_ms:
                run.ended = True  # what it has shown is still wanted
                detail = SILENT.format(self.silence_ms / 1000)
                self._tell(lane, TurnBroken(run.turn, run.generation, detail, "timeout"))
                continue
            oldest = run.since if oldest is None else min(oldest, run.since)
        if oldest is not None and self.silence_ms:
            # A whole millisecond at least: sums of floats may fall short of the time for ever.
            self._timer = self._clock.call_later(max(1.0, oldest + self.silence_ms - now), self._look)
