"""sessions.json: whole at every moment, cheap for those who aren't looking, and made again from the log."""

from __future__ import annotations

import json
import os
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from seriatim.actors import session_files
from seriatim.actors.entries import Entries
from seriatim.actors.session_files import SESSIONS, SessionsFile
from seriatim.actors.sessions import SessionStore
from seriatim.config import GatewayConfig
from seriatim.errors import CorruptionError
from seriatim.model import SessionSource
from seriatim.storage.mirror import read_mirror, write_mirror
from seriatim.storage.sqlite_reader import SqliteReader

QUIET = GatewayConfig(write_sessions_json=False)


class Killed(BaseException):
    """The process dies here."""


def dm(chat: str) -> SessionSource:
    """A direct chat."""
    return SessionSource("telegram", chat, user_id="7")


def entries_of(home: Path) -> Entries:
    """What the mirror of a home is made from."""
    return Entries(lambda: SqliteReader(home / "state.db"))


def close_late(file: SessionsFile, entries: Entries, pool: ThreadPoolExecutor, goes_on: threading.Event) -> None:
    """Close it on another thread, while its own waits for ``goes_on``, which is set once the close has begun."""
    closing = pool.submit(file.close)
    assert file._over.wait(30)
    goes_on.set()
    closing.result(30)
    entries.close()


def test_whoever_reads_while_many_write_sees_a_whole_file(tmp_path: Path) -> None:
    """Concurrent saves replace each other; none is mixed, none is empty (B126)."""
    path = tmp_path / SESSIONS
    contents = [{str(number): "x" * 10_000 * number} for number in range(1, 5)]
    write_mirror(path, contents[0], "what it is")
    over = threading.Event()
    seen: list[dict[str, Any]] = []

    def read() -> None:
        while not over.is_set():
            seen.append(read_mirror(path))

    with ThreadPoolExecutor(2) as pool:
        reading = pool.submit(read)
        for number in range(60):
            write_mirror(path, contents[number % 4], "what it is")
        over.set()
        reading.result(60)
    assert seen
    assert all(content in contents for content in seen)


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_crash_while_it_is_written_leaves_the_one_before(
    tmp_path: Path, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between its first byte and its rename nothing of the old file is touched (B126)."""
    path = tmp_path / SESSIONS
    write_mirror(path, {"a": 1}, "what it is")

    def die(*args: Any) -> None:
        raise Killed

    owner: Any = os if step == "fsync" else Path
    monkeypatch.setattr(owner, step, die)
    with pytest.raises(Killed):
        write_mirror(path, {"b": 2}, "what it is")
    monkeypatch.undo()
    assert read_mirror(path) == {"a": 1}
    write_mirror(path, {"b": 2}, "what it is")
    assert read_mirror(path) == {"b": 2}


def test_an_empty_file_is_made_again_from_the_store(tmp_path: Path) -> None:
    """Zero bytes beside a log: nothing is lost, and the next write has it all (B126)."""
    with SessionStore(tmp_path / "home") as store:
        entry = store.get_or_create_session(dm("1"))
    path = tmp_path / "home" / SESSIONS
    path.write_bytes(b"")
    with SessionStore(tmp_path / "home") as store:
        assert store.list_sessions() == [entry]
    assert read_mirror(path) == {entry.session_key: entry.to_dict()}


def test_routes_are_mirrored_soon_and_nothing_is_written_twice(tmp_path: Path) -> None:
    """A change of routes is written by itself; the same content isn't written again."""
    with SessionStore(tmp_path / "home", QUIET) as store:
        store.get_or_create_session(dm("1"))
        entries = entries_of(tmp_path / "home")
        file = SessionsFile(tmp_path / "home", entries, debounce_s=0.0, period_s=3600)
        written = threading.Event()
        real = file.write

        def write() -> None:
            real()
            written.set()

        file.write = write  # type: ignore[method-assign]
        file.soon()
        assert written.wait(30)
        before = file.path.stat().st_mtime_ns
        real()
        assert file.path.stat().st_mtime_ns == before
        store.get_or_create_session(dm("2"))
        real()
        assert len(read_mirror(file.path)) == 2
        file.close()
        entries.close()


def test_what_changes_while_it_is_written_is_in_the_last_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A close that comes in the middle of a write is followed by another write."""
    begun, goes_on = threading.Event(), threading.Event()

    def slow(path: Path, content: dict[str, Any], readme: str) -> None:
        begun.set()
        assert goes_on.wait(30)
        write_mirror(path, content, readme)

    monkeypatch.setattr(session_files, "write_mirror", slow)
    with SessionStore(tmp_path / "home", QUIET) as store, ThreadPoolExecutor(1) as pool:
        store.get_or_create_session(dm("1"))
        entries = entries_of(tmp_path / "home")
        file = SessionsFile(tmp_path / "home", entries, debounce_s=0.0, period_s=3600)
        file.soon()
        assert begun.wait(30)
        store.get_or_create_session(dm("2"))
        file.soon()
        close_late(file, entries, pool, goes_on)
    assert len(read_mirror(file.path)) == 2


def test_a_close_before_its_thread_has_begun_writes_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However late the machine lets the thread begin, the mirror is there when the store is closed."""
    may_begin = threading.Event()

    class Late(threading.Thread):
        def run(self) -> None:
            assert may_begin.wait(30)
            super().run()

    with SessionStore(tmp_path / "home", QUIET) as store, ThreadPoolExecutor(1) as pool:
        store.get_or_create_session(dm("1"))
        entries = entries_of(tmp_path / "home")
        pool.submit(int).result()  # has its thread before threads are late
        monkeypatch.setattr(threading, "Thread", Late)
        file = SessionsFile(tmp_path / "home", entries)
        monkeypatch.undo()
        close_late(file, entries, pool, may_begin)
    assert len(read_mirror(file.path)) == 1


def test_a_file_that_cannot_be_written_stops_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A folder in its place: the store works, and the log says what is not up to date."""
    (tmp_path / "home").mkdir(mode=0o700)
    with SessionStore(tmp_path / "home") as store:
        (tmp_path / "home" / SESSIONS).mkdir()
        store.get_or_create_session(dm("1"))
    assert any("not up to date" in record.message for record in caplog.records)


def test_a_damaged_log_is_left_out_and_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The mirror has all others, however often it is written; who lists the sessions is told that one is damaged."""
    home = tmp_path / "home"
    with SessionStore(home, QUIET) as store:
        lost, kept = (store.get_or_create_session(dm(chat)) for chat in ("1", "2"))
    with sqlite3.connect(home / "state.db") as file:
        file.execute("UPDATE events SET data = replace(data, ?, 'damaged')", [lost.session_id])
    file.close()
    entries = entries_of(home)
    mirror = SessionsFile(home, entries, period_s=3600)
    for _ in range(3):
        mirror._written = None
        mirror.write()
    mirror.close()
    with pytest.raises(CorruptionError):
        entries.items()
    entries.close()
    assert list(read_mirror(home / SESSIONS)) == [kept.session_key]
    assert len([record for record in caplog.records if SESSIONS in record.message]) == 1


def test_an_import_that_was_cut_off_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process dies between two lanes: the next start takes over the rest, once."""
    with SessionStore(tmp_path / "old") as old:
        for chat in range(4):
            old.get_or_create_session(dm(str(chat)))
        kept = old.list_sessions()
    home = tmp_path / "new"
    home.mkdir(mode=0o700)
    (home / SESSIONS).write_text((tmp_path / "old" / SESSIONS).read_text())
    taken: list[int] = []
    real = session_files._take

    def take(lanes: Any, at: int, record: Any, keys: Any) -> bool:
        if at == 2 and not taken:
            taken.append(at)
            raise Killed
        return real(lanes, at, record, keys)

    monkeypatch.setattr(session_files, "_take", take)
    with pytest.raises(Killed):
        SessionStore(home)
    with SessionStore(home) as store:
        assert sorted(store.list_sessions(), key=str) == sorted(kept, key=str)
    assert json.loads((home / SESSIONS).read_text()).keys() == {"_README", *(entry.session_key for entry in kept)}
    assert not [file for file in home.iterdir() if "importing" in file.name]


def test_a_pipe_in_its_place_is_no_file(tmp_path: Path) -> None:
    """It is told, and nobody waits for what may come of it."""
    os.mkfifo(tmp_path / SESSIONS)
    with pytest.raises(OSError, match="not a file"):
        read_mirror(tmp_path / SESSIONS)
