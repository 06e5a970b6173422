"""The contract of a store, as tests that run against any of them.

Derive from `StoreContract` in a test module, name the class ``Test…`` and give it a fixture ``world``: a
`StoreWorld`, which opens owners on one medium and can crash it. Each test is one claim of
`seriatim.storage.contract`.
"""

from __future__ import annotations

import enum
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, Protocol

import pytest

from seriatim.commits import Binding, Commit, Durable, Hot, Outcome, Part, Refused
from seriatim.errors import (
    BindingMismatchError,
    CommitTooLargeError,
    HeadMismatchError,
    InvalidInputError,
    KeysTakenError,
    LogExistsError,
    LogNotFoundError,
    LosslessJsonError,
    OwnershipLostError,
    SeriatimError,
    StoreUnhealthyError,
)
from seriatim.events import DEPTH_MAX, SAFE_INTEGER_MAX, Event, LogId
from seriatim.limits import STORE_COMMIT_BYTES_MAX
from seriatim.storage.contract import Balance, Store

LANE = LogId("lane:a")
OTHER = LogId("lane:b")
SESSION = LogId("session:s1")
SECOND = LogId("session:s2")
IDLE = Hot(0, 0, 0, "idle", 0, 0, 0, 0, 0)


class StoreWorld(Protocol):
    """One medium. ``open`` gives a new owner of it; ``crash`` leaves what a kill of the process would."""

    def open(self) -> Store:
        """A new owner; earlier ones stay open and have lost."""
        ...

    def crash(self) -> None:
        """Kill the process: what was durable stays, earlier owners are never used again."""
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


class LogClaims:
    """What a log is, how it is made and read."""

    def test_a_commit_is_readable_at_once(self, world: StoreWorld) -> None:
        """What Durable answers is read by a new reader, equal in every field."""
        store = world.open()
        assert one(store, born(count=3)) == Durable("born")
        assert store.reader().read(LANE) == list(events(0, 3))
        assert store.reader().read(SESSION) == list(events(0, 3))

    def test_an_open_reader_sees_later_commits(self, world: StoreWorld) -> None:
        """A reader sees everything durable at each call, not what was there when it opened."""
        store = world.open()
        reader = store.reader()
        assert reader.read(LANE) == []
        store.commit([born()])
        assert len(reader.read(LANE)) == 1

    def test_the_header_comes_back(self, world: StoreWorld) -> None:
        """A header comes back as it was given, and None for no log."""
        store = world.open()
        header = {"version": 1, "cwd": "/é", "origin": {"a": [None]}}
        one(store, commit("c", part(LANE, 0, header=header)))
        assert store.reader().header(LANE) == header
        assert store.reader().header(OTHER) is None

    def test_a_header_is_lossless(self, world: StoreWorld) -> None:
        """A header that JSON would change is refused, as data is."""
        error = refusal(world.open(), commit("c", part(LANE, 0, header={"x": (1,)})))
        assert isinstance(error, LosslessJsonError)

    def test_a_log_can_be_born_without_events(self, world: StoreWorld) -> None:
        """A header alone makes an empty log, which then takes events."""
        store = world.open()
        assert one(store, commit("c", part(LANE, 0, 0))) == Durable("c")
        assert store.reader().read(LANE) == []
        assert store.reader().header(LANE) is not None
        assert one(store, commit("d", part(LANE, 0, 2, header=None))) == Durable("d")
        assert len(store.reader().read(LANE)) == 2

    def test_a_log_is_made_once(self, world: StoreWorld) -> None:
        """A second header for a log is LogExists."""
        store = world.open()
        store.commit([commit("c", part(LANE, 0))])
        assert isinstance(refusal(store, commit("d", part(LANE, 0))), LogExistsError)

    def test_a_log_is_made_once_after_reopening(self, world: StoreWorld) -> None:
        """The same with nothing of the log in the owner's memory."""
        world.open().commit([commit("c", part(LANE, 0))])
        assert isinstance(refusal(world.open(), commit("d", part(LANE, 0))), LogExistsError)

    def test_a_log_must_be_made_first(self, world: StoreWorld) -> None:
        """A part without a header, for a log that isn't there, is LogNotFound."""
        error = refusal(world.open(), commit("c", part(LANE, 0, header=None)))
        assert isinstance(error, LogNotFoundError)
        assert error.log == LANE

    def test_a_log_begins_at_0(self, world: StoreWorld) -> None:
        """A header with an expected head other than 0 is refused."""
        error = refusal(world.open(), commit("c", part(LANE, 3, header={})))
        assert isinstance(error, HeadMismatchError)

    def test_a_stale_head_is_refused(self, world: StoreWorld) -> None:
        """An old expected head is a mismatch that tells both heads."""
        store = world.open()
        store.commit([commit("c", part(LANE, 0, 3))])
        error = refusal(store, commit("d", part(LANE, 2)))
        assert isinstance(error, HeadMismatchError)
        assert (error.log, error.expected, error.actual) == (LANE, 2, 3)

    def test_a_gap_is_refused(self, world: StoreWorld) -> None:
        """An expected head beyond the log is a mismatch."""
        store = world.open()
        store.commit([commit("c", part(LANE, 0, 3))])
        assert isinstance(refusal(store, commit("d", part(LANE, 4))), HeadMismatchError)

    def test_heads_are_known_after_reopening(self, world: StoreWorld) -> None:
        """A new owner takes the right head and refuses a wrong one."""
        world.open().commit([commit("c", part(LANE, 0, 20)), commit("d", part(LANE, 20, 3))])
        store = world.open()
        assert isinstance(refusal(store, commit("e", part(LANE, 20))), HeadMismatchError)
        assert one(store, commit("f", part(LANE, 23))) == Durable("f")

    def test_events_are_numbered_by_their_place(self, world: StoreWorld) -> None:
        """An event whose number isn't its place is refused."""
        bad = Part(LANE, 0, (Event("a/b", 1, 0, {}),), header={})
        assert isinstance(refusal(world.open(), commit("c", bad)), InvalidInputError)

    def test_long_parts_keep_their_order(self, world: StoreWorld) -> None:
        """Hundreds of events of one part come back in order, each with its own data."""
        store = world.open()
        store.commit([commit("c", part(LANE, 0, 257))])
        assert store.reader().read(LANE) == list(events(0, 257))

    def test_parts_of_every_small_size(self, world: StoreWorld) -> None:
        """Parts of 1 to 40 events in turn make one contiguous log."""
        store, head = world.open(), 0
        for size in range(1, 41):
            assert one(store, commit(f"c{size}", part(LANE, head, size))) == Durable(f"c{size}")
            head += size
        assert store.reader().read(LANE) == [e for s in range(1, 41) for e in events(s * (s - 1) // 2, s)]

    def test_reading_from_every_place(self, world: StoreWorld) -> None:
        """from_seq and limit cut the whole log, wherever they fall in a part."""
        store = world.open()
        heads = (0, 3, 4, 13)
        store.commit([commit(f"c{h}", part(LANE, h, size)) for h, size in zip(heads, (3, 1, 9, 2), strict=True)])
        reader, whole = store.reader(), [e for h, s in zip(heads, (3, 1, 9, 2), strict=True) for e in events(h, s)]
        for start in range(17):
            for limit in (None, 0, 1, 2, 5, 100):
                cut = whole[start:] if limit is None else whole[start:][:limit]
                assert reader.read(LANE, start, limit) == cut, (start, limit)

    def test_reading_no_log(self, world: StoreWorld) -> None:
        """A log that isn't there reads as empty, whatever its name."""
        reader = world.open().reader()
        assert [reader.read(LogId(name)) for name in ("lane:none", "", "\0", "\ud800")] == [[], [], [], []]

    def test_logs_are_paged_in_order(self, world: StoreWorld) -> None:
        """Pages of one prefix, sorted by code point, leave nothing out and repeat nothing."""
        store = world.open()
        names = [f"lane:{n}" for n in ("b", "a", "é", "a:x", "_", "%", "👍", "Z")]
        store.commit([commit(n, part(LogId(n), 0), lane=LogId(n)) for n in names])
        store.commit([commit("sys", part(LogId("system"), 0), lane=LogId("system"))])
        reader, seen = store.reader(), list[str]()
        while page := reader.logs("lane:", seen[-1] if seen else "", 3):
            assert len(page) <= 3
            seen += page
        assert seen == sorted(names)
        assert reader.logs("lane:a") == ["lane:a", "lane:a:x"]
        assert reader.logs("lane:_") == ["lane:_"]
        assert reader.logs("nothing") == []

    def test_a_page_ends_with_its_prefix(self, world: StoreWorld) -> None:
        """Names that sort right behind a prefix, or share all but its end, are not of it."""
        store = world.open()
        names = ["a", "lane", "lane9", "lane:", "lane:\U0010ffff", "lane:x", "lane;", "lane:\U0010ffffz"]
        store.commit([commit(n, part(LogId(n), 0), lane=LogId(n)) for n in names])
        reader = store.reader()
        assert reader.logs("lane:") == ["lane:", "lane:x", "lane:\U0010ffff", "lane:\U0010ffffz"]
        assert reader.logs("lane:\U0010ffff") == ["lane:\U0010ffff", "lane:\U0010ffffz"]
        assert reader.logs("", limit=-1) == []

    def test_a_scan_tells_what_a_list_shows(self, world: StoreWorld) -> None:
        """Header, head, last time, lane and counters of each log, without reading its events."""
        store, hot = world.open(), Hot(0, 1, 0, "x", 5, 1, 0, 0, 0)
        store.commit([born(count=3), commit("c", part(LANE, 3, hot=hot)), commit("e", part(OTHER, 0, 0), lane=OTHER)])
        lane, other, session = store.reader().scan("")
        assert (lane.log, lane.head, lane.last_time, lane.lane, lane.hot) == (LANE, 4, 1000, None, hot)
        assert (other.log, other.head, other.last_time, other.hot) == (OTHER, 0, None, None)
        assert (session.log, session.head, session.lane, session.header) == (SESSION, 3, LANE, {"id": SESSION})
        assert store.reader().info(SESSION) == session
        assert store.reader().info(SECOND) is None

    def test_a_scan_is_paged(self, world: StoreWorld) -> None:
        """Its pages are those of logs()."""
        store = world.open()
        store.commit([commit(f"s{n}", part(LogId(f"session:{n}"), 0), lane=LogId(f"session:{n}")) for n in range(7)])
        reader, seen = store.reader(), list[str]()
        while page := reader.scan("session:", seen[-1] if seen else "", 3):
            seen += [info.log for info in page]
        assert seen == reader.logs("session:")
        assert reader.scan("session:", limit=0) == []

    def test_a_revision_changes_with_the_content_alone(self, world: StoreWorld) -> None:
        """Store id, incarnation and head stay over reopening and a crash, and change with each append."""
        store = world.open()
        store.commit([born()])

        def revision() -> tuple[Any, ...]:
            reader = world.open().reader()
            info = reader.info(SESSION)
            assert info is not None
            return reader.store_id, info.incarnation, info.head

        before = revision()
        world.crash()
        assert revision() == before
        world.open().commit([commit("c", part(SESSION, 1), lane=LANE)])
        assert revision() == (*before[:2], 2)

    def test_names_are_kept_exactly(self, world: StoreWorld) -> None:
        """Odd but sound names of logs, commits and keys come back; nothing in them is syntax."""
        store = world.open()
        for n, name in enumerate(("lane:'; DROP", 'lane:"{}', "lane:[1]", "lane:\n\t", "lane:漢👍", "lane: ")):
            log = LogId(name)
            outcome = one(store, commit(name, part(log, 0, 2, header={"n": n}), lane=log, unique=(name, name + "2")))
            assert outcome == Durable(name)
            assert store.reader().header(log) == {"n": n}
            assert store.reader().has_keys([name, name + "2", name + "3"]) == {name, name + "2"}

    def test_unsound_names_are_refused(self, world: StoreWorld) -> None:
        """Empty names, NUL, lone surrogates and what isn't text are refused wherever a name stands."""
        store = world.open()
        for bad in ("", "a\0b", "\ud800", "x" * 100_000):
            log = LogId(bad)
            assert isinstance(refusal(store, commit("c", part(log, 0), lane=log)), InvalidInputError)
            assert isinstance(refusal(store, commit(bad, part(LANE, 0))), InvalidInputError)
            assert isinstance(refusal(store, commit("c", part(LANE, 0), unique=(bad,))), InvalidInputError)

    def test_empty_and_doubled_parts_are_refused(self, world: StoreWorld) -> None:
        """A commit needs a part, a part that makes no log needs an event, and a log stands in one part."""
        store = world.open()
        store.commit([commit("c", part(LANE, 0))])
        assert isinstance(refusal(store, commit("d")), InvalidInputError)
        assert isinstance(refusal(store, commit("e", part(LANE, 1, 0))), InvalidInputError)
        assert isinstance(refusal(store, commit("f", part(LANE, 1), part(LANE, 2))), InvalidInputError)

    def test_too_many_parts_are_refused(self, world: StoreWorld) -> None:
        """Two lane parts and two session parts are the most."""
        store = world.open()
        three = [part(LogId(f"session:{n}"), 0) for n in range(3)]
        bound = tuple(Binding(p.log, None, LANE) for p in three)
        assert isinstance(refusal(store, commit("c", part(LANE, 0), *three, bindings=bound)), InvalidInputError)
        lanes = [part(LogId(f"lane:{n}"), 0) for n in range(3)]
        assert isinstance(refusal(store, commit("d", *lanes)), InvalidInputError)
        assert kinds(store.commit([commit("e", part(LANE, 0), part(OTHER, 0))])) == ["Durable"]


class JsonClaims:
    """Data comes back equal and of the same types, or is refused before anything is written."""

    def test_good_data_comes_back(self, world: StoreWorld) -> None:
        """Everything that JSON can carry comes back equal, of the same types, in the same order."""
        store = world.open()
        store.commit([commit("c", Part(LANE, 0, (Event("x/y", 0, -5, GOOD_DATA),), header={}))])
        (event,) = store.reader().read(LANE)
        assert repr(event.data) == repr(GOOD_DATA)
        assert event.time == -5

    def test_text_that_looks_like_the_stores_own_marks(self, world: StoreWorld) -> None:
        """Lists of NULs, braces and commas are data like any other, in parts of every shape."""
        store, head = world.open(), 0
        odd: list[Any] = [["\0", "\0", "\0"], '},"\0",{', ["", "\0", {}], {"\0": "\0", "a": ["\0", "\0"]}]
        for size in (1, 2, 5):
            offered = tuple(Event("x/y", head + i, 0, {"x": odd[i % 4], "n": i}) for i in range(size))
            made = Part(LANE, head, offered, header=None if head else {})
            assert one(store, commit(f"c{size}", made)) == Durable(f"c{size}")
            assert store.reader().read(LANE, head) == list(offered)
            head += size

    def test_bad_data_is_refused(self, world: StoreWorld) -> None:
        """What JSON would change or can't carry is refused with LosslessJsonError, the log unharmed."""
        store = world.open()
        store.commit([commit("c", part(LANE, 0))])
        for what, data in bad_data().items():
            error = refusal(store, commit("d", Part(LANE, 1, (Event("x/y", 1, 0, data),))))
            assert isinstance(error, LosslessJsonError), what
            assert error.event_type == "x/y"

    def test_errors_name_no_text(self, world: StoreWorld) -> None:
        """A refusal says where and what kind, never what the user wrote."""
        store = world.open()
        for data in (
            {"x": {"secret": {"secret": ["secret\ud800"]}}},
            {"x": {"a": {"secret": (1,)}}},
            {"x": {"\ud800secret": 1}},
        ):
            error = refusal(store, commit("c", Part(LANE, 0, (Event("x/y", 0, 0, data),), header={})))
            assert isinstance(error, LosslessJsonError)
            assert "secret" not in str(error)
            assert "x/y" in str(error)

    def test_the_deepest_nesting_comes_back(self, world: StoreWorld) -> None:
        """Nesting at the limit is kept; one more is refused."""
        store = world.open()
        data: Any = "x"
        for _ in range(DEPTH_MAX - 1):
            data = [data]
        kept = {"d": data}
        assert one(store, commit("c", Part(LANE, 0, (Event("x/y", 0, 0, kept),), header={}))) == Durable("c")
        assert store.reader().read(LANE)[0].data == kept
        error = refusal(store, commit("d", Part(LANE, 1, (Event("x/y", 1, 0, {"d": [data]}),))))
        assert isinstance(error, LosslessJsonError)

    def test_input_is_copied(self, world: StoreWorld) -> None:
        """Changing the data after the commit changes nothing in the store."""
        store, data = world.open(), {"list": [1]}
        store.commit([commit("c", Part(LANE, 0, (Event("x/y", 0, 0, data),), header={}))])
        data["list"].append(2)
        assert store.reader().read(LANE)[0].data == {"list": [1]}

    def test_output_is_fresh(self, world: StoreWorld) -> None:
        """Changing what a reader gave changes nothing for the next reader."""
        store = world.open()
        store.commit([commit("c", Part(LANE, 0, (Event("x/y", 0, 0, {"list": [1]}),), header={"a": [1]}))])
        store.reader().read(LANE)[0].data["list"].append(2)
        header = store.reader().header(LANE)
        assert header is not None
        header["a"].append(2)
        assert store.reader().read(LANE)[0].data == {"list": [1]}
        assert store.reader().header(LANE) == {"a": [1]}

    def test_rare_fields_come_back(self, world: StoreWorld) -> None:
        """ignorable, source_event_seqs and surface_op come back, in any combination, anywhere in a part."""
        store = world.open()
        offered = tuple(
            Event("assistant/message", n, n, {"n": n}, bool(n % 2), *fields)
            for n, fields in enumerate(
                [(None, None), ((), None), ((0, 5), {"kind": "replace"}), (None, "text"), ((1,), [None, 1.5]),
                 (None, None), (None, 0), (None, False), (None, None), ((9,), "null"), (None, {"é": "\0"})]
            )
        )  # fmt: skip
        assert one(store, commit("c", Part(LANE, 0, offered, header={}))) == Durable("c")
        assert store.reader().read(LANE) == list(offered)

    def test_bad_envelopes_are_refused(self, world: StoreWorld) -> None:
        """A type that is no name, a time that is no integer, odd rare fields: refused, whatever the data."""
        store = world.open()
        odd: Any = Event  # what a type checker would refuse, and a careless caller would not
        bad: list[Any] = [
            Event("", 0, 0, {}), Event("a\nb", 0, 0, {}), Event("a\ud800", 0, 0, {}), Event("x" * 1000, 0, 0, {}),
            odd("a/b", 0, 1.5, {}), Event("a/b", 0, 2**70, {}), Event("a/b", 0, True, {}),
            odd("a/b", 0, 0, {}, ignorable=1), Event("a/b", 0, 0, {}, False, (-1,)),
            odd("a/b", 0, 0, {}, False, [1]), Event("a/b", 0, 0, {}, False, None, (1,)),
            Event("a/b", 0, 0, {}, False, None, "\ud800"),
        ]  # fmt: skip
        for event in bad:
            error = refusal(store, commit("c", Part(LANE, 0, (event,), header={})))
            assert isinstance(error, InvalidInputError), event

    def test_a_commit_too_large_is_refused(self, world: StoreWorld) -> None:
        """Beyond the store's bound on a commit it answers CommitTooLarge; the next commit goes on."""
        store = world.open()
        big = Event("x/y", 0, 0, {"text": "x" * (STORE_COMMIT_BYTES_MAX + 1)})
        assert isinstance(refusal(store, commit("c", Part(LANE, 0, (big,), header={}))), CommitTooLargeError)
        assert one(store, commit("d", part(LANE, 0))) == Durable("d")

    def test_a_large_event_comes_back(self, world: StoreWorld) -> None:
        """Four MiB of text, the largest reply, come back."""
        store = world.open()
        big = Event("x/y", 0, 0, {"text": "é" * (2 * 1024 * 1024)})
        assert one(store, commit("c", Part(LANE, 0, (big,), header={}))) == Durable("c")
        assert store.reader().read(LANE) == [big]


class OnceClaims:
    """Commit ids and unique keys: a repetition succeeds once, a duplicate is known as one."""

    def test_the_same_commit_again_is_durable_without_a_second_write(self, world: StoreWorld) -> None:
        """A commit whose id is present is Durable, although its expected head is old by then."""
        store, again = world.open(), commit("c", part(LANE, 0, 2), unique=("k",))
        assert kinds(store.commit([again])) == ["Durable"]
        assert kinds(store.commit([again])) == ["Durable"]
        assert len(store.reader().read(LANE)) == 2

    def test_the_same_commit_again_on_a_later_head(self, world: StoreWorld) -> None:
        """The same when the log has moved on, and when the owner is a new one."""
        store, again = world.open(), commit("c", part(LANE, 0, 2))
        store.commit([again, commit("d", part(LANE, 2))])
        assert kinds(store.commit([again])) == ["Durable"]
        store = world.open()
        assert kinds(store.commit([again])) == ["Durable"]
        assert len(store.reader().read(LANE)) == 3

    def test_the_id_decides_before_anything_else(self, world: StoreWorld) -> None:
        """A present id is Durable even for a fenced writer, a wrong binding, taken keys, data that isn't JSON."""
        store = world.open()
        store.commit([commit("c", part(LANE, 0), unique=("k",))])
        store.fence(LANE, 9)
        broken = Part(LANE, 7, (Event("x/y", 3, 0, {"x": (1,)}),))
        assert one(store, commit("c", broken, part(SESSION, 4), unique=("k",))) == Durable("c")

    def test_the_same_commit_twice_in_a_group(self, world: StoreWorld) -> None:
        """Twice in one group is written once and Durable twice."""
        store, twice = world.open(), commit("c", part(LANE, 0), unique=("k",))
        assert store.commit([twice, twice]) == [Durable("c"), Durable("c")]
        assert len(store.reader().read(LANE)) == 1

    def test_a_taken_key_is_a_duplicate(self, world: StoreWorld) -> None:
        """A key that is there refuses the commit and is named; the commit's other keys stay free."""
        store = world.open()
        store.commit([commit("c", part(LANE, 0), unique=("k1", "k2"))])
        outcome = one(store, commit("d", part(LANE, 1), unique=("k3", "k2")))
        assert isinstance(outcome, Refused)
        assert isinstance(outcome.error, KeysTakenError)
        assert outcome.keys_found == ("k2",)
        assert store.reader().has_keys(["k1", "k2", "k3"]) == {"k1", "k2"}

    def test_all_taken_keys_are_named(self, world: StoreWorld) -> None:
        """Every found key is named, in the commit's order: each message of theirs gets its ack."""
        store = world.open()
        store.commit([commit("c", part(LANE, 0), unique=("k1", "k2", "k3"))])
        outcome = one(store, commit("d", part(LANE, 1), unique=("k3", "x", "k1")))
        assert isinstance(outcome, Refused)
        assert outcome.keys_found == ("k3", "k1")

    def test_keys_are_unique_over_lanes(self, world: StoreWorld) -> None:
        """A key belongs to the whole store, not to a lane."""
        store = world.open()
        store.commit([commit("c", part(LANE, 0), unique=("k",))])
        outcome = one(store, commit("d", part(OTHER, 0), lane=OTHER, unique=("k",)))
        assert kinds([outcome]) == ["KeysTakenError"]
        assert store.reader().read(OTHER) == []

    def test_keys_are_found_before_anything_else_refuses(self, world: StoreWorld) -> None:
        """A commit with found keys says so even if its head, fence, binding or data is wrong too."""
        store = world.open()
        store.commit([commit("c", part(LANE, 0), unique=("k",))])
        wrong_head = commit("d", part(LANE, 7), unique=("k",))
        wrong_data = commit("e", Part(LANE, 1, (Event("x/y", 1, 0, {"x": (1,)}),)), unique=("new", "k"))
        unbound = commit("f", part(LANE, 1), part(SESSION, 0), unique=("k",))
        assert kinds(store.commit([wrong_head, wrong_data, unbound])) == ["KeysTakenError"] * 3
        store.fence(LANE, 9)
        assert kinds(store.commit([commit("g", part(LANE, 1), unique=("k",))])) == ["KeysTakenError"]

    def test_keys_are_known_after_reopening(self, world: StoreWorld) -> None:
        """A redelivery to the next owner is still a duplicate."""
        world.open().commit([commit("c", part(LANE, 0), unique=("k",))])
        store = world.open()
        assert kinds(store.commit([commit("d", part(LANE, 1), unique=("k",))])) == ["KeysTakenError"]

    def test_a_key_twice_in_a_group(self, world: StoreWorld) -> None:
        """Of two commits of a group with one key the first is durable, the second a duplicate."""
        store = world.open()
        outcomes = store.commit(
            [commit("c", part(LANE, 0), unique=("k",)), commit("d", part(OTHER, 0), lane=OTHER, unique=("k",))]
        )
        assert kinds(outcomes) == ["Durable", "KeysTakenError"]
        assert isinstance(outcomes[1], Refused)
        assert outcomes[1].keys_found == ("k",)

    def test_a_refused_commit_takes_no_key(self, world: StoreWorld) -> None:
        """A key of a refused commit of the group is free for the next one."""
        store = world.open()
        bad = commit("c", part(LANE, 5, header=None), unique=("k",))
        good = commit("d", part(OTHER, 0), lane=OTHER, unique=("k",))
        assert kinds(store.commit([bad, good])) == ["LogNotFoundError", "Durable"]

    def test_a_key_twice_in_a_commit_is_malformed(self, world: StoreWorld) -> None:
        """The same key twice in one commit is the caller's mistake."""
        error = refusal(world.open(), commit("c", part(LANE, 0), unique=("k", "k")))
        assert isinstance(error, InvalidInputError)


class GroupClaims:
    """A group means what its commits would mean one after another."""

    def test_an_empty_group(self, world: StoreWorld) -> None:
        """No commits, no outcomes."""
        assert world.open().commit([]) == []

    def test_a_group_in_order(self, world: StoreWorld) -> None:
        """Commits of one log build on each other inside a group; outcomes keep the order."""
        store = world.open()
        outcomes = store.commit([commit(f"c{n}", part(LANE, n)) for n in range(20)])
        assert outcomes == [Durable(f"c{n}") for n in range(20)]
        assert store.reader().read(LANE) == [e for n in range(20) for e in events(n, 1)[:1]]

    def test_a_bad_commit_fails_alone(self, world: StoreWorld) -> None:
        """Every kind of refusal in the middle of a group leaves the others durable."""
        store = world.open()
        lanes = [LogId(f"lane:{n}") for n in range(8)]
        store.commit([commit("old", part(LANE, 0), unique=("taken",))])
        group = [commit(f"c{n}", part(log, 0, 2), lane=log, unique=(f"k{n}",)) for n, log in enumerate(lanes)]
        group.insert(1, commit("x1", part(LANE, 9)))
        group.insert(3, commit("x2", part(LANE, 1), unique=("taken",)))
        group.insert(5, commit("x3", Part(LANE, 1, (Event("x/y", 1, 0, {"x": (1,)}),))))
        group.insert(7, commit("old", part(LANE, 0), unique=("taken",)))
        expected = ["Durable"] * 12
        expected[1], expected[3], expected[5] = "HeadMismatchError", "KeysTakenError", "LosslessJsonError"
        assert kinds(store.commit(group)) == expected
        assert all(len(store.reader().read(log)) == 2 for log in lanes)
        assert len(store.reader().read(LANE)) == 1

    def test_many_duplicates_in_a_group(self, world: StoreWorld) -> None:
        """A storm of redeliveries is refused one by one, the new ones among them are durable."""
        store = world.open()
        logs = [LogId(f"lane:{n}") for n in range(64)]
        store.commit([commit(f"c{n}", part(log, 0), lane=log, unique=(f"k{n}",)) for n, log in enumerate(logs)])
        store = world.open()
        again = [
            commit(f"d{n}", part(log, 1), lane=log, unique=(f"k{n if n % 2 else n + 1000}",))
            for n, log in enumerate(logs)
        ]
        assert kinds(store.commit(again)) == ["Durable", "KeysTakenError"] * 32

    def test_a_commit_is_all_or_nothing(self, world: StoreWorld) -> None:
        """A wrong second part keeps the first, its keys, header, hot row and binding out as well."""
        store = world.open()
        store.commit([born()])
        hot = Hot(1, 5, 0, "x", 1, 5, 0, 0, 0)
        bad = commit(
            "c", part(LANE, 1, hot=hot), part(SESSION, 7), part(SECOND, 0),
            unique=("k",), bindings=(Binding(SECOND, None, LANE),),
        )  # fmt: skip
        assert isinstance(refusal(store, bad), HeadMismatchError)
        assert store.reader().header(SECOND) is None
        assert store.reader().open_work() == []
        assert one(store, commit("d", part(LANE, 1), unique=("k",))) == Durable("d")

    def test_what_rests_on_a_refused_commit_is_refused(self, world: StoreWorld) -> None:
        """A commit on the head that a refused one would have made is a mismatch."""
        store = world.open()
        store.commit([commit("c", part(LANE, 0), unique=("k",))])
        outcomes = store.commit([commit("d", part(LANE, 1), unique=("k",)), commit("e", part(LANE, 2))])
        assert kinds(outcomes) == ["KeysTakenError", "HeadMismatchError"]

    def test_a_large_group(self, world: StoreWorld) -> None:
        """A thousand commits of different sizes in one group are durable and in order."""
        store = world.open()
        logs = [LogId(f"lane:{n}") for n in range(1000)]
        group = [commit(f"c{n}", part(log, 0, 1 + n % 19), lane=log) for n, log in enumerate(logs)]
        assert kinds(store.commit(group)) == ["Durable"] * 1000
        reader = store.reader()
        assert all(len(reader.read(log)) == 1 + n % 19 for n, log in enumerate(logs))


class BindingClaims:
    """A session belongs to at most one lane."""

    def test_a_binding_is_readable(self, world: StoreWorld) -> None:
        """The lane that a session was bound to, after a reopening too; None without one."""
        store = world.open()
        store.commit([born()])
        assert store.reader().binding(SESSION) == LANE
        assert world.open().reader().binding(SESSION) == LANE
        assert store.reader().binding(SECOND) is None

    def test_a_session_part_needs_its_binding(self, world: StoreWorld) -> None:
        """A session that isn't bound to the writer refuses its events."""
        store = world.open()
        error = refusal(store, commit("c", part(LANE, 0), part(SESSION, 0)))
        assert isinstance(error, BindingMismatchError)
        assert (error.session, error.expected, error.actual) == (SESSION, LANE, None)

    def test_another_lane_may_not_write_the_session(self, world: StoreWorld) -> None:
        """A lane that lost its session can't write it any more."""
        store = world.open()
        store.commit([born(), commit("b", part(OTHER, 0), lane=OTHER)])
        error = refusal(store, commit("c", part(OTHER, 1), part(SESSION, 1), lane=OTHER))
        assert isinstance(error, BindingMismatchError)
        assert (error.expected, error.actual) == (OTHER, LANE)

    def test_a_binding_moves_by_compare_and_set(self, world: StoreWorld) -> None:
        """The right expectation moves the session, and its events come with the same commit."""
        store = world.open()
        store.commit([born(), commit("b", part(OTHER, 0), lane=OTHER)])
        move = (Binding(SESSION, LANE, OTHER),)
        assert one(store, commit("c", part(OTHER, 1), part(SESSION, 1), lane=OTHER, bindings=move)) == Durable("c")
        assert store.reader().binding(SESSION) == OTHER
        assert isinstance(refusal(store, commit("d", part(LANE, 1), part(SESSION, 2))), BindingMismatchError)

    def test_a_wrong_expectation_is_refused(self, world: StoreWorld) -> None:
        """Of two moves of one session in a group the second finds it gone."""
        store = world.open()
        third = LogId("lane:c")
        store.commit([born(), commit("b", part(OTHER, 0), lane=OTHER), commit("t", part(third, 0), lane=third)])
        outcomes = store.commit(
            [
                commit("c", part(OTHER, 1), lane=OTHER, bindings=(Binding(SESSION, LANE, OTHER),)),
                commit("d", part(third, 1), lane=third, bindings=(Binding(SESSION, LANE, third),)),
            ]
        )
        assert kinds(outcomes) == ["Durable", "BindingMismatchError"]
        assert store.reader().binding(SESSION) == OTHER

    def test_a_binding_can_be_released(self, world: StoreWorld) -> None:
        """None as the new lane frees the session for any other."""
        store = world.open()
        store.commit([born(), commit("b", part(OTHER, 0), lane=OTHER)])
        assert one(store, commit("c", part(LANE, 1), bindings=(Binding(SESSION, LANE, None),))) == Durable("c")
        assert store.reader().binding(SESSION) is None
        assert isinstance(refusal(store, commit("d", part(LANE, 2), part(SESSION, 1))), BindingMismatchError)
        taken = commit("e", part(OTHER, 1), lane=OTHER, bindings=(Binding(SESSION, None, OTHER),))
        assert one(store, taken) == Durable("e")

    def test_a_session_that_is_not_there_cannot_be_bound(self, world: StoreWorld) -> None:
        """Binding no log is LogNotFound."""
        error = refusal(world.open(), commit("c", part(LANE, 0), bindings=(Binding(SESSION, None, LANE),)))
        assert isinstance(error, LogNotFoundError)

    def test_an_unbound_session_writes_for_itself(self, world: StoreWorld) -> None:
        """A commit whose writer is the session itself needs the session unbound (the event-log service)."""
        store = world.open()
        assert one(store, commit("c", part(SESSION, 0), lane=SESSION)) == Durable("c")
        store.commit([commit("d", part(LANE, 0), bindings=(Binding(SESSION, None, LANE),))])
        assert isinstance(refusal(store, commit("e", part(SESSION, 1), lane=SESSION)), BindingMismatchError)


class OwnerClaims:
    """Epochs and incarnations make a late writer harmless."""

    def test_each_opening_raises_the_epoch(self, world: StoreWorld) -> None:
        """The epoch only rises."""
        epochs = [world.open().epoch for _ in range(3)]
        assert epochs == sorted(set(epochs))

    def test_an_old_owner_has_lost(self, world: StoreWorld) -> None:
        """After another opening every new commit of the old owner is OwnershipLost, for good."""
        old = world.open()
        old.commit([commit("c", part(LANE, 0))])
        new = world.open()
        for name in ("d", "e"):
            assert kinds(old.commit([commit(name, part(LANE, 1))])) == ["OwnershipLostError"]
        assert one(new, commit("f", part(LANE, 1))) == Durable("f")
        assert len(new.reader().read(LANE)) == 2

    def test_a_smaller_incarnation_is_fenced(self, world: StoreWorld) -> None:
        """After a fence a smaller incarnation of that lane has lost; the fence's own and larger ones go on."""
        store = world.open()
        store.commit([commit("c", part(LANE, 0), incarnation=2)])
        store.fence(LANE, 3)
        assert isinstance(refusal(store, commit("d", part(LANE, 1), incarnation=2)), OwnershipLostError)
        assert one(store, commit("e", part(LANE, 1), incarnation=3)) == Durable("e")
        assert one(store, commit("f", part(LANE, 2), incarnation=4)) == Durable("f")

    def test_a_fence_binds_its_lane_only(self, world: StoreWorld) -> None:
        """Other lanes are not touched by a fence."""
        store = world.open()
        store.fence(LANE, 3)
        assert one(store, commit("c", part(OTHER, 0), lane=OTHER)) == Durable("c")

    def test_a_fence_never_goes_back(self, world: StoreWorld) -> None:
        """A late, smaller fence doesn't let an older writer in again."""
        store = world.open()
        store.fence(LANE, 5)
        store.fence(LANE, 2)
        assert isinstance(refusal(store, commit("c", part(LANE, 0), incarnation=3)), OwnershipLostError)

    def test_a_fence_holds_in_the_middle_of_a_group(self, world: StoreWorld) -> None:
        """A fenced commit of a group fails alone."""
        store = world.open()
        store.fence(LANE, 5)
        group = [commit("c", part(LANE, 0), incarnation=1), commit("d", part(OTHER, 0), lane=OTHER)]
        assert kinds(store.commit(group)) == ["OwnershipLostError", "Durable"]


class IndexClaims:
    """Open work, counters and keys are as of the last durable commit."""

    def test_open_work_lists_open_lanes(self, world: StoreWorld) -> None:
        """A lane with an open turn, waiting messages or owed replies is listed, with its row; others aren't."""
        store = world.open()
        rows = {
            "lane:turn": Hot(1, 0, 0, "running", 7, 1, 0, 0, 0),
            "lane:waiting": Hot(0, 2, 0, "idle", 8, 2, 0, 0, 0),
            "lane:owed": Hot(0, 0, 1, "idle", 9, 1, 1, 0, 0),
            "lane:done": Hot(0, 0, 0, "idle", 10, 1, 1, 0, 0),
        }
        store.commit([commit(n, part(LogId(n), 0, hot=hot), lane=LogId(n)) for n, hot in rows.items()])
        store.commit([commit("none", part(LANE, 0))])
        del rows["lane:done"]
        assert dict(store.reader().open_work()) == rows
        assert dict(world.open().reader().open_work()) == rows

    def test_open_work_is_paged(self, world: StoreWorld) -> None:
        """Pages of open work, oldest lane first, leave nothing out and repeat nothing, also while lanes close."""
        store = world.open()
        lanes = [LogId(f"lane:{n}") for n in (5, 3, 9, 1, 7)]
        busy = Hot(0, 1, 0, "x", 0, 1, 0, 0, 0)
        store.commit([commit(log, part(log, 0, hot=busy), lane=log) for log in lanes])
        reader = store.reader()
        assert [log for log, _ in reader.open_work()] == lanes
        first = [log for log, _ in reader.open_work(limit=2)]
        store.commit([commit("close", part(first[-1], 1, hot=IDLE), lane=first[-1])])
        assert first + [log for log, _ in reader.open_work(first[-1])] == lanes
        assert reader.open_work(lanes[-1]) == []
        assert reader.open_work(limit=0) == []

    def test_a_page_of_open_work_begins_behind_a_log(self, world: StoreWorld) -> None:
        """Going on behind no log is LogNotFound, not an empty page: work must not be forgotten silently."""
        with pytest.raises(LogNotFoundError):
            world.open().reader().open_work(LANE)

    def test_a_row_is_replaced(self, world: StoreWorld) -> None:
        """The last commit's row counts; one without a row leaves it."""
        store = world.open()
        store.commit([commit("c", part(LANE, 0, hot=Hot(1, 1, 0, "running", 1, 1, 0, 0, 0)))])
        store.commit([commit("d", part(LANE, 1))])
        assert len(store.reader().open_work()) == 1
        store.commit([commit("e", part(LANE, 2, hot=IDLE))])
        assert store.reader().open_work() == []

    def test_counters_are_sums(self, world: StoreWorld) -> None:
        """The balance is the sum over all lanes, closed ones included; zero at first."""
        store = world.open()
        assert store.reader().counters() == Balance(0, 0, 0, 0, 0)
        one_row, two = Hot(0, 1, 0, "x", 0, 10, 5, 3, 1), Hot(0, 0, 0, "x", 0, 4, 2, 1, 1)
        store.commit([commit("c", part(LANE, 0, hot=one_row)), commit("d", part(OTHER, 0, hot=two), lane=OTHER)])
        assert store.reader().counters() == Balance(14, 7, 4, 2, 1)
        assert store.reader().counters().holds

    def test_a_row_on_a_session_is_refused(self, world: StoreWorld) -> None:
        """Hot rows belong to lanes."""
        bad = commit("c", part(LANE, 0), part(SESSION, 0, hot=IDLE), bindings=(Binding(SESSION, None, LANE),))
        assert isinstance(refusal(world.open(), bad), InvalidInputError)

    def test_has_keys_of_nothing(self, world: StoreWorld) -> None:
        """No keys asked, none found; unsound ones are simply not there."""
        reader = world.open().reader()
        assert reader.has_keys([]) == set()
        assert reader.has_keys(["", "\0", "\ud800"]) == set()


class LifeClaims:
    """Crashes and closing."""

    def test_everything_durable_survives_a_crash(self, world: StoreWorld) -> None:
        """After a crash logs, headers, bindings, keys, rows and ids are as they were."""
        store, hot = world.open(), Hot(1, 1, 0, "running", 5, 1, 0, 0, 0)
        store.commit([born(count=9), commit("c", part(LANE, 9, hot=hot), unique=("k",))])
        world.crash()
        store = world.open()
        reader = store.reader()
        assert len(reader.read(LANE)) == 10
        assert reader.read(SESSION) == list(events(0, 9))
        assert reader.header(SESSION) == {"id": SESSION}
        assert reader.binding(SESSION) == LANE
        assert reader.has_keys(["k"]) == {"k"}
        assert reader.open_work() == [(LANE, hot)]
        assert kinds(store.commit([born(count=9)])) == ["Durable"]

    def test_the_epoch_survives_a_crash(self, world: StoreWorld) -> None:
        """An owner after a crash has a larger epoch than any before."""
        before = world.open().epoch
        world.crash()
        assert world.open().epoch > before

    def test_a_crash_without_any_commit(self, world: StoreWorld) -> None:
        """A store that crashed before its first commit opens empty."""
        world.open()
        world.crash()
        assert world.open().reader().logs("") == []

    def test_a_closed_store_refuses(self, world: StoreWorld) -> None:
        """After close a commit is surely absent; closing again is nothing."""
        store = world.open()
        store.close()
        store.close()
        outcome = one(store, commit("c", part(LANE, 0)))
        assert isinstance(outcome, Refused)
        assert isinstance(outcome.error, StoreUnhealthyError)
        assert world.open().reader().read(LANE) == []

    def test_a_closed_store_keeps_everything(self, world: StoreWorld) -> None:
        """What was durable is there after a close and a reopening."""
        store = world.open()
        store.commit([born(count=3)])
        store.close()
        assert len(world.open().reader().read(SESSION)) == 3

    def test_a_reader_outlives_its_store(self, world: StoreWorld) -> None:
        """A reader goes on after the owner has closed, and sees the next owner's commits."""
        store = world.open()
        reader = store.reader()
        store.commit([commit("c", part(LANE, 0))])
        store.close()
        assert len(reader.read(LANE)) == 1
        world.open().commit([commit("d", part(LANE, 1))])
        assert len(reader.read(LANE)) == 2
        reader.close()
        reader.close()


class StoreContract(
    LogClaims, JsonClaims, OnceClaims, GroupClaims, BindingClaims, OwnerClaims, IndexClaims, LifeClaims
):
    """All claims. Give the subclass a fixture ``world``."""
