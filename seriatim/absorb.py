"""Two lanes that turn out to be one conversation's: how the fold of one takes over what the other holds.

``lane/merged`` stands in both logs, written by one commit. The lane that goes (``into``) gives everything up; the one
that stays (``from``) has all of it in the event's own data, so that neither fold reads the other's log. Numbers move
with the messages: a lane counts as accepted what has, or will get, its outcome there.

What is told only once, or guards against something, is kept as it was stricter; what has a bound keeps its newest. What
belongs to a conversation that doesn't go on stays with it: its record, its suspension, what its next turn is told.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from seriatim.events import Data, Event
from seriatim.facts import NOTHING
from seriatim.limits import NOTES_MAX, TITLES_MAX, UNREACHED_MAX
from seriatim.queueing import Entry

if TYPE_CHECKING:
    from seriatim.lane import Approval, LaneState, Owed, Running, Unreached, Waiting


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
    if state.delegations:
        told["delegations"] = [[w.id, w.name, w.session, _readdressed(w.origin, chats)] for w in state.delegations]
    if state.unreached:
        told["unreached"] = [[lost.delivery, lost.since, lost.reason] for lost in state.unreached]
    if state.bounced:
        told["bounced"] = list(state.bounced)
    if state.notes:
        told["notes"] = [[_readdressed(note, chats), time] for note, time in state.notes]
    if state.bots:
        told["bots"] = [state.bots, state.bots_at]
    if state.listed:
        told["listed"] = list(state.listed)
    if state.active_at:
        told["activeAt"] = state.active_at
    # A number names a message in its chat: in the one that has replaced it, it may be another one's.
    drafts = [list(shown) for shown in state.drafts if state.waiting[shown[0]].data["source"]["chat_id"] not in chats]
    if drafts:
        told["drafts"] = drafts
    return told


def questions(ours: Iterable[Approval], theirs: Iterable[Approval]) -> Data:
    """The other lane's questions, as data of the event, and which of this lane's are called otherwise from now on.

    Two of one name are told apart by a letter; the bare name, which people may have read at either, then means neither.
    """
    known = {asked.id for asked in ours}
    asked = tuple(theirs)
    taken = known | {one.id for one in asked}
    renamed: list[list[str]] = []
    moved: list[list[Any]] = []
    for one in asked:
        name = one.id
        if name in known:
            renamed.append([name, _letters(name, "a", taken)])
            name = _letters(name, "b", taken)
        moved.append(replace(one, id=name).plain())
    told: Data = {"approvals": moved} if moved else {}
    return {**told, "renamed": renamed} if renamed else told


def _letters(name: str, letter: str, taken: set[str]) -> str:
    """The name with the letter, as often as makes it a new one."""
    name += letter
    while name in taken:
        name += letter
    taken.add(name)
    return name


def _readdressed(data: Data, chats: Mapping[str, str]) -> Data:
    return {**data, "source": readdressed(data["source"], chats)} if data["source"]["chat_id"] in chats else data


def readdressed(source: Data, chats: Mapping[str, str]) -> Data:
    """The source with its chat's id as of now."""
    chat = source["chat_id"]
    return {**source, "chat_id": chats.get(chat, chat)}


def _redirected(owed: Owed, chats: Mapping[str, str]) -> Owed:
    chat = owed.to["chat_id"]
    return replace(owed, to={**owed.to, "chat_id": chats[chat]}, draft="") if chat in chats else owed


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
    unreached: Iterable[Unreached],
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
    if "unreached" in data:
        lost = {known.delivery: known for known in (*unreached, *state.unreached)}
        state.unreached = tuple(sorted(lost.values(), key=lambda known: known.since))[-UNREACHED_MAX:]
    if "bounced" in data:
        state.bounced = tuple(dict.fromkeys((*data["bounced"], *state.bounced)))[-UNREACHED_MAX:]
    if "notes" in data:
        notes = (*((note, time) for note, time in data["notes"]), *state.notes)
        state.notes = tuple(sorted(notes, key=lambda note: note[1]))[-NOTES_MAX:]
    if "drafts" in data:
        state.drafts += tuple((claim, shown) for claim, shown in data["drafts"])
    if "bots" in data:
        bots, at = data["bots"]
        state.bots, state.bots_at = max(state.bots, bots), max(state.bots_at, at)
    if "listed" in data and (not state.listed or data.get("activeAt", 0) > state.active_at):
        state.listed = tuple(data["listed"])  # most likely what people saw last
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
