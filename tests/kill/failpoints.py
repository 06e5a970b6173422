"""Named points at which a test child halts, so that it can be killed exactly there.

A child that reaches its armed point says so on a pipe and stops as a whole (SIGSTOP: no thread of it goes on);
whoever started it then sends SIGKILL. The points lie in wrappers around ports: the store here, adapter and agent in
the children. The product knows none of them.
"""

from __future__ import annotations

import ctypes
import os
import signal
import threading
from collections.abc import Sequence
from typing import NoReturn

from seriatim.commits import Commit, Outcome
from seriatim.storage.sqlite import SqliteStore
from seriatim.testing.wrapped_store import WrappedStore

ARMED_VARIABLE = "HALT_AT"
PIPE_VARIABLE = "HALT_FD"
PARENT_VARIABLE = "HALT_PARENT"


class Failpoints:
    """One armed point of a process: ``name``, reached for the ``count``-th time. Any thread.

    ``depth``: for points inside a commit, how many steps of SQLite's machine into it. ``pipe``: where to say so.
    """

    def __init__(self, name: str = "", count: int = 1, depth: int = 1, pipe: int = -1) -> None:
        self.name = name
        self.depth = depth
        self._left = count
        self._pipe = pipe
        self._lock = threading.Lock()

    @classmethod
    def from_environment(cls) -> Failpoints:
        """As `environment` wrote it; nothing armed without."""
        armed = os.environ.get(ARMED_VARIABLE, "")
        if not armed:
            return cls()
        name, count, depth = armed.split("*")
        return cls(name, int(count), int(depth), int(os.environ[PIPE_VARIABLE]))

    def hit(self, name: str) -> None:
        """The process is at ``name``: halt if that is due."""
        if self.due(name):
            self.halt()

    def due(self, name: str) -> bool:
        """Whether to halt at this pass of ``name``; counts it."""
        if name != self.name:
            return False
        with self._lock:
            self._left -= 1
            return self._left == 0

    def halt(self) -> NoReturn:
        """Say where we are and stop every thread, for good."""
        os.write(self._pipe, f"{self.name}\n".encode())
        while True:
            os.kill(os.getpid(), signal.SIGSTOP)


def environment(name: str, count: int, depth: int, pipe: int) -> dict[str, str]:
    """The variables that arm a child of this process."""
    return {ARMED_VARIABLE: f"{name}*{count}*{depth}", PIPE_VARIABLE: str(pipe)}


class HaltingStore(WrappedStore):
    """A SqliteStore with points around and inside its commits, named by the events that a group holds.

    ``before T``: offered, not a byte written. ``in T``: inside the transaction. ``after T``: durable, nobody told.
    """

    def __init__(self, inner: SqliteStore, points: Failpoints) -> None:
        super().__init__(inner)
        self._sqlite = inner
        self._points = points
        points.hit("opened")

    def commit(self, commits: Sequence[Commit]) -> list[Outcome]:
        """See ``Store.commit``."""
        types = sorted({event.type for commit in commits for part in commit.parts for event in part.events})
        for kind in types:
            self._points.hit(f"before {kind}")
        inside = any(self._points.due(f"in {kind}") for kind in types)
        connection = self._sqlite._connection
        if inside and connection is not None:
            connection.set_progress_handler(self._points.halt, self._points.depth)
        outcomes = self.inner.commit(commits)
        if inside:
            self._points.halt()  # the transaction was shorter than the depth
        for kind in types:
            self._points.hit(f"after {kind}")
        return outcomes


def die_with_parent() -> None:
    """Let the kernel kill this process when its parent is gone, even while it is halted (Linux)."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "prctl"):
        parent_death_signal = 1
        libc.prctl(parent_death_signal, signal.SIGKILL)
        if os.getppid() != int(os.environ.get(PARENT_VARIABLE, os.getppid())):
            os._exit(1)  # it went before we asked
