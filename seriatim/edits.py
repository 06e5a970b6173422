"""Undo, redo, retry, compress, prune and rewrite: the events that each appends to a session log.

Nothing is deleted or changed: each of these looks at the surface and returns the events, numbered from its head, that
make the wanted one. An empty tuple means that there is nothing to do. ``time`` is epoch milliseconds. What a tool did
to the world is not undone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from attrs import frozen

from seriatim.errors import SurfaceError, SurfaceHorizonError
from seriatim.events import Data, Event
from seriatim.surface import RESET, Node, Surface, VisibleTurn, walk_nodes, walk_turns


@frozen
class Undo:
    """What an undo does. ``events``: to append; ``turns``: how many visible turns go; ``removed``: the messages that
    go with them, oldest first; ``target``: seq of the first user message of those turns, None without one; it isn't in
    ``removed`` where a summary stands for it.
    """

    events: tuple[Event, ...]
    turns: int
    removed: tuple[Node, ...]
    target: int | None


def undo(surface: Surface, turns: int, time: int) -> Undo:
    """Take back the last ``turns`` visible turns, or as many as there are, to the moment before the first of them.

    What was compressed since then is itself again. Raises SurfaceError while a turn is open, SurfaceHorizonError when
    more turns are wanted than the surface kept.
    """
    _check_closed(surface, "undo")
    if turns < 1:
        raise SurfaceError("undo", "at least one turn")
    gone = list(islice(walk_turns(surface.turns), turns))
    if len(gone) < turns and surface.forgotten:
        raise SurfaceHorizonError("undo", 0, surface.horizon)
    if not gone:
        return Undo((), 0, (), None)
    first = gone[-1]
    kept = {node.seq for node in walk_nodes(first.nodes)}
    removed = tuple(node for node in surface.nodes() if node.seq not in kept)
    asked = next((turn for turn in reversed(gone) if turn.asked), None)
    target = None if asked is None else _first_said(asked)
    return Undo((_reset(surface, first.start, "undo", time),), len(gone), removed, target)


def redo(surface: Surface, time: int) -> tuple[Event, ...]:
    """Take back the last undo that isn't taken back; possible until something is said after it."""
    _check_closed(surface, "redo")
    last = surface.undone
    return () if last is None else (_reset(surface, last.seq, "redo", time),)


def retry(surface: Surface, time: int) -> tuple[Event, ...]:
    """Go back to just after the last visible turn's user messages, so that it can be answered anew.

    What follows is the turn/start of a turn with the same claims and ``resumedFrom`` (the same as after a crash): the
    user's messages are not repeated. Empty when the last visible turn was nobody's question.
    """
    _check_closed(surface, "retry")
    turn = surface.turns
    if turn is None or not turn.asked:
        return ()
    return (_reset(surface, turn.asked, "retry", time),)


def wipe(surface: Surface, reason: str, time: int) -> tuple[Event, ...]:
    """Show nothing any more; the log keeps everything."""
    _check_closed(surface, reason)
    return () if surface.last is None and surface.turns is None else (_reset(surface, 0, reason, time),)


def compress(surface: Surface, start: int, end: int, text: str, time: int) -> Event:
    """A summary that takes the place of the messages from ``start`` to ``end`` (seqs, both present).

    The messages after them stay as they are. A turn may run meanwhile: the range only has to be whole when the summary
    is appended. Raises SurfaceError where a call would be parted from its result.
    """
    nodes = _range(surface, "compress", start, end)
    asked = {call for node in nodes if node.type == "assistant/message" for call in node.calls}
    told = {call for node in nodes if node.type == "tool/result" for call in node.calls}
    if asked != told:
        raise SurfaceError("compress", f"{start} to {end} would part a tool call from its result")
    data: Data = {"turn": nodes[-1].turn, "text": text, "summary": True}
    return Event("assistant/message", surface.head, time, data, False, *_replace(nodes))


def prune(surface: Surface, result: Event, content: Any, time: int) -> Event:
    """The tool result ``result``, present on the surface, with other content and nothing else changed."""
    nodes = _range(surface, "prune", result.seq, result.seq)
    if nodes[0].type != "tool/result":
        raise SurfaceError("prune", f"{result.seq} is no tool result")
    data = {**result.data, "content": content}
    return Event("tool/result", surface.head, time, data, False, *_replace(nodes))


def rewrite(surface: Surface, messages: Sequence[tuple[str, Data]], number: int, time: int) -> tuple[Event, ...]:
    """Show ``messages`` (type and data, oldest first) instead of everything, in one batch; of none: show nothing.

    Each user message begins a closed turn of its own, numbered from ``number``, the first that is free. For import
    and for hosts that keep transcripts by themselves.
    """
    _check_closed(surface, "rewrite")
    made: list[tuple[str, Data]] = [(RESET, {"asOf": 0, "reason": "rewrite"})]
    for messages_of in by_turn(messages):
        made += closed_turn(messages_of, number)
        number += 1
    return tuple(Event(kind, surface.head + at, time, data) for at, (kind, data) in enumerate(made))


def closed_turn(messages: list[tuple[str, Data]], number: int) -> Iterator[tuple[str, Data]]:
    """A turn that holds these messages: those of the user, then one step with the rest."""
    yield "turn/start", {"turn": number, "claims": []}
    step: Data = {"turn": number, "step": 1}
    asked = [message for message in messages if message[0] == "user/message"]
    for kind, data in asked:
        yield kind, {**data, "turn": number}
    said = messages[len(asked) :]
    if said:
        yield "step/start", step
        for kind, data in said:
            if kind == "tool/result":
                yield "tool/call", {**step, "id": data.get("id"), "name": "", "args": {}, "effects": "none"}
            yield kind, {**data, **step}
        yield "step/end", step
    yield "turn/end", {"turn": number, "reason": {"kind": "completed"}}


def by_turn(messages: Iterable[tuple[str, Data]]) -> list[list[tuple[str, Data]]]:
    """The messages of each turn that ``rewrite`` makes: a user message begins one, and so does the very first."""
    turns: list[list[tuple[str, Data]]] = []
    for message in messages:
        if not turns or message[0] == "user/message":
            turns.append([])
        turns[-1].append(message)
    return turns


def _first_said(turn: VisibleTurn) -> int | None:
    before = set() if turn.nodes is None else {node.seq for node in walk_nodes(turn.nodes)}
    said = [node.seq for node in walk_nodes(turn.asked_nodes) if node.type == "user/message" and node.seq not in before]
    return said[-1] if said else None


def _range(surface: Surface, operation: str, start: int, end: int) -> list[Node]:
    nodes = surface.nodes()
    places = {node.seq: place for place, node in enumerate(nodes)}
    if start not in places or end not in places or places[start] > places[end]:
        raise SurfaceError(operation, f"{start} to {end} is no range of present messages")
    return nodes[places[start] : places[end] + 1]


def _replace(nodes: list[Node]) -> tuple[tuple[int, ...], Data]:
    # Sources ascend, as the log's readers expect; on the surface a summary may stand before older messages.
    seqs = tuple(sorted(node.seq for node in nodes))
    return seqs, {"op": "replace", "start": nodes[0].seq, "end": nodes[-1].seq}


def _reset(surface: Surface, as_of: int, reason: str, time: int) -> Event:
    return Event(RESET, surface.head, time, {"asOf": as_of, "reason": reason})


def _check_closed(surface: Surface, operation: str) -> None:
    if surface.open:
        raise SurfaceError(operation, f"turn {surface.open} is running")
