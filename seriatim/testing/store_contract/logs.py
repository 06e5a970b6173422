"""What a log is, and how it is made."""

from __future__ import annotations

from seriatim.commits import Binding, Durable, Part
from seriatim.errors import HeadMismatchError, InvalidInputError, LogExistsError, LogNotFoundError, LosslessJsonError
from seriatim.events import Event, LogId

from .world import LANE, OTHER, SESSION, StoreWorld, born, commit, events, kinds, one, part, refusal


class LogClaims:
    """What a log is, and how it is made."""

    def test_a_commit_is_readable_at_once(self, world: StoreWorld) -> None:
        """What Durable answers is read by a new reader, equal in every field."""
        store = world.open()
        assert one(store, born(count=3)) == Durable("born")
        assert store.reader().read(LANE) == list(events(0, 3))
        assert store.reader().read(SESSION) == list(events(0, 3))

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
