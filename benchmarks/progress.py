"""What a benchmark that takes long tells meanwhile."""

from __future__ import annotations

import sys
import time

_begun = time.monotonic()


def say(what: str) -> None:
    """Progress, for people."""
    print(f"[{time.monotonic() - _begun:5.1f} s] {what}", file=sys.stderr)
