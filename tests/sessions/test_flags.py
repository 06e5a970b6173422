"""The flags' state machine against a small model: people, agents, hosts, restarts and crashes in any order."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Final

import pytest
from attrs import define

from seriatim.effects import Answered, RunTurn
from seriatim.facts import entry
from seriatim.limits import INTERRUPTIONS_MAX
from seriatim.mail import Ask, DrainTimedOut
from seriatim.model import SessionSource
from seriatim.store_calls import ClearResume, GetOrCreate, MarkResume, Reset, Suspend
from tests.core.bench import Bench

STEPS: Final = 25
SOURCE: Final = SessionSource("sim", "chat", user_id="u")


@define
class Flags:
    """What the seed's page says, in so many variables. ``sessions``: how many there were."""

    sessions: int = 0
    running: bool = False
    suspended: bool = False
    resume: str | None = None
    boundary: str = "none"
    activity: bool = False
    ended: int = 0
    interruptions: int = 0
    told: str | None = None
    """What the last turn was told."""

    def bind(self, boundary: str = "none") -> None:
        """Another session; no flag of the one before stays."""
        self.activity = self.ended > 0
        self.sessions += 1
        self.suspended, self.resume, self.boundary, self.ended = False, None, boundary, 0

    def start(self) -> None:
        """A turn takes what is told once."""
        self.told, self.boundary, self.activity, self.running = self.boundary, "none", False, True

    def end(self) -> None:
        """The turn is over, however."""
        self.running, self.interruptions = False, 0
        self.ended += 1


class World:
    """A lane and its model."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.bench = Bench()
        self.flags = Flags()

    def step(self) -> None:
        """One thing happens, and both say the same afterwards."""
        self.bench.now.time += 10
        self.bench.forget()
        self.flags.told = None
        self.rng.choice(ACTIONS)(self)
        self.check()

    def ask(self, question: Any) -> Any:
        """What the lane answers."""
        self.bench.tell(Ask(self.bench.fresh("t"), question))
        return self.bench.all(Answered)[-1].value

    def check(self) -> None:
        """Entry and model are one; so are live and replay; a turn that began was told the model's boundary."""
        flags, state = self.flags, self.bench.gate.durable
        assert self.bench.fold() == state
        found = entry(state)
        assert (found is not None) is (flags.sessions > 0)
        if found is None:
            return
        told = (found.suspended, found.resume_reason, found.is_fresh_reset, found.was_auto_reset)
        assert told == (flags.suspended, flags.resume, flags.boundary == "fresh", flags.boundary == "suspended")
        assert found.reset_had_activity is (flags.activity and flags.boundary != "none")
        assert found.auto_reset_reason == ("suspended" if found.was_auto_reset else None)
        assert found.resume_pending is (found.last_resume_marked_at is not None)
        assert (state.running is not None) is flags.running
        assert len(self.bench.lane_events("route/bound")) == flags.sessions
        assert [run.boundary for run in self.bench.all(RunTurn)] == ([] if flags.told is None else [flags.told])


def say(w: World) -> None:
    """A person writes to an idle lane."""
    if w.flags.running:
        return
    if not w.flags.sessions:
        w.flags.bind()
    if w.flags.suspended:
        w.flags.bind("suspended")
    w.flags.start()
    w.bench.said("hello")


def complete(w: World) -> None:
    """The agent answers."""
    if w.flags.running:
        w.bench.answer()
        w.flags.end()
        w.flags.resume = None


def fail(w: World) -> None:
    """The agent fails: no resuming is done with that."""
    if w.flags.running:
        w.bench.tell(w.bench.end(None, "failed"))
        w.flags.end()


def new(w: World) -> None:
    """A person begins anew."""
    w.bench.said("/new")
    if w.flags.running:
        w.flags.end()
    w.flags.bind("fresh")


def stop(w: World) -> None:
    """A person stops what runs."""
    w.bench.said("/stop")
    if w.flags.running:
        w.flags.end()
        w.flags.suspended = True
    w.flags.resume = None


def drain(w: World) -> None:
    """The gateway stops while the turn runs on."""
    if w.flags.running:
        w.bench.tell(DrainTimedOut("restart_timeout"))
        w.flags.resume = "restart_timeout"
        crash(w)


def crash(w: World) -> None:
    """The process dies and starts again: an open turn goes on, or is given up at the third time."""
    marked_since = w.bench.gate.durable.resume_marked_at
    running = w.bench.gate.durable.running
    w.bench.reopen()
    if running is None:
        return
    w.flags.ended += 1
    w.flags.interruptions += 1
    if w.flags.interruptions >= INTERRUPTIONS_MAX:
        w.flags.running, w.flags.suspended, w.flags.interruptions = False, True, 0
        return
    if w.flags.resume is None or marked_since < running.since:
        w.flags.resume = "restart_interrupted"
    w.flags.start()


def host_suspends(w: World) -> None:
    """suspend_session."""
    assert w.ask(Suspend()) is (w.flags.sessions > 0)
    w.flags.suspended = w.flags.sessions > 0


def host_marks(w: World) -> None:
    """mark_resume_pending, never over a suspension."""
    goes = w.flags.sessions > 0 and not w.flags.suspended
    assert w.ask(MarkResume("shutdown_timeout")) is goes
    if goes:
        w.flags.resume = "shutdown_timeout"


def host_clears(w: World) -> None:
    """clear_resume_pending."""
    assert w.ask(ClearResume()) is (w.flags.resume is not None)
    w.flags.resume = None


def host_resets(w: World) -> None:
    """reset_session."""
    if w.flags.sessions:
        if w.flags.running:
            w.flags.end()
        w.flags.bind("fresh")
        assert w.ask(Reset()) is not None
    else:
        assert w.ask(Reset()) is None


def host_looks(w: World) -> None:
    """get_or_create_session: suspended first, then the rest."""
    if not w.flags.sessions:
        w.flags.bind()
    elif w.flags.suspended and not w.flags.running:
        w.flags.bind("suspended")
    assert w.ask(GetOrCreate(SOURCE)) is not None


ACTIONS: Final[list[Callable[[World], None]]] = [
    say, say, say, complete, complete, fail, new, stop, drain, crash, crash,
    host_suspends, host_marks, host_clears, host_resets, host_looks,
]  # fmt: skip


@pytest.mark.parametrize("block", range(10))
def test_flags_are_what_the_model_says(block: int) -> None:
    """At every step of random lives, replay included."""
    for seed in range(block * 40, block * 40 + 40):
        world = World(seed)
        try:
            for _ in range(STEPS):
                world.step()
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
