"""What a platform gives late, its backlog after an outage say: an old command does nothing, an old text may be left."""

from __future__ import annotations

from typing import Final

from seriatim.answering import drop, say
from seriatim.batch import Batch
from seriatim.effects import Ack
from seriatim.inbox import accepted_data
from seriatim.mail import Inbound

STALE_TEXT: Final = "This command was sent {ago} ago and was not carried out. Send it again if you still mean it."


def is_stale(batch: Batch, m: Inbound) -> bool:
    """Whether the message was sent longer ago than its kind may wait; never where its platform gave no time, or a later
    one than ours.
    """
    sent = m.event.received_at
    if sent is None or m.event.internal:
        return False
    rules = batch.rules
    most = rules.command_age_ms_max if _is_order(m) else rules.text_age_ms_max
    return most is not None and batch.now.time - sent > most


def turn_away(batch: Batch, m: Inbound) -> None:
    """Accept it with its end: a command is answered and does nothing, a text is dropped."""
    if _is_order(m):
        assert m.event.received_at is not None
        say(batch, m, STALE_TEXT.format(ago=_told(batch.now.time - m.event.received_at)))
        return
    kind = "queue" if m.command else "human"
    batch.lane("inbox/accepted", accepted_data(m, kind))
    batch.after.append(Ack(m.id, "accepted", batch.state.bound or "", 0))
    drop(batch, (m.id,), "stale")


def _is_order(m: Inbound) -> bool:
    """Whether it acts at once; what /queue takes along is a text."""
    return bool(m.command) and not (m.command == "queue" and m.args)


def _told(age_ms: int) -> str:
    minutes = age_ms // 60_000
    hours, days = minutes // 60, minutes // 1440
    for count, unit in ((days, "day"), (hours, "hour"), (minutes, "minute")):
        if count:
            return f"{count} {unit}{'s' if count > 1 else ''}"
    return "less than a minute"
