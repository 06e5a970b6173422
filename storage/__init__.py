"""Stores: what a gateway keeps its logs in."""

from seriatim.vocabulary import KNOWN_SESSION_EVENT_TYPES

from .contract import Balance, Store, StoreReader
from .memory import MemoryStore
from .sqlite import SqliteStore

__all__ = ["KNOWN_SESSION_EVENT_TYPES", "Balance", "MemoryStore", "SqliteStore", "Store", "StoreReader"]
