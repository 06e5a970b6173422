"""Reading the delivery ledger out of a store, beside whoever serves it."""

from __future__ import annotations

from seriatim.errors import InvalidInputError
from seriatim.events import LogId, lane_log
from seriatim.undelivered import Undelivered, given_up_of, owed_of

from .checkpoints import read_whole
from .contract import StoreReader
from .projections import folded


def undelivered(reader: StoreReader, *, given_up: bool = False) -> list[Undelivered]:
    """Replies that have not arrived, of all lanes, oldest first; ``given_up``: also those that nobody tries any more.

    What is owed is found by the index of open work; for what was given up every lane's log is read. Raises StoreError.
    """
    found: list[Undelivered] = []
    for log, hot in reader.open_work():
        if hot.owed:
            found += owed_of(folded(reader, log))
    if given_up:
        for log in _lanes(reader):
            found += [reply for reply, _ in given_up_of(log.removeprefix("lane:"), read_whole(reader, log)[1])]
    return sorted(found, key=lambda reply: (reply.since, reply.delivery))


def find(reader: StoreReader, name: str) -> tuple[Undelivered, bool]:
    """The reply whose id begins with ``name``; whether it may have arrived. Raises InvalidInputError, StoreError."""
    found = [reply for reply in undelivered(reader, given_up=True) if reply.delivery.startswith(name)]
    exact = [reply for reply in found if reply.delivery == name] or found
    if not name or not exact:
        raise InvalidInputError("delivery", f"no undelivered reply is called {name!r}")
    if len(exact) > 1:
        raise InvalidInputError("delivery", f"{name!r} begins the ids of {len(exact)} undelivered replies")
    reply = exact[0]
    if reply.state != "given up":
        return reply, reply.state == "in doubt"
    told = given_up_of(reply.lane, read_whole(reader, lane_log(reply.lane))[1])
    return next((known, doubtful) for known, doubtful in told if known.delivery == reply.delivery)


def _lanes(reader: StoreReader) -> list[LogId]:
    found: list[LogId] = []
    while page := reader.logs("lane:", found[-1] if found else ""):
        found += page
    return found
