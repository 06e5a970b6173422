"""The pure core's cost: gate and rules of a plain turn, without threads, actors or disk."""

from __future__ import annotations

import itertools
import statistics
import time
from typing import Any

from benchmarks.load import REPLY, TEXT
from seriatim.batch import Now, Rules
from seriatim.commits import Durable
from seriatim.effects import Deliver, RunTurn
from seriatim.gate import Gate, Out
from seriatim.lane import LaneState
from seriatim.mail import Inbound, PartSettled
from seriatim.model import MessageEvent, Platform, SessionSource, Target
from seriatim.outbox import Channel
from seriatim.turn import TurnEnded

CHANNEL = Channel(up=True)
SOURCE = SessionSource(platform=Platform("bench"), chat_id="chat1", user_id="chat1", user_name="Alice")


def core_us_per_plain_turn(turns: int, rounds: int) -> float:
    """Microseconds of this thread's CPU time per turn: the median of so many rounds.

    A turn: a message is offered, its commit settles, the turn's end is offered, its commit settles, the settled part
    comes and rides with the next commit.
    """
    return statistics.median(_round(turns) for _ in range(rounds))


def _round(turns: int) -> float:
    counter = itertools.count()

    def fresh() -> str:
        return f"0123abcd-{next(counter):x}"

    gate = Gate(1, LaneState("v1:bench:dm::bot:chat1::"), Rules(), fresh)
    now = Now(1_767_225_600_000, fresh, lambda: "20260101_000000_0123abcd", lambda: True, _channel)
    mail = [
        Inbound(f"m{n}", f"inbound:{n}", MessageEvent(TEXT, SOURCE, "bot", f"{n:09}"), len(TEXT)) for n in range(turns)
    ]
    begun = time.thread_time()
    for message in mail:
        run = _only(_through(gate, message, now), RunTurn)
        ended = TurnEnded(run.number, run.generation, "completed", REPLY)
        owed = _only(_through(gate, ended, now), Deliver)
        gate.offer(PartSettled(owed.delivery, 0, "out"), now)
    seconds = time.thread_time() - begun
    assert gate.durable.answered == turns
    return seconds / turns * 1e6


def _through(gate: Gate, message: Any, now: Now) -> Out:
    """Offer, and settle the commit that comes of it."""
    now.time += 1
    commit = gate.offer(message, now).commit
    assert commit is not None
    return gate.settled(Durable(commit.id), now)


def _only(out: Out, kind: type[Any]) -> Any:
    (effect,) = (effect for _, effect in out.effects if type(effect) is kind)
    return effect


def _channel(target: Target) -> Channel:
    del target
    return CHANNEL
