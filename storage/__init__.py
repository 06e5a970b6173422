"""Stores: what a gateway keeps its logs in."""

from .contract import Archive, Balance, Checkpoint, Store, StoreReader
from .memory import MemoryStore
from .sqlite import SqliteStore

__all__ = ["Archive", "Balance", "Checkpoint", "MemoryStore", "SqliteStore", "Store", "StoreReader"]
