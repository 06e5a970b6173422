"""Commands: accepted, acted on, answered and their reply owed in one commit.

A command is never stored as user text and can't become stale: when it is durable, it has been done.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from seriatim.batch import Batch
from seriatim.breaking import end_running
from seriatim.effects import Ack, Finished
from seriatim.inbox import abandon, accepted_data, reply_target
from seriatim.mail import Inbound
from seriatim.wakes import leave_session, promote_wake

HELP_TEXT: Final = (
    "{0}new or {0}reset starts a new conversation; {0}stop ends what is running; "
    "{0}queue TEXT gives TEXT a turn of its own after the others; {0}status tells how things stand."
)
STOPPED_TEXT: Final = "Stopped. Your next message starts a new conversation."
STOPPED_KEPT_TEXT: Final = "Stopped."
DROPPED_TEXT: Final = " What you said meanwhile is dropped."
NOTHING_TO_STOP_TEXT: Final = "No active task to stop."
NEW_TEXT: Final = "New conversation."
QUEUE_USAGE_TEXT: Final = "Say what to queue: {0}queue TEXT"


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
    _accept(batch, m)
    end_running(batch, "new")
    _drop_where(batch, lambda kind: kind != "wake", "reset")
    leave_session(batch)
    batch.bind_new(m.command, "fresh")
    _answer(batch, m, NEW_TEXT)


def _stop(batch: Batch, m: Inbound) -> None:
    state = batch.state
    _accept(batch, m)
    ran = state.running is not None or bool(state.interrupted)
    waited = bool(state.queue) and state.queue[0].kind == "human"
    if not ran:
        _abandon_unsent(batch)
    end_running(batch, "user")
    for held in state.interrupted:
        _drop(batch, held.ids, "stop")
    if state.resume_reason is not None:
        batch.lane("resume/cleared", {})
    if waited:
        _drop(batch, state.queue[0].ids, "stop")
        promote_wake(batch)
    suspend = ran and batch.rules.stop_suspends
    if suspend:
        batch.lane("route/suspended", {"reason": "stop"})
    text = STOPPED_TEXT if suspend else STOPPED_KEPT_TEXT if ran or waited else NOTHING_TO_STOP_TEXT
    _answer(batch, m, text + DROPPED_TEXT if waited else text)


def _status(batch: Batch, m: Inbound) -> None:
    state = batch.state
    _accept(batch, m)
    waiting = len(state.waiting) - 1  # without this command
    lines = [
        f"Conversation: {state.bound or 'none yet'}" + (" (stopped)" if state.suspended_at is not None else ""),
        f"State: {state.phase}; waiting: {waiting}; owed replies: {len(state.owed)}",
        f"Answered so far: {state.answered}; merged: {state.merged}; dropped: {state.dropped}",
    ]
    _answer(batch, m, "\n".join(lines))


def _help(batch: Batch, m: Inbound) -> None:
    _accept(batch, m)
    _answer(batch, m, HELP_TEXT.format(m.prefix))


def unknown_command(batch: Batch, m: Inbound) -> None:
    """Answer a command that nobody knows, helpfully; it never becomes a prompt."""
    _accept(batch, m)
    _answer(batch, m, f"There is no command {m.command!r}. {HELP_TEXT.format(m.prefix)}")


def _queue_usage(batch: Batch, m: Inbound) -> None:
    _accept(batch, m)
    _answer(batch, m, QUEUE_USAGE_TEXT.format(m.prefix))


def _accept(batch: Batch, m: Inbound) -> None:
    batch.lane("inbox/accepted", accepted_data(m, "command"))


def _answer(batch: Batch, m: Inbound, text: str) -> None:
    to = reply_target(batch, m.id)
    batch.lane("inbox/answered", {"id": m.id, "by": "command", "end": "completed"})
    batch.after.append(Ack(m.id, "accepted", batch.state.bound or "", 0))
    batch.after.append(Finished(m.id, "answered", text, "completed"))
    batch.owe(text, to)


def _drop_where(batch: Batch, chosen: Callable[[str], bool], reason: str) -> None:
    for held in batch.state.interrupted:
        if chosen(held.kind):
            _drop(batch, held.ids, reason)
    for entry in list(batch.state.queue):
        if chosen(entry.kind):
            _drop(batch, entry.ids, reason)


def _drop(batch: Batch, ids: tuple[str, ...], reason: str) -> None:
    batch.lane("inbox/dropped", {"ids": list(ids), "reason": reason})
    batch.after.extend(Finished(inbox_id, "dropped", None, reason) for inbox_id in ids)


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
    "status": _status,
    "help": _help,
    "queue": _queue_usage,  # with a text it is no command but a message with a turn of its own
}
