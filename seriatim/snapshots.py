"""The fold of a lane or session log as lossless JSON, and back: what checkpoints and archives hold.

A snapshot stands for events, so its version counts two things: its form, and the rules that folded it. Whoever
changes either raises ``STATE_VERSION``. Checkpoints of other versions are then ignored; archives, which nothing can
replace, go through ``_UPCASTERS`` first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from seriatim.closers import OpenTurn
from seriatim.errors import FormatUnsupportedError
from seriatim.events import Data, lane_log
from seriatim.facts import Facts, Used
from seriatim.lane import Approval, Delegation, LaneState, Owed, Running, SessionPart, Unreached, Waiting
from seriatim.queueing import Entry

STATE_VERSION: Final = 2

PLAIN: Final = (
    "head", "bound", "generation", "interruptions", "suspended_at", "resume_reason", "resume_marked_at", "boundary",
    "had_activity", "accepted", "answered", "merged", "dropped", "phase", "since",
)  # fmt: skip
"""Fields of the lane part that are JSON as they are."""

LATER: Final = ("merged_into",)
"""The same, of fields that are None nearly always and left out then, as they are by older releases."""

COUNTS: Final = ("bots", "bots_at")
"""The same, of fields that are 0 nearly always."""

_UPCASTERS: Final[dict[int, Callable[[Data], Data]]] = {1: lambda data: data}
"""From a version of the lane part to the next."""


def lane_snapshot(state: LaneState) -> Data:
    """The lane part of ``state``; the session part has its own log and so its own snapshot."""
    data: Data = {name: getattr(state, name) for name in PLAIN}
    data |= {name: told for name in LATER if (told := getattr(state, name)) is not None}
    data["running"] = None if state.running is None else state.running.plain()
    data["interrupted"] = list(map(Running.plain, state.interrupted))
    data["waiting"] = [[w.data, w.seq, w.time] for w in state.waiting.values()]
    data["queue"] = [[e.kind, list(e.ids), e.auth, e.size] for e in state.queue]
    data["owed"] = list(map(Owed.plain, state.owed.values()))
    data["active_at"], data["facts"] = state.active_at, state.facts.plain()
    data |= {name: told for name in COUNTS if (told := getattr(state, name))}
    if state.unreached:
        data["unreached"] = [[lost.delivery, lost.since, lost.reason] for lost in state.unreached]
    if state.bounced:
        data["bounced"] = list(state.bounced)
    if state.drafts:
        data["drafts"] = list(map(list, state.drafts))
    if state.titles:
        data["titles"] = [list(told) for told in state.titles]
    if state.approvals:
        data["approvals"] = list(map(Approval.plain, state.approvals))
    if state.delegations:
        data["delegations"] = list(map(Delegation.plain, state.delegations))
    if state.notes:
        data["notes"] = [list(note) for note in state.notes]
    if state.listed:
        data["listed"] = list(state.listed)
    return data


def lane_from_snapshot(key: str, version: int, data: Data) -> LaneState:
    """The inverse of ``lane_snapshot``, without a session part. Raises FormatUnsupportedError for a foreign version."""
    while version in _UPCASTERS:
        version, data = version + 1, _UPCASTERS[version](data)
    if version != STATE_VERSION:
        raise FormatUnsupportedError(lane_log(key), "upgrade", f"has an archive of version {version}")
    state = LaneState(key, **{name: data[name] for name in (*PLAIN, *LATER) if name in PLAIN or name in data})
    state.running = None if data["running"] is None else Running.of(data["running"])
    state.interrupted = tuple(map(Running.of, data["interrupted"]))
    state.waiting = {told["id"]: Waiting(told, seq, time) for told, seq, time in data["waiting"]}
    state.queue = [Entry(kind, tuple(ids), auth, size) for kind, ids, auth, size in data["queue"]]
    state.owed = {owed.id: owed for owed in map(Owed.of, data["owed"])}
    state.active_at = data.get("active_at", state.since)
    if "facts" in data:
        state.facts = Facts.of(data["facts"])
    state.bots, state.bots_at = data.get("bots", 0), data.get("bots_at", 0)
    state.unreached = tuple(Unreached(*lost) for lost in data.get("unreached", ()))
    state.bounced = tuple(data.get("bounced", ()))
    state.drafts = tuple((claim, message_id) for claim, message_id in data.get("drafts", ()))
    state.listed = tuple(data.get("listed", ()))
    state.titles = tuple((session, title) for session, title in data.get("titles", ()))
    state.approvals = tuple(Approval(*fields) for fields in data.get("approvals", ()))
    state.delegations = tuple(Delegation(*fields) for fields in data.get("delegations", ()))
    state.notes = tuple((told, time) for told, time in data.get("notes", ()))
    return state


def session_snapshot(part: SessionPart) -> Data:
    """What the rules need of a session."""
    turn = part.open
    opened = None if turn is None else [turn.number, turn.step, dict(turn.calls)]
    return {
        "id": part.id,
        "head": part.head,
        "turns": part.turns,
        "ended": part.ended,
        "open": opened,
        "used": part.used.plain(),
        "changed": part.changed,
        "shrunk": part.shrunk,
    }


def session_from_snapshot(data: Data) -> SessionPart:
    """The inverse of ``session_snapshot``."""
    opened = data["open"]
    turn = None if opened is None else OpenTurn(opened[0], opened[1], dict(opened[2]))
    return SessionPart(
        data["id"],
        data["head"],
        data["turns"],
        turn,
        data["ended"],
        Used(*data["used"]),
        data["changed"],
        data["shrunk"],
    )


def is_at_rest(state: LaneState) -> bool:
    """Whether every message has its outcome and every debt is settled: an archive may begin here."""
    return state.phase == "idle" and not state.waiting
