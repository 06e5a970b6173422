"""Replies that are shown while they are made, and the typing hint, on a platform whose messages can be edited."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import attrs
import pytest

from seriatim import Silence, Turn
from seriatim.actors.session import SessionActor
from seriatim.actors.showing import (
    DRAFT_EVERY_MS,
    DRAFT_FIRST_MS,
    TYPING_MS,
    UNSAID_TEXT,
    UNSAID_TRIES_MAX,
    Drafts,
)
from seriatim.adapters.base import Capabilities
from seriatim.limits import DRAFT_CHARS_MAX
from seriatim.mail import DraftShown
from seriatim.outbox import RECOVERED_NOTICE
from seriatim.silence import SILENCE_NOTICE
from seriatim.testing.clock import VirtualClock
from seriatim.testing.fake_platform import FakePlatform

from .bots import Bot, run, until
from .test_delivery import MINUTE_MS, crash_image, goes_on, lane_events, owed, passes, settle, timed

EDITS = Capabilities(replay="ack", edit=True, typing=True)


class Talker:
    """An agent that says what it is told to, piece by piece; ``says`` before a turn's end shows, ``end`` ends it."""

    def __init__(self) -> None:
        self.turns: list[Turn] = []
        self.ends: asyncio.Queue[Any] = asyncio.Queue()

    async def __call__(self, turn: Turn) -> Any:
        """One turn."""
        self.turns.append(turn)
        return await self.ends.get()

    async def says(self, it: Bot, clock: VirtualClock, text: str, ms: float = DRAFT_EVERY_MS) -> None:
        """The running turn says a little more, and so much time passes."""
        await until(lambda: self.turns)
        self.turns[-1].emit(text)
        await _told(it)
        await passes_within(it, clock, ms)


async def _told(it: Bot) -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def passes_within(it: Bot, clock: VirtualClock, ms: float) -> None:
    """Time passes while a turn runs."""
    end = clock.monotonic_ms() + ms
    while (due := clock.next_due_ms()) is not None and due <= end:
        clock.fire_next()
        await _told(it)
        await asyncio.sleep(0.001)  # the writer's thread, for a lazy commit
    clock.advance(end - clock.monotonic_ms())
    await _told(it)


def shown(platform: FakePlatform) -> list[tuple[str, ...]]:
    """Each message with all that it ever said."""
    return [(*got.edits, got.out.text) for got in platform.received]


def test_a_reply_grows_in_one_message(tmp_path: Path) -> None:
    """Pieces are shown together at first, then as edits, at most one a second; the answer is the last edit."""

    async def main() -> None:
        platform, talker = FakePlatform(capabilities=EDITS), Talker()
        async with timed(talker, tmp_path, platform) as (it, clock):
            it.say("hi")
            for _ in range(10):
                await talker.says(it, clock, "ab ", DRAFT_FIRST_MS / 10 + 1)
            assert shown(platform) == [("ab " * 9 + "ab",)]
            for _ in range(30):
                await talker.says(it, clock, "c", DRAFT_EVERY_MS / 10)
            assert len(platform.received) == 1
            assert 3 <= len(platform.received[0].edits) <= 4
            talker.ends.put_nowait("the whole answer")
            await goes_on_owing(it, clock)
            assert [said[-1] for said in shown(platform)] == ["the whole answer"]
            assert all("ab" in said for said in shown(platform)[0][:-1])

    run(main())
    assert [event.data["messageId"] for event in lane_events(tmp_path, "delivery/draft")] == ["out1"]
    assert lane_events(tmp_path, "delivery/owed")[0].data["draft"] == "out1"


async def goes_on_owing(it: Bot, clock: VirtualClock) -> None:
    """The turn ends and all it owes is sent."""
    runtime = it.gateway._runtime
    assert runtime is not None
    await until(lambda: not runtime.slots.held)
    await goes_on(it, clock, MINUTE_MS)
    await settle(it)


def test_a_turn_that_ends_while_its_draft_is_on_its_way_edits_it(tmp_path: Path) -> None:
    """The draft's send hangs when the answer is there: the answer waits for it and is edited into it, not sent beside
    it.
    """

    async def main() -> None:
        platform, talker = FakePlatform(capabilities=EDITS), Talker()
        async with timed(talker, tmp_path, platform) as (it, clock):
            platform.fail_next("hang")
            it.say("hi")
            await talker.says(it, clock, "thinking")
            await until(lambda: platform.sends == 1)
            talker.ends.put_nowait("done")
            await owed(it)
            await _told(it)
            assert platform.sends == 1
            platform.unstuck.set()
            await goes_on(it, clock, MINUTE_MS)
            assert shown(platform) == [("thinking", "done")]

    run(main())


def test_after_a_crash_the_answer_is_edited_into_the_draft(tmp_path: Path) -> None:
    """Killed mid-turn with its draft's id recorded: the turn runs again and its answer ends in the same message,
    without a notice; nothing is left over (K17).
    """
    clock, platform = VirtualClock(), FakePlatform(capabilities=EDITS)

    async def first() -> None:
        talker = Talker()
        async with timed(talker, tmp_path / "home", platform, clock) as (it, _):
            it.say("hi")
            await talker.says(it, clock, "half an ans")
            await passes_within(it, clock, 1_000)
            await until(lambda: lane_events(tmp_path / "home", "delivery/draft"))
            crash_image(tmp_path / "home", tmp_path / "image")
            platform.go_down()
            talker.ends.put_nowait(Silence())

    async def second() -> None:
        platform.come_back()
        talker = Talker()
        async with timed(talker, tmp_path / "image", platform, clock) as (it, _):
            await until(lambda: talker.turns)
            assert talker.turns[0].attempt == 2
            await talker.says(it, clock, "once more")
            talker.ends.put_nowait("answer")
            await goes_on_owing(it, clock)

    run(first())
    run(second())
    assert shown(platform) == [("half an ans", "once more", "answer")]


def test_a_lane_that_dies_before_it_has_recorded_its_draft_goes_on_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The news of the draft dies with the lane; the turn that runs again edits the message all the same, and a process
    after this one would, too.
    """
    receive = SessionActor.on_receive
    died: list[Any] = []

    def on_receive(self: SessionActor, message: Any) -> None:
        if type(message) is DraftShown and not died:
            died.append(message)
            raise ValueError
        receive(self, message)

    monkeypatch.setattr(SessionActor, "on_receive", on_receive)
    platform, talker = FakePlatform(capabilities=EDITS), Talker()

    async def main() -> None:
        async with timed(talker, tmp_path, platform) as (it, clock):
            it.say("hi")
            await talker.says(it, clock, "half an ans")
            await passes_within(it, clock, MINUTE_MS)
            await until(lambda: len(talker.turns) == 2)
            await talker.says(it, clock, "once more")
            await passes_within(it, clock, 1_000)
            talker.ends.put_nowait("answer")
            await goes_on_owing(it, clock)

    run(main())
    assert len(died) == 1
    assert shown(platform) == [("half an ans", "once more", "answer")]
    assert [event.data["messageId"] for event in lane_events(tmp_path, "delivery/draft")] == ["out1"]


def test_an_edit_in_doubt_is_repeated_without_a_notice(tmp_path: Path) -> None:
    """The final edit's outcome is unknown: the same edit again changes nothing, so it says nothing."""

    async def main() -> None:
        platform, talker = FakePlatform(capabilities=EDITS), Talker()
        async with timed(talker, tmp_path, platform) as (it, clock):
            it.say("hi")
            await talker.says(it, clock, "so far")
            platform.fail_next("arrived")
            talker.ends.put_nowait("done")
            await goes_on_owing(it, clock)
            assert shown(platform) == [("so far", "done")]
            assert not any(RECOVERED_NOTICE in text for text in platform.texts())

    run(main())


def test_a_draft_that_is_gone_makes_the_answer_a_message_of_its_own(tmp_path: Path) -> None:
    """Somebody deletes the draft: the answer is sent, once, plainly."""

    async def main() -> None:
        platform, talker = FakePlatform(capabilities=EDITS), Talker()
        async with timed(talker, tmp_path, platform) as (it, clock):
            it.say("hi")
            await talker.says(it, clock, "so far")
            platform.gone.add("out1")
            talker.ends.put_nowait("done")
            await goes_on_owing(it, clock)
            assert shown(platform) == [("so far",), ("done",)]

    run(main())
    assert [e.data["messageId"] for e in lane_events(tmp_path, "delivery/draft")] == ["out1", ""]


@pytest.mark.parametrize("pieces", [["[SIL", "ENT]"], ["NO", "_REP", "LY"], [" ", "[", "silent", "]"]])
def test_a_marker_in_pieces_is_never_shown(tmp_path: Path, pieces: list[str]) -> None:
    """What may become a silence marker is held back, and the notice takes its place (B83)."""

    async def main() -> None:
        platform, talker = FakePlatform(capabilities=EDITS), Talker()
        async with timed(talker, tmp_path, platform) as (it, clock):
            it.say("hi")
            for piece in pieces:
                await talker.says(it, clock, piece)
            talker.ends.put_nowait("".join(pieces))
            await goes_on_owing(it, clock)
            assert shown(platform) == [(SILENCE_NOTICE,)]

    run(main())


def test_a_draft_is_bounded_and_fits_its_message(tmp_path: Path) -> None:
    """However much is said, the draft is one message that the platform takes, and so much is kept of it."""

    async def main() -> None:
        platform = FakePlatform(capabilities=attrs.evolve(EDITS, text_max=100))
        talker = Talker()
        async with timed(talker, tmp_path, platform) as (it, clock):
            it.say("hi")
            for _ in range(3):
                await talker.says(it, clock, "word " * 1000)
            [said] = shown(platform)
            assert all(len(text) == 100 and text.endswith("…") for text in said)
            account = it.gateway._runtime.deliveries._accounts["fake", "fake"][0]._box.actor  # type: ignore[union-attr]
            [draft] = account._drafts._running.values()
            assert len(draft.text) < DRAFT_CHARS_MAX + 5_001
            talker.ends.put_nowait("short")
            await goes_on_owing(it, clock)
            assert shown(platform)[0][-1] == "short"

    run(main())


@pytest.mark.parametrize("faults", [(), ("plain",), ("plain",) * 4])
def test_a_draft_whose_turn_ends_in_silence_is_taken_back(tmp_path: Path, faults: tuple[Any, ...]) -> None:
    """Nobody waits for the rest of it: the message says that there is no answer, also where the edit fails at first."""

    async def main() -> None:
        platform, talker = FakePlatform(capabilities=EDITS), Talker()
        async with timed(talker, tmp_path, platform) as (it, clock):
            it.say("hi")
            await talker.says(it, clock, "let me see")
            platform.fail_next(*faults)
            talker.ends.put_nowait(Silence("not for me"))
            await goes_on_owing(it, clock)
            await passes(it, clock, 6 * DRAFT_EVERY_MS)
            assert shown(platform) == [("let me see", UNSAID_TEXT)]
            assert _drafts(it)._unsaid == {}

    run(main())


def test_a_draft_that_is_on_its_way_when_the_turn_ends_in_silence_is_taken_back(tmp_path: Path) -> None:
    """Its send hangs: when it has arrived, it is edited; one that can't be edited is left alone after a few tries."""

    async def main() -> None:
        platform, talker = FakePlatform(capabilities=EDITS), Talker()
        async with timed(talker, tmp_path, platform) as (it, clock):
            platform.fail_next("hang")
            it.say("hi")
            await talker.says(it, clock, "thinking")
            await until(lambda: platform.sends == 1)
            talker.ends.put_nowait(Silence())
            await goes_on_owing(it, clock)
            platform.unstuck.set()
            await until(lambda: platform.received)
            await passes(it, clock, 2 * DRAFT_EVERY_MS)
            assert shown(platform) == [("thinking", UNSAID_TEXT)]
            it.say("again")
            await until(lambda: len(talker.turns) == 2)
            await talker.says(it, clock, "hm")
            platform.fail_next(*("plain",) * 20)
            sends = platform.sends
            talker.ends.put_nowait(Silence())
            await goes_on_owing(it, clock)
            await passes(it, clock, 60 * DRAFT_EVERY_MS)
            assert platform.sends == sends + UNSAID_TRIES_MAX
            assert _drafts(it)._unsaid == {}

    run(main())


def _drafts(it: Bot) -> Drafts:
    account: Any = it.gateway._runtime.deliveries._accounts["fake", "fake"][0]._box.actor  # type: ignore[union-attr]
    drafts: Drafts = account._drafts
    return drafts


def test_a_stopped_turn_s_draft_says_no_more(tmp_path: Path) -> None:
    """After /stop nothing of the turn is shown, whatever it still says."""

    async def main() -> None:
        platform, talker = FakePlatform(capabilities=EDITS), Talker()
        async with timed(talker, tmp_path, platform) as (it, clock):
            it.say("hi")
            await talker.says(it, clock, "so far")
            turn = talker.turns[0]
            turn.emit(" and on")
            it.say("/stop")
            await until(lambda: len(platform.received) == 2)
            turn.emit(" and on")
            await passes(it, clock, 10_000)
            assert shown(platform)[0][-1] == "so far"
            assert len(platform.received) == 2

    run(main())


def test_a_draft_overtakes_no_reply(tmp_path: Path) -> None:
    """While an earlier reply waits in the chat, the next turn's draft isn't shown."""

    async def main() -> None:
        platform, talker = FakePlatform(capabilities=EDITS), Talker()
        async with timed(talker, tmp_path, platform) as (it, clock):
            it.say("one")
            await until(lambda: talker.turns)
            platform.fail_next("plain", "plain", "plain")
            talker.ends.put_nowait("first")
            await until(lambda: platform.sends == 1)
            talker.turns.clear()
            it.say("two")
            await talker.says(it, clock, "draft", DRAFT_FIRST_MS + 10)
            assert platform.received == []
            talker.ends.put_nowait("second")
            await goes_on_owing(it, clock)
            assert platform.texts() == ["first", "second"]

    run(main())


def test_typing_is_shown_while_a_turn_runs(tmp_path: Path) -> None:
    """The hint comes with the turn, again every few seconds, and ends with it."""

    async def main() -> None:
        platform, talker = FakePlatform(capabilities=EDITS), Talker()
        async with timed(talker, tmp_path, platform) as (it, clock):
            it.say("hi")
            await until(lambda: talker.turns and platform.typed)
            assert [target.chat_id for target in platform.typed] == ["1"]
            await passes_within(it, clock, 2 * TYPING_MS + 10)
            assert len(platform.typed) == 3
            talker.ends.put_nowait("done")
            await goes_on_owing(it, clock)
            await passes(it, clock, 3 * TYPING_MS)
            assert len(platform.typed) == 3

    run(main())


def test_a_platform_without_hints_is_not_asked(tmp_path: Path) -> None:
    """No edits, no typing: nothing of a running turn reaches the delivery."""

    async def main() -> None:
        platform, talker = FakePlatform(), Talker()
        async with timed(talker, tmp_path, platform) as (it, clock):
            it.say("hi")
            await talker.says(it, clock, "so far", 10_000)
            assert platform.typed == []
            talker.ends.put_nowait("done")
            await goes_on_owing(it, clock)
            assert shown(platform) == [("done",)]

    run(main())
