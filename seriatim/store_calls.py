"""What SessionStore asks of a lane: one value per operation, one rule per value (gateway seed §3).

Each is decided among the lane's other mail and answered when it is durable. A lane without a session answers None or
False: the key is unknown. ``MUTATIONS`` joins the table of questions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, ClassVar, Final, Literal

from attrs import frozen

from seriatim.batch import Batch
from seriatim.breaking import end_running
from seriatim.edits import by_turn, closed_turn, rewrite
from seriatim.effects import ROUTED, Finished
from seriatim.entry import SessionEntry
from seriatim.errors import LaneBusyError
from seriatim.events import Data, Event, lane_log
from seriatim.facts import entry
from seriatim.lane import SessionPart
from seriatim.mail import Recover
from seriatim.model import SessionSource
from seriatim.recovery import close_turn, recover
from seriatim.shown import Shown
from seriatim.surface_commands import taken_back
from seriatim.wakes import leave_session

# ``once``: deciding it twice would do it twice; where nobody knows whether it was done, the caller is told so.

Messages = tuple[tuple[str, Data], ...]
"""Messages of a transcript as event types and data, oldest first (``seriatim.transcripts``)."""


@frozen
class GetOrCreate:
    """The lane's session, made if there is none; ``force_new``: another one in any case."""

    source: SessionSource
    force_new: bool = False


@frozen
class Touch:
    """The host was active; ``last_prompt_tokens``: what its last prompt took."""

    last_prompt_tokens: int | None = None


@frozen
class Reset:
    """A fresh session, as /reset makes one."""

    once: ClassVar[bool] = True
    display_name: str | None = None


@frozen
class Switch:
    """Go on with another session, if the lane is still bound to ``expected`` (None: to whatever it is)."""

    target: str
    expected: str | None = None


@frozen
class Suspend:
    """The next message starts a fresh session."""


@frozen
class MarkResume:
    """The session's turn was interrupted, for ``reason``."""

    reason: str


@frozen
class ClearResume:
    """Nothing is to be resumed."""


@frozen
class Release:
    """Forget the route of a lane that nobody was active on since ``before`` (epoch ms) and that has no open work.

    ``dry_run``: only say whether it would be.
    """

    before: int
    reason: str = "pruned"
    dry_run: bool = False


@frozen
class Append:
    """Add messages to a session of the lane, as closed turns of their own."""

    once: ClassVar[bool] = True
    session: str
    messages: Messages


@frozen
class Rewrite:
    """Show these messages instead of everything."""

    once: ClassVar[bool] = True
    session: str
    messages: Messages


@frozen
class Rewind:
    """Take back the last ``turns`` visible turns, or as many as there are."""

    once: ClassVar[bool] = True
    session: str
    turns: int = 1


@frozen
class RecoverTurn:
    """Close the turn that a dead process left open; mark it for resuming unless it began before ``since`` (ms)."""

    since: int


@frozen
class Import:
    """Take over an old record of a lane that has none."""

    entry: SessionEntry


@frozen
class Elsewhere:
    """The session is another lane's: the supervisor has to move it (Switch), or that lane is to be asked."""

    lane: str


# --- entries -------------------------------------------------------------------------------------------


def _get_or_create(batch: Batch, m: GetOrCreate) -> SessionEntry | None:
    state = batch.state
    source = m.source.to_dict()
    if state.bound is None:
        batch.bind_new("first", facts={"source": source})
    elif m.force_new:
        _renew(batch, "force_new", "none", facts={"source": source})
    elif state.suspended_at is not None and state.running is None:
        leave_session(batch)
        batch.bind_new("suspended", "suspended")
    else:
        # While a turn runs in a suspended session, the suspension waits for its end.
        batch.lane("entry/touched", {})
    return entry(state)


def _touch(batch: Batch, m: Touch) -> bool:
    state = batch.state
    if state.bound is None or state.session is None:
        return False
    data: Data = {}
    if m.last_prompt_tokens is not None:
        data = {"lastPromptTokens": m.last_prompt_tokens, "turn": state.session.turns}
    batch.lane("entry/touched", data)
    return True


def _reset(batch: Batch, m: Reset) -> SessionEntry | None:
    if batch.state.bound is None:
        return None
    facts: Data = {} if m.display_name is None else {"displayName": m.display_name}
    _renew(batch, "reset", "fresh", facts)
    return entry(batch.state)


def _renew(batch: Batch, reason: str, boundary: Literal["none", "fresh"], facts: Data) -> None:
    """What /new does, without its words."""
    end_running(batch, "new")
    _drop_human(batch)
    leave_session(batch)
    batch.bind_new(reason, boundary, facts=facts)


def _drop_human(batch: Batch) -> None:
    state = batch.state
    waits = [turn.ids for turn in state.interrupted if turn.kind != "wake"]
    waits += [held.ids for held in state.queue if held.kind != "wake"]
    for ids in waits:
        batch.lane("inbox/dropped", {"ids": list(ids), "reason": "reset"})
        batch.after.extend(Finished(inbox_id, "dropped", None, "reset") for inbox_id in ids)


def _switch(batch: Batch, m: Switch) -> SessionEntry | Elsewhere | None:
    state = batch.state
    if state.bound is None or (m.expected is not None and m.expected != state.bound):
        return None
    if m.target == state.bound:
        return entry(state)
    if state.running is not None:
        raise LaneBusyError("switch", "a turn runs; switch again when it has ended")
    shown = batch.shown(m.target)
    if shown is None:
        return None
    if shown.lane is not None and shown.lane != lane_log(state.key):
        return Elsewhere(shown.lane)
    leave_session(batch)
    batch.bind_known(shown, "switch")
    close_turn(batch, "aborted", "switch")
    return entry(state)


def _suspend(batch: Batch, m: Suspend) -> bool:
    state = batch.state
    if state.bound is None:
        return False
    if state.suspended_at is None:
        batch.lane("route/suspended", {"reason": "host"})
    return True


def _mark_resume(batch: Batch, m: MarkResume) -> bool:
    state = batch.state
    if state.bound is None or state.suspended_at is not None or state.facts.finalized:
        return False
    batch.lane("resume/marked", {"reason": m.reason})
    return True


def _clear_resume(batch: Batch, m: ClearResume) -> bool:
    if batch.state.bound is None or batch.state.resume_reason is None:
        return False
    batch.lane("resume/cleared", {})
    return True


def _release(batch: Batch, m: Release) -> bool:
    state = batch.state
    busy = state.running is not None or state.waiting or state.owed
    if state.bound is None or busy or state.suspended_at is not None or state.active_at >= m.before:
        return False
    if m.dry_run:
        return True
    batch.lane("route/released", {"reason": m.reason, "session": state.bound})
    batch.internal.append(ROUTED)
    return True


def _recover_turn(batch: Batch, m: RecoverTurn) -> bool:
    running = batch.state.running
    if running is None:
        return False
    recover(batch, Recover())
    if running.since < m.since or batch.state.facts.finalized:
        # Too old to go on by itself: the turn is closed, and its messages wait for the next one.
        if batch.state.resume_reason is not None:
            batch.lane("resume/cleared", {})
        return False
    return batch.state.resume_reason is not None


def _import(batch: Batch, m: Import) -> bool:
    state, old = batch.state, m.entry
    if state.head:
        return False
    facts: Data = {"createdAt": _ms(old.created_at), "activeAt": _ms(old.updated_at), "used": _used(old)}
    if old.origin is not None:
        facts["source"] = old.origin.to_dict()
    if old.display_name is not None:
        facts["displayName"] = old.display_name
    if old.expiry_finalized:
        facts["finalized"] = True
    if old.reset_had_activity:
        facts["hadActivity"] = True
    boundary = "suspended" if old.was_auto_reset else "fresh" if old.is_fresh_reset else "none"
    shown = batch.shown(old.session_id)
    if shown is None:
        batch.bind_new("imported", boundary, old.session_id, facts)
    elif shown.lane is None:
        if boundary != "none":
            facts["boundary"] = boundary
        batch.bind_known(shown, "imported", facts)
    else:
        return False
    if old.suspended:
        batch.lane("route/suspended", {"reason": "imported"})
    if old.resume_pending and not old.expiry_finalized:
        at = old.last_resume_marked_at or old.updated_at
        batch.lane("resume/marked", {"reason": old.resume_reason or "restart_interrupted", "at": _ms(at)})
    return True


def _used(old: SessionEntry) -> Data:
    return {
        "input": old.input_tokens,
        "output": old.output_tokens,
        "cacheRead": old.cache_read_tokens,
        "cacheWrite": old.cache_write_tokens,
        "total": old.total_tokens,
        "estimatedCostUsd": old.estimated_cost_usd,
        "costStatus": old.cost_status,
        "lastPromptTokens": old.last_prompt_tokens,
    }


def _ms(moment: datetime) -> int:
    return max(0, round(moment.timestamp() * 1000))


# --- transcripts ---------------------------------------------------------------------------------------


def _append(batch: Batch, m: Append) -> bool | Elsewhere:
    part = _idle_part(batch, "append", m.session)
    if part is None or isinstance(part, Elsewhere):
        return part or False
    for messages in by_turn(m.messages):
        batch.append(part, _numbered(part, closed_turn(messages, part.turns + 1), batch.time))
    return True


def _rewrite(batch: Batch, m: Rewrite) -> bool | Elsewhere:
    shown = _idle_shown(batch, "rewrite", m.session)
    if shown is None or isinstance(shown, Elsewhere):
        return shown or False
    batch.append(shown.part, rewrite(shown.surface, m.messages, shown.part.turns + 1, batch.time))
    return True


def _rewind(batch: Batch, m: Rewind) -> dict[str, Any] | Elsewhere | None:
    shown = _idle_shown(batch, "rewind", m.session)
    if shown is None or isinstance(shown, Elsewhere):
        return shown
    shown, done, target = taken_back(batch, shown, max(1, m.turns))
    if not done.turns:
        return None
    batch.append(shown.part, done.events)
    return {"rewound_count": len(done.removed), "turns_undone": done.turns, "target_text": target or ""}


def _idle_part(batch: Batch, operation: str, session: str) -> SessionPart | Elsewhere | None:
    """The session to write to, without reading what it shows where the lane is bound to it."""
    bound = batch.state.session
    if bound is not None and bound.id == session:
        _check_idle(batch, operation, bound)
        return bound
    shown = _idle_shown(batch, operation, session)
    return shown.part if isinstance(shown, Shown) else shown


def _idle_shown(batch: Batch, operation: str, session: str) -> Shown | Elsewhere | None:
    """None: no lane has it, or it is erased."""
    shown = batch.shown(session)
    if shown is None or shown.lane is None:
        return None
    if shown.lane != lane_log(batch.state.key):
        return Elsewhere(shown.lane)  # moved away meanwhile
    _check_idle(batch, operation, shown.part)
    return shown


def _check_idle(batch: Batch, operation: str, part: SessionPart) -> None:
    if part.open is not None:
        raise LaneBusyError(operation, f"turn {part.open.number} of the session is open")


def _numbered(part: SessionPart, made: Any, time: int) -> Sequence[Event]:
    return [Event(kind, part.head + at, time, data) for at, (kind, data) in enumerate(made)]


MUTATIONS: Final[dict[type[Any], Callable[[Batch, Any], Any]]] = {
    GetOrCreate: _get_or_create,
    Touch: _touch,
    Reset: _reset,
    Switch: _switch,
    Suspend: _suspend,
    MarkResume: _mark_resume,
    ClearResume: _clear_resume,
    Release: _release,
    RecoverTurn: _recover_turn,
    Import: _import,
    Append: _append,
    Rewrite: _rewrite,
    Rewind: _rewind,
}
"""The rule of each."""
