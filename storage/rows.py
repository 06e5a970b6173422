"""The rows that ``group_commit`` takes, as one flat list of values for its one statement (see ``schema``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from seriatim.commits import Hot

from .encoding import to_json
from .schema import COLUMNS, EVENTS_PER_ROW, HOT, insert_sql
from .staging import StagedCommit, StagedPart

NO_ROW: Final = (0,) * len(COLUMNS)
NO_PART: Final = (0,) * 4
_NO_HOT: Final = (0,) * len(HOT)
_WIDTH: Final = 3 * EVENTS_PER_ROW
PADDING: Final = tuple([0] * n for n in range(EVENTS_PER_ROW + 1))
"""What fills up the columns of a kind for so many events that a row doesn't have."""

_ROWS_EXACT: Final = 8
"""Up to here each number of rows has its own statement; beyond, four sizes an octave."""

_statements: dict[int, str] = {}


def statement(rows: int) -> str:
    """The statement that takes so many rows; always the same text, so that it stays prepared."""
    text = _statements.get(rows)
    if text is None:
        text = _statements[rows] = insert_sql(rows)
    return text


def padded(rows: int) -> int:
    """The size of the statement for so many rows: the next of four an octave, so that few are prepared."""
    if rows <= _ROWS_EXACT:
        return rows
    step: int = 1 << ((rows - 1).bit_length() - 3)
    return -(-rows // step) * step


def hot_columns(hot: Hot | None) -> tuple[Any, ...]:
    """A lane's row in the index of open work."""
    if hot is None:
        return _NO_HOT
    return (
        hot.open_turn, hot.waiting, hot.owed, hot.phase, hot.since,
        hot.accepted, hot.answered, hot.merged, hot.dropped,
    )  # fmt: skip


def lay_out(group: Sequence[StagedCommit], epoch: int, at: int) -> tuple[list[Any], int, int]:
    """The values of the group's rows, their number, and where the next event goes. ``at``: where the first one does."""
    values: list[Any] = []
    rows = 0
    for staged in group:
        commit = staged.commit
        key: str | int = commit.unique[0] if commit.unique else 0
        for number, part in enumerate(staged.parts):
            rows += add_part(values, part, epoch, at, commit.id, number, key, _extra(staged, number, at))
            key = 0
            at += part.count
    return values, rows, at


def _extra(staged: StagedCommit, number: int, at: int) -> str | int:
    """The JSON of what few parts have (see ``schema``); 0 where there is nothing."""
    part = staged.parts[number]
    extra: dict[str, Any] = {}
    if part.header is not None:
        extra["log"], extra["header"] = part.log, part.header
    times = part.columns[1::3]
    if times and times.count(times[0]) < len(times):
        extra["times"] = [[at + place, time] for place, time in enumerate(times)]
    if part.rare:
        extra["rare"] = [[at + r.place, r.seqs, r.operation, r.ignorable] for r in part.rare]
    if staged.commit.blobs:
        extra["blobs"] = staged.commit.blobs
    if number == 0 and len(staged.commit.unique) > 1:
        extra["keys"] = staged.commit.unique[1:]
    if number == len(staged.parts) - 1 and staged.bindings:
        extra["bindings"] = staged.bindings
    return to_json(extra) if extra else 0


def add_part(
    values: list[Any],
    part: StagedPart,
    epoch: int,
    at: int,
    commit: str,
    number: int,
    key: str | int = 0,
    extra: str | int = 0,
) -> int:
    """Append the rows of one part, however long; how many. ``number``: which of its commit's it is."""
    columns = part.columns
    size = len(columns)
    # Extras come last: they change event rows of the whole part.
    values += (part.number, part.first, part.count, part.crc, *NO_PART)
    values += (epoch, commit, number, key, extra if size <= _WIDTH else 0, *hot_columns(part.hot))
    _add_events(values, at, columns[:_WIDTH])
    rows = 1
    for start in range(_WIDTH, size, _WIDTH):
        chunk = columns[start : start + _WIDTH]
        skipped = start // 3
        values += (part.number, part.first + skipped, len(chunk) // 3, 0, *NO_PART)
        values += (epoch, 0, 0, 0, extra if start + _WIDTH >= size else 0, *_NO_HOT)
        _add_events(values, at + skipped, chunk)
        rows += 1
    return rows


def _add_events(values: list[Any], at: int, columns: list[Any]) -> None:
    room = PADDING[EVENTS_PER_ROW - len(columns) // 3]
    values += (columns[1] if columns else 0, at)
    values += columns[0::3]
    values += room
    values += columns[2::3]
    values += room
