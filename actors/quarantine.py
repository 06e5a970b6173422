"""A lane in quarantine: it keeps dying, so it serves nothing but its user's being told.

Its last incarnation suspends the conversation and owes its user one notice, in one commit, and then only settles that
debt. What was accepted stays waiting, in the log; the next start of the process takes it up in a fresh conversation.
Should even this die, or the logs not be readable, the lane refuses without a word in its log.
"""

from __future__ import annotations

from typing import Any

from seriatim.actors.session import Flush, SessionActor, Tick
from seriatim.commits import Durable, Refused, Unknown
from seriatim.errors import SeriatimError
from seriatim.mail import Ask, AttemptWanted, PartAbandoned, PartFailed, PartSettled, Quarantine, at_the_door

__all__ = ["QuarantinedLane"]

SERVED = frozenset({
    Quarantine, Durable, Refused, Unknown, Tick, Flush, AttemptWanted, PartSettled, PartFailed, PartAbandoned,
})  # fmt: skip


class QuarantinedLane(SessionActor):
    """Tells its user, refuses what comes, starts nothing."""

    def on_receive(self, message: Any) -> None:
        """Refuse inbound mail; what a turn still says goes nowhere, for its turn is open in the log."""
        if (inbound := at_the_door(message)) is not None:
            self._ports.receipts.refuse(inbound.id, "quarantined")
        elif type(message) is Ask:
            self._ports.asks.fail(message.token, SeriatimError("the lane is given up until the next start"))
        elif type(message) in SERVED:
            super().on_receive(message)

    def _keep(self, events: int) -> None:
        """Nothing is tidied up: its turn is open, and the log is evidence."""
        del events
