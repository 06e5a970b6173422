"""`storage.on_unavailable`: what happens at the door while the store is away, at start and while running."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from seriatim import Gateway, GatewayConfig, MessageEvent, SessionSource
from seriatim.actors.notices import KEPT, REFUSED
from seriatim.config import StorageConfig
from seriatim.errors import FormatUnsupportedError, GatewayClosedError, InvalidInputError, StoreUnhealthyError
from seriatim.storage.audit import audit
from seriatim.storage.memory import MemoryStore
from seriatim.storage.spool import spooled
from seriatim.storage.sqlite_reader import SqliteReader
from seriatim.testing.faulty_store import Fault
from tests.outage.world import World

FAULTS = [Fault.REFUSED, Fault.UNKNOWN_LOST, Fault.UNKNOWN_DONE]


def balance_of(home: Path) -> dict[str, int]:
    """The counters of a stopped gateway; they and the logs hold."""
    reader = SqliteReader(home / "state.db")
    found = audit(reader)
    reader.close()
    assert found.holds, found
    return {"accepted": found.counters.accepted, "waiting": found.counters.waiting}


@pytest.mark.parametrize("fault", FAULTS)
def test_kept_while_the_store_fails_and_answered_in_order_afterwards(tmp_path: Path, fault: Fault) -> None:
    """While running: messages are kept, nothing runs, one notice per chat; then all is answered once, in order."""
    world = World(tmp_path)

    async def scenario() -> None:
        async with world.gateway() as gateway:
            world.platform.say("m0")
            await world.until(lambda: world.replies == ["re m0"])
            world.medium.fault = fault
            for number in range(1, 6):
                posted = world.platform.say(f"m{number}")
                await world.until(lambda posted=posted: posted.acked)  # type: ignore[misc]
                world.platform.say(f"n{number}", chat_id="2", user_id="8")
            await world.until(lambda: all(posted.acked for posted in world.platform.posted))
            assert world.replies == ["re m0"]
            assert sorted(world.notices) == [KEPT, KEPT]
            facts = gateway.balance()
            assert facts["accepted"] == facts["answered"] + facts["waiting"] == 11
            assert gateway.health()["spooled"] > 0
            world.medium.fault = None
            await world.until(lambda: not world.spool_file.exists())
            await world.until(lambda: gateway.balance()["waiting"] == 0)
            world.platform.say("last")
            await world.until(lambda: "re last" in world.replies and gateway.health()["spooled"] == 0)

    world.run(scenario)
    said = [name for text in world.replies for name in text.removeprefix("re ").split(",")]
    assert [name for name in said if name[0] != "n"] == [*(f"m{number}" for number in range(6)), "last"]
    assert [name for name in said if name[0] == "n"] == [f"n{number}" for number in range(1, 6)]
    assert balance_of(tmp_path) == {"accepted": 12, "waiting": 0}


@pytest.mark.parametrize("known", [True, False], ids=["live lane", "new lane"])
@pytest.mark.parametrize("left", [1, 2, 3])
def test_a_short_failure_lets_nobody_overtake(tmp_path: Path, left: int, known: bool) -> None:
    """In a burst whose first commits alone are refused, what waits behind them doesn't get in before them."""
    world = World(tmp_path)

    async def scenario() -> None:
        async with world.gateway() as gateway:
            if known:
                world.platform.say("m0")
                await world.until(lambda: world.replies == ["re m0"])
            world.medium.fault, world.medium.left = Fault.REFUSED, left
            source = SessionSource("fake", chat_id="1", user_id="7")
            accepting = []
            for number in range(1, 9):
                event = MessageEvent(f"m{number}", source, account="fake", message_id=f"b{number}")
                accepting.append(asyncio.ensure_future(gateway.accept(event)))
                if number % 3 == 0:
                    await asyncio.sleep(0)
            receipts = await asyncio.gather(*accepting)
            assert {receipt.outcome for receipt in receipts} <= {"accepted", "merged"}
            await world.until(lambda: gateway.balance()["waiting"] == 0 and not world.spool_file.exists())

    world.run(scenario)
    said = [name for text in world.replies for name in text.removeprefix("re ").split(",")]
    assert said == [f"m{number}" for number in range(0 if known else 1, 9)]


def test_a_start_without_a_store(tmp_path: Path) -> None:
    """At start: what comes is kept, and answered when the store can be opened; receipts hear of it."""
    world = World(tmp_path)
    world.medium.shut = True

    async def scenario() -> None:
        async with world.gateway() as gateway:
            posted = [world.platform.say(f"m{number}") for number in range(3)]
            await world.until(lambda: all(one.acked for one in posted))
            receipt = await gateway.accept(posted[0].event)
            assert (receipt.outcome, (await receipt.answered()).outcome) == ("duplicate", "duplicate")
            other = await gateway.accept(world.platform.say("mine", chat_id="3", user_id="9").event)
            assert (other.outcome, other.reason) == ("accepted", "spooled")
            with pytest.raises(StoreUnhealthyError):
                gateway.balance()
            assert "scripted" in gateway.health()["store"]
            world.medium.shut = False
            await world.until(lambda: not world.spool_file.exists())
            await world.until(lambda: other.end is not None)
            assert other.end is not None
            assert (other.end.outcome, other.end.text) == ("answered", "re mine")
            await world.until(lambda: gateway.balance()["waiting"] == 0)

    world.run(scenario)
    assert world.replies in (["re m0,m1,m2", "re mine"], ["re mine", "re m0,m1,m2"]) or len(world.replies) == 4
    assert balance_of(tmp_path) == {"accepted": 4, "waiting": 0}


def test_what_was_kept_survives_a_stop_and_a_kill(tmp_path: Path) -> None:
    """Messages of a gateway that never saw its store are there for the next one, which answers each once."""
    world = World(tmp_path)
    world.medium.shut = True

    async def first() -> None:
        async with world.gateway() as gateway:
            receipt = await gateway.accept(world.platform.say("m0").event)
            await world.until(lambda: world.platform.posted[0].acked)
        with pytest.raises(GatewayClosedError):
            await receipt.answered()

    async def second() -> None:
        async with world.gateway() as gateway:
            world.platform.say("m1")
            await world.until(lambda: gateway.balance()["answered"] == 2 and not world.spool_file.exists())

    world.run(first)
    assert [message.event.text for message in spooled(tmp_path)] == ["m0"]
    world.medium.shut = False
    world.run(second)
    assert [name for text in world.replies for name in text.removeprefix("re ").split(",")] == ["m0", "m1"]


def test_messages_without_an_id_are_taken_in_once(tmp_path: Path) -> None:
    """What has no platform id is known by its own: a take-in that begins again doubles nothing."""
    world = World(tmp_path)
    world.medium.shut = True
    kept = b""

    async def keep() -> None:
        nonlocal kept
        async with world.gateway() as gateway:
            event = world.platform.say("m0").event
            for _ in range(2):
                receipt = await gateway.accept(type(event)(event.text, event.source, account=event.account))
                assert receipt.outcome == "accepted"
            await world.until(lambda: world.platform.posted[0].acked)
            kept = world.spool_file.read_bytes()

    async def take_in() -> None:
        async with world.gateway() as gateway:
            await world.until(lambda: not world.spool_file.exists())
            assert gateway.balance()["accepted"] == 3

    world.run(keep)
    world.medium.shut = False
    world.run(take_in)
    world.spool_file.write_bytes(kept)  # as if killed before it was removed
    world.run(take_in)
    assert balance_of(tmp_path)["accepted"] == 3


def test_an_unknown_commit_does_not_keep_its_message_waiting(tmp_path: Path) -> None:
    """A message whose commit may or may not be there is spooled too, and answered once either way."""
    for fault in (Fault.UNKNOWN_DONE, Fault.UNKNOWN_LOST):
        world = World(tmp_path / fault.name)

        async def scenario(world: World = world, fault: Fault = fault) -> None:
            async with world.gateway() as gateway:
                world.medium.fault = fault
                receipt = await gateway.accept(world.platform.say("m0").event)
                assert (receipt.outcome, receipt.reason) == ("accepted", "spooled")
                world.medium.fault = None
                await world.until(lambda: receipt.end is not None)
                assert receipt.end is not None
                assert (receipt.end.outcome, receipt.end.text) == ("answered", "re m0")

        world.run(scenario)
        assert world.replies == ["re m0"]


def test_a_stop_in_an_outage_calls_nothing_refused_that_may_be_durable(tmp_path: Path) -> None:
    """With store and spool gone, a message whose commit is in doubt at the stop has no outcome; others are refused."""
    world = World(tmp_path)
    (tmp_path / "spool").write_bytes(b"in the way")

    async def scenario() -> None:
        async with world.gateway() as gateway:
            world.medium.fault = Fault.UNKNOWN_DONE
            doubtful = asyncio.ensure_future(gateway.accept(world.platform.say("m0").event))
            await world.until(lambda: "spool" in {where for where, _ in world.errors})
            assert not doubtful.done()
            await gateway.stop(drain_s=0)
            with pytest.raises(GatewayClosedError, match="before it was known"):
                await doubtful

    world.run(scenario)
    assert balance_of(tmp_path)["accepted"] == 1


def test_refuse_tells_adapters_and_people(tmp_path: Path) -> None:
    """By default nothing is accepted: each receipt says why, each chat hears it once, and later all goes on."""
    world = World(tmp_path, "refuse")

    async def scenario() -> None:
        async with world.gateway() as gateway:
            world.medium.fault = Fault.REFUSED
            for number in range(3):
                receipt = await gateway.accept(world.platform.say(f"m{number}").event)
                assert (receipt.outcome, receipt.reason) == ("refused", "storage_unavailable")
            await world.until(lambda: world.notices == [REFUSED])
            assert gateway.health()["store"] != "works"
            # Each twice: handed in here, and by the platform, which gives it again in its order only later.
            await world.until(lambda: gateway.balance()["refused"] >= 6)
            world.medium.fault = None
            world.platform.redeliver()
            await world.until(lambda: gateway.balance()["answered"] + gateway.balance()["merged"] == 3)

    world.run(scenario)
    assert not (tmp_path / "spool").exists()
    assert [name for text in world.replies for name in text.removeprefix("re ").split(",")] == ["m0", "m1", "m2"]


def test_refuse_does_not_start_without_a_store(tmp_path: Path) -> None:
    """By default a store that can't be opened keeps the gateway from starting, and no message is taken."""
    world = World(tmp_path, "refuse")
    world.medium.shut = True

    async def scenario() -> None:
        with pytest.raises(StoreUnhealthyError):
            await world.made().start()

    world.run(scenario)
    assert not (tmp_path / "spool").exists()


def test_a_foreign_file_is_no_outage(tmp_path: Path) -> None:
    """A database that will never be ours is refused at start, spool or not."""
    (tmp_path / "state.db").write_bytes(b"something else" * 100)

    async def scenario() -> None:
        with pytest.raises(FormatUnsupportedError):
            await World(tmp_path).made().start()

    asyncio.run(scenario())
    assert [path.name for path in tmp_path.iterdir()] == ["state.db"]


def test_a_damaged_database_is_waited_for(tmp_path: Path) -> None:
    """A cut database keeps nobody from writing messages; when it is restored they are answered."""
    world = World(tmp_path)

    async def live() -> None:
        async with world.gateway():
            world.platform.say("m0")
            await world.until(lambda: world.replies == ["re m0"])

    async def outage() -> None:
        async with world.gateway() as gateway:
            posted = world.platform.say("m1")
            await world.until(lambda: posted.acked)
            assert "damaged" in gateway.health()["store"]
            database.write_bytes(whole)
            await world.until(lambda: world.replies == ["re m0", "re m1"])

    world.run(live)
    database = tmp_path / "state.db"
    whole = database.read_bytes()
    database.write_bytes(whole[: len(whole) // 2])
    world.run(outage)


def test_what_was_kept_is_answered_whatever_the_setting_says_then(tmp_path: Path) -> None:
    """With the setting back at "refuse" the next start still takes in what was accepted, before what comes then."""
    world = World(tmp_path)
    world.medium.shut = True

    async def first() -> None:
        async with world.gateway():
            world.platform.say("m0")
            await world.until(lambda: world.platform.posted[0].acked)

    async def second() -> None:
        async with again.gateway() as gateway:
            again.platform.say("m1")
            await again.until(lambda: gateway.balance()["answered"] == 2 and not again.spool_file.exists())

    world.run(first)
    again = World(tmp_path, "refuse")
    again.platform = world.platform  # its ids go on, or the second message would be the first one again
    again.run(second)
    assert [name for text in again.replies for name in text.removeprefix("re ").split(",")] == ["m0", "m1"]


def test_a_spool_that_fails_too_refuses(tmp_path: Path) -> None:
    """With the spool's disk gone as well a message is refused, never acknowledged without being kept."""
    world = World(tmp_path)
    world.medium.shut = True

    async def scenario() -> None:
        async with world.gateway() as gateway:
            (tmp_path / "spool").write_bytes(b"in the way")
            receipt = await gateway.accept(world.platform.say("m0").event)
            assert (receipt.outcome, receipt.reason) == ("refused", "storage_unavailable")
            (tmp_path / "spool").unlink()
            assert (await gateway.accept(world.platform.say("m1").event)).outcome == "accepted"

    world.run(scenario)
    assert "spool" in {where for where, _ in world.errors}
    assert "m1" in [message.event.text for message in spooled(tmp_path)]


def test_the_spool_belongs_to_a_home(tmp_path: Path) -> None:
    """A store of the host's own has no spool: the combination is refused."""
    config = GatewayConfig(storage=StorageConfig(on_unavailable="spool"))
    with pytest.raises(InvalidInputError, match="store"):
        Gateway(lambda turn: "", home=tmp_path, config=config, store=MemoryStore())
