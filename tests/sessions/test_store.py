"""SessionStore alone: the seed's sixteen methods over a real home."""

from __future__ import annotations

import asyncio
import inspect
import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from seriatim.actors import session_ops, solo
from seriatim.actors.loading import read_state
from seriatim.actors.session_files import SESSIONS, SoloDoor
from seriatim.actors.sessions import AsyncSessions, SessionStore
from seriatim.config import GatewayConfig
from seriatim.errors import (
    AmbiguousKeyError,
    CommitTooLargeError,
    HomeBusyError,
    InvalidInputError,
    LaneBusyError,
    WrongThreadError,
)
from seriatim.keys import SessionKey, build_session_key
from seriatim.lane import LaneState
from seriatim.model import SessionSource
from seriatim.storage import plain, staging
from seriatim.storage.contract import StoreReader
from seriatim.storage.event_log.store_logs import StoreLogs
from seriatim.storage.home import Home
from seriatim.storage.sqlite import SqliteStore
from seriatim.store_calls import Append, Rewind, Rewrite
from seriatim.testing.log_contract import header, turn
from tests.sessions.worlds import leave_a_turn_open

METHODS = {
    "get_or_create_session": ("source", "force_new"),
    "update_session": ("session_key", "last_prompt_tokens"),
    "reset_session": ("session_key", "display_name"),
    "switch_session": ("session_key", "target_session_id", "expected_session_id"),
    "suspend_session": ("session_key",),
    "mark_resume_pending": ("session_key", "reason"),
    "clear_resume_pending": ("session_key",),
    "recover_interrupted_turns": ("max_age_seconds",),
    "prune_old_entries": ("max_age_days", "dry_run"),
    "list_sessions": ("active_minutes",),
    "lookup_by_session_id": ("session_id",),
    "has_any_sessions": (),
    "append_to_transcript": ("session_id", "message", "skip_db"),
    "rewrite_transcript": ("session_id", "messages"),
    "load_transcript": ("session_id",),
    "rewind_session": ("session_id", "n"),
}


def dm(chat: str = "1") -> SessionSource:
    """A direct chat."""
    return SessionSource("telegram", chat, user_id="7", chat_name=f"Chat {chat}")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SessionStore]:
    """A store of its own."""
    with SessionStore(tmp_path / "home") as opened:
        yield opened


def said(*texts: str) -> list[dict[str, Any]]:
    """User messages."""
    return [{"role": "user", "content": text} for text in texts]


def texts(store: SessionStore, session_id: str) -> list[Any]:
    """What the session shows."""
    return [message["content"] for message in store.load_transcript(session_id)]


@pytest.mark.parametrize("kind", [SessionStore, AsyncSessions])
def test_the_sixteen_methods_have_the_seeds_names_and_parameters(kind: type) -> None:
    """Sixteen, and their awaitable twins; parameters by name."""
    assert len(METHODS) == 16
    for name, parameters in METHODS.items():
        assert tuple(inspect.signature(getattr(kind, name)).parameters)[1:] == parameters


def test_a_session_key_is_the_seeds_text(store: SessionStore) -> None:
    """What build_session_key gives is what the entry is called, and either form finds it."""
    entry = store.get_or_create_session(dm())
    assert entry.session_key == build_session_key(dm(), True, False) == "agent:main:telegram:dm:1"
    key = SessionKey.from_source(dm(), GatewayConfig())
    for form in (entry.session_key, key.canonical, key):
        assert store.update_session(form)


def test_an_unknown_key_gives_none_or_false(store: SessionStore) -> None:
    """Never an exception, whatever the text; and no lane comes of it."""
    for odd in ("nowhere", "", "agent:main:telegram:dm:9", "v1:::::::", "\ud800", "x" * 100_000, "a\0b", 3):
        key: Any = odd
        assert store.update_session(key) is False
        assert store.reset_session(key) is None
        assert store.switch_session(key, key) is None
        assert store.suspend_session(key) is False
        assert store.mark_resume_pending(key) is False
        assert store.clear_resume_pending(key) is False
        assert store.lookup_by_session_id(key) is None
        assert store.append_to_transcript(key, said("x")[0]) is False
        assert store.rewrite_transcript(key, said("x")) is False
        assert store.load_transcript(key) == []
        assert store.rewind_session(key) is None
    assert store.list_sessions() == []
    assert not store.has_any_sessions()


def test_everything_is_there_after_a_reopen(tmp_path: Path) -> None:
    """Entries, flags, transcripts."""
    with SessionStore(tmp_path / "home") as store:
        first = store.get_or_create_session(dm("1"))
        second = store.get_or_create_session(dm("2"))
        store.append_to_transcript(first.session_id, {"role": "user", "content": "hi"})
        store.mark_resume_pending(first.session_key)
        store.update_session(second.session_key, last_prompt_tokens=9)
        before = {entry.session_key: entry for entry in store.list_sessions()}
    with SessionStore(tmp_path / "home") as store:
        assert {entry.session_key: entry for entry in store.list_sessions()} == before
        assert texts(store, first.session_id) == ["hi"]
        assert store.lookup_by_session_id(first.session_id) == before[first.session_key]
        assert before[second.session_key].last_prompt_tokens == 9


def test_any_sessions_is_true_from_the_first_one_on(store: SessionStore) -> None:
    """Also when its entry has been pruned."""
    assert not store.has_any_sessions()
    store.get_or_create_session(dm())
    assert store.has_any_sessions()
    assert store.prune_old_entries(1e-9) == 1
    assert store.list_sessions() == []
    assert store.has_any_sessions()


def test_a_listing_is_newest_first_and_by_activity(store: SessionStore) -> None:
    """updated_at descending; active_minutes bounds it from below."""
    for chat in ("1", "2", "3"):
        store.get_or_create_session(dm(chat))
    store.update_session(build_session_key(dm("1"), True, False))
    listed = store.list_sessions()
    assert listed == sorted(listed, key=lambda entry: entry.updated_at, reverse=True)
    assert len(store.list_sessions(active_minutes=5)) == 3
    assert store.list_sessions(active_minutes=-1) == []


def test_a_lookup_knows_present_sessions_only(store: SessionStore) -> None:
    """A session that its lane has left is nobody's entry."""
    first = store.get_or_create_session(dm())
    second = store.reset_session(first.session_key)
    assert second is not None
    assert store.lookup_by_session_id(first.session_id) is None
    assert store.lookup_by_session_id(second.session_id) == second


@pytest.mark.parametrize("name", [5, "n" * 4097, "a\ud800"])
def test_a_display_name_that_cannot_be_kept_is_refused(store: SessionStore, name: Any) -> None:
    """By the argument's name, before the session is left; one that can be kept is the entry's."""
    first = store.get_or_create_session(dm())
    with pytest.raises(InvalidInputError) as told:
        store.reset_session(first.session_key, name)
    assert told.value.field == "display_name"
    assert [entry.session_id for entry in store.list_sessions()] == [first.session_id]
    second = store.reset_session(first.session_key, "n" * 4096)
    assert second is not None
    assert second.display_name == "n" * 4096


def test_a_rewrite_that_no_commit_holds_is_refused_at_once(
    store: SessionStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before its lane is asked, which would have to read and fold for it; what was shown stays."""
    entry = store.get_or_create_session(dm())
    store.append_to_transcript(entry.session_id, said("kept")[0])
    monkeypatch.setattr(session_ops, "STORE_COMMIT_BYTES_MAX", 2000)
    with monkeypatch.context() as patched:
        patched.setattr(SoloDoor, "ask", lambda *asked: pytest.fail("the lane was asked"))
        for large in (said("y" * 2000), said(*(str(n) for n in range(20)))):
            with pytest.raises(
                CommitTooLargeError, match=rf"^{len(large)} messages make .* at most 2000 in one commit"
            ):
                store.rewrite_transcript(entry.session_id, large)
    assert texts(store, entry.session_id) == ["kept"]
    assert store.rewrite_transcript(entry.session_id, said("y" * 1000))
    assert texts(store, entry.session_id) == ["y" * 1000]


def test_the_early_refusal_refuses_nothing_that_would_fit(store: SessionStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rewrite is weighed at no more than the store counts for it, and hardly less; at the end of a long log too."""
    entry = store.get_or_create_session(dm())
    for _ in range(12):
        store.append_to_transcript(entry.session_id, said("before")[0])
    messages = [*said("q\N{SNOWMAN}"), {"role": "tool", "content": {"x": 1}}, *said("p")]

    def refused_at(size: int, *modules: Any) -> str:
        with monkeypatch.context() as patched:
            for module in modules:
                patched.setattr(module, "STORE_COMMIT_BYTES_MAX", size)
            with pytest.raises(CommitTooLargeError) as told:
                store.rewrite_transcript(entry.session_id, messages)
        return str(told.value)

    weighed = int(refused_at(0, session_ops).split()[3])
    refused_at(weighed - 1, plain, staging)
    counted = int(refused_at(weighed, plain, staging).split()[0])
    assert weighed < counted < weighed + 200


def test_a_session_moves_between_lanes(store: SessionStore) -> None:
    """A session id is bound to one lane at most: the other one starts fresh."""
    one, other = store.get_or_create_session(dm("1")), store.get_or_create_session(dm("2"))
    store.append_to_transcript(other.session_id, said("theirs")[0])
    assert store.switch_session(one.session_key, other.session_id, expected_session_id="old") is None
    moved = store.switch_session(one.session_key, other.session_id, expected_session_id=one.session_id)
    assert moved is not None
    assert (moved.session_key, moved.session_id) == (one.session_key, other.session_id)
    found = store.lookup_by_session_id(other.session_id)
    assert found is not None
    assert found.session_key == one.session_key
    assert [entry.session_key for entry in store.list_sessions()] == [one.session_key]
    assert store.append_to_transcript(other.session_id, said("ours")[0])
    assert texts(store, other.session_id) == ["theirs", "ours"]
    assert store.get_or_create_session(dm("2")).session_id not in (one.session_id, other.session_id)
    back = store.switch_session(one.session_key, one.session_id)
    assert back is not None
    assert back.session_id == one.session_id


@pytest.mark.parametrize("moves", [1, 3, 1000])
def test_a_session_that_moves_meanwhile_is_followed(
    store: SessionStore, monkeypatch: pytest.MonkeyPatch, moves: int
) -> None:
    """It is no unknown one: its new lane is asked; where it moves without end, the caller is told to try again."""
    at = store.get_or_create_session(dm("1")).session_id
    store.append_to_transcript(at, said("first")[0])
    left, real = [0], store._ops._door.ask

    def ask(key: str, question: Any) -> Any:
        if left[0] and type(question) in (Append, Rewrite, Rewind):
            left[0] -= 1
            holder = store.lookup_by_session_id(at)
            assert holder is not None
            [other] = [chat for chat in ("1", "2") if not holder.session_key.endswith(chat)]
            assert store.switch_session(store.get_or_create_session(dm(other)).session_key, at) is not None
        return real(key, question)

    monkeypatch.setattr(store._ops._door, "ask", ask)
    calls: list[Callable[[], Any]] = [
        lambda: store.append_to_transcript(at, said("second")[0]),
        lambda: store.rewrite_transcript(at, said("a", "b")),
        lambda: store.rewind_session(at),
    ]
    for call in calls:
        left[0] = moves
        if moves < 1000:
            assert call()
        else:
            with pytest.raises(LaneBusyError):
                call()
    left[0] = 0


def test_messages_come_back_as_they_were_given(store: SessionStore) -> None:
    """Roles, structured content, calls, names and the host's own fields."""
    given: list[dict[str, Any]] = [
        {"role": "user", "content": "hi", "name": "Ann", "platform_message_id": "42"},
        {"role": "user", "content": [{"type": "text", "text": "look"}, {"type": "image", "url": "x"}]},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "function": {"name": "f"}}]},
        {"role": "tool", "content": {"rows": [1, 2]}, "tool_call_id": "c1"},
        {"role": "assistant", "content": "done", "usage": {"tokens": 3}},
    ]
    entry = store.get_or_create_session(dm())
    for message in given:
        assert store.append_to_transcript(entry.session_id, message)
    loaded = store.load_transcript(entry.session_id)
    assert [{name: told for name, told in message.items() if name != "timestamp"} for message in loaded] == given
    assert store.rewrite_transcript(entry.session_id, loaded)
    again = store.load_transcript(entry.session_id)
    assert [{name: told for name, told in message.items() if name != "timestamp"} for message in again] == given


@pytest.mark.parametrize("message", [{"content": "x"}, {"role": "system", "content": "x"}, "text", None])
def test_what_is_no_message_is_the_callers_error(store: SessionStore, message: Any) -> None:
    """It is told, and nothing is written."""
    entry = store.get_or_create_session(dm())
    with pytest.raises(InvalidInputError):
        store.append_to_transcript(entry.session_id, message)
    assert store.load_transcript(entry.session_id) == []


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("sessions_dir", None),
        ("sessions_dir", b"home"),
        ("sessions_dir", ""),
        ("sessions_dir", "a\0b"),
        ("sessions_dir", "\udcff"),
        ("config", {"a": 1}),
        ("config", GatewayConfig),
        ("has_active_processes_fn", 5),
        ("clock", 5),
        ("ids", 5),
    ],
)
def test_a_store_of_wrong_parts_is_not_made(tmp_path: Path, name: str, given: Any) -> None:
    """Its constructor names the argument that can't work, and the home is as free as before."""
    parts: dict[str, Any] = {"sessions_dir": tmp_path / "home", name: given}
    with pytest.raises(InvalidInputError) as refused:
        SessionStore(**parts)
    assert refused.value.field == name
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("breaks", ["seriatim.actors.sessions.SessionsFile", "seriatim.actors.session_files.Solo"])
def test_a_store_that_cannot_be_made_gives_its_home_back(
    tmp_path: Path, breaks: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever fails behind the opened database, the same process can try again."""

    def broken(*parts: Any) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as broke:
        broke.setattr(breaks, broken)
        with pytest.raises(RuntimeError):
            SessionStore(tmp_path / "home")
    SessionStore(tmp_path / "home").close()


def test_a_message_that_is_stored_already_is_not_stored_again(store: SessionStore) -> None:
    """skip_db: nothing is done."""
    entry = store.get_or_create_session(dm())
    assert store.append_to_transcript(entry.session_id, said("x")[0], skip_db=True)
    assert store.load_transcript(entry.session_id) == []


# --- pruning -------------------------------------------------------------------------------------------


def test_pruning_spares_what_is_protected(tmp_path: Path) -> None:
    """Suspended ones, those with active processes, and those whose callback raises; a dry run only counts."""

    def active(session_key: str) -> bool:
        if session_key.endswith(":3"):
            raise RuntimeError("no idea")
        return session_key.endswith(":2")

    with SessionStore(tmp_path / "home", GatewayConfig(), active) as store:
        entries = [store.get_or_create_session(dm(str(chat))) for chat in range(5)]
        store.suspend_session(entries[1].session_key)
        assert store.prune_old_entries(0) == store.prune_old_entries(-1) == 0
        assert store.prune_old_entries(None) == 0
        assert store.prune_old_entries(1) == 0
        assert store.prune_old_entries(1e-9, dry_run=True) == 2
        assert len(store.list_sessions()) == 5
        assert store.prune_old_entries(1e-9) == 2
        kept = {entry.session_key[-1] for entry in store.list_sessions()}
        assert kept == {"1", "2", "3"}


def test_pruning_is_a_boundary(store: SessionStore) -> None:
    """The next access starts a new session; the old log is still there (lifecycle, weakness 11)."""
    entry = store.get_or_create_session(dm())
    store.append_to_transcript(entry.session_id, said("kept")[0])
    assert store.prune_old_entries(1e-9) == 1
    assert store.get_or_create_session(dm()).session_id != entry.session_id
    assert texts(store, entry.session_id) == ["kept"]


# --- threads -------------------------------------------------------------------------------------------


def test_concurrent_first_access_makes_one_session(store: SessionStore) -> None:
    """Many threads, a few keys, all at once: one session a key."""
    start = threading.Barrier(16)

    def first(number: int) -> tuple[str, str]:
        start.wait()
        entry = store.get_or_create_session(dm(str(number % 4)))
        return entry.session_key, entry.session_id

    with ThreadPoolExecutor(16) as pool:
        found = set(pool.map(first, range(16)))
    assert len(found) == 4
    assert len(store.list_sessions()) == 4


def test_a_session_that_no_lane_has_is_read_and_not_written_to(tmp_path: Path) -> None:
    """Only its lane writes to a session: one that an import brought takes messages when a lane has switched to it."""
    home, said = tmp_path / "home", {"role": "user", "content": "more"}
    SessionStore(home).close()
    brought = StoreLogs(SqliteStore(home / "state.db"))
    brought.append("brought", header("brought"), 0, turn(0))
    brought.close()
    with SessionStore(home) as store:
        entry = store.get_or_create_session(dm())
        assert [told["content"] for told in store.load_transcript("brought")] == ["hi", "hello"]
        assert not store.append_to_transcript("brought", said)
        assert not store.rewrite_transcript("brought", [said])
        assert store.rewind_session("brought") is None
        assert store.switch_session(entry.session_key, "brought") is not None
        assert store.append_to_transcript("brought", said)
        assert [told["content"] for told in store.load_transcript("brought")] == ["hi", "hello", "more"]


def test_a_lane_is_read_only_by_who_is_alone_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No state that was read before another thread's commit can take the place of the one after it."""
    found_free: list[bool] = []

    with SessionStore(tmp_path / "home") as store, ThreadPoolExecutor(1) as other:
        door = store._ops._door
        assert isinstance(door, SoloDoor)
        lanes = door.lanes

        def watched(reader: StoreReader, key: str) -> LaneState:
            found_free.append(other.submit(free, lanes._stripes[hash(key) % len(lanes._stripes)]).result(60))
            return read_state(reader, key)

        def free(stripe: Any) -> bool:
            if got := stripe.acquire(blocking=False):
                stripe.release()
            return bool(got)

        monkeypatch.setattr(solo, "read_state", watched)
        first = store.get_or_create_session(dm())
        lanes._gates.clear()
        assert store.get_or_create_session(dm()).session_id == first.session_id
    assert found_free == [False, False]


def test_a_flight_that_fails_fails_for_all_who_joined(store: SessionStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """The owner's exception is everybody's, and the next call flies again."""
    ops = store._ops
    real: Callable[[str, Any], Any] = ops._door.ask
    reached, go = threading.Event(), threading.Event()

    def broken(key: str, question: Any) -> Any:
        reached.set()
        go.wait(60)
        raise InvalidInputError("x", "broken")

    monkeypatch.setattr(ops._door, "ask", broken)
    with ThreadPoolExecutor(4) as pool:
        owner = pool.submit(store.get_or_create_session, dm())
        assert reached.wait(60)
        joined = [pool.submit(store.get_or_create_session, dm()) for _ in range(3)]
        go.set()
        for call in (owner, *joined):
            with pytest.raises(InvalidInputError):
                call.result(60)
    monkeypatch.setattr(ops._door, "ask", real)
    assert store.get_or_create_session(dm()).session_id


def test_concurrent_appends_lose_and_double_nothing(store: SessionStore) -> None:
    """Four threads, one session: each message once (lifecycle, "concurrent appends")."""
    entry = store.get_or_create_session(dm())

    def write(thread: int) -> None:
        for number in range(25):
            assert store.append_to_transcript(entry.session_id, said(f"{thread}-{number}")[0])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    found = texts(store, entry.session_id)
    assert sorted(found) == sorted(f"{thread}-{number}" for thread in range(4) for number in range(25))
    for thread in range(4):
        own = [text for text in found if text.startswith(f"{thread}-")]
        assert own == [f"{thread}-{number}" for number in range(25)]


def test_where_a_loop_runs_the_twin_is_named(store: SessionStore) -> None:
    """Blocking there is refused with the call to make instead; the twin answers."""

    async def use() -> str:
        with pytest.raises(WrongThreadError, match=r"\.aio\.get_or_create_session"):
            store.get_or_create_session(dm())
        entry = await store.aio.get_or_create_session(dm())
        assert await store.aio.has_any_sessions()
        assert await store.aio.append_to_transcript(entry.session_id, said("hi")[0])
        assert (await store.aio.rewind_session(entry.session_id)) is not None
        return entry.session_id

    assert asyncio.run(use()) == store.list_sessions()[0].session_id


# --- home and mirror -----------------------------------------------------------------------------------


def test_a_home_has_one_owner(tmp_path: Path, store: SessionStore) -> None:
    """A second store on it is told who has it; after close it is free, and close may be repeated."""
    with pytest.raises(HomeBusyError):
        SessionStore(tmp_path / "home")
    store.close()
    store.close()
    SessionStore(tmp_path / "home").close()


def test_the_mirror_has_what_the_seeds_file_has(tmp_path: Path) -> None:
    """Key to entry, a comment beside; whole and private; flushed by close."""
    with SessionStore(tmp_path / "home") as store:
        entry = store.get_or_create_session(dm())
    path = tmp_path / "home" / SESSIONS
    content = json.loads(path.read_text())
    assert content.pop("_README")
    assert content == {entry.session_key: entry.to_dict()}
    assert path.stat().st_mode & 0o777 == 0o600
    assert [file.name for file in path.parent.iterdir() if SESSIONS in file.name] == [SESSIONS]


def test_no_mirror_where_none_is_wanted(tmp_path: Path) -> None:
    """write_sessions_json = false."""
    with SessionStore(tmp_path / "home", GatewayConfig(write_sessions_json=False)) as store:
        store.get_or_create_session(dm())
    assert not (tmp_path / "home" / SESSIONS).exists()


def test_a_mirror_is_taken_over_where_there_is_no_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Good entries come whole, bad ones are warnings, and neither keeps the store from opening."""
    with SessionStore(tmp_path / "old") as old:
        entries = [old.get_or_create_session(dm(chat)) for chat in ("1", "2")]
        old.suspend_session(entries[0].session_key)
        kept = {entry.session_key: entry for entry in old.list_sessions()}
    content = json.loads((tmp_path / "old" / SESSIONS).read_text())
    content["agent:main:telegram:dm:bad"] = {"session_key": "x"}
    content["agent:main:telegram:dm:path"] = {**content[entries[0].session_key], "session_id": "../../etc"}
    content["agent:main:telegram:dm:odd"] = 3
    (tmp_path / "new").mkdir(mode=0o700)
    (tmp_path / "new" / SESSIONS).write_text(json.dumps(content))
    with SessionStore(tmp_path / "new") as new:
        assert {entry.session_key: entry for entry in new.list_sessions()} == kept
    assert sum("is left out" in record.message for record in caplog.records) == 3


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe", b'"x"', b"[" * 100_000])
def test_a_bad_mirror_is_a_warning(tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """The store opens, empty, and says so."""
    (tmp_path / "home").mkdir(mode=0o700)
    (tmp_path / "home" / SESSIONS).write_bytes(content)
    with SessionStore(tmp_path / "home") as store:
        assert store.list_sessions() == []
    assert any("can't be taken over" in record.message for record in caplog.records)


def test_a_mirror_is_never_read_beside_a_log(tmp_path: Path) -> None:
    """The log is the truth: whatever the file says then changes nothing."""
    with SessionStore(tmp_path / "home") as store:
        store.get_or_create_session(dm())
        before = store.list_sessions()
    path = tmp_path / "home" / SESSIONS
    path.write_text(json.dumps({"agent:main:telegram:dm:9": before[0].to_dict()}))
    with SessionStore(tmp_path / "home") as store:
        assert store.list_sessions() == before
    assert build_session_key(dm(), True, False) in json.loads(path.read_text())


def test_a_text_that_names_two_lanes_is_told_with_both(tmp_path: Path) -> None:
    """Scopes apart: the text shows none, so it is ambiguous, and the canonical forms work."""
    one = SessionSource("slack", "C1", chat_type="channel", guild_id="A")
    other = SessionSource("slack", "C1", chat_type="channel", guild_id="B")
    with SessionStore(tmp_path / "home", GatewayConfig(group_sessions_per_user=False)) as store:
        first, second = store.get_or_create_session(one), store.get_or_create_session(other)
        assert first.session_id != second.session_id
        with pytest.raises(AmbiguousKeyError) as told:
            store.suspend_session(first.session_key)
        assert len(told.value.keys) == 2
        assert all(store.suspend_session(key) for key in told.value.keys)
    content = json.loads((tmp_path / "home" / SESSIONS).read_text())
    assert set(told.value.keys) < set(content)


def test_a_standalone_store_recovers_what_a_gateway_left_open(tmp_path: Path) -> None:
    """Open turns are closed and marked, once; the home is clean afterwards."""
    session = leave_a_turn_open(tmp_path / "home")
    with SessionStore(tmp_path / "home", GatewayConfig(write_sessions_json=False)) as store:
        assert store.recover_interrupted_turns(3600) == 1
        assert store.recover_interrupted_turns(3600) == 0
        entry = store.lookup_by_session_id(session)
        assert entry is not None
        assert (entry.resume_pending, entry.resume_reason) == (True, "restart_interrupted")
    home = Home.own(tmp_path / "home")
    assert home.was_clean
    home.close(clean=True)
