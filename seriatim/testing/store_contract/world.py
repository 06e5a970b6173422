"""What the contract runs on, and the values that its cases are told in."""

from __future__ import annotations

import enum
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, Literal, Protocol

from seriatim.commits import Binding, Commit, Hot, Outcome, Part, Refused
from seriatim.errors import SeriatimError
from seriatim.events import DEPTH_MAX, SAFE_INTEGER_MAX, Event, LogId
from seriatim.storage.contract import Store

LANE = LogId("lane:a")
OTHER = LogId("lane:b")
SESSION = LogId("session:s1")
SECOND = LogId("session:s2")
IDLE = Hot(0, 0, 0, "idle", 0, 0, 0, 0, 0)


class StoreWorld(Protocol):
    """One medium, and what may happen to it. A world that can't do one of the last five raises ``pytest.skip``."""

    def open(self) -> Store:
        """A new owner; earlier ones stay open and have lost."""
        ...

    def crash(self) -> None:
        """Kill the process: what was durable stays, earlier owners are never used again."""
        ...

    def fail(self, store: Store, *, done: bool) -> None:
        """Let the store's next write end in an I/O error, after the write was done or before."""
        ...

    def damage(self, log: LogId, seq: int) -> None:
        """Change what is kept of that event's data, behind the store's back."""
        ...

    def damage_blob(self, name: str) -> None:
        """Change a kept blob's content."""
        ...

    def relabel(self, kind: Literal["own", "newer", "older", "foreign"]) -> None:
        """Mark the medium, not open now, as of a newer or older format or another program, or as ours again."""
        ...

    def holds(self, text: str) -> bool:
        """Whether the medium's raw bytes hold the text anywhere."""
        ...


class Text(str):
    """Text that isn't exactly ``str``."""

    __slots__ = ()


class Colour(enum.IntEnum):
    """A number that isn't exactly ``int``."""

    RED = 1


def events(first: int, count: int, **data: Any) -> tuple[Event, ...]:
    """So many events from ``first`` on; the data of each says its number."""
    return tuple(Event("inbox/accepted", first + i, 1000 + i, {"n": first + i, **data}) for i in range(count))


def part(log: LogId, head: int, count: int = 1, **more: Any) -> Part:
    """A part of so many events; at head 0 it makes the log unless told otherwise."""
    header = more.pop("header", {"id": log} if head == 0 else None)
    return Part(log, head, events(head, count), header=header, **more)


def commit(name: str, *parts: Part, lane: LogId = LANE, incarnation: int = 1, **more: Any) -> Commit:
    """A commit of these parts."""
    return Commit(name, lane, incarnation, parts, **more)


def born(name: str = "born", lane: LogId = LANE, session: LogId = SESSION, count: int = 1) -> Commit:
    """The commit that makes a lane and its session, bound to it."""
    return commit(
        name, part(lane, 0, count), part(session, 0, count), lane=lane, bindings=(Binding(session, None, lane),)
    )


def one(store: Store, offered: Commit) -> Outcome:
    """The outcome of one commit alone."""
    (outcome,) = store.commit([offered])
    return outcome


def refusal(store: Store, offered: Commit) -> SeriatimError:
    """The error of a commit that must be refused and must leave nothing behind."""
    reader = store.reader()
    before = {log: reader.read(log) for log in reader.logs("")}
    outcome = one(store, offered)
    assert type(outcome) is Refused, outcome
    assert outcome.commit == offered.id
    assert {log: reader.read(log) for log in reader.logs("")} == before
    assert not reader.has_keys([key for key in offered.unique if key not in outcome.keys_found])
    reader.close()
    return outcome.error


def kinds(outcomes: Sequence[Outcome]) -> list[str]:
    """Durable, or the name of the error."""
    return [type(o.error).__name__ if isinstance(o, Refused) else type(o).__name__ for o in outcomes]


def bad_data() -> dict[str, Any]:
    """Values that JSON would change or can't carry, by what is wrong."""
    deep: Any = []
    for _ in range(DEPTH_MAX + 1):
        deep = [deep]
    return {
        "a key that is a number": {1: "x"},
        "a key that is nothing": {None: "x"},
        "a key that isn't exactly text": {Text("k"): 1},
        "a tuple": {"x": (1, 2)},
        "a set": {"x": {1}},
        "bytes": {"x": b"1"},
        "an object": {"x": object()},
        "not a number": {"x": float("nan")},
        "infinity": {"x": float("inf")},
        "minus zero": {"x": -0.0},
        "a large integer": {"x": SAFE_INTEGER_MAX + 1},
        "a large negative integer": {"x": [-SAFE_INTEGER_MAX - 1]},
        "a lone surrogate": {"x": "\ud800"},
        "a lone surrogate in a key": {"\udfff": 1},
        "text of a subclass": {"x": Text("a")},
        "an enumerated number": {"x": Colour.RED},
        "a dict of a subclass": {"x": OrderedDict(a=1)},
        "nesting too deep": {"x": deep},
        "a list at the top": [1],
        "text at the top": "x",
    }


GOOD_DATA: dict[str, Any] = {
    "text": 'a\0b\n"\\/ é 漢 👍 \u2028\x7f\x1f',
    "é key": {"": []},
    "integers": [0, -1, SAFE_INTEGER_MAX, -SAFE_INTEGER_MAX],
    "numbers": [0.0, 1.5, -2.5e-300, 1e308, 5e-324, 0.1, 1.0, 100.0],
    "truth": [True, False, None],
    "empty": {"list": [], "object": {}, "text": ""},
    "order": {"z": 1, "a": 2, "m": 3},
}
