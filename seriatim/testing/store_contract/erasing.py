"""Erasing a log."""

from __future__ import annotations

from typing import Any, Final

from seriatim.commits import Binding, Durable, Hot, Part
from seriatim.errors import LogNotFoundError, OwnershipLostError
from seriatim.events import Event, LogId
from seriatim.storage.contract import Archive, Balance, Checkpoint, Erasure
from seriatim.storage.erasing import digest_of

from .world import LANE, OTHER, SESSION, StoreWorld, born, commit, events, kinds, one, part, refusal

SYSTEM: Final = LogId("system")


def erasure(log: LogId = LANE, **changed: Any) -> Erasure:
    """The order to erase it; the log's next incarnation is 2."""
    fields: dict[str, Any] = {"id": "erase", "log": log, "incarnation": 2, "time": 77}
    return Erasure(**{**fields, **changed})


class EraseClaims:
    """An erased log is gone for good, its name may be used again, and nothing else is touched."""

    def test_an_erased_log_is_not_there(self, world: StoreWorld) -> None:
        """No events, header, place in lists, open work or counters are left of it."""
        store = world.open()
        store.commit([commit("c", part(LANE, 0, 3, hot=Hot(0, 1, 0, "x", 0, 1, 0, 0, 0)))])
        assert store.erase(erasure()) == Durable("erase")
        reader = store.reader()
        assert (reader.read(LANE), reader.header(LANE), reader.info(LANE)) == ([], None, None)
        assert reader.logs("lane:") == []
        assert reader.open_work() == []
        assert reader.counters() == Balance(0, 0, 0, 0, 0)

    def test_its_content_is_gone_from_the_medium(self, world: StoreWorld) -> None:
        """Neither data nor header is found in the raw bytes, whether it was there for long or just written."""
        store = world.open()
        secrets = [f"secret-{n}-" + "y" * 40 for n in range(30)]
        data = tuple(Event("a/b", n, 0, {"text": secret}) for n, secret in enumerate(secrets))
        store.commit([commit("c", Part(LANE, 0, data, header={"title": "hidden-title"}))])
        world.open().commit([born(lane=OTHER)])
        store = world.open()
        late = Event("a/b", 30, 0, {"text": "secret-late", "more": "z" * 9000})
        store.commit([commit("d", Part(LANE, 30, (late,)))])
        assert world.holds("secret-0-")
        assert world.holds("secret-late")
        assert store.erase(erasure()) == Durable("erase")
        left = [text for text in (*secrets, "secret-", "hidden-title", "z" * 100) if world.holds(text)]
        assert left == []

    def test_the_system_log_tells_of_it(self, world: StoreWorld) -> None:
        """When, how much and why; never the log's name, which may be a person's."""
        store = world.open()
        store.commit([commit("c", part(LANE, 0, 3), unique=("k",))])
        info = store.reader().info(LANE)
        assert info is not None
        store.erase(erasure(reason="asked for", drop_keys=True))
        (event,) = store.reader().read(SYSTEM)
        assert (event.type, event.time) == ("log/erased", 77)
        digest = event.data.pop("digest")
        assert event.data == {"incarnation": info.incarnation, "events": 3, "keysDropped": 1, "reason": "asked for"}
        assert digest == digest_of(store.reader().store_id, LANE)
        assert LANE not in repr(event)

    def test_other_logs_are_untouched(self, world: StoreWorld) -> None:
        """What was written before, between and after the erased events reads as ever and goes on."""
        store = world.open()
        store.commit([born(count=3), commit("b", part(OTHER, 0, 2), lane=OTHER), commit("c", part(LANE, 3, 2))])
        assert store.erase(erasure()) == Durable("erase")
        assert store.reader().read(OTHER) == list(events(0, 2))
        assert store.reader().read(SESSION) == list(events(0, 3))
        assert one(store, commit("d", part(OTHER, 2), lane=OTHER)) == Durable("d")
        assert len(world.open().reader().read(OTHER)) == 3

    def test_a_log_made_again_is_another_incarnation(self, world: StoreWorld) -> None:
        """Its number is new, also when the erased log was the newest and the owner is another one by then."""
        store = world.open()
        store.commit([commit("c", part(LANE, 0, 3))])
        before = store.reader().info(LANE)
        store.erase(erasure())
        store = world.open()
        assert one(store, commit("d", part(LANE, 0), incarnation=2)) == Durable("d")
        after = store.reader().info(LANE)
        assert before is not None
        assert after is not None
        assert after.incarnation > before.incarnation
        assert store.reader().read(LANE) == list(events(0, 1))

    def test_the_old_incarnation_may_not_write(self, world: StoreWorld) -> None:
        """A late commit of the old writer is refused, even where it would fit the head of the new log."""
        store = world.open()
        store.commit([commit("c", part(LANE, 0, 3))])
        store.erase(erasure())
        store.commit([commit("d", part(LANE, 0, 3), incarnation=2)])
        assert isinstance(refusal(store, commit("late", part(LANE, 3), incarnation=1)), OwnershipLostError)

    def test_an_old_commit_brings_nothing_back(self, world: StoreWorld) -> None:
        """A commit that was durable before the erasure, offered again, is Durable and writes nothing."""
        store = world.open()
        again = commit("c", part(LANE, 0, 3))
        store.commit([again])
        store.erase(erasure())
        assert one(store, again) == Durable("c")
        assert store.reader().read(LANE) == []
        store = world.open()
        assert one(store, again) == Durable("c")
        assert store.reader().read(LANE) == []

    def test_the_same_erasure_again_is_nothing(self, world: StoreWorld) -> None:
        """It is Durable, tells the system log once, and leaves a log made since alone."""
        store = world.open()
        store.commit([commit("c", part(LANE, 0))])
        assert store.erase(erasure()) == Durable("erase")
        store.commit([commit("d", part(LANE, 0), incarnation=2)])
        assert store.erase(erasure()) == Durable("erase")
        assert world.open().erase(erasure()) == Durable("erase")
        reader = world.open().reader()
        assert (len(reader.read(LANE)), len(reader.read(SYSTEM))) == (1, 1)

    def test_its_keys_are_kept(self, world: StoreWorld) -> None:
        """Unless told otherwise a redelivery of what was erased stays a duplicate."""
        store = world.open()
        store.commit([commit("c", part(LANE, 0), unique=("k",))])
        store.erase(erasure())
        assert kinds(store.commit([commit("d", part(OTHER, 0), lane=OTHER, unique=("k",))])) == ["KeysTakenError"]

    def test_its_keys_can_be_dropped(self, world: StoreWorld) -> None:
        """With drop_keys those that came with the log are free, one or many in a commit; no others."""
        store = world.open()
        store.commit([commit("c", part(LANE, 0), unique=("a",)), commit("d", part(LANE, 1, 9), unique=("b", "c"))])
        store.commit([commit("e", part(OTHER, 0), lane=OTHER, unique=("o",))])
        store.erase(erasure(drop_keys=True))
        assert store.reader().has_keys("abco") == {"o"}

    def test_erasing_nothing(self, world: StoreWorld) -> None:
        """A log that isn't there is LogNotFound, and the system log says nothing."""
        store = world.open()
        outcome = store.erase(erasure())
        assert kinds([outcome]) == ["LogNotFoundError"]
        assert store.reader().read(SYSTEM) == []

    def test_malformed_orders(self, world: StoreWorld) -> None:
        """The system log itself, and what is no name or no time, are refused."""
        store = world.open()
        store.commit([commit("c", part(LANE, 0)), commit("s", part(SYSTEM, 0), lane=SYSTEM)])
        bad: list[dict[str, Any]] = [
            {"log": SYSTEM},
            {"log": LogId("")},
            {"id": ""},
            {"time": 1.5},
            {"reason": "x" * 10_000},
        ]
        assert {*kinds([store.erase(erasure(**changed)) for changed in bad])} == {"InvalidInputError"}
        assert len(store.reader().read(LANE)) == 1

    def test_sessions_of_an_erased_lane_are_free(self, world: StoreWorld) -> None:
        """They belong to no lane afterwards, and any may take them."""
        store = world.open()
        store.commit([born(), commit("b", part(OTHER, 0), lane=OTHER)])
        store.erase(erasure())
        assert store.reader().binding(SESSION) is None
        taken = commit("c", part(OTHER, 1), part(SESSION, 1), lane=OTHER, bindings=(Binding(SESSION, None, OTHER),))
        assert one(store, taken) == Durable("c")

    def test_a_session_can_be_erased_alone(self, world: StoreWorld) -> None:
        """Its lane stays, may not go on writing it, and may make it anew."""
        store = world.open()
        store.commit([born(count=2)])
        store.erase(erasure(SESSION))
        assert isinstance(refusal(store, commit("c", part(LANE, 2), part(SESSION, 2))), LogNotFoundError)
        anew = commit("d", part(LANE, 2), part(SESSION, 0), bindings=(Binding(SESSION, None, LANE),))
        assert one(store, anew) == Durable("d")

    def test_checkpoint_and_archive_go_with_it(self, world: StoreWorld) -> None:
        """A compacted log is erased whole; a log made again has neither."""
        store = world.open()
        store.commit([commit(f"c{n}", part(LANE, 2 * n, 2)) for n in range(4)])
        store.keep([Checkpoint(LANE, "state", 8, 1, {"kept": "folded-secret"})])
        store.compact(Archive(LANE, 4, 1, Balance(0, 0, 0, 0, 0), {"kept": "archived-secret"}), 99)
        assert store.erase(erasure()) == Durable("erase")
        store.commit([commit("d", part(LANE, 0, 8), incarnation=2)])
        reader = store.reader()
        assert (reader.archive(LANE), reader.checkpoint(LANE, "state")) == (None, None)
        assert len(reader.read(LANE)) == 8
        assert not world.holds("folded-secret")
        assert not world.holds("archived-secret")

    def test_who_has_lost_erases_nothing(self, world: StoreWorld) -> None:
        """An owner whose epoch is old is told so."""
        old = world.open()
        old.commit([commit("c", part(LANE, 0))])
        new = world.open()
        assert kinds([old.erase(erasure())]) == ["OwnershipLostError"]
        assert len(new.reader().read(LANE)) == 1

    def test_an_erased_log_stays_erased(self, world: StoreWorld) -> None:
        """After a crash it is neither back nor half there, and the system log has its line."""
        store = world.open()
        store.commit([born(count=5)])
        store.erase(erasure())
        world.crash()
        reader = world.open().reader()
        assert reader.logs("") == [SESSION, SYSTEM]
        assert len(reader.read(SYSTEM)) == 1
