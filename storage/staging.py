"""Deciding a group of commits in Python before a backend writes it.

A group means what its commits would mean one after another. Heads, fences, bindings, shapes and lossless
JSON are decided here, on an overlay over the backend's view; so are keys and ids repeated inside the group.
Whether a key or id is already in the store is the backend's knowledge: it hands in what it found.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any, cast

import attrs

from seriatim.commits import Commit, Durable, Hot, Outcome, Part, Refused, Unknown
from seriatim.errors import (
    BindingMismatchError,
    BlobNotFoundError,
    CommitTooLargeError,
    HeadMismatchError,
    InvalidInputError,
    KeysTakenError,
    LogExistsError,
    LogNotFoundError,
    OwnershipLostError,
    StoreError,
)
from seriatim.events import LogId
from seriatim.limits import (
    COMMIT_BLOBS_MAX,
    COMMIT_SESSIONS_MAX,
    STORE_COMMIT_BYTES_MAX,
    STORE_GROUP_BYTES_MAX,
    STORE_NAME_CHARS_MAX,
)

from .encoding import Rare, chain, chain_start, encode_events, encode_object

LANE_PARTS_MAX = 2
"""Two in a merge or a move of a session between lanes, else one."""


@attrs.define
class LogState:
    """What the writer needs to know of a log.

    ``number``: its row. ``head``: how many events it holds. ``crc``: the checksum after the last part.
    ``lane``: which lane the session is bound to.
    """

    number: int
    head: int
    crc: int
    lane: LogId | None


@attrs.define
class StagedPart:
    """One part, encoded. ``number``: its log's; ``header``: its text, when the part makes the log.

    ``columns``: type, time, data of each event, flat. ``crc``: the checksum along the log after the part.
    """

    log: LogId
    number: int
    first: int
    count: int
    crc: int
    columns: list[Any]
    rare: Sequence[Rare]
    header: str | None
    hot: Hot | None


@attrs.define
class StagedCommit:
    """One commit that passed every check. ``bindings``: number of a session whose lane changes, new lane."""

    commit: Commit
    parts: list[StagedPart]
    bindings: Sequence[tuple[int, LogId | None]]


View = Callable[[LogId, bool], LogState | None]
"""The durable state of a log; the flag says that the commit believes it to be new."""


class Staging:
    """One try at a group: ``add`` each commit in order, write ``staged``, then ``finish`` with its fate.

    ``view`` gives the durable state of a log; ``ids``, ``keys`` and ``has_blob`` what is known to be in the store;
    ``next_log`` is the number that the next new log takes.
    """

    def __init__(
        self,
        view: View,
        fences: Mapping[LogId, int],
        next_log: int,
        ids: Container[str] = (),
        keys: Container[str] = (),
        has_blob: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self.logs: dict[LogId, LogState] = {}
        self.staged: list[StagedCommit] = []
        self.next_log = next_log
        self.bytes = 0
        self._view = view
        self._fences = fences
        self._ids_found = ids
        self._keys_found = keys
        self._has_blob = has_blob
        self._ids: set[str] = set()
        self._keys: set[str] = set()
        self._answers: list[Refused | Durable | None] = []
        self._commits: list[Commit] = []
        self._contingent: list[bool] = []

    @property
    def is_full(self) -> bool:
        """Whether what is staged should be written before more is added."""
        return self.bytes >= STORE_GROUP_BYTES_MAX

    def add(self, commit: Commit) -> None:
        """Stage one commit or keep its refusal."""
        self._commits.append(commit)
        contingent = False
        answer: Refused | Durable | None
        if commit.id in self._ids_found:
            answer = Durable(commit.id)
        elif commit.id in self._ids:
            answer, contingent = Durable(commit.id), True
        else:
            answer = self._try(commit)
            if answer is not None:
                contingent = any(part.log in self.logs for part in commit.parts) or any(
                    key in self._keys for key in answer.keys_found
                )
        self._answers.append(answer)
        self._contingent.append(contingent)

    def refused(self) -> list[Commit]:
        """Commits refused so far: a backend that hasn't looked their ids and keys up does so now."""
        return [c for c, a in zip(self._commits, self._answers, strict=True) if type(a) is Refused]

    def correct(self, ids: Container[str], keys: Container[str]) -> None:
        """Answer refused commits again: an id in the store is success, keys there are duplicates."""
        for i, commit in enumerate(self._commits):
            answer = self._answers[i]
            if type(answer) is not Refused:
                continue
            if commit.id in ids:
                self._answers[i] = Durable(commit.id)
                self._contingent[i] = False
                continue
            earlier = answer.keys_found
            found = tuple(k for k in dict.fromkeys(commit.unique) if k in earlier or k in keys)
            if found:
                self._answers[i] = Refused(commit.id, KeysTakenError(found), found)
                self._contingent[i] = any(key not in keys for key in found)

    def finish(self, fate: StoreError | str | None) -> list[Outcome]:
        """Outcomes in order. ``fate`` of what was staged: None = durable, an error = surely absent, text = unknown.

        A refusal (or repetition) that rests on an earlier commit of the group shares that fate: a duplicate
        of something that isn't durable must not be acknowledged.
        """
        outcomes: list[Outcome] = []
        for commit, answer, contingent in zip(self._commits, self._answers, self._contingent, strict=True):
            if answer is not None and (fate is None or not contingent):
                outcomes.append(answer)
            elif fate is None:
                outcomes.append(Durable(commit.id))
            elif isinstance(fate, str):
                outcomes.append(Unknown(commit.id, fate))
            else:
                outcomes.append(Refused(commit.id, fate))
        return outcomes

    def _try(self, commit: Commit) -> Refused | None:
        keys, found_before = self._keys, self._keys_found
        try:
            for key in commit.unique:
                if key in keys or key in found_before:
                    found = tuple(k for k in dict.fromkeys(commit.unique) if k in keys or k in found_before)
                    return Refused(commit.id, KeysTakenError(found), found)
            staged = self._check(commit)
        except (StoreError, InvalidInputError) as error:
            return Refused(commit.id, error)
        self.staged.append(staged)
        self._ids.add(commit.id)
        keys.update(commit.unique)
        return None

    def _check(self, commit: Commit) -> StagedCommit:
        fence = self._fences.get(commit.lane)
        if fence is not None and commit.incarnation < fence:
            raise OwnershipLostError(f"incarnation {commit.incarnation} is fenced at {fence}")
        _check_shape(commit)
        touched: dict[LogId, LogState] = {}
        parts: list[StagedPart] = []
        next_log, size = self.next_log, 0
        for part in commit.parts:
            log = part.log
            if log in touched:
                raise InvalidInputError("parts", "holds a log twice")
            state, header = self._place(part, next_log)
            if header is not None:
                next_log += 1
            number, first = state.number, state.head
            columns, text, rare = encode_events(number, first, part.events)
            size += len(text)
            crc = chain(state.crc, commit.id, text)
            count = len(part.events)
            touched[log] = LogState(number, first + count, crc, state.lane)
            parts.append(StagedPart(log, number, first, count, crc, columns, rare, header, part.hot))
        if size > STORE_COMMIT_BYTES_MAX:
            raise CommitTooLargeError(f"{size} bytes of events, at most {STORE_COMMIT_BYTES_MAX}")
        for blob in commit.blobs:
            if not self._has_blob(blob):
                raise BlobNotFoundError(str(blob))
        bindings = self._bind(commit, touched) if commit.bindings else []
        for log, state in touched.items():
            if log.startswith("session:"):
                self._check_writer(commit, log, state.lane)
        self.logs.update(touched)
        self.next_log = next_log
        self.bytes += size
        return StagedCommit(commit, parts, bindings)

    def _check_writer(self, commit: Commit, session: LogId, lane: LogId | None) -> None:
        # A session that writes for itself (the event-log service) must belong to no lane.
        writer = None if commit.lane == session else commit.lane
        if lane != writer and any(part.log == session for part in commit.parts):
            raise BindingMismatchError(session, writer, lane)

    def _place(self, part: Part, number: int) -> tuple[LogState, str | None]:
        state = self.logs.get(part.log) or self._view(part.log, part.header is not None)
        if part.header is None:
            if state is None:
                raise LogNotFoundError(part.log)
            if state.head != part.expected_head:
                raise HeadMismatchError(part.log, part.expected_head, state.head)
            return state, None
        if state is not None:
            raise LogExistsError(part.log)
        if part.expected_head != 0:
            raise HeadMismatchError(part.log, part.expected_head, 0)
        if not is_name(part.log):
            raise InvalidInputError("log", "is not a name")
        header = encode_object("header", part.header)
        return LogState(number, 0, chain_start(part.log, header), None), header

    def _bind(self, commit: Commit, touched: dict[LogId, LogState]) -> list[tuple[int, LogId | None]]:
        changed: list[tuple[int, LogId | None]] = []
        for binding in commit.bindings:
            session = binding.session
            state = touched.get(session) or self.logs.get(session) or self._view(session, False)
            if state is None:
                raise LogNotFoundError(session)
            if state.lane != binding.expected_lane:
                raise BindingMismatchError(session, binding.expected_lane, state.lane)
            touched[session] = LogState(state.number, state.head, state.crc, binding.lane)
            changed.append((state.number, binding.lane))
        return changed


def stage(staging: Staging, commits: Sequence[Commit]) -> int:
    """Add commits until all are in or the staging is full; how many were added."""
    for i, commit in enumerate(commits):
        staging.add(commit)
        if staging.is_full:
            return i + 1
    return len(commits)


def is_name(text: object) -> bool:
    """Whether a log id, commit id, lane or key can be kept: text, bounded, no NUL, no lone surrogate."""
    if type(text) is not str or "\0" in text or not 0 < len(text) <= STORE_NAME_CHARS_MAX:
        return False
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            return False
    return True


def are_names(texts: Sequence[object]) -> bool:
    """``is_name`` of each, all at once where that is easy."""
    if set(map(type, texts)) == {str}:
        names = cast("Sequence[str]", texts)
        joined = "".join(names)
        if joined.isascii() and "\0" not in joined:
            return min(map(len, names)) > 0 and max(map(len, names)) <= STORE_NAME_CHARS_MAX
    return all(map(is_name, texts))


def _check_shape(commit: Commit) -> None:
    """What a commit may look like. Names of logs are checked where a log is made."""
    if not is_name(commit.id):
        raise InvalidInputError("id", "is not a name")
    unique = commit.unique
    for key in unique:
        if not is_name(key):
            raise InvalidInputError("unique", "holds a key that is not a name")
    if len(unique) > 1 and len(set(unique)) != len(unique):
        raise InvalidInputError("unique", "holds a key twice")
    if len(commit.blobs) > COMMIT_BLOBS_MAX:
        raise InvalidInputError("blobs", f"more than {COMMIT_BLOBS_MAX}")
    for binding in commit.bindings:
        if not (binding.lane is None or is_name(binding.lane)):
            raise InvalidInputError("bindings", "holds a lane that is not a name")
    sessions = 0
    for part in commit.parts:
        if not part.events and part.header is None:
            raise InvalidInputError("events", "is empty in a part that makes no log")
        if part.log.startswith("session:"):
            sessions += 1
            if part.hot is not None:
                raise InvalidInputError("hot", "belongs on lane parts")
    others = len(commit.parts) - sessions
    if not commit.parts:
        raise InvalidInputError("parts", "is empty")
    if others > LANE_PARTS_MAX or sessions > COMMIT_SESSIONS_MAX:
        raise InvalidInputError("parts", f"{others} lanes and {sessions} sessions in one commit")
