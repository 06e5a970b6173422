"""Operators: who may do what concerns everybody. Named by platform and stable id, never by a name.

The platform's ids are as good as its login: on IRC a nick is nobody's for ever, so name operators only where nicks are
guarded.
"""

from __future__ import annotations

from typing import Final

from seriatim.answering import accept_command, answer_command, say
from seriatim.batch import Batch
from seriatim.effects import RestartGateway
from seriatim.mail import Inbound
from seriatim.model import SessionSource

OPERATORS_ONLY_TEXT: Final = "Only operators may do that."
RESTARTING_TEXT: Final = "Restarting: running turns may end first, and nothing is lost."


def is_operator(source: SessionSource, operators: frozenset[str]) -> bool:
    """Whether a message from ``source`` is an operator's; a bot's never is."""
    if source.is_bot:
        return False
    platform = source.platform.name
    ids = (source.user_id, source.user_id_alt)
    return any(stable is not None and f"{platform}:{stable}" in operators for stable in ids)


def restart_command(batch: Batch, m: Inbound) -> None:
    """/restart: the gateway drains and starts anew, once this command is durable: a redelivery of it does nothing."""
    if not is_operator(m.event.source, batch.rules.operators):
        say(batch, m, OPERATORS_ONLY_TEXT)
        return
    accept_command(batch, m)
    answer_command(batch, m, RESTARTING_TEXT)
    batch.after.append(RestartGateway())
