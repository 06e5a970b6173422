"""Replay equals live, for random histories through the gate."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from seriatim.batch import Rules
from seriatim.effects import Deliver
from seriatim.events import lane_log
from seriatim.lane import hot
from seriatim.mail import AttemptWanted, DrainTimedOut, Inbound, PartAbandoned, PartFailed, PartSettled, SlotGranted
from seriatim.outbox import Channel
from seriatim.turn import StepOffered, ToolCall, ToolFinished

from .bench import Bench

TEXTS = st.sampled_from(
    [
        "a",
        "b",
        "/queue c",
        "/stop",
        "/new",
        "/status",
        "/queue",
        "/title t",
        "/undo",
        "/redo",
        "/retry",
        "/what",
        "\ud800",
    ]
)
KINDS = st.sampled_from([AttemptWanted, PartSettled, PartFailed, PartAbandoned])
STEP = st.one_of(
    st.tuples(st.just("say"), TEXTS, st.booleans()),
    st.tuples(st.just("again"), st.integers(0, 5)),
    st.tuples(st.just("wake")),
    st.tuples(st.just("end"), st.sampled_from(["reply", "", None, "word " * 50]), st.sampled_from([0, 0, 0, 1])),
    st.tuples(st.just("fail"), st.sampled_from(["failed", "timeout", "aborted"])),
    st.tuples(st.just("step"), st.integers(1, 2)),
    st.tuples(st.just("tool")),
    st.tuples(
        st.just("part"), st.sampled_from([AttemptWanted, PartSettled, PartFailed, PartAbandoned]), st.integers(0, 2)
    ),
    st.tuples(st.just("slot")),
    st.tuples(st.just("drained")),
    st.tuples(st.just("settle"), st.integers(0, 9)),
    st.tuples(st.just("settle"), st.just(0)),
    st.tuples(st.just("tick"), st.sampled_from([1, 60, 250, 9_000])),
    st.tuples(st.just("crash"), st.booleans()),
)
RULES = st.builds(
    Rules,
    collapse=st.sampled_from(["merge", "replace"]),
    separate_attempt=st.booleans(),
    stop_suspends=st.booleans(),
    freshness_ms=st.sampled_from([100, 3_600_000]),
)
CHANNELS = st.sampled_from([Channel(up=True), Channel(), Channel(up=True, idempotent=True), Channel(True, False, 120)])


class History:
    """A random history, checked after each step."""

    def __init__(self, rules: Rules, free: int, channel: Channel) -> None:
        self.bench = Bench(rules, free=free, channel=channel)

    def check(self) -> None:
        """Law 1 always; replay equals live, boot index included, whenever nothing is in flight."""
        bench = self.bench
        state = bench.gate.durable
        assert state.accepted == state.answered + state.merged + state.dropped + len(state.waiting)
        if bench.gate._in_flight is None and not bench.gate.over:
            told = bench.fold()
            assert state == told
            row = bench.disk.hot.get(lane_log(bench.key))
            assert row is None or row == hot(told)

    def do(self, step: tuple[Any, ...]) -> None:
        """One step."""
        getattr(self, "_" + step[0])(*step[1:])

    def _say(self, text: str, role: bool) -> None:
        self.bench.say(text, role_authorized=role)

    def _again(self, n: int) -> None:
        self.bench.say("again", key=f"shared {n}")

    def _wake(self) -> None:
        message = self.bench.message("wake", key="")
        self.bench.offer(message)

    def _end(self, text: str | None, generation: int) -> None:
        if self.bench.gate.durable.running is not None or generation:
            self.bench.offer(self.bench.end(text, generation=generation))

    def _fail(self, reason: Any) -> None:
        if self.bench.gate.durable.running is not None:
            self.bench.offer(self.bench.end("x", reason))

    def _step(self, calls: int) -> None:
        running = self.bench.gate.durable.running
        if running is not None:
            asked = tuple(ToolCall(self.bench.fresh("c"), "t", {}) for _ in range(calls))
            self.bench.offer(StepOffered(running.turn, running.generation, "", asked))

    def _tool(self) -> None:
        state = self.bench.gate.durable
        if state.running is not None and state.session is not None and state.session.open is not None:
            for call in list(state.session.open.calls)[:1]:
                self.bench.offer(ToolFinished(state.running.turn, state.running.generation, call, "ok"))

    def _part(self, kind: Any, part: int) -> None:
        for deliver in self.bench.all(Deliver)[-2:]:
            if part < len(deliver.parts):
                more = () if kind is AttemptWanted else (None,) if kind is PartSettled else ("why",)
                self.bench.offer(kind(deliver.delivery, part, *more))

    def _slot(self) -> None:
        self.bench.offer(SlotGranted())

    def _drained(self) -> None:
        self.bench.offer(DrainTimedOut("restart_timeout"))

    def _settle(self, fate: int) -> None:
        bench = self.bench
        if bench.offered is None:
            return
        known = bench.offered.id in bench.disk.ids or not bench.disk.keys.keys().isdisjoint(bench.offered.unique)
        if fate == 1 and not known:
            bench.refuse()
        elif fate in (2, 3):
            bench.doubt(written=fate == 2)
        else:
            bench.settle()

    def _tick(self, later: int) -> None:
        self.bench.tick(later)

    def _crash(self, process: bool) -> None:
        bench = self.bench
        if process:
            bench.reopen()
        else:
            left = bench.gate.leftover()
            bench.start()
            known = {event.data["id"] for event in bench.lane_events("inbox/accepted")}
            for mail in left:
                # Without a key only the log can tell, as the supervisor does.
                if not (isinstance(mail, Inbound) and not mail.key and mail.id in known):
                    bench.offer(mail)


@settings(max_examples=200)
@given(RULES, st.integers(0, 3), CHANNELS, st.lists(STEP, max_size=50))
def test_replay_equals_live(rules: Rules, free: int, channel: Channel, steps: list[tuple[Any, ...]]) -> None:
    """Whatever happens, what the gate holds is what its logs tell, and law 1 holds at every instant."""
    history = History(rules, free, channel)
    for step in steps:
        history.do(step)
        history.check()
    for _ in range(50):
        history.bench.drain()
        if history.bench.gate.quiescent():
            break
        history.bench.tick(10_000)
    assert history.bench.gate.quiescent()
    history.check()
