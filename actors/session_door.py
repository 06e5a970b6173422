"""The way from a SessionStore to the lanes of a running gateway. Any thread but the loop's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

from seriatim.actors.merging import MoveAnswer, MoveSession
from seriatim.actors.runtime import Runtime
from seriatim.errors import GatewayClosedError, LaneBusyError, SeriatimError, StoreUnhealthyError

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
        """See ``Door.move_session``: one commit for both lanes, made by the supervisor while both are fenced."""

        def send(runtime: Runtime, done: Callable[[Any, SeriatimError | None], None]) -> None:
            def moved(answer: MoveAnswer) -> None:
                done(answer, None)

            runtime.move_session(MoveSession(session_id, key, "switch", expected, done=moved))

        answer: MoveAnswer = self._answer(send)
        if answer.outcome == "busy":
            raise LaneBusyError("switch", "a turn runs in one of the lanes; switch again when it has ended")
        if answer.outcome == "unavailable":
            raise StoreUnhealthyError("the session could not be moved; try again later")
        return answer.outcome in ("moved", "same")

    def present(self, key: str) -> str:
        """See ``Door.present``."""
        runtime = self._runtime()
        # A lane that is still to go into another serves until it has.
        return runtime.aliases.present(key) if runtime.aliases and key not in runtime.directory.live else key

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
