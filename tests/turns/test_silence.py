"""Turns that fall silent: when they end, what is kept of them, and that they hold nobody up."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from seriatim import GatewayConfig
from seriatim.actors.running import RunningTurns
from seriatim.batch import Rules
from seriatim.config import AgentConfig, DeliveryConfig
from seriatim.effects import CancelTurn, Deliver, ReturnSlot
from seriatim.mail import TurnBroken
from seriatim.storage.sqlite_reader import SqliteReader
from seriatim.testing.clock import VirtualClock
from seriatim.testing.witness import all_logs
from tests.core.bench import Bench
from tests.gateway.bots import bot, run, until


class Ward:
    """Running turns on a virtual clock, and what their lanes were told."""

    def __init__(self, silence_ms: int = 1_000) -> None:
        self.clock = VirtualClock()
        self.told: list[tuple[str, Any]] = []
        self.turns = RunningTurns(self.clock, silence_ms, lambda lane, mail: self.told.append((lane, mail)))

    @property
    def ended(self) -> list[str]:
        """The lanes that were told."""
        return [lane for lane, _ in self.told]


def test_a_silent_turn_is_ended_once_at_its_time() -> None:
    """A turn without a sign of life is broken off when its time is over, not before and not again."""
    ward = Ward()
    ward.turns.begin("a", 3, 7)
    ward.clock.advance(999)
    assert ward.told == []
    ward.clock.advance(1)
    assert ward.told == [("a", TurnBroken(3, 7, "no sign of life for 1 s", "timeout"))]
    ward.clock.advance(10_000)
    assert len(ward.told) == 1


def test_every_sign_of_life_begins_the_silence_anew() -> None:
    """Text, a step, its go-ahead and a bare sign each put the end off by the whole time."""
    ward = Ward()
    ward.turns.begin("a", 1, 1)
    ward.clock.advance(900)
    ward.turns.says("a", 1, "text")
    ward.clock.advance(900)
    ward.turns.says("a", 1, "")
    ward.clock.advance(900)
    ward.turns.tells("a", 1)
    ward.turns.goes_on("a", 1)
    ward.clock.advance(999)
    assert ward.told == []
    ward.clock.advance(1)
    assert ward.ended == ["a"]


def test_another_generation_gives_no_sign() -> None:
    """What a turn that is over still says keeps the one after it from nothing."""
    ward = Ward()
    ward.turns.begin("a", 2, 2)
    ward.clock.advance(900)
    ward.turns.says("a", 1, "old")
    ward.clock.advance(100)
    assert ward.ended == ["a"]
    assert ward.turns.shown("a", 2) == ""


def test_waiting_for_a_commit_is_not_silence() -> None:
    """While the store keeps the agent waiting, its time stands still; from the go-ahead on it counts anew."""
    ward = Ward()
    ward.turns.begin("a", 1, 1)
    ward.turns.tells("a", 1)
    ward.clock.advance(60_000)
    assert ward.told == []
    ward.turns.goes_on("a", 1)
    ward.clock.advance(999)
    assert ward.told == []
    ward.clock.advance(1_001)
    assert ward.ended == ["a"]


def test_each_turn_has_a_time_of_its_own() -> None:
    """One timer serves turns that begin, speak and end at different times."""
    ward = Ward()
    ward.turns.begin("a", 1, 1)
    ward.clock.advance(400)
    ward.turns.begin("b", 1, 1)
    ward.turns.begin("c", 1, 1)
    ward.turns.over("c")
    ward.clock.advance(600)
    assert ward.ended == ["a"]
    ward.clock.advance(400)
    assert ward.ended == ["a", "b"]
    assert ward.clock.next_due_ms() is None


def test_without_a_limit_nothing_is_timed() -> None:
    """``gateway_timeout = 0``: no timer, and no end."""
    ward = Ward(0)
    ward.turns.begin("a", 1, 1)
    assert ward.clock.next_due_ms() is None


def test_what_was_shown_is_forgotten_once_a_message_says_it() -> None:
    """Text that a step's message repeats isn't kept twice; text after it is kept."""
    ward = Ward()
    ward.turns.begin("a", 1, 1)
    ward.turns.says("a", 1, "let me ")
    ward.turns.tells("a", 1, text=True)
    ward.turns.says("a", 1, "so ")
    ward.turns.says("a", 1, "far")
    ward.turns.tells("a", 1)
    assert ward.turns.shown("a", 1) == "so far"


def test_the_rules_end_a_silent_turn_for_good() -> None:
    """One commit: the turn's end, its typed outcome, the word to its user, the slot; its late end touches nothing."""
    bench = Bench()
    said = bench.said("hi")
    running = bench.fold().running
    assert running is not None
    bench.tell(TurnBroken(running.turn, running.generation, "no sign of life", "timeout"))
    assert bench.session_events()[-1].data["reason"] == {"kind": "timeout", "detail": "no sign of life"}
    assert bench.outcome(said) == "answered"
    assert bench.lane_events("inbox/answered")[0].data["end"] == "timeout"
    assert [debt.parts for debt in bench.all(Deliver)] == [
        ("This message could not be answered: the agent took too long.",)
    ]
    assert bench.all(CancelTurn)
    assert bench.all(ReturnSlot)
    bench.tell(bench.end("too late", generation=running.generation))
    assert bench.lane_events("turn/late")[0].data["reason"] == "completed"
    assert bench.fold() == bench.gate.durable


@pytest.mark.parametrize("how", ["failed", "timeout", "stop", "new"])
@pytest.mark.parametrize("policy", ["withhold", "send"])
def test_what_a_broken_turn_had_shown_is_kept(how: str, policy: Any) -> None:
    """However an answer breaks off, its beginning stands in the closed turn, marked; the person gets it by policy."""
    bench = Bench(Rules(partial=policy))
    bench.now.streamed = lambda lane, generation: "It began" if generation == 1 else ""
    bench.said("hi")
    session = bench.fold().bound
    bench.forget()
    if how in ("stop", "new"):
        bench.said("/" + how)
    elif how == "failed":
        bench.tell(bench.end(None, "failed"))
    else:
        bench.tell(TurnBroken(1, 1, "silent", "timeout"))
    *_, message, step_end, turn_end = bench.session_events(session)
    end = {"stop": "aborted", "new": "aborted"}.get(how, how)
    assert message.data == {"turn": 1, "step": 1, "text": "It began", "partial": end}
    assert (step_end.type, turn_end.data["reason"]["kind"]) == ("step/end", end)
    told = [text for debt in bench.all(Deliver) for text in debt.parts]
    assert any("It began" in text for text in told) is (policy == "send")
    if how == "new":
        return
    bench.said("next")
    assert [event.data["text"] for event in bench.session_events() if event.type == "user/message"][-1] == "next"


def test_a_completed_turn_keeps_its_answer_only() -> None:
    """What was streamed of an answer that came whole is not kept beside it."""
    bench = Bench()
    bench.now.streamed = lambda lane, generation: "It began"
    bench.said("hi")
    bench.answer("It began and ended")
    texts = [event.data["text"] for event in bench.session_events() if event.type == "assistant/message"]
    assert texts == ["It began and ended"]


def test_a_turn_that_ignores_everything_frees_its_lane(tmp_path: Path) -> None:
    """Its lane goes on at the timeout; what it returns at last is recorded as late, and neither sent nor believed."""

    async def scenario() -> None:
        clock = VirtualClock()
        begun, released = threading.Event(), threading.Event()

        def agent(turn: Any) -> str:
            if turn.text != "first":
                return "second: " + " | ".join(f"{m.role} {m.text}" for m in turn.history)
            turn.emit("so far")
            begun.set()
            released.wait()
            return "too late"

        config = GatewayConfig(agent=AgentConfig(gateway_timeout=60), delivery=DeliveryConfig(partial="send"))
        async with bot(agent, tmp_path, config=config, clock=clock) as world:
            world.say("first")
            await until(begun.is_set)
            runtime = world.gateway._runtime
            assert runtime is not None
            await until(lambda: runtime.running.shown(next(iter(runtime.directory.live)), 1))
            world.say("second")
            clock.advance(60_000)
            texts = await world.heard(2)
            assert texts == [
                "so far\n\nThis message could not be answered: the agent took too long.",
                "second: user first | assistant so far",
            ]
            released.set()
            clock.advance(60_000)  # nothing more comes of it
            await until(lambda: not world.gateway._runner.late)  # type: ignore[union-attr]
            clock.advance(1_000)
            await world.at_rest()
            assert world.platform.texts() == texts
        reader = SqliteReader(tmp_path / "state.db")
        events = [event for log in all_logs(reader) for event in reader.read(log)]
        reader.close()
        assert [event.data["reason"] for event in events if event.type == "turn/late"] == ["aborted"]
        ends = [event.data["reason"]["kind"] for event in events if event.type == "turn/end"]
        assert ends == ["timeout", "completed"]

    run(scenario())
