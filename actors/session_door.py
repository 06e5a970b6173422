"""The way from a SessionStore to the lanes of a running gateway. Any thread but the loop's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

from seriatim.actors.runtime import Runtime
from seriatim.errors import GatewayClosedError, SeriatimError

_LOOK_S = 1.0
"""How often a call that waits looks whether the gateway is still there."""


class GatewayDoor:
    """``runtime`` gives the actors, or raises why there are none; ``is_over``: nothing will be answered any more."""

    recovers = True

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        runtime: Callable[[], Runtime],
        is_over: Callable[[], bool],
        accounts: Callable[[str], Sequence[str]],
    ) -> None:
        self._loop = loop
        self._runtime = runtime
        self._is_over = is_over
        self._accounts = accounts

    def ask(self, key: str, question: Any) -> Any:
        """See ``Door.ask``."""
        return self._answer(lambda runtime, done: runtime.ask(key, question, done))

    def move_session(self, session_id: str, key: str, expected: str | None) -> bool:
        """Not yet: a session stays with the lane that has it, and the switch finds no target."""
        return False

    def accounts(self, platform: str) -> Sequence[str]:
        """See ``Door.accounts``."""
        return self._accounts(platform)

    def now_ms(self) -> int:
        """See ``Door.now_ms``."""
        return self._runtime().clock.now_ms()

    def fresh(self) -> str:
        """See ``Door.fresh``."""
        return self._runtime().ids.fresh()

    def _answer(self, send: Callable[[Runtime, Callable[[Any, SeriatimError | None], None]], object]) -> Any:
        """Have ``send`` run on the loop; what its second argument is called with."""
        answer: Future[Any] = Future()

        def done(value: Any, error: SeriatimError | None) -> None:
            if error is None:
                answer.set_result(value)
            else:
                answer.set_exception(error)

        def run() -> None:
            try:
                send(self._runtime(), done)
            except BaseException as error:
                answer.set_exception(error)

        try:
            self._loop.call_soon_threadsafe(run)
        except RuntimeError:
            raise GatewayClosedError("the event loop was closed under the gateway") from None
        while True:
            try:
                return answer.result(_LOOK_S)
            except TimeoutError:
                if self._is_over():
                    raise GatewayClosedError("the gateway stopped before the lane had answered") from None
