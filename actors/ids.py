"""Fresh ids. Injected, so that a simulation's ids are its own."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain, count
from typing import Final, Protocol


class NowMs(Protocol):
    """What ids need of a clock."""

    def now_ms(self) -> int:
        """Wall time, milliseconds since 1970, UTC."""
        ...


_DIGITS: Final = tuple(f"{low:02x}" for low in range(256))


def _block(start: str, high: int) -> Iterator[str]:
    """The ids of 256 numbers in a row, those from 1 on."""
    if high == 0:
        return iter([f"{start}-{low:x}" for low in range(1, 256)])
    return map(f"{start}-{high:x}".__add__, _DIGITS)


class Ids:
    """Ids that are new to every process: a random start, then a counter.

    ``token(n)`` gives ``n`` random hex digits; a simulation hands in its own. Any thread.
    """

    def __init__(self, clock: NowMs, token: Callable[[int], str] | None = None) -> None:
        self._clock = clock
        self._token = token or (lambda digits: secrets.token_hex((digits + 1) // 2)[:digits])
        # Each turn takes four: C loops all the way, and only each 256th id calls Python. Threads that meet there may
        # pass some over; none is given twice.
        self.fresh: Callable[[], str] = chain.from_iterable(map(partial(_block, self._token(8)), count())).__next__
        """A short id: of a message, a delivery, a commit."""

    def session(self) -> str:
        """A session id, ``YYYYMMDD_HHMMSS_<8hex>`` in UTC (gateway seed §2)."""
        stamp = time.strftime("%Y%m%d_%H%M%S", time.gmtime(self._clock.now_ms() / 1000))
        return f"{stamp}_{self._token(8)}"
