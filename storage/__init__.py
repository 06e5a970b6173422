"""Stores: what a gateway keeps its logs in."""

from seriatim.vocabulary import KNOWN_SESSION_EVENT_TYPES

from .contract import Archive, Balance, Checkpoint, Store, StoreReader
from .memory import MemoryStore
from .sqlite import SqliteStore

__all__ = [
    "KNOWN_SESSION_EVENT_TYPES",
    "Archive",
    "Balance",
    "Checkpoint",
    "MemoryStore",
    "SqliteStore",
    "Store",
    "StoreReader",
]
