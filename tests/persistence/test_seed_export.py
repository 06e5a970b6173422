"""Sessions written for the event-log seed's own system: folded to what it knows, and read back by its rules."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from seriatim.cli import main
from seriatim.edits import compress, retry, undo
from seriatim.events import Data, Event
from seriatim.storage.event_log.header import SessionHeader
from seriatim.storage.event_log.seed_export import export_seed
from seriatim.storage.event_log.store_logs import StoreLogs
from seriatim.storage.event_log.transfer import import_seed
from seriatim.storage.memory import MemoryStore
from seriatim.straight import straightened
from seriatim.surface import fold, model_context
from seriatim.trace import Trace

from .histories import History, run_history
from .live_world import ID, TURN, kinds, log_of
from .test_surface import turn

TIME = 1_767_225_600_000
HEADER = SessionHeader(id=ID, created_at=5, cwd="/srv/app", seed_length=6)


def random_log(seed: int) -> list[Event]:
    """The log of a random history of turns, undos, retries, summaries and rewrites."""
    logs: list[list[Event]] = []

    class Kept(History):
        def __init__(self, seed: int) -> None:
            super().__init__(seed)
            logs.append(self.log)

    run_history(seed, Kept)
    return logs[0]


def shown(log: list[Event] | tuple[Event, ...]) -> list[tuple[str, Data]]:
    """What a model is given of a log, without numbers."""
    messages = model_context(fold(log), log.__getitem__)
    return [(event.type, {k: v for k, v in event.data.items() if k != "turn"}) for event in messages]


@pytest.mark.parametrize("seed", range(150))
def test_a_straightened_log_shows_the_same(seed: int) -> None:
    """Without detours a log shows the model the same, knows no reset, and every event follows from those before it."""
    log = random_log(seed)
    straight = straightened(log)

    assert shown(straight) == shown(log)
    assert "surface/reset" not in kinds(straight)
    assert [event.seq for event in straight] == list(range(len(straight)))
    starts = [event.data["turn"] for event in straight if event.type == "turn/start"]
    assert starts == list(range(1, len(starts) + 1))
    for whole in (log, straight):
        trace = Trace()
        for event in whole:
            trace.check(event)
            trace.follow(event)


def logs_with(log: list[Event], header: SessionHeader = HEADER) -> StoreLogs:
    """A backend with this session."""
    logs = StoreLogs(MemoryStore())
    logs.append(header.id, header, 0, log)
    return logs


@pytest.mark.parametrize("seed", [8, 11, 12])
def test_what_is_exported_comes_back(tmp_path: Path, seed: int) -> None:
    """Read back by the rules for the seed's own logs, an exported session shows the same texts in the same turns."""
    log = random_log(seed)
    logs = logs_with(log)
    assert export_seed(logs, tmp_path).results == {ID: "copied"}
    back = StoreLogs(MemoryStore())
    report = import_seed(tmp_path, back)
    assert (report.results, report.problems) == ({ID: "copied"}, [])

    stored = back.read(ID)
    assert stored is not None
    assert (stored.header.cwd, stored.header.created_at) == ("/srv/app", 5)

    def texts(log: list[Event] | tuple[Event, ...]) -> list[tuple[str, str]]:
        return [(kind, str(data.get("text", data.get("content")))) for kind, data in shown(log)]

    assert texts(stored.events) == texts(log)
    assert kinds(stored.events) == kinds(straightened(log))


def test_each_line_is_the_seed_s(tmp_path: Path) -> None:
    """Header first, format 0; messages in blocks with their marks; arguments as text; ends by the seed's names."""
    log = log_of(
        *TURN[:3],
        ("assistant/message", {"turn": 1, "step": 1, "text": "", "calls": [{"id": "a"}, {"id": "b"}]}),
        ("tool/call", {"turn": 1, "step": 1, "id": "a", "name": "look", "args": {"at": 1}, "effects": "read"}),
        ("tool/result", {"turn": 1, "step": 1, "id": "a", "content": {"n": 1}}),
        ("tool/result", {"turn": 1, "step": 1, "id": "b", "content": "no", "error": True, "outcome": "not started"}),
        ("step/end", {"turn": 1, "step": 1}),
        ("turn/end", {"turn": 1, "reason": {"kind": "failed", "detail": "it broke"}}),
    )
    log.append(Event("note/made", len(log), TIME, {"any": 1}, True))
    export_seed(logs_with(log), tmp_path)

    (path,) = tmp_path.rglob("session.jsonl")
    assert path.parent.parent.name == "--srv-app--"
    header, *lines = map(json.loads, path.read_text().splitlines())
    assert header == {
        "type": "session", "version": 0, "id": ID, "createdAt": 5, "cwd": "/srv/app", "seedLength": 6,
        "delegationDepth": 0,
    }  # fmt: skip
    said = {line["seq"]: line for line in lines}
    assert said[0]["data"] == {"turn": 1}
    assert said[1]["data"]["content"] == [{"type": "text", "text": "hi"}]
    assert [line["surfaceOp"] for line in lines if "surfaceOp" in line] == ["append"] * 4
    assert said[3]["data"]["message"]["content"] == [
        {"type": "tool-call", "id": "a", "name": "look", "arguments": '{"at": 1}'},
        {"type": "tool-call", "id": "b", "name": "", "arguments": "{}"},
    ]
    assert said[4]["data"] == {"turn": 1, "step": 1, "callId": "a", "name": "look", "arguments": '{"at": 1}'}
    assert said[5]["data"]["message"]["content"][0]["content"] == [{"type": "text", "text": '{"n": 1}'}]
    assert said[6]["data"]["error"] == {"name": "ToolError", "code": "not started"}
    assert said[8]["data"]["reason"] == {"kind": "error", "error": {"message": "it broke"}}
    assert (said[9]["data"], said[9]["ignorable"]) == ({"any": 1}, True)


def test_undone_turns_are_folded_away(tmp_path: Path) -> None:
    """What was undone is left out and the rest numbered anew; a retried turn ends as aborted; summaries stay."""
    log = log_of(*turn(1), *turn(2), *turn(3))
    surface = fold(log)
    for edit in (undo(surface, 1, TIME).events, ()):
        log.extend(edit)
        surface.extend(edit)
    again = retry(surface, TIME)
    log.extend(again)
    surface.extend(again)
    for kind, data in (
        ("turn/start", {"turn": 4, "claims": [], "resumedFrom": 2}),
        ("assistant/message", {"turn": 4, "text": "better"}),
        ("turn/end", {"turn": 4, "reason": {"kind": "completed"}}),
    ):
        log.append(Event(kind, len(log), TIME, dict(data)))
    surface = fold(log)
    log.append(compress(surface, 1, 2, "in short", TIME))
    straight = straightened(log)

    assert kinds(straight) == [
        "turn/start", "user/message", "assistant/message", "turn/end", "turn/start", "user/message", "turn/end",
        "turn/start", "assistant/message", "turn/end", "assistant/message",
    ]  # fmt: skip
    assert straight[6].data == {"turn": 2, "reason": {"kind": "aborted", "detail": "retry"}}
    assert (straight[7].data["turn"], straight[7].data["resumedFrom"]) == (3, 2)
    assert (straight[10].source_event_seqs, straight[10].data["turn"]) == ((1, 2), 1)


def test_an_emptied_session_is_not_written(tmp_path: Path) -> None:
    """A conversation of which nothing is shown any more leaves no file."""
    log = log_of(*turn(1))
    log.extend(undo(fold(log), 1, TIME).events)

    assert export_seed(logs_with(log), tmp_path).results == {}
    assert list(tmp_path.iterdir()) == []


def test_an_export_overwrites_nothing(tmp_path: Path) -> None:
    """The same again is the same; a session that differs there stays as it is and is told; a dry run writes nothing."""
    logs = logs_with(log_of(*turn(1)))
    assert export_seed(logs, tmp_path / "dry", dry_run=True).results == {ID: "copied"}
    assert not (tmp_path / "dry").exists()
    export_seed(logs, tmp_path)
    assert export_seed(logs, tmp_path).results == {ID: "same"}
    (path,) = tmp_path.rglob("session.jsonl")
    before = path.read_bytes()
    logs.append(ID, HEADER, 4, [Event("session/end-seed", 4, TIME, {})])
    report = export_seed(logs, tmp_path)
    assert (report.results, report.holds, path.read_bytes()) == ({ID: "differs"}, False, before)


def test_an_unknown_required_type_is_told(tmp_path: Path) -> None:
    """A session that this version doesn't understand isn't exported; the others are."""
    logs = logs_with([Event("strange/thing", 0, TIME, {})])
    other = SessionHeader(id="other", created_at=1)
    logs.append("other", other, 0, log_of(*turn(1)))
    report = export_seed(logs, tmp_path)
    assert report.results == {"other": "copied"}
    assert [problem.where for problem in report.problems] == [ID]


def test_a_home_is_exported_for_the_seed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """``seriatim export --seed`` writes a home's sessions, and ``import --seed`` takes them into another."""
    files = tmp_path / "files"
    export_seed(logs_with(log_of(*turn(1))), files)
    assert main(["import", "--seed", "--home", str(tmp_path / "one"), str(files)]) == 0
    assert main(["export", "--seed", "--home", str(tmp_path / "one"), str(tmp_path / "again")]) == 0
    (first,), (second,) = files.rglob("session.jsonl"), (tmp_path / "again").rglob("session.jsonl")
    assert first.read_text().splitlines()[1:] == second.read_text().splitlines()[1:]
    assert "1 copied" in capsys.readouterr().out
