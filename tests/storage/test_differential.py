"""Random histories: the store in memory and SQLite answer and keep the same."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from seriatim.commits import Binding, Commit, Hot, Part
from seriatim.errors import BlobNotFoundError, LosslessJsonError
from seriatim.events import Event, LogId, check_lossless, is_plain
from seriatim.storage.blobs import hash_of
from seriatim.storage.contract import Erasure, Store, StoreReader
from seriatim.storage.encoding import to_json
from seriatim.testing.store_contract import commit, kinds, part

from .worlds import MemoryWorld, SqliteWorld

LANES = tuple(LogId(f"lane:{n}") for n in range(3))
SESSIONS = tuple(LogId(f"session:{n}") for n in range(3))
BLOBS = (b"", b"one", b"two")
NAMES = tuple(hash_of(blob) for blob in BLOBS)
TEXT = st.text(max_size=8)
DATA = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) - 1, 2**53 + 1) | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(TEXT, DATA, max_size=3)


@st.composite
def commits(draw: Any, names: st.SearchStrategy[str]) -> tuple[str, Any]:
    """A commit by intent: heads relative to where the log is, so that most succeed."""
    lane = draw(st.sampled_from(LANES))
    logs = [lane, *draw(st.lists(st.sampled_from(SESSIONS), max_size=2, unique=draw(st.booleans())))]
    parts = [
        (
            log,
            draw(st.sampled_from([0, 0, 0, 0, 0, 0, 1, -1])),
            draw(st.lists(st.tuples(OBJECTS, st.sampled_from([None, (), (0, 3)]), DATA), max_size=11)),
        )
        for log in logs[draw(st.sampled_from([0, 0, 0, 1])) :]
    ]
    bindings = draw(
        st.lists(st.tuples(st.sampled_from(SESSIONS), st.sampled_from([*LANES, None]), st.booleans()), max_size=2)
    )
    unique = draw(st.lists(st.sampled_from("abcdefgh"), max_size=2))
    blobs = draw(st.lists(st.sampled_from(NAMES), max_size=draw(st.sampled_from([0, 0, 0, 2]))))
    return draw(names), (lane, draw(st.integers(0, 3)), parts, bindings, unique, draw(st.integers(0, 3)), blobs)


def build(name: str, intent: Any, heads: dict[LogId, int], bound: dict[LogId, LogId | None]) -> Commit:
    """The commit that the intent means at these heads."""
    lane, incarnation, parts, moves, unique, waiting, blobs = intent
    made = []
    for log, shift, datas in parts:
        head = heads.get(log)
        first = 0 if head is None else head + shift
        events = tuple(
            Event("a/b", first + i, i, data, i % 2 == 0, seqs, operation)
            for i, (data, seqs, operation) in enumerate(datas)
        )
        hot = Hot(0, waiting, 0, "x", 0, waiting, 0, 0, 0) if log.startswith("lane") else None
        made.append(Part(log, first, events, hot, {"h": log} if head is None else None))
    bindings = tuple(Binding(s, bound.get(s) if right else LANES[0], to) for s, to, right in moves)
    return Commit(name, lane, incarnation, tuple(made), tuple(unique), bindings, tuple(blobs))


STEPS = st.lists(
    st.one_of(
        st.lists(commits(st.sampled_from([f"c{n}" for n in range(40)])), min_size=1, max_size=5),
        st.tuples(st.just("fence"), st.sampled_from(LANES), st.integers(0, 3)),
        st.tuples(
            st.just("erase"),
            st.sampled_from([*LANES, *SESSIONS]),
            st.integers(0, 3),
            st.booleans(),
            st.sampled_from([f"e{n}" for n in range(5)]),
        ),
        st.tuples(st.just("prune"), st.integers(0, 4), st.sampled_from(["", "c"]), st.integers(1, 5), st.booleans()),
        st.tuples(st.just("blob"), st.sampled_from(BLOBS), st.integers(0, 3)),
        st.tuples(st.just("sweep"), st.integers(0, 4), st.integers(1, 3), st.booleans()),
        st.just("reopen"),
        st.just("crash"),
    ),
    max_size=14,
)


BEGINNING = [
    commit("begin", part(LANES[0], 0, 2), part(SESSIONS[0], 0, 5), lane=LANES[0], unique=("a",),
           bindings=(Binding(SESSIONS[0], None, LANES[0]),)),
    commit("begin 1", part(LANES[1], 0, 9), lane=LANES[1], unique=("b", "c")),
    commit("begin 2", part(SESSIONS[1], 0), lane=SESSIONS[1]),
]  # fmt: skip
"""Most of what may happen needs something to be there."""


def without_digests(events: list[Event]) -> list[Event]:
    """A digest is keyed with the store's id, which no two stores share."""
    for event in events:
        event.data.pop("digest", None)
    return events


def view(store: Store) -> Any:
    """All that a reader can tell."""
    reader = store.reader()
    logs = reader.logs("")
    found = (
        {
            log: (
                reader.header(log),
                without_digests(reader.read(log)),
                without_digests(reader.read(log, 3, 4)),
                reader.binding(log),
            )
            for log in logs
        },
        reader.scan(""),
        reader.scan("lane:", "lane:0", 1),
        [reader.info(log) for log in logs],
        reader.open_work(),
        reader.open_work(limit=1),
        reader.counters(),
        reader.has_keys("abcdefgh"),
        [_blob(reader, name) for name in NAMES],
    )
    reader.close()
    return repr(found), found


def _blob(reader: StoreReader, name: str) -> bytes | None:
    try:
        return reader.blob(name)
    except BlobNotFoundError:
        return None


def act(store: Store, step: tuple[Any, ...]) -> Any:
    """Do one thing that is no commit; what comes back, as both stores must tell it."""
    what, *told = step
    if what == "fence":
        return store.fence(*told)
    if what == "erase":
        log, incarnation, drop_keys, name = told
        return repr(store.erase(Erasure(name, log, incarnation, 5, drop_keys)))
    if what == "prune":
        now, after, limit, dry_run = told
        return store.prune_keys(now, 2, after=after, limit=limit, dry_run=dry_run)
    if what == "blob":
        return store.put_blob(*told)
    if what == "sweep":
        before, limit, dry_run = told
        return store.sweep_blobs(before, limit=limit, dry_run=dry_run)
    raise AssertionError(what)


@settings(max_examples=30, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(STEPS)
def test_both_stores_answer_the_same(steps: list[Any]) -> None:
    """Over random groups, erasures, prunes, blobs, sweeps, fences, reopenings and crashes all answers are equal.

    So is everything that a reader can tell, after each step.
    """
    with tempfile.TemporaryDirectory() as folder:
        files = SqliteWorld(Path(folder))
        worlds: list[MemoryWorld | SqliteWorld] = [MemoryWorld(), files]
        stores = [world.open() for world in worlds]
        for store in stores:
            store.commit(BEGINNING)
        for step in steps:
            if step in ("reopen", "crash"):
                if step == "crash":
                    for world in worlds:
                        world.crash()
                stores = [world.open() for world in worlds]
                continue
            if isinstance(step, tuple):
                answers = [act(store, step) for store in stores]
                assert answers[0] == answers[1], step
                assert view(stores[0])[0] == view(stores[1])[0], step
                continue
            _, (logs, *_rest) = view(stores[0])
            heads = {log: len(events) for log, (_, events, _, _) in logs.items()}
            bound = {log: lane for log, (_, _, _, lane) in logs.items()}
            group = [build(name, intent, heads, bound) for name, intent in step]
            outcomes = [store.commit(group) for store in stores]
            assert [repr(o) for o in outcomes[0]] == [repr(o) for o in outcomes[1]], kinds(outcomes[0])
            assert view(stores[0])[0] == view(stores[1])[0]
        files.close()


@settings(max_examples=300)
@given(DATA)
def test_the_quick_check_is_the_exact_one(data: Any) -> None:
    """is_plain with a UTF-8 encoder takes exactly what check_lossless takes."""
    item = {"x": data}
    try:
        check_lossless("a/b", item)
        exact = True
    except LosslessJsonError:
        exact = False
    quick = is_plain(item)
    if quick:
        try:
            to_json(item).encode()
        except UnicodeEncodeError:
            quick = False
    assert quick == exact
