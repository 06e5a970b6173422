"""The media that the event-log service's contract runs on."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import attrs

from seriatim.events import session_log
from seriatim.storage.event_log.backend import LogBackend
from seriatim.storage.event_log.frames import decode_frame, encode_frame, read_frame
from seriatim.storage.event_log.jsonl import JsonlLogs
from seriatim.storage.event_log.scan import Encoding
from seriatim.storage.event_log.store_logs import StoreLogs
from seriatim.storage.memory import MemoryDisk, MemoryStore
from seriatim.storage.sqlite import SqliteStore
from seriatim.testing.log_contract import Capability


class MemoryWorld:
    """A disk in memory."""

    capabilities: frozenset[Capability] = frozenset({"version", "damage"})

    def __init__(self) -> None:
        self.disk = MemoryDisk()

    def open(self) -> LogBackend:
        """A store on it."""
        return StoreLogs(MemoryStore(self.disk))

    def elsewhere(self) -> LogBackend:
        """A store on another one."""
        return StoreLogs(MemoryStore())

    def tear(self, session_id: str) -> None:
        """A commit in memory is there or not."""
        raise NotImplementedError

    def set_version(self, session_id: str, version: Any) -> None:
        """Rewrite the header's text."""
        log = self.disk.logs[session_log(session_id)]
        log.header = _with_version(log.header, version)

    def damage(self, session_id: str) -> None:
        """Change a letter of the first part's text."""
        part = self.disk.logs[session_log(session_id)].parts[0][1]
        part.columns = [c.replace("damage", "damaGe") if isinstance(c, str) else c for c in part.columns]


class SqliteWorld:
    """A database in a folder."""

    capabilities: frozenset[Capability] = frozenset({"version", "damage"})

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "state.db"

    def open(self) -> LogBackend:
        """A new owner of the file."""
        return StoreLogs(SqliteStore(self.path))

    def elsewhere(self) -> LogBackend:
        """A store in another file."""
        return StoreLogs(SqliteStore(self.folder / "other.db"))

    def tear(self, session_id: str) -> None:
        """A transaction is there or not."""
        raise NotImplementedError

    def set_version(self, session_id: str, version: Any) -> None:
        """Rewrite the header's text."""
        with sqlite3.connect(self.path) as connection:
            (text,) = connection.execute("SELECT header FROM logs WHERE id = ?", [session_log(session_id)]).fetchone()
            connection.execute(
                "UPDATE logs SET header = ? WHERE id = ?", [_with_version(text, version), session_log(session_id)]
            )
        connection.close()

    def damage(self, session_id: str) -> None:
        """Change a letter of the first events' text."""
        with sqlite3.connect(self.path) as connection:
            connection.execute(
                "UPDATE events SET data = replace(data, 'damage', 'damaGe') "
                "WHERE log = (SELECT n FROM logs WHERE id = ?)",
                [session_log(session_id)],
            )
        connection.close()


class JsonlWorld:
    """A folder of files in one encoding."""

    capabilities: frozenset[Capability] = frozenset({"raw", "torn", "version", "damage"})

    def __init__(self, folder: Path, encoding: Encoding) -> None:
        self.folder = folder
        self.encoding: Encoding = encoding

    def open(self) -> JsonlLogs:
        """Logs below the folder."""
        return JsonlLogs(self.folder / "logs", self.encoding)

    def elsewhere(self) -> LogBackend:
        """Logs below another one."""
        return JsonlLogs(self.folder / "other", self.encoding)

    def path(self, session_id: str) -> Path:
        """The session's file."""
        found = self.open()._places.find(session_id)
        assert found is not None
        return found

    def tear(self, session_id: str) -> None:
        """Half of a batch."""
        line = b'{"type":"turn/start","seq":3,"time":1,"data":{"turn":1}}\n'
        with self.path(session_id).open("ab") as file:
            file.write(encode_frame(line)[:-7] if self.encoding == "zstd" else line + line[:20])

    def set_version(self, session_id: str, version: Any) -> None:
        """Write the header's line anew."""
        path = self.path(session_id)
        if self.encoding == "raw":
            first, _, rest = path.read_bytes().partition(b"\n")
            path.write_bytes(_with_version(first.decode(), version).encode() + b"\n" + rest)
            return
        with path.open("rb") as file:
            frame = read_frame(file)
            assert frame
            line, rest = decode_frame(frame), file.read()
        path.write_bytes(encode_frame(_with_version(line.decode(), version).encode() + b"\n") + rest)

    def damage(self, session_id: str) -> None:
        """Change a byte in the middle of the first batch of events."""
        path = self.path(session_id)
        content = bytearray(path.read_bytes())
        if self.encoding == "raw":
            at = content.index(b"damage")
        else:
            with path.open("rb") as file:
                first, second = read_frame(file), read_frame(file)
            assert first
            assert second
            at = len(first) + len(second) // 2
        content[at] ^= 0x20
        path.write_bytes(content)


def _with_version(header: str, version: Any) -> str:
    stored = json.loads(header)
    stored["version"] = version
    if version is None:
        del stored["version"]
    return json.dumps(stored)


@attrs.frozen
class Medium:
    """How a world is made. ``name`` stands in the test's id."""

    name: str

    def make(self, folder: Path) -> MemoryWorld | SqliteWorld | JsonlWorld:
        """A fresh one."""
        if self.name == "memory":
            return MemoryWorld()
        if self.name == "sqlite":
            return SqliteWorld(folder)
        return JsonlWorld(folder, "raw" if self.name == "jsonl-raw" else "zstd")


MEDIA = [Medium(name) for name in ("memory", "sqlite", "jsonl-raw", "jsonl-zstd")]
