"""Reading what the event-log seed's own system wrote: its JSONL files and its SQLite file, format 0 (seed §§15-17).

Only read, never repaired. A log's first record is its header, tagged "session"; runs of stream deltas may be packed in
one row. A bad row or a hole after the last ``turn/end`` is a torn tail and is left out, one before it is damage.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from attrs import frozen

from seriatim.errors import (
    InvalidInputError,
    LosslessJsonError,
    SessionFormatUnsupportedError,
    SessionPersistenceCorruptionError,
    StoreError,
)
from seriatim.events import SAFE_INTEGER_MAX

from .frames import FrameError, TornError, decode_frame, decode_torn, frame_within, read_frame
from .header import SESSION_FORMAT_VERSION, SessionHeader
from .lines import from_stored, parse
from .values import Problem, SessionEvent

SEED_FORMAT: Final = 0
_SCHEMA: Final = 15
_RETIRED: Final = ("sandboxMode", "approvalPolicy")
_PACKED: Final = {
    "text-chunks": "text-delta",
    "reasoning-chunks": "reasoning-delta",
    "tool-call-chunks": "tool-call-delta",
}


@frozen
class SeedLog:
    """One session as it was written. ``dropped``: records of a torn tail that are not among ``events``."""

    header: SessionHeader
    events: tuple[SessionEvent, ...]
    dropped: int


def read_jsonl(root: Path) -> Iterator[SeedLog | Problem]:
    """Every session below ``root`` (``project/session/session.jsonl[.zstd]``), or what is wrong with it."""
    for path in sorted((*root.glob("*/*/session.jsonl.zstd"), *root.glob("*/*/session.jsonl"))):
        try:
            yield _read_file(path)
        except (StoreError, OSError) as error:
            yield Problem(str(path), error)


def read_sqlite(path: Path) -> Iterator[SeedLog | Problem]:
    """Every session of the database, or what is wrong with it. Raises SessionFormatUnsupportedError for another one."""
    connection = sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True)
    try:
        _check_schema(connection, str(path))
        headers = connection.execute(
            "SELECT id, version, created_at, cwd, parent_session, seed_length, origin, delegation_depth, agent_preset "
            "FROM sessions ORDER BY id"
        ).fetchall()
        for row in headers:
            where = f"{path} session {row[0]!r}"
            try:
                yield _read_rows(connection, where, row)
            except StoreError as error:
                yield Problem(where, error)
    except sqlite3.DatabaseError as error:
        raise SessionPersistenceCorruptionError(str(path), f"can't be read as a database ({error})") from None
    finally:
        connection.close()


def _read_file(path: Path) -> SeedLog:
    lines = _frame_lines(path) if path.suffix == ".zstd" else path.read_bytes().split(b"\n")
    first, *rest = lines
    try:
        stored = parse(first)
    except ValueError:
        raise SessionPersistenceCorruptionError(str(path), "its first line is not JSON") from None
    if type(stored) is not dict or stored.get("type") != "session":
        raise SessionFormatUnsupportedError(str(path), "foreign", "is no log of the event-log seed's system", str(path))
    header = _header(str(path), stored)
    records = [line for line in rest if line]
    return _fold(str(path), header, [_parsed(line) for line in records])


def _frame_lines(path: Path) -> list[bytes]:
    """The lines of all frames, and the whole ones of a torn last frame (the seed's rule)."""
    content: list[bytes] = []
    with path.open("rb") as file:
        while True:
            start = file.tell()
            try:
                frame = read_frame(file)
                if frame is None:
                    break
                content.append(decode_frame(frame) if frame else b"")
            except TornError:
                if frame_within(file, start + 1, file.tell()):
                    reason = "a frame reaches into the one after it"
                    raise SessionPersistenceCorruptionError(f"{path} at byte {start}", reason) from None
                file.seek(start)
                content.append(decode_torn(file.read()).rpartition(b"\n")[0])
                break
            except FrameError as error:
                raise SessionPersistenceCorruptionError(f"{path} at byte {start}", f"a frame {error}") from None
    return b"".join(content).split(b"\n")


def _header(where: str, stored: Mapping[str, Any]) -> SessionHeader:
    version = stored.get("version")
    if type(version) is not int or version != SEED_FORMAT:
        direction = "upgrade" if type(version) is int and version > SEED_FORMAT else "no path"
        raise SessionFormatUnsupportedError(where, direction, f"has format {version!r:.40}, not {SEED_FORMAT}", where)
    if any(name in stored for name in _RETIRED):
        raise SessionFormatUnsupportedError(where, "no path", "its header has retired fields", where)
    fields = {key: value for key, value in stored.items() if value is not None}
    try:
        return SessionHeader.from_json({**fields, "version": SESSION_FORMAT_VERSION})
    except InvalidInputError as error:
        raise SessionPersistenceCorruptionError(where, f"its header's {error}") from None


def _fold(where: str, header: SessionHeader, records: Sequence[Any]) -> SeedLog:
    """The contiguous events of the records; judges what follows the first bad one."""
    events: list[SessionEvent] = []
    for place, record in enumerate(records):
        try:
            for stored in _unpack(record):
                events.append(from_stored(stored, len(events)))
        except (InvalidInputError, ValueError, KeyError, TypeError) as error:
            if any(type(later) is dict and later.get("type") == "turn/end" for later in records[place + 1 :]):
                reason = str(error) if not isinstance(error, LosslessJsonError) else "holds what isn't lossless JSON"
                raise SessionPersistenceCorruptionError(f"{where} record {place}", reason) from None
            return SeedLog(header, tuple(events), len(records) - place)
    return SeedLog(header, tuple(events), 0)


def _parsed(line: bytes) -> Any:
    try:
        return parse(line)
    except ValueError:
        return None


def _unpack(record: Any) -> Iterator[Mapping[str, Any]]:
    """The events of a record: itself, or the deltas that were packed in it."""
    if type(record) is not dict:
        raise ValueError("a record is not JSON")
    kind = _PACKED.get(str(record.get("type")))
    if kind is None:
        yield record
        return
    data, seq, time = record["data"], record["seq0"], record["time0"]
    texts: list[str] = data["args" if kind == "tool-call-delta" else "texts"]
    gaps: list[int] = [0, *data["dt"]]
    if len(gaps) != len(texts) or not all(type(gap) is int and abs(gap) <= SAFE_INTEGER_MAX for gap in gaps):
        raise ValueError("a packed row's times don't fit its texts")
    same = {key: data[key] for key in ("id", "name") if key in data}
    for place, (text, gap) in enumerate(zip(texts, gaps, strict=True)):
        time += gap
        said = {"argumentsDelta": text} if kind == "tool-call-delta" else {"text": text}
        chunk = {"type": kind, "index": data["index"], **same, **said}
        yield {
            "type": "assistant/chunk",
            "seq": seq + place,
            "time": time,
            "data": {"turn": data["turn"], "step": data["step"], "chunk": chunk},
        }


def _check_schema(connection: sqlite3.Connection, where: str) -> None:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    if not {"store", "sessions", "events"} <= tables:
        raise SessionFormatUnsupportedError(where, "foreign", "is no database of the event-log seed's system", where)
    if version != _SCHEMA:
        direction = "upgrade" if version > _SCHEMA else "no path"
        raise SessionFormatUnsupportedError(where, direction, f"has schema {version}, only {_SCHEMA} is read", where)


def _read_rows(connection: sqlite3.Connection, where: str, row: Sequence[Any]) -> SeedLog:
    names = (
        "id",
        "version",
        "createdAt",
        "cwd",
        "parentSession",
        "seedLength",
        "origin",
        "delegationDepth",
        "agentPreset",
    )
    header = _header(where, dict(zip(names, row, strict=True)))
    rows = connection.execute(
        "SELECT seq, type, time, data, source_event_seqs, surface_op, ignorable FROM events "
        "WHERE session_id = ? ORDER BY seq",
        [header.id],
    )
    return _fold(where, header, [_row(*cells) for cells in rows])


def _row(seq: int, kind: str, time: int, data: str, sources: str | None, operation: str | None, ignorable: Any) -> Any:
    """The record of a row; without its data where that isn't JSON, which ``_fold`` then finds."""
    record: dict[str, Any] = {"type": kind, "seq": seq, "time": time}
    try:
        record["data"] = json.loads(data)
        if sources is not None:
            record["sourceEventSeqs"] = json.loads(sources)
        if operation is not None:
            record["surfaceOp"] = json.loads(operation)
    except (ValueError, TypeError):
        return {"type": kind}
    if ignorable is not None:
        record["ignorable"] = ignorable == 1
    return record
