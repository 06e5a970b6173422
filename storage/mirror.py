"""Mirrors: files beside the database for people and old tools. They hold nothing of their own.

Each is replaced as a whole, so that no reader ever sees half of one, and a crash leaves the one before.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from seriatim.limits import MIRROR_BYTES_MAX

from .files import read_file, sync_folder

README: Final = "_README"
"""The key of the line that says what the file is; keys that begin with "_" are comments."""


def write_mirror(path: Path, content: Mapping[str, Any], readme: str) -> None:
    """Put ``content`` in the place of the file at ``path``, durably, for the owner's eyes. Raises OSError."""
    text = json.dumps({README: readme, **content}, ensure_ascii=False, indent=2)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text + "\n")
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    sync_folder(path.parent)


def read_mirror(path: Path) -> dict[str, Any]:
    """What the file holds, without its comments; empty where there is none.

    Raises OSError, and ValueError for what is no JSON object or larger than a mirror can be.
    """
    try:
        raw = read_file(path, MIRROR_BYTES_MAX + 1)
    except FileNotFoundError:
        return {}
    if len(raw) > MIRROR_BYTES_MAX:
        raise ValueError(f"larger than {MIRROR_BYTES_MAX} bytes")
    content = json.loads(raw)
    if not isinstance(content, dict):
        raise ValueError("no JSON object")  # noqa: TRY004  (whatever is wrong with it, it is a bad file)
    return {key: value for key, value in content.items() if not key.startswith("_")}
