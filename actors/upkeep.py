"""What keeps a lane's logs fast: when checkpoints are taken, and the actor that compacts lane logs.

None of it is on the way of a message: checkpoints and compaction reach the writer as requests that it serves when no
commit waits, and the reading for a compaction is done beside the lanes, piece by piece.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from attrs import define, field, frozen

from seriatim.actors.persistence import Compact, Compacted
from seriatim.actors.pooled import PooledActor
from seriatim.actors.refs import Ref
from seriatim.errors import CorruptionError
from seriatim.events import LogId, lane_log, session_log
from seriatim.lane import LaneState, apply_lane
from seriatim.limits import (
    CHECKPOINT_EVENTS,
    CHECKPOINT_REST_EVENTS,
    COMPACT_COMMITS_MAX,
    COMPACT_EVENTS,
    COMPACT_LANES_MAX,
    COMPACT_READ_EVENTS,
)
from seriatim.snapshots import STATE_VERSION, is_at_rest, lane_from_snapshot, lane_snapshot, session_snapshot
from seriatim.storage.audit import Count
from seriatim.storage.contract import Archive, Checkpoint, StoreReader


@frozen
class Growth:
    """How far logs may grow. ``events``: since a log's last checkpoint, until the next is due; ``rest_events``: when
    its lane goes to rest. ``compact_events``: of a lane log since its beginning or last compaction; 0: never compacted.
    ``step_commits``: that one step of a compaction removes.
    """

    events: int = CHECKPOINT_EVENTS
    rest_events: int = CHECKPOINT_REST_EVENTS
    compact_events: int = COMPACT_EVENTS
    step_commits: int = COMPACT_COMMITS_MAX


@define
class Bookmarks:
    """Where one lane's logs have checkpoints, and where its log begins. Owned by the lane's actor.

    ``lane``: events that the lane log's checkpoint covers; ``base``: that its archive stands for, or that are about to
    be archived. ``session`` and ``session_at``: the session that was last looked at, and the same of its log.
    """

    lane: int = 0
    base: int = 0
    session: str | None = None
    session_at: int = 0

    def due(self, state: LaneState, events: int) -> tuple[Checkpoint, ...]:
        """Checkpoints of the logs that grew by ``events`` or more since their last; they count as taken from now on."""
        found: list[Checkpoint] = []
        if state.head - self.lane >= events:
            self.lane = state.head
            found.append(Checkpoint(lane_log(state.key), "state", state.head, STATE_VERSION, lane_snapshot(state)))
        part = state.session
        if part is not None:
            if part.id != self.session:
                self.session, self.session_at = part.id, 0
            if part.head - self.session_at >= events:
                self.session_at = part.head
                data = session_snapshot(part)
                found.append(Checkpoint(session_log(part.id), "state", part.head, STATE_VERSION, data))
        return tuple(found)

    def compaction(self, state: LaneState, growth: Growth) -> CompactLane | None:
        """The wish to compact the lane's log up to here, if it is long and nothing is open; told once."""
        if not growth.compact_events or state.head - self.base < growth.compact_events or not is_at_rest(state):
            return None
        self.base = state.head
        return CompactLane(state.key, state.head, lane_snapshot(state))


@frozen
class CompactLane:
    """Archive the first ``base`` events of the lane's log, whose fold is ``state`` by the word of the live lane."""

    key: str
    base: int
    state: dict[str, Any]


@frozen
class _GoOn:
    """Read the next piece."""


@define
class _Work:
    """One compaction: the log read so far, folded and counted apart from each other."""

    wish: CompactLane
    log: LogId
    state: LaneState
    count: Count = field(factory=Count)


class UpkeepActor(PooledActor):
    """Compacts one lane log after the other. Runs on the reader's thread, with a connection of its own.

    The prefix is folded again from the log itself, and counted by the audit's own rules. Unless both agree with the
    live lane's word nothing is archived; ``on_error`` then hears of it.
    """

    def __init__(
        self,
        open_reader: Callable[[], StoreReader],
        writer: Ref[Any],
        step_commits: int,
        on_error: Callable[[str, BaseException], None],
    ) -> None:
        super().__init__()
        self._open_reader = open_reader
        self._writer = writer
        self._step_commits = step_commits
        self._on_error = on_error
        self._reader: StoreReader | None = None
        self._wishes: OrderedDict[str, CompactLane] = OrderedDict()
        self._work: _Work | None = None
        self._archive: Archive | None = None

    def on_receive(self, message: Any) -> None:
        """Take a wish, do the next piece, or hear from the writer. After what fails the next lane's turn comes."""
        if type(message) is CompactLane:
            if message.key in self._wishes or len(self._wishes) < COMPACT_LANES_MAX:
                self._wishes[message.key] = message
            if self._work is None:
                self._begin()
            return
        try:
            if type(message) is Compacted:
                self._compacted(message)
            elif self._work is not None and self._archive is None:
                self._piece(self._work)
        except Exception as error:
            self._on_error("compaction", error)
            self._begin()

    def on_stop(self) -> None:
        """Close the connection."""
        if self._reader is not None:
            self._reader.close()

    def _begin(self) -> None:
        """Take up the next wish, if there is one."""
        self._work = self._archive = None
        if self._wishes:
            _, wish = self._wishes.popitem(last=False)
            self._work = _Work(wish, lane_log(wish.key), LaneState(wish.key))
            self.own_ref.signal(_GoOn())

    def _piece(self, work: _Work) -> None:
        if self._reader is None:
            self._reader = self._open_reader()
        wish = work.wish
        before = None if work.state.head else self._reader.archive(work.log)
        if before is not None:
            work.state = lane_from_snapshot(wish.key, before.version, before.data)
            work.count = Count.of(before.counts)
        state = work.state
        if state.head >= wish.base:
            self._begin()  # asked for twice: by an incarnation that didn't know what the one before had asked
            return
        events = self._reader.read(work.log, state.head, min(COMPACT_READ_EVENTS, wish.base - state.head))
        if not events:
            raise CorruptionError(work.log, f"ends at {state.head}, and its lane was at {wish.base}")
        for event in events:
            apply_lane(state, event)
            work.count.take(event)
        if state.head < wish.base:
            self.own_ref.signal(_GoOn())
            return
        self._archive = self._checked(work)
        self._writer.signal(Compact(self._archive, self._step_commits, self.own_ref))

    def _checked(self, work: _Work) -> Archive:
        """The archive, if fold, count and live lane agree. Raises CorruptionError."""
        told = lane_snapshot(work.state)
        counts = work.count.balance()
        state = work.state
        folded = (state.accepted, state.answered, state.merged, state.dropped)
        if work.count.problems or folded != (counts.accepted, counts.answered, counts.merged, counts.dropped):
            raise CorruptionError(work.log, f"is counted as {counts}, and its fold says {folded}")
        if told != work.wish.state:
            raise CorruptionError(work.log, "tells something else than the live lane; it is left as it is")
        return Archive(work.log, work.wish.base, STATE_VERSION, counts, told)

    def _compacted(self, message: Compacted) -> None:
        if self._archive is None or message.log != self._archive.log:
            return
        if message.error is not None:
            raise message.error
        if message.more:
            self._writer.signal(Compact(self._archive, self._step_commits, self.own_ref))
        else:
            self._begin()
