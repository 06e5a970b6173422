"""The way of plain groups takes what ``Staging.add`` takes, and stages the same."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from seriatim.commits import Binding, Commit, Hot, Part
from seriatim.events import DEPTH_MAX, Event, LogId
from seriatim.limits import STORE_COMMIT_BYTES_MAX
from seriatim.storage.encoding import encode_events
from seriatim.storage.plain import PlainGroup, stage_plain
from seriatim.storage.rows import lay_out, statement
from seriatim.storage.schema import STEPS, restore_writer
from seriatim.storage.staging import LogState, Staging

from .test_differential import OBJECTS

KIND = "a/b"
IDLE = Hot(0, 0, 0, "idle", 0, 0, 0, 0, 0)
LANES = [LogId(f"lane:{n}") for n in range(4)]
SESSIONS = [LogId(f"session:{n}") for n in range(4)]
KNOWN = {
    log: LogState(number, 5, 99, lane)
    for number, (log, lane) in enumerate([*((x, None) for x in LANES), *zip(SESSIONS, LANES, strict=True)], 1)
}
encode_events(1, 0, [Event(KIND, 0, 0, {})])  # from now on a known type


def commit(n: int, *datas: dict[str, Any]) -> Commit:
    """A plain commit of lane ``n`` with those datas in both of its logs."""
    events = tuple(Event(KIND, 5 + i, 1000 + n, data) for i, data in enumerate(datas or ({"turn": n},)))
    parts = (Part(LANES[n], 5, events, IDLE), Part(SESSIONS[n], 5, events))
    return Commit(f"c{n}", LANES[n], 1, parts, (f"k{n}",))


def staged_one_by_one(commits: list[Commit]) -> Staging:
    """By ``Staging.add``, which refuses nothing of it."""
    staging = Staging(lambda log, _new: KNOWN.get(log), {}, 9)
    for one in commits:
        staging.add(one)
    assert not staging.refused()
    return staging


def written(values: list[Any], rows: int) -> list[Any]:
    """All rows of the database after these were written."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    for statements in STEPS:
        for sql in statements:
            connection.execute(sql)
    restore_writer(connection)
    connection.execute("INSERT INTO meta VALUES (1, 'x', 3, '')")
    connection.execute(statement(rows), values)
    tables = ("events", "commits", "keys", "lanes")
    found = [sorted(connection.execute(f"SELECT * FROM {table}").fetchall(), key=str) for table in tables]
    connection.close()
    return found


def stage_all(commits: list[Commit], fences: dict[LogId, int] | None = None) -> PlainGroup | None:
    """The group, staged in epoch 3."""
    return stage_plain(commits, KNOWN, fences or {}, 3, 7)


@given(st.lists(st.lists(OBJECTS, min_size=1, max_size=6), min_size=1, max_size=4))
def test_what_is_taken_is_staged_the_same(datas: list[list[dict[str, Any]]]) -> None:
    """Rows, checksums and heads are those of one commit after another."""
    commits = [commit(n, *run) for n, run in enumerate(datas)]
    commits[0] = replace(commits[0], unique=("k0", "another", "one more"))
    group = stage_all(commits)
    if group is None:
        return
    exact = staged_one_by_one(commits)
    values, rows, at = lay_out(exact.staged, 3, 7)
    assert written(group.values, group.rows) == written(values, rows)
    assert group.at == at
    assert group.tips == [(exact.logs[p.log].head, exact.logs[p.log].crc) for c in commits for p in c.parts]


def test_a_group_is_settled_when_it_is_durable() -> None:
    """Only then are its logs longer."""
    state = LogState(1, 5, 99, None)
    group = PlainGroup([], [], 0, 0, [state], [(8, 77)])
    group.settle()
    assert state == LogState(1, 8, 77, None)


def test_an_ordinary_group_is_plain() -> None:
    """Else the speed would be gone and no test the wiser."""
    assert stage_all([commit(0), commit(1, {"a": {"b": [1, 0.5, None, True]}}, {})], {LANES[0]: 1}) is not None


def _part(one: Commit, **changes: Any) -> Commit:
    return replace(one, parts=(replace(one.parts[0], **changes), one.parts[1]))


def _event(one: Commit, **changes: Any) -> Commit:
    return _part(one, events=(replace(one.parts[0].events[0], **changes),))


ODD: dict[str, Callable[[Commit], Commit]] = {
    "an id of the group": lambda c: replace(c, id="c0"),
    "an id that is no name": lambda c: replace(c, id="a\0b"),
    "an empty key": lambda c: replace(c, unique=("",)),
    "a key of the group": lambda c: replace(c, unique=("k0",)),
    "a key twice": lambda c: replace(c, unique=("x", "x")),
    "a key with a lone surrogate": lambda c: replace(c, unique=("\ud800",)),
    "a fenced incarnation": lambda c: replace(c, incarnation=0),
    "a binding": lambda c: replace(c, bindings=(Binding(SESSIONS[1], LANES[1], None),)),
    "no parts": lambda c: replace(c, parts=()),
    "three parts": lambda c: replace(c, parts=(*c.parts, replace(c.parts[1], log=SESSIONS[2]))),
    "another lane's session": lambda c: replace(c, lane=LANES[2]),
    "a log of the group": lambda c: replace(c, lane=LANES[0], parts=commit(0).parts),
    "an unknown log": lambda c: _part(c, log=LogId("lane:new")),
    "a new log": lambda c: _part(c, header={}),
    "another head": lambda c: _part(c, expected_head=4),
    "no events": lambda c: _part(c, events=()),
    "a hot session": lambda c: replace(c, parts=(c.parts[0], replace(c.parts[1], hot=IDLE))),
    "an event out of place": lambda c: _event(c, seq=6),
    "an unknown type": lambda c: _event(c, type="never/seen"),
    "a time that is no integer": lambda c: _event(c, time=1.0),
    "a time of its own": lambda c: _event(c, time=5),
    "a time too large": lambda c: _event(c, time=2**53),
    "an ignorable event": lambda c: _event(c, ignorable=True),
    "a surface operation": lambda c: _event(c, surface_op={}),
    "source events": lambda c: _event(c, source_event_seqs=()),
    "data that is no object": lambda c: _event(c, data=[]),
    "a tuple": lambda c: _event(c, data={"a": ({},)}),
    "a key that is no text": lambda c: _event(c, data={"a": [{1: 2}]}),
    "an integer too large": lambda c: _event(c, data={"a": [{"b": 2**53}]}),
    "minus zero": lambda c: _event(c, data={"a": -0.0}),
    "no number": lambda c: _event(c, data={"a": [math.nan]}),
    "a lone surrogate": lambda c: _event(c, data={"a": "\ud800"}),
    "more than a commit may hold": lambda c: _event(c, data={"a": "x" * STORE_COMMIT_BYTES_MAX}),
}


@pytest.mark.parametrize("odd", ODD)
def test_one_odd_commit_makes_the_group_not_plain(odd: str) -> None:
    """Wrong or only rare: it is left to ``Staging.add``."""
    assert stage_all([commit(0), ODD[odd](commit(1))], {LANES[1]: 1}) is None


def test_deep_data_may_be_plain_and_a_loop_is_not() -> None:
    """Nested as deep as data may be, it is still plain."""
    deep: dict[str, Any] = {}
    for _ in range(DEPTH_MAX - 1):
        deep = {"a": deep}
    assert stage_all([commit(0, deep)]) is not None
    assert stage_all([commit(0, {"a": deep})]) is None
    loop: list[Any] = []
    loop += [loop] * 1000
    assert stage_all([commit(0, {"a": loop})]) is None
