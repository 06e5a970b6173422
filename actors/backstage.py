"""Behind a running turn: what its agent may use, each made when it first does. Most agents only answer."""

from __future__ import annotations

import asyncio

from msgspec import Struct

from seriatim.actors.delegating import Delegations
from seriatim.actors.mailbox import StopFlag
from seriatim.actors.outlet import Outlet, Tell
from seriatim.actors.steps import StepGate
from seriatim.actors.wishes import Wishes
from seriatim.prompts import Prompts
from seriatim.turn import TurnJob


class Backstage(Struct, eq=False):
    """One running turn. ``tell`` reaches its lane, also after its end; ``loop`` runs the coroutine tools of plain
    functions; ``why``: for that it was cancelled. ``gate``, ``wishes`` and ``flag`` are None until they are used.

    Any thread: what is made here is made under the outlet's lock.
    """

    job: TurnJob
    outlet: Outlet
    tell: Tell
    prompts: Prompts
    delegations: Delegations | None = None
    loop: asyncio.AbstractEventLoop | None = None
    why: str | None = None
    gate: StepGate | None = None
    wishes: Wishes | None = None
    flag: StopFlag | None = None

    def steps(self) -> StepGate:
        """The gate of its calls."""
        with self.outlet.lock:
            if self.gate is None:
                self.gate = StepGate(self.job, self.outlet, self.loop)
                if self.why is not None:
                    self.gate.close(self.why)
            return self.gate

    def asks(self) -> Wishes:
        """What its agent asks of its lane."""
        with self.outlet.lock:
            if self.wishes is None:
                self.wishes = Wishes(self.job, self.outlet)
                if self.why is not None:
                    self.wishes.close(self.why)
            return self.wishes

    def cancelled(self) -> StopFlag:
        """Set once the answer is no longer wanted."""
        with self.outlet.lock:
            if self.flag is None:
                self.flag = StopFlag()
                if self.why is not None:
                    self.flag.set()
            return self.flag

    def cancel(self, why: str) -> None:
        """The answer is no longer wanted: only the end passes, and who waits for a call or an answer hears ``why``."""
        with self.outlet.lock:
            self.why = why  # from here on nothing is made that isn't closed
            self.outlet.mute()
        if self.flag is not None:
            self.flag.set()
        self.close(why)

    def close(self, why: str) -> None:
        """The turn is over: whoever waits gets TurnCancelledError. Idempotent."""
        if self.gate is not None:
            self.gate.close(why)
        if self.wishes is not None:
            self.wishes.close(why)
