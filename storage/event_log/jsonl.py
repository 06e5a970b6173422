"""JsonlLogs: each session a file of its own, readable with ``zstdcat`` and ``jq`` (seed §15).

``<root>/<project>/<session>/session.jsonl[.zst]``: the header's line, then one event a line. A batch is one zstd
frame, or in a raw file closed by a line ``{"type":"batch/end",…}``.
"""

from __future__ import annotations

import logging
import os
import threading
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, Final, TypeVar
from zlib import crc32

from attrs import define

from seriatim.errors import (
    CommitTooLargeError,
    HeadMismatchError,
    InvalidInputError,
    LogExistsError,
    LogNotFoundError,
    SessionPersistenceCorruptionError,
    StoreError,
    StoreUnhealthyError,
)
from seriatim.events import Event
from seriatim.limits import JSONL_LOGS_CACHED_MAX, PREPARE_TRIES_MAX, STORE_COMMIT_BYTES_MAX

from .backend import StoredLog, StoredPage
from .files import append, create, cut, locked, open_file
from .formats import read_header_line
from .frames import encode_frame
from .header import SessionHeader
from .lines import decode_batch, encode_events, end_line, header_line
from .places import NAMES, Places
from .rescue import rescue
from .scan import Encoding, Scan
from .values import Problem, Revision, SessionEvent, SessionLocation, SessionPersistenceSnapshot, SessionRawArtifact

_log = logging.getLogger("seriatim.event_log")
_BUFFER: Final = 1 << 18
V = TypeVar("V")


@define
class _Tail:
    """Where the last whole batch of a file ends, and which state of the file that was."""

    revision: Revision
    end: int
    crc: int
    head: int
    unterminated: bool = False


class JsonlLogs:
    """Session logs below ``root``, in one encoding: "zstd" or "raw". Nothing is made before the first append.

    Any thread, several at a time for different sessions; appends of other processes wait for each other. Raises
    InvalidInputError for another encoding.
    """

    supports_raw_artifacts = True

    def __init__(self, root: str | os.PathLike[str], encoding: Encoding = "zstd") -> None:
        if encoding not in NAMES:
            raise InvalidInputError("encoding", 'is neither "zstd" nor "raw"')
        self.root = Path(root).absolute()
        self.encoding: Encoding = encoding
        self._places = Places(self.root, encoding)
        self._tails: OrderedDict[str, _Tail] = OrderedDict()
        self._lock = threading.Lock()

    def locate(self, header: SessionHeader) -> SessionLocation:
        """See ``LogBackend.locate``."""
        return SessionLocation("jsonl", str(self._places.of(header)))

    def read(self, session_id: str, from_seq: int = 0) -> StoredLog | None:
        """See ``LogBackend.read``. Reads the whole file, whatever ``from_seq``."""
        for file, path in self._steady(session_id):
            revision = _revision(file)
            scan = Scan(file, str(path), self.encoding)
            header, events, head = self._decode(scan, session_id, from_seq)
            if _revision(file) == revision:
                tail = _Tail(revision, scan.end, scan.crc, head, scan.unterminated)
                self._remember(self._tails, session_id, tail)
                torn = os.fstat(file.fileno()).st_size - scan.end
                return StoredLog(header, tuple(events), head, revision, _incarnation(file), torn)
        return None

    def revision(self, session_id: str) -> Revision | None:
        """See ``LogBackend.revision``: file identity, size and times, as the file system tells them."""
        for file, _ in self._steady(session_id):
            return _revision(file)
        return None

    def append(self, session_id: str, header: SessionHeader, head: int, events: Sequence[Event]) -> Revision:
        """See ``LogBackend.append``."""
        lines = encode_events(events, head)
        if (size := sum(map(len, lines))) > STORE_COMMIT_BYTES_MAX:
            raise CommitTooLargeError(f"{size} bytes of events, at most {STORE_COMMIT_BYTES_MAX}")
        path = self._places.find(session_id)
        if path is None:
            if head:
                raise LogNotFoundError(session_id)
            return self._create(session_id, header, lines)
        with locked(path) as descriptor:
            tail = self._tail(descriptor, path, session_id)
            if tail.head != head:
                raise HeadMismatchError(session_id, head, tail.head) if head else LogExistsError(session_id)
            self._cut_torn(descriptor, path, tail)
            if not lines:
                return _stat_revision(os.fstat(descriptor))
            content, crc = self._encode(lines, len(lines), tail.crc)
            if tail.unterminated:
                content = b"\n" + content
            self._forget(session_id)
            append(descriptor, path, tail.end, content)
            end = tail.end + len(content)
            tail = _Tail(_stat_revision(os.fstat(descriptor)), end, crc, head + len(lines))
            self._remember(self._tails, session_id, tail)
            return tail.revision

    def page(self, after: str | None, limit: int) -> StoredPage:
        """See ``LogBackend.page``; reads one header per session of the page."""
        listed = self._places.names(afresh=after is None)
        start = 0 if after is None else bisect_right(listed, after)
        names = listed[start : start + limit]
        found: list[SessionPersistenceSnapshot] = []
        problems: list[Problem] = []
        for name in names:
            path = self._places.named(name)
            try:
                if (snapshot := self._peek(path)) is not None:
                    found.append(snapshot)
            except StoreError as error:
                problems.append(Problem(str(path), error))
        return StoredPage(tuple(found), tuple(problems), names[-1] if start + limit < len(listed) else None)

    def read_raw(self, session_id: str) -> SessionRawArtifact | None:
        """See ``LogBackend.read_raw``: the text of the whole batches."""
        for file, path in self._steady(session_id):
            revision = _revision(file)
            scan = Scan(file, str(path), self.encoding)
            header = self._header(scan, session_id)
            content = b"".join(line for batch in scan.batches() for line in batch)
            if self.encoding == "raw":
                file.seek(0)
                content = file.read(scan.end)
            if _revision(file) == revision:
                return SessionRawArtifact(header, NAMES["raw"], content.decode())
        return None

    def salvage(self, session_id: str) -> tuple[StoredLog, tuple[Problem, ...]] | None:
        """See ``LogBackend.salvage``."""
        for file, path in self._steady(session_id):
            scan = Scan(file, str(path), self.encoding)
            header = self._header(scan, session_id)
            events, problems = rescue(scan)
            return StoredLog(header, events, len(events), _revision(file), _incarnation(file)), problems
        return None

    def close(self) -> None:
        """Nothing is held between two calls."""

    # Reading

    def _peek(self, path: Path) -> SessionPersistenceSnapshot | None:
        """Header and revision of one file; None when it holds no event."""
        try:
            with _opened(path) as file:
                scan = Scan(file, str(path), self.encoding)
                header = read_header_line(scan.where, scan.first_line())
                self._places.check(path, header)
                size = os.fstat(file.fileno()).st_size
                if next(scan.batches(), None) is None:
                    raise scan.damage("has no whole header")
                return SessionPersistenceSnapshot(header, _revision(file)) if size > scan.end else None
        except FileNotFoundError:
            if self._places.is_other(path.parent):
                raise self._places.other_encoding(path.parent) from None
            return None

    def _steady(self, session_id: str) -> Iterator[tuple[BinaryIO, Path]]:
        """The open file, again and again until the caller is content with what it read; none: no such log."""
        for _ in range(PREPARE_TRIES_MAX):
            path = self._places.find(session_id)
            if path is None:
                return
            try:
                file = _opened(path)
            except FileNotFoundError:
                continue
            with file:
                yield file, path
        raise StoreUnhealthyError(f"{session_id!r} changes faster than it can be read")

    def _header(self, scan: Scan, session_id: str) -> SessionHeader:
        """The header, judged before anything else of the file is looked at."""
        header = read_header_line(scan.where, scan.first_line())
        self._places.check(Path(scan.where), header)
        if header.id != session_id:
            raise SessionPersistenceCorruptionError(scan.where, "holds another session")
        return header

    def _decode(self, scan: Scan, session_id: str, from_seq: int) -> tuple[SessionHeader, list[SessionEvent], int]:
        header = self._header(scan, session_id)
        events: list[SessionEvent] = []
        head = -1
        for lines in scan.batches():
            if head < 0:
                head, lines = 0, lines[1:]  # noqa: PLW2901 - the header's line leads the first batch
            try:
                batch = decode_batch(lines, head)
            except (ValueError, InvalidInputError) as error:
                raise SessionPersistenceCorruptionError(f"{scan.where} at event {head}", str(error)) from None
            head += len(batch)
            if head > from_seq:
                events += batch
        if head < 0:
            raise scan.damage("has no whole header")
        return header, [event for event in events if event.seq >= from_seq], head

    def _tail(self, descriptor: int, path: Path, session_id: str) -> _Tail:
        """The file's end; read through once more when it isn't as this object left it."""
        revision = _stat_revision(os.fstat(descriptor))
        known = self._tails.get(session_id)
        if known is not None and known.revision == revision:
            return known
        with os.fdopen(os.dup(descriptor), "rb", buffering=_BUFFER) as file:
            scan = Scan(file, str(path), self.encoding)
            _, _, head = self._decode(scan, session_id, 2**53)
        tail = _Tail(revision, scan.end, scan.crc, head, scan.unterminated)
        self._remember(self._tails, session_id, tail)
        return tail

    # Writing

    def _create(self, session_id: str, header: SessionHeader, lines: list[bytes]) -> Revision:
        first, crc = self._encode([header_line(header)], 0, 0)
        batch, _ = self._encode(lines, len(lines), crc)
        create(self._places.of(header), first + batch)
        revision = self.revision(session_id)
        assert revision is not None
        return revision

    def _encode(self, lines: list[bytes], count: int, crc: int) -> tuple[bytes, int]:
        """The bytes of a batch, and the checksum along a raw file after it."""
        content = b"".join(lines)
        if self.encoding == "zstd":
            return encode_frame(content), crc
        crc = crc32(content, crc)
        return content + end_line(count, crc), crc

    def _cut_torn(self, descriptor: int, path: Path, tail: _Tail) -> None:
        size = os.fstat(descriptor).st_size
        if size > tail.end:
            aside = cut(descriptor, path, tail.end, size)
            _log.warning("cut a torn batch of %d bytes, never acknowledged; it lies in %s", size - tail.end, aside)

    def _remember(self, cache: OrderedDict[str, V], session_id: str, value: V) -> None:
        with self._lock:
            cache[session_id] = value
            cache.move_to_end(session_id)
            while len(cache) > JSONL_LOGS_CACHED_MAX:
                cache.popitem(last=False)

    def _forget(self, session_id: str) -> None:
        with self._lock:
            self._tails.pop(session_id, None)


def _opened(path: Path) -> BinaryIO:
    return os.fdopen(open_file(path), "rb", buffering=_BUFFER)


def _revision(file: BinaryIO) -> Revision:
    return _stat_revision(os.fstat(file.fileno()))


def _incarnation(file: BinaryIO) -> str:
    status = os.fstat(file.fileno())
    return f"{status.st_dev}:{status.st_ino}"


def _stat_revision(status: os.stat_result) -> Revision:
    times = f"{status.st_mtime_ns}:{status.st_ctime_ns}"
    return Revision(f"jsonl:{status.st_dev}:{status.st_ino}:{status.st_size}:{times}")
