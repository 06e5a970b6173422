"""PersistenceActor: the one writer of the store, and the port through which lanes reach it.

Pinned to a thread of its own, because SQLite wants one. It makes one group commit of whatever waits, without
lingering, and answers each lane by runtime mail.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from attrs import frozen

from seriatim.actors.pooled import PooledActor
from seriatim.actors.refs import Ref, signal_all
from seriatim.commits import Commit, Durable, Outcome, Unknown
from seriatim.errors import StoreError, StoreUnhealthyError
from seriatim.events import LogId
from seriatim.limits import (
    CHECKPOINTS_STEP_MAX,
    CHECKPOINTS_WAITING_MAX,
    GROUP_COMMITS_HANDED,
    GROUP_COMMITS_MAX,
    UPKEEP_GROUPS_MAX,
)
from seriatim.storage.contract import Archive, Checkpoint, Store

_log = logging.getLogger("seriatim.persistence")


@frozen
class Write:
    """Commits to make durable, each with the lane that wants its outcome."""

    entries: tuple[tuple[Commit, Ref[Any]], ...]


@frozen
class Fence:
    """Refuse ``lane``'s smaller incarnations from now on; ``reply_to`` is told Fenced when that stands."""

    lane: LogId
    incarnation: int
    reply_to: Ref[Any]


@frozen
class Fenced:
    """The fence stands: what an older incarnation has not written by now will never be written."""

    lane: LogId
    incarnation: int


@frozen
class Keep:
    """Checkpoints to be kept when there is time; a later one of a log stands for an earlier one."""

    checkpoints: tuple[Checkpoint, ...]


@frozen
class Compact:
    """Do one step of compacting a log, of ``parts_max`` commits, when there is time; ``reply_to`` is told Compacted."""

    archive: Archive
    parts_max: int
    reply_to: Ref[Any]


@frozen
class Compacted:
    """One step is done, and there is ``more``; or the store refused with ``error``."""

    log: LogId
    more: bool
    error: StoreError | None = None


@frozen
class _Rest:
    """Nothing but a reason to come back when the mailbox is empty."""


class CommitPort:
    """Collects the lanes' commits on the loop and hands them to the writer as one message.

    ``offer`` and ``flush`` run on the loop's thread. ``flush`` is the loop dispatcher's hand-off; with ``at_once`` (no
    such dispatcher) each offer is flushed by itself.
    """

    def __init__(self, writer: Ref[Any], *, at_once: bool = False) -> None:
        self._writer = writer
        self._at_once = at_once
        self._pending: list[tuple[Commit, Ref[Any]]] = []

    def offer(self, commit: Commit, reply_to: Ref[Any]) -> None:
        """Have ``commit`` written soon; its outcome comes to ``reply_to`` as runtime mail."""
        self._pending.append((commit, reply_to))
        if self._at_once:
            self.flush()

    def keep(self, checkpoints: tuple[Checkpoint, ...]) -> None:
        """Have checkpoints kept some time."""
        self._writer.signal(Keep(checkpoints))

    def flush(self, whole_group: bool = False) -> bool:
        """Hand over what has been collected, or only a whole group; whether anything was."""
        if len(self._pending) < (GROUP_COMMITS_HANDED if whole_group else 1):
            return False
        entries, self._pending = tuple(self._pending), []
        self._writer.tell(Write(entries))
        return True


class PersistenceActor(PooledActor):
    """Writes groups of commits. All of it runs on the pinned dispatcher's thread, the opening included.

    ``on_trouble`` is called there when the store begins to fail, with the reason, and with None when it works again.
    ``open_store`` is called there, once, and then ``on_open`` with the store, or with the error that kept it from
    opening. The store is closed before the actor has stopped.

    Upkeep (checkpoints, compaction) is done one bounded step at a time when no commit waits; if some always does, once
    every UPKEEP_GROUPS_MAX groups.
    """

    def __init__(
        self,
        open_store: Callable[[], Store],
        on_open: Callable[[Store | BaseException], None],
        on_trouble: Callable[[str | None], None],
    ) -> None:
        super().__init__()
        self._open_store = open_store
        self._on_open = on_open
        self._on_trouble = on_trouble
        self._trouble: str | None = None
        self._store: Store | None = None
        self._waiting: list[tuple[Commit, Ref[Any]]] = []
        self._checkpoints: dict[tuple[LogId, str], Checkpoint] = {}
        self._compactions: list[Compact] = []
        self._groups = 0

    def on_start(self) -> None:
        """Open the store."""
        try:
            self._store = self._open_store()
        except BaseException as error:
            # Whoever starts waits to be told. An exit or a cancellation on this thread isn't that one's.
            if not isinstance(error, Exception):
                unhealthy = StoreUnhealthyError(f"opening the store raised {type(error).__name__}")
                unhealthy.__cause__ = error
                error = unhealthy
            self._on_open(error)
            self.stop()
            return
        self._on_open(self._store)

    def on_receive(self, message: Any) -> None:
        """Collect commits; set fences at once."""
        if type(message) is Write:
            self._waiting.extend(message.entries)
            if len(self._waiting) >= GROUP_COMMITS_MAX:
                self._write()
        elif type(message) is Fence:
            assert self._store is not None
            self._store.fence(message.lane, message.incarnation)
            message.reply_to.signal(Fenced(message.lane, message.incarnation))
        elif type(message) is Keep:
            self._take_in(message)
        elif type(message) is Compact:
            self._compactions.append(message)

    def on_drained(self) -> None:
        """Write what has come together while the group before was being written; without any, do a step of upkeep."""
        busy = bool(self._waiting)
        if busy:
            self._write()
        if self._checkpoints or self._compactions:
            self._groups += busy
            if not busy or self._groups >= UPKEEP_GROUPS_MAX:
                self._groups = 0
                self._do_upkeep()
            if self._checkpoints or self._compactions:
                self.own_ref.signal(_Rest())

    def on_stop(self) -> None:
        """Write the rest and close."""
        if self._store is not None:
            if self._waiting:
                self._write()
            self._store.close()

    def _write(self) -> None:
        waiting, self._waiting = self._waiting, []
        assert self._store is not None
        commits = [commit for commit, _ in waiting]
        try:
            outcomes = self._store.commit(commits)
        except BaseException as error:
            # A store must not raise here. If it does, be it a SystemExit, nobody knows what was written: say just that.
            _log.exception("the store raised while committing")
            outcomes = [Unknown(commit.id, type(error).__name__) for commit in commits]
        self._judge(outcomes)
        signal_all([(reply_to, outcome) for (_, reply_to), outcome in zip(waiting, outcomes, strict=True)])

    # --- upkeep ----------------------------------------------------------------------------------------

    def _take_in(self, message: Keep) -> None:
        for checkpoint in message.checkpoints:
            self._checkpoints[checkpoint.log, checkpoint.of] = checkpoint
        while len(self._checkpoints) > CHECKPOINTS_WAITING_MAX:
            del self._checkpoints[next(iter(self._checkpoints))]

    def _do_upkeep(self) -> None:
        assert self._store is not None
        if self._checkpoints:
            names = list(self._checkpoints)[:CHECKPOINTS_STEP_MAX]
            checkpoints = [self._checkpoints.pop(name) for name in names]
            try:
                self._store.keep(checkpoints)
            except Exception:
                _log.exception("checkpoints can't be kept; their logs are read from further back")
            return
        work = self._compactions.pop(0)
        log = work.archive.log
        try:
            more = self._store.compact(work.archive, work.parts_max)
        except StoreError as error:
            work.reply_to.signal(Compacted(log, more=False, error=error))
        except Exception as error:
            _log.exception("the store raised while compacting")
            work.reply_to.signal(Compacted(log, more=False, error=StoreUnhealthyError(type(error).__name__)))
        else:
            work.reply_to.signal(Compacted(log, more))

    def _judge(self, outcomes: Sequence[Outcome]) -> None:
        """Tell when the medium begins to refuse, and when it works again: lanes only back off and offer again."""
        trouble = self._trouble
        for outcome in outcomes:
            kind = type(outcome)
            if kind is Durable:
                trouble = None
            elif kind is Unknown:
                trouble = outcome.reason  # type: ignore[union-attr]
            elif isinstance(outcome.error, StoreUnhealthyError):  # type: ignore[union-attr]
                trouble = str(outcome.error)  # type: ignore[union-attr]
        if (trouble is None) is not (self._trouble is None):
            self._on_trouble(trouble)
        self._trouble = trouble
