"""The surface: which of a session's messages the model sees, and the one place where visibility is computed.

A session log only grows; its surface does not. ``Surface(k)``, the surface after the first k events, is:

- a message (``user/message``, ``assistant/message``, ``tool/result``): its node is added at the end;
- a message whose ``surface_op`` is ``{"op": "replace", "start", "end"}``: its node takes the place of that inclusive
  range of present nodes (a summary, a pruned tool result);
- ``surface/reset{asOf: k}``: surface and visible turns become those of ``Surface(k)``.

Nodes form a list that grows at its end and shares what stays the same, so that a reset is one pointer and a fork
costs nothing. A *visible turn* is one question as its asker counts it: a turn that resumes the last visible one
(``resumedFrom``) is still that one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, Literal

import attrs

from seriatim.errors import SurfaceError, SurfaceHorizonError
from seriatim.events import Event

MESSAGE_TYPES: Final = frozenset({"user/message", "assistant/message", "tool/result"})
RESET: Final = "surface/reset"

Visibility = Literal["current", "shadowed", "undone"]


@attrs.define(eq=False, repr=False)
class Node:
    """One message on the surface, and the one before it.

    ``seq``: its event; ``type``: the event's; ``turn``: its turn's number, 0 when it names none; ``calls``: ids of the
    tool calls that it asks for, or of the one that it answers.
    """

    seq: int
    type: str
    turn: int
    calls: tuple[str, ...]
    before: Node | None


@attrs.define(eq=False, repr=False)
class VisibleTurn:
    """One visible turn and the one before it.

    ``start``: seq of the first turn/start of it; ``number``: of its newest attempt; ``nodes``: the surface before it.
    ``asked``: the event count just after its last user message, 0 while it has none; ``asked_nodes`` and
    ``asked_number``: surface and number at that moment.
    """

    start: int
    number: int
    nodes: Node | None
    earlier: VisibleTurn | None
    asked: int = 0
    asked_nodes: Node | None = None
    asked_number: int = 0


@attrs.define(eq=False, repr=False)
class Undone:
    """One undo that can be taken back: its seq, what was there before it, and the undo before that."""

    seq: int
    nodes: Node | None
    turns: VisibleTurn | None
    earlier: Undone | None


@attrs.define(eq=False, repr=False)
class Surface:
    """The fold of a session log's messages and surface operations. Owned by one thread; ``fork`` to share.

    ``head``: the number that the next event has at least; ``open``: number of the open turn, 0 between turns.
    ``undone``: the undos that a redo can take back. ``forgotten``: visible turns older than those that are kept for
    undoing, and ``horizon``: no reset reaches below this seq without the whole log (see ``forget``).
    """

    head: int = 0
    open: int = 0
    last: Node | None = None
    turns: VisibleTurn | None = None
    undone: Undone | None = None
    forgotten: int = 0
    horizon: int = 0

    def fork(self) -> Surface:
        """A private copy, at the cost of its seven fields."""
        return Surface(self.head, self.open, self.last, self.turns, self.undone, self.forgotten, self.horizon)

    def extend(self, events: Iterable[Event]) -> Surface:
        """Apply each event; returns itself."""
        for event in events:
            self.apply(event)
        return self

    def apply(self, event: Event) -> None:
        """Take one more event of the log, in order; types that don't touch the surface are passed over.

        Raises SurfaceError, and changes nothing, where the event doesn't fit: a range that isn't there, sources that
        leave out what is shadowed, a reset to a moment that nobody can go back to. Raises SurfaceHorizonError for a
        reset beyond what was kept.
        """
        if event.seq < self.head:
            raise SurfaceError(event.type, f"is numbered {event.seq}, but {self.head} events were folded")
        rule = _RULES.get(event.type)
        if rule is not None:
            rule(self, event)
        self.head = event.seq + 1

    def nodes(self) -> list[Node]:
        """What the model sees, oldest first."""
        found = list(walk_nodes(self.last))
        found.reverse()
        return found

    def seqs(self) -> list[int]:
        """The nodes' event numbers, oldest first."""
        return [node.seq for node in self.nodes()]

    def visible_turns(self) -> list[VisibleTurn]:
        """The visible turns that are kept, oldest first; ``forgotten`` more came before them."""
        found = list(walk_turns(self.turns))
        found.reverse()
        return found

    def forget(self, keep_turns: int) -> None:
        """Keep only the last ``keep_turns`` visible turns for undoing: bounds memory and snapshots of long sessions.

        The surface itself stays whole. What reaches further back then raises SurfaceHorizonError, and a fold of the
        whole log answers it.
        """
        kept = list(walk_turns(self.turns))[:keep_turns]
        if self.turns is None or (kept and kept[-1].earlier is None):
            return
        horizon = kept[-1].start if kept else self.head
        self.forgotten += sum(1 for turn in walk_turns(self.turns) if turn.start < horizon)
        self.horizon = horizon
        self.turns = _cut(self.turns, horizon)
        undos = list(walk_undos(self.undone))
        self.undone = None
        for undo in reversed(undos):
            self.undone = Undone(undo.seq, undo.nodes, _cut(undo.turns, horizon), self.undone)


def fold(events: Iterable[Event]) -> Surface:
    """The surface that a whole log tells."""
    return Surface().extend(events)


# --- views ---------------------------------------------------------------------------------------------


def model_context(surface: Surface, event_of: Callable[[int], Event]) -> list[Event]:
    """The derived messages: what the model sees, oldest first, without assistant messages that say nothing.

    ``event_of`` gives the event of a seq. Log-only events never matter here.
    """
    events = [event_of(node.seq) for node in surface.nodes()]
    return [event for event in events if says_something(event)]


def human_transcript(events: Iterable[Event]) -> list[Event]:
    """What people were shown: every message that was appended, also what was shadowed or undone since."""
    return [event for event in events if event.type in MESSAGE_TYPES and not is_replace(event)]


def visibility(surface: Surface, events: Iterable[Event]) -> dict[int, Visibility]:
    """Of each message among ``events`` (a whole log's, or its messages), whether it is current, shadowed or undone.

    *shadowed*: covered, directly or through another summary, by a message that is current. Search, export and every
    listing read this and nothing else.
    """
    sources: dict[int, tuple[int, ...]] = {}
    found: dict[int, Visibility] = {}
    for event in events:
        if event.type in MESSAGE_TYPES:
            found[event.seq] = "undone"
            if is_replace(event):
                sources[event.seq] = event.source_event_seqs or ()
    current = surface.seqs()
    covered = list(current)
    while covered:
        for seq in sources.get(covered.pop(), ()):
            if found.get(seq) == "undone":
                found[seq] = "shadowed"
                covered.append(seq)
    found.update((seq, "current") for seq in current if seq in found)
    return found


def is_replace(event: Event) -> bool:
    """Whether the message takes the place of others. Without a mark it is appended, as logs without marks have it."""
    return event.surface_op is not None and event.surface_op != "append"


def says_something(event: Event) -> bool:
    """Whether the message is worth the model's while: all are, but an assistant's without words, calls and whatever
    else a host put into it.
    """
    data = event.data
    return event.type != "assistant/message" or data.get("text") != "" or bool(data.get("calls")) or "extra" in data


# --- the rules of the fold -----------------------------------------------------------------------------


def _message(surface: Surface, event: Event) -> None:
    data = event.data
    if event.type == "tool/result":
        calls: tuple[str, ...] = (data["id"],) if "id" in data else ()
    else:
        asked = data.get("calls")
        calls = tuple(call["id"] for call in asked) if asked else ()
    turn = data.get("turn", 0)
    if is_replace(event):
        surface.last = _replaced(surface, event, turn, calls)
    else:
        surface.last = Node(event.seq, event.type, turn, calls, surface.last)
        if event.type == "user/message" and surface.open:
            surface.turns = _asked(surface, event.seq + 1)
    surface.undone = None


def _replaced(surface: Surface, event: Event, turn: int, calls: tuple[str, ...]) -> Node:
    start, end = replace_range(event)
    tail: list[Node] = []
    shadowed: list[Node] = []
    at: Node | None = None
    for at in walk_nodes(surface.last):
        if shadowed or at.seq == end:
            shadowed.append(at)
            if at.seq == start:
                break
        else:
            tail.append(at)
    if at is None or not shadowed or at.seq != start:
        raise SurfaceError(event.type, f"replaces {start} to {end}, which is no range of present messages")
    if not {node.seq for node in shadowed}.issubset(event.source_event_seqs or ()):
        raise SurfaceError(event.type, f"replaces {start} to {end}, but its sources leave out some of them")
    if event.type == "tool/result" and (len(shadowed) > 1 or at.type != event.type or at.calls != calls):
        raise SurfaceError(event.type, "rewrites something else than one result of the same call")
    made = Node(event.seq, event.type, turn, calls, at.before)
    for node in reversed(tail):
        made = Node(node.seq, node.type, node.turn, node.calls, made)
    return made


def replace_range(event: Event) -> tuple[int, int]:
    """First and last seq of what the message takes the place of. Raises SurfaceError for any other mark."""
    operation = event.surface_op
    if isinstance(operation, Mapping) and operation.keys() == {"op", "start", "end"} and operation["op"] == "replace":
        start, end = operation["start"], operation["end"]
        if type(start) is int and type(end) is int:
            return start, end
    raise SurfaceError(event.type, "has a surface operation that is neither append nor replace")


def _asked(surface: Surface, count: int) -> VisibleTurn | None:
    turn = surface.turns
    if turn is None or turn.number != surface.open:
        return turn  # said into a turn that isn't visible any more
    return attrs.evolve(turn, asked=count, asked_nodes=surface.last, asked_number=turn.number)


def _turn_start(surface: Surface, event: Event) -> None:
    number = event.data.get("turn", 0)
    turn = surface.turns
    resumed = event.data.get("resumedFrom")
    if turn is not None and resumed is not None and resumed == turn.number:
        surface.turns = attrs.evolve(turn, number=number)
    else:
        surface.turns = VisibleTurn(event.seq, number, surface.last, turn)
    surface.open = number
    surface.undone = None


def _turn_end(surface: Surface, event: Event) -> None:
    surface.open = 0


def _reset(surface: Surface, event: Event) -> None:
    as_of = event.data.get("asOf")
    if type(as_of) is not int or not 0 <= as_of <= event.seq:
        raise SurfaceError(event.type, "asOf is not the number of an earlier event")
    reason = event.data.get("reason")
    nodes, turns, undone = _moment(surface, as_of, takes_back=reason == "undo")
    if reason == "undo":
        undone = Undone(event.seq, surface.last, surface.turns, surface.undone)
    surface.last, surface.turns = nodes, turns
    surface.undone = undone if reason in ("undo", "redo") else None
    if turns is None and as_of == 0:
        surface.forgotten = surface.horizon = 0


def _moment(surface: Surface, as_of: int, *, takes_back: bool) -> tuple[Node | None, VisibleTurn | None, Undone | None]:
    """The surface after ``as_of`` events, if one may go back to it; with the undos that are then left to take back."""
    for undo in walk_undos(surface.undone):
        if undo.seq == as_of:
            return undo.nodes, undo.turns, undo.earlier
    for turn in walk_turns(surface.turns):
        if turn.start == as_of:
            return turn.nodes, turn.earlier, None
        if as_of and turn.asked == as_of:
            return turn.asked_nodes, attrs.evolve(turn, number=turn.asked_number), None
        if turn.start < as_of:
            break
    # Nothing was there before the first event; but an undo that leads there must be able to come back whole.
    if as_of < surface.horizon and (as_of or takes_back):
        raise SurfaceHorizonError(RESET, as_of, surface.horizon)
    if as_of:
        raise SurfaceError(RESET, f"nothing can go back to the moment after {as_of} events")
    return None, None, None


_RULES: Final[dict[str, Callable[[Surface, Event], None]]] = {
    "user/message": _message,
    "assistant/message": _message,
    "tool/result": _message,
    "turn/start": _turn_start,
    "turn/end": _turn_end,
    RESET: _reset,
}


# --- walking the shared lists --------------------------------------------------------------------------


def walk_nodes(node: Node | None) -> Iterator[Node]:
    """The nodes up to ``node``, newest first."""
    while node is not None:
        yield node
        node = node.before


def walk_turns(turn: VisibleTurn | None) -> Iterator[VisibleTurn]:
    """The visible turns up to ``turn``, newest first."""
    while turn is not None:
        yield turn
        turn = turn.earlier


def walk_undos(undo: Undone | None) -> Iterator[Undone]:
    """The undos that can be taken back, newest first."""
    while undo is not None:
        yield undo
        undo = undo.earlier


def _cut(turns: VisibleTurn | None, horizon: int) -> VisibleTurn | None:
    """The same turns without those that began before ``horizon``."""
    kept = [turn for turn in walk_turns(turns) if turn.start >= horizon]
    made: VisibleTurn | None = None
    for turn in reversed(kept):
        made = attrs.evolve(turn, earlier=made)
    return made
