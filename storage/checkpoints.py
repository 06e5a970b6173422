"""How checkpoints and archives become text, and what their checksums cover."""

from __future__ import annotations

from zlib import crc32

from seriatim.errors import InvalidInputError, LogCompactedError
from seriatim.events import Event, LogId

from .contract import Archive, Balance, Checkpoint, StoreReader
from .encoding import encode_object


def checkpoint_text(checkpoint: Checkpoint) -> tuple[str, int]:
    """The data's text and the checksum of the whole. Raises InvalidInputError for what can't be kept."""
    text = encode_object("checkpoint", checkpoint.data)
    return text, checkpoint_sum(checkpoint.log, checkpoint.of, checkpoint.seq, checkpoint.version, text)


def checkpoint_sum(log: str, of: str, seq: int, version: int, text: str) -> int:
    """The checksum of a checkpoint."""
    return crc32(text.encode(), crc32(f"{of} {seq} {version} {log}".encode()))


def archive_text(archive: Archive) -> str:
    """The data's text. Raises InvalidInputError for an archive that would hide work or can't be kept."""
    counts = archive.counts
    if archive.base <= 0:
        raise InvalidInputError("base", "an archive stands for one event or more")
    if not counts.holds or counts.waiting:
        raise InvalidInputError("counts", "something in the archived events has no terminal outcome")
    return encode_object("archive", archive.data)


def archive_sum(log: str, base: int, chain: int, version: int, counts: Balance, text: str) -> int:
    """The checksum of an archive; ``chain``: the checksum along the log at ``base``."""
    numbers = (base, chain, version, counts.accepted, counts.answered, counts.merged, counts.dropped)
    return crc32(text.encode(), crc32(f"{numbers} {log}".encode()))


def read_whole(reader: StoreReader, log: LogId) -> tuple[Archive | None, list[Event]]:
    """All that a log tells: its archive, if it was compacted, and the events since. Raises what ``read`` raises."""
    archive = reader.archive(log)
    while True:
        try:
            return archive, reader.read(log, 0 if archive is None else archive.base)
        except LogCompactedError:  # between the two calls
            before, archive = archive, reader.archive(log)
            if archive == before:
                raise
