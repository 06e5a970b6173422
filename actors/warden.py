"""CacheWardenActor: keeps the number of warm lanes within its cap, least recently used first (DESIGN §9).

It only asks; a lane with open work stays. Runs on the loop dispatcher.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from attrs import frozen

from seriatim.actors.pooled import PooledActor
from seriatim.actors.refs import Ref
from seriatim.actors.supervisor import PassivateLane


@frozen
class Touched:
    """A lane has begun a turn; ``bytes`` of warm state."""

    key: str
    bytes: int


@frozen
class Gone:
    """A lane was put to rest."""

    key: str


class CacheWardenActor(PooledActor):
    """Knows which lanes are warm, in order of use. ``warm_max``: more are asked to rest."""

    def __init__(self, supervisor: Ref[Any], warm_max: int) -> None:
        super().__init__()
        self._supervisor = supervisor
        self._warm_max = warm_max
        self._warm: OrderedDict[str, int] = OrderedDict()

    def on_receive(self, message: Touched | Gone) -> None:
        """Keep the order; ask beyond the cap."""
        if type(message) is Gone:
            self._warm.pop(message.key, None)
            return
        assert type(message) is Touched
        self._warm[message.key] = message.bytes
        self._warm.move_to_end(message.key)
        beyond = len(self._warm) - self._warm_max
        if beyond > 0:
            # One that has to stay is not replaced by a more recent one: it is asked again at the next turn.
            for key in list(self._warm)[:beyond]:
                self._supervisor.signal(PassivateLane(key, "lru"))
