"""A medium, a service over it, live sessions over that, and a clock that is moved by hand."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from seriatim.events import Data, Event
from seriatim.limits import WRITE_WINDOW_MS
from seriatim.storage.event_log.live import LiveSessions
from seriatim.storage.event_log.persistence import SessionPersistence
from seriatim.storage.event_log.session import Session
from seriatim.storage.event_log.values import SessionEvent
from seriatim.testing.clock import VirtualClock
from seriatim.testing.log_gates import Gated

from .worlds import MEDIA, JsonlWorld, MemoryWorld, SqliteWorld

ID = "20260101_000000_0badcafe"
World = MemoryWorld | SqliteWorld | JsonlWorld


class Stage:
    """One medium. ``errors``: what background writes failed with."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.clock = VirtualClock()
        self.errors: list[tuple[str, Exception]] = []

    @asynccontextmanager
    async def service(self) -> AsyncIterator[tuple[SessionPersistence, Gated]]:
        """A service over the medium, with gates before it."""
        gated = Gated(self.world.open())
        async with SessionPersistence(gated) as service:
            yield service, gated

    def sessions(self) -> LiveSessions:
        """Live sessions in memory."""
        return LiveSessions(self.clock, on_error=lambda name, error: self.errors.append((name, error)))

    @asynccontextmanager
    async def live(self) -> AsyncIterator[tuple[LiveSessions, SessionPersistence, Gated]]:
        """Live sessions over a service; both closed in their order."""
        async with self.service() as (service, gated), self.sessions() as live:
            await live.attach(service)
            yield live, service, gated

    async def passes(self, live: LiveSessions, ms: float = WRITE_WINDOW_MS) -> None:
        """Time passes; the writes that it starts come to their end."""
        self.clock.advance(ms)
        await asyncio.sleep(0)
        while writing := [b._writer._writing for b in live._live.values() if b._writer and b._writer._writing]:
            await asyncio.wait(writing)

    async def stored(self, session_id: str = ID) -> list[SessionEvent]:
        """What a stranger finds on the medium afterwards."""
        async with self.service() as (service, _):
            return list((await service.read_from(session_id, 0)).events)


def told(
    story: Callable[[Stage], Coroutine[Any, Any, None]],
) -> Callable[[Stage], None]:
    """A test told as a coroutine; it is given a ``stage``."""

    @functools.wraps(story)
    def test(stage: Stage) -> None:
        asyncio.run(asyncio.wait_for(story(stage), 60))

    return test


@pytest.fixture(params=MEDIA, ids=lambda medium: medium.name)
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Stage:
    """Every medium in turn."""
    return Stage(request.param.make(tmp_path))


def say_turn(session: Session, number: int, text: str = "hi", *, end: bool = True) -> None:
    """Append a plain turn; without its end: up to the open step."""
    session.append("turn/start", {"turn": number, "claims": []})
    session.append("user/message", {"turn": number, "id": f"m{number}", "text": text, "at": 0})
    session.append("step/start", {"turn": number, "step": 1})
    if end:
        end_turn(session, number)


def end_turn(session: Session, number: int) -> None:
    """Append the rest of it."""
    session.append("assistant/message", {"turn": number, "step": 1, "text": "hello", "calls": []})
    session.append("step/end", {"turn": number, "step": 1})
    session.append("turn/end", {"turn": number, "reason": {"kind": "completed"}})


def log_of(*said: tuple[str, Data]) -> list[Event]:
    """Events of these types and data, numbered from 0."""
    return [Event(kind, seq, 1000 + seq, data) for seq, (kind, data) in enumerate(said)]


def kinds(events: Any) -> list[str]:
    """Their types."""
    return [event.type for event in events]


TURN = (
    ("turn/start", {"turn": 1, "claims": []}),
    ("user/message", {"turn": 1, "id": "m1", "text": "hi", "at": 0}),
    ("step/start", {"turn": 1, "step": 1}),
    ("assistant/message", {"turn": 1, "step": 1, "text": "hello", "calls": []}),
    ("step/end", {"turn": 1, "step": 1}),
    ("turn/end", {"turn": 1, "reason": {"kind": "completed"}}),
)
