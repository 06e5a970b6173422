"""Erasing a log: what both stores decide alike, and what the system log says about it.

The system log is the tombstone. It names an erased log only by a digest keyed with the store's id: a lane's name holds
the ids of people, so it must go as well, yet who knows the name can still find out that it was erased, and when.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Final

from seriatim.commits import Commit, Part
from seriatim.errors import InvalidInputError
from seriatim.events import FORMAT_VERSION, SAFE_INTEGER_MAX, Event, LogId
from seriatim.limits import DETAIL_CHARS_MAX

from .contract import Erasure
from .staging import LogState, is_name

SYSTEM: Final = LogId("system")
"""The store's own log: format, imports, erasures."""


def digest_of(store_id: str, log: LogId) -> str:
    """How the system log names an erased log."""
    return hmac.digest(store_id.encode(), log.encode(), hashlib.sha256).hex()


def check_erasure(erasure: Erasure) -> None:
    """Raise InvalidInputError for a malformed one."""
    if not is_name(erasure.id):
        raise InvalidInputError("id", "is not a name")
    if not is_name(erasure.log) or erasure.log == SYSTEM:
        raise InvalidInputError("log", "is not the name of a log that may be erased")
    if type(erasure.time) is not int or abs(erasure.time) > SAFE_INTEGER_MAX:
        raise InvalidInputError("time", "is not an integer of milliseconds")
    if len(erasure.reason) > DETAIL_CHARS_MAX:
        raise InvalidInputError("reason", f"is not text of at most {DETAIL_CHARS_MAX} characters")


def tombstone(erasure: Erasure, erased: LogState, system: LogState | None, store_id: str, keys: int) -> Commit:
    """The commit that tells the system log. ``erased``: the log as it was; ``keys``: how many were dropped."""
    head = 0 if system is None else system.head
    data = {
        "digest": digest_of(store_id, erasure.log),
        "incarnation": erased.number,
        "events": erased.head,
        "keysDropped": keys,
        "reason": erasure.reason,
    }
    header = None if system is not None else {"version": FORMAT_VERSION, "id": SYSTEM}
    part = Part(SYSTEM, head, (Event("log/erased", head, erasure.time, data),), header=header)
    return Commit(erasure.id, SYSTEM, 0, (part,))
