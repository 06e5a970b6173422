"""The write-ahead log's size: when the writer checkpoints, and what is told about it.

SQLite's own automatic checkpoint is off: held up by a reader it would sort the whole log again at every commit. Here
the writer looks every quarter of a second at the most. A moderately long log is checkpointed as far as readers allow,
and is then written from its beginning again, so that its size says nothing until it has grown; a very long one is cut
when no reader holds it. Neither waits for anybody: who holds the log up is told, not waited for.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable
from typing import Final

from seriatim.limits import WAL_CHECKPOINT_BYTES, WAL_CHECKPOINT_EVENTS, WAL_CUT_BYTES

_LOOK_S: Final = 0.25
_RETRY_S: Final = (1.0, 16.0)


class WalWatch:
    """Tends the write-ahead log of the database at ``path``, on the writer's thread.

    ``result``: of the last checkpoint: "none" yet, "complete", "partial" (a reader still needs the rest) or "blocked"
    (it was to be cut, and a reader holds it). ``must_cut``: erased content is still in it.
    """

    def __init__(self, path: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.result = "none"
        self.must_cut = False
        self._wal = path + "-wal"
        self._clock = clock
        self._due = 0.0
        self._retry_s = _RETRY_S[0]
        self._taken = 0, 0  # size of the file, and events in the store, when all of it had been taken over

    @property
    def bytes(self) -> int:
        """Size of the file; any thread."""
        try:
            return os.stat(self._wal).st_size  # noqa: PTH116  (on the writer's way)
        except OSError:
            return 0

    def tend(self, connection: sqlite3.Connection, events: int) -> None:
        """Checkpoint if it is time and the log is long; ``events``: how many were ever written.

        Raises sqlite3.Error; called between two groups.
        """
        now = self._clock()
        if now < self._due:
            return
        self._due = now + _LOOK_S
        size = self.bytes
        if self.must_cut or size > WAL_CUT_BYTES:
            if self.cut(connection):
                self._retry_s = _RETRY_S[0]
            else:  # each try sorts the whole log
                self._due = now + self._retry_s
                self._retry_s = min(2 * self._retry_s, _RETRY_S[1])
        elif size > max(WAL_CHECKPOINT_BYTES, self._taken[0]) or (
            size > WAL_CHECKPOINT_BYTES and events - self._taken[1] >= WAL_CHECKPOINT_EVENTS
        ):
            _, frames, moved = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            self.result = "complete" if moved == frames else "partial"
            if moved == frames:
                self._taken = size, events
            else:
                self._due = now + _RETRY_S[0]

    def cut(self, connection: sqlite3.Connection) -> bool:
        """Move everything into the database and cut the log to nothing; whether no reader stood in the way."""
        (patience,) = connection.execute("PRAGMA busy_timeout").fetchone()
        connection.execute("PRAGMA busy_timeout = 0")
        try:
            busy, _, _ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        finally:
            connection.execute(f"PRAGMA busy_timeout = {patience}")
        self.result = "blocked" if busy else "complete"
        if not busy:
            self.must_cut = False
            self._taken = 0, 0
        return not busy
