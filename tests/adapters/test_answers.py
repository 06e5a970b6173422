"""What an adapter says of a send: whatever it is, the reply goes on, and no lane dies of it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from seriatim.adapters.answers import message_id_of, refusal_of
from seriatim.errors import InvalidInputError, SendError
from seriatim.model import Outbound, Sent, Target
from seriatim.testing.fake_platform import FakePlatform
from tests.gateway.bots import Bot, bot, echo, run, until

LONG = "x" * 5000
FIRST = object()


class Answers(FakePlatform):
    """An adapter that says odd things of its first send: it returns them, or raises them."""

    def __init__(self, *answers: Any, text_max: Any = 0) -> None:
        super().__init__()
        self.answers: Iterator[Any] = iter(answers)
        self.said_max = text_max

    def text_max(self, target: Target) -> Any:
        """Whatever it was told to say."""
        return self.said_max

    async def send(self, out: Outbound) -> Any:
        """Refuse without sending; or send, and say something about it."""
        answer = next(self.answers, FIRST)
        if isinstance(answer, BaseException):
            raise answer
        sent = await super().send(out)
        return sent if answer is FIRST else answer


class Plain(FakePlatform):
    """An adapter whose send isn't async."""

    def send(self, out: Outbound) -> Any:
        """Send at once."""
        self.receive(out)
        return Sent("1")


class UntoldError(SendError):
    """A refusal that tells nothing of what refusals tell."""

    def __init__(self) -> None:
        Exception.__init__(self)


class MuteError(Exception):
    """An error that can't tell itself."""

    def __str__(self) -> str:
        raise RuntimeError


async def heard(it: Bot, *texts: str) -> list[str]:
    """All that people see, after these were said one after the other; the lane lived through it."""
    for text in texts:
        seen = len(it.platform.texts())
        it.say(text)
        await it.heard(seen + 1)
        await it.at_rest()
    assert it.health["lane_restarts"] == 0
    assert it.health["state"] == "running"
    return it.platform.texts()


def named(it: Bot) -> list[str]:
    """The fields that were told as the adapter's fault."""
    return [error.field for _, error in it.errors if isinstance(error, InvalidInputError)]


@pytest.mark.parametrize(
    ("answer", "field"),
    [
        (None, []),
        (Sent(5), []),  # type: ignore[arg-type]
        (Sent(""), []),
        (Sent(b"id"), ["message_id"]),  # type: ignore[arg-type]
        (Sent("\ud800"), ["message_id"]),
        (Sent(LONG), ["message_id"]),
        (Sent({}), ["message_id"]),  # type: ignore[arg-type]
    ],
)
def test_a_part_that_was_sent_has_arrived_whatever_its_id(tmp_path: Path, answer: Any, field: list[str]) -> None:
    """Nobody hears a reply twice because of how its id is told; what can't be kept of it is told by name."""

    async def main() -> None:
        async with bot(echo, tmp_path, Answers(answer)) as it:
            assert await heard(it, "one", "two") == ["echo one", "echo two"]
            assert named(it) == field

    run(main())


@pytest.mark.parametrize("answer", ["id", 5, False, {"ok": False}])
def test_an_answer_of_no_kind_leaves_open_whether_it_was_sent(tmp_path: Path, answer: Any) -> None:
    """It may mean that nothing was: the reply is sent again, marked, and the adapter's fault told by name."""

    async def main() -> None:
        async with bot(echo, tmp_path, Answers(answer)) as it:
            await heard(it, "one")
            await it.heard(2)
            assert (await heard(it, "two"))[1:] == ["Recovered reply (may be a repeat): echo one", "echo two"]
            assert named(it) == ["send"]

    run(main())


def test_a_send_need_not_be_async(tmp_path: Path) -> None:
    """It has sent when it returns."""

    async def main() -> None:
        async with bot(echo, tmp_path, Plain()) as it:
            assert await heard(it, "one", "two") == ["echo one", "echo two"]
            assert it.errors == []

    run(main())


@pytest.mark.parametrize(
    ("refusal", "field"),
    [
        (SendError("x", moved_to=""), ["moved_to"]),
        (SendError("x", moved_to="\ud800"), ["moved_to"]),
        (SendError("x", moved_to={}), ["moved_to"]),  # type: ignore[arg-type]
        (SendError("x", retry_after_s="0.01"), []),  # type: ignore[arg-type]
        (SendError("x", retry_after_s="tomorrow"), ["retry_after_s"]),  # type: ignore[arg-type]
        (SendError("x", retry_after_s=math.nan), ["retry_after_s"]),
        (SendError("x", retry_after_s=-5), ["retry_after_s"]),
        (SendError("x", code="zzz"), ["code"]),  # type: ignore[arg-type]
        (SendError("x", code=[]), ["code"]),  # type: ignore[arg-type]
        (SendError("\ud800"), []),
        (SendError(ValueError("x")), []),  # type: ignore[arg-type]
        (SendError(MuteError()), []),  # type: ignore[arg-type]
        (SendError(5), []),  # type: ignore[arg-type]
        (UntoldError(), []),
    ],
)
def test_a_refusal_is_plain_whatever_else_it_tells(tmp_path: Path, refusal: SendError, field: list[str]) -> None:
    """The part surely wasn't sent, and is sent without a mark; what can't be kept is told by name."""

    async def main() -> None:
        async with bot(echo, tmp_path, Answers(refusal)) as it:
            assert await heard(it, "one", "two") == ["echo one", "echo two"]
            assert named(it) == field

    run(main())


def test_a_generator_exit_leaves_open_whether_it_was_sent(tmp_path: Path) -> None:
    """The chat goes on: it is sent again, marked."""

    async def main() -> None:
        async with bot(echo, tmp_path, Answers(GeneratorExit())) as it:
            assert await heard(it, "one", "two") == ["Recovered reply (may be a repeat): echo one", "echo two"]

    run(main())


def test_the_new_id_of_a_chat_may_be_a_number(tmp_path: Path) -> None:
    """As some platforms tell it; the reply goes to its digits."""

    async def main() -> None:
        async with bot(echo, tmp_path, Answers(SendError("moved", moved_to=5))) as it:  # type: ignore[arg-type]
            it.say("one")
            assert await it.heard(1, "5") == ["echo one"]
            assert it.errors == []

    run(main())


@pytest.mark.parametrize("text_max", ["5", None, 5.0])
def test_a_limit_that_is_no_number_is_no_way_to_a_chat(tmp_path: Path, text_max: Any) -> None:
    """It is told by name; replies wait, and are sent once it says better."""

    async def main() -> None:
        async with bot(echo, tmp_path, platform := Answers(text_max=text_max)) as it:
            it.say("one")
            await until(lambda: "text_max" in named(it))
            platform.said_max = 0
            assert await it.heard(1) == ["echo one"]
            assert await heard(it, "two") == ["echo one", "echo two"]

    run(main())


def test_a_late_failure_that_cannot_be_told_is_the_adapters_error(tmp_path: Path) -> None:
    """It is raised where it was told, and the lane hears nothing of it."""

    async def main() -> None:
        async with bot(echo, tmp_path, FakePlatform()) as it:
            await heard(it, "one")
            reason: Any = 5
            with pytest.raises(InvalidInputError):
                it.platform.bounce(it.platform.received[0], reason)
            assert (await heard(it, "two"))[-1] == "echo two"

    run(main())


def test_what_can_be_kept_stays_as_it_is() -> None:
    """A refusal and an id that are as they should be are handed on untouched."""
    faults: list[InvalidInputError] = []
    refusal = SendError("x", retry_after_s=5, code="blocked", moved_to="y", ambiguous=True)
    assert refusal_of(refusal, faults.append) is refusal
    assert message_id_of(Sent("id"), faults.append) == "id"
    assert faults == []
