"""Commands: accepted, acted on, answered and their reply owed in one commit.

A command is never stored as user text and can't become stale: when it is durable, it has been done.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from seriatim.answering import accept_command, answer_command, drop, say
from seriatim.approvals import approve, deny
from seriatim.batch import Batch
from seriatim.breaking import end_running
from seriatim.catalog import help_text, unknown_text
from seriatim.compressing import compress_command
from seriatim.delegations import end_delegations
from seriatim.inbox import abandon
from seriatim.mail import Inbound
from seriatim.operators import restart_command
from seriatim.queue_commands import queue_command
from seriatim.resuming import resume_command
from seriatim.surface_commands import redo_command, retry_command, undo_command
from seriatim.titles import entitle, title_command, title_of
from seriatim.wakes import leave_session, promote_wake

STOPPED_TEXT: Final = "Stopped. Your next message starts a new conversation; {0}resume {1} goes on with this one."
STOPPED_KEPT_TEXT: Final = "Stopped."
DROPPED_TEXT: Final = " What you said meanwhile is dropped."
NOTHING_TO_STOP_TEXT: Final = "No active task to stop."
NEW_TEXT: Final = "New conversation."
NEW_TITLED_TEXT: Final = "New conversation: {}."


def parse_command(text: str, prefix: str) -> tuple[str, str] | None:
    """The command and its argument text, or None when ``text`` is not a command.

    A command is the prefix followed by letters, at the very beginning. Names are case-insensitive.
    """
    if not prefix or not text.startswith(prefix):
        return None
    rest = text[len(prefix) :]
    name, *args = rest.split(maxsplit=1)[:2] or ("",)
    if not rest.startswith(name) or not name.isascii() or not name.isalpha() or len(name) > 32:
        return None
    return name.lower(), args[0].strip() if args else ""


def _new(batch: Batch, m: Inbound) -> None:
    accept_command(batch, m)
    end_running(batch, "new")
    end_delegations(batch)
    _drop_where(batch, lambda kind: kind != "wake", "reset")
    leave_session(batch)
    batch.bind_new(m.command, "fresh")
    title = entitle(batch, m.args)
    answer_command(batch, m, NEW_TITLED_TEXT.format(title) if title else NEW_TEXT)


def _stop(batch: Batch, m: Inbound) -> None:
    state = batch.state
    accept_command(batch, m)
    ran = state.running is not None or bool(state.interrupted or state.delegations)
    waited = bool(state.queue) and state.queue[0].kind == "human"
    if not ran:
        _abandon_unsent(batch)
    end_running(batch, "user")
    end_delegations(batch)
    for held in state.interrupted:
        drop(batch, held.ids, "stop")
    if state.resume_reason is not None:
        batch.lane("resume/cleared", {})
    if waited:
        drop(batch, state.queue[0].ids, "stop")
        promote_wake(batch)
    suspend = ran and batch.rules.stop_suspends
    if suspend:
        batch.lane("route/suspended", {"reason": "stop"})
    text = (
        STOPPED_TEXT.format(m.prefix, state.bound)
        if suspend
        else STOPPED_KEPT_TEXT
        if ran or waited
        else NOTHING_TO_STOP_TEXT
    )
    answer_command(batch, m, text + DROPPED_TEXT if waited else text)


def _status(batch: Batch, m: Inbound) -> None:
    state = batch.state
    accept_command(batch, m)
    waiting = len(state.waiting) - 1  # without this command
    title = title_of(state, state.bound)
    lines = [
        f"Conversation: {state.bound or 'none yet'}"
        + (f", {title!r}" if title else "")
        + (" (stopped)" if state.suspended_at is not None else ""),
        f"State: {state.phase}; waiting: {waiting}; owed replies: {len(state.owed)}",
        f"Answered so far: {state.answered}; merged: {state.merged}; dropped: {state.dropped}",
    ]
    answer_command(batch, m, "\n".join(lines))


def _help(batch: Batch, m: Inbound) -> None:
    say(batch, m, help_text(m.prefix, m.args))


def unknown_command(batch: Batch, m: Inbound) -> None:
    """Answer a command that nobody knows, helpfully; it never becomes a prompt."""
    say(batch, m, unknown_text(m.prefix, m.command))


def _drop_where(batch: Batch, chosen: Callable[[str], bool], reason: str) -> None:
    for held in batch.state.interrupted:
        if chosen(held.kind):
            drop(batch, held.ids, reason)
    for entry in list(batch.state.queue):
        if chosen(entry.kind):
            drop(batch, entry.ids, reason)


def _abandon_unsent(batch: Batch) -> None:
    """Give up the parts of finished turns' replies that surely nobody has tried to send yet."""
    for owed in list(batch.state.owed.values()):
        if not owed.turn or batch.now.channel(owed.target).idempotent:
            continue
        for index, part in enumerate(owed.states):
            if not part.done and not part.attempts and not part.first:
                abandon(batch, owed, index, "stop")
                break


COMMANDS: Final[dict[str, Callable[[Batch, Inbound], None]]] = {
    "new": _new,
    "reset": _new,
    "stop": _stop,
    "queue": queue_command,  # with a text it is no command but a message with a turn of its own
    "undo": undo_command,
    "redo": redo_command,
    "retry": retry_command,
    "title": title_command,
    "compress": compress_command,
    "resume": resume_command,
    "restart": restart_command,
    "status": _status,
    "help": _help,
    "approve": approve,
    "deny": deny,
}
