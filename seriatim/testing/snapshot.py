"""The files that a kill -9 would leave: copies of a live SQLite store, the WAL whole or cut."""

from __future__ import annotations

import os
import shutil
import struct
from typing import Final

_WAL_HEADER: Final = 32
_FRAME_HEADER: Final = 24


def snapshot_files(path: str | os.PathLike[str], into: str | os.PathLike[str], *, frames: int | None = None) -> str:
    """Copy the database at ``path`` and its WAL into the folder ``into``; the copy's path.

    Call it on a quiet store (between two commits, or from a callback of ``FaultyStore``): nothing is closed
    or checkpointed. The shared-memory index isn't copied: after a crash of the machine there is none, and
    after a kill SQLite doesn't trust it. ``frames``: keep only so many frames of the WAL, as if the kill had
    struck in the middle of writing it.
    """
    source, target = os.fspath(path), os.path.join(os.fspath(into), os.path.basename(os.fspath(path)))
    os.makedirs(into, exist_ok=True)
    for suffix in ("-wal", "-shm"):
        if os.path.exists(target + suffix):
            os.unlink(target + suffix)
    shutil.copyfile(source, target)
    wal = source + "-wal"
    if os.path.exists(wal):
        shutil.copyfile(wal, target + "-wal")
        if frames is not None:
            cut_wal(target + "-wal", frames)
    return target


def wal_frames(wal: str | os.PathLike[str]) -> int:
    """How many whole frames the WAL file holds, old ones behind the last checkpoint included."""
    size = os.path.getsize(wal) if os.path.exists(wal) else 0
    return 0 if size < _WAL_HEADER else (size - _WAL_HEADER) // _frame_size(os.fspath(wal))


def cut_wal(wal: str | os.PathLike[str], frames: int, *, torn_bytes: int = 0) -> None:
    """Keep the first ``frames`` frames of the WAL file, and ``torn_bytes`` of the next one."""
    keep = _WAL_HEADER + frames * _frame_size(os.fspath(wal)) + torn_bytes
    if keep < os.path.getsize(wal):
        os.truncate(wal, keep)


def _frame_size(wal: str) -> int:
    with open(wal, "rb") as file:
        (page,) = struct.unpack(">I", file.read(12)[8:])
    return _FRAME_HEADER + int(page)
