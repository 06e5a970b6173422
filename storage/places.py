"""Which file a path leads to right now, found out without giving up the interpreter's lock.

The writer looks three times a group. ``os.stat`` releases the lock for each look, and beside a thread that computes in
pure Python getting it back costs up to 5 ms: as much as the write itself (measured with 64 commits a group: half of
what was left of the speed). The database lies on a local disk, so a look takes microseconds.
"""

from __future__ import annotations

import ctypes
import functools
import os
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

Place = tuple[int, int] | None
"""Number and device of a file; None where there is none."""

Look = Callable[[str], Place]

_HERE: Final = -100  # AT_FDCWD
_NUMBER_WANTED: Final = 0x100  # STATX_INO
_PATHS_KEPT: Final = 64
_SIZE: Final = 256  # of struct statx, whose layout is the same on every machine
_PLACE: Final = struct.Struct("=32xQ96xQ")


def _by_stat(path: str) -> Place:
    try:
        status = os.stat(path)  # noqa: PTH116  (a Path for each look would cost twice)
    except OSError:
        return None
    return status.st_ino, status.st_dev


def _by_statx() -> Look:
    """Linux's own call through a library handle that keeps the lock. Raises AttributeError or OSError without it."""
    statx = ctypes.PyDLL(None).statx
    statx.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_uint, ctypes.c_char_p)
    made, unpack = ctypes.c_char * _SIZE, _PLACE.unpack_from
    encode = functools.lru_cache(_PATHS_KEPT)(os.fsencode)  # the same few paths, over and over

    def place(path: str) -> Place:
        found = made()
        if statx(_HERE, encode(path), 0, _NUMBER_WANTED, found):
            return None
        number, device = unpack(found)
        return number, device

    here = place(os.sep)
    if here is None or here[0] != Path(os.sep).stat().st_ino:  # a sandbox may not know the call
        raise OSError("statx doesn't work here")
    return place


def _make() -> Look:
    if sys.platform == "linux":
        try:
            return _by_statx()
        except (AttributeError, OSError):
            pass
    return _by_stat


place_of: Final[Look] = _make()
