"""What every turn runner promises its lanes: the real one with async and plain agents, and the scripted one."""

from __future__ import annotations

import pytest

from seriatim.limits import REPLY_BYTES_MAX
from seriatim.testing.scripted import NEVER, Script, ScriptCall, ScriptStep
from seriatim.turn import Reply, Silence, StepOffered, ToolFinished, TurnDelta, Usage
from tests.turns.harness import KINDS, WARM_BYTES, Harness, play

pytestmark = pytest.mark.parametrize("kind", KINDS)

LOOK = ScriptCall("look", 41, effects="read")
SAVE = ScriptCall("save", {"saved": True})
MAIL = ScriptCall("mail", "sent")


def test_a_reply_ends_the_turn(kind: str) -> None:
    """A returned text is the turn's completed end."""

    async def scenario(h: Harness) -> None:
        ended = await h.ended(h.start(Script("hello")))
        assert (ended.reason, ended.text, ended.turn, ended.generation) == ("completed", "hello", 1, 1)

    play(kind, scenario)


def test_a_reply_keeps_its_usage(kind: str) -> None:
    """Usage and finish reason of a Reply reach the end."""

    async def scenario(h: Harness) -> None:
        ended = await h.ended(h.start(Script(Reply("hello", Usage(input=3, output=2), "stop"))))
        assert (ended.text, ended.usage, ended.finish) == ("hello", Usage(input=3, output=2), "stop")

    play(kind, scenario)


@pytest.mark.parametrize(("end", "detail"), [(None, "none"), (Silence("not for me"), "not for me"), (" \n", "empty")])
def test_silence_is_completed_without_text(kind: str, end: object, detail: str) -> None:
    """None, Silence and an empty text are silence, each with its reason."""

    async def scenario(h: Harness) -> None:
        ended = await h.ended(h.start(Script(end)))
        assert (ended.reason, ended.text, ended.detail) == ("completed", None, detail)

    play(kind, scenario)


@pytest.mark.parametrize("error", [ValueError("no luck"), KeyboardInterrupt("no luck"), SystemExit("no luck")])
def test_an_error_ends_the_turn_as_failed(kind: str, error: BaseException) -> None:
    """Whatever the agent raises ends its turn, and nothing else."""

    async def scenario(h: Harness) -> None:
        ended = await h.ended(h.start(Script(error)))
        assert (ended.reason, ended.text, ended.detail) == ("failed", None, f"{type(error).__name__}: no luck")
        assert (await h.ended(h.start(Script("next"), generation=2))).text == "next"

    play(kind, scenario)


def test_a_wrong_type_ends_the_turn_as_failed(kind: str) -> None:
    """An agent that returns something else is told what was wanted."""

    async def scenario(h: Harness) -> None:
        ended = await h.ended(h.start(Script(42)))
        assert ended.reason == "failed"
        assert "str, Reply, Silence or None is needed, the agent returned int" in (ended.detail or "")

    play(kind, scenario)


def test_lone_surrogates_are_mended(kind: str) -> None:
    """Text that no log can hold is mended before it is told."""

    async def scenario(h: Harness) -> None:
        assert (await h.ended(h.start(Script("a\ud800b")))).text == "a\ufffdb"

    play(kind, scenario)


@pytest.mark.parametrize("text", ["x" * (REPLY_BYTES_MAX + 1), "ä" * (REPLY_BYTES_MAX // 2 + 1)])
def test_a_reply_that_is_too_large_fails_with_a_small_text(kind: str, text: str) -> None:
    """The bound counts UTF-8 bytes; beyond it the turn fails, with a text that says so."""

    async def scenario(h: Harness) -> None:
        ended = await h.ended(h.start(Script(text)))
        assert ended.reason == "failed"
        assert "too large" in (ended.text or "")

    play(kind, scenario)


def test_deltas_come_in_order_before_the_end(kind: str) -> None:
    """Deltas are told as they are made."""

    async def scenario(h: Harness) -> None:
        ear = h.start(Script("ab", deltas=("a", "b")))
        await h.ended(ear)
        assert [delta.text for delta in ear.of(TurnDelta)] == ["a", "b"]

    play(kind, scenario)


def test_a_tool_with_effects_waits_for_its_commit(kind: str) -> None:
    """A write runs after release and not before; the agent goes on after proceed and not before."""

    async def scenario(h: Harness) -> None:
        ear = h.start(Script("done", steps=(ScriptStep("saving", (SAVE,)),)))
        await h.until(ear, lambda: bool(ear.told))
        await h.quiet()
        (offered,) = ear.told
        assert isinstance(offered, StepOffered)
        assert (offered.text, offered.calls[0].name, h.ran) == ("saving", "save", [])

        h.runner.release("lane", 1, (offered.calls[0].id,))
        await h.until(ear, lambda: bool(ear.of(ToolFinished)))
        await h.quiet()
        assert (h.ran, ear.told[-1].content, ear.ends) == (["save"], {"saved": True}, [])  # type: ignore[union-attr]

        h.runner.proceed("lane", 1, (offered.calls[0].id,))
        assert (await h.ended(ear)).text == "done"

    play(kind, scenario)


def test_a_read_only_tool_need_not_wait(kind: str) -> None:
    """A read runs before its commit, but its result returns only after its own."""

    async def scenario(h: Harness) -> None:
        ear = h.start(Script("done", steps=(ScriptStep("", (LOOK,)),)))
        await h.until(ear, lambda: bool(ear.of(ToolFinished)))
        await h.quiet()
        assert [type(message) for message in ear.told] == [StepOffered, ToolFinished]
        h.runner.proceed("lane", 1, (ear.of(ToolFinished)[0].call_id,))
        assert (await h.ended(ear)).text == "done"

    play(kind, scenario)


def test_parallel_calls_share_one_offer(kind: str) -> None:
    """Calls declared together are one message of the model, and run independently of each other."""

    async def scenario(h: Harness) -> None:
        ear = h.start(Script("done", steps=(ScriptStep("both", (SAVE, MAIL)),)))
        await h.until(ear, lambda: bool(ear.told))
        (offered,) = ear.of(StepOffered)
        save, mail = offered.calls
        h.runner.release("lane", 1, (mail.id,))
        await h.until(ear, lambda: bool(ear.of(ToolFinished)))
        assert h.ran == ["mail"]
        h.obey(ear)
        h.runner.proceed("lane", 1, (mail.id,))
        h.runner.release("lane", 1, (save.id,))
        assert (await h.ended(ear)).text == "done"
        assert h.ran == ["mail", "save"]

    play(kind, scenario)


def test_serial_calls_ride_with_the_result_before_them(kind: str) -> None:
    """In a serial step each result names the call that starts with its commit."""

    async def scenario(h: Harness) -> None:
        ear = h.start(Script("done", steps=(ScriptStep("both", (SAVE, MAIL), serial=True),)))
        await h.until(ear, lambda: bool(ear.told))
        (offered,) = ear.of(StepOffered)
        assert [call.name for call in offered.calls] == ["save"]
        assert [call.name for call in offered.later] == ["mail"]
        h.runner.release("lane", 1, (offered.calls[0].id,))
        await h.until(ear, lambda: bool(ear.of(ToolFinished)))
        await h.quiet()
        (first,) = ear.of(ToolFinished)
        assert (first.next, h.ran) == (offered.later, ["save"])
        h.obey(ear)
        h.runner.release("lane", 1, (offered.later[0].id,))
        h.runner.proceed("lane", 1, (first.call_id,))
        await h.ended(ear)
        assert h.ran == ["save", "mail"]
        assert len(ear.of(StepOffered)) == 1

    play(kind, scenario)


def test_steps_follow_one_another(kind: str) -> None:
    """A step is offered after every call of the one before has been told as finished."""

    async def scenario(h: Harness) -> None:
        ear = h.start(Script("done", steps=(ScriptStep("one", (LOOK, SAVE)), ScriptStep("two", (MAIL,)))))
        h.obey(ear)
        await h.until(ear, lambda: bool(ear.told))
        # The first offer was told before the ear obeyed, at least by the scripted runner.
        for offered in ear.of(StepOffered)[:1]:
            h.runner.release("lane", 1, tuple(call.id for call in offered.calls))
        await h.ended(ear)
        shape = [type(message).__name__ for message in ear.told]
        assert shape == ["StepOffered", "ToolFinished", "ToolFinished", "StepOffered", "ToolFinished", "TurnEnded"]

    play(kind, scenario)


def test_a_failing_tool_is_a_result(kind: str) -> None:
    """A tool's error is told as its result; it reaches the agent only after that is durable."""

    async def scenario(h: Harness) -> None:
        ear = h.start(Script("done", steps=(ScriptStep("", (ScriptCall("look", error="no", effects="read"),)),)))
        await h.until(ear, lambda: bool(ear.of(ToolFinished)))
        await h.quiet()
        (finished,) = ear.of(ToolFinished)
        assert (finished.error, "no" in finished.content, ear.ends) == (True, True, [])
        h.runner.proceed("lane", 1, (finished.call_id,))
        ended = await h.ended(ear)
        assert (ended.reason, ended.detail) == ("failed", "RuntimeError: no")

    play(kind, scenario)


def test_a_cancelled_turn_ends_as_aborted(kind: str) -> None:
    """Cancelling is idempotent, ends a turn that would never end, and tells why."""

    async def scenario(h: Harness) -> None:
        ear = h.start(Script(NEVER, deltas=("x",)))
        await h.until(ear, lambda: bool(ear.told))
        h.runner.cancel("lane", 1, "user")
        h.runner.cancel("lane", 1, "again")
        ended = await h.ended(ear)
        assert (ended.reason, ended.text, ended.detail) == ("aborted", None, "user")

    play(kind, scenario)


def test_cancelling_before_anything_ran_still_ends_the_turn(kind: str) -> None:
    """Between start and the agent's first step there is no gap in which a cancel is lost."""

    async def scenario(h: Harness) -> None:
        ear = h.start(Script(NEVER))
        h.runner.cancel("lane", 1, "user")
        assert (await h.ended(ear)).reason == "aborted"

    play(kind, scenario)


def test_cancelling_wakes_a_call_that_waits(kind: str) -> None:
    """A turn that waits for a commit is cancelled like any other, and its tool never runs."""

    async def scenario(h: Harness) -> None:
        ear = h.start(Script("done", steps=(ScriptStep("", (SAVE,)),)))
        await h.until(ear, lambda: bool(ear.told))
        h.runner.cancel("lane", 1, "user")
        h.runner.release("lane", 1, (ear.of(StepOffered)[0].calls[0].id,))
        assert (await h.ended(ear)).reason == "aborted"
        assert h.ran == []

    play(kind, scenario)


def test_cancellation_belongs_to_a_generation(kind: str) -> None:
    """Cancelling one generation, or one that never was, leaves the lane's next turn alone."""

    async def scenario(h: Harness) -> None:
        old = h.start(Script(NEVER))
        h.runner.cancel("lane", 1, "user")
        new = h.start(Script("hi"), generation=2)
        h.runner.cancel("lane", 1, "user")
        h.runner.cancel("lane", 3, "user")
        assert (await h.ended(new)).text == "hi"
        assert (await h.ended(old)).reason == "aborted"

    play(kind, scenario)


def test_closing_interrupts_what_runs(kind: str) -> None:
    """A turn that the runner leaves behind is interrupted, not aborted: recovery will take it up."""

    async def scenario(h: Harness) -> None:
        ear = h.start(Script(NEVER, deltas=("x",)))
        await h.until(ear, lambda: bool(ear.told))
        await h.runner.close(5)
        assert [ended.reason for ended in ear.ends] == ["interrupted"]

    play(kind, scenario)


def test_a_closed_runner_starts_nothing(kind: str) -> None:
    """A start after close is answered at once, as interrupted."""

    async def scenario(h: Harness) -> None:
        await h.runner.close(5)
        ear = h.start(Script("hi"))
        assert [ended.reason for ended in ear.ends] == ["interrupted"]

    play(kind, scenario)


def test_one_name_runs_once(kind: str) -> None:
    """A second start of the same lane and generation fails; the first goes on."""

    async def scenario(h: Harness) -> None:
        first = h.start(Script(NEVER, deltas=("x",)))
        await h.until(first, lambda: bool(first.told))
        second = h.start(Script(NEVER))
        assert [ended.reason for ended in second.ends] == ["failed"]
        h.runner.cancel("lane", 1, "user")
        assert (await h.ended(first)).reason == "aborted"

    play(kind, scenario)


def test_unknown_names_are_ignored(kind: str) -> None:
    """Late effects for a turn or a call that is not there do nothing."""

    async def scenario(h: Harness) -> None:
        h.runner.release("lane", 9, ("nothing",))
        h.runner.proceed("lane", 9, ("nothing",))
        assert h.runner.evict("lane") == 0
        ear = h.start(Script("hi"))
        h.runner.release("lane", 1, ("nothing",))
        h.runner.proceed("lane", 1, ("nothing",))
        assert (await h.ended(ear)).text == "hi"

    play(kind, scenario)


def test_lanes_run_side_by_side(kind: str) -> None:
    """A turn that never ends holds up no other lane's."""

    async def scenario(h: Harness) -> None:
        stuck = h.start(Script(NEVER), lane="a")
        free = h.start(Script("hi"), lane="b")
        assert (await h.ended(free)).text == "hi"
        assert stuck.ends == []
        h.runner.cancel("a", 1, "user")
        await h.ended(stuck)

    play(kind, scenario)


def test_an_idle_agent_is_released_once(kind: str) -> None:
    """evict() of an idle lane gives back its agent's bytes, once; a lane without one gives 0; the next turn runs."""

    async def scenario(h: Harness) -> None:
        assert h.runner.evict("lane") == 0
        await h.ended(h.start(Script("one")))
        assert h.runner.evict("other") == 0
        assert h.runner.evict("lane") == WARM_BYTES
        assert h.runner.evict("lane") == 0
        assert (await h.ended(h.start(Script("two"), generation=2))).text == "two"
        assert h.runner.evict("lane") == WARM_BYTES

    play(kind, scenario, warm=True)


def test_an_agent_in_use_is_not_released(kind: str) -> None:
    """evict() in mid-turn gives 0 and harms nothing; after close there is nothing to give."""

    async def scenario(h: Harness) -> None:
        ear = h.start(Script("hi", steps=(ScriptStep("", (LOOK,)),)))
        await h.until(ear, lambda: any(isinstance(told, ToolFinished) for told in ear.told))
        assert h.runner.evict("lane") == 0
        h.runner.proceed("lane", 1, tuple(told.call_id for told in ear.told if isinstance(told, ToolFinished)))
        assert (await h.ended(ear)).text == "hi"
        await h.runner.close(5)
        assert h.runner.evict("lane") == 0

    play(kind, scenario, warm=True)
