"""A lane's state: the fold of its lane log and of the session log bound to it.

``evolve`` is the only way in which state changes, live and in replay. Lane events change only the lane
part, session events only ``session``; the lane part never reads ``session``, so the fold does not depend on
how the two logs interleave. ``route/bound`` replaces the session part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Literal

import attrs
from msgspec import Struct
from msgspec.structs import replace

from seriatim.absorb import absorb, leave
from seriatim.closers import OpenTurn
from seriatim.commits import Hot
from seriatim.errors import FormatUnsupportedError
from seriatim.events import Data, Event, LogId, lane_log, session_log
from seriatim.facts import NOTHING, UNUSED, Facts, Used, bound_facts
from seriatim.limits import BOTS_REST_MS, TITLES_MAX, UNREACHED_MAX
from seriatim.model import Target
from seriatim.queue_folds import edited, join_album, moved, noted
from seriatim.queueing import Entry, entry_of, join_target, size_of

BOUNCED: Final = "the platform reported a failure"

WANTED: Final = frozenset({"stop", "operator"})
"""Reasons for which somebody gave a reply up on purpose: nobody has to be told."""

Boundary = Literal["none", "fresh", "suspended"]


class Waiting(Struct, frozen=True, gc=False):
    """An accepted message without its terminal outcome: the accepted event's data, seq and time (ms)."""

    data: Data
    seq: int
    time: int

    @classmethod
    def of(cls, fields: Sequence[Any]) -> Waiting:
        """From plain JSON: data, seq, time."""
        return cls(*fields)


class Running(Struct, frozen=True, gc=False):
    """The open turn, as the lane log tells it. ``ids``: its claims; ``since``: epoch ms of the claim."""

    ids: tuple[str, ...]
    kind: str
    session: str
    turn: int
    generation: int
    attempt: int
    since: int

    def plain(self) -> list[Any]:
        """As plain JSON."""
        return [list(self.ids), self.kind, self.session, self.turn, self.generation, self.attempt, self.since]

    @classmethod
    def of(cls, fields: Sequence[Any]) -> Running:
        """The inverse of ``plain``."""
        return cls(tuple(fields[0]), *fields[1:])


class PartState(Struct, frozen=True, gc=False):
    """One part of an owed reply.

    ``attempts``: recorded by events of their own; ``failures``: those that surely did not arrive;
    ``first``: an attempt was recorded with the debt itself; ``last_failed``: the latest of them surely did
    not arrive; ``done``: settled or abandoned.
    """

    attempts: int = 0
    failures: int = 0
    first: bool = False
    last_failed: bool = False
    done: bool = False

    @property
    def doubts(self) -> int:
        """How many earlier attempts may have arrived. Doubt sticks: only its own failure clears an attempt."""
        return self.attempts + self.first - self.failures


class Owed(Struct, frozen=True, gc=False):
    """A reply that must be delivered. ``to``: where it goes, as logged. ``since``: epoch ms; ``turn``: 0 for no turn's.

    ``until``: epoch ms before which the platform wants to hear nothing more; ``draft``: the platform's id of the
    message that the first part is edited into, "" where it is a message of its own.
    """

    id: str
    texts: tuple[str, ...]
    to: Data
    states: tuple[PartState, ...]
    since: int
    turn: int
    until: int = 0
    draft: str = ""

    @property
    def target(self) -> Target:
        """Where it goes."""
        return Target.from_data(self.to)

    def plain(self) -> list[Any]:
        """As plain JSON."""
        parts = [[p.attempts, p.failures, p.first, p.last_failed, p.done] for p in self.states]
        told = [self.id, list(self.texts), self.to, parts, self.since, self.turn]
        return [*told, self.until, self.draft] if self.until or self.draft else told

    @classmethod
    def of(cls, fields: Sequence[Any]) -> Owed:
        """The inverse of ``plain``."""
        name, texts, to, parts, *rest = fields
        return cls(name, tuple(texts), to, tuple(PartState(*p) for p in parts), *rest)


class Unreached(Struct, frozen=True):
    """A turn's reply that was given up, of which its people haven't been told yet."""

    delivery: str
    since: int
    reason: str


class Approval(Struct, frozen=True):
    """A question of a turn to its people. ``answer``: "" while it is open, then approved or denied.

    ``claim``: the turn's first message, the same at every attempt; ``token``: names the question in the turn.
    ``since``: epoch ms.
    """

    id: str
    claim: str
    token: str
    question: str
    since: int
    answer: str = ""

    def plain(self) -> list[Any]:
        """As plain JSON; its fields in order make it again."""
        return [self.id, self.claim, self.token, self.question, self.since, self.answer]


class Delegation(Struct, frozen=True):
    """Background work that a turn began. ``session``: whose it is; ``origin``: where its end is told, as logged."""

    id: str
    name: str
    session: str
    origin: Data

    def plain(self) -> list[Any]:
        """As plain JSON; its fields in order make it again."""
        return [self.id, self.name, self.session, self.origin]


@attrs.define
class SessionPart:
    """What the rules need of a session log: its head, last turn's number, the open turn; what its turns used.

    ``changed``: events up to the last change of what is shown that isn't an addition; ``shrunk``: turns up to the last
    summary.
    """

    id: str
    head: int = 0
    turns: int = 0
    open: OpenTurn | None = None
    ended: int = 0
    used: Used = UNUSED
    changed: int = 0
    shrunk: int = 0

    def fork(self) -> SessionPart:
        """A private copy."""
        twin, turn = SessionPart.__new__(SessionPart), self.open
        twin.id = self.id
        twin.head = self.head
        twin.turns = self.turns
        twin.open = None if turn is None else OpenTurn(turn.number, turn.step, turn.calls.copy() if turn.calls else {})
        twin.ended = self.ended
        twin.used = self.used
        twin.changed = self.changed
        twin.shrunk = self.shrunk
        return twin


@attrs.define
class LaneState:
    """Everything a lane's rules decide from. Changed only by ``evolve`` (or on a batch's private fork).

    ``head``: events in the lane log. ``queue``: the slot, then the overflow. ``interrupted``: turns that
    ended without an outcome, oldest first; their claims run again. ``interruptions``: in a row.
    ``suspended_at``: seq of the first suspension, -1 when it holds for everything, None without one.
    ``boundary``, ``had_activity``: one-shot facts for the next turn. ``phase`` and ``since`` (epoch ms) make
    a stuck lane visible. ``merged_into``: the lane that took this one over; nothing is left here then.
    ``unreached``: replies given up, for the next turn to tell of. ``drafts``: first claim of a turn without outcome,
    and the platform's id of the message that shows its reply so far. ``bots``: messages of bots in a row, the last at
    ``bots_at`` (epoch ms). ``bounced``: replies whose late failure is known. ``titles``: session and title, the newest
    last. ``active_at``: epoch ms of what a person, or the host for one, did last; wakes don't count. ``facts``: what
    the log tells of the bound session (see ``facts.entry``). ``notes``: what the next turn is told of edits, with its
    time.
    ``listed``: the sessions that people saw in the last list, in its order. ``approvals``: questions of turns
    without outcome, open or answered. ``delegations``: background work that goes on.
    """

    key: str
    head: int = 0
    bound: str | None = None
    generation: int = 0
    running: Running | None = None
    interrupted: tuple[Running, ...] = ()
    interruptions: int = 0
    waiting: dict[str, Waiting] = attrs.Factory(dict)
    queue: list[Entry] = attrs.Factory(list)
    owed: dict[str, Owed] = attrs.Factory(dict)
    suspended_at: int | None = None
    resume_reason: str | None = None
    resume_marked_at: int = 0
    boundary: Boundary = "none"
    had_activity: bool = False
    accepted: int = 0
    answered: int = 0
    merged: int = 0
    dropped: int = 0
    phase: str = "idle"
    since: int = 0
    session: SessionPart | None = None
    merged_into: str | None = None
    unreached: tuple[Unreached, ...] = ()
    drafts: tuple[tuple[str, str], ...] = ()
    bots: int = 0
    bots_at: int = 0
    bounced: tuple[str, ...] = ()
    active_at: int = 0
    facts: Facts = NOTHING
    titles: tuple[tuple[str, str], ...] = ()
    notes: tuple[tuple[Data, int], ...] = ()
    listed: tuple[str, ...] = ()
    approvals: tuple[Approval, ...] = ()
    delegations: tuple[Delegation, ...] = ()

    def fork(self) -> LaneState:
        """A private copy; what it shares with this one is immutable."""
        # Field by field: a constructor of so many arguments takes four times as long, and each commit is one fork.
        twin = LaneState.__new__(LaneState)
        twin.key = self.key
        twin.head = self.head
        twin.bound = self.bound
        twin.generation = self.generation
        twin.running = self.running
        twin.interrupted = self.interrupted
        twin.interruptions = self.interruptions
        twin.waiting = self.waiting.copy() if self.waiting else {}
        twin.queue = self.queue.copy() if self.queue else []
        twin.owed = self.owed.copy() if self.owed else {}
        twin.suspended_at = self.suspended_at
        twin.resume_reason = self.resume_reason
        twin.resume_marked_at = self.resume_marked_at
        twin.boundary = self.boundary
        twin.had_activity = self.had_activity
        twin.accepted = self.accepted
        twin.answered = self.answered
        twin.merged = self.merged
        twin.dropped = self.dropped
        twin.phase = self.phase
        twin.since = self.since
        twin.session = None if self.session is None else self.session.fork()
        twin.merged_into = self.merged_into
        twin.unreached = self.unreached
        twin.drafts = self.drafts
        twin.bots = self.bots
        twin.bots_at = self.bots_at
        twin.bounced = self.bounced
        twin.active_at = self.active_at
        twin.facts = self.facts
        twin.titles = self.titles
        twin.notes = self.notes
        twin.listed = self.listed
        twin.approvals = self.approvals
        twin.delegations = self.delegations
        return twin


def evolve(state: LaneState, log: LogId, event: Event) -> LaneState:
    """The state after one more event of ``log``; total over known types, ``state`` is left as it was.

    Raises FormatUnsupportedError for a type that this version doesn't know and that isn't ignorable.
    """
    twin = state.fork()
    if log == lane_log(state.key):
        apply_lane(twin, event)
    elif twin.session is not None and log == session_log(twin.session.id):
        apply_session(twin.session, event)
    return twin


def fold(key: str, lane_events: Iterable[Event], session_events: Callable[[str], Iterable[Event]]) -> LaneState:
    """The state that the logs tell; ``session_events`` gives the events of the session that is bound last."""
    state = LaneState(key)
    for event in lane_events:
        apply_lane(state, event)
    if state.bound is not None:
        state.session = SessionPart(state.bound)
        for event in session_events(state.bound):
            apply_session(state.session, event)
    return state


def hot(state: LaneState) -> Hot:
    """The lane's row in the boot index."""
    return Hot(
        1 if state.running is not None or state.delegations else 0,  # both are to be looked at after a crash
        len(state.waiting),
        len(state.owed),
        state.phase,
        state.since,
        state.accepted,
        state.answered,
        state.merged,
        state.dropped,
    )


def apply_lane(state: LaneState, event: Event) -> None:
    """Change ``state`` in place by one lane event."""
    try:
        rule = _LANE_RULES[event.type]
    except KeyError:
        if not event.ignorable:
            raise FormatUnsupportedError(lane_log(state.key), "upgrade", f"unknown event type {event.type!r}") from None
    else:
        rule(state, event.data, event)
    state.head = event.seq + 1
    if state.running is not None:
        phase = "running"
    elif state.queue:
        phase = "waiting"
    elif state.interrupted:
        phase = "interrupted"
    elif state.delegations:
        phase = "delegating"
    else:
        phase = "delivering" if state.owed else "idle"
    if phase != state.phase:
        state.phase = phase
        state.since = event.time


def apply_session(part: SessionPart, event: Event) -> None:
    """Change ``part`` in place by one session event."""
    try:
        rule = SESSION_RULES[event.type]
    except KeyError:
        if not event.ignorable:
            raise FormatUnsupportedError(
                session_log(part.id), "upgrade", f"unknown event type {event.type!r}"
            ) from None
    else:
        rule(part, event.data)
    part.head = event.seq + 1


# --- lane events ---------------------------------------------------------------------------------------


def _accepted(state: LaneState, data: Data, event: Event) -> None:
    source = data["source"]
    state.accepted += 1
    state.waiting[data["id"]] = Waiting(data, event.seq, event.time)
    if state.bots or "is_bot" in source:
        _count_bots(state, data, event)
    if data["kind"] != "wake":
        state.active_at = event.time
    if state.facts.origin is None:
        state.facts = replace(state.facts, origin=source)
    place = data["place"]
    if place == "none":
        return
    entry = entry_of(data)
    if place == "slot":
        state.queue.insert(0, entry)
    elif place == "tail":
        state.queue.append(entry)
    elif place == "album":
        join_album(state, data, entry)
    else:
        at = join_target(state.queue, entry)
        state.queue[at] = state.queue[at].joined(entry)


def _count_bots(state: LaneState, data: Data, event: Event) -> None:
    if not data["source"].get("is_bot"):
        if data["kind"] != "wake":
            state.bots = 0
        return
    rested = event.time - state.bots_at > BOTS_REST_MS
    state.bots, state.bots_at = 1 if rested else state.bots + 1, event.time


def _claimed(state: LaneState, data: Data, event: Event) -> None:
    ids = tuple(data["ids"])
    state.generation = generation = data["generation"]
    state.running = Running(ids, data["kind"], data["session"], data["turn"], generation, data["attempt"], event.time)
    if state.interrupted:
        state.interrupted = tuple(held for held in state.interrupted if held.ids[0] not in ids)
    if state.queue and state.queue[0].ids[0] in ids:
        del state.queue[0]
    state.boundary = "none"
    state.had_activity = False
    state.notes = ()


def _answered(state: LaneState, data: Data, event: Event) -> None:
    inbox_id, waiting, running = data["id"], state.waiting, state.running
    if waiting.pop(inbox_id, None) is not None:
        state.answered += 1
        if not waiting:
            state.waiting = {}  # an emptied dict keeps its table, and most lanes are idle
    if running is not None and inbox_id == running.ids[0]:
        if state.approvals:
            state.approvals = tuple(asked for asked in state.approvals if asked.claim != inbox_id)
        state.running = None
        state.interruptions = 0
        if state.drafts:
            _forget_drafts(state, running.ids)


def _merged(state: LaneState, data: Data, event: Event) -> None:
    for inbox_id in data["ids"]:
        if state.waiting.pop(inbox_id, None) is not None:
            state.merged += 1


def _dropped(state: LaneState, data: Data, event: Event) -> None:
    gone = set(data["ids"])
    sizes = {i: size_of(state.waiting[i].data) for i in gone if i in state.waiting}
    for inbox_id in data["ids"]:
        if state.waiting.pop(inbox_id, None) is not None:
            state.dropped += 1
    state.queue = [
        entry if len(kept) == len(entry.ids) else _without(entry, kept, sizes)
        for entry in state.queue
        if (kept := tuple(inbox_id for inbox_id in entry.ids if inbox_id not in gone))
    ]
    if state.interrupted:
        state.interrupted = tuple(
            held if len(kept) == len(held.ids) else replace(held, ids=kept)
            for held in state.interrupted
            if (kept := tuple(inbox_id for inbox_id in held.ids if inbox_id not in gone))
        )
    if state.drafts:
        _forget_drafts(state, data["ids"])
    if state.approvals:
        state.approvals = tuple(asked for asked in state.approvals if asked.claim not in gone)


def _steered(state: LaneState, data: Data, event: Event) -> None:
    """The running turn takes over what waits next."""
    gone = set(data["ids"])
    state.queue = [entry for entry in state.queue if not gone.issuperset(entry.ids)]
    if state.running is not None:
        state.running = replace(state.running, ids=(*state.running.ids, *data["ids"]))


def _approval_asked(state: LaneState, data: Data, event: Event) -> None:
    asked = Approval(data["id"], data["claim"], data["token"], data["question"], event.time)
    state.approvals = (*state.approvals, asked)


def _approval_resolved(state: LaneState, data: Data, event: Event) -> None:
    state.approvals = tuple(
        replace(asked, answer=data["answer"]) if asked.id == data["id"] else asked for asked in state.approvals
    )


def _delegation_started(state: LaneState, data: Data, event: Event) -> None:
    begun = Delegation(data["id"], data["name"], data["session"], data["origin"])
    state.delegations = (*state.delegations, begun)


def _delegation_ended(state: LaneState, data: Data, event: Event) -> None:
    state.delegations = tuple(work for work in state.delegations if work.id != data["id"])


def _without(entry: Entry, kept: tuple[str, ...], sizes: dict[str, int]) -> Entry:
    lost = sum(sizes.get(inbox_id, 0) for inbox_id in entry.ids if inbox_id not in kept)
    return Entry(entry.kind, kept, entry.auth, entry.size - lost)


def _interrupted(state: LaneState, data: Data, event: Event) -> None:
    if state.running is not None:
        state.interrupted += (state.running,)
    state.running = None
    if "waited" not in data:
        state.interruptions += 1


_UNTRIED: Final = PartState()
_TRIED: Final = PartState(first=True)
_ONE_UNTRIED: Final = (_UNTRIED,)
_ONE_TRIED: Final = (_TRIED,)


def _owed(state: LaneState, data: Data, event: Event) -> None:
    delivery, texts = data["id"], tuple(data["parts"])
    states: tuple[PartState, ...] = _ONE_TRIED if data.get("attempt") == 1 else _ONE_UNTRIED
    if len(texts) != 1:
        states *= len(texts)
        if "first" in data:
            states = tuple([_TRIED if part < data["first"] else _UNTRIED for part in range(len(texts))])
    turn, draft = data.get("turn", 0), data.get("draft", "")
    state.owed[delivery] = Owed(delivery, texts, data["to"], states, event.time, turn, 0, draft)
    if "tells" in data:
        told = data["tells"]
        state.unreached = tuple(lost for lost in state.unreached if lost.delivery not in told)


def _attempt(state: LaneState, data: Data, event: Event) -> None:
    _change_part(state, data, lambda part: replace(part, attempts=part.attempts + 1, last_failed=False))


def _failed(state: LaneState, data: Data, event: Event) -> None:
    _change_part(state, data, lambda part: replace(part, failures=part.failures + 1, last_failed=True))


def _waits(state: LaneState, data: Data, event: Event) -> None:
    owed = state.owed.get(data["id"])
    if owed is not None:
        state.owed[owed.id] = replace(owed, until=data["until"])


def _settled(state: LaneState, data: Data, event: Event) -> None:
    owed = state.owed.get(data["id"])
    if owed is not None and len(owed.states) == 1:
        del state.owed[data["id"]]  # the common case: a reply of one part
    else:
        _change_part(state, data, lambda part: replace(part, done=True))


def _abandoned(state: LaneState, data: Data, event: Event) -> None:
    owed = state.owed.get(data["id"])
    if owed is not None and owed.turn and data["reason"] not in WANTED:
        lost = Unreached(owed.id, owed.since, data["reason"])
        others = (known for known in state.unreached if known.delivery != owed.id)
        state.unreached = (*others, lost)[-UNREACHED_MAX:]
    _settled(state, data, event)


def _bounced(state: LaneState, data: Data, event: Event) -> None:
    """The platform reports a failure after it had taken the reply."""
    if data["id"] not in state.bounced:
        state.bounced = (*state.bounced, data["id"])[-UNREACHED_MAX:]
        state.unreached = (*state.unreached, Unreached(data["id"], event.time, BOUNCED))[-UNREACHED_MAX:]


def _retried(state: LaneState, data: Data, event: Event) -> None:
    """Somebody asked for it: its age begins again. What may have arrived stays in doubt."""
    owed = state.owed.get(data["id"])
    if owed is not None:
        state.owed[owed.id] = replace(owed, since=event.time, until=0)


def _change_part(state: LaneState, data: Data, change: Callable[[PartState], PartState]) -> None:
    owed = state.owed.get(data["id"])
    if owed is None:
        return
    states = list(owed.states)
    states[data["part"]] = change(states[data["part"]])
    if all(part.done for part in states):
        del state.owed[owed.id]
    else:
        state.owed[owed.id] = replace(owed, states=tuple(states))


def _draft(state: LaneState, data: Data, event: Event) -> None:
    """A message shows a reply in the making: the debt's, where there is one by now, else that of the claim's turn."""
    owed = state.owed.get(data.get("delivery", ""))
    if owed is not None:
        state.owed[owed.id] = replace(owed, draft=data["messageId"])
    elif data["claim"] in state.waiting:
        _forget_drafts(state, (data["claim"],))
        state.drafts = (*state.drafts, (data["claim"], data["messageId"]))


def _forget_drafts(state: LaneState, claims: Iterable[str]) -> None:
    gone = frozenset(claims)
    state.drafts = tuple(draft for draft in state.drafts if draft[0] not in gone)


def _bound(state: LaneState, data: Data, event: Event) -> None:
    state.bound = data["session"]
    state.session = SessionPart(data["session"])
    state.boundary = data.get("boundary", "none")
    state.had_activity = data.get("hadActivity", False)
    state.suspended_at = None
    state.resume_reason = None
    state.notes = ()
    state.active_at = data.get("activeAt", event.time)
    state.facts = bound_facts(state.facts, data, event.time)


def _titled(state: LaneState, data: Data, event: Event) -> None:
    others = tuple(told for told in state.titles if told[0] != data["session"])
    state.titles = (*others, (data["session"], data["title"]))[-TITLES_MAX:]


def _listed(state: LaneState, data: Data, event: Event) -> None:
    state.listed = tuple(data["sessions"])


def _released(state: LaneState, data: Data, event: Event) -> None:
    """The next message starts a fresh session."""
    state.bound = state.session = state.suspended_at = state.resume_reason = None
    state.boundary, state.had_activity = "none", False
    state.facts = NOTHING


def _touched(state: LaneState, data: Data, event: Event) -> None:
    state.active_at = event.time
    if "lastPromptTokens" in data:
        state.facts = replace(state.facts, prompt=data["lastPromptTokens"], prompt_turn=data["turn"])


def _merged_lanes(state: LaneState, data: Data, event: Event) -> None:
    if "into" in data:
        leave(state, data)
    else:
        waiting = map(Waiting.of, data["waiting"])
        unreached = (Unreached(*lost) for lost in data.get("unreached", ()))
        absorb(state, event, waiting, map(Running.of, data["interrupted"]), map(Owed.of, data["owed"]), unreached)
        # Somebody's message has shown that the two are one.
        state.active_at = max(state.active_at, data.get("activeAt", 0), event.time)
        if "renamed" in data:
            names = dict(data["renamed"])
            state.approvals = tuple(replace(a, id=names.get(a.id, a.id)) for a in state.approvals)
        state.approvals += tuple(Approval(*fields) for fields in data.get("approvals", ()))
        state.delegations += tuple(Delegation(*fields) for fields in data.get("delegations", ()))
        if "session" in data:
            state.session = SessionPart(data["session"])
            facts = Facts.of(data["facts"]) if "facts" in data else NOTHING
            state.facts = replace(facts, origin=state.facts.origin or facts.origin)


def _suspended(state: LaneState, data: Data, event: Event) -> None:
    if data["reason"] in ("interrupted", "quarantined"):
        state.suspended_at = -1
        state.interruptions = 0
    elif state.suspended_at is None:
        state.suspended_at = event.seq  # a later /stop doesn't put what came after the first one back


def _marked(state: LaneState, data: Data, event: Event) -> None:
    state.resume_reason = data["reason"]
    state.resume_marked_at = data.get("at", event.time)


def _cleared(state: LaneState, data: Data, event: Event) -> None:
    state.resume_reason = None


def _nothing(state: Any, data: Data, event: Event | None = None) -> None:
    """The event is told for people and other readers; no rule depends on it."""


LaneRule = Callable[[LaneState, Data, Event], None]
_LANE_RULES: Final[dict[str, LaneRule]] = {
    "inbox/accepted": _accepted,
    "inbox/claimed": _claimed,
    "inbox/answered": _answered,
    "inbox/merged": _merged,
    "inbox/dropped": _dropped,
    "inbox/interrupted": _interrupted,
    "inbox/edited": edited,
    "inbox/steered": _steered,
    "inbox/noted": noted,
    "queue/moved": moved,
    "delivery/owed": _owed,
    "delivery/none": _nothing,
    "delivery/attempt": _attempt,
    "delivery/failed": _failed,
    "delivery/waits": _waits,
    "delivery/settled": _settled,
    "delivery/abandoned": _abandoned,
    "delivery/bounced": _bounced,
    "delivery/retried": _retried,
    "delivery/draft": _draft,
    "route/bound": _bound,
    "route/titled": _titled,
    "route/listed": _listed,
    "route/suspended": _suspended,
    "route/released": _released,
    "lane/merged": _merged_lanes,
    "entry/touched": _touched,
    "resume/marked": _marked,
    "resume/cleared": _cleared,
    "turn/late": _nothing,
    "approval/asked": _approval_asked,
    "approval/resolved": _approval_resolved,
    "delegation/started": _delegation_started,
    "delegation/ended": _delegation_ended,
}


# --- session events ------------------------------------------------------------------------------------


def _turn_start(part: SessionPart, data: Data) -> None:
    part.turns = data["turn"]
    part.open = OpenTurn(data["turn"])


def _step_start(part: SessionPart, data: Data) -> None:
    if part.open is not None:
        part.open.step = data["step"]


def _step_end(part: SessionPart, data: Data) -> None:
    turn = part.open
    if turn is not None:
        turn.step = 0
        turn.calls.clear()  # what a step left unanswered stays so


def _assistant_message(part: SessionPart, data: Data) -> None:
    if "summary" in data:
        part.changed = part.head + 1
        part.shrunk = part.turns - (part.open is not None)
    if "usage" in data:
        part.used = part.used.plus(data["usage"], data["turn"])
    if "calls" in data and part.open is not None:
        for call in data["calls"]:
            part.open.calls[call["id"]] = None


def _surface_reset(part: SessionPart, data: Data) -> None:
    part.changed = part.head + 1


def _tool_call(part: SessionPart, data: Data) -> None:
    if part.open is not None:
        part.open.calls[data["id"]] = part.head


def _tool_result(part: SessionPart, data: Data) -> None:
    if part.open is not None:
        part.open.calls.pop(data["id"], None)


def _turn_end(part: SessionPart, data: Data) -> None:
    part.open = None
    part.ended += 1


SessionRule = Callable[[SessionPart, Data], None]
SESSION_RULES: Final[dict[str, SessionRule]] = {
    "turn/start": _turn_start,
    "turn/end": _turn_end,
    "step/start": _step_start,
    "step/end": _step_end,
    "user/message": _nothing,
    "assistant/message": _assistant_message,
    "tool/call": _tool_call,
    "tool/result": _tool_result,
    "surface/reset": _surface_reset,
    "session/end-seed": _nothing,
    "assistant/chunk": _nothing,
    "request/header": _nothing,
    "request/context": _nothing,
    "todo/write": _nothing,
    "wake/notice": _nothing,
}
