"""The media that the contract runs on."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
from pathlib import Path
from typing import Any, Literal

from seriatim.events import LogId
from seriatim.storage.blobs import blobs_of
from seriatim.storage.contract import Store
from seriatim.storage.memory import MemoryDisk, MemoryStore
from seriatim.storage.schema import APPLICATION_ID, FORMAT
from seriatim.storage.sqlite import SqliteStore
from seriatim.storage.sqlite_reader import SqliteReader
from seriatim.testing.snapshot import snapshot_files

Kind = Literal["own", "newer", "older", "foreign"]


class FailingConnection:
    """Stands before the writer's connection and fails its next write, before or after it was done."""

    def __init__(self, inner: sqlite3.Connection, code: int, *, done: bool) -> None:
        self.inner, self.code, self.done = inner, code, done

    def __getattr__(self, name: str) -> Any:
        """All else is the connection's."""
        return getattr(self.inner, name)

    def execute(self, sql: str, *values: Any) -> Any:
        """Fail a write: a group's one step, or the commit of a transaction."""
        if sql == "COMMIT" or (sql.startswith("INSERT INTO group_commit") and not self.inner.in_transaction):
            if self.done:
                self.inner.execute(sql, *values)
            error = sqlite3.OperationalError("scripted")
            error.sqlite_errorcode, error.sqlite_errorname = self.code, "SCRIPTED"
            raise error
        return self.inner.execute(sql, *values)


def fail(store: SqliteStore, code: int, *, done: bool = False) -> None:
    """Make the store's next write fail."""
    assert store._connection is not None
    store._connection = FailingConnection(store._connection, code, done=done)  # type: ignore[assignment]


class MemoryWorld:
    """A disk in memory; a crash changes nothing on it."""

    def __init__(self) -> None:
        self.disk = MemoryDisk()

    def open(self) -> Store:
        """A new owner."""
        return MemoryStore(self.disk)

    def crash(self) -> None:
        """The disk stays as it is."""

    def fail(self, store: Store, *, done: bool) -> None:
        """The disk does."""
        self.disk.fail_next(done=done)

    def damage(self, log: LogId, seq: int) -> None:
        """Change the text in the part that holds it."""
        for _, part in self.disk.logs[log].parts:
            if part.first <= seq < part.first + part.count:
                part.columns[3 * (seq - part.first) + 2] = '{"n":99}'

    def damage_blob(self, name: str) -> None:
        """Change its first byte."""
        data, time = self.disk.blobs[name]
        self.disk.blobs[name] = b"!" + data[1:], time

    def relabel(self, kind: Kind) -> None:
        """Change the disk's format."""
        self.disk.format = {"own": FORMAT, "newer": FORMAT + 1, "older": 0, "foreign": None}[kind]

    def holds(self, text: str) -> bool:
        """Look at all that the disk refers to."""
        return text in repr(vars(self.disk))


class TidyStore(SqliteStore):
    """Remembers its readers, so that a test needn't close each."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.readers: list[SqliteReader] = []

    def reader(self) -> SqliteReader:
        """As ever."""
        made = super().reader()
        self.readers.append(made)
        return made


class SqliteWorld:
    """Files in a folder; a crash goes on with a copy of them as they lie there, nothing closed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "0" / "state.db"
        self.path.parent.mkdir()
        self.stores: list[TidyStore] = []
        self.crashes = 0

    def open(self) -> TidyStore:
        """A new owner."""
        store = TidyStore(self.path)
        self.stores.append(store)
        return store

    def crash(self) -> None:
        """Copy database and WAL as a kill would leave them."""
        self.crashes += 1
        copy = Path(snapshot_files(self.path, self.folder / str(self.crashes)))
        if (blobs := blobs_of(str(self.path))).exists():
            shutil.copytree(blobs, blobs_of(str(copy)))
        self.path = copy

    def fail(self, store: Store, *, done: bool) -> None:
        """The connection does."""
        assert isinstance(store, SqliteStore)
        fail(store, sqlite3.SQLITE_IOERR_FSYNC, done=done)

    def damage(self, log: LogId, seq: int) -> None:
        """Change the row with another connection."""
        where = "seq = ? AND log = (SELECT n FROM logs WHERE id = ?)"
        self._change(f"UPDATE events SET data = '{{\"n\":99}}' WHERE {where}", seq, log)

    def damage_blob(self, name: str) -> None:
        """Change its first byte."""
        with (blobs_of(str(self.path)) / name[:2] / name).open("r+b") as file:
            file.write(b"!")

    def relabel(self, kind: Kind) -> None:
        """Change the marks in the file's header."""
        self._change(f"PRAGMA application_id = {77 if kind == 'foreign' else APPLICATION_ID}")
        self._change(f"PRAGMA user_version = { {'newer': FORMAT + 1, 'older': 0}.get(kind, FORMAT) }")

    def holds(self, text: str) -> bool:
        """Look through all files, from another process: our opening them here would drop SQLite's locks."""
        return subprocess.run(["grep", "-rqF", "--", text, self.path.parent], check=False).returncode == 0

    def _change(self, sql: str, *values: Any) -> None:
        connection = sqlite3.connect(self.path, isolation_level=None)
        connection.execute(sql, values)
        connection.close()

    def close(self) -> None:
        """Release what tests left open."""
        for store in self.stores:
            store.close()
            for reader in store.readers:
                reader.close()
