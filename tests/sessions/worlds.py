"""Homes in the states in which a SessionStore may find them."""

from __future__ import annotations

import itertools
from pathlib import Path

from seriatim.actors.clockwork import WallClock
from seriatim.batch import Now, Rules
from seriatim.config import GatewayConfig
from seriatim.gate import Gate
from seriatim.keys import SessionKey
from seriatim.lane import LaneState
from seriatim.mail import Inbound
from seriatim.model import MessageEvent, SessionSource
from seriatim.outbox import Channel
from seriatim.storage.home import Home
from seriatim.storage.sqlite import SqliteStore

SOURCE = SessionSource("telegram", "1", user_id="7")


def leave_a_turn_open(folder: Path, source: SessionSource = SOURCE) -> str:
    """A home whose process died in the middle of a turn; the session's id."""
    home = Home.own(folder)
    store = SqliteStore(home.database)
    numbers = itertools.count()
    key = SessionKey.from_source(source, GatewayConfig()).canonical
    gate = Gate(1, LaneState(key), Rules(), lambda: f"commit-{next(numbers)}")
    now = Now(
        WallClock().now_ms(),
        lambda: f"fresh-{next(numbers)}",
        lambda: f"20260101_000000_{next(numbers):08x}",
        lambda: True,
        lambda to: Channel(),
    )
    out = gate.offer(Inbound("i", "", MessageEvent("hello", source), 5), now)
    assert out.commit is not None
    gate.settled(store.commit([out.commit])[0], now)
    assert gate.durable.running is not None
    store.close()
    home.close(clean=False)
    assert gate.durable.bound is not None
    return gate.durable.bound
