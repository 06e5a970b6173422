"""JSONL files: many frames, bombs, listings with bad ones, permissions, formats, other tools."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import shutil
import subprocess
import sys
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from seriatim.errors import (
    CommitTooLargeError,
    HeadMismatchError,
    InvalidInputError,
    LogExistsError,
    LogNotFoundError,
    SessionFormatUnsupportedError,
    SessionPersistenceCorruptionError,
    StoreUnhealthyError,
)
from seriatim.limits import JSONL_FRAME_BYTES_MAX, PREPARE_TRIES_MAX, STORE_COMMIT_BYTES_MAX
from seriatim.storage.event_log import jsonl
from seriatim.storage.event_log.frames import encode_frame
from seriatim.storage.event_log.jsonl import JsonlLogs
from seriatim.storage.event_log.lines import encode_events, header_line
from seriatim.storage.event_log.paths import encode_id, project_of
from seriatim.storage.event_log.persistence import SessionPersistence
from seriatim.storage.event_log.scan import Encoding
from seriatim.storage.event_log.values import Revision, SessionEvent
from seriatim.testing.log_contract import ID, event, header, stored, turn

each_encoding = pytest.mark.parametrize("encoding", ["raw", "zstd"])
SKIPPABLE = (0x184D2A53).to_bytes(4, "little") + (5).to_bytes(4, "little") + b"aside"


def write(root: Path, content: bytes, session_id: str = ID, encoding: Encoding = "zstd") -> Path:
    """Put a file in a session's place."""
    path = Path(JsonlLogs(root, encoding).locate(header(session_id)).path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def frames(events: Sequence[SessionEvent], each: int) -> bytes:
    """A log with so many events a frame."""
    lines = encode_events(events, 0)
    batches = [encode_frame(b"".join(lines[i : i + each])) for i in range(0, len(lines), each)]
    return encode_frame(header_line(header())) + b"".join(batches)


@pytest.mark.parametrize("count", [1, 2, 1000])
def test_every_frame_is_read(tmp_path: Path, count: int) -> None:
    """A log of one, two or a thousand frames gives all its events, by this library and by the zstd program (B115)."""
    events = [event("x/y", n, n=n) for n in range(count)]
    path = write(tmp_path, frames(events, 1))

    found = JsonlLogs(tmp_path).read(ID)

    assert found is not None
    assert found.events == tuple(events)
    assert found.head == found.events[-1].seq + 1 == count
    if shutil.which("zstdcat"):
        lines = subprocess.run(["zstdcat", path], capture_output=True, check=True).stdout.splitlines()
        assert [json.loads(line).get("seq") for line in lines] == [None, *range(count)]


def test_empty_and_skippable_frames_are_passed_over(tmp_path: Path) -> None:
    """Frames without content, anywhere, hide nothing; a log rewritten as one frame reads the same (B115)."""
    events = [event("x/y", n, n=n) for n in range(6)]
    lines = encode_events(events, 0)
    odd = encode_frame(b"")
    content = odd + SKIPPABLE + encode_frame(header_line(header())) + SKIPPABLE + odd
    content += encode_frame(b"".join(lines[:2])) + odd + SKIPPABLE + encode_frame(b"".join(lines[2:])) + SKIPPABLE
    for number, log in enumerate((content, encode_frame(header_line(header()) + b"".join(lines)))):
        write(tmp_path / str(number), log)
        logs = JsonlLogs(tmp_path / str(number))
        found = logs.read(ID)
        assert found is not None
        assert (found.events, found.torn_bytes) == (tuple(events), 0)
        logs.append(ID, header(), 6, [event("x/y", 6)])
        assert [s.header.id for s in logs.page(None, 9).snapshots] == [ID]
        again = logs.read(ID)
        assert again is not None
        assert again.head == 7


def test_a_large_log_is_walked_in_bounded_memory(tmp_path: Path) -> None:
    """A log of 300 MB, compressed, is checked to its end and appended to with little more than a frame of it (B117)."""
    parts, text = 300, "x" * 1_000_000
    path = write(tmp_path, encode_frame(header_line(header())))
    with path.open("ab") as file:
        for n in range(parts):
            file.write(encode_frame(encode_events([event("x/y", n, text=text)], n)[0]))
    logs = JsonlLogs(tmp_path)
    tracemalloc.start()

    with pytest.raises(HeadMismatchError) as behind:
        logs.append(ID, header(), 1, [event("x/y", 1)])
    logs.append(ID, header(), parts, [event("x/y", parts)])

    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert behind.value.actual == parts
    assert peak < 32 * 1024 * 1024


def bomb(declared: int | None, blocks: int) -> bytes:
    """A frame of so many blocks that each become 128 KiB; a few bytes on disk."""
    start = b"\x28\xb5\x2f\xfd" + (b"\x04\x58" if declared is None else b"\xc4\x58" + declared.to_bytes(8, "little"))
    block = (131072 << 3 | 1 << 1).to_bytes(3, "little") + b"\0"
    last = (131072 << 3 | 1 << 1 | 1).to_bytes(3, "little") + b"\0"
    return start + block * (blocks - 1) + last + b"sums"


@pytest.mark.parametrize("declared", [None, 2**32, 100])
def test_a_bomb_is_refused(tmp_path: Path, declared: int | None) -> None:
    """A frame that would become 4 GiB is refused with a clear error, after at most one bound's worth of work (B117)."""
    write(tmp_path, frames(turn(0), 6) + bomb(declared, 32768))
    tracemalloc.start()
    with pytest.raises(SessionPersistenceCorruptionError, match=r"bytes|frame"):
        JsonlLogs(tmp_path).read(ID)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 3 * JSONL_FRAME_BYTES_MAX


def test_a_frame_without_a_checksum_is_refused(tmp_path: Path) -> None:
    """Nobody could tell whether such a frame is what was written."""
    sound = encode_frame(b"".join(encode_events(turn(0), 0)))
    bare = sound[:4] + bytes([sound[4] & ~0x04]) + sound[5:-4]
    write(tmp_path, encode_frame(header_line(header())) + bare)

    with pytest.raises(SessionPersistenceCorruptionError, match="no checksum"):
        JsonlLogs(tmp_path).read(ID)


@each_encoding
def test_bad_ones_do_not_stop_a_list(tmp_path: Path, encoding: Encoding, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 1000 sessions the sound ones are listed, and each bad one has its typed problem (B114)."""
    logs = JsonlLogs(tmp_path, encoding)
    logs.append("s0000", header("s0000"), 0, turn(0))
    whole = Path(logs.locate(header("s0000")).path).read_bytes()
    one = encode_frame(header_line(header("s0000"))) if encoding == "zstd" else header_line(header("s0000"))
    for number in range(1, 1000):
        name = f"s{number:04}"
        if encoding == "zstd":
            write(tmp_path, encode_frame(header_line(header(name))) + whole[len(one) :], name)
        else:
            made = JsonlLogs(tmp_path, "raw")
            lines, crc = made._encode([header_line(header(name))], 0, 0)
            body, _ = made._encode(encode_events(turn(0), 0), 6, crc)
            write(tmp_path, lines + body, name, "raw")
    path = {n: Path(logs.locate(header(f"s{n:04}")).path) for n in (6, 7, 8, 9, 10, 11, 12)}
    path[6].unlink()
    os.mkfifo(path[6])
    path[7].write_bytes(b"\x28\xb5\x2f\xfdgarbage that is no frame" * 9)
    path[8].write_bytes(b"")
    path[10].unlink()
    path[10].mkdir()
    path[11].unlink()
    path[11].symlink_to(path[12])
    real = os.open

    def guarded(target: Any, *rest: Any, **more: Any) -> int:
        if target == path[9]:
            raise PermissionError(13, "not for you")
        return real(target, *rest, **more)

    monkeypatch.setattr(os, "open", guarded)

    async def story() -> None:
        async with SessionPersistence(logs) as service:
            listed = {h.id for h in await service.list()}
            assert listed == {f"s{n:04}" for n in range(1000)} - {f"s{n:04}" for n in (6, 7, 8, 9, 10, 11)}
            problems = {p.where: type(p.error) for p in (await service.survey(limit=2000)).problems}
            assert problems == {
                str(path[6]): SessionPersistenceCorruptionError,
                str(path[7]): SessionPersistenceCorruptionError,
                str(path[8]): SessionPersistenceCorruptionError,
                str(path[9]): StoreUnhealthyError,
                str(path[10]): SessionPersistenceCorruptionError,
                str(path[11]): SessionPersistenceCorruptionError,
            }
            assert len((await service.load("s0012")).events) == 6

    asyncio.run(story())


@each_encoding
def test_files_are_the_owner_s_alone(tmp_path: Path, encoding: Encoding) -> None:
    """A log has mode 0600, its folders 0700, whatever the umask."""
    umask = os.umask(0)
    try:
        logs = JsonlLogs(tmp_path / "logs", encoding)
        logs.append(ID, header(cwd="/srv/x"), 0, turn(0))
    finally:
        os.umask(umask)
    path = Path(logs.locate(header(cwd="/srv/x")).path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert {folder.stat().st_mode & 0o777 for folder in (path.parent, path.parents[1], path.parents[2])} == {0o700}


@each_encoding
@pytest.mark.parametrize("version", [2, 0, -1, "2", None, {"a": 1}])
def test_a_foreign_version_is_left_as_it_is(tmp_path: Path, encoding: Encoding, version: Any) -> None:
    """Another version, even with a shape that nobody knows yet, is named by its direction; no byte changes (B118)."""
    stored_header = {"version": version, "shape": ["of", {"the": "future"}]}
    if version is None:
        del stored_header["version"]
    text = json.dumps(stored_header).encode() + b"\n!! no JSON at all\n"
    path = write(tmp_path, encode_frame(text) if encoding == "zstd" else text, encoding=encoding)
    before = (path.read_bytes(), path.stat().st_mtime_ns)

    async def story() -> None:
        async with SessionPersistence(JsonlLogs(tmp_path, encoding)) as service:
            for refused in (service.load(ID), service.inspect(ID), service.read_from(ID, 0), service.read_raw(ID),
                            service.append(ID, turn(0)), service.prepare(ID)):  # fmt: skip
                with pytest.raises(SessionFormatUnsupportedError) as error:
                    await refused
                assert error.value.direction == ("upgrade" if version == 2 else "no path")
                assert error.value.location == str(path)
            (problem,) = (await service.survey()).problems
            assert isinstance(problem.error, SessionFormatUnsupportedError)

    asyncio.run(story())
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before


def test_another_program_s_log_is_foreign(tmp_path: Path) -> None:
    """The application is asked before the version, and what isn't a log at all is damage."""
    path = write(tmp_path, encode_frame(b'{"app":"other","version":99}\n'))
    with pytest.raises(SessionFormatUnsupportedError) as error:
        JsonlLogs(tmp_path).read(ID)
    assert error.value.direction == "foreign"
    for junk in (b"", b"\0" * 64, gzip.compress(b"x"), encode_frame(b"no json\n"), encode_frame(b"[1]\n")):
        path.write_bytes(junk)
        with pytest.raises(SessionPersistenceCorruptionError):
            JsonlLogs(tmp_path).read(ID)


def test_a_root_has_one_encoding(tmp_path: Path) -> None:
    """A file of the other encoding is refused with advice, by reading, appending and listing alike."""
    JsonlLogs(tmp_path, "raw").append(ID, header(), 0, turn(0))
    logs = JsonlLogs(tmp_path, "zstd")
    for refused in (lambda: logs.read(ID), lambda: logs.append(ID, header(), 0, turn(0)), lambda: logs.revision(ID)):
        with pytest.raises(SessionFormatUnsupportedError, match='encoding="raw"'):
            refused()
    (problem,) = logs.page(None, 9).problems
    assert isinstance(problem.error, SessionFormatUnsupportedError)
    with pytest.raises(InvalidInputError):
        JsonlLogs(tmp_path, "gzip")  # type: ignore[arg-type]


def test_a_log_must_lie_in_its_place(tmp_path: Path) -> None:
    """Another session's file, or another project's, isn't taken for this one's; neither are two of them."""
    logs = JsonlLogs(tmp_path)
    logs.append(ID, header(cwd="/srv/a"), 0, turn(0))
    path = Path(logs.locate(header(cwd="/srv/a")).path)
    for cwd, other in (("/srv/a", "someone"), ("/srv/b", ID)):
        moved = Path(logs.locate(header(other, cwd=cwd)).path)
        moved.parent.mkdir(parents=True)
        shutil.copyfile(path, moved)
    with pytest.raises(SessionPersistenceCorruptionError, match="elsewhere"):
        JsonlLogs(tmp_path).read("someone")
    with pytest.raises(SessionPersistenceCorruptionError, match="twice"):
        JsonlLogs(tmp_path).read(ID)
    assert len(JsonlLogs(tmp_path).page(None, 9).problems) == 2


def test_names_are_injective_and_harmless() -> None:
    """No id leaves its folder, meets another's name when case is folded, or is too long for a file system."""
    ids = [
        "..",
        ".",
        "a/b",
        "a\\b",
        "A",
        "a",
        "~0041",
        "é",
        "e\u0301",
        "",
        "x" * 300,
        "x" * 299 + "y",
        "\U0001f44d",
        "a.b",
    ]
    names = [encode_id(i) for i in ids if i]

    assert len({name.lower() for name in names}) == len(names)
    assert all(0 < len(name.encode()) <= 255 and not set(name) & set("/\\.:\0") for name in names)
    folders = [project_of(cwd) for cwd in (None, "/", "/srv/a", "C:\\a\\b", "/é/ü", "/" + "d/" * 400, "/-/--x")]
    assert len(set(folders)) == len(folders)
    assert all(len(folder.encode()) <= 255 and "/" not in folder for folder in folders)


@each_encoding
def test_two_writers_take_turns(tmp_path: Path, encoding: Encoding) -> None:
    """Two handles on one root see each other's batches; the one that is behind is refused, nothing is mixed."""
    one, two = JsonlLogs(tmp_path, encoding), JsonlLogs(tmp_path, encoding)
    one.append(ID, header(), 0, turn(0))
    with pytest.raises(LogExistsError):
        two.append(ID, header(), 0, turn(0))
    two.append(ID, header(), 6, turn(6, 2))
    with pytest.raises(HeadMismatchError) as behind:
        one.append(ID, header(), 6, turn(6, 2))
    assert behind.value.actual == 12
    one.append(ID, header(), 12, turn(12, 3))
    with pytest.raises(LogNotFoundError):
        one.append("nobody", header("nobody"), 6, turn(6))
    found = two.read(ID)
    assert found is not None
    assert found.events == (*turn(0), *turn(6, 2), *turn(12, 3))


WRITER = """
import sys
from seriatim.errors import HeadMismatchError, StoreUnhealthyError
from seriatim.storage.event_log.jsonl import JsonlLogs
from seriatim.testing.log_contract import ID, event, header
def present():
    while True:
        try:
            return logs.read(ID).head
        except StoreUnhealthyError:  # the other writes faster than this one reads
            continue
logs, head, written = JsonlLogs(sys.argv[1], sys.argv[2]), 0, 0
while written < 40:
    try:
        logs.append(ID, header(), head, [event("x/y", head, by=sys.argv[3])])
        head, written = head + 1, written + 1
    except HeadMismatchError as error:
        head = error.actual
    except Exception as error:
        if type(error).__name__ != "LogExistsError":
            raise
        head = present()
"""


@each_encoding
def test_two_processes_take_turns(tmp_path: Path, encoding: Encoding) -> None:
    """Two processes that append to one log at once lose nothing and number without a hole."""
    command = [sys.executable, "-c", WRITER, str(tmp_path), encoding]
    writers = [subprocess.Popen([*command, name]) for name in ("a", "b")]
    assert [writer.wait(60) for writer in writers] == [0, 0]

    found = JsonlLogs(tmp_path, encoding).read(ID)

    assert found is not None
    assert found.head == 80
    assert [sum(e.data["by"] == name for e in found.events) for name in ("a", "b")] == [40, 40]


@each_encoding
def test_a_batch_has_a_bound(tmp_path: Path, encoding: Encoding) -> None:
    """A batch that a reader wouldn't take is refused whole, and a large one below the bound comes back."""
    logs = JsonlLogs(tmp_path, encoding)
    with pytest.raises(CommitTooLargeError):
        logs.append(ID, header(), 0, [event("x/y", 0, text="x" * STORE_COMMIT_BYTES_MAX)])
    assert logs.read(ID) is None
    large = event("x/y", 0, text=os.urandom(4_000_000).hex())
    logs.append(ID, header(), 0, [large])
    found = logs.read(ID)
    assert found is not None
    assert found.events == (large,)


@each_encoding
def test_other_tools_read_the_files(tmp_path: Path, encoding: Encoding) -> None:
    """``zstdcat`` and ``jq`` read a log without knowing us; the keys are the seed's."""
    if not (shutil.which("zstdcat") and shutil.which("jq")):
        pytest.skip("zstdcat or jq isn't on this machine")
    events = [SessionEvent("user/message", 0, 1, {"text": "é"}, False, (), "append"), event("x/y", 1)]
    logs = JsonlLogs(tmp_path, encoding)
    logs.append(ID, header(agent_preset="p"), 0, events)
    path = logs.locate(header()).path
    text = subprocess.run(["zstdcat", "-f", path], capture_output=True, check=True).stdout
    keys = subprocess.run(["jq", "-c", "keys_unsorted"], input=text, capture_output=True, check=True).stdout.decode()
    lines = [json.loads(line) for line in keys.splitlines()]
    assert lines[0] == ["type", "app", "version", "id", "createdAt", "agentPreset"]
    assert ["type", "seq", "time", "data", "surfaceOp", "sourceEventSeqs"] in lines


def test_the_artifact_is_byte_for_byte(tmp_path: Path) -> None:
    """The raw artifact is the file's own text, without what is torn at its end."""
    logs = JsonlLogs(tmp_path, "raw")
    logs.append(ID, header(), 0, turn(0))
    path = Path(logs.locate(header()).path)
    whole = path.read_text()
    path.write_text(whole + '{"type":"tu')

    async def story() -> None:
        async with SessionPersistence(logs) as service:
            found = await service.read_raw(ID)
            assert found is not None
            assert found.content == whole
            await stored(service, turn(0), "other")

    asyncio.run(story())


@each_encoding
def test_a_file_that_never_rests_is_given_up(
    tmp_path: Path, encoding: Encoding, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that is another one after each read is given up with an error, after a bounded number of reads."""
    logs = JsonlLogs(tmp_path, encoding)
    logs.append(ID, header(), 0, turn(0))
    looks: list[object] = []

    def changing(file: object) -> Revision:
        looks.append(file)
        return Revision(str(len(looks)))

    monkeypatch.setattr(jsonl, "_revision", changing)

    with pytest.raises(StoreUnhealthyError, match="faster"):
        logs.read(ID)
    assert len(looks) == 2 * PREPARE_TRIES_MAX
