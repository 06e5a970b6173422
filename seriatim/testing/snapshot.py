"""The files that a kill -9 would leave: copies of a live SQLite store, the WAL whole or cut."""

from __future__ import annotations

import os
import shutil
import struct
from pathlib import Path
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
    source, folder = Path(path), Path(into)
    target = folder / source.name
    folder.mkdir(parents=True, exist_ok=True)
    for suffix in ("-wal", "-shm"):
        beside(target, suffix).unlink(missing_ok=True)
    shutil.copyfile(source, target)
    if beside(source, "-wal").exists():
        shutil.copyfile(beside(source, "-wal"), beside(target, "-wal"))
        if frames is not None:
            cut_wal(beside(target, "-wal"), frames)
    return str(target)


def beside(path: Path, suffix: str) -> Path:
    """SQLite's own file beside the database: its name with ``-wal`` or ``-shm`` behind."""
    return path.with_name(path.name + suffix)


def wal_frames(wal: str | os.PathLike[str]) -> int:
    """How many whole frames the WAL file holds, old ones behind the last checkpoint included."""
    file = Path(wal)
    size = file.stat().st_size if file.exists() else 0
    return 0 if size < _WAL_HEADER else (size - _WAL_HEADER) // _frame_size(file)


def cut_wal(wal: str | os.PathLike[str], frames: int, *, torn_bytes: int = 0) -> None:
    """Keep the first ``frames`` frames of the WAL file, and ``torn_bytes`` of the next one."""
    keep = _WAL_HEADER + frames * _frame_size(Path(wal)) + torn_bytes
    if keep < Path(wal).stat().st_size:
        os.truncate(wal, keep)


def _frame_size(wal: Path) -> int:
    with wal.open("rb") as file:
        (page,) = struct.unpack(">I", file.read(12)[8:])
    return _FRAME_HEADER + int(page)
