"""Closing what a dead incarnation left open, and taking up what is owed.

Idempotent by construction: everything it does is drafted from the state, and changes the state so that a
second run finds nothing to do.
"""

from __future__ import annotations

from typing import Final

from seriatim.batch import Batch
from seriatim.closers import closing
from seriatim.effects import Deliver, Finished, Owes
from seriatim.events import Data
from seriatim.inbox import reply_target
from seriatim.lane import Owed, Running
from seriatim.limits import INTERRUPTIONS_MAX
from seriatim.mail import Recover

GIVEN_UP_TEXT = (
    "Your message was interrupted {times} times and has been given up. "
    "The conversation before it is kept; your next message starts a new one."
)


WAITED: Final = {"shutdown_timeout": "shutdown_waiting", "restart_timeout": "restart_waiting"}
"""How a turn is marked that a stop found waiting for a person's answer. Such a stop is nobody's failure, and so no step
towards giving the turn up."""


def recover(batch: Batch, message: Recover) -> None:
    """The crash plan of an incarnation, as drafts and effects. The caller starts the next turn."""
    state = batch.state
    running = state.running
    take_up_all(batch)
    if running is not None and running.generation != message.live_generation:
        close_turn(batch, "interrupted")
        data: Data = {"ids": list(running.ids), "generation": running.generation}
        if state.resume_reason in WAITED.values() and state.resume_marked_at >= running.since:
            data["waited"] = True
        batch.lane("inbox/interrupted", data)
        if state.interruptions >= INTERRUPTIONS_MAX:
            _give_up(batch, running)
        elif state.resume_reason is None or state.resume_marked_at < running.since:
            batch.lane("resume/marked", {"reason": message.reason})


def _give_up(batch: Batch, running: Running) -> None:
    to = reply_target(batch, running.ids[0])
    batch.lane("inbox/dropped", {"ids": list(running.ids), "reason": "interrupted"})
    batch.after.extend(Finished(inbox_id, "dropped", None, "interrupted") for inbox_id in running.ids)
    batch.lane("route/suspended", {"reason": "interrupted"})
    batch.owe(GIVEN_UP_TEXT.format(times=INTERRUPTIONS_MAX), to)


def take_up_all(batch: Batch) -> None:
    """Tell delivery all that the lane owes, and to take it up."""
    batch.after.append(Owes(tuple(batch.state.owed)))
    batch.after.extend(map(take_up, batch.state.owed.values()))


def take_up(owed: Owed) -> Deliver:
    """What delivery has to do about a debt that it may not know."""
    due = tuple(i for i, part in enumerate(owed.states) if not part.done)
    return Deliver(owed.id, owed.texts, owed.target, due, False, owed.since, owed.until, owed.draft)


def close_turn(batch: Batch, kind: str, detail: str | None = None) -> str:
    """Draft the end of the session's open turn: a result for each open call, what it has shown, step end, turn end.

    Gives back what it had shown of an answer that won't come; "" for a completed turn, or one that runs again.
    """
    part = batch.state.session
    if part is None or part.open is None:
        return ""
    shown = ""
    if kind not in ("completed", "interrupted") and (running := batch.state.running) is not None:
        shown = batch.now.streamed(batch.state.key, running.generation)
    closing(part.open, batch.session, kind, detail, shown)
    return shown


def with_shown(batch: Batch, shown: str, text: str) -> str:
    """What a person is told of a turn that broke off: where the rules say so, with what it had shown before."""
    return f"{shown}\n\n{text}" if shown.strip() and batch.rules.partial == "send" else text
