"""One live session in memory: what may come next, what follows from it, and where it can be forked."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from seriatim.edits import compress, prune, redo, retry, rewrite, undo
from seriatim.errors import CommitTooLargeError, InvalidInputError, LosslessJsonError, SessionForkError, SurfaceError
from seriatim.events import Data, Event
from seriatim.limits import STORE_COMMIT_BYTES_MAX
from seriatim.storage.event_log.live import LiveSessions
from seriatim.storage.event_log.session import Session
from seriatim.storage.event_log.values import CreateSessionOptions, SessionEvent
from seriatim.testing.clock import VirtualClock

from .live_world import ID, TURN, end_turn, kinds, log_of, say_turn

CALLS: list[tuple[str, Data]] = [
    *TURN[:3],
    ("assistant/message", {"turn": 1, "step": 1, "text": "", "calls": [{"id": "a"}, {"id": "b"}]}),
    ("tool/call", {"turn": 1, "step": 1, "id": "a", "name": "look", "args": {}, "effects": "read"}),
]


def told(story: Callable[[LiveSessions], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """A test told as a coroutine over live sessions in memory."""

    def test() -> None:
        async def run() -> None:
            await story(LiveSessions(VirtualClock()))

        asyncio.run(asyncio.wait_for(run(), 60))

    test.__name__, test.__doc__ = story.__name__, story.__doc__
    return test


def session_of(*said: tuple[str, Data]) -> Session:
    """A session that was told these events."""

    async def made() -> Session:
        session = await LiveSessions(VirtualClock()).create(ID)
        for kind, data in said:
            session.append(kind, data)
        return session

    return asyncio.run(made())


@pytest.mark.parametrize(
    ("before", "kind", "data"),
    [
        ((), "turn/start", {"turn": 2}),
        (TURN, "turn/start", {"turn": 1}),
        (TURN[:1], "turn/start", {"turn": 2}),
        ((), "turn/end", {"turn": 0}),
        (TURN[:3], "turn/end", {"turn": 1}),
        (TURN[:2], "turn/end", {"turn": 2}),
        ((), "step/start", {"turn": 0, "step": 1}),
        (TURN[:3], "step/start", {"turn": 1, "step": 2}),
        (TURN[:2], "step/start", {"turn": 1, "step": 2}),
        (TURN[:2], "step/end", {"turn": 1, "step": 0}),
        (TURN[:3], "step/end", {"turn": 1, "step": 2}),
        (TURN[:2], "assistant/message", {"turn": 1, "step": 1, "text": ""}),
        (TURN[:3], "assistant/message", {"turn": 2, "step": 1, "text": ""}),
        (TURN[:3], "assistant/chunk", {"turn": 1, "step": 2}),
        (TURN[:3], "tool/call", {"turn": 1, "step": 1}),
        (TURN, "tool/call", {"turn": 1, "step": 1, "id": "a"}),
        (CALLS, "tool/result", {"turn": 1, "step": 1, "id": "x", "content": ""}),
        (CALLS, "tool/result", {"turn": 1, "step": 1, "id": "b", "content": ""}),
        (CALLS, "tool/result", {"turn": 1, "step": 2, "id": "a", "content": ""}),
        ((), "todo/write", {}),
        (TURN, "request/header", {"reason": "initial"}),
    ],
)
def test_what_can_t_come_next_is_refused(before: tuple[Any, ...], kind: str, data: Data) -> None:
    """Turns, steps and calls out of order are refused, and nothing of them stays."""
    session = session_of(*before)
    head, surface = session.head, session.surface.seqs()

    with pytest.raises(InvalidInputError, match=kind):
        session.append(kind, data)

    assert (session.head, session.surface.seqs()) == (head, surface)


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (5, {}),
        ("", {}),
        ("a\nb", {}),
        ("a" * 300, {}),
        ("plugin/thing", {"time": 1.5}),
        ("plugin/thing", {"time": 2**53}),
        ("plugin/thing", {"ignorable": 1}),
        ("user/message", {"surface_op": "append", "source_event_seqs": (-1,)}),
    ],
)
def test_what_could_not_be_stored_is_not_taken(kind: Any, said: dict[str, Any]) -> None:
    """An envelope that every backend refuses is refused at once; taken, it would keep all that follows from storage."""
    session = session_of(*TURN)
    head = session.head

    with pytest.raises(InvalidInputError):
        session.append(kind, {"text": ""}, **said)

    assert session.head == head


def test_what_no_commit_holds_is_not_taken() -> None:
    """An event larger than any commit may be is refused at once, and the session goes on."""
    session = session_of(*TURN)
    head = session.head

    with pytest.raises(CommitTooLargeError, match="plugin/thing"):
        session.append("plugin/thing", {"text": "x" * STORE_COMMIT_BYTES_MAX})

    assert session.append("plugin/thing", {}).seq == head


@pytest.mark.parametrize(
    ("before", "kind", "data"),
    [
        (TURN, "turn/start", {"turn": 2}),
        (TURN[:2], "turn/end", {"turn": 1}),
        (CALLS, "step/end", {"turn": 1, "step": 1}),
        (CALLS, "tool/result", {"turn": 1, "step": 1, "id": "a", "content": ""}),
        (CALLS, "tool/result", {"turn": 1, "step": 1, "id": "b", "outcome": "not started"}),
        (TURN, "user/message", {"text": "between turns"}),
        (TURN[:1], "request/context", {"provider": "p", "model": "m"}),
        ((), "session/end-seed", {}),
        (TURN[:3], "plugin/thing", {"any": [1]}),
    ],
)
def test_what_may_come_next_is_taken(before: tuple[Any, ...], kind: str, data: Data) -> None:
    """What the order allows is appended: messages and plugins' events between turns too."""
    session = session_of(*before)

    assert session.append(kind, data).seq == session.head - 1


@pytest.mark.parametrize(
    ("kind", "sources", "operation"),
    [
        ("turn/end", (1,), None),
        ("plugin/thing", None, "append"),
        ("user/message", (), None),
        ("user/message", (1, 1), None),
        ("user/message", (6,), None),
        ("user/message", (-1,), None),
        ("user/message", None, "prepend"),
        ("user/message", (1,), {"op": "replace", "start": 1}),
    ],
)
def test_surface_fields_are_checked(kind: str, sources: tuple[int, ...] | None, operation: Any) -> None:
    """Surface fields belong to messages, sources are earlier events, each once, an operation is one of two."""
    session = session_of(*TURN)

    with pytest.raises(InvalidInputError):
        session.append(kind, {"turn": 1}, source_event_seqs=sources, surface_op=operation)
    assert session.head == 6


@told
async def test_an_event_is_taken_as_it_is_at_the_call(live: LiveSessions) -> None:
    """Later changes of the caller's data don't reach the log, and nobody can change what is in it."""
    session = await live.create(ID)
    data: Data = {"list": [1]}
    event = session.append("x/y", data, ignorable=True)
    data["list"].append(2)
    data["more"] = 1

    assert session.events == (SessionEvent("x/y", 0, event.time, {"list": [1]}, True),)
    with pytest.raises(TypeError):
        session.events[0].data["list"].append(3)
    with pytest.raises(LosslessJsonError, match="x/y"):
        session.append("x/y", {"n": float("nan")})


@told
async def test_an_observer_only_watches(live: LiveSessions) -> None:
    """Observers hear each append in order; one that fails or tries to append changes nothing, for nobody."""
    session = await live.create(ID)
    heard: list[int] = []

    def faulty(session: Session, event: SessionEvent) -> None:
        heard.append(event.seq)
        session.append("x/y", {})

    session.observe(faulty)
    stop = session.observe(lambda _, event: heard.append(event.seq + 100))
    session.append("x/y", {})
    stop()
    stop()
    session.append("x/y", {})

    assert heard == [0, 100, 1]
    assert session.head == 2


@told
async def test_a_batch_is_taken_whole_or_not_at_all(live: LiveSessions) -> None:
    """Events that come together are all appended, or none; observers hear nothing of a refused batch."""
    session = await live.create(ID)
    heard: list[int] = []
    session.observe(lambda _, event: heard.append(event.seq))
    bad = log_of(*TURN[:3], ("turn/end", {"turn": 1}))

    with pytest.raises(InvalidInputError):
        session.extend(bad)
    assert (session.head, heard, session.open_turn, session.surface.seqs()) == (0, [], 0, [])
    session.extend(log_of(*TURN))
    assert heard == list(range(6))


@told
async def test_edits_are_appended_as_they_are_made(live: LiveSessions) -> None:
    """Undo, redo, retry, compress, prune and rewrite go into the log, and change what the model is given."""
    session = await live.create(ID)
    for kind, data in CALLS:
        session.append(kind, data)
    result = session.append("tool/result", {"turn": 1, "step": 1, "id": "a", "content": "long"})
    session.append("tool/result", {"turn": 1, "step": 1, "id": "b", "outcome": "not started", "content": ""})
    end_turn(session, 1)
    say_turn(session, 2)
    whole = session.messages()
    session.extend([prune(session.surface, result, "short", 5)])
    assert [e.data.get("content") for e in session.messages()][2] == "short"
    session.extend(undo(session.surface, 1, 5).events)
    assert session.messages()[:2] == whole[:2]
    assert len(session.messages()) == 5
    session.extend(redo(session.surface, 5))
    assert len(session.messages()) == len(whole)
    seqs = session.surface.seqs()
    session.extend([compress(session.surface, seqs[0], seqs[-1], "in short", 5)])
    assert [e.data["text"] for e in session.messages()] == ["in short"]
    session.extend(retry(session.surface, 5))
    assert [e.type for e in session.messages()][-1] == "user/message"
    wanted: list[tuple[str, Data]] = [
        ("user/message", {"text": "u", "id": "u", "at": 1}),
        ("assistant/message", {"text": "v", "calls": [{"id": "z"}]}),
        ("tool/result", {"id": "z", "content": "w"}),
        ("user/message", {"text": "x", "id": "x", "at": 1}),
    ]
    session.extend(rewrite(session.surface, wanted, 3, 5))
    assert [e.data.get("text", e.data.get("content")) for e in session.messages()] == ["u", "v", "w", "x"]
    say_turn(session, 5)
    assert len(session.transcript()) == 5 + 2 + 4 + 2
    with pytest.raises(SurfaceError):
        session.append("surface/reset", {"asOf": 3, "reason": "undo"})


@told
async def test_a_session_replayed_from_its_log_is_the_same(live: LiveSessions) -> None:
    """A seed that is another session's log gives the same messages, surface and transcript."""
    first = await live.create("a")
    say_turn(first, 1)
    first.extend(undo(first.surface, 1, 5).events)
    say_turn(first, 2, "other")
    second = await live.create("b", CreateSessionOptions(first.events))

    assert second.events[:-1] == first.events
    assert (second.messages(), second.transcript()) == (first.messages(), first.transcript())
    assert second.live_from == first.head


@told
async def test_a_bad_seed_makes_no_session(live: LiveSessions) -> None:
    """A seed is checked as appends are; the id stays free."""
    for seed in (
        [Event("x/y", 1, 0, {})],
        log_of(("turn/end", {"turn": 1})),
        [Event("x/y", 0, 0, {"a": float("inf")})],
    ):
        with pytest.raises(InvalidInputError):
            await live.create(ID, CreateSessionOptions(seed))
    with pytest.raises(InvalidInputError, match="cwd"):
        await live.create(ID, CreateSessionOptions(meta={"cwd": "relative"}))
    await live.create(ID)


@told
async def test_a_fork_is_made_where_no_turn_is_open(live: LiveSessions) -> None:
    """The default boundary is the latest balanced moment; an earlier closed turn may be named, logs after it too."""
    parent = await live.create(ID, CreateSessionOptions(meta={"cwd": "/srv", "agent_preset": "x"}))
    say_turn(parent, 1)
    parent.append("plugin/thing", {})
    say_turn(parent, 2, end=False)

    latest = await live.fork(ID, "a")
    named = await live.fork(parent, "b", 5, {"origin": "subagent", "delegation_depth": 1})

    assert kinds(latest.events)[-2:] == ["plugin/thing", "session/end-seed"]
    assert (latest.header.parent_session, latest.header.seed_length, latest.header.cwd) == (ID, 7, "/srv")
    assert latest.header.agent_preset is None
    assert (named.header.seed_length, named.header.origin, named.header.delegation_depth) == (6, "subagent", 1)
    end_turn(parent, 2)
    assert latest.head == 8


@told
async def test_a_fork_of_nothing_is_empty(live: LiveSessions) -> None:
    """A session without events, or whose first turn is open, is forked with nothing inherited."""
    parent = await live.create(ID)
    assert kinds((await live.fork(parent, "a")).events) == ["session/end-seed"]
    say_turn(parent, 1, end=False)
    child = await live.fork(parent, "b")
    assert (child.header.seed_length, kinds(child.events)) == (0, ["session/end-seed"])


@told
async def test_each_refusal_of_a_fork_has_its_code(live: LiveSessions) -> None:
    """No such source, a stale object, a taken id (before the boundary is judged), a bad boundary, an open turn."""
    parent = await live.create(ID)
    say_turn(parent, 1, end=False)
    stale = await live.create("stale")
    await live.retire("stale")
    await live.create("taken")

    async def code(*args: Any) -> str:
        with pytest.raises(SessionForkError) as refused:
            await live.fork(*args)
        return refused.value.code

    assert await code("nobody", "c") == "source not found"
    assert await code(stale, "c") == "source not live"
    assert await code(parent, "taken", 99) == "child exists"
    for bad in (99, -1, True, 0.5, "1"):
        assert await code(parent, "c", bad) == "bad boundary"
    assert await code(parent, "c", 1) == "open turn"
    assert live.get("c") is None
