"""Receipts outlive lanes, merges and processes: whoever waits for a message hears its end, once and truly."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from seriatim import Gateway, Turn
from seriatim.actors.receipts import Receipts
from seriatim.actors.session import SessionActor
from seriatim.effects import Ack, Finished
from seriatim.errors import GatewayClosedError, InvalidInputError
from seriatim.silence import SILENCE_NOTICE
from seriatim.turn import TurnEnded

from .bots import bot, echo, event, run, until
from .test_delivery import crash_image


def test_a_lane_that_dies_owes_its_receipts_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lane's actor dies with the turn's end in its hands: the next incarnation finds or makes the end, once."""
    receive = SessionActor.on_receive
    deaths: list[str] = []

    def dying(actor: SessionActor, message: object) -> None:
        if type(message) is TurnEnded and not deaths:
            deaths.append("here")
            raise RuntimeError("dies")
        receive(actor, message)

    monkeypatch.setattr(SessionActor, "on_receive", dying)
    monkeypatch.setattr("seriatim.actors.deaths.RESTART_MS", (0,))

    async def main() -> None:
        async with bot(echo, tmp_path) as it:
            end = await (await it.accept("hi", message_id="1")).answered()
            assert (end.outcome, end.text) == ("answered", "echo hi")

    run(main())
    assert deaths == ["here"]


@pytest.mark.parametrize("when", ["waiting", "answered"])
def test_a_host_takes_its_receipt_up_again_after_a_crash(tmp_path: Path, when: str) -> None:
    """The process dies before, or after, the answer is durable: the next one gives the same message's receipt, and its
    answer; nothing runs twice, and the old receipt said that the gateway had stopped.
    """
    asked: list[int] = []
    home, image = tmp_path / "home", tmp_path / "image"
    message = event("hi", message_id="1")

    async def answer(turn: Turn) -> str:
        asked.append(turn.attempt)
        if when == "waiting" and turn.attempt == 1:
            await asyncio.Event().wait()
        return f"answer {turn.attempt}"

    async def first() -> None:
        async with bot(answer, home) as it:
            receipt = await it.gateway.accept(message)
            await until(lambda: asked)
            if when == "answered":
                await receipt.answered()
            crash_image(home, image)
            await it.gateway.stop(drain_s=0)
            if when == "waiting":
                with pytest.raises(GatewayClosedError):
                    await receipt.answered()

    async def second() -> None:
        async with bot(answer, image) as it:
            receipt = await it.gateway.receipt(message)
            assert receipt is not None
            end = await receipt.answered()
            assert (end.outcome, end.text) == ("answered", "answer 2" if when == "waiting" else "answer 1")
            assert (await it.gateway.accept(message)).outcome == "duplicate"
            again = await it.gateway.receipt(message)
            assert again is not None
            assert (await again.answered()) == end

    run(first())
    run(second())
    assert asked == ([1, 2] if when == "waiting" else [1])


def test_what_was_never_accepted_has_no_receipt(tmp_path: Path) -> None:
    """Another id, another chat, another account: none of them is this message; without an id nothing can be found."""

    async def main(gateway: Gateway) -> None:
        await (await gateway.accept(event("hi", message_id="1"))).answered()
        assert await gateway.receipt(event("hi", message_id="2")) is None
        assert await gateway.receipt(event("hi", "2", message_id="1")) is None
        with pytest.raises(InvalidInputError):
            await gateway.receipt(event("hi"))

    async def story() -> None:
        async with bot(echo, tmp_path) as it:
            await main(it.gateway)

    run(story())


def test_a_receipt_found_again_says_what_the_person_got(tmp_path: Path) -> None:
    """A silence marker's receipt has the notice, live and from the log; a merged one the answer that it shares."""

    async def answer(turn: Turn) -> str:
        if turn.text == "first":
            await hold.wait()
        return "[SILENT]" if "quiet" in turn.text else f"re {turn.text}"

    async def main() -> None:
        async with bot(answer, tmp_path) as it:
            quiet = await (await it.accept("quiet", message_id="q")).answered()
            first = await it.accept("first", message_id="1")
            others = [await it.accept(text, message_id=text) for text in ("b", "c")]
            assert [receipt.outcome for receipt in others] == ["accepted", "merged"]
            hold.set()
            ends = [await receipt.answered() for receipt in (first, *others)]
            assert [(end.outcome, end.text) for end in ends] == [
                ("answered", "re first"),
                ("answered", "re b\nc"),
                ("merged", "re b\nc"),
            ]
            assert quiet.text == SILENCE_NOTICE
            for text, end in (("q", quiet), ("1", ends[0]), ("b", ends[1]), ("c", ends[2])):
                found = await it.gateway.receipt(event("", message_id=text))
                assert found is not None
                assert found.end == end

    hold = asyncio.Event()
    run(main())


def test_a_refusal_is_an_end_and_no_promise(tmp_path: Path) -> None:
    """Refused: the receipt says why at once, nobody waits for it, and no log has it."""

    async def main() -> None:
        async with bot(echo, tmp_path) as it:
            it.gateway._live().switches.draining = True
            receipt = await it.accept("hi", message_id="1")
            assert (receipt.outcome, receipt.reason) == ("refused", "stopping")
            assert (await receipt.answered()).outcome == "refused"
            assert await it.gateway.receipt(event("hi", message_id="1")) is None

    run(main())


def test_a_receipt_follows_its_message_into_another_lane() -> None:
    """Where a lane is taken over, those who wait are counted with the lane that will answer, and hear from it."""
    receipts = Receipts()
    receipt = receipts.open("i1", "old", lambda receipt: None)
    receipts.accepted(Ack("i1", "accepted", "s", 0))
    receipts.moved("old", "new")
    assert receipt.session_key == "new"
    assert receipts.of_lane("old") == []
    assert receipts.of_lane("new") == ["i1"]
    receipts.take_up("i2", "old")  # found again under the key that it was accepted under
    assert receipts.of_lane("new", {"old": "new", "new": "new"}.__getitem__) == ["i1", "i2"]
    receipts.finished(Finished("i1", "answered", "text", "completed"))
    assert receipt.end is not None
    assert receipt.end.text == "text"
