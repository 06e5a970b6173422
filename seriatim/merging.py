"""Commits over two lanes: one lane goes into another, or a session's binding moves between them.

Only the supervisor makes them, while both lanes are halted (no turn runs, nothing is in flight) and fenced. What they
make true is in the events; afterwards both lanes are folded from their logs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import frozen
from msgspec.structs import replace

from seriatim.absorb import holdings, questions, readdressed
from seriatim.batch import Batch, Now, Rules
from seriatim.commits import Binding, Commit, Part
from seriatim.events import FORMAT_VERSION, Data, Event, lane_log, session_log
from seriatim.inbox import accepted_data, reply_target
from seriatim.lane import LaneState, apply_lane, hot
from seriatim.mail import Inbound


@frozen
class Pair:
    """A commit over two lanes, and what both are when it is durable. ``other`` None: it is the first lane's alone."""

    commit: Commit
    lane: LaneState
    other: LaneState | None


def merge(
    into: LaneState,
    gone: LaneState,
    *,
    now_ms: int,
    commit_id: str,
    incarnation: int,
    chats: Mapping[str, str] | None = None,
) -> Pair:
    """All that ``gone`` holds goes to ``into``, which is folded under ``incarnation``.

    The longer of both conversations goes on, this lane's own where they are alike; the other one stays in its log.
    ``chats``: chat ids that the platform has replaced; what is owed there goes to the new ones.
    """
    assert into.running is None, "a lane is merged while a turn of it runs"
    assert gone.running is None, "a lane is merged while a turn of it runs"
    chats = chats or {}
    told: Data = {"from": gone.key, **holdings(gone, chats), **questions(into.approvals, gone.approvals)}
    bindings: tuple[Binding, ...] = ()
    taken = _longer(gone, into)
    if taken is not None:
        told["session"] = taken
        origin = gone.facts.origin
        told["facts"] = replace(gone.facts, origin=origin and readdressed(origin, chats)).plain()
        if into.bound is not None:
            told["previous"] = into.bound
        if gone.boundary != "none":
            told["boundary"] = gone.boundary
        if gone.had_activity:
            told["hadActivity"] = True
        if gone.suspended_at is not None:
            told["suspended"] = gone.suspended_at < 0
        bindings = (Binding(session_log(taken), lane_log(gone.key), lane_log(into.key)),)
    if gone.resume_reason is not None:
        told["resume"] = [gone.resume_reason, gone.resume_marked_at]
    left: Data = {"into": into.key, "ids": list(gone.waiting)}
    here, part = _with(into, Event("lane/merged", into.head, now_ms, told), now_ms)
    there, away = _with(gone, Event("lane/merged", gone.head, now_ms, left), now_ms)
    if taken is not None and gone.session is not None:
        here.session = gone.session.fork()
    commit = Commit(commit_id, lane_log(into.key), incarnation, (part, away), bindings=bindings)
    return Pair(commit, here, there)


def _longer(gone: LaneState, into: LaneState) -> str | None:
    """The session that goes on if it is the other lane's."""
    theirs, ours = gone.session, into.session
    if theirs is None or (ours is not None and theirs.turns <= ours.turns):
        return None
    return theirs.id


def _with(state: LaneState, event: Event, now_ms: int) -> tuple[LaneState, Part]:
    after = state.fork()
    header: dict[str, Any] | None = None
    if not state.head:
        header = {"version": FORMAT_VERSION, "id": state.key, "createdAt": now_ms}
    apply_lane(after, event)
    return after, Part(lane_log(state.key), state.head, (event,), hot(after), header)


def move(
    to: LaneState,
    session: str,
    holder: str | None,
    other: LaneState | None,
    *,
    reason: str,
    rules: Rules,
    now: Now,
    commit_id: str,
    incarnation: int,
    command: Inbound | None = None,
    text: str = "",
) -> Pair:
    """Bind ``session``, which belongs to the lane ``holder`` by the store's word, to the lane ``to``.

    ``other``: the holder's state, where it is another lane; it lets go of the session if that is its present one.
    ``command``: a message that no lane has accepted yet: it is accepted, and answered with ``text``, in the commit.
    """
    batch = Batch(to.fork(), rules, now)
    data: Data = {"session": session, "reason": reason}
    previous = to.session
    if previous is not None:
        data["previous"] = previous.id
        if previous.ended:
            data["hadActivity"] = True
    if command is not None:
        if command.key:
            batch.keys[command.key] = None
        batch.lane("inbox/accepted", accepted_data(command, "command"))
    batch.lane("route/bound", data)
    if command is not None:
        target = reply_target(batch, command.id)
        batch.lane("inbox/answered", {"id": command.id, "by": "command", "end": "completed"})
        batch.owe(text, target)
    commit = batch.close(commit_id, lane_log(to.key), incarnation)
    binding = Binding(session_log(session), None if holder is None else lane_log(holder), lane_log(to.key))
    commit = replace(commit, bindings=(*commit.bindings, binding))
    if other is None or other.bound != session:
        return Pair(commit, batch.state, None)
    event = Event("route/released", other.head, now.time, {"reason": "moved", "session": session})
    there, away = _with(other, event, now.time)
    return Pair(replace(commit, parts=(*commit.parts, away)), batch.state, there)
