"""Steers the preloaded library (shim.c): which calls of a child's database fail, how, and how often.

The library is compiled when it is needed, with the C compiler of this machine. Without one its tests are skipped and
say so; with SERIATIM_REQUIRE_SERVERS=1, as in CI, they fail.
"""

from __future__ import annotations

import errno
import mmap
import os
import shutil
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal
from unittest import mock

import pytest

Call = Literal["write", "sync", "truncate"]
File = Literal["db", "wal"]

EIO: Final = errno.EIO
ENOSPC: Final = errno.ENOSPC
KILL: Final = -1
"""Instead of an error: the process is killed at that call."""
ALWAYS: Final = -1

_CALLS: Final = {"write": 1, "sync": 2, "truncate": 4}
_FILES: Final = {"db": 1, "wal": 2}
_RULE: Final = struct.Struct("8i")
_FAILED: Final = 5


class Disk:
    """The disk under the children that are started while it is ``under`` them. Two rules, 0 and 1, count at once."""

    def __init__(self, folder: Path) -> None:
        self._library = _compiled(folder)
        self._file = folder / "control"
        self._file.write_bytes(bytes(2 * _RULE.size))
        with self._file.open("r+b") as file:
            self._control = mmap.mmap(file.fileno(), 2 * _RULE.size)

    @contextmanager
    def under(self) -> Iterator[None]:
        """Children that are started inside have this disk."""
        with mock.patch.dict(os.environ, {"LD_PRELOAD": str(self._library), "FAULTFS": str(self._file)}):
            yield

    def fail(
        self,
        call: Call,
        file: File,
        number: int,
        count: int = 1,
        *,
        skip: int = 0,
        partial: bool = False,
        rule: int = 0,
    ) -> None:
        """From now on ``count`` such calls fail with ``number``, after ``skip`` good ones; ``partial``: a write writes
        half of its bytes first.
        """
        values = (_CALLS[call], _FILES[file], number, 0, skip, 0, partial, 0)
        _RULE.pack_into(self._control, rule * _RULE.size, *values)
        struct.pack_into("i", self._control, rule * _RULE.size + 12, count)  # last: it is what arms the rule

    def mend(self) -> None:
        """Nothing fails any more."""
        for rule in (0, 1):
            struct.pack_into("i", self._control, rule * _RULE.size + 12, 0)

    def failed(self, rule: int = 0) -> int:
        """How many calls have failed by the rule."""
        count: int = _RULE.unpack_from(self._control, rule * _RULE.size)[_FAILED]
        return count

    def spent(self, rule: int = 0) -> bool:
        """Whether the rule has no failures left."""
        return bool(_RULE.unpack_from(self._control, rule * _RULE.size)[3] == 0)

    def close(self) -> None:
        """Let go of the control file."""
        self._control.close()


def _compiled(folder: Path) -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        reason = "no C compiler is installed (Debian packages gcc and libc6-dev)"
        if os.environ.get("SERIATIM_REQUIRE_SERVERS") == "1":
            pytest.fail(f"{reason}, and SERIATIM_REQUIRE_SERVERS=1")
        pytest.skip(reason)
    library = folder / "faultfs.so"
    source = Path(__file__).with_name("shim.c")
    command = [compiler, "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", str(library), str(source), "-ldl"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.fail(f"the library doesn't compile:\n{done.stderr}")
    return library


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    """A disk that fails nothing yet."""
    made = Disk(tmp_path)
    yield made
    made.close()
