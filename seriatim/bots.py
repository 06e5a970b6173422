"""Bots among the people: a bound on exchanges, since two bots that answer each other never end."""

from __future__ import annotations

from seriatim.batch import Batch
from seriatim.effects import Ack, Finished
from seriatim.inbox import accepted_data
from seriatim.limits import BOTS_REST_MS
from seriatim.mail import Inbound

TOO_MANY: str = "bots"
"""Reason of the drop."""


def too_many_bots(batch: Batch, m: Inbound) -> bool:
    """Whether a bot's message is one too many in a row; then it is taken in and dropped, so that its platform may
    forget it. A person's word, or a while without any bot's, begins a new exchange.
    """
    state = batch.state
    rested = batch.now.time - state.bots_at > BOTS_REST_MS
    if (0 if rested else state.bots) < batch.rules.bot_exchanges_max:
        return False
    if m.key:
        batch.keys[m.key] = None
    batch.size += m.size
    batch.lane("inbox/accepted", accepted_data(m, "command" if m.command else "human"))
    batch.after.append(Ack(m.id, "accepted", state.bound or "", 0))
    batch.lane("inbox/dropped", {"ids": [m.id], "reason": TOO_MANY})
    batch.after.append(Finished(m.id, "dropped", None, TOO_MANY))
    return True
