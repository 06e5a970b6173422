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
from zlib import crc32

from attrs import define

from seriatim.commits import Commit, Durable, Outcome, Refused, Unknown
from seriatim.errors import StoreError
from seriatim.events import LogId
from seriatim.limits import STORE_COMMIT_BYTES_MAX

from .encoding import LINE, encode_plain, interleave, to_json
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
    keys = [key for commit in commits if commit.unique for key in commit.unique]
    if not (are_names(ids + keys) and len(set(ids)) == len(ids) and len(set(keys)) == len(keys)):
        return None
    states = _states(commits, known, fences)
    return None if states is None else _stage(commits, ids, states, epoch, at)


def _states(
    commits: Sequence[Commit], known: Mapping[LogId, LogState], fences: Mapping[LogId, int]
) -> list[LogState] | None:
    """The state of each part's log, in order, if each may follow it: by shape, incarnation and head.

    A log that comes twice isn't plain.
    """
    states: list[LogState] = []
    for commit in commits:
        lane, parts = commit.lane, commit.parts
        if (
            commit.bindings
            or commit.blobs
            or not 0 < len(parts) <= PARTS_MAX
            or commit.incarnation < fences.get(lane, commit.incarnation)
        ):
            return None
        for part in parts:
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
            states.append(state)
    return states if len({state.number for state in states}) == len(states) else None


def _stage(commits: Sequence[Commit], ids: list[str], states: list[LogState], epoch: int, at: int) -> PlainGroup | None:
    """Encode the events, sum them part by part, and lay them out as rows."""
    plain = encode_plain([part.events for commit in commits for part in commit.parts], [s.head for s in states])
    if plain is None:
        return None
    types, times, texts = plain
    values: list[Any] = []
    tips: list[tuple[int, int]] = []
    time = 0
    spans: dict[int, str] = {}  # that time, so many times over
    place = done = size = rows = 0
    for commit in commits:
        name, parts, front = commit.id, commit.parts, commit.parts[0]
        first_place, begun, mark = place, done, len(values)
        for _ in parts:
            state, kinds, now = states[place], types[place], times[place]
            if now is not time:
                if now != time:
                    if place != first_place:  # two times in a commit
                        return None
                    spans = {}
                time = now
            number, first, count, start = state.number, state.head, len(kinds), done
            place += 1
            done += count
            told = spans.get(count)
            if told is None:
                told = spans[count] = repr([now] * count)
            # As ``sum_text`` has it, behind the commit's id.
            text = f"{name}{number} {first}\n{told}\n\n{','.join(kinds)}\n{LINE.join(texts[start:done])}".encode()
            crc = crc32(text, state.crc)
            size += len(text)
            values += (number, first, count, crc)
            tips.append((first + count, crc))
        keys = commit.unique
        key: str | int = keys[0] if keys else 0
        extra = to_json({"keys": keys[1:]}) if len(keys) > 1 else 0
        if done - begun > EVENTS_PER_ROW or (len(parts) > 1 and parts[1].hot is not None):
            cut = values[mark:]
            del values[mark:]
            rows += _add_parts(
                values, commit, cut, types[first_place:place], time, texts[begun:done], epoch, at + begun, key, extra
            )
            continue
        if len(parts) == 1:
            values += NO_PART
        values += (epoch, name, 0, key, extra, *hot_columns(front.hot), time, at + begun)
        padding = PADDING[EVENTS_PER_ROW - (done - begun)]
        values += types[first_place]
        if len(parts) > 1:
            values += types[first_place + 1]
        values += padding
        values += texts[begun:done]
        values += padding
        rows += 1
    # Not a byte more than one commit may have, and the group is surely not full.
    return PlainGroup(ids, values, rows, at + done, states, tips) if size <= STORE_COMMIT_BYTES_MAX else None


def _add_parts(
    values: list[Any], commit: Commit, cut: list[int], types: list[list[str]], time: int, texts: list[str],
    epoch: int, at: int, key: str | int, extra: str | int,
) -> int:  # fmt: skip
    """Append the rows of a commit that has too much for one; how many.

    ``cut``: number, first, count and checksum of each part, flat; ``types``: by part.
    """
    rows = 0
    for place, (part, kinds) in enumerate(zip(commit.parts, types, strict=True)):
        number, first, count, crc = cut[4 * place : 4 * place + 4]
        columns = interleave(kinds, [time] * count, texts[:count])
        staged = StagedPart(part.log, number, first, count, crc, columns, (), None, part.hot)
        rows += add_part(values, staged, epoch, at, commit.id, place, key, extra)
        texts, at, key, extra = texts[count:], at + count, 0, 0
    return rows
