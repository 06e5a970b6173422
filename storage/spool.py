"""The spool: accepted messages that wait on disk for a store that can't be reached.

One JSONL file, one message a line, each line under a checksum. A message counts as kept once ``append`` has returned,
which is after the sync of its line; a line that a kill cut short was never told of, and is cut away. The spool is no
second truth: its messages go into the store under their unique keys, and the file goes away when all of them are
there. Taking one in twice is harmless, so no crash on the way needs to be remembered.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final
from zlib import crc32

from attrs import frozen

from seriatim.errors import SeriatimError, StoreUnhealthyError
from seriatim.limits import SPOOL_BYTES_MAX
from seriatim.media import Media
from seriatim.model import MessageEvent, SessionSource

from .files import sync_folder

SPOOL: Final = "spool"
_FILE: Final = "inbound.jsonl"
_DAMAGED: Final = "damaged.jsonl"


@frozen
class Spooled:
    """One kept message. ``id``: its inbox id; ``key``: its unique key in the store; ``prefix``: its adapter's command
    prefix; ``time``: when it was accepted, epoch ms.
    """

    id: str
    key: str
    prefix: str
    time: int
    event: MessageEvent


class Spool:
    """The spool of one home. Its owner's alone; one call at a time, on any thread (they block).

    ``problems``: what was found wrong with the file, in words; such lines are kept aside, never deleted.
    """

    def __init__(self, home: str | os.PathLike[str]) -> None:
        self.folder = Path(home) / SPOOL
        self.file = self.folder / _FILE
        self.keys: set[str] = set()
        self.size = 0
        self.problems: list[str] = []
        self._doubtful = True

    def __len__(self) -> int:
        return len(self.keys)

    def open(self) -> None:
        """Find what an earlier process kept, and cut away what it never told of. Raises StoreUnhealthyError."""
        self.keys.clear()
        self.size = 0
        try:
            self._recover()
        except OSError as error:
            raise StoreUnhealthyError(f"{self.file}: can't be read ({error.strerror})") from None

    def append(self, messages: Sequence[Spooled]) -> None:
        """Keep messages of new keys; on return they are on disk.

        Raises StoreUnhealthyError: nothing of them was kept (the disk refuses, or the spool is at its bound).
        """
        lines = b"".join(map(_line, messages))
        if self.size + len(lines) > SPOOL_BYTES_MAX:
            raise StoreUnhealthyError(f"{self.file}: the spool is full ({self.size} bytes)")
        try:
            if self._doubtful:
                self._make_sure()
            self._doubtful = True  # until we know better: a failed sync says nothing of what is on disk
            with self.file.open("r+b", buffering=0) as file:
                file.seek(self.size)
                _write(file.fileno(), lines)
                os.fsync(file.fileno())
            self._doubtful = False
        except OSError as error:
            with contextlib.suppress(OSError):  # else the next append does it before anything else
                self._make_sure()
            raise StoreUnhealthyError(f"{self.file}: can't be written ({error.strerror})") from None
        self.size += len(lines)
        self.keys.update(message.key for message in messages)

    def read(self, offset: int, limit: int) -> tuple[list[Spooled], int]:
        """Up to ``limit`` messages from a place on, oldest first, and the place behind them. 0 is the first."""
        found: list[Spooled] = []
        try:
            for message, end in _messages(self.file, offset, self.size):
                if message is not None:
                    found.append(message)
                offset = end
                if len(found) >= limit:
                    break
        except OSError as error:
            raise StoreUnhealthyError(f"{self.file}: can't be read ({error.strerror})") from None
        return found, offset

    def keep_only(self, messages: Sequence[Spooled]) -> None:
        """All others are in the store: forget them. Without any left the file is gone. Raises StoreUnhealthyError."""
        try:
            if not messages:
                self.file.unlink(missing_ok=True)
                lines = b""
            else:
                lines = b"".join(map(_line, messages))
                self._replace(lines)
            sync_folder(self.folder)
        except OSError as error:
            raise StoreUnhealthyError(f"{self.file}: can't be written ({error.strerror})") from None
        self.keys = {message.key for message in messages}
        self.size = len(lines)
        self._doubtful = not messages

    def _recover(self) -> None:
        if not self.file.exists():
            return
        bad: list[bytes] = []
        whole = self.file.stat().st_size
        for message, end in _messages(self.file, 0, whole, bad):
            if message is not None:
                self.keys.add(message.key)
            self.size = end
        if bad:
            # Not ours to judge: a line that was whole once may hold a message that was told to be safe.
            self.problems.append(f"{len(bad)} lines of {self.file} are damaged; {self.folder / _DAMAGED} keeps them")
            with (self.folder / _DAMAGED).open("ab") as file:
                file.write(b"".join(bad))
                file.flush()
                os.fsync(file.fileno())
            kept, _ = self.read(0, whole)
            self.keep_only(kept)

    def _make_sure(self) -> None:
        """Make the file if there is none, and cut it where the last message that was told of ends."""
        self.folder.mkdir(mode=0o700, exist_ok=True)
        descriptor = os.open(self.file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.ftruncate(descriptor, self.size)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        sync_folder(self.folder)
        sync_folder(self.folder.parent)
        self._doubtful = False

    def _replace(self, lines: bytes) -> None:
        fresh = self.file.with_suffix(".new")
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            _write(descriptor, lines)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        fresh.replace(self.file)


@frozen
class SpoolSeen:
    """What somebody who doesn't own the home finds in its spool. ``messages``: each key once, oldest first.
    ``damaged``: lines that can't be read, those that were set aside included; each may hold an accepted message.
    """

    messages: list[Spooled]
    damaged: int


def look(home: str | os.PathLike[str]) -> SpoolSeen:
    """What waits in a home's spool; changes nothing. Any process. Raises StoreUnhealthyError."""
    folder = Path(home) / SPOOL
    found: dict[str, Spooled] = {}
    bad: list[bytes] = []
    for file in (folder / _FILE, folder / _DAMAGED):
        try:
            for message, _ in _messages(file, 0, file.stat().st_size, bad):
                if message is not None:
                    found.setdefault(message.key, message)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise StoreUnhealthyError(f"{file}: can't be read ({error.strerror})") from None
    return SpoolSeen(list(found.values()), len(bad))


def spooled(home: str | os.PathLike[str]) -> list[Spooled]:
    """The messages that wait in a home's spool; see ``look``."""
    return look(home).messages


def _messages(
    file: Path, offset: int, size: int, bad: list[bytes] | None = None
) -> Iterator[tuple[Spooled | None, int]]:
    """Each line up to ``size`` with the place behind it; None for a damaged one. What has no end is no line."""
    with file.open("rb") as lines:
        lines.seek(offset)
        while offset < size:
            line = lines.readline(size - offset)
            if not line.endswith(b"\n"):
                return
            offset += len(line)
            message = _parse(line)
            if message is None and bad is not None:
                bad.append(line)
            yield message, offset


def _line(message: Spooled) -> bytes:
    event = message.event
    told: dict[str, Any] = {
        "id": message.id,
        "key": message.key,
        "prefix": message.prefix,
        "time": message.time,
        "text": event.text,
        "source": event.source.to_dict(),
    }
    for name in _FURTHER:
        value = getattr(event, name)
        if name == "media":
            value = [media.to_data() for media in event.media] or None
        if value is not None and value != "" and value is not False:
            told[name] = value
    text = _dump(told)
    return f'{{"crc":{crc32(text.encode())},"message":{text}}}\n'.encode()


def _parse(line: bytes) -> Spooled | None:
    try:
        held = json.loads(line)
        told = held["message"]
        if crc32(_dump(told).encode()) != held["crc"]:
            return None
        further = {name: told[name] for name in _FURTHER if name in told}
        if "media" in further:
            further["media"] = [Media.from_data(media) for media in further["media"]]
        event = MessageEvent(told["text"], SessionSource.from_dict(told["source"]), **further)
        return Spooled(told["id"], told["key"], told["prefix"], told["time"], event)
    except (ValueError, KeyError, TypeError, SeriatimError):
        return None


def _dump(value: Any) -> str:
    # ASCII: half a surrogate pair comes back as it was, and no line end hides in a text.
    return json.dumps(value, ensure_ascii=True, separators=(",", ":"))


def _write(descriptor: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]


def _further() -> Iterable[str]:
    return (name for name in MessageEvent.__struct_fields__ if name not in ("text", "source"))


_FURTHER: Final = tuple(_further())
"""The other fields of an event, all plain JSON but for its media."""
