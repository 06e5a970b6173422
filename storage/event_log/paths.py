"""Where a session's JSONL file lies: ids and folders become names of files only through these (seed §15)."""

from __future__ import annotations

import hashlib
import re
from typing import Final

_SAFE: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-")
_NAME_CHARS_MAX: Final = 200
_SLUG_CHARS_MAX: Final = 251
_SEPARATORS: Final = re.compile(r"[/\\:]+")
NO_CWD: Final = "_no-cwd"


def _escape(char: str) -> str:
    units = char.encode("utf-16-be")
    return "".join(f"~{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))


def encode_id(session_id: str) -> str:
    """A file name for a session id; no two ids share one, on file systems that fold case too.

    Letters in upper case, dots, separators and all beyond ASCII are escaped as a tilde and four hex digits per UTF-16
    unit. A name that would be too long for a file system ends in its SHA-256 instead.
    """
    name = "".join(c if c in _SAFE and not c.isupper() else _escape(c) for c in session_id)
    if len(name) <= _NAME_CHARS_MAX:
        return name
    return f"{name[:100]}~~{hashlib.sha256(session_id.encode()).hexdigest()}"


def project_of(cwd: str | None) -> str:
    """The folder of all sessions with this working directory. Readable, not injective: the header decides."""
    if cwd is None:
        return NO_CWD
    dashed = _SEPARATORS.sub("-", cwd)
    slug = "".join(c if c in _SAFE or c == "." else _escape(c) for c in dashed).lstrip("-") or "root"
    return f"--{slug[:_SLUG_CHARS_MAX]}--"
