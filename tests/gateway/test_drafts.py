"""Replies that are shown while they are made, and the typing hint, on a platform whose messages can be edited."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest
from attrs import frozen

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
    """An agent that says what it is told to, piece by piece, until it is told its turn's end."""

    def __init__(self) -> None:
        self.turns: list[Turn] = []
        self.ends: asyncio.Queue[Any] = asyncio.Queue()

    async def __call__(self, turn: Turn) -> Any:
        """One turn."""
        self.turns.append(turn)
        return await self.ends.get()


@frozen
class Scene:
    """A gateway on a virtual clock, its platform, and the agent whose turns the test leads."""

    it: Bot
    clock: VirtualClock
    platform: FakePlatform
    talker: Talker

    async def says(self, text: str, ms: float = DRAFT_EVERY_MS) -> None:
        """The running turn says a little more, and so much time passes."""
        await until(lambda: self.talker.turns)
        self.talker.turns[-1].emit(text)
        await _told(self.it)
        await passes_within(self.it, self.clock, ms)

    async def ends(self, reply: Any) -> None:
        """The turn ends with this, and all it owes is sent."""
        self.talker.ends.put_nowait(reply)
        await goes_on_owing(self.it, self.clock)


@asynccontextmanager
async def scene(
    home: Path, platform: FakePlatform | None = None, clock: VirtualClock | None = None
) -> AsyncIterator[Scene]:
    """A life of it; ``platform``: one whose messages can be edited, unless it is given."""
    platform, talker = platform or FakePlatform(capabilities=EDITS), Talker()
    async with timed(talker, home, platform, clock) as (it, its_clock):
        yield Scene(it, its_clock, platform, talker)


@asynccontextmanager
async def drafted(home: Path, text: str) -> AsyncIterator[Scene]:
    """One in which a turn has said ``text`` so far, and its people have seen it."""
    async with scene(home) as s:
        s.it.say("hi")
        await s.says(text)
        yield s


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
        async with scene(tmp_path) as s:
            s.it.say("hi")
            for _ in range(10):
                await s.says("ab ", DRAFT_FIRST_MS / 10 + 1)
            assert shown(s.platform) == [("ab " * 9 + "ab",)]
            for _ in range(30):
                await s.says("c", DRAFT_EVERY_MS / 10)
            assert len(s.platform.received) == 1
            assert 3 <= len(s.platform.received[0].edits) <= 4
            await s.ends("the whole answer")
            assert [said[-1] for said in shown(s.platform)] == ["the whole answer"]
            assert all("ab" in said for said in shown(s.platform)[0][:-1])

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
        async with scene(tmp_path) as s:
            s.platform.fail_next("hang")
            s.it.say("hi")
            await s.says("thinking")
            await until(lambda: s.platform.sends == 1)
            s.talker.ends.put_nowait("done")
            await owed(s.it)
            await _told(s.it)
            assert s.platform.sends == 1
            s.platform.unstuck.set()
            await goes_on(s.it, s.clock, MINUTE_MS)
            assert shown(s.platform) == [("thinking", "done")]

    run(main())


def test_after_a_crash_the_answer_is_edited_into_the_draft(tmp_path: Path) -> None:
    """Killed mid-turn with its draft's id recorded: the turn runs again and its answer ends in the same message,
    without a notice; nothing is left over (K17).
    """
    clock, platform = VirtualClock(), FakePlatform(capabilities=EDITS)

    async def first() -> None:
        async with scene(tmp_path / "home", platform, clock) as s:
            s.it.say("hi")
            await s.says("half an ans")
            await passes_within(s.it, clock, 1_000)
            await until(lambda: lane_events(tmp_path / "home", "delivery/draft"))
            crash_image(tmp_path / "home", tmp_path / "image")
            platform.go_down()
            s.talker.ends.put_nowait(Silence())

    async def second() -> None:
        platform.come_back()
        async with scene(tmp_path / "image", platform, clock) as s:
            await until(lambda: s.talker.turns)
            assert s.talker.turns[0].attempt == 2
            await s.says("once more")
            await s.ends("answer")

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
    platform = FakePlatform(capabilities=EDITS)

    async def main() -> None:
        async with scene(tmp_path, platform) as s:
            s.it.say("hi")
            await s.says("half an ans")
            await passes_within(s.it, s.clock, MINUTE_MS)
            await until(lambda: len(s.talker.turns) == 2)
            await s.says("once more")
            await passes_within(s.it, s.clock, 1_000)
            await s.ends("answer")

    run(main())
    assert len(died) == 1
    assert shown(platform) == [("half an ans", "once more", "answer")]
    assert [event.data["messageId"] for event in lane_events(tmp_path, "delivery/draft")] == ["out1"]


def test_an_edit_in_doubt_is_repeated_without_a_notice(tmp_path: Path) -> None:
    """The final edit's outcome is unknown: the same edit again changes nothing, so it says nothing."""

    async def main() -> None:
        async with drafted(tmp_path, "so far") as s:
            s.platform.fail_next("arrived")
            await s.ends("done")
            assert shown(s.platform) == [("so far", "done")]
            assert not any(RECOVERED_NOTICE in text for text in s.platform.texts())

    run(main())


def test_a_draft_that_is_gone_makes_the_answer_a_message_of_its_own(tmp_path: Path) -> None:
    """Somebody deletes the draft: the answer is sent, once, plainly."""

    async def main() -> None:
        async with drafted(tmp_path, "so far") as s:
            s.platform.gone.add("out1")
            await s.ends("done")
            assert shown(s.platform) == [("so far",), ("done",)]

    run(main())
    assert [e.data["messageId"] for e in lane_events(tmp_path, "delivery/draft")] == ["out1", ""]


@pytest.mark.parametrize("pieces", [["[SIL", "ENT]"], ["NO", "_REP", "LY"], [" ", "[", "silent", "]"]])
def test_a_marker_in_pieces_is_never_shown(tmp_path: Path, pieces: list[str]) -> None:
    """What may become a silence marker is held back, and the notice takes its place (B83)."""

    async def main() -> None:
        async with scene(tmp_path) as s:
            s.it.say("hi")
            for piece in pieces:
                await s.says(piece)
            await s.ends("".join(pieces))
            assert shown(s.platform) == [(SILENCE_NOTICE,)]

    run(main())


def test_a_draft_is_bounded_and_fits_its_message(tmp_path: Path) -> None:
    """However much is said, the draft is one message that the platform takes, and so much is kept of it."""

    async def main() -> None:
        platform = FakePlatform(capabilities=attrs.evolve(EDITS, text_max=100))
        async with scene(tmp_path, platform) as s:
            s.it.say("hi")
            for _ in range(3):
                await s.says("word " * 1000)
            [said] = shown(platform)
            assert all(len(text) == 100 and text.endswith("…") for text in said)
            [draft] = _drafts(s.it)._running.values()
            assert len(draft.text) < DRAFT_CHARS_MAX + 5_001
            await s.ends("short")
            assert shown(platform)[0][-1] == "short"

    run(main())


@pytest.mark.parametrize("faults", [(), ("plain",), ("plain",) * 4])
def test_a_draft_whose_turn_ends_in_silence_is_taken_back(tmp_path: Path, faults: tuple[Any, ...]) -> None:
    """Nobody waits for the rest of it: the message says that there is no answer, also where the edit fails at first."""

    async def main() -> None:
        async with drafted(tmp_path, "let me see") as s:
            s.platform.fail_next(*faults)
            await s.ends(Silence("not for me"))
            await passes(s.it, s.clock, 6 * DRAFT_EVERY_MS)
            assert shown(s.platform) == [("let me see", UNSAID_TEXT)]
            assert _drafts(s.it)._unsaid == {}

    run(main())


def test_a_draft_that_is_on_its_way_when_the_turn_ends_in_silence_is_taken_back(tmp_path: Path) -> None:
    """Its send hangs: when it has arrived, it is edited; one that can't be edited is left alone after a few tries."""

    async def main() -> None:
        async with scene(tmp_path) as s:
            s.platform.fail_next("hang")
            s.it.say("hi")
            await s.says("thinking")
            await until(lambda: s.platform.sends == 1)
            await s.ends(Silence())
            s.platform.unstuck.set()
            await until(lambda: s.platform.received)
            await passes(s.it, s.clock, 2 * DRAFT_EVERY_MS)
            assert shown(s.platform) == [("thinking", UNSAID_TEXT)]
            s.it.say("again")
            await until(lambda: len(s.talker.turns) == 2)
            await s.says("hm")
            s.platform.fail_next(*("plain",) * 20)
            sends = s.platform.sends
            await s.ends(Silence())
            await passes(s.it, s.clock, 60 * DRAFT_EVERY_MS)
            assert s.platform.sends == sends + UNSAID_TRIES_MAX
            assert _drafts(s.it)._unsaid == {}

    run(main())


def _drafts(it: Bot) -> Drafts:
    account: Any = it.gateway._runtime.deliveries._accounts["fake", "fake"][0]._box.actor  # type: ignore[union-attr]
    drafts: Drafts = account._drafts
    return drafts


def test_a_stopped_turn_s_draft_says_no_more(tmp_path: Path) -> None:
    """After /stop nothing of the turn is shown, whatever it still says."""

    async def main() -> None:
        async with drafted(tmp_path, "so far") as s:
            turn = s.talker.turns[0]
            turn.emit(" and on")
            s.it.say("/stop")
            await until(lambda: len(s.platform.received) == 2)
            turn.emit(" and on")
            await passes(s.it, s.clock, 10_000)
            assert shown(s.platform)[0][-1] == "so far"
            assert len(s.platform.received) == 2

    run(main())


def test_a_draft_overtakes_no_reply(tmp_path: Path) -> None:
    """While an earlier reply waits in the chat, the next turn's draft isn't shown."""

    async def main() -> None:
        async with scene(tmp_path) as s:
            s.it.say("one")
            await until(lambda: s.talker.turns)
            s.platform.fail_next("plain", "plain", "plain")
            s.talker.ends.put_nowait("first")
            await until(lambda: s.platform.sends == 1)
            s.talker.turns.clear()
            s.it.say("two")
            await s.says("draft", DRAFT_FIRST_MS + 10)
            assert s.platform.received == []
            await s.ends("second")
            assert s.platform.texts() == ["first", "second"]

    run(main())


def test_typing_is_shown_while_a_turn_runs(tmp_path: Path) -> None:
    """The hint comes with the turn, again every few seconds, and ends with it."""

    async def main() -> None:
        async with scene(tmp_path) as s:
            s.it.say("hi")
            await until(lambda: s.talker.turns and s.platform.typed)
            assert [target.chat_id for target in s.platform.typed] == ["1"]
            await passes_within(s.it, s.clock, 2 * TYPING_MS + 10)
            assert len(s.platform.typed) == 3
            await s.ends("done")
            await passes(s.it, s.clock, 3 * TYPING_MS)
            assert len(s.platform.typed) == 3

    run(main())


def test_a_platform_without_hints_is_not_asked(tmp_path: Path) -> None:
    """No edits, no typing: nothing of a running turn reaches the delivery."""

    async def main() -> None:
        async with scene(tmp_path, FakePlatform()) as s:
            s.it.say("hi")
            await s.says("so far", 10_000)
            assert s.platform.typed == []
            await s.ends("done")
            assert shown(s.platform) == [("done",)]

    run(main())
