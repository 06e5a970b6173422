"""The media that the contract runs on."""

from __future__ import annotations

from pathlib import Path

from seriatim.storage.contract import Store
from seriatim.storage.memory import MemoryDisk, MemoryStore
from seriatim.storage.sqlite import SqliteStore
from seriatim.storage.sqlite_reader import SqliteReader
from seriatim.testing.snapshot import snapshot_files


class MemoryWorld:
    """A disk in memory; a crash changes nothing on it."""

    def __init__(self) -> None:
        self.disk = MemoryDisk()

    def open(self) -> Store:
        """A new owner."""
        return MemoryStore(self.disk)

    def crash(self) -> None:
        """The disk stays as it is."""


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
        self.path = Path(snapshot_files(self.path, self.folder / str(self.crashes)))

    def close(self) -> None:
        """Release what tests left open."""
        for store in self.stores:
            store.close()
            for reader in store.readers:
                reader.close()
