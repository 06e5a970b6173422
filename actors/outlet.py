"""The one way out of a running turn.

It keeps the promise that a turn ends exactly once and says nothing afterwards, whichever threads its agent and
its tools use.
"""

from __future__ import annotations

from _thread import RLock
from collections.abc import Callable
from typing import Final

from msgspec import Struct, field

from seriatim.turn import Told, TurnEnded

Tell = Callable[[Told], None]
Report = Callable[[str, BaseException], None]
"""Takes where something failed ("agent", "commit_memory", …) and the error; never raises."""


ENDED: Final = "the turn has ended"
"""Why what an agent begins after its end is refused."""


class Outlet(Struct, eq=False):
    """Hands a turn's messages to ``tell``: nothing after the end, and exactly one end. Any thread."""

    _tell: Tell
    _report: Report
    ended: bool = False
    _muted: bool = False
    # Re-entrant: a tell may answer at once (release, cancel), and that may say more. Each turn makes one, and what
    # threading has is a function around this.
    lock: RLock = field(default_factory=RLock)

    def say(self, message: Told) -> None:
        """Pass a message on; dropped after the turn was cancelled or has ended."""
        with self.lock:
            if not (self._muted or self.ended):
                self._pass(message)

    def mute(self) -> None:
        """From now on only the end passes: the lane has moved on."""
        with self.lock:
            self._muted = True

    def end(self, ended: TurnEnded) -> bool:
        """Pass the end on unless there was one; says whether this was it."""
        lock = self.lock
        lock.acquire()  # each turn ends here, and a with would cost it twice as much
        try:
            if self.ended:
                return False
            self.ended = True
            self._pass(ended)
            return True
        finally:
            lock.release()

    def _pass(self, message: Told) -> None:
        try:
            self._tell(message)
        except Exception as exc:  # a dead lane must not break the agent's thread
            self._report("tell", exc)
