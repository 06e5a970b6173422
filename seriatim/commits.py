"""What becomes durable atomically, and what came of it.

These values travel between actors and into the store; each is plain data, so that a writer process or
another engine can stand behind the same port.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from seriatim.errors import InvalidInputError, StoreError
from seriatim.events import Event, LogId


class Hot(Struct, frozen=True, gc=False):
    """A lane's open work and counters as of a commit: the boot index, health and balance read it.

    ``open_turn``: 1 while a turn is open. ``waiting``: accepted messages without a terminal outcome, the
    running turn's included. ``owed``: deliveries not yet settled or abandoned. ``phase`` and ``since``
    (epoch ms) make a stuck lane visible. The four counters are of all time.
    """

    open_turn: int
    waiting: int
    owed: int
    phase: str
    since: int
    accepted: int
    answered: int
    merged: int
    dropped: int

    @property
    def is_open(self) -> bool:
        """Whether a start must look at this lane."""
        return bool(self.open_turn or self.waiting or self.owed)


class Part(Struct, frozen=True, gc=False):
    """The events that a commit appends to one log.

    ``expected_head``: how many events the log holds before. ``header``: given exactly when the part
    creates the log (then ``expected_head`` is 0; ``events`` may be empty). ``hot``: on lane parts only.
    """

    log: LogId
    expected_head: int
    events: tuple[Event, ...]
    hot: Hot | None = None
    header: dict[str, Any] | None = None


class Binding(Struct, frozen=True, gc=False):
    """Compare-and-set of the lane that a session belongs to; None means no lane."""

    session: LogId
    expected_lane: LogId | None
    lane: LogId | None


class Commit(Struct, frozen=True, gc=False):
    """All or nothing: at most one lane part, at most two session parts, unique keys and bindings.

    ``id``: offered again with the same id, it succeeds without a second write. ``lane`` and
    ``incarnation``: the writer; a smaller incarnation than the store's fence is refused. ``unique``:
    keys that must be new to the whole store (inbound ids). A session part needs its session bound to
    ``lane`` (after ``bindings``). ``blobs``: hashes of blobs that its events refer to; they must be there,
    and stay as long as one of the commit's logs does.
    """

    id: str
    lane: LogId
    incarnation: int
    parts: tuple[Part, ...]
    unique: tuple[str, ...] = ()
    bindings: tuple[Binding, ...] = ()
    blobs: tuple[str, ...] = ()


class Durable(Struct, frozen=True, gc=False):
    """The commit is on disk. ``commit``: its id."""

    commit: str


class Refused(Struct, frozen=True):
    """The commit is surely absent. ``error`` says why; ``keys_found``: its keys that were already there.

    An InvalidInputError (LosslessJsonError among them) says that the commit itself is malformed.
    """

    commit: str
    error: StoreError | InvalidInputError
    keys_found: tuple[str, ...] = ()


class Unknown(Struct, frozen=True):
    """An I/O or fsync error: the commit may or may not be there. Offer the same commit again."""

    commit: str
    reason: str


Outcome = Durable | Refused | Unknown
