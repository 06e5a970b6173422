"""Stores: what a gateway keeps its logs in; and the event-log service, sessions alone, over a store or JSONL files."""

from seriatim.errors import SessionFormatUnsupportedError, SessionPersistenceCorruptionError
from seriatim.vocabulary import KNOWN_SESSION_EVENT_TYPES

from .contract import (
    Archive,
    Balance,
    BlobsSwept,
    Checkpoint,
    Erasure,
    KeysPruned,
    LogInfo,
    Store,
    StoreHealth,
    StoreReader,
)
from .event_log.header import SESSION_FORMAT_VERSION, SessionHeader
from .event_log.jsonl import JsonlLogs
from .event_log.live import LiveSessions
from .event_log.persistence import SessionPersistence
from .event_log.values import (
    CreateSessionOptions,
    RestoredSessionOptions,
    SessionEvent,
    SessionInspection,
    SessionLocation,
    SessionPersistenceSnapshot,
    SessionPreparation,
    SessionRawArtifact,
)
from .memory import MemoryStore
from .sqlite import SqliteStore

__all__ = [
    "KNOWN_SESSION_EVENT_TYPES",
    "SESSION_FORMAT_VERSION",
    "Archive",
    "Balance",
    "BlobsSwept",
    "Checkpoint",
    "CreateSessionOptions",
    "Erasure",
    "JsonlLogs",
    "KeysPruned",
    "LiveSessions",
    "LogInfo",
    "MemoryStore",
    "RestoredSessionOptions",
    "SessionEvent",
    "SessionFormatUnsupportedError",
    "SessionHeader",
    "SessionInspection",
    "SessionLocation",
    "SessionPersistence",
    "SessionPersistenceCorruptionError",
    "SessionPersistenceSnapshot",
    "SessionPreparation",
    "SessionRawArtifact",
    "SqliteStore",
    "Store",
    "StoreHealth",
    "StoreReader",
]
