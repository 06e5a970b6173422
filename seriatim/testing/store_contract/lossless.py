"""Data comes back as it was, or is refused before anything is written."""

from __future__ import annotations

from typing import Any

from seriatim.commits import Durable, Part
from seriatim.errors import CommitTooLargeError, InvalidInputError, LosslessJsonError
from seriatim.events import DEPTH_MAX, Event
from seriatim.limits import STORE_COMMIT_BYTES_MAX

from .world import GOOD_DATA, LANE, StoreWorld, bad_data, commit, one, part, refusal


class LosslessClaims:
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
