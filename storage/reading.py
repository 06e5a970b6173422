"""Rows of the SQLite store become events: each part checked against the chain, many decoded at once.

The common case runs as a few C loops over a stretch of parts. Whatever is out of the ordinary about a stretch, rare
fields or damage, is gone through row by row, which knows exactly what is wrong where.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from sys import intern
from typing import Any, Final

from seriatim.errors import CorruptionError
from seriatim.events import Event, LogId
from seriatim.upcasters import UPCASTERS, upcast

from .encoding import Rare, chain, chain_plain, decode_event, from_json, sum_text

PARTS_AT_ONCE: Final = 128
"""A stretch: bounds what reading holds beside the events themselves."""

PartRow = tuple[int, int, int, str]
EventRow = tuple[int, int, str, int, str, str | None, str | None, int | None]


class Reading:
    """One log from one part on. ``head`` and ``crc``: where the next part has to begin, and the chain before it."""

    def __init__(self, file: str, log: LogId, number: int, head: int, crc: int, from_seq: int) -> None:
        self.file = file
        self.log, self.number, self.head, self.crc, self.from_seq = log, number, head, crc, from_seq

    def read(self, parts: sqlite3.Cursor, rows: sqlite3.Cursor, limit: int | None) -> list[Event]:
        """The events; ``parts`` as (first, count, crc, id), ``rows`` their events in order. Raises CorruptionError."""
        found: list[Event] = []
        at_once = PARTS_AT_ONCE if limit is None else min(PARTS_AT_ONCE, limit)
        while stretch := parts.fetchmany(at_once):
            count = sum([part[1] for part in stretch])
            found += self._stretch(stretch, rows.fetchmany(count) if count else [])
            if limit is not None and len(found) >= limit:
                return found[:limit]
        return found

    def damaged(self, seq: int, reason: str) -> CorruptionError:
        """The error that says where."""
        return CorruptionError(f"{self.log} at {seq}", reason, log=self.log, seq=seq, file=self.file)

    def _stretch(self, parts: list[PartRow], rows: list[EventRow]) -> list[Event]:
        columns = self._plain(parts, rows)
        if columns is None:
            return self._exact(parts, rows)
        kinds, seqs, times, texts = columns
        try:
            datas = from_json(f"[{','.join(texts)}]")
        except ValueError:
            return self._exact(parts, rows)
        if not UPCASTERS.keys().isdisjoint(kinds):
            datas = list(map(upcast, kinds, datas))
        last = parts[-1]
        self.head, self.crc = last[0] + last[1], last[2]
        events = list(map(Event, map(intern, kinds), seqs, times, datas))
        return events[max(0, self.from_seq - seqs[0]) :]

    def _plain(self, parts: list[PartRow], rows: list[EventRow]) -> tuple[Any, Any, Any, Any] | None:
        """Types, numbers, times and texts of a stretch in which nothing is rare and all is right; else None."""
        if not rows:
            return None
        logs, seqs, kinds, times, texts, sources, operations, ignorable = zip(*rows, strict=True)
        count, head = len(rows), self.head
        if (
            seqs != tuple(range(head, head + count))
            or logs.count(self.number) != count
            or not sources.count(None) == operations.count(None) == ignorable.count(None) == count
        ):
            return None
        number, crc = self.number, self.crc
        written = list(map(repr, times))
        start = 0
        for first, size, crc_there, commit in parts:
            end = start + size
            crc, _ = chain_plain(crc, commit, number, first, kinds[start:end], written[start:end], texts[start:end])
            if first != head + start or crc != crc_there:
                return None
            start = end
        return (kinds, seqs, times, texts) if start == count else None

    def _exact(self, parts: list[PartRow], rows: list[EventRow]) -> list[Event]:
        found: list[Event] = []
        start = 0
        for first, count, crc, commit in parts:
            if first != self.head:
                raise self.damaged(self.head, "a part is missing or incomplete")
            found += self._part(rows[start : start + count], first, count, crc, commit)
            start += count
        return found

    def _part(self, rows: Sequence[EventRow], first: int, count: int, crc: int, commit: str) -> list[Event]:
        rare: dict[int, Rare] = {}
        for place, (log, seq, _, _, _, sources, operation, ignorable) in enumerate(rows):
            if log != self.number or seq != first + place:
                raise self.damaged(first + place, "an event is missing or belongs elsewhere")
            if sources is not None or operation is not None or ignorable is not None:
                rare[place] = Rare(place, sources, operation, ignorable)
        if len(rows) != count:
            raise self.damaged(first + len(rows), "an event is missing or belongs elsewhere")
        kinds, times, texts = [row[2] for row in rows], [row[3] for row in rows], [row[4] for row in rows]
        self.crc = chain(self.crc, commit, sum_text(self.number, first, kinds, times, texts, list(rare.values())))
        if self.crc != crc:
            raise self.damaged(first, "the checksum along the log is broken")
        self.head = first + count
        return [
            decode_event(row[2], row[1], row[3], self._data(row), rare.get(place))
            for place, row in enumerate(rows)
            if row[1] >= self.from_seq
        ]

    def _data(self, row: EventRow) -> dict[str, Any]:
        try:
            data: dict[str, Any] = from_json(row[4])
        except ValueError:
            raise self.damaged(row[1], "an event's data is not JSON") from None
        return data
