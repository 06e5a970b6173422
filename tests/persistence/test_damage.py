"""Damaged and torn JSONL logs: never content that nobody wrote, and a repair that a kill can't spoil."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from seriatim.errors import LogNotFoundError, StoreUnhealthyError, WriteUnknownError
from seriatim.storage.event_log.files import TEMPORARY
from seriatim.storage.event_log.frames import encode_frame
from seriatim.storage.event_log.jsonl import JsonlLogs
from seriatim.storage.event_log.lines import end_line
from seriatim.storage.event_log.persistence import SessionPersistence
from seriatim.storage.event_log.scan import Encoding
from seriatim.storage.event_log.values import SessionInspection
from seriatim.testing.log_contract import ID, header, opened, stored, turn

from .damage import Victim, measure

ENCODINGS: tuple[Encoding, ...] = ("raw", "zstd")
each_encoding = pytest.mark.parametrize("encoding", ENCODINGS)


def test_no_cut_and_no_flipped_bit_alters_anything(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each cut of a log and each flipped bit: intact, a typed error, or the last batch missing if that was hit."""
    counted = measure(tmp_path)
    with capsys.disabled():
        print(*(f"\n{name}: {counts}" for name, counts in counted.items()))

    assert [counts["altered"] for counts in counted.values()] == [0] * 6
    assert all(counts["intact"] + counts["before"] + counts["error"] > 500 for counts in counted.values())


@each_encoding
def test_after_any_cut_the_log_goes_on(tmp_path: Path, encoding: Encoding) -> None:
    """Wherever the last batch is cut, the next append is readable and nothing that was whole is lost (B112)."""
    victim = Victim(tmp_path, encoding)
    start, end = victim.ends[-2], len(victim.content)
    for cut in range(start, end, 7 if encoding == "raw" else 3):
        victim.path.write_bytes(victim.content[:cut])
        logs = JsonlLogs(victim.root, encoding)
        found = logs.read(ID)
        assert found is not None
        logs.append(ID, found.header, found.head, turn(found.head, 2))
        again = JsonlLogs(victim.root, encoding).read(ID)
        assert again is not None
        assert again.events == found.events + tuple(turn(found.head, 2))
        assert again.torn_bytes == 0


def add(path: Path, torn: bytes) -> None:
    """Put bytes at a file's end."""
    with path.open("ab") as file:
        file.write(torn)


def content_and_mode(path: Path) -> tuple[bytes, int]:
    """What a file holds, and who may read it."""
    return path.read_bytes(), path.stat().st_mode & 0o777


def beside(path: Path) -> list[Path]:
    """The other files of a session's folder."""
    return [other for other in path.parent.iterdir() if other != path]


TAILS: dict[str, Callable[[bytes], bytes]] = {
    "half an event": lambda line: line[: len(line) // 2],
    "half a character": lambda line: '{"type":"user/message","seq":3,"time":1,"data":{"text":"é'.encode()[:-1],
    "an event without its line end": lambda line: line[:-1],
    "a line end": lambda line: b"\n",
    "a blank line after half an event": lambda line: line[:20] + b"\n\n",
    "a whole event without its batch": lambda line: line,
    "a block of zeros": lambda line: bytes(4096),
    "half an event, then zeros": lambda line: line[:20] + bytes(512),
    "half of a batch's end": lambda line: line + end_line(1, 7)[:20],
}


@each_encoding
@pytest.mark.parametrize("tail", TAILS)
def test_each_torn_tail_is_put_aside(
    tmp_path: Path, encoding: Encoding, tail: str, caplog: pytest.LogCaptureFixture
) -> None:
    """At most the torn batch goes: its bytes are kept beside, the loss is told, the next append is readable (B112)."""
    line = b'{"type":"user/message","seq":3,"time":1,"data":{"turn":1,"text":"x"}}\n'
    torn = TAILS[tail](line)
    if encoding == "zstd" and torn.strip(b"\0"):
        torn = encode_frame(torn)[:-3]

    async def story() -> None:
        async with SessionPersistence(JsonlLogs(tmp_path, encoding)) as service:
            await stored(service, opened(0))
            place = service.locate(header())
        assert place is not None
        path = Path(place.path)
        add(path, torn)
        async with SessionPersistence(JsonlLogs(tmp_path, encoding)) as service:
            assert (await service.inspect(ID)).lost_bytes == len(torn)
            assert content_and_mode(path)[0].endswith(torn)
            with caplog.at_level(logging.WARNING):
                loaded = await service.load(ID)
            assert f"torn batch of {len(torn)} bytes" in caplog.text
            await service.append(ID, turn(5, 2))
        (aside,) = beside(path)
        assert content_and_mode(aside) == (torn, 0o600)
        async with SessionPersistence(JsonlLogs(tmp_path, encoding)) as service:
            found = await service.load(ID)
            assert found.events[:5] == loaded.events
            assert (found.events[:3], len(found.events), found.lost_bytes) == (tuple(opened(0)), 11, 0)

    asyncio.run(story())


def test_a_whole_batch_without_its_line_end_is_kept(tmp_path: Path) -> None:
    """A raw batch that lacks only the last line end is whole; the next append doesn't fuse with it (B112)."""
    logs = JsonlLogs(tmp_path, "raw")
    logs.append(ID, header(), 0, turn(0))
    path = Path(logs.locate(header()).path)
    path.write_bytes(path.read_bytes()[:-1])
    logs = JsonlLogs(tmp_path, "raw")

    logs.append(ID, header(), 6, turn(6, 2))

    found = JsonlLogs(tmp_path, "raw").read(ID)
    assert found is not None
    assert (len(found.events), found.torn_bytes) == (12, 0)
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


class KilledError(BaseException):
    """The process is gone. Not an Exception: nothing may tidy up after it."""


STEPS = ("pwrite", "fsync", "ftruncate", "link", "unlink", "replace")


@contextmanager
def killed_at(step: int) -> Iterator[list[str]]:
    """A process that dies before its ``step``-th change of the disk; gives the names of the changes made."""
    done: list[str] = []
    real = {name: getattr(os, name) for name in STEPS}

    def wrap(name: str) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if len(done) >= step:
                raise KilledError
            done.append(name)
            return real[name](*args, **kwargs)

        return call

    with pytest.MonkeyPatch.context() as patch:
        for name in STEPS:
            patch.setattr(os, name, wrap(name))
        yield done


def _files(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file() and p.name != TEMPORARY}


async def _load(root: Path, encoding: Encoding) -> SessionInspection:
    service = SessionPersistence(JsonlLogs(root, encoding))
    try:
        return await service.load(ID)
    finally:
        await service.close()


@each_encoding
def test_a_repair_that_is_killed_ends_in_the_same_bytes(tmp_path: Path, encoding: Encoding) -> None:
    """Killed between any two steps of cutting and closing, twice if need be, a repair ends in the same files."""

    def torn(folder: str) -> Path:
        root = tmp_path / folder
        logs = JsonlLogs(root, encoding)
        logs.append(ID, header(), 0, opened(0))
        with Path(logs.locate(header()).path).open("ab") as file:
            file.write(b'{"type":"turn/end","seq":3,"ti' if encoding == "raw" else encode_frame(b"x" * 99)[:-2])
        return root

    root = torn("whole")
    with killed_at(10**9) as done:
        asyncio.run(_load(root, encoding))
    expected, steps = _files(tmp_path / "whole"), len(done)
    assert steps >= 8
    for step in range(steps):
        for second in range(0, steps - step + 1, 2):
            root = torn(f"{step}-{second}")
            for kill in (step, second):
                with killed_at(kill), suppress(KilledError):  # the second one may come too late
                    asyncio.run(_load(root, encoding))
            asyncio.run(_load(root, encoding))
            assert _files(root) == expected


@each_encoding
def test_a_creation_that_is_killed_leaves_all_or_nothing(tmp_path: Path, encoding: Encoding) -> None:
    """Killed at any step, a new session's first batch is whole or absent, and can be offered again."""
    with killed_at(10**9) as done:
        JsonlLogs(tmp_path / "whole", encoding).append(ID, header(), 0, turn(0))
    for step in range(len(done)):
        root = tmp_path / str(step)
        with killed_at(step), pytest.raises(KilledError):
            JsonlLogs(root, encoding).append(ID, header(), 0, turn(0))
        logs = JsonlLogs(root, encoding)
        found = logs.read(ID)
        assert found is None or found.events == tuple(turn(0))
        assert len(logs.page(None, 10).snapshots) == (found is not None)
        assert logs.page(None, 10).problems == ()
        if found is None:
            logs.append(ID, header(), 0, turn(0))
        assert _files(root) == _files(tmp_path / "whole")


def test_folders_that_a_killed_creation_left_become_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Folders of a creation that was killed before it synced them are synced by the next one, before it answers."""
    logs = JsonlLogs(tmp_path / "root")
    path = Path(logs.locate(header()).path)
    path.parent.mkdir(parents=True)
    synced: set[int] = set()
    real = os.fsync

    def sync(descriptor: int) -> None:
        synced.add(os.fstat(descriptor).st_ino)
        real(descriptor)

    monkeypatch.setattr(os, "fsync", sync)

    logs.append(ID, header(), 0, turn(0))

    assert {folder.stat().st_ino for folder in (path.parent, *path.parents[1:3])} <= synced


@each_encoding
@pytest.mark.parametrize("broken", ["pwrite", "fsync", "short"])
def test_a_failed_append_is_taken_back(tmp_path: Path, encoding: Encoding, broken: str) -> None:
    """A full disk, a failing sync or a short write leaves the file as it was; the same batch then fits."""
    logs = JsonlLogs(tmp_path, encoding)
    logs.append(ID, header(), 0, turn(0))
    path = Path(logs.locate(header()).path)
    before = path.read_bytes()
    with _failing(broken, 1), pytest.raises(StoreUnhealthyError):
        logs.append(ID, header(), 6, turn(6, 2))

    assert path.read_bytes() == before
    logs.append(ID, header(), 6, turn(6, 2))
    found = logs.read(ID)
    assert found is not None
    assert len(found.events) == 12


@each_encoding
def test_an_append_that_cannot_be_taken_back_says_so(tmp_path: Path, encoding: Encoding) -> None:
    """When putting the file back fails too, nobody claims to know; a new look tells what is there."""
    logs = JsonlLogs(tmp_path, encoding)
    logs.append(ID, header(), 0, turn(0))
    with _failing("fsync", 2), pytest.raises(WriteUnknownError, match=r"EIO.*EIO"):
        logs.append(ID, header(), 6, turn(6, 2))

    found = logs.read(ID)
    assert found is not None
    assert found.head == 6
    logs.append(ID, header(), 6, turn(6, 2))


@contextmanager
def _failing(name: str, times: int) -> Iterator[None]:
    left = [times]
    real_write, real_sync = os.pwrite, os.fsync

    def sync(descriptor: int) -> None:
        if left[0]:
            left[0] -= 1
            raise OSError(5, "EIO")
        real_sync(descriptor)

    def write(descriptor: int, content: Any, at: int) -> int:
        if left[0]:
            if name == "short" and len(content) > 10:
                return real_write(descriptor, content[:10], at)
            left[0] -= 1
            raise OSError(28, "ENOSPC")
        return real_write(descriptor, content, at)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, *(("fsync", sync) if name == "fsync" else ("pwrite", write)))
        yield


def test_a_missing_log_is_missing(tmp_path: Path) -> None:
    """A folder without its file, as a kill before the first batch leaves it, is no session."""
    logs = JsonlLogs(tmp_path)
    Path(logs.locate(header()).path).parent.mkdir(parents=True)

    async def story() -> None:
        async with SessionPersistence(logs) as service:
            with pytest.raises(LogNotFoundError):
                await service.load(ID)
            assert await service.list() == []
            await stored(service, turn(0))

    asyncio.run(story())
