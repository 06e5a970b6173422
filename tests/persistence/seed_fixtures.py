"""Logs as the event-log seed's own system wrote them (format 0), made by hand after its description.

``conversation`` is what a log of its first release holds; ``pre_identity`` and ``pre_loop`` are older shapes: messages
without an id, wrapped in an object of their own; turns without steps, with a word for their end.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from seriatim.storage.event_log.frames import encode_frame

Record = dict[str, Any]
T0 = 1_750_000_000_000


def number(records: Sequence[tuple[str, Any] | tuple[str, Any, Record]]) -> list[Record]:
    """Records of these types and data, numbered from 0; a third item adds rare fields."""
    made = []
    for seq, (kind, data, *rare) in enumerate(records):
        made.append({"type": kind, "seq": seq, "time": T0 + seq, "data": data, **(rare[0] if rare else {})})
    return made


def text(said: str) -> list[Record]:
    """A message's content: one block of text."""
    return [{"type": "text", "text": said}]


def delta(said: str) -> tuple[str, Record]:
    """One stream delta."""
    return "assistant/chunk", {"turn": 1, "step": 1, "chunk": {"type": "text-delta", "index": 0, "text": said}}


APPEND: Record = {"surfaceOp": "append"}


def conversation() -> list[Record]:
    """A turn with a tool, one cut off, and a compaction over the first."""
    call = {"type": "tool-call", "id": "c1", "name": "read", "arguments": '{"path":"a"}'}
    return number([
        ("turn/start", {"turn": 1}),
        ("user/message", {"id": "m1", "role": "user", "source": {"kind": "user"}, "content": text("read a")}, APPEND),
        ("step/start", {"turn": 1, "step": 1}),
        ("request/header", {"header": {"config": {"provider": "p", "model": "m"}}, "reason": "initial"}),
        delta("I"), delta(" will"), delta(" look"),
        ("assistant/message", {
            "turn": 1, "step": 1, "usage": {"inputTokens": 7, "outputTokens": 3},
            "message": {
                "role": "assistant", "content": [{"type": "reasoning", "text": "hm"}, *text("I will look"), call],
            },
        }, {**APPEND, "sourceEventSeqs": [4, 5, 6]}),
        ("tool/call", {"turn": 1, "step": 1, "callId": "c1", "name": "read", "arguments": '{"path":"a"}'}),
        ("tool/result", {
            "turn": 1, "step": 1, "meta": {"diff": "-a"},
            "message": {"role": "user", "content": [{"type": "tool-result", "callId": "c1", "content": text("A")}]},
        }, {**APPEND, "sourceEventSeqs": [8]}),
        ("step/end", {"turn": 1, "step": 1}),
        ("hook/invoked", {"turn": 1, "point": "stop", "dialect": "d", "handler": "h"}),
        ("turn/end", {"turn": 1, "reason": {"kind": "completed"}}),
        ("session/title", {"title": "Reading"}),
        ("assistant/message", {"turn": 1, "step": 1, "message": {"role": "assistant", "content": text("It is A.")}}, {
            "surfaceOp": {"op": "replace", "start": 1, "end": 9}, "sourceEventSeqs": [1, 7, 9],
        }),
        ("turn/start", {"turn": 2}),
        ("user/message", {"id": "m2", "role": "user", "content": text("and b?")}, APPEND),
        ("step/start", {"turn": 2, "step": 1}),
        ("tool/call", {"turn": 2, "step": 1, "callId": "c2", "name": "read", "arguments": "not json"}),
    ])  # fmt: skip


def pre_identity() -> list[Record]:
    """Messages from before they had an id."""
    return number([
        ("turn/start", {"turn": 1}),
        ("user/message", {"turn": 1, "message": {"role": "user", "content": text("hello")}}, APPEND),
        ("step/start", {"turn": 1, "step": 1}),
        ("assistant/message", {"turn": 1, "step": 1, "message": {"role": "assistant", "content": text("hi")}}, APPEND),
        ("step/end", {"turn": 1, "step": 1}),
        ("turn/end", {"turn": 1, "reason": {"kind": "aborted"}}),
    ])  # fmt: skip


def pre_loop() -> list[Record]:
    """Turns from before there were steps, their end a word, their content one text."""
    return number([
        ("turn/start", {"turn": 1}),
        ("user/message", {"message": {"role": "user", "content": "hello"}}, APPEND),
        ("assistant/message", {"message": {"role": "assistant", "content": "hi"}}, APPEND),
        ("turn/end", {"turn": 1, "reason": "stop"}),
    ])  # fmt: skip


def header(session_id: str, **fields: Any) -> Record:
    """A header record of format 0."""
    return {"type": "session", "version": 0, "id": session_id, "createdAt": T0, **fields, "delegationDepth": 0}


def packed(records: Sequence[Record]) -> list[Record]:
    """The records with the run of text deltas in one row, as its writer packs three or more."""
    run = [r for r in records if r["type"] == "assistant/chunk"]
    if len(run) < 3:
        return list(records)
    row = {
        "type": "text-chunks", "seq0": run[0]["seq"], "time0": run[0]["time"],
        "data": {
            "turn": 1, "step": 1, "index": 0, "dt": [1] * (len(run) - 1),
            "texts": [r["data"]["chunk"]["text"] for r in run],
        },
    }  # fmt: skip
    at = records.index(run[0])
    return [*records[:at], row, *records[at + len(run) :]]


def write_jsonl(root: Path, head: Record, records: Sequence[Record], *, compressed: bool = True) -> Path:
    """A log in its place: the header's frame, then one frame for each half of the records."""
    name = str(head["id"]).replace("/", "~002F")
    path = root / "--srv-x--" / name / ("session.jsonl.zstd" if compressed else "session.jsonl")
    path.parent.mkdir(parents=True)
    half = len(records) // 2
    batches = [
        b"".join(json.dumps(record).encode() + b"\n" for record in batch)
        for batch in ([head], records[:half], records[half:])
    ]
    path.write_bytes(b"".join(map(encode_frame, batches)) if compressed else b"".join(batches))
    return path


def write_sqlite(path: Path, logs: Sequence[tuple[Record, Sequence[Record]]], *, schema: int = 15) -> Path:
    """A database of its first release."""
    connection = sqlite3.connect(path)
    connection.executescript(f"""
        CREATE TABLE store(singleton INTEGER PRIMARY KEY CHECK (singleton = 1), store_uuid TEXT NOT NULL) STRICT;
        CREATE TABLE sessions(
            id TEXT PRIMARY KEY, version INTEGER NOT NULL, created_at INTEGER NOT NULL, cwd TEXT, parent_session TEXT,
            seed_length INTEGER, origin TEXT, delegation_depth INTEGER, agent_preset TEXT,
            incarnation TEXT NOT NULL, revision INTEGER NOT NULL) STRICT;
        CREATE TABLE events(
            session_id TEXT NOT NULL REFERENCES sessions(id) ON DELETE CASCADE, seq INTEGER NOT NULL,
            type TEXT NOT NULL, time INTEGER NOT NULL, data TEXT NOT NULL, source_event_seqs TEXT, surface_op TEXT,
            ignorable INTEGER CHECK (ignorable IS NULL OR ignorable = 1), PRIMARY KEY (session_id, seq)) STRICT;
        PRAGMA user_version = {schema};
        INSERT INTO store VALUES (1, '5e5e');
    """)
    for head, records in logs:
        fields = (
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
        connection.execute(
            "INSERT INTO sessions VALUES (?,?,?,?,?,?,?,?,?,'i',1)", [head.get(field) for field in fields]
        )
        for record in records:
            rare = [record.get(key) for key in ("sourceEventSeqs", "surfaceOp")]
            connection.execute(
                "INSERT INTO events VALUES (?,?,?,?,?,?,?,?)",
                [head["id"], record["seq"], record["type"], record["time"], json.dumps(record["data"])]
                + [None if item is None else json.dumps(item) for item in rare]
                + [1 if record.get("ignorable") else None],
            )
    connection.commit()
    connection.close()
    return path
