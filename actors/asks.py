"""Asks: who waits for the answer to a question that a lane was asked. Loop thread only.

Outside all actors, like the receipts, so that a lane's restart loses none.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from seriatim.effects import Answered
from seriatim.errors import GatewayClosedError, SeriatimError

_log = logging.getLogger("seriatim.asks")

Done = Callable[[Any, SeriatimError | None], object]
"""Called once, with the answer, or with why there is none."""


class Asks:
    """The table: token to whoever waits."""

    def __init__(self) -> None:
        self._waiting: dict[str, Done] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def open(self, token: str, done: Done) -> None:
        """Begin to wait."""
        self._waiting[token] = done

    def answered(self, effect: Answered) -> None:
        """The lane has answered."""
        done = self._waiting.pop(effect.token, None)
        if done is not None:
            _call(done, effect.value, effect.error)

    def fail(self, token: str, error: SeriatimError) -> None:
        """Nobody will answer."""
        self.answered(Answered(token, None, error))

    def close(self) -> None:
        """The gateway stops: release everybody."""
        waiting, self._waiting = self._waiting, {}
        for done in waiting.values():
            _call(done, None, GatewayClosedError("the gateway stopped before the lane had answered"))


def _call(done: Done, value: Any, error: SeriatimError | None) -> None:
    try:
        done(value, error)
    except Exception:
        _log.exception("whoever waited for an answer failed")
