"""Staging a whole group of plain commits in one go: the common case, column by column.

Plain is what nearly every commit is: its logs are known and at the heads that it expects, its sessions are its own, its
names are good and new to the group, and it has neither bindings nor blobs nor rare fields. Checks and encoding then run
as a few dozen C loops over the group instead of Python code per event. One thing out of the ordinary, be it wrong or
only rare, and the group is left to ``Staging.add``, which decides what is refused and why. So this module may call
anything "not plain", and must never take what ``Staging.add`` would refuse.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attrs import define

from seriatim.commits import Commit, Durable, Outcome, Refused, Unknown
from seriatim.errors import StoreError
from seriatim.events import LogId
from seriatim.limits import STORE_COMMIT_BYTES_MAX

from .encoding import Columns, chain_plain, encode_plain, flatten, to_json
from .rows import NO_PART, PADDING, add_part, hot_columns
from .schema import EVENTS_PER_ROW
from .staging import LogState, StagedPart, are_names

PARTS_MAX = 2
"""A lane's and its session's: with so few, a commit can't have too many of either kind."""


@define
class PlainGroup:
    """All commits of a group, staged at once.

    ``values``: of ``rows`` rows; ``at``: where the next event goes. ``states``: of the logs, in the parts' order, and
    ``tips``: their heads and checksums when the group is durable.
    """

    ids: list[str]
    values: list[Any]
    rows: int
    at: int
    states: list[LogState]
    tips: list[tuple[int, int]]

    def settle(self) -> None:
        """The group is durable: its logs are so much longer."""
        for state, (head, crc) in zip(self.states, self.tips, strict=True):
            state.head = head
            state.crc = crc

    def finish(self, fate: StoreError | str | None) -> list[Outcome]:
        """See ``Staging.finish``; nothing was refused."""
        if fate is None:
            return list(map(Durable, self.ids))
        if isinstance(fate, str):
            return [Unknown(commit, fate) for commit in self.ids]
        return [Refused(commit, fate) for commit in self.ids]


def stage_plain(
    commits: Sequence[Commit], known: Mapping[LogId, LogState], fences: Mapping[LogId, int], epoch: int, at: int
) -> PlainGroup | None:
    """The group, staged, or None if it isn't plain.

    ``known``: durable states of logs, as far as cached. ``epoch``, and ``at`` of the next event, go into the rows.
    """
    ids = [commit.id for commit in commits]
    if not _are_shaped(commits, ids, fences):
        return None
    states = _states(commits, known)
    if states is None:
        return None
    columns = _encode(commits, states)
    return None if columns is None else _cut(commits, ids, states, columns, epoch, at)


def _are_shaped(commits: Sequence[Commit], ids: list[str], fences: Mapping[LogId, int]) -> bool:
    """Ids, keys, incarnations, and how many of what."""
    keys = [key for commit in commits if commit.unique for key in commit.unique]
    if not (are_names(ids + keys) and len(set(ids)) == len(ids) and len(set(keys)) == len(keys)):
        return False
    for commit in commits:
        if (
            commit.bindings
            or commit.blobs
            or not 0 < len(commit.parts) <= PARTS_MAX
            or commit.incarnation < fences.get(commit.lane, commit.incarnation)
        ):
            return False
    return True


def _states(commits: Sequence[Commit], known: Mapping[LogId, LogState]) -> list[LogState] | None:
    """The state of each part's log, in order, if each part may follow it. A log that comes twice isn't plain."""
    states: list[LogState] = []
    logs: set[LogId] = set()
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
            logs.add(log)
            states.append(state)
    return states if len(logs) == len(states) else None


def _encode(commits: Sequence[Commit], states: Sequence[LogState]) -> Columns | None:
    """The columns of all events of the group."""
    runs = [part.events for commit in commits for part in commit.parts]
    seqs = flatten([range(state.head, state.head + len(run)) for state, run in zip(states, runs, strict=True)])
    return encode_plain(list(flatten(runs)), list(seqs))


def _cut(
    commits: Sequence[Commit], ids: list[str], states: list[LogState], columns: Columns, epoch: int, at: int
) -> PlainGroup | None:
    """The columns, cut into parts, summed and laid out as rows."""
    kinds, _, texts, flat = columns
    told = {time: repr(time) for time in set(columns.times)}  # few: a commit's events have one
    times = [told[time] for time in columns.times]
    values: list[Any] = []
    tips: list[tuple[int, int]] = []
    following = iter(states)
    done = size = rows = 0
    try:
        for commit in commits:
            name, begun = commit.id, done
            cut: list[tuple[int, int, int, int]] = []
            for part in commit.parts:
                state = next(following)
                number, first, count = state.number, state.head, len(part.events)
                end = done + count
                crc, length = chain_plain(
                    state.crc, name, number, first, kinds[done:end], times[done:end], texts[done:end]
                )
                size += length
                tips.append((first + count, crc))
                cut.append((number, first, count, crc))
                done = end
            rows += _add_commit(values, commit, cut, epoch, at + begun, flat[3 * begun : 3 * done])
    except UnicodeEncodeError:
        return None
    # Not a byte more than one commit may have, and the group is surely not full.
    return PlainGroup(ids, values, rows, at + done, states, tips) if size <= STORE_COMMIT_BYTES_MAX else None


def _add_commit(
    values: list[Any], commit: Commit, cut: list[tuple[int, int, int, int]], epoch: int, at: int, flat: list[Any]
) -> int:
    """Append the commit's row, or the rows of its parts where it has too many events for one; how many."""
    parts, keys = commit.parts, commit.unique
    key = keys[0] if keys else 0
    extra = to_json({"keys": keys[1:]}) if len(keys) > 1 else 0
    room = EVENTS_PER_ROW - len(flat) // 3
    if room < 0 or (len(cut) > 1 and parts[1].hot is not None):
        rows = 0
        for number, (part, (log, first, count, crc)) in enumerate(zip(parts, cut, strict=True)):
            staged = StagedPart(part.log, log, first, count, crc, flat[: 3 * count], (), None, part.hot)
            rows += add_part(values, staged, epoch, at, commit.id, number, key, extra)
            flat, at, key, extra = flat[3 * count :], at + count, 0, 0
        return rows
    second = cut[1] if len(cut) > 1 else NO_PART
    values += (epoch, commit.id, 0, key, extra, *hot_columns(parts[0].hot), at, *cut[0], *second, *flat, *PADDING[room])
    return 1
