"""What dies is started again, or given up with a word to its user; what it was told is not lost."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest

from seriatim import MessageEvent
from seriatim.actors.deaths import _FORWARDED
from seriatim.actors.delivery import Deliveries
from seriatim.actors.receipts import Receipts
from seriatim.actors.session import Flush, SessionActor
from seriatim.commits import Durable
from seriatim.decide import QUARANTINED_TEXT
from seriatim.limits import CRASHES_MAX, RESTART_MS
from seriatim.mail import (
    AttemptWanted,
    Bounced,
    CompressionDue,
    DrainTimedOut,
    HoldOver,
    Inbound,
    Mail,
    PartSettled,
    Quarantine,
    Recover,
    SlotGranted,
    SummaryMade,
    TurnBroken,
)
from seriatim.storage.sqlite_reader import SqliteReader
from seriatim.testing.clock import VirtualClock
from seriatim.testing.fake_platform import FakePlatform
from seriatim.turn import StepOffered, ToolFinished, TurnAsks, TurnEnded

from .bots import balance_holds, bot, echo, run, until


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Restarts come at once, except where a test is about their waits."""
    monkeypatch.setattr("seriatim.actors.deaths.RESTART_MS", (0,))


def dying(
    monkeypatch: pytest.MonkeyPatch, at: Callable[[Any], bool], error: BaseException, times: int = 1
) -> list[Any]:
    """Let a lane's actor die at so many of the messages that *at* chooses; those it died at."""
    receive = SessionActor.on_receive
    died: list[Any] = []

    def on_receive(self: SessionActor, message: Any) -> None:
        if len(died) < times and at(message):
            died.append(message)
            raise error
        receive(self, message)

    monkeypatch.setattr(SessionActor, "on_receive", on_receive)
    return died


ERRORS = (ValueError("a bug"), asyncio.CancelledError(), SystemExit(3), GeneratorExit())


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("kind", [Inbound, Recover, Durable, TurnEnded, PartSettled], ids=lambda kind: kind.__name__)
def test_a_lane_that_dies_at_any_kind_of_message_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[Any], error: BaseException
) -> None:
    """Whatever escapes at whatever message, the supervisor reports it with the lane, starts it again and the queue
    goes on, in order; deaths are counted (B140, B141).
    """
    died = dying(monkeypatch, lambda message: type(message) is kind, error)

    async def main() -> tuple[list[str], Any, list[tuple[str, BaseException]]]:
        async with bot(echo, tmp_path) as it:
            for text in ("one", "two", "three"):
                it.say(text)
                gc.collect()
            await until(lambda: sum(it.gateway.balance()[end] for end in ("answered", "merged")) == 3)
            await it.at_rest()
            return it.platform.texts(), it.health, it.errors

    texts, health, errors = run(main())
    assert len(died) == 1
    said = [word for text in texts for word in text.split() if word in ("one", "two", "three")]
    assert list(dict.fromkeys(said)) == ["one", "two", "three"]
    assert health["lane_restarts"] == 1
    assert [(where[:5], type(told)) for where, told in errors] == [("lane:", type(error))]
    assert balance_holds(tmp_path)


WAYS_OUT = (
    (Receipts, "accepted"),
    (SessionActor, "_start_turn"),
    (Receipts, "finished"),
    (Deliveries, "take_up"),
)


@pytest.mark.parametrize(("place", "name"), WAYS_OUT, ids=("Ack", "RunTurn", "Finished", "Deliver"))
def test_a_lane_that_dies_letting_something_out_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: type[Any], name: str
) -> None:
    """The commit is durable and its effect raises: the successor makes good what the commit explains (B140)."""
    let_out = getattr(place, name)
    failures: list[Any] = []

    def fail_once(self: Any, *left: Any) -> None:
        if not failures:
            failures.append(left)
            gc.collect()
            raise RuntimeError("an escaped error")
        let_out(self, *left)

    monkeypatch.setattr(place, name, fail_once)

    async def main() -> list[str]:
        async with bot(echo, tmp_path) as it:
            it.say("one")
            await it.heard(1)
            it.say("two")
            texts = await it.heard(2)
            await it.at_rest()
            assert it.health["lane_restarts"] == 1
            return texts

    texts = run(main())
    assert len(failures) == 1
    assert [text.rsplit(maxsplit=1)[-1] for text in texts] == ["one", "two"]
    assert balance_holds(tmp_path)


def test_nothing_but_the_system_holds_a_lane_and_that_is_enough(tmp_path: Path) -> None:
    """Collecting garbage between all steps loses no actor, no timer and no task (B140)."""

    async def main() -> list[str]:
        async with bot(echo, tmp_path) as it:
            for number in range(5):
                it.say(str(number))
                while len(it.platform.texts()) <= number:
                    gc.collect()
                    await asyncio.sleep(0)
            return it.platform.texts()

    gc.collect()
    gc.freeze()  # what is there already has no part in it, and would be walked each time
    try:
        assert run(main()) == [f"echo {number}" for number in range(5)]
    finally:
        gc.unfreeze()


def test_mail_behind_a_crash_is_kept_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What waited behind the message that killed the lane is answered after the restart, once each, in order."""
    dying(monkeypatch, lambda message: type(message) is Inbound and message.event.text == "0", ValueError("once"))

    async def main() -> list[str]:
        async with bot(echo, tmp_path) as it:
            receipts = [asyncio.ensure_future(it.accept(str(number))) for number in range(20)]
            ends = [await (await receipt).answered() for receipt in receipts]
            assert {end.outcome for end in ends} <= {"answered", "merged"}
            return [
                word for end in dict.fromkeys(end.text for end in ends) for word in str(end).split() if word != "echo"
            ]

    assert run(main()) == [str(number) for number in range(20)]


def test_every_kind_of_mail_outlives_its_lane_or_belongs_to_what_died() -> None:
    """What a dead incarnation's turn, slot or delivery was told is made anew by recovery; all else is handed on."""
    anew = {Recover, SlotGranted, HoldOver, DrainTimedOut, Quarantine, AttemptWanted, CompressionDue, SummaryMade}
    turns = {StepOffered, ToolFinished, TurnAsks, TurnEnded, TurnBroken}
    assert set(get_args(Mail)) - _FORWARDED == anew | turns


def test_a_bounce_that_waits_in_the_mailbox_of_a_lane_that_dies_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The platform tells it once: the lane's successor hears of it."""
    receive = SessionActor.on_receive
    seen: list[str] = []

    def on_receive(self: SessionActor, message: Any) -> None:
        if type(message) is Inbound and message.event.text == "two" and not seen:
            self.own_ref.signal(Flush())
            self.own_ref.signal(Bounced("reply", 0, "no such address"))
        elif type(message) is Flush and not seen:
            seen.append("died")
            raise ValueError
        receive(self, message)

    monkeypatch.setattr(SessionActor, "on_receive", on_receive)

    async def main() -> list[tuple[str, str]]:
        async with bot(echo, tmp_path) as it:
            assert (await it.ask("one")).text == "echo one"
            await it.ask("two")
            await it.at_rest()
        reader = SqliteReader(tmp_path / "state.db")
        try:
            events = [event for log in reader.logs("lane:") for event in reader.read(log)]
        finally:
            reader.close()
        return [(e.data["id"], e.data["reason"]) for e in events if e.type == "delivery/bounced"]

    assert run(main()) == [("reply", "no such address")]
    assert seen == ["died"]


def test_a_poison_message_is_tried_twice_then_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message that kills its lane is tried once more, then refused with its reason; its neighbours are answered."""
    died = dying(
        monkeypatch, lambda m: type(m) is Inbound and m.event.text == "poison", ValueError("never works"), times=99
    )

    async def main() -> None:
        async with bot(echo, tmp_path) as it:
            texts = ("before", "poison", "after")
            receipts = await asyncio.gather(*(it.accept(text) for text in texts))
            ends = [await receipt.answered() for receipt in receipts]
            assert [end.outcome for end in ends][1] == "refused"
            assert receipts[1].reason == "error: ValueError"
            assert ends[0].outcome == ends[2].outcome == "answered"
            assert it.gateway.balance()["refused"] == 1
            assert it.health["lanes_quarantined"] == 0

    run(main())
    assert len(died) == 2
    assert balance_holds(tmp_path)


def test_restarts_wait_longer_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The waits before a lane starts again grow as the limits say, and are forgotten after a quiet while."""
    monkeypatch.setattr("seriatim.actors.deaths.RESTART_MS", RESTART_MS)
    dying(monkeypatch, lambda message: type(message) is Recover, ValueError("at the start"), times=len(RESTART_MS))
    clock = VirtualClock()

    async def main() -> list[float]:
        waits: list[float] = []
        async with bot(echo, tmp_path, clock=clock) as it:
            it.say("hello")
            for restarts in range(1, len(RESTART_MS) + 1):
                await until(lambda restarts=restarts: it.health["lane_restarts"] == restarts)  # type: ignore[misc]
                due_ms = clock.next_due_ms()
                assert due_ms is not None
                waits.append(due_ms - clock.monotonic_ms())
                clock.advance(waits[-1])
            assert await it.heard(1) == ["echo hello"]
        return waits

    assert run(main()) == list(RESTART_MS)


def test_a_lane_that_keeps_dying_is_given_up_and_its_user_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After so many deaths the conversation is suspended, its user told once, new messages refused with the reason,
    other lanes are served; the next start takes up what was accepted, in a fresh conversation.
    """

    def at(message: Any) -> bool:
        return type(message) is TurnEnded or (type(message) is Recover and bool(died))

    platform = FakePlatform()
    died: list[Any] = []
    with pytest.MonkeyPatch.context() as patch:
        died = dying(patch, at, ValueError("at the end of the turn, and from then on at each start"), times=999)

        async def main() -> None:
            async with bot(echo, tmp_path, platform) as it:
                platform.say("first", chat_id="1")
                await until(lambda: it.health["lanes_quarantined"] == 1)
                assert await it.heard(1, "1") == [QUARANTINED_TEXT]
                refused = [await it.gateway.accept(_again(platform, text)) for text in ("second", "third")]
                assert [(receipt.outcome, receipt.reason) for receipt in refused] == [("refused", "quarantined")] * 2
                await it.at_rest()
                assert platform.texts("1") == [QUARANTINED_TEXT]
                balance = it.gateway.balance()
                assert (balance["accepted"], balance["waiting"]) == (1, 1)

        run(main())
        assert len(died) == CRASHES_MAX + 1
    assert balance_holds(tmp_path)

    async def next_start() -> list[str]:
        async with bot(echo, tmp_path, platform) as it:
            await it.heard(2, "1")
            await it.at_rest()
            assert it.health["lanes_quarantined"] == 0
            assert (await it.ask("and now", lane="other")).text == "echo and now"
            return platform.texts("1")

    assert run(next_start()) == [QUARANTINED_TEXT, "echo first"]
    reader = SqliteReader(tmp_path / "state.db")
    try:
        (lane,) = [log for log in reader.logs("lane:") if "fake" in log]
        told = [
            (event.type, event.data.get("reason")) for event in reader.read(lane) if event.type.startswith("route/")
        ]
        assert told == [("route/bound", "first"), ("route/suspended", "quarantined"), ("route/bound", "suspended")]
    finally:
        reader.close()


def _again(platform: FakePlatform, text: str) -> MessageEvent:
    posted = platform.say(text, chat_id="1")
    platform.ack(posted)
    return posted.event


def test_a_lane_that_dies_in_quarantine_refuses_in_silence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where even telling the user fails, the lane refuses and touches nothing; the gateway goes on."""

    def at(message: Any) -> bool:
        return type(message).__name__ in ("Recover", "Quarantine")

    dying(monkeypatch, at, ValueError("always"), times=999)

    async def main() -> None:
        async with bot(echo, tmp_path) as it:
            receipt = await it.accept("x")
            assert (receipt.outcome, receipt.reason) == ("refused", "quarantined")
            again = await it.accept("y")
            assert (again.outcome, again.reason) == ("refused", "quarantined")
            assert it.health["lanes_quarantined"] == 1
            await it.at_rest()

    run(main())


def test_a_crash_cancels_the_turn_and_waits_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The old turn is cancelled and has unwound before the lane runs it again: no two agents of one lane at once."""
    died = dying(monkeypatch, lambda m: type(m) is Inbound and m.event.text == "boom", ValueError("once"))
    running: list[int] = []
    most: list[int] = []

    async def main() -> list[str]:
        async def answer(turn: Any) -> str:
            running.append(turn.attempt)
            most.append(len(running))
            try:
                if turn.attempt == 1 and turn.text == "slow":
                    await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0.05)  # unwinding takes a while
                running.pop()
            return f"attempt {turn.attempt}: {turn.text}"

        async with bot(answer, tmp_path) as it:
            it.say("slow")
            await until(lambda: running)
            it.say("boom")
            texts = await it.heard(2)
            await it.at_rest()
            return texts

    assert run(main()) == ["attempt 2: slow", "attempt 1: boom"]
    assert len(died) == 1
    assert max(most) == 1


def test_the_end_of_a_turn_behind_a_crash_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A turn whose end was told before the lane died is not run a second time."""
    receive = SessionActor.on_receive
    seen: list[str] = []

    def on_receive(self: SessionActor, message: Any) -> None:
        if type(message) is TurnEnded and not seen:
            seen.append("held back")
            self.own_ref.signal(Flush())
            self.own_ref.signal(message)
        elif type(message) is Flush and seen == ["held back"]:
            seen.append("died")
            raise ValueError
        else:
            receive(self, message)

    monkeypatch.setattr(SessionActor, "on_receive", on_receive)
    turns: list[int] = []

    async def main() -> None:
        async def answer(turn: Any) -> str:
            turns.append(turn.attempt)
            return f"answer to {turn.text}"

        async with bot(answer, tmp_path) as it:
            assert (await it.ask("one")).text == "answer to one"
            assert (await it.ask("two")).text == "answer to two"
            await it.at_rest()
            assert it.health["turns_running"] == 0

    run(main())
    assert seen == ["held back", "died"]
    assert turns == [1, 1]
    assert balance_holds(tmp_path)
