"""Turns that wait for other messages' answers, and the circles that they must not close.

A turn that awaits a receipt of its own lane waits for itself: the answer comes after the turn. So do two turns that
await each other's lanes. Who waits for whom is kept while they wait; the wait that would close a circle is refused.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from msgspec import Struct

from seriatim.errors import WaitCycleError

__all__ = ["Asker", "running_turn", "waiting_for"]

Node = tuple[int, str]
"""A lane of one gateway: several may live in a process, and their lanes may bear the same names."""


class Asker(Struct, frozen=True):
    """The turn in whose context code runs: its gateway's runner, its lane, and the task that it is."""

    owner: object
    lane: str
    task: asyncio.Task[Any] | None


running_turn: ContextVar[Asker | None] = ContextVar("seriatim_running_turn", default=None)

_guard = threading.Lock()
_waits: dict[Node, list[Node]] = {}


@contextmanager
def waiting_for(owner: object, lane: str) -> Iterator[None]:
    """While the body waits for an answer of *lane*. Any thread.

    A task that a turn has started and left to itself may wait for anything: only the turn's own task counts, and
    where no loop runs, its thread.

    Raises:
        WaitCycleError: the answer needs the end of the turn that waits.
    """
    asker = running_turn.get()
    if asker is None or not _is_the_turn(asker):
        yield
        return
    here, there = (id(asker.owner), asker.lane), (id(owner), lane)
    with _guard:
        path = _path(there, here)
        if path is not None:
            raise WaitCycleError((asker.lane, *(name for _, name in path)))
        _waits.setdefault(here, []).append(there)
    try:
        yield
    finally:
        with _guard:
            _waits[here].remove(there)
            if not _waits[here]:
                del _waits[here]


def _is_the_turn(asker: Asker) -> bool:
    try:
        return asyncio.current_task() is asker.task
    except RuntimeError:  # no loop runs here: a plain agent's thread, or a tool's
        return True


def _path(start: Node, end: Node) -> list[Node] | None:
    """How *start* waits, by way of others, for *end*."""
    ways: list[list[Node]] = [[start]]
    seen = {start}
    while ways:
        way = ways.pop()
        if way[-1] == end:
            return way
        for following in _waits.get(way[-1], ()):
            if following not in seen:
                seen.add(following)
                ways.append([*way, following])
    return None
