"""What rules want to know besides what a session shows, read from the store (``Batch.found``). Reader's thread."""

from __future__ import annotations

from typing import Any

from seriatim.errors import LogCompactedError
from seriatim.events import Data, lane_log
from seriatim.limits import LOOKUP_EVENTS
from seriatim.scope import in_scope
from seriatim.shown import AcceptedOf, Besides, TitledOf
from seriatim.storage.contract import StoreReader
from seriatim.storage.projections import folded


def looked_up(reader: StoreReader, besides: Besides) -> Any:
    """The answer, in the form that its question promises. Raises what the reader raises."""
    return _accepted(reader, besides) if isinstance(besides, AcceptedOf) else _titled(reader, besides)


def _accepted(reader: StoreReader, wanted: AcceptedOf) -> dict[str, Data]:
    """From the log's end backwards: what people ask about is nearly always near it."""
    log = lane_log(wanted.key)
    info = reader.info(log)
    missing = set(wanted.ids)
    found: dict[str, Data] = {}
    end = 0 if info is None else info.head
    while end and missing:
        begin = max(0, end - LOOKUP_EVENTS)
        try:
            events = reader.read(log, begin, end - begin)
        except LogCompactedError:
            archive = reader.archive(log)
            begin = end if archive is None else archive.base
            events = reader.read(log, begin, end - begin) if begin < end else []
            end = begin = 0  # what the archive stands for is gone
        for event in events:
            if event.type == "inbox/accepted" and event.data["id"] in missing:
                missing.discard(event.data["id"])
                found[event.data["id"]] = event.data
        end = begin
    return found


def _titled(reader: StoreReader, wanted: TitledOf) -> list[tuple[str, str]]:
    """One pass over the names of the platform's lanes; only those in scope are folded."""
    found: dict[str, str] = {}
    after = ""
    while page := reader.logs(wanted.prefix, after):
        for log in page:
            key = log.removeprefix("lane:")
            if key != wanted.key and in_scope(wanted.key, wanted.asker, key):
                found.update(folded(reader, log).titles)
        after = page[-1]
    return sorted(found.items(), reverse=True)
