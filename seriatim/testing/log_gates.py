"""A backend whose calls can be counted, held and failed: how a test arranges a race or a broken disk.

It stands between the service and any backend. Calls come from the service's threads; a held one blocks its thread
until it is let go, so that a test decides what happens first without waiting for time.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import Counter
from collections.abc import Coroutine, Sequence
from typing import Any

from seriatim.events import Event
from seriatim.storage.event_log.backend import LogBackend, StoredLog, StoredPage
from seriatim.storage.event_log.header import SessionHeader
from seriatim.storage.event_log.values import Problem, Revision, SessionLocation, SessionRawArtifact


class Gate:
    """Where calls of one name stop. ``arrived`` is set when one has; ``let_go`` lets all of them on."""

    def __init__(self) -> None:
        self.arrived = threading.Event()
        self._open = threading.Event()

    def let_go(self) -> None:
        """Let those that wait go on, and all later ones pass."""
        self._open.set()

    async def cut_off(self, call: Coroutine[Any, Any, Any]) -> None:
        """Begin ``call``, cancel it once it has come as far as this, and then let all go on.

        Raises AssertionError where it returns all the same.
        """
        running = asyncio.ensure_future(call)
        await asyncio.to_thread(self.arrived.wait, 60)
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
            raise AssertionError("a cancelled call has returned")
        self.let_go()

    def pass_through(self) -> None:
        """Called by the backend's threads."""
        self.arrived.set()
        if not self._open.wait(60):
            raise TimeoutError("nobody opened the gate")


class Gated:
    """``backend``, with a count of its calls, gates, and errors to come. Otherwise as it is."""

    def __init__(self, backend: LogBackend) -> None:
        self.backend = backend
        self.calls: Counter[str] = Counter()
        self.gates: dict[str, Gate] = {}
        self.errors: dict[str, list[Exception | None]] = {}
        self.late_errors: dict[str, list[Exception | None]] = {}

    @property
    def supports_raw_artifacts(self) -> bool:
        """The backend's."""
        return self.backend.supports_raw_artifacts

    def hold(self, name: str) -> Gate:
        """Stop the calls of this name from now on."""
        gate = self.gates[name] = Gate()
        return gate

    def fail(self, name: str, *errors: Exception | None) -> None:
        """Have the next calls of this name raise these before they do anything; None lets one pass."""
        self.errors[name] = list(errors)

    def fail_late(self, name: str, *errors: Exception | None) -> None:
        """The same after they have done it: the work is done, its answer lost."""
        self.late_errors[name] = list(errors)

    def locate(self, header: SessionHeader) -> SessionLocation | None:
        """Straight through."""
        return self.backend.locate(header)

    def read(self, session_id: str, from_seq: int = 0) -> StoredLog | None:
        """Gated."""
        self._before("read")
        found = self.backend.read(session_id, from_seq)
        self._after("read")
        return found

    def revision(self, session_id: str) -> Revision | None:
        """Gated."""
        self._before("revision")
        return self.backend.revision(session_id)

    def append(self, session_id: str, header: SessionHeader, head: int, events: Sequence[Event]) -> Revision:
        """Gated."""
        self._before("append")
        revision = self.backend.append(session_id, header, head, events)
        self._after("append")
        return revision

    def page(self, after: str | None, limit: int) -> StoredPage:
        """Gated."""
        self._before("page")
        return self.backend.page(after, limit)

    def read_raw(self, session_id: str) -> SessionRawArtifact | None:
        """Gated."""
        self._before("read_raw")
        return self.backend.read_raw(session_id)

    def salvage(self, session_id: str) -> tuple[StoredLog, tuple[Problem, ...]] | None:
        """Gated."""
        self._before("salvage")
        return self.backend.salvage(session_id)

    def close(self) -> None:
        """Straight through."""
        self.backend.close()

    def _before(self, name: str) -> None:
        self.calls[name] += 1
        gate = self.gates.get(name)
        if gate is not None:
            gate.pass_through()
        _raise_next(self.errors, name)

    def _after(self, name: str) -> None:
        _raise_next(self.late_errors, name)


def _raise_next(errors: dict[str, list[Exception | None]], name: str) -> None:
    waiting = errors.get(name)
    if waiting and (error := waiting.pop(0)) is not None:
        raise error
