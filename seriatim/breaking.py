"""Breaking a running turn off: by a command, or by a message that doesn't wait for its end."""

from __future__ import annotations

from seriatim.batch import Batch
from seriatim.effects import CancelTurn
from seriatim.inbox import end_claims, reply_target
from seriatim.recovery import close_turn, with_shown


def end_running(batch: Batch, why: str) -> None:
    """End the running turn, if there is one, as aborted for the reason ``why``: its messages have had their turn.

    What it had shown stays in the conversation; the agent is told to stop once all that is durable.
    """
    running = batch.state.running
    if running is None:
        return
    to = reply_target(batch, running.ids[0])
    shown = close_turn(batch, "aborted", why)
    end_claims(batch, "aborted", None)
    if said := with_shown(batch, shown, ""):
        batch.owe(said, to, running.turn)
    else:
        batch.lane("delivery/none", {"turn": running.turn, "reason": f"aborted: {why}"})
    batch.after.append(CancelTurn(running.generation, why))
    batch.return_slot()
