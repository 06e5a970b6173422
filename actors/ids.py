"""Fresh ids. Injected, so that a simulation's ids are its own."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from itertools import count
from typing import Protocol


class NowMs(Protocol):
    """What ids need of a clock."""

    def now_ms(self) -> int:
        """Wall time, milliseconds since 1970, UTC."""
        ...


class Ids:
    """Ids that are new to every process: a random start, then a counter.

    ``token(n)`` gives ``n`` random hex digits; a simulation hands in its own. Any thread.
    """

    def __init__(self, clock: NowMs, token: Callable[[int], str] | None = None) -> None:
        self._clock = clock
        self._token = token or (lambda digits: secrets.token_hex((digits + 1) // 2)[:digits])
        # A C loop's own next: each turn takes four.
        form = self._token(8).replace("%", "%%") + "-%x"
        self.fresh: Callable[[], str] = map(form.__mod__, count(1)).__next__
        """A short id: of a message, a delivery, a commit."""

    def session(self) -> str:
        """A session id, ``YYYYMMDD_HHMMSS_<8hex>`` in UTC (gateway seed §2)."""
        stamp = time.strftime("%Y%m%d_%H%M%S", time.gmtime(self._clock.now_ms() / 1000))
        return f"{stamp}_{self._token(8)}"
