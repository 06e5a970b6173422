"""A dispatcher in which chance is a seed and time is virtual.

One thread, one seeded generator. Each step lets one runnable mailbox handle one envelope, or one timer fire; which,
the seed decides. The same seed gives the same run on Python 3.11 to 3.13 and under any hash seed; ``checksum`` is a
crc32 over every step, to prove it.

Fault model, what a run may contain:

- any interleaving of actors, one envelope at a time; mail stays in order within each mailbox;
- timers that fire while actors are runnable (*timer_bias*). Time passes only at a timer, so an actor can be arbitrarily
  slow against one. Without this, bugs of the kind "evicted while an append was in flight" are never found;
- an actor that dies before any envelope, or in on_start, with any error (*before_envelope* returns it);
- the death of the process before any envelope: *before_envelope* raises, the run ends there, the test looks at what is
  on disk and starts a new world.

Outside of it: real threads and memory shared between them (a directory, receipts), an actor interrupted in the middle
of a handler, time that passes inside a handler, the loop dispatcher's batches of sixteen envelopes and its hand-off
moments, messages lost or doubled (between actors there are none), and whatever reads a clock, a random number, an id
or the order of a set of strings behind our back.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from attrs import frozen

from seriatim.clock import Clock
from seriatim.errors import DispatcherClosedError, SimulationDeadlockError, SimulationEndlessError

from .contained import ContainedMailbox
from .dispatch import Runnable
from .refs import Phase, Ref

if TYPE_CHECKING:
    from .futures import PooledFuture

__all__ = [
    "BeforeEnvelope",
    "Envelope",
    "SimulationDispatcher",
    "SteppedClock",
]


class SteppedClock(Clock, Protocol):
    """A clock that the simulation moves; ``seriatim.testing.clock.VirtualClock`` is one."""

    def next_due_ms(self) -> float | None:
        """When the next timer fires, None if none is set."""
        ...

    def fire_next(self) -> bool:
        """Move on to the next timer and fire it."""
        ...


@frozen
class Envelope:
    """What is about to be handled.

    Attributes:
        step: how many steps came before, timers included.
        ref: whose.
        message: the message; None for on_start.
        phase: "start", "receive", or "stop" for the mark that ends the actor.
        runtime: whether it was sent by ``signal``.
    """

    step: int
    ref: Ref[Any]
    message: Any
    phase: Phase
    runtime: bool


BeforeEnvelope: TypeAlias = Callable[[Envelope], BaseException | None]


def describe_type(message: Any) -> str:
    """What the trace says of a message by default: its class."""
    return type(message).__qualname__


class SimulationDispatcher:
    """Runs actors of an ``ActorSystem`` one envelope a step, in an order drawn from *seed*.

    Attributes:
        seed: what to print when a test fails; the same seed replays the run.
        steps: steps made, timers included.
        checksum: crc32 over all steps.
        trace: the steps as text, if *keep_trace*.
    """

    def __init__(
        self,
        seed: int,
        clock: SteppedClock,
        *,
        timer_bias: float = 0.2,
        before_envelope: BeforeEnvelope | None = None,
        describe: Callable[[Any], str] = describe_type,
        keep_trace: bool = False,
        name: str = "simulation",
    ) -> None:
        """
        Args:
            seed: decides everything that chance may decide.
            clock: virtual; its timers fire as steps of the simulation.
            timer_bias: how likely the next timer fires although actors are runnable, 0 to 1.
            before_envelope: called before each envelope; an error it returns kills the actor there, one it raises ends
                the run and reaches the caller of ``step``.
            describe: a message's text in the trace; must not contain addresses or the order of a set.
            keep_trace: keep the text of each step, not only the checksum.
            name: for error texts.
        """
        self.seed = seed
        self.name = name
        self.clock = clock
        self.timer_bias = timer_bias
        self.before_envelope = before_envelope
        self.steps = 0
        self.checksum = 0
        self.trace: list[str] = []
        self._describe = describe
        self._keep_trace = keep_trace
        self._ready: list[ContainedMailbox] = []
        # Only random() is used: of the generator's methods it alone promises the same sequence in every version.
        self._random = random.Random(seed).random
        self._closed = False

    def schedule(self, *mailboxes: Runnable) -> None:
        """Make them some of those the seed chooses from."""
        if self._closed:
            raise DispatcherClosedError(f"dispatcher {self.name!r} is closed")
        for mailbox in mailboxes:
            if not isinstance(mailbox, ContainedMailbox):
                raise TypeError("the simulation runs actors started by an ActorSystem")
            self._ready.append(mailbox)

    def before_wait(self, future: PooledFuture[Any], /) -> None:
        """A test blocks on an answer: run until it is there."""
        while not future.ready:
            if not self.step():
                raise SimulationDeadlockError(f"seed {self.seed}: nothing in {self.name!r} can answer any more")

    def close(self) -> None:
        """Take no more mailboxes."""
        self._closed = True

    @property
    def idle(self) -> bool:
        """Whether no mailbox is runnable; timers may be set all the same."""
        return not self._ready

    def step(self) -> bool:
        """Handle one envelope or fire one timer; False if there is neither."""
        due_ms = self.clock.next_due_ms()
        if not self._ready:
            return due_ms is not None and self._fire(due_ms)
        if due_ms is not None and self.timer_bias and self._random() < self.timer_bias:
            return self._fire(due_ms)
        self._run(self._draw())
        return True

    def run_until_idle(self, *, until_ms: float | None = None, steps_max: int = 1_000_000) -> int:
        """Step until no mailbox is runnable and no timer is due.

        Args:
            until_ms: timers later than this monotonic time stay set; None fires them all.
            steps_max: a bound on the run.

        Returns:
            The steps made.

        Raises:
            SimulationEndlessError: it was still busy after *steps_max* steps.
        """
        begun = self.steps
        while self.steps - begun < steps_max:
            due_ms = self.clock.next_due_ms()
            beyond = due_ms is None or (until_ms is not None and due_ms > until_ms)
            if not self._ready and beyond:
                return self.steps - begun
            if beyond:
                self._run(self._draw())
            else:
                self.step()
        raise SimulationEndlessError(f"seed {self.seed}: {self.name!r} still busy after {steps_max} steps")

    def _draw(self) -> ContainedMailbox:
        ready = self._ready
        chosen = int(self._random() * len(ready))
        ready[chosen], ready[-1] = ready[-1], ready[chosen]
        return ready.pop()

    def _fire(self, due_ms: float) -> bool:
        self._record(f"timer {due_ms:.3f}")
        return self.clock.fire_next()

    def _run(self, mailbox: ContainedMailbox) -> None:
        phase, message, runtime = mailbox.peek()
        self._record(f"{phase} {mailbox.name} {self._describe(message) if phase == 'receive' else ''}")
        if phase is not None and self.before_envelope is not None:
            error = self.before_envelope(Envelope(self.steps - 1, mailbox.ref, message, phase, runtime))
            if error is not None:
                mailbox.kill(error)
                return
        if mailbox.activate(1):
            self._ready.append(mailbox)

    def _record(self, line: str) -> None:
        self.steps += 1
        self.checksum = zlib.crc32(line.encode(), self.checksum)
        if self._keep_trace:
            self.trace.append(line)
