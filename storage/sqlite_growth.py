"""Checkpoints and archives in the SQLite file. The writer's half runs beside group commits, a few statements a call."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from typing import Any, Final, Literal

from seriatim.errors import CorruptionError, HeadMismatchError, LogNotFoundError, OwnershipLostError
from seriatim.events import LogId

from .checkpoints import archive_sum, archive_text, checkpoint_sum, checkpoint_text
from .contract import Archive, Balance, Checkpoint
from .encoding import from_json
from .staging import is_name


def keep(connection: sqlite3.Connection, epoch: int, checkpoints: Sequence[Checkpoint]) -> int:
    """See ``Store.keep``; one statement whatever their number. Raises sqlite3.Error."""
    rows = []
    for checkpoint in checkpoints:
        text, crc = checkpoint_text(checkpoint)
        if is_name(checkpoint.log):
            rows.append([checkpoint.log, checkpoint.of, checkpoint.seq, checkpoint.version, crc, text])
    return connection.execute(_KEEP, [json.dumps(rows), epoch]).rowcount


def compact(connection: sqlite3.Connection, epoch: int, archive: Archive, parts_max: int) -> bool:
    """See ``Store.compact``; one transaction. Raises sqlite3.Error besides."""
    text = archive_text(archive)
    connection.execute("BEGIN IMMEDIATE")
    try:
        more = _compact(connection, epoch, archive, text, parts_max)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return more


def _compact(connection: sqlite3.Connection, epoch: int, archive: Archive, text: str, parts_max: int) -> bool:
    if connection.execute("SELECT epoch FROM meta").fetchone() != (epoch,):
        raise OwnershipLostError(f"epoch {epoch} has given way to another owner")
    place = _place(connection, archive.log)
    if place is None:
        raise LogNotFoundError(archive.log)
    number, present = place
    base, counts = archive.base, archive.counts
    if base != present:
        end = connection.execute(_END, [number, base]).fetchone()
        if base < present or end is None or end[0] != base:
            raise HeadMismatchError(archive.log, base, present if end is None else end[0])
        crc = archive_sum(archive.log, base, end[1], archive.version, counts, text)
        numbers = (counts.accepted, counts.answered, counts.merged, counts.dropped)
        connection.execute(_ARCHIVE, [number, base, end[1], archive.version, *numbers, crc, text])
    hidden = connection.execute(_HIDDEN, [number, base, number, parts_max + 1]).fetchall()
    rows = json.dumps(hidden[:parts_max])
    connection.execute(_REMOVE_EVENTS, [rows])
    connection.execute(_REMOVE_PARTS, [rows])
    return len(hidden) > parts_max


def _place(connection: sqlite3.Connection, log: LogId) -> tuple[int, int] | None:
    """The log's number and where it begins."""
    name = log if is_name(log) else None
    row: tuple[int, int] | None = connection.execute(_PLACE, [name]).fetchone()
    return row


def read_checkpoint(connection: sqlite3.Connection, log: LogId, of: Literal["state", "surface"]) -> Checkpoint | None:
    """See ``StoreReader.checkpoint``. Raises sqlite3.Error."""
    row = connection.execute(_CHECKPOINT, [log if is_name(log) else None, of]).fetchone()
    if row is None:
        return None
    seq, version, chain, crc, text, end, found = row
    if end != seq or chain != found or crc != checkpoint_sum(log, of, seq, version, text):
        return None
    try:
        data: Any = from_json(text)
    except ValueError:
        return None
    return Checkpoint(log, of, seq, version, data)


def read_archive(connection: sqlite3.Connection, log: LogId) -> Archive | None:
    """See ``StoreReader.archive``. Raises sqlite3.Error besides."""
    row = connection.execute(_READ_ARCHIVE, [log if is_name(log) else None]).fetchone()
    if row is None:
        return None
    base, chain, version, accepted, answered, merged, dropped, crc, text = row
    counts = Balance(accepted, answered, merged, dropped, 0)
    if crc != archive_sum(log, base, chain, version, counts, text):
        raise CorruptionError(f"{log} before {base}", "the archive's checksum is broken", log=log, seq=0)
    return Archive(log, base, version, counts, from_json(text))


_KEEP: Final = """
INSERT INTO checkpoints(log, of, seq, version, chain, crc, data)
SELECT l.n, json_extract(j.value, '$[1]'), c.first + c.count, json_extract(j.value, '$[3]'), c.crc,
  json_extract(j.value, '$[4]'), json_extract(j.value, '$[5]')
FROM json_each(?) j JOIN logs l ON l.id = json_extract(j.value, '$[0]') JOIN commits c ON c.rowid = (
  SELECT rowid FROM commits WHERE log = l.n AND first < json_extract(j.value, '$[2]')
  ORDER BY first DESC, count DESC LIMIT 1)
WHERE c.first + c.count = json_extract(j.value, '$[2]') AND (SELECT epoch FROM meta) = ?
ON CONFLICT(log, of) DO UPDATE SET seq = excluded.seq, version = excluded.version, chain = excluded.chain,
  crc = excluded.crc, data = excluded.data"""
_CHECKPOINT: Final = """
SELECT k.seq, k.version, k.chain, k.crc, k.data, c.first + c.count, c.crc
FROM logs l JOIN checkpoints k ON k.log = l.n LEFT JOIN commits c ON c.rowid = (
  SELECT rowid FROM commits WHERE log = l.n AND first < k.seq ORDER BY first DESC, count DESC LIMIT 1)
WHERE l.id = ? AND k.of = ?"""
_PLACE: Final = "SELECT l.n, coalesce(a.base, 0) FROM logs l LEFT JOIN archives a ON a.log = l.n WHERE l.id = ?"
_END: Final = """
SELECT first + count, crc FROM commits WHERE log = ? AND first < ? ORDER BY first DESC, count DESC LIMIT 1"""
_ARCHIVE: Final = "INSERT OR REPLACE INTO archives VALUES (?,?,?,?,?,?,?,?,?,?)"
_READ_ARCHIVE: Final = """
SELECT a.base, a.chain, a.version, a.accepted, a.answered, a.merged, a.dropped, a.crc, a.data
FROM logs l JOIN archives a ON a.log = l.n WHERE l.id = ?"""
# The newest part stays whatever the base: it tells the log's head, and the checksum that the next part goes on from.
_HIDDEN: Final = """
SELECT rowid, at, count FROM commits
WHERE log = ? AND first < ? AND first < (SELECT max(first) FROM commits WHERE log = ?)
ORDER BY first LIMIT ?"""
_REMOVE_EVENTS: Final = """
DELETE FROM events WHERE at IN (
  SELECT e.at FROM json_each(?) j JOIN events e ON e.at BETWEEN json_extract(j.value, '$[1]')
    AND json_extract(j.value, '$[1]') + json_extract(j.value, '$[2]') - 1)"""
_REMOVE_PARTS: Final = "DELETE FROM commits WHERE rowid IN (SELECT json_extract(value, '$[0]') FROM json_each(?))"
