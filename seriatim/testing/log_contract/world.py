"""What the contract runs on, and the values that its cases are told in."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, Concatenate, Literal, ParamSpec, Protocol, TypeVar, cast

import pytest

from seriatim.storage.event_log.backend import LogBackend
from seriatim.storage.event_log.header import SessionHeader
from seriatim.storage.event_log.persistence import SessionPersistence
from seriatim.storage.event_log.values import SessionEvent
from seriatim.testing.log_gates import Gated

Capability = Literal["raw", "torn", "version", "damage"]
"""What a medium may be able to do besides keeping logs: give a session's own artifact, hold a torn batch, have its
stored version changed behind the service's back, have a stored event damaged."""

ID = "20260101_000000_0badcafe"
P = ParamSpec("P")
S = TypeVar("S")


class LogWorld(Protocol):
    """One medium. Backends opened on it are closed by the service that gets them."""

    capabilities: frozenset[Capability]

    def open(self) -> LogBackend:
        """A backend on the medium; one that was opened before is closed, or is never used again."""
        ...

    def elsewhere(self) -> LogBackend:
        """A backend on another, empty medium of the same kind."""
        ...

    def tear(self, session_id: str) -> None:
        """Leave a batch that was torn while it was written at the end of a closed log ("torn")."""
        ...

    def set_version(self, session_id: str, version: Any) -> None:
        """Change the stored version of a closed log ("version")."""
        ...

    def damage(self, session_id: str) -> None:
        """Change a byte of a stored event of a closed log, not in its last batch ("damage")."""
        ...


def told(
    story: Callable[Concatenate[S, P], Coroutine[Any, Any, None]],
) -> Callable[Concatenate[S, P], None]:
    """A test told as a coroutine."""

    @functools.wraps(story)
    def test(self: S, *args: P.args, **kwargs: P.kwargs) -> None:
        asyncio.run(asyncio.wait_for(story(self, *args, **kwargs), 60))

    return cast("Callable[Concatenate[S, P], None]", test)


def needs(world: LogWorld, capability: Capability) -> None:
    """Skip the test where the medium can't do what it is about."""
    if capability not in world.capabilities:
        pytest.skip(f"this medium lacks the capability {capability!r}")


def header(session_id: str = ID, **fields: Any) -> SessionHeader:
    """A header of this id."""
    return SessionHeader(id=session_id, created_at=fields.pop("created_at", 1_767_225_600_000), **fields)


def event(kind: str, seq: int, **data: Any) -> SessionEvent:
    """An event whose time tells its number."""
    return SessionEvent(kind, seq, 1000 + seq, data)


def turn(first: int, number: int = 1, text: str = "hi") -> list[SessionEvent]:
    """A whole plain turn: six events."""
    return [*opened(first, number, text), *ended(first + 3, number)]


def opened(first: int, number: int = 1, text: str = "hi") -> list[SessionEvent]:
    """A turn that has begun a step: three events."""
    return [
        event("turn/start", first, turn=number, claims=[]),
        event("user/message", first + 1, turn=number, text=text),
        event("step/start", first + 2, turn=number, step=1),
    ]


def ended(first: int, number: int = 1) -> list[SessionEvent]:
    """The rest of it: three events."""
    return [
        event("assistant/message", first, turn=number, step=1, text="hello", calls=[]),
        event("step/end", first + 1, turn=number, step=1),
        event("turn/end", first + 2, turn=number, reason={"kind": "completed"}),
    ]


def kinds(events: tuple[SessionEvent, ...]) -> list[str]:
    """Their types."""
    return [event.type for event in events]


async def stored(service: SessionPersistence, events: list[SessionEvent], session_id: str = ID, **fields: Any) -> None:
    """Create a session and append these events."""
    await service.create(header(session_id, **fields))
    await service.append(session_id, events)


@asynccontextmanager
async def next_life(world: LogWorld, events: list[SessionEvent]) -> AsyncIterator[tuple[SessionPersistence, Gated]]:
    """These events are stored in one life; in the next one nothing of it has been read, and its backend has gates."""
    async with SessionPersistence(world.open()) as service:
        await stored(service, events)
    gated = Gated(world.open())
    async with SessionPersistence(gated) as service:
        yield service, gated
