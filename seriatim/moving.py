"""A command that asks for another lane's session: the supervisor decides it, and says so where it is not moved."""

from __future__ import annotations

from typing import Final

from seriatim.batch import Batch
from seriatim.effects import Ack, AckDuplicate, Finished, MoveHere
from seriatim.inbox import accepted_data, reply_target
from seriatim.mail import MoveRefused

MOVE_TEXTS: Final = {
    "same": "That is the conversation that you are in.",
    "busy": "One of the two conversations is busy; try again when it has answered.",
    "changed": "This conversation has just changed; look again and repeat it if you still want to.",
    "unknown": "There is no such conversation.",
}
MOVE_UNAVAILABLE_TEXT: Final = "The conversation can't be changed now; try again later."


class Moving(Exception):  # noqa: N818  (no error: the message is somebody else's to decide)
    """Raised by a rule before it drafts anything: ``order`` goes to the supervisor, and the message with it.

    The gate makes durable what came before, and holds what comes behind until the answer is there: MoveRefused, or the
    end of the incarnation, since a move that is made begins a new one. So all of it is said in the right conversation.
    """

    def __init__(self, order: MoveHere) -> None:
        super().__init__(order.session)
        self.order = order


def move_refused(batch: Batch, m: MoveRefused) -> None:
    """Accept the command and answer it, in one commit."""
    command = m.command
    if command.key and command.key in batch.keys:
        batch.after.append(AckDuplicate(command.id))
        return
    if command.key:
        batch.keys[command.key] = None
    text = MOVE_TEXTS.get(m.outcome, MOVE_UNAVAILABLE_TEXT)
    batch.lane("inbox/accepted", accepted_data(command, "command"))
    target = reply_target(batch, command.id)
    batch.lane("inbox/answered", {"id": command.id, "by": "command", "end": "completed"})
    batch.after.append(Ack(command.id, "accepted", batch.state.bound or "", 0))
    batch.after.append(Finished(command.id, "answered", text, "completed"))
    batch.owe(text, target)
