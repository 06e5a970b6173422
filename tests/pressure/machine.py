"""A machine whose memory is whatever a test says."""

from __future__ import annotations

from collections.abc import Callable

from seriatim.actors.machine import Reading
from seriatim.pressure import MIB

Done = Callable[[Reading | BaseException], object]


class ScriptedMachine:
    """Says ``used`` MiB of ``limit`` (or raises ``error``), at once; with ``holds`` only when ``answer`` is called.

    ``looks``, ``trims``: how often it was asked. ``before_look`` is called first. ``trimmed``: what is in use after.
    """

    def __init__(self, used: int = 0, limit: int = 1000) -> None:
        self.used = used
        self.limit = limit
        self.trimmed = used
        self.error: BaseException | None = None
        self.looks = 0
        self.trims = 0
        self.before_look: Callable[[], object] = lambda: None

    def look(self, done: Done) -> None:
        """See Machine.look."""
        self.looks += 1
        self.before_look()
        done(self.error or self._reading(self.used))

    def trim(self, done: Done) -> None:
        """See Machine.trim."""
        self.trims += 1
        self.used = self.trimmed
        done(self.error or self._reading(self.used))

    def _reading(self, mib: int) -> Reading:
        return Reading(self.limit * MIB, mib * MIB, "cgroup")
