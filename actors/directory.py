"""The directory: which lanes are live, and the way for mail to any lane.

A live lane is told directly; all other mail goes through the supervisor, counted on its way, so that nothing overtakes
what was sent before it.
"""

from __future__ import annotations

import threading
from typing import Any

from attrs import frozen

from seriatim.actors.refs import Ref
from seriatim.errors import ActorDeadError, ActorError
from seriatim.events import lane_log
from seriatim.gate import Gate
from seriatim.mail import Ask, Inbound, Mail
from seriatim.pressure import Why, stays


@frozen
class Route:
    """Mail for a lane that was not live when it was sent; made by the directory, which counts them."""

    key: str
    mail: Mail


def name_of(key: str, incarnation: int) -> str:
    """The name of a lane's actor."""
    return f"{lane_log(key)}#{incarnation}"


def key_of(name: str) -> str | None:
    """The lane whose actor has this name; None when it is another kind of actor."""
    return name.removeprefix("lane:").rpartition("#")[0] if name.startswith("lane:") else None


class Directory:
    """The live lanes, and the way to any lane. Changed on the loop's thread only; ``post`` may come from any."""

    def __init__(self) -> None:
        self.live: dict[str, Ref[Any]] = {}
        self.restarts = 0
        """Incarnations that died, or had to be followed by another, in this process."""
        self.quarantined: set[str] = set()
        """Lanes that are given up until the next start."""
        self.supervisor: Ref[Any]
        self.starting: set[str] = set()
        """Lanes that are being read, fenced, or backing off."""
        self._routed: dict[str, int] = {}
        self._guard = threading.Lock()
        self._gates: dict[str, Gate] = {}

    def add(self, key: str, ref: Ref[Any], gate: Gate) -> None:
        """The lane is live: its mail goes to ``ref``."""
        self.live[key] = ref
        self._gates[key] = gate
        self.starting.discard(key)

    def remove(self, key: str) -> None:
        """The lane is not live: its mail goes to the supervisor."""
        self.live.pop(key, None)
        self._gates.pop(key, None)

    def gates(self) -> list[Gate]:
        """The live lanes' gates, to look at."""
        return list(self._gates.values())

    def stays(self, key: str) -> Why | None:
        """Why a lane wouldn't rest if it were asked now; None where it would, unless it has got mail by then."""
        gate = self._gates.get(key)
        return "not live" if gate is None else stays(gate)

    @property
    def at_rest(self) -> bool:
        """Whether no lane is starting, and no live one has mail, or anything that is not durable."""
        return (
            not self.starting
            and all(gate.quiescent() for gate in self._gates.values())
            and not any(ref.pending for ref in self.live.values())
        )

    def post(self, key: str, mail: Any) -> None:
        """Mail that reports what has happened: never refused. Any thread."""
        ref = self.live.get(key)
        # None may overtake what is still on its way through the supervisor: a call's result, say, its call.
        if ref is None or key in self._routed or not ref.signal(mail):
            self.route(key, mail)

    def submit(self, key: str, mail: Inbound | Ask) -> None:
        """Mail that keeps its order of arrival. Raises MailboxFullError."""
        ref = self.live.get(key)
        if ref is not None and key not in self._routed:
            try:
                ref.tell(mail)
            except ActorDeadError:
                pass
            else:
                return
        self._count(key, 1)
        try:
            self.supervisor.tell(Route(key, mail))
        except ActorError:
            self._count(key, -1)
            raise

    def route(self, key: str, mail: Any) -> None:
        """Mail that the supervisor has to place. Any thread."""
        self._count(key, 1)
        self.supervisor.signal(Route(key, mail))

    def routed(self, key: str) -> None:
        """The supervisor has placed a piece of it."""
        self._count(key, -1)

    def _count(self, key: str, more: int) -> None:
        with self._guard:
            count = self._routed.pop(key, 0) + more
            if count:
                self._routed[key] = count
