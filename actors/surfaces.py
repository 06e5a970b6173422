"""What a session shows, read from the store: the newest surface snapshot, the events since, and the messages on it.

Only what is shown is read (and, between such messages, what lies so near that skipping it saves nothing): a session of
a hundred thousand events that was compressed to a summary costs what its summary and its last turns cost.
"""

from __future__ import annotations

from collections.abc import Iterator

from seriatim.errors import CorruptionError, SurfaceError
from seriatim.events import Event, LogId, session_log
from seriatim.lane import SessionPart, apply_session
from seriatim.limits import CHECKPOINT_EVENTS, SURFACE_SKIP_EVENTS, SURFACE_TURNS_KEPT
from seriatim.shown import Shown
from seriatim.snapshots import STATE_VERSION, session_from_snapshot
from seriatim.storage.contract import Checkpoint, StoreReader
from seriatim.surface import Surface, fold, model_context
from seriatim.surface_json import SNAPSHOT_VERSION, surface_from_json, surface_to_json


def read_messages(reader: StoreReader, log: LogId, upto: int) -> tuple[tuple[Event, ...], Checkpoint | None]:
    """The messages that the first ``upto`` events of a session show, oldest first; and a snapshot if one is due.

    Raises what ``StoreReader.read`` raises, and SurfaceError for a log that makes no sense.
    """
    kept = reader.checkpoint(log, "surface")
    surface, known = _surface(reader, log, upto, kept)
    for first, count in _runs([seq for seq in surface.seqs() if seq not in known]):
        known.update((event.seq, event) for event in reader.read(log, first, count))
    try:
        messages = tuple(model_context(surface, known.__getitem__))
    except KeyError:
        raise CorruptionError(log, "its snapshot shows events that it doesn't have", log=log) from None
    at = 0 if kept is None else kept.seq
    # The snapshot grows with what is shown: one each time that the log has grown by a quarter keeps the sum linear.
    due = upto - at >= max(CHECKPOINT_EVENTS, at // 4)
    return messages, _snapshot(log, upto, surface) if due else None


def read_shown(reader: StoreReader, session_id: str, *, whole: bool = False) -> Shown | None:
    """A session up to its head, for a rule that needs it; None when there is none. ``whole``: from its first event.

    Raises what ``StoreReader.read`` raises, and SurfaceError for a log that makes no sense.
    """
    log = session_log(session_id)
    info = reader.info(log)
    if info is None:
        return None
    if whole:
        events = reader.read(log)
        surface, known = fold(events), {event.seq: event for event in events}
    else:
        surface, known = _surface(reader, log, info.head, reader.checkpoint(log, "surface"))
        for first, count in _runs([seq for seq in surface.seqs() if seq not in known]):
            known.update((event.seq, event) for event in reader.read(log, first, count))
    part = _part(reader, session_id, surface.head)
    return Shown(session_id, part, surface, known, info.lane, info.header.get("createdAt", 0), whole)


def _part(reader: StoreReader, session_id: str, upto: int) -> SessionPart:
    log = session_log(session_id)
    kept = reader.checkpoint(log, "state")
    usable = kept is not None and kept.version == STATE_VERSION and kept.seq <= upto
    part = session_from_snapshot(kept.data) if kept is not None and usable else SessionPart(session_id)
    for event in reader.read(log, part.head, upto - part.head):
        apply_session(part, event)
    return part


def _surface(reader: StoreReader, log: LogId, upto: int, kept: Checkpoint | None) -> tuple[Surface, dict[int, Event]]:
    """The surface after ``upto`` events, and those events that were read for it."""
    if kept is not None and kept.version == SNAPSHOT_VERSION and kept.seq <= upto:
        events = reader.read(log, kept.seq, upto - kept.seq)
        try:
            surface = surface_from_json(kept.data).extend(events)
        except SurfaceError:
            pass  # what was undone lies further back than the snapshot reaches
        else:
            return surface, {event.seq: event for event in events}
    events = reader.read(log, 0, upto)
    return fold(events), {event.seq: event for event in events}


def _runs(seqs: list[int]) -> Iterator[tuple[int, int]]:
    """First and count of the stretches that hold all of ``seqs``, joined where the gap between is short."""
    if not seqs:
        return
    ordered = sorted(seqs)
    first = last = ordered[0]
    for seq in ordered[1:]:
        if seq - last > SURFACE_SKIP_EVENTS:
            yield first, last - first + 1
            first = seq
        last = seq
    yield first, last - first + 1


def _snapshot(log: LogId, upto: int, surface: Surface) -> Checkpoint:
    kept = surface.fork()
    kept.forget(SURFACE_TURNS_KEPT)
    return Checkpoint(log, "surface", upto, SNAPSHOT_VERSION, surface_to_json(kept))
