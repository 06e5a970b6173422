"""CacheWardenActor: keeps the number of warm lanes within its cap, least recently used first.

It only asks; a lane with open work stays. Runs on the loop dispatcher.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from itertools import islice
from typing import Any

from attrs import frozen

from seriatim.actors.pooled import PooledActor
from seriatim.actors.refs import Ref
from seriatim.actors.supervisor import PassivateLane


@frozen
class Crowded:
    """More lanes are warm than may be."""


class WarmLanes:
    """Which lanes are warm, least recently used first. Loop thread only: each turn changes it, without a message.

    ``crowded`` is called after a turn that finds more than ``warm_max`` of them, and then not until ``beyond`` is.
    """

    def __init__(self, warm_max: int, crowded: Callable[[], object]) -> None:
        self._warm_max = warm_max
        self._crowded = crowded
        self._warm: OrderedDict[str, int] = OrderedDict()
        self._said = False  # in a burst over the cap each turn would else ask all lanes

    def touched(self, key: str, bytes_: int) -> None:
        """A lane has begun a turn; ``bytes_`` of warm state."""
        self._warm[key] = bytes_
        self._warm.move_to_end(key)
        if len(self._warm) > self._warm_max and not self._said:
            self._said = True
            self._crowded()

    def gone(self, key: str) -> None:
        """A lane was put to rest."""
        self._warm.pop(key, None)

    def beyond(self) -> list[str]:
        """Those that are too many."""
        self._said = False
        return list(islice(self._warm, max(0, len(self._warm) - self._warm_max)))


class CacheWardenActor(PooledActor):
    """Asks the lanes that are too many to rest."""

    def __init__(self, supervisor: Ref[Any], lanes: WarmLanes) -> None:
        super().__init__()
        self._supervisor = supervisor
        self._lanes = lanes

    def on_receive(self, message: Crowded) -> None:
        """One that has to stay is not replaced by a more recent one: it is asked again at the next turn."""
        del message
        for key in self._lanes.beyond():
            self._supervisor.signal(PassivateLane(key, "lru"))
