"""Reading: events from anywhere, lists, open work, counters."""

from __future__ import annotations

from typing import Any

import pytest

from seriatim.commits import Binding, Hot
from seriatim.errors import InvalidInputError, LogNotFoundError
from seriatim.events import LogId
from seriatim.storage.contract import Balance

from .world import IDLE, LANE, OTHER, SECOND, SESSION, StoreWorld, born, commit, events, part, refusal


class ReadingClaims:
    """Events from any place, and lists in pages."""

    def test_an_open_reader_sees_later_commits(self, world: StoreWorld) -> None:
        """A reader sees everything durable at each call, not what was there when it opened."""
        store = world.open()
        reader = store.reader()
        assert reader.read(LANE) == []
        store.commit([born()])
        assert len(reader.read(LANE)) == 1

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


class IndexClaims:
    """Open work and counters are as of the last durable commit."""

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
