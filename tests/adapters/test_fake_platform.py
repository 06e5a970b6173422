"""The fake platform keeps the adapter contract and its own fault model."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Literal

import pytest
from attrs import define

from seriatim.adapters.base import Capabilities
from seriatim.errors import SendError
from seriatim.model import Sent, Target
from seriatim.testing.adapter_contract import AdapterContract, Place, RecordingInbox, outbound, running
from seriatim.testing.fake_platform import FakePlatform, Fault

HERE = Target("fake", "fake", "1")


@define
class FakeWorld:
    """People on a `FakePlatform`."""

    adapter: FakePlatform
    places: tuple[Place, ...] = ("dm", "channel")
    missing: str | None = "nowhere"
    can_go_down: bool = True
    _heard: int = 0

    async def ready(self) -> None:
        """It listens from the first turn of the loop on."""
        await asyncio.sleep(0)

    async def say(self, place: Place, *texts: str) -> None:
        """Post them."""
        for text in texts:
            self.adapter.say(text, chat_id="1" if place == "dm" else "room", chat_type=place)

    async def hear(self, count: int) -> list[str]:
        """What arrived since the last time."""
        texts = self.adapter.texts()[self._heard : self._heard + count]
        assert len(texts) == count
        self._heard += count
        return texts

    async def go_down(self) -> None:
        """Down."""
        self.adapter.go_down()

    async def come_back(self) -> None:
        """Up."""
        self.adapter.come_back()


class TestReplayingPlatform(AdapterContract):
    """A platform that gives again until acked."""

    capabilities = Capabilities(replay="ack", text_max=100, idempotent_send=True, edit=True, lookup=True, typing=True)

    @asynccontextmanager
    async def world(self) -> AsyncIterator[FakeWorld]:
        """People on a platform that is new."""
        yield FakeWorld(FakePlatform(capabilities=self.capabilities))


class TestCursorPlatform(TestReplayingPlatform):
    """A platform that gives from a position on, and counts UTF-16."""

    capabilities = Capabilities(replay="cursor", text_max=99, text_unit="utf16")


class TestForgettingPlatform(TestReplayingPlatform):
    """A platform that never gives again, and counts bytes."""

    capabilities = Capabilities(replay="none", text_max=98, text_unit="bytes")


@pytest.mark.parametrize(
    ("kind", "arrives", "ambiguous", "permanent"),
    [
        ("plain", False, False, False),
        ("permanent", False, False, True),
        ("lost", False, True, False),
        ("arrived", True, True, False),
    ],
)
def test_each_fault_is_what_its_name_says(
    kind: Literal["plain", "permanent", "arrived", "lost"], arrives: bool, ambiguous: bool, permanent: bool
) -> None:
    """A fault hits one send: it says whether that may have arrived, and only "arrived" puts it on the platform."""
    platform = FakePlatform()
    platform.fail_next(None, kind)
    assert platform.receive(outbound(HERE, "first")) == Sent("out1")
    with pytest.raises(SendError) as caught:
        platform.receive(outbound(HERE, "second"))
    assert (caught.value.ambiguous, caught.value.permanent) == (ambiguous, permanent)
    assert platform.texts("1") == ["first", "second"] if arrives else ["first"]
    platform.receive(outbound(HERE, "third"))
    assert platform.texts()[-1] == "third"
    assert platform.sends == 3


def test_a_flood_wait_names_its_seconds() -> None:
    """A platform that asks to wait says for how long, and has taken nothing."""
    platform = FakePlatform()
    platform.fail_next(Fault("plain", wait_s=223))
    with pytest.raises(SendError) as caught:
        platform.receive(outbound(HERE, "x"))
    assert caught.value.retry_after_s == 223
    assert platform.received == []


def test_an_arrived_send_repeated_with_its_key_is_there_once() -> None:
    """With idempotent sends, repeating one that arrived without an answer posts nothing and gives its id."""
    platform = FakePlatform(capabilities=Capabilities(idempotent_send=True))
    platform.fail_next("arrived")
    with pytest.raises(SendError):
        platform.receive(outbound(HERE, "x"))
    assert platform.receive(outbound(HERE, "x")) == Sent("out1")
    assert platform.texts() == ["x"]


def test_a_driver_without_a_loop_is_given_what_was_not_acked() -> None:
    """``pending`` is what a bot that starts now is told: all not acked, or all from the first not acked on."""
    for replay, expected in (("ack", ["a", "c"]), ("cursor", ["a", "b", "c"])):
        platform = FakePlatform(capabilities=Capabilities(replay="ack" if replay == "ack" else "cursor"))
        _, second, _ = (platform.say(text) for text in "abc")
        platform.ack(second)
        assert [posted.event.text for posted in platform.pending()] == expected


def test_without_replay_what_is_said_to_nobody_is_gone() -> None:
    """A platform with replay "none" keeps nothing for a bot that isn't there."""
    platform = FakePlatform(capabilities=Capabilities(replay="none"))
    platform.say("anybody?")
    assert platform.pending() == []


def test_a_message_whose_accept_was_cut_off_comes_again() -> None:
    """A crash between the giving and the ack costs a repetition, with the same id, never the message."""
    platform = FakePlatform()

    async def crash() -> None:
        async with running(platform) as inbox:
            inbox.hold()
            platform.say("kept")
            await asyncio.sleep(0)

    async def start_again() -> None:
        async with running(platform) as inbox:
            [event] = await inbox.heard(1)
        assert (event.text, event.message_id) == ("kept", "in1")

    asyncio.run(crash())
    asyncio.run(start_again())
    assert [(posted.given, posted.acked) for posted in platform.posted] == [(1, True)]


def test_a_closed_source_ends_the_run_after_the_last_message() -> None:
    """``close`` lets what was posted be accepted first."""

    async def main() -> None:
        platform = FakePlatform()
        platform.say("last")
        platform.close()
        inbox = RecordingInbox()
        await platform.run(inbox)
        assert [event.text for event in inbox.events] == ["last"]

    asyncio.run(main())
