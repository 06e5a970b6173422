"""LaneQueue: what waits in a lane, to see and to steer; what ``gateway.queue(session_key)`` gives."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from attrs import frozen

from seriatim.errors import InvalidInputError, SeriatimError
from seriatim.queue_edits import (
    CancelMessage,
    CancelOutcome,
    ClearQueue,
    EditMessage,
    ExpireQueue,
    ListQueue,
    MoveMessage,
    QueuedTurn,
)


class Asking(Protocol):
    """What it needs of the runtime."""

    def ask(self, lane: str, question: Any, done: Callable[[Any, SeriatimError | None], object]) -> None:
        """Ask a lane."""
        ...


async def asked(asking: Asking, lane: str, question: Any) -> Any:
    """Ask a lane and wait for its answer. Raises what the rule raises, and StoreUnhealthyError, GatewayClosedError."""
    answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def done(value: Any, error: SeriatimError | None) -> None:
        if answer.done():
            return  # whoever asked has gone
        if error is None:
            answer.set_result(value)
        else:
            answer.set_exception(error)

    asking.ask(lane, question, done)
    return await answer


@frozen
class LaneQueue:
    """The queue of one lane. Each call is an operation of the lane: decided in order with its other mail, durable when
    it returns, and told to the receipts that it concerns.

    Messages are named by their inbox id (``Receipt.message_id``). Calls belong to the gateway's loop. Each may raise
    InvalidInputError, and StoreUnhealthyError or GatewayClosedError, after which nothing has changed.
    """

    _lane: Callable[[], Awaitable[str]]
    _asking: Callable[[], Asking]
    _now_ms: Callable[[], int]

    async def list(self) -> tuple[QueuedTurn, ...]:
        """What waits, next first; what a turn has claimed doesn't wait."""
        told: tuple[QueuedTurn, ...] = await self._ask(ListQueue())
        return told

    async def edit(self, message_id: str, text: str) -> bool:
        """Let a waiting message say ``text``, in its place; False when it doesn't wait."""
        if not isinstance(text, str):
            raise InvalidInputError("text", f"text is needed, not {type(text).__name__}")
        done: bool = await self._ask(EditMessage(_id(message_id), text))
        return done

    async def move(self, message_id: str, position: int) -> bool:
        """Make the turn of a waiting message the ``position``-th, 1 being next; False when it doesn't wait."""
        if type(position) is not int:
            raise InvalidInputError("position", f"a whole number is needed, not {position!r}")
        done: bool = await self._ask(MoveMessage(_id(message_id), position))
        return done

    async def cancel(self, message_id: str) -> CancelOutcome:
        """Drop a waiting message. "running": its turn has begun, only /stop ends it; "gone": it doesn't wait."""
        outcome: CancelOutcome = await self._ask(CancelMessage(_id(message_id)))
        return outcome

    async def clear(self) -> int:
        """Drop every waiting message of people, /queue items included; how many. Wakes stay."""
        count: int = await self._ask(ClearQueue())
        return count

    async def expire(self, older_than_s: float) -> int:
        """Drop people's messages that have waited longer than this; how many."""
        if type(older_than_s) not in (int, float) or not 0 <= older_than_s < math.inf:
            raise InvalidInputError("older_than_s", "zero or more seconds are needed")
        count: int = await self._ask(ExpireQueue(self._now_ms() - round(older_than_s * 1000)))
        return count

    async def _ask(self, question: Any) -> Any:
        return await asked(self._asking(), await self._lane(), question)


def _id(message_id: str) -> str:
    if not isinstance(message_id, str):
        raise InvalidInputError("message_id", f"text is needed, not {type(message_id).__name__}")
    return message_id
