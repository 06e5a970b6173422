"""The plan of one commit while it is being made: drafts, effects, and the state they lead to.

A batch owns one private fork of the lane's state. Deciding a message adds drafts and applies each to the
fork at once, so that the next message of the same batch sees it; the finished plan keeps that fork, which
a test holds equal to the fold of the drafts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal

from attrs import define, frozen
from msgspec import Struct

from seriatim.budgets import Ask, unlimited
from seriatim.commits import Binding, Commit, Part
from seriatim.effects import ROUTED, Deliver, Effect, ReturnSlot, WantSlot
from seriatim.errors import HeadMismatchError
from seriatim.events import FORMAT_VERSION, Data, Event, LogId, lane_log, session_log, weight
from seriatim.lane import SESSION_RULES, LaneState, SessionPart, apply_lane, apply_session, hot
from seriatim.limits import WAITING_MAX
from seriatim.model import Target
from seriatim.outbox import Channel, split
from seriatim.shown import Besides, Loaded, Shown, Wanted
from seriatim.surface import Surface


@frozen
class Rules:
    """The settings that rules depend on (see GatewayConfig for their meaning).

    ``freshness_ms``: how old an interrupted turn may be to run again by itself. ``refuse_behind``: a message that the
    store refuses takes those that wait behind it along (they go to a spool, in their order). ``command_age_ms_max``,
    ``text_age_ms_max``: how long ago a command or a text may have been sent; None: at any time. ``bot_exchanges_max``:
    messages of bots in a row that are answered. ``operators``: "platform:id" of each.
    ``compress_above_tokens``: a larger last prompt is compressed before the next turn, 0: never;
    ``compress_keep_turns``: newest turns that stay as they are.
    """

    collapse: Literal["merge", "replace"] = "merge"
    separate_attempt: bool = False
    stop_suspends: bool = True
    freshness_ms: int = 3_600_000
    attempts_ambiguous_max: int = 3
    refuse_behind: bool = False
    command_age_ms_max: int | None = 600_000
    text_age_ms_max: int | None = None
    bot_exchanges_max: int = 8
    operators: frozenset[str] = frozenset()
    compress_above_tokens: int = 0
    compress_keep_turns: int = 2
    partial: Literal["withhold", "send"] = "withhold"
    budgets: bool = False
    waiting_max: int = WAITING_MAX
    album_window_ms: int = 800
    edit_running: Literal["ignore", "note", "turn"] = "turn"
    edit_after: Literal["ignore", "note", "turn"] = "note"
    busy: Literal["queue", "interrupt", "steer", "refuse"] = "queue"
    approval_ms: int = 0


def _no_output(lane: str, delegation: str) -> str:
    return ""


def _nothing_streamed(lane: str, generation: int) -> str:
    return ""


def _nothing(lane: str, album: str) -> bool:
    return False


@define
class Now:
    """What the world brings to a decision; a shell reuses one and sets its time.

    ``time``: epoch ms. ``fresh_id`` and ``session_id`` make new ids. ``take_slot`` tries to take a turn
    slot without waiting. ``channel`` tells about the way to a target. ``draining``: start no turn. ``streamed`` tells
    what a lane's turn of a generation has shown of its answer so far, ``output`` what a delegation has given.
    ``uncompressed``: session and turn after which a compression was tried in vain: the next turn doesn't wait for it.
    ``started``: when the incarnation began (epoch ms). ``expects``: whether an item of this album is on its way in.
    ``person``: for whom a slot is being taken. ``standing``: how that person stands with what they may use.
    """

    time: int
    fresh_id: Callable[[], str]
    session_id: Callable[[], str]
    take_slot: Callable[[], bool]
    channel: Callable[[Target], Channel]
    draining: bool = False
    streamed: Callable[[str, int], str] = _nothing_streamed
    output: Callable[[str, str], str] = _no_output
    uncompressed: tuple[str, int] | None = None
    started: int = 0
    expects: Callable[[str, str], bool] = _nothing
    person: str = ""
    standing: Ask = unlimited


class _Draft(Struct, gc=False):
    expected_head: int
    header: dict[str, Any] | None
    events: list[Event]


class Batch:
    """One commit in the making. Used by the rules; made and closed by the gate.

    ``blobs``: those that its events refer to. ``hold_at``: when the next turn may start at the earliest (epoch ms).
    """

    __slots__ = (
        "_others",
        "_part",
        "_session_events",
        "after",
        "bindings",
        "blobs",
        "hold_at",
        "internal",
        "keys",
        "lane_events",
        "lane_head",
        "loaded",
        "now",
        "rules",
        "sessions",
        "size",
        "slots_taken",
        "state",
        "time",
        "wants_slot",
    )

    def __init__(
        self, state: LaneState, rules: Rules, now: Now, loaded: Loaded | None = None, hold_at: int | None = None
    ) -> None:
        self.state = state
        self.loaded = loaded
        self.rules = rules
        self.now = now
        self.time = now.time
        self.lane_head = state.head
        self.lane_events: list[Event] = []
        self.sessions: dict[str, _Draft] = {}
        self.keys: dict[str, None] = {}
        self.after: list[Effect] = []
        self.blobs: tuple[str, ...] = ()
        self.hold_at = hold_at
        self.internal: list[Effect] = []
        self.size = 0
        self.slots_taken = 0
        self.wants_slot = False
        self.bindings: tuple[Binding, ...] = ()
        self._part: SessionPart | None = None
        self._session_events: list[Event]  # of ``_part``
        self._others: dict[str, SessionPart] | None = None

    # --- drafts ----------------------------------------------------------------------------------------

    def lane(self, event_type: str, data: Data) -> None:
        """Draft an event of the lane log."""
        state = self.state
        event = Event(event_type, state.head, self.time, data)
        self.lane_events.append(event)
        apply_lane(state, event)

    def session(self, event_type: str, data: Data, sources: tuple[int, ...] | None = None) -> None:
        """Draft an event of the bound session's log; ``sources``: the events that it is about."""
        part = self.state.session
        if part is not self._part:
            self._open(part)
        event = Event(event_type, part.head, self.time, data, False, sources)  # type: ignore[union-attr]
        self._session_events.append(event)
        SESSION_RULES[event_type](part, data)  # type: ignore[arg-type]
        part.head += 1  # type: ignore[union-attr]

    def append(self, part: SessionPart, events: Iterable[Event]) -> None:
        """Draft events that were numbered from ``part``'s head, as ``seriatim.edits`` makes them.

        ``part``: of what ``shown`` gave, or the bound session's.
        """
        if part is not self._part:
            self._open(part)
        for event in events:
            assert event.seq == part.head, "made for another head"
            self.size += weight(event.data)
            self._session_events.append(event)
            apply_session(part, event)

    def _open(self, part: SessionPart | None) -> None:
        """Draft what follows for ``part``'s log."""
        assert part is not None, "a session event without a bound session"
        draft = self.sessions.get(part.id)
        if draft is None:
            draft = self.sessions[part.id] = _Draft(part.head, None, [])
        self._part, self._session_events = part, draft.events

    def bind_new(
        self, reason: str, boundary: str = "none", session_id: str | None = None, facts: Data | None = None
    ) -> SessionPart:
        """Draft a new session for the lane; the one before keeps its log. ``facts``: further data of the event."""
        previous = self.state.session
        if session_id is None:
            session_id = self.now.session_id()
        data: Data = {"session": session_id, "reason": reason}
        header: dict[str, Any] = {"version": FORMAT_VERSION, "id": session_id, "createdAt": self.now.time}
        if previous is not None:
            data["previous"] = previous.id
            if previous.ended:
                data["hadActivity"] = True
        if boundary != "none":
            data["boundary"] = boundary
        if facts is not None:
            data.update(facts)
        self.sessions[session_id] = _Draft(0, header, [])
        self.lane("route/bound", data)
        self.internal.append(ROUTED)
        bound = self.state.session
        assert bound is not None
        return bound

    def bind_known(self, shown: Shown, reason: str, facts: Data | None = None) -> SessionPart:
        """Draft that the lane goes on with a session that exists; the one before keeps its log.

        It must be this lane's, or no lane's. ``facts``: further data of the event.
        """
        data: Data = {"session": shown.session, "reason": reason, "head": shown.part.head}
        data["createdAt"] = shown.created_at
        if self.state.bound is not None:
            data["previous"] = self.state.bound
        if facts is not None:
            data.update(facts)
        self.lane("route/bound", data)
        self.internal.append(ROUTED)
        self.state.session = shown.part
        if shown.lane is None:
            lane = lane_log(self.state.key)
            self.bindings += (Binding(session_log(shown.session), None, lane),)
        return shown.part

    def shown(self, session_id: str | None = None, *, whole: bool = False) -> Shown | None:
        """What a session (None: the bound one) shows, with all that this batch has drafted; None: no such session.

        Ask before anything is drafted: raises Wanted where it isn't loaded, and the gate decides the message again.
        ``whole``: fold it from its first event, for what a snapshot doesn't reach (SurfaceHorizonError). Raises what
        the reading raised.
        """
        bound = self.state.session
        if session_id is None:
            if bound is None:
                return None
            session_id = bound.id
        draft = self.sessions.get(session_id)
        if draft is not None and draft.header is not None:
            assert bound is not None
            found = Shown(session_id, bound, Surface(), {}, lane_log(self.state.key), draft.header["createdAt"], True)
        else:
            loaded = self.loaded
            if loaded is None or loaded.session != session_id or (whole and not loaded.whole):
                raise Wanted(session_id, whole, None if loaded is None else loaded.besides)
            if loaded.error is not None:
                raise loaded.error
            if loaded.shown is None:
                return None
            found = loaded.shown.fork()
            found.part = self._part_of(found)
        if draft is not None:
            found.extend(draft.events)
        if found.surface.head != found.part.head:
            raise HeadMismatchError(session_log(session_id), found.part.head, found.surface.head)
        return found

    def found(self, besides: Besides) -> Any:
        """What was looked up off the actor; to be asked for like ``shown``, before anything is drafted."""
        loaded = self.loaded
        if loaded is None:
            raise Wanted("", False, besides)
        if loaded.besides != besides:
            raise Wanted(loaded.session, loaded.whole, besides)
        if loaded.error is not None:
            raise loaded.error
        return loaded.found

    def _part_of(self, shown: Shown) -> SessionPart:
        """The one copy of a session's part that this batch drafts on."""
        bound = self.state.session
        if bound is not None and bound.id == shown.session:
            return bound
        if self._others is None:
            self._others = {}
        return self._others.setdefault(shown.session, shown.part)

    def owe(
        self,
        text: str,
        to: Target | None,
        turn: int = 0,
        why_none: str = "empty",
        claim: str = "",
        draft: str = "",
        told: tuple[str, ...] = (),
    ) -> bool:
        """Draft the debt of ``text`` to ``to``; False (and its record) when there is nothing to send.

        Without a target the host has the reply from the receipt. ``claim``: first message of the turn that made it.
        ``draft``: the platform's message that shows it so far. ``told``: replies given up that the text tells of.
        """
        if to is None:
            none: Data = {"turn": turn, "reason": "receipt"}
            if not turn:
                none["text"] = text  # a turn's words stand in its session; these would be nowhere after a crash
            self.lane("delivery/none", none)
            return False
        channel = self.now.channel(to)
        parts = split(text, channel)
        if not parts:
            self.lane("delivery/none", {"turn": turn, "reason": why_none})
            return False
        delivery = self.now.fresh_id()
        data: Data = {"id": delivery, "parts": list(parts), "to": to.to_data()}
        if turn:
            data["turn"] = turn
        if told:
            data["tells"] = list(told)
        if draft:
            data["draft"] = draft
        # T5 inside T4: the first attempt is recorded with the debt when it is about to be made anyway.
        # Without T5 (idempotent sends) the debt itself counts as the first attempt.
        recorded = channel.idempotent or (channel.up and not self.state.owed and not self.rules.separate_attempt)
        if recorded:
            data["attempt"] = 1
            if len(parts) > 1 and not channel.idempotent:
                data["first"] = 1  # each other part has a record of its own: a crash leaves one part in doubt
        self.lane("delivery/owed", data)
        if len(parts) == 1:
            self.size += len(parts[0])
            due: tuple[int, ...] = (0,)
        else:
            self.size += sum(map(len, parts))
            due = tuple(range(len(parts)))
        self.after.append(Deliver(delivery, parts, to, due, recorded, self.time, 0, draft, claim))
        return True

    # --- turn slots ------------------------------------------------------------------------------------

    def take_slot(self, person: str = "", resumes: bool = False) -> bool:
        """A turn slot for a turn that starts in this commit, or the wish for one."""
        self.now.person = person
        if self.now.take_slot():
            self.slots_taken += 1
            return True
        if not self.wants_slot:
            self.wants_slot = True
            self.internal.append(WantSlot(person, resumes))
        return False

    def return_slot(self, silent: bool = False) -> None:
        """The running turn is over once this commit is durable. ``silent``: as in ReturnSlot."""
        self.after.append(ReturnSlot(silent))

    # --- the commit ------------------------------------------------------------------------------------

    def close(self, commit_id: str, lane: LogId, incarnation: int) -> Commit:
        """The commit of everything drafted. Session events change nothing that the hot row tells."""
        parts: list[Part] = []
        if self.lane_events:
            header = None
            if not self.lane_head:
                header = {"version": FORMAT_VERSION, "id": self.state.key, "createdAt": self.now.time}
            parts.append(Part(lane, self.lane_head, tuple(self.lane_events), hot(self.state), header))
        bindings = self.bindings
        for session_id, draft in self.sessions.items():
            log, header = session_log(session_id), draft.header
            parts.append(Part(log, draft.expected_head, tuple(draft.events), None, header))
            if header is not None:
                bindings = (*bindings, Binding(log, None, lane))
        return Commit(commit_id, lane, incarnation, tuple(parts), tuple(self.keys), bindings, self.blobs)
