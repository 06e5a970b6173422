"""What this version reads: asked before anything else is, on every path alike (seed, "format refusal"; §17).

A log that is refused here is intact. Its bytes are left as they are, and nobody calls it damaged.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Any

from seriatim.errors import InvalidInputError, SessionFormatUnsupportedError, SessionPersistenceCorruptionError
from seriatim.events import Event

from .header import SESSION_FORMAT_VERSION, SessionHeader
from .lines import APPLICATION, HEADER_TYPE, parse


def check_version(where: str, version: object, location: str | None = None) -> None:
    """Raise SessionFormatUnsupportedError unless a log of this version can be read."""
    if type(version) is int and version == SESSION_FORMAT_VERSION:
        return
    if type(version) is int and version > SESSION_FORMAT_VERSION:
        said = f"has format {version}, written by a newer version; upgrade to open it (this one reads {{}})"
        raise SessionFormatUnsupportedError(where, "upgrade", said.format(SESSION_FORMAT_VERSION), location)
    said = "names no format" if version is None else f"has format {version!r:.40}"
    raise SessionFormatUnsupportedError(
        where, "no path", f"{said}; this version reads {SESSION_FORMAT_VERSION} and has no path from it", location
    )


def check_known(where: str, events: Iterable[Event], known: Container[str], location: str | None = None) -> None:
    """Raise SessionFormatUnsupportedError for the first event that must be understood and isn't.

    Passing over it could change what the rest means; its writer marks what may be passed over as ``ignorable``.
    """
    for event in events:
        if event.type not in known and not event.ignorable:
            raise SessionFormatUnsupportedError(
                f"{where} at {event.seq}",
                "upgrade",
                f"holds {event.type!r}, which this version doesn't know and may not pass over; upgrade to open it",
                location,
            )


def read_header(where: str, stored: Any, location: str | None = None) -> SessionHeader:
    """The header of a stored object, its version judged first.

    Raises SessionFormatUnsupportedError, or SessionPersistenceCorruptionError where a field is malformed.
    """
    if type(stored) is not dict:
        raise SessionPersistenceCorruptionError(where, "its header is no JSON object")
    check_version(where, stored.get("version"), location)
    try:
        return SessionHeader.from_json(stored)
    except InvalidInputError as error:
        raise SessionPersistenceCorruptionError(where, f"its header's {error}") from None


def read_header_line(where: str, line: bytes) -> SessionHeader:
    """The header of a JSONL log's first line; whose it is and its version are judged before its shape."""
    try:
        stored = parse(line)
    except ValueError:
        raise SessionPersistenceCorruptionError(where, "its first line is not JSON") from None
    if type(stored) is dict and "app" in stored and stored["app"] != APPLICATION:
        raise SessionFormatUnsupportedError(where, "foreign", "is another program's log", where)
    if type(stored) is dict and stored.get("version") == SESSION_FORMAT_VERSION and stored.get("type") != HEADER_TYPE:
        raise SessionPersistenceCorruptionError(where, "its first line is no header")
    return read_header(where, stored, where)
