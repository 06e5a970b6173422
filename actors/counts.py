"""``restart_counts.json``: how often in a row each lane's turn was interrupted; a mirror for people and old tools.

The logs hold the truth and no rule reads the file: a bad one is a warning and counts as none.
"""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Final

from seriatim.actors.calling import on_thread
from seriatim.actors.outlet import Report
from seriatim.clock import Clock
from seriatim.keys import parse_session_key
from seriatim.limits import INTERRUPTIONS_MAX
from seriatim.storage.mirror import read_mirror, write_mirror

FILE: Final = "restart_counts.json"
README: Final = (
    "A mirror: how often in a row a restart or a crash has interrupted each conversation. Nothing reads it back; the "
    "database decides."
)
WAIT_MS: Final = 1_000
"""How long a change waits for others, so that a start with many interrupted lanes writes the file once."""

_log = logging.getLogger("seriatim.mirror")


class RestartCounts:
    """The file in ``home``. Belongs to the loop's thread; it is written on others."""

    def __init__(self, home: Path, clock: Clock, report: Report) -> None:
        self._path = home / FILE
        self._clock = clock
        self._report = report
        self._counts = _read(self._path)
        self._waits = False
        self._guard = threading.Lock()

    def noted(self, lane: str, count: int) -> None:
        """A lane's count is this now."""
        key = parse_session_key(lane).text
        if self._counts.get(key, 0) == count:
            return
        if count:
            self._counts[key] = count
        else:
            del self._counts[key]
        if not self._waits:
            self._waits = True
            self._clock.call_later(WAIT_MS, self._due)

    def _due(self) -> None:
        if self._waits:
            on_thread("seriatim-mirror", self.flush)

    def flush(self) -> None:
        """Write what waits to be written. Any thread; what fails is reported."""
        with self._guard:
            if not self._waits:
                return
            self._waits = False
            try:
                write_mirror(self._path, dict(sorted(self._counts.copy().items())), README)
            except OSError as error:
                self._report("mirror", error)


def _read(path: Path) -> dict[str, int]:
    """What the file says of lanes that no start has looked at yet."""
    try:
        content = read_mirror(path)
    except (OSError, ValueError) as error:
        _log.warning("%s can't be read (%s); its counts are taken for none", path, error)
        return {}
    kept = {key: count for key, count in content.items() if type(count) is int and 0 < count <= INTERRUPTIONS_MAX}
    if len(kept) < len(content):
        _log.warning("%s: %d of its counts are none; they are left out", path, len(content) - len(kept))
    return kept
