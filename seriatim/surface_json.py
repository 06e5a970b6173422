"""Snapshots of a surface: plain JSON data and back.

What is shared stays shared: each node is one row ``[before, seq, type, turn, call ids…]`` and each visible turn one
row ``[earlier, start, number, nodes, asked, asked nodes, asked number]``, where *before*, *earlier* and *nodes* are
places in these lists, -1 for none. A snapshot may be thrown away: the log tells the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import Any, Final

from seriatim.errors import SurfaceError
from seriatim.events import Data
from seriatim.surface import Node, Surface, Undone, VisibleTurn, walk_nodes, walk_turns, walk_undos

SNAPSHOT_VERSION: Final = 1
_TYPES: Final = ("user/message", "assistant/message", "tool/result")


def surface_to_json(surface: Surface) -> Data:
    """A snapshot from which ``surface_from_json`` makes an equal surface; size: what can still be reached."""
    undos = list(walk_undos(surface.undone))
    turn_rows, turn_places = _turns(chain([surface.turns], (undo.turns for undo in undos)))
    tops = chain(
        [surface.last],
        (undo.nodes for undo in undos),
        *((turn.nodes, turn.asked_nodes) for turn in turn_rows),
    )
    node_rows, node_places = _nodes(tops)
    return {
        "version": SNAPSHOT_VERSION,
        "head": surface.head,
        "open": surface.open,
        "forgotten": surface.forgotten,
        "horizon": surface.horizon,
        "last": _place(node_places, surface.last),
        "turn": _place(turn_places, surface.turns),
        "nodes": [
            [_place(node_places, node.before), node.seq, _TYPES.index(node.type), node.turn, *node.calls]
            for node in node_rows
        ],
        "turns": [
            [
                _place(turn_places, turn.earlier),
                turn.start,
                turn.number,
                _place(node_places, turn.nodes),
                turn.asked,
                _place(node_places, turn.asked_nodes),
                turn.asked_number,
            ]
            for turn in turn_rows
        ],
        "undone": [[undo.seq, _place(node_places, undo.nodes), _place(turn_places, undo.turns)] for undo in undos],
    }


def surface_from_json(data: Data) -> Surface:
    """The inverse of ``surface_to_json``: applying the events from ``head`` on gives what applying all gives.

    Raises SurfaceError for data that is no snapshot of this version: fold the whole log instead.
    """
    try:
        if data["version"] != SNAPSHOT_VERSION:
            raise SurfaceError("snapshot", f"has version {data['version']!r}")
        return _surface(data)
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise SurfaceError("snapshot", f"is malformed: {error!r}") from error


def _surface(data: Data) -> Surface:
    nodes: list[Node | None] = []
    for before, seq, kind, turn, *calls in data["nodes"]:
        nodes.append(Node(seq, _TYPES[kind], turn, tuple(calls), _at(nodes, before)))
    turns: list[VisibleTurn | None] = []
    for earlier, start, number, before, asked, asked_nodes, asked_number in data["turns"]:
        there = _at(nodes, before), _at(turns, earlier)
        turns.append(VisibleTurn(start, number, *there, asked, _at(nodes, asked_nodes), asked_number))
    undone: Undone | None = None
    for seq, before, turn in reversed(data["undone"]):
        undone = Undone(seq, _at(nodes, before), _at(turns, turn), undone)
    return Surface(
        data["head"],
        data["open"],
        _at(nodes, data["last"]),
        _at(turns, data["turn"]),
        undone,
        data["forgotten"],
        data["horizon"],
    )


def _at(items: list[Any], place: int) -> Any:
    """The item at a place that was filled before; -1 is none."""
    if place < -1:
        raise IndexError(place)
    return None if place == -1 else items[place]


def _place(places: dict[int, int], item: Node | VisibleTurn | None) -> int:
    return -1 if item is None else places[id(item)]


def _nodes(tops: Iterable[Node | None]) -> tuple[list[Node], dict[int, int]]:
    """Every node that a top reaches, each after the one before it, and their places by identity."""
    rows: list[Node] = []
    places: dict[int, int] = {}
    for top in tops:
        new: list[Node] = []
        for node in walk_nodes(top):
            if id(node) in places:
                break
            new.append(node)
        for node in reversed(new):
            places[id(node)] = len(rows)
            rows.append(node)
    return rows, places


def _turns(tops: Iterable[VisibleTurn | None]) -> tuple[list[VisibleTurn], dict[int, int]]:
    """As ``_nodes``, of visible turns."""
    rows: list[VisibleTurn] = []
    places: dict[int, int] = {}
    for top in tops:
        new: list[VisibleTurn] = []
        for turn in walk_turns(top):
            if id(turn) in places:
                break
            new.append(turn)
        for turn in reversed(new):
            places[id(turn)] = len(rows)
            rows.append(turn)
    return rows, places
