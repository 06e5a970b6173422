"""Two lanes that turn out to be one conversation's: how the fold of one takes over what the other holds.

``lane/merged`` stands in both logs, written by one commit. The lane that goes (``into``) gives everything up; the one
that stays (``from``) has all of it in the event's own data, so that neither fold reads the other's log. Numbers move
with the messages: a lane counts as accepted what has, or will get, its outcome there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from seriatim.events import Data, Event
from seriatim.facts import NOTHING
from seriatim.limits import TITLES_MAX
from seriatim.queueing import Entry

if TYPE_CHECKING:
    from seriatim.lane import LaneState, Owed, Running, Waiting


def holdings(state: LaneState, chats: Mapping[str, str]) -> Data:
    """What a lane without a running turn holds, as data of the event; ``chats``: ids of chats that have new ones now.

    Times are kept, numbers in the log are not: of a waiting message it is told whether a suspension came after it.
    """
    at = state.suspended_at
    told: Data = {
        "waiting": [
            [_readdressed(held.data, chats), 0 if at is None or held.seq < at else 1, held.time]
            for held in state.waiting.values()
        ],
        "queue": [[entry.kind, list(entry.ids), entry.auth, entry.size] for entry in state.queue],
        "interrupted": [turn.plain() for turn in state.interrupted],
        "owed": [_redirected(owed, chats).plain() for owed in state.owed.values()],
        "interruptions": state.interruptions,
        "generation": state.generation,
    }
    if state.titles:
        told["titles"] = [list(titled) for titled in state.titles]
    if state.approvals:
        told["approvals"] = [asked.plain() for asked in state.approvals]
    if state.delegations:
        told["delegations"] = [[w.id, w.name, w.session, _readdressed(w.origin, chats)] for w in state.delegations]
    return told


def _readdressed(data: Data, chats: Mapping[str, str]) -> Data:
    source = data["source"]
    if source["chat_id"] not in chats:
        return data
    return {**data, "source": {**source, "chat_id": chats[source["chat_id"]]}}


def _redirected(owed: Owed, chats: Mapping[str, str]) -> Owed:
    target = owed.target
    if target.chat_id not in chats:
        return owed
    return replace(owed, target=replace(target, chat_id=chats[target.chat_id]))


def leave(state: LaneState, data: Data) -> None:
    """Everything has gone to another lane, outcomes that are still to come included."""
    state.accepted -= len(state.waiting)
    state.waiting, state.queue, state.owed, state.interrupted = {}, [], {}, ()
    state.bound = state.session = state.suspended_at = state.resume_reason = None
    state.boundary, state.had_activity, state.interruptions, state.titles = "none", False, 0, ()
    state.listed = state.approvals = state.delegations = ()
    state.facts = NOTHING
    state.merged_into = data["into"]


def absorb(
    state: LaneState,
    event: Event,
    waiting: Iterable[Waiting],
    interrupted: Iterable[Running],
    owed: Iterable[Owed],
) -> None:
    """Take over what the event tells. Both queues keep their order; between them, what came first stands first."""
    data = event.data
    moved = list(waiting)
    arrived = {held.data["id"]: held.time for held in (*state.waiting.values(), *moved)}
    if "session" in data:
        _continue(state, event)
        # What was said in this lane comes after whatever ended that conversation.
        state.waiting = {i: replace(held, seq=event.seq + 1) for i, held in state.waiting.items()}
        late = {0: event.seq, 1: event.seq + 1}
    else:
        late = {0: event.seq, 1: event.seq}
    for held in moved:
        state.waiting[held.data["id"]] = replace(held, seq=late[held.seq])
    state.accepted += len(moved)
    entries = [Entry(kind, tuple(ids), auth, size) for kind, ids, auth, size in data["queue"]]
    state.queue = _woven(state.queue, entries, arrived)
    state.interrupted = tuple(sorted((*state.interrupted, *interrupted), key=lambda turn: turn.since))
    state.owed |= {debt.id: debt for debt in owed}
    state.interruptions = max(state.interruptions, data["interruptions"])
    # Whatever either lane's turns still say comes late for the next one.
    state.generation = max(state.generation, data["generation"])
    if "titles" in data:
        theirs = tuple((session, title) for session, title in data["titles"])
        state.titles = (*theirs, *state.titles)[-TITLES_MAX:]
    if "resume" in data and state.resume_reason is None:
        state.resume_reason, state.resume_marked_at = data["resume"]


def _continue(state: LaneState, event: Event) -> None:
    """The conversation that goes on is the other lane's, in the state in which it was there."""
    data = event.data
    state.bound = data["session"]
    state.boundary, state.had_activity = data.get("boundary", "none"), data.get("hadActivity", False)
    state.resume_reason = None
    whole = data.get("suspended")
    state.suspended_at = None if whole is None else -1 if whole else event.seq


def _woven(ours: list[Entry], theirs: list[Entry], arrived: Mapping[str, int]) -> list[Entry]:
    """Two lists as one, each in its own order."""
    woven: list[Entry] = []
    left, right = list(ours), list(theirs)
    while left and right:
        first: Any = left if arrived[left[0].ids[0]] <= arrived[right[0].ids[0]] else right
        woven.append(first.pop(0))
    return woven + left + right
