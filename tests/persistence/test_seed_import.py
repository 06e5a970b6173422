"""Logs of the event-log seed's own system come over: the shapes of its first release, and older ones."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from seriatim.errors import SessionFormatUnsupportedError, SessionPersistenceCorruptionError
from seriatim.storage.event_log.backend import LogBackend
from seriatim.storage.event_log.persistence import SessionPersistence
from seriatim.storage.event_log.store_logs import StoreLogs
from seriatim.storage.event_log.transfer import Report, import_seed
from seriatim.storage.event_log.values import SessionInspection
from seriatim.storage.memory import MemoryStore

from . import seed_fixtures as seed
from .worlds import MEDIA, Medium

ID = "s/1"
Write = Callable[[Path, dict[str, Any], list[dict[str, Any]]], Path]


def _as_jsonl(folder: Path, head: dict[str, Any], records: list[dict[str, Any]]) -> Path:
    seed.write_jsonl(folder / "seed", head, seed.packed(records))
    return folder / "seed"


def _as_lines(folder: Path, head: dict[str, Any], records: list[dict[str, Any]]) -> Path:
    seed.write_jsonl(folder / "seed", head, records, compressed=False)
    return folder / "seed"


def _as_sqlite(folder: Path, head: dict[str, Any], records: list[dict[str, Any]]) -> Path:
    folder.mkdir(exist_ok=True)
    return seed.write_sqlite(folder / "seed.db", [(head, records)])


each_source = pytest.mark.parametrize("write", [_as_jsonl, _as_lines, _as_sqlite], ids=["zstd", "raw", "sqlite"])


@pytest.fixture(params=MEDIA, ids=lambda medium: medium.name)
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LogBackend]:
    """An empty backend to import into."""
    medium: Medium = request.param
    (tmp_path / "target").mkdir()
    backend = medium.make(tmp_path / "target").open()
    yield backend
    backend.close()


def _inspected(backend: LogBackend, session_id: str = ID) -> SessionInspection:
    async def story() -> SessionInspection:
        service = SessionPersistence(backend)
        return await service.inspect(session_id)

    return asyncio.run(story())


def _plain(report: Report) -> dict[str, str]:
    assert report.problems == []
    return dict(report.results)


@each_source
def test_a_log_of_the_first_release_comes_over(tmp_path: Path, target: LogBackend, write: Write) -> None:
    """Each event comes over as one, with its number, time, sources and surface; the rest of the service reads it."""
    path = write(tmp_path, seed.header(ID, cwd="/srv/x", agentPreset="p"), seed.conversation())

    assert _plain(import_seed(path, target)) == {ID: "copied"}

    found = _inspected(target)
    told = seed.conversation()
    assert (found.meta.version, found.meta.cwd, found.meta.agent_preset) == (1, "/srv/x", "p")
    assert [(e.seq, e.type, e.time) for e in found.events[: len(told)]] == [
        (r["seq"], r["type"], r["time"]) for r in told
    ]
    said, answer, call, result = (found.events[n] for n in (1, 7, 8, 9))
    assert said.data == {
        "turn": 1,
        "id": "m1",
        "text": "read a",
        "at": seed.T0 + 1,
        "seed": {"source": {"kind": "user"}},
    }
    assert answer.data["text"] == "I will look"
    assert answer.data["calls"] == [{"id": "c1", "name": "read", "args": {"path": "a"}}]
    assert answer.data["usage"] == {"input": 7, "output": 3}
    assert answer.data["seed"]["content"][0] == {"type": "reasoning", "text": "hm"}
    assert (answer.source_event_seqs, answer.surface_op) == ((4, 5, 6), "append")
    assert call.data == {"turn": 1, "step": 1, "id": "c1", "name": "read", "args": {"path": "a"}, "effects": "write"}
    assert (result.data["content"], result.data["seed"]) == ("A", {"meta": {"diff": "-a"}})
    assert found.events[14].surface_op == {"op": "replace", "start": 1, "end": 9}
    assert [e.data["chunk"]["text"] for e in found.events[4:7]] == ["I", " will", " look"]
    assert [e.type for e in found.events if e.ignorable] == ["hook/invoked", "session/title"]


@each_source
def test_an_interrupted_turn_comes_over_open(tmp_path: Path, target: LogBackend, write: Write) -> None:
    """What the crash left open there is closed here, as for any log: the call's outcome is unknown."""
    path = write(tmp_path, seed.header(ID), seed.conversation())
    import_seed(path, target)

    closed = _inspected(target).events[len(seed.conversation()) :]

    assert [event.type for event in closed] == ["tool/result", "step/end", "turn/end"]
    assert (closed[0].data["id"], closed[0].data["outcome"]) == ("c2", "unknown")
    assert _inspected(target).events[18].data["args"] == {"raw": "not json"}


@each_source
def test_messages_without_an_id_get_one(tmp_path: Path, target: LogBackend, write: Write) -> None:
    """Logs from before messages had an identity come over; the id is derived, and always the same (coordinator 11)."""
    path = write(tmp_path, seed.header(ID), seed.pre_identity())
    assert _plain(import_seed(path, target)) == {ID: "copied"}
    assert _plain(import_seed(path, target)) == {ID: "same"}

    found = _inspected(target)

    said = found.events[1].data
    assert (said["text"], said["id"][:5], len(said["id"])) == ("hello", "seed-", 29)
    assert found.events[5].data["reason"] == {"kind": "aborted", "detail": "legacy"}


@each_source
def test_turns_without_steps_come_over(tmp_path: Path, target: LogBackend, write: Write) -> None:
    """Logs from before the step loop come over; no step is made up, a word is an end (coordinator 12)."""
    path = write(tmp_path, seed.header(ID), seed.pre_loop())
    assert _plain(import_seed(path, target)) == {ID: "copied"}

    found = _inspected(target)

    assert [event.type for event in found.events] == ["turn/start", "user/message", "assistant/message", "turn/end"]
    assert found.events[2].data == {"turn": 1, "text": "hi", "calls": []}
    assert found.events[3].data["reason"] == {"kind": "completed", "detail": "stop"}


MALFORMED: dict[str, Any] = {
    "a message without content": ("user/message", {"message": {"role": "user"}}),
    "content that is no list of blocks": ("assistant/message", {"message": {"content": [1]}}),
    "a turn without a number": ("turn/start", {}),
    "an end that nobody knows": ("turn/end", {"turn": 1, "reason": "exploded"}),
    "a call without a name": ("tool/call", {"turn": 1, "step": 1, "callId": "c", "arguments": "{}"}),
    "a result of two calls": ("tool/result", {"turn": 1, "step": 1, "message": {"content": [{}, {}]}}),
    "a step that is no number": ("step/start", {"turn": 1, "step": "one"}),
}


@each_source
@pytest.mark.parametrize("what", MALFORMED)
def test_a_malformed_record_is_refused(tmp_path: Path, write: Write, what: str) -> None:
    """Data that its type doesn't have is told, and nothing of that log is imported (coordinator 13)."""
    target = StoreLogs(MemoryStore())
    path = write(tmp_path, seed.header(ID), seed.number([("turn/start", {"turn": 1}), MALFORMED[what]]))

    report = import_seed(path, target)

    assert [type(problem.error) for problem in report.problems] == [SessionPersistenceCorruptionError]
    assert target.read(ID) is None


@each_source
def test_a_type_that_nobody_knows_is_refused(tmp_path: Path, target: LogBackend, write: Write) -> None:
    """A required type of neither vocabulary keeps its log out; one marked ignorable comes over as it is."""
    strange = ("plugin/odd", {"x": 1})
    report = import_seed(write(tmp_path / "a", seed.header(ID), seed.number([strange])), target)
    assert [type(problem.error) for problem in report.problems] == [SessionFormatUnsupportedError]
    marked = seed.number([(*strange, {"ignorable": True})])
    assert _plain(import_seed(write(tmp_path / "b", seed.header(ID), marked), target)) == {ID: "copied"}
    assert _inspected(target).events[0].ignorable


@pytest.mark.parametrize("compressed", [True, False])
def test_a_torn_tail_is_left_out(tmp_path: Path, target: LogBackend, compressed: bool) -> None:
    """The seed's rule: records after the last turn's end may be torn; a bad one before it is damage."""
    path = seed.write_jsonl(tmp_path / "seed", seed.header(ID), seed.conversation(), compressed=compressed)
    whole = path.read_bytes()
    path.write_bytes(whole[:-9])
    assert _plain(import_seed(tmp_path / "seed", target)) == {ID: "copied"}
    found = target.read(ID)
    assert found is not None
    assert 9 <= found.head < len(seed.conversation())  # a small frame is one block: there or not
    at = whole.index(b'{"type": "tool/call"') if not compressed else len(whole) // 2
    path.write_bytes(whole[:at] + b"#" + whole[at + 1 :])
    report = import_seed(tmp_path / "seed", target)
    assert [type(problem.error) for problem in report.problems] == [SessionPersistenceCorruptionError]


def test_a_dry_run_writes_nothing(tmp_path: Path, target: LogBackend) -> None:
    """It tells what would come over; so does a real run, which comes over once."""
    path = _as_jsonl(tmp_path, seed.header(ID), seed.conversation())

    assert _plain(import_seed(path, target, dry_run=True)) == {ID: "copied"}
    assert target.read(ID) is None
    assert import_seed(path, target).events == len(seed.conversation())
    assert import_seed(path, target).events == 0


def test_other_formats_are_refused(tmp_path: Path, target: LogBackend) -> None:
    """Another version, another schema, retired fields and strangers' files are told by their direction."""
    cases: dict[str, tuple[dict[str, Any], str]] = {
        "newer": ({"version": 4}, "upgrade"),
        "older": ({"version": -1}, "no path"),
        "retired": ({"sandboxMode": "x"}, "no path"),
        "strange": ({"type": "other"}, "foreign"),
    }
    for name, (fields, direction) in cases.items():
        seed.write_jsonl(tmp_path / name, {**seed.header(ID), **fields}, seed.pre_loop())
        (problem,) = import_seed(tmp_path / name, target).problems
        assert isinstance(problem.error, SessionFormatUnsupportedError)
        assert (name, problem.error.direction) == (name, direction)
    for schema, direction in ((16, "upgrade"), (14, "no path")):
        path = seed.write_sqlite(tmp_path / f"{schema}.db", [], schema=schema)
        with pytest.raises(SessionFormatUnsupportedError) as refused:
            import_seed(path, target)
        assert refused.value.direction == direction
    other = sqlite3.connect(tmp_path / "other.db")
    other.execute("CREATE TABLE t(x)")
    other.close()
    with pytest.raises(SessionFormatUnsupportedError):
        import_seed(tmp_path / "other.db", target)
    (tmp_path / "no.db").write_text("this is no database, however long it goes on" * 30)
    with pytest.raises(SessionPersistenceCorruptionError):
        import_seed(tmp_path / "no.db", target)


def test_the_source_is_only_read(tmp_path: Path, target: LogBackend) -> None:
    """An import leaves the seed's files byte for byte as they were."""
    paths = [
        seed.write_jsonl(tmp_path / "seed", seed.header(ID), seed.conversation()),
        seed.write_sqlite(tmp_path / "seed.db", [(seed.header("b"), seed.pre_loop())]),
    ]
    before = [path.read_bytes() for path in paths]
    import_seed(tmp_path / "seed", target)
    import_seed(tmp_path / "seed.db", target)

    assert [path.read_bytes() for path in paths] == before
    assert json.loads(json.dumps(seed.header(ID)))["version"] == 0
