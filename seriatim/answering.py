"""What every command does besides its own: it is accepted, answered and its reply owed in one commit.

A module of its own, so that commands can live in several without knowing each other.
"""

from __future__ import annotations

from seriatim.batch import Batch
from seriatim.effects import Ack, Finished
from seriatim.inbox import accepted_data, reply_target
from seriatim.mail import Inbound


def accept_command(batch: Batch, m: Inbound) -> None:
    """Draft that the command was taken in; it never waits in the queue."""
    batch.lane("inbox/accepted", accepted_data(m, "command"))


def answer_command(batch: Batch, m: Inbound, text: str) -> None:
    """Draft the answer to an accepted command: its outcome, and the reply that is owed."""
    to = reply_target(batch, m.id)
    batch.lane("inbox/answered", {"id": m.id, "by": "command", "end": "completed"})
    batch.after.append(Ack(m.id, "accepted", batch.state.bound or "", 0))
    batch.after.append(Finished(m.id, "answered", text, "completed"))
    batch.owe(text, to)


def say(batch: Batch, m: Inbound, text: str) -> None:
    """A command that only answers."""
    accept_command(batch, m)
    answer_command(batch, m, text)


def drop(batch: Batch, ids: tuple[str, ...], reason: str) -> None:
    """Draft that waiting messages are given up, and tell whoever waits for them."""
    batch.lane("inbox/dropped", {"ids": list(ids), "reason": reason})
    batch.after.extend(Finished(inbox_id, "dropped", None, reason) for inbox_id in ids)
