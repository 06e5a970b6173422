"""What the supervisor knows of each lane that is served, or about to be; its helpers work on the same records."""

from __future__ import annotations

from typing import Any, Literal

from attrs import Factory, define

from seriatim.actors.refs import Ref
from seriatim.actors.session import FOR_SUCCESSOR
from seriatim.gate import Gate
from seriatim.mail import Inbound, Mail

State = Literal[
    "fencing", "reading", "live", "halting", "parked", "passivating", "backing off", "unwinding", "quarantined"
]


@define
class LaneRecord:
    """What the supervisor knows of one lane."""

    key: str
    incarnation: int
    state: State
    held: list[Mail] = Factory(list)
    ref: Ref[Any] | None = None
    gate: Gate | None = None
    live_generation: int = 0
    crashes: int = 0
    unread: int = 0
    restarted_at: float = 0.0
    poison: dict[str, int] | None = None
    """How often it died at which message; nearly no lane ever does."""
    last: Inbound | None = None
    """The message at which it died last, if it was one."""
    failing: bool = False
    """Its next incarnation, or the one that lives, only tells the user that it is given up."""
    unwinding: int = 0
    """The generation of a cancelled turn that may still run; 0 when there is none."""
    asked_by: Ref[Any] | None = None
    """Who waits for the end of its passivation."""
    cancelled: int = 0
    """The generation that was cancelled last because its lane died: its end is no turn's end."""

    def take_over(self) -> bool:
        """End the incarnation that says it is over; what it leaves unserved stands before what came here meanwhile.

        False: it has died since it said so, and its crash, which has its mail, is on the way.
        """
        assert self.ref is not None
        assert self.gate is not None
        left = self.ref.dismiss()
        if left is None:
            return False
        self.held[:0] = [*self.gate.leftover(), *(mail for mail in left if isinstance(mail, FOR_SUCCESSOR))]
        self.ref = self.gate = None
        return True
