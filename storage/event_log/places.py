"""Where a root's sessions lie: looked up by id, listed, checked against what their headers say (seed §15)."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from pathlib import Path
from typing import Final

from seriatim.errors import SessionFormatUnsupportedError, SessionPersistenceCorruptionError, StoreUnhealthyError
from seriatim.limits import JSONL_LOGS_CACHED_MAX

from .header import SessionHeader
from .paths import encode_id, project_of
from .scan import Encoding

NAMES: Final[dict[Encoding, str]] = {"zstd": "session.jsonl.zst", "raw": "session.jsonl"}
"""The file's name in its session's folder."""


class Places:
    """The folders below ``root``, all in one encoding. Any thread."""

    def __init__(self, root: Path, encoding: Encoding) -> None:
        self._root = root
        self._encoding = encoding
        self._name = NAMES[encoding]
        self._other = NAMES["raw" if encoding == "zstd" else "zstd"]
        self._known: OrderedDict[str, Path] = OrderedDict()
        self._listing: tuple[list[tuple[str, int]], list[str]] = ([], [])
        self._lock = threading.Lock()

    def of(self, header: SessionHeader) -> Path:
        """Where a session of this header belongs."""
        return self._root / project_of(header.cwd) / encode_id(header.id) / self._name

    def find(self, session_id: str) -> Path | None:
        """The session's file, whatever its project. Refuses two of them, and one of the other encoding."""
        known = self._known.get(session_id)
        if known is not None and known.is_file():
            return known
        encoded, found = encode_id(session_id), []
        for project in self._projects():
            folder = self._root / project / encoded
            if os.path.lexists(folder / self._other):
                raise self.other_encoding(folder)
            if os.path.lexists(folder / self._name):
                found.append(folder / self._name)
        if len(found) > 1:
            raise SessionPersistenceCorruptionError(session_id, f"is there twice: {found[0]} and {found[1]}")
        if not found:
            return None
        with self._lock:
            self._known[session_id] = found[0]
            while len(self._known) > JSONL_LOGS_CACHED_MAX:
                self._known.popitem(last=False)
        return found[0]

    def named(self, name: str) -> Path:
        """The file of a name that ``names`` gave."""
        encoded, _, project = name.partition("/")
        return self._root / project / encoded / self._name

    def is_other(self, folder: Path) -> bool:
        """Whether the session is kept in the other encoding."""
        return (folder / self._other).exists()

    def other_encoding(self, folder: Path) -> SessionFormatUnsupportedError:
        """The refusal of such a session."""
        other = "raw" if self._encoding == "zstd" else "zstd"
        said = f'is kept in the other encoding; open the root with encoding="{other}"'
        return SessionFormatUnsupportedError(str(folder), "no path", said, str(folder / self._other))

    def _projects(self) -> list[str]:
        try:
            with os.scandir(self._root) as entries:
                return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise StoreUnhealthyError(f"{self._root}: can't be read ({error.strerror})") from None

    def names(self, *, afresh: bool) -> list[str]:
        """``session/project`` of every session folder, sorted; pages of one list share what its first one read."""
        try:
            stamps = [(project, (self._root / project).stat().st_mtime_ns) for project in self._projects()]
            if afresh or self._listing[0] != stamps:
                names = (
                    f"{encoded}/{project}"
                    for project, _ in stamps
                    for encoded in os.listdir(self._root / project)  # noqa: PTH208 - names are all that is wanted
                )
                self._listing = (stamps, sorted(names))
        except OSError as error:
            raise StoreUnhealthyError(f"{self._root}: can't be listed ({error.strerror})") from None
        return self._listing[1]

    def check(self, path: Path, header: SessionHeader) -> None:
        """Raise SessionPersistenceCorruptionError where the file lies elsewhere than its header says."""
        if path != self.of(header):
            raise SessionPersistenceCorruptionError(str(path), "holds a session that belongs elsewhere")
