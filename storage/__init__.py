"""Stores: what a gateway keeps its logs in."""

from .contract import Balance, Store, StoreReader
from .memory import MemoryStore
from .sqlite import SqliteStore

__all__ = ["Balance", "MemoryStore", "SqliteStore", "Store", "StoreReader"]
