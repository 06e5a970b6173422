"""Staging a whole group of plain commits in one go: the common case, column by column.

Plain is what nearly every commit is: its logs are known and at the heads that it expects, its sessions are its own, its
names are good and new to the group, and it has neither bindings nor blobs nor rare fields. Checks and encoding then run
as a few dozen C loops over the group instead of Python code per event. One thing out of the ordinary, be it wrong or
only rare, and the group is left to ``Staging.add``, which decides what is refused and why. So this module may call
anything "not plain", and must never take what ``Staging.add`` would refuse.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from seriatim.commits import Commit
from seriatim.events import LogId
from seriatim.limits import STORE_COMMIT_BYTES_MAX

from .encoding import Columns, chain, encode_plain, flatten, sum_plain
from .staging import LogState, PlainGroup, StagedCommit, StagedPart, are_names

PARTS_MAX = 2
"""A lane's and its session's: with so few, a commit can't have too many of either kind."""


def stage_plain(
    commits: Sequence[Commit], known: Mapping[LogId, LogState], fences: Mapping[LogId, int]
) -> PlainGroup | None:
    """The group, staged, or None if it isn't plain. ``known``: durable states of logs, as far as cached."""
    if not _are_shaped(commits, fences):
        return None
    states = _states(commits, known)
    if states is None:
        return None
    columns = _encode(commits, states)
    return None if columns is None else _cut(commits, states, columns)


def _are_shaped(commits: Sequence[Commit], fences: Mapping[LogId, int]) -> bool:
    """Ids, keys, incarnations, and how many of what."""
    ids = [commit.id for commit in commits]
    keys = [key for commit in commits for key in commit.unique]
    return (
        are_names(ids + keys)
        and len(set(ids)) == len(ids)
        and len(set(keys)) == len(keys)
        and not any(commit.bindings or commit.blobs or not 0 < len(commit.parts) <= PARTS_MAX for commit in commits)
        and not any(commit.incarnation < fences.get(commit.lane, commit.incarnation) for commit in commits)
    )


def _states(commits: Sequence[Commit], known: Mapping[LogId, LogState]) -> list[LogState] | None:
    """The state of each part's log, in order, if each part may follow it. A log that comes twice isn't plain."""
    states: dict[LogId, LogState] = {}
    count = 0
    for commit in commits:
        lane = commit.lane
        for part in commit.parts:
            log = part.log
            state = known.get(log)
            if (
                state is None
                or part.header is not None
                or part.expected_head != state.head
                or not part.events
                # Its own log, which then belongs to no lane, or a session of its own.
                or state.lane != (None if log == lane else lane)
                or (part.hot is not None and log.startswith("session:"))
            ):
                return None
            states[log] = state
            count += 1
    return list(states.values()) if len(states) == count else None


def _encode(commits: Sequence[Commit], states: Sequence[LogState]) -> Columns | None:
    """The columns of all events of the group."""
    runs = [part.events for commit in commits for part in commit.parts]
    seqs = flatten([range(state.head, state.head + len(run)) for state, run in zip(states, runs, strict=True)])
    return encode_plain(list(flatten(runs)), list(seqs))


def _cut(commits: Sequence[Commit], states: Sequence[LogState], columns: Columns) -> PlainGroup | None:
    """The columns, cut into parts and summed."""
    kinds, _, texts, flat = columns
    times = list(map(repr, columns.times))
    logs: dict[LogId, LogState] = {}
    staged: list[StagedCommit] = []
    following = iter(states)
    at = size = 0
    for commit in commits:
        parts: list[StagedPart] = []
        for part in commit.parts:
            state = next(following)
            number, first, log, count = state.number, state.head, part.log, len(part.events)
            end = at + count
            try:
                text = sum_plain(number, first, kinds[at:end], times[at:end], texts[at:end])
            except UnicodeEncodeError:
                return None
            size += len(text)
            crc = chain(state.crc, commit.id, text)
            logs[log] = LogState(number, first + count, crc, state.lane)
            parts.append(StagedPart(log, number, first, count, crc, flat[3 * at : 3 * end], (), None, part.hot))
            at = end
        staged.append(StagedCommit(commit, parts, ()))
    # Not a byte more than one commit may have, and the group is surely not full.
    return PlainGroup(staged, logs) if size <= STORE_COMMIT_BYTES_MAX else None
