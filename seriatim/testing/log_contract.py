"""The contract of the event-log service, as tests that run over any backend.

Derive from `LogContract` in a test module, name the class ``Test…`` and give it a fixture ``world``: a `LogWorld`,
one medium with what it can do. A claim that needs more than a medium can do is skipped, with the capability's name.
The numbers in docstrings are those of the event-log seed's public contract.
"""

from __future__ import annotations

import asyncio
import copy
import functools
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Concatenate, Literal, ParamSpec, Protocol, TypeVar, cast

import pytest

from seriatim.errors import (
    InvalidInputError,
    LogExistsError,
    LogNotFoundError,
    LosslessJsonError,
    PersistenceClosedError,
    RawArtifactsUnsupportedError,
    SequenceMismatchError,
    SessionFormatUnsupportedError,
    SessionLiveError,
    SessionPersistenceCorruptionError,
    SessionReservedError,
    StoreUnhealthyError,
    WriteUnknownError,
)
from seriatim.events import Event
from seriatim.storage.event_log.backend import LogBackend
from seriatim.storage.event_log.header import SESSION_FORMAT_VERSION, SessionHeader
from seriatim.storage.event_log.persistence import SessionPersistence
from seriatim.storage.event_log.values import (
    RestoredSessionOptions,
    SessionEvent,
    SessionInspection,
    SessionPersistenceSnapshot,
    freeze_events,
)

from .log_gates import Gated
from .store_contract import GOOD_DATA, bad_data

Capability = Literal["raw", "torn", "version", "damage"]
"""What a medium may be able to do besides keeping logs: give a session's own artifact, hold a torn batch, have its
stored version changed behind the service's back, have a stored event damaged."""

ID = "20260101_000000_0badcafe"
P = ParamSpec("P")
S = TypeVar("S")


class LogWorld(Protocol):
    """One medium. Backends opened on it are closed by the service that gets them."""

    capabilities: frozenset[Capability]

    def open(self) -> LogBackend:
        """A backend on the medium; one that was opened before is closed, or is never used again."""
        ...

    def elsewhere(self) -> LogBackend:
        """A backend on another, empty medium of the same kind."""
        ...

    def tear(self, session_id: str) -> None:
        """Leave a batch that was torn while it was written at the end of a closed log ("torn")."""
        ...

    def set_version(self, session_id: str, version: Any) -> None:
        """Change the stored version of a closed log ("version")."""
        ...

    def damage(self, session_id: str) -> None:
        """Change a byte of a stored event of a closed log, not in its last batch ("damage")."""
        ...


def told(
    story: Callable[Concatenate[S, P], Coroutine[Any, Any, None]],
) -> Callable[Concatenate[S, P], None]:
    """A test told as a coroutine."""

    @functools.wraps(story)
    def test(self: S, *args: P.args, **kwargs: P.kwargs) -> None:
        asyncio.run(asyncio.wait_for(story(self, *args, **kwargs), 60))

    return cast("Callable[Concatenate[S, P], None]", test)


def needs(world: LogWorld, capability: Capability) -> None:
    """Skip the test where the medium can't do what it is about."""
    if capability not in world.capabilities:
        pytest.skip(f"this medium lacks the capability {capability!r}")


def header(session_id: str = ID, **fields: Any) -> SessionHeader:
    """A header of this id."""
    return SessionHeader(id=session_id, created_at=fields.pop("created_at", 1_767_225_600_000), **fields)


def event(kind: str, seq: int, **data: Any) -> SessionEvent:
    """An event whose time tells its number."""
    return SessionEvent(kind, seq, 1000 + seq, data)


def turn(first: int, number: int = 1, text: str = "hi") -> list[SessionEvent]:
    """A whole plain turn: six events."""
    return [*opened(first, number, text), *ended(first + 3, number)]


def opened(first: int, number: int = 1, text: str = "hi") -> list[SessionEvent]:
    """A turn that has begun a step: three events."""
    return [
        event("turn/start", first, turn=number, claims=[]),
        event("user/message", first + 1, turn=number, text=text),
        event("step/start", first + 2, turn=number, step=1),
    ]


def ended(first: int, number: int = 1) -> list[SessionEvent]:
    """The rest of it: three events."""
    return [
        event("assistant/message", first, turn=number, step=1, text="hello", calls=[]),
        event("step/end", first + 1, turn=number, step=1),
        event("turn/end", first + 2, turn=number, reason={"kind": "completed"}),
    ]


def kinds(events: tuple[SessionEvent, ...]) -> list[str]:
    """Their types."""
    return [event.type for event in events]


async def stored(service: SessionPersistence, events: list[SessionEvent], session_id: str = ID, **fields: Any) -> None:
    """Create a session and append these events."""
    await service.create(header(session_id, **fields))
    await service.append(session_id, events)


class RoundTrips:
    """What is appended is what is read."""

    @told
    async def test_what_is_appended_is_loaded(self, world: LogWorld) -> None:
        """Load gives the same header and identical events, in this life and in the next (contract 1)."""
        whole = header(cwd="/srv/é", parent_session="p", seed_length=2, origin="subagent", delegation_depth=3,
                       agent_preset="x")  # fmt: skip
        events = [*turn(0), SessionEvent("x/y", 6, -5, dict(GOOD_DATA), True)]
        async with SessionPersistence(world.open()) as service:
            await service.create(whole)
            await service.append(ID, events)
            found = await service.load(ID)
            assert (found.meta, found.events) == (whole, tuple(events))
        async with SessionPersistence(world.open()) as service:
            found = await service.load(ID)
            assert (found.meta, found.events) == (whole, tuple(events))
            assert [type(v) for v in found.events[6].data["numbers"]] == [float] * len(GOOD_DATA["numbers"])

    @told
    async def test_surface_fields_come_back(self, world: LogWorld) -> None:
        """The envelope's rare fields come back as they were, an empty list of sources included."""
        events = [
            SessionEvent("user/message", 0, 1, {"text": "a"}, False, (), "append"),
            SessionEvent("assistant/message", 1, 1, {}, False, (0,), {"op": "replace", "start": 0, "end": 0}),
        ]
        async with SessionPersistence(world.open()) as service:
            await stored(service, events)
        async with SessionPersistence(world.open()) as service:
            assert (await service.inspect(ID)).events == tuple(events)

    def test_a_fractional_time_is_refused(self, world: LogWorld) -> None:
        """A header with a fractional time can't be made; the id is free for a sound one (contract 2)."""
        with pytest.raises(InvalidInputError):
            header(created_at=0.5)

        async def story() -> None:
            async with SessionPersistence(world.open()) as service:
                await stored(service, turn(0))
                assert len((await service.load(ID)).events) == 6

        asyncio.run(story())

    @told
    async def test_any_id_is_kept_apart(self, world: LogWorld) -> None:
        """Ids that look like paths, options or each other are as good as any, and none becomes another's."""
        ids = ["..", ".", "/etc/passwd", "a/b", "a\\b", "a:b", "-x", "~002e", "A", "a", "é", "e\u0301", "漢👍", " ",
               "CON", "x" * 4096, "x" * 4095 + "y", "session:a", "%2e", "a\nb"]  # fmt: skip
        async with SessionPersistence(world.open()) as service:
            for number, session_id in enumerate(ids):
                await stored(service, turn(0, text=str(number)), session_id)
        async with SessionPersistence(world.open()) as service:
            assert sorted(h.id for h in await service.list()) == sorted(ids)
            for number, session_id in enumerate(ids):
                found = await service.inspect(session_id)
                assert (found.meta.id, found.events[1].data["text"]) == (session_id, str(number))

    @told
    async def test_whatever_is_accepted_can_be_loaded(self, world: LogWorld) -> None:
        """A batch is refused when it is offered, or it can be read: nothing is accepted and then fails (B120)."""
        odd: list[Event] = [
            SessionEvent("", 0, 0, {}), SessionEvent("a\n", 0, 0, {}), SessionEvent("x" * 300, 0, 0, {}),
            SessionEvent("a", True, 0, {}), SessionEvent("a", 0, 0.5, {}), SessionEvent("a", 0, 2**53, {}),  # type: ignore[arg-type]
            SessionEvent("a", 0, 0, {}, 1), SessionEvent("a", 0, 0, {}, True, (-1,)),  # type: ignore[arg-type]
            SessionEvent("a", 0, 0, {}, True, (0.5,)), SessionEvent("batch/end", 0, 0, {"count": 1}, True),  # type: ignore[arg-type]
            SessionEvent("session/header", 0, 0, {}, True), SessionEvent("a", 0, 0, {"\x00": "\x1f\u2028"}, True),
            SessionEvent("a", 0, -(2**53) + 1, {"": [[[]]]}, True), SessionEvent("a", 0, 0, {}, True, None, [1]),
        ]  # fmt: skip
        async with SessionPersistence(world.open()) as service:
            accepted = 0
            for number, one in enumerate(odd):
                await service.create(header(f"s{number}"))
                try:
                    await service.append(f"s{number}", [one])
                except (InvalidInputError, SequenceMismatchError):
                    with pytest.raises(LogNotFoundError):
                        await service.inspect(f"s{number}")
                    continue
                accepted += 1
                assert (await service.inspect(f"s{number}")).events == (one,)
                assert (await service.read_from(f"s{number}", 0)).events == (one,)
            assert accepted >= 5


class Appending:
    """Contiguous, whole, lossless, taken at the call."""

    @told
    async def test_a_batch_off_the_cursor_is_refused(self, world: LogWorld) -> None:
        """A first number that isn't the head is refused and stores nothing, so nothing is there twice (contract 10)."""
        async with SessionPersistence(world.open()) as service:
            await stored(service, turn(0))
            for first in (0, 5, 7):
                with pytest.raises(SequenceMismatchError) as refused:
                    await service.append(ID, turn(first, 2))
                assert (refused.value.expected, refused.value.index, refused.value.got) == (6, 0, first)
            await service.append(ID, turn(6, 2))
            assert [e.seq for e in (await service.load(ID)).events] == list(range(12))

    @told
    async def test_a_hole_in_a_batch_is_refused(self, world: LogWorld) -> None:
        """A hole or a repetition inside the batch is refused whole (contract 11)."""
        async with SessionPersistence(world.open()) as service:
            await stored(service, turn(0))
            for second in (6, 8):
                with pytest.raises(SequenceMismatchError) as refused:
                    await service.append(ID, [event("turn/start", 6, turn=2), event("turn/end", second, turn=2)])
                assert (refused.value.expected, refused.value.index, refused.value.got) == (7, 1, second)
            assert len((await service.load(ID)).events) == 6

    @pytest.mark.parametrize("what", bad_data())
    def test_what_json_would_change_is_refused(self, world: LogWorld, what: str) -> None:
        """Data that JSON can't carry is refused by the event's type, at the call; nothing is stored (contract 12)."""

        async def story() -> None:
            async with SessionPersistence(world.open()) as service:
                await service.create(header())
                with pytest.raises(LosslessJsonError, match="some/type"):
                    await service.append(
                        ID, [event("turn/start", 0), SessionEvent("some/type", 1, 0, bad_data()[what])]
                    )
                with pytest.raises(LogNotFoundError):
                    await service.inspect(ID)

        asyncio.run(story())

    @told
    async def test_a_batch_is_taken_at_the_call(self, world: LogWorld) -> None:
        """What the caller does with its events after the call doesn't reach the log (coordinator 10)."""
        async with SessionPersistence(world.open()) as service:
            await service.create(header())
            mine = turn(0)
            data: dict[str, Any] = {"text": "said", "more": [1]}
            mine[1] = SessionEvent("user/message", 1, 0, data)
            pending = service.append(ID, mine)
            data["text"], data["late"] = "changed", True
            data["more"].append(2)
            mine.clear()
            await pending
            assert (await service.inspect(ID)).events[1].data == {"text": "said", "more": [1]}
            assert len((await service.inspect(ID)).events) == 6

    @told
    async def test_appends_keep_the_order_of_their_calls(self, world: LogWorld) -> None:
        """Batches that are offered at once are stored one after another, and a failure stops none after it."""
        async with SessionPersistence(world.open()) as service:
            await service.create(header())
            answers = await asyncio.gather(
                service.append(ID, turn(0)),
                service.append(ID, turn(99)),
                *(service.append(ID, turn(6 * n, n + 1)) for n in range(1, 9)),
                return_exceptions=True,
            )
            assert [type(a).__name__ for a in answers] == ["NoneType", "SequenceMismatchError", *["NoneType"] * 8]
            assert len((await service.load(ID)).events) == 54

    @told
    async def test_an_empty_batch_does_nothing(self, world: LogWorld) -> None:
        """An empty batch stores nothing, repairs nothing and needs no session (coordinator 33)."""
        async with SessionPersistence(world.open()) as service:
            await stored(service, opened(0))
            before = await service.list_snapshots()
        async with SessionPersistence(world.open()) as service:
            await service.append(ID, [])
            await service.append("nobody", [])
            assert await service.list_snapshots() == before

    @told
    async def test_an_append_adopts_a_stored_session(self, world: LogWorld) -> None:
        """The first append of a new life closes an open turn and goes on after the closers (coordinator 32)."""
        async with SessionPersistence(world.open()) as service:
            await stored(service, opened(0))
        async with SessionPersistence(world.open()) as service:
            with pytest.raises(SequenceMismatchError) as refused:
                await service.append(ID, turn(3, 2))
            assert refused.value.expected == 5
            await service.append(ID, turn(5, 2))
            assert kinds((await service.load(ID)).events)[3:6] == ["step/end", "turn/end", "turn/start"]

    @told
    async def test_an_id_is_taken_once(self, world: LogWorld) -> None:
        """An id that is in memory, on disk, or was stored in another life can't be created (coordinator 35)."""
        async with SessionPersistence(world.open()) as service:
            await service.create(header())
            with pytest.raises(LogExistsError):
                await service.create(header(cwd="/elsewhere"))
            await service.append(ID, turn(0))
            with pytest.raises(LogExistsError):
                await service.create(header())
        async with SessionPersistence(world.open()) as service:
            with pytest.raises(LogExistsError):
                await service.create(header(cwd="/elsewhere"))

    @told
    async def test_a_new_session_leaves_no_trace(self, world: LogWorld) -> None:
        """A session that was never appended to is in no list and in no later life (contract 6, coordinator 4)."""
        async with SessionPersistence(world.open()) as service:
            await service.create(header())
            assert (await service.list(), await service.list_snapshots()) == ([], [])
            with pytest.raises(LogNotFoundError):
                await service.load(ID)
        async with SessionPersistence(world.open()) as service:
            assert await service.list() == []
            await stored(service, turn(0))
            assert [h.id for h in await service.list()] == [ID]

    @told
    async def test_a_closed_service_takes_nothing(self, world: LogWorld) -> None:
        """Closing finishes what has begun, refuses all that is new, and may be repeated."""
        service = SessionPersistence(world.open())
        await service.create(header())
        begun = asyncio.gather(service.append(ID, turn(0)), service.append(ID, turn(6, 2)))
        await asyncio.sleep(0)
        await service.close()
        await service.close()
        await begun
        for refused in (service.append(ID, turn(12)), service.load(ID), service.inspect(ID), service.prepare(ID),
                        service.read_from(ID, 0), service.list(), service.create(header("b"))):  # fmt: skip
            with pytest.raises(PersistenceClosedError):
                await refused
        async with SessionPersistence(world.open()) as again:
            assert len((await again.load(ID)).events) == 12


class Recovering:
    """An interrupted turn is kept, closed in the log by load and prepare, in memory only by inspect."""

    @told
    async def test_an_interrupted_turn_is_closed(self, world: LogWorld) -> None:
        """Inspect shows the closers and changes nothing; load stores them; what follows goes on there (contract 3)."""
        async with SessionPersistence(world.open()) as service:
            await stored(service, opened(0))
        async with SessionPersistence(world.open()) as service:
            before = await service.list_snapshots()
            seen = await service.inspect(ID)
            assert kinds(seen.events)[3:] == ["step/end", "turn/end"]
            assert seen.events[4].data["reason"] == {"kind": "interrupted"}
            assert {e.time for e in seen.events[3:]} == {1002}
            assert await service.list_snapshots() == before
            assert len((await service.read_from(ID, 0)).events) == 3

            loaded = await service.load(ID)
            after = await service.list_snapshots()
            assert loaded == seen
            assert after != before
            assert (await service.read_from(ID, 0)).events == seen.events
            await service.append(ID, turn(5, 2))
        async with SessionPersistence(world.open()) as service:
            again = await service.load(ID)
            assert (again.events[:5], len(again.events)) == (seen.events, 11)

    @told
    async def test_a_call_that_was_only_asked_for_was_not_started(self, world: LogWorld) -> None:
        """A requested call without a record gets "not started", before step and turn end (contract 4)."""
        asked = event("assistant/message", 3, turn=1, step=1, text="", calls=[{"id": "c1", "name": "f", "args": {}}])
        async with SessionPersistence(world.open()) as service:
            await stored(service, [*opened(0), asked])
        async with SessionPersistence(world.open()) as service:
            events = (await service.load(ID)).events
            assert kinds(events)[4:] == ["tool/result", "step/end", "turn/end"]
            assert (events[4].data["id"], events[4].data["outcome"]) == ("c1", "not started")
            assert events[4].source_event_seqs is None

    @told
    async def test_the_outcome_of_a_recorded_call_is_unknown(self, world: LogWorld) -> None:
        """A recorded call without a result gets one that cites it and says what to do (contract 5)."""
        asked = event("assistant/message", 3, turn=1, step=1, text="", calls=[{"id": "c1", "name": "f", "args": {}}])
        call = event("tool/call", 4, turn=1, step=1, id="c1", name="f", args={}, effects="write")
        async with SessionPersistence(world.open()) as service:
            await stored(service, [*opened(0), asked, call])
        async with SessionPersistence(world.open()) as service:
            events = (await service.load(ID)).events
            assert kinds(events)[5:] == ["tool/result", "step/end", "turn/end"]
            result = events[5]
            assert (result.data["id"], result.data["outcome"], result.source_event_seqs) == ("c1", "unknown", (4,))
            assert "look" in result.data["content"]
            assert [e.data["id"] for e in events if e.type in ("tool/call", "tool/result")] == ["c1", "c1"]

    @told
    async def test_a_torn_end_and_an_open_turn_are_repaired_at_once(self, world: LogWorld) -> None:
        """One load cuts what was torn and closes the turn; inspect before it touches neither (coordinator 40)."""
        needs(world, "torn")
        async with SessionPersistence(world.open()) as service:
            await stored(service, opened(0))
        world.tear(ID)
        async with SessionPersistence(world.open()) as service:
            before = await service.list_snapshots()
            seen = await service.inspect(ID)
            assert (len(seen.events), seen.lost_bytes > 0) == (5, True)
            assert (await service.read_from(ID, 1)).events == tuple(opened(0)[1:])
            assert await service.list_snapshots() == before
            loaded = await service.load(ID)
            assert (loaded.events, loaded.lost_bytes) == (seen.events, 0)
            await service.append(ID, turn(5, 2))
        async with SessionPersistence(world.open()) as service:
            assert len((await service.load(ID)).events) == 11

    @told
    async def test_a_torn_end_is_cut_by_the_next_append(self, world: LogWorld) -> None:
        """What is appended after a torn batch is whole, and nothing fuses with what was torn."""
        needs(world, "torn")
        async with SessionPersistence(world.open()) as service:
            await stored(service, turn(0))
        for number in (1, 2, 3):
            world.tear(ID)
            async with SessionPersistence(world.open()) as service:
                await service.append(ID, turn(6 * number, number + 1))
        async with SessionPersistence(world.open()) as service:
            found = await service.load(ID)
            assert (found.lost_bytes, len(found.events)) == (0, 24)

    @told
    async def test_views_cannot_be_changed(self, world: LogWorld) -> None:
        """What load and inspect give refuses every change, and goes back into a log as it is (coordinator 8, 9)."""
        async with SessionPersistence(world.open()) as service:
            await stored(service, turn(0))
            for view in (await service.load(ID), await service.inspect(ID), await service.read_from(ID, 0)):
                with pytest.raises(AttributeError):
                    view.meta.id = "x"  # type: ignore[misc]
                with pytest.raises(AttributeError):
                    view.events[1].seq = 9  # type: ignore[misc]
                with pytest.raises(TypeError):
                    view.events[1].data["text"] = "changed"
                with pytest.raises(TypeError):
                    view.events[0].data["claims"].append("x")
                assert type(view.events) is tuple
            source = await service.inspect(ID)
            await service.create(header("copy"))
            await service.append("copy", source.events)
            assert (await service.load("copy")).events == source.events
            assert copy.deepcopy(source.events[0].data) == {"turn": 1, "claims": []}


class Reading:
    """Suffixes, revisions, lists, artifacts, cancellation."""

    @told
    async def test_a_suffix_is_read_as_it_lies(self, world: LogWorld) -> None:
        """Whole, suffix, at the end, far past it, an open turn without closers; bad numbers, no log (contract 8)."""
        events = [*turn(0), *opened(6, 2)]
        async with SessionPersistence(world.open()) as service:
            await stored(service, events)
            for _ in range(2):
                for first in (0, 1, 6, 8, 9, 10, 10**9):
                    found = await service.read_from(ID, first)
                    assert (found.meta, found.events) == (header(), tuple(events[first:]))
            for bad in (-1, 0.5, True, "0", None):
                with pytest.raises(InvalidInputError):
                    await service.read_from(ID, bad)  # type: ignore[arg-type]
            with pytest.raises(LogNotFoundError):
                await service.read_from("nobody", 0)

    @told
    async def test_a_revision_changes_with_its_log_alone(self, world: LogWorld) -> None:
        """Equal while nothing changes, over lives and looks; another after an append or repair (contract 9)."""
        async with SessionPersistence(world.open()) as service:
            await stored(service, turn(0))
            await stored(service, turn(0), "other")
            (one,) = [s for s in await service.list_snapshots() if s.header.id == ID]
            await service.inspect(ID)
            await service.load(ID)
            await service.append("other", turn(6, 2))
            assert one in await service.list_snapshots()
        async with SessionPersistence(world.open()) as service:
            assert one in await service.list_snapshots()
            seen = {one.revision}
            for number in range(1, 4):
                await service.append(ID, opened(6, 2) if number == 1 else turn(6 * number, number + 1))
                if number == 1:
                    await service.append(ID, ended(9, 2))
                (now,) = [s for s in await service.list_snapshots() if s.header.id == ID]
                assert now.revision not in seen
                seen.add(now.revision)

    @told
    async def test_a_revision_names_its_source(self, world: LogWorld) -> None:
        """Two stores with the same session in them never show equal revisions."""
        async with SessionPersistence(world.open()) as here, SessionPersistence(world.elsewhere()) as there:
            await stored(here, turn(0))
            await stored(there, turn(0))
            assert (await here.list_snapshots())[0].revision != (await there.list_snapshots())[0].revision

    @told
    async def test_a_list_shows_every_session(self, world: LogWorld) -> None:
        """Every session that holds events is listed once, by pages of any size too; an empty medium lists none."""
        async with SessionPersistence(world.open()) as service:
            assert (await service.list(), await service.list_snapshots()) == ([], [])
            headers = [header(f"s{n}", cwd=f"/srv/{n % 3}" if n % 4 else None) for n in range(23)]
            for one in headers:
                await service.create(one)
                await service.append(one.id, turn(0))
            assert sorted(await service.list(), key=lambda h: h.id) == sorted(headers, key=lambda h: h.id)
            for limit in (1, 7, 23, 100):
                found: list[SessionPersistenceSnapshot] = []
                after = None
                while True:
                    page = await service.survey(after, limit)
                    found += page.snapshots
                    assert len(page.snapshots) <= limit
                    if page.next is None:
                        break
                    after = page.next
                assert sorted(s.header.id for s in found) == sorted(h.id for h in headers)

    @told
    async def test_the_artifact_is_what_is_stored(self, world: LogWorld) -> None:
        """Where there are artifacts: the text as stored, its header, and where it lies; None for no session."""
        async with SessionPersistence(world.open()) as service:
            if "raw" not in world.capabilities:
                assert (service.supports_raw_artifacts, service.locate(header())) == (False, None)
                with pytest.raises(RawArtifactsUnsupportedError):
                    await service.read_raw(ID)
                return
            assert service.supports_raw_artifacts
            assert await service.read_raw(ID) is None
            place = service.locate(header())
            assert place is not None
            await stored(service, turn(0, text="é"))
            found = await service.read_raw(ID)
            assert found is not None
            assert (found.meta, found.filename) == (header(), "session.jsonl")
            assert '"text":"é"' in found.content
            assert service.locate(header()) == place

    @told
    async def test_who_is_missing_is_told_so(self, world: LogWorld) -> None:
        """Every reading operation on a session that isn't there says that it isn't (coordinator 34)."""
        async with SessionPersistence(world.open()) as service:
            for missing in (service.load("nobody"), service.inspect("nobody"), service.prepare("nobody"),
                            service.inspect("nobody", salvage=True), service.append("nobody", turn(0))):  # fmt: skip
                with pytest.raises(LogNotFoundError):
                    await missing
            with pytest.raises(InvalidInputError):
                await service.inspect("")

    @told
    async def test_a_cancelled_reader_is_told_its_reason(self, world: LogWorld) -> None:
        """Cancelled before it began, a reading operation ends with the very reason and reads nothing (contract 7)."""
        gated = Gated(world.open())
        async with SessionPersistence(gated) as service:
            await stored(service, turn(0))
            gated.calls.clear()
            operations: list[Coroutine[Any, Any, Any]] = [
                service.list(), service.list_snapshots(), service.inspect(ID), service.read_from(ID, 0),
            ]  # fmt: skip
            reason = object()
            for operation in operations:
                task = asyncio.ensure_future(operation)
                task.cancel(reason)
                with pytest.raises(asyncio.CancelledError) as cancelled:
                    await task
                assert cancelled.value.args == (reason,)
            assert not gated.calls
            assert len(await service.list()) == 1
            assert len((await service.inspect(ID)).events) == 6

    @told
    async def test_a_cancelled_reader_takes_only_itself(self, world: LogWorld) -> None:
        """Readers of one session share one read; cancelling one of them leaves the read to the others."""
        async with SessionPersistence(world.open()) as service:
            await stored(service, turn(0))
        gated = Gated(world.open())
        async with SessionPersistence(gated) as service:
            gate = gated.hold("read")
            readers = [asyncio.ensure_future(service.inspect(ID)) for _ in range(5)]
            await asyncio.to_thread(gate.arrived.wait, 60)
            readers[0].cancel("enough")
            with pytest.raises(asyncio.CancelledError, match="enough"):
                await readers[0]
            gate.let_go()
            found = await asyncio.gather(*readers[1:])
            assert {len(view.events) for view in found} == {6}
            assert gated.calls["read"] == 1

    @told
    async def test_a_read_that_nobody_waits_for_is_kept(self, world: LogWorld) -> None:
        """When all readers are cancelled the read goes on, and the next reader finds what it brought."""
        async with SessionPersistence(world.open()) as service:
            await stored(service, turn(0))
        gated = Gated(world.open())
        async with SessionPersistence(gated) as service:
            gate = gated.hold("read")
            reader = asyncio.ensure_future(service.inspect(ID))
            await asyncio.to_thread(gate.arrived.wait, 60)
            reader.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reader
            gate.let_go()
            assert len((await service.inspect(ID)).events) == 6
            assert gated.calls["read"] == 1

    @told
    async def test_a_cancelled_append_is_whole(self, world: LogWorld) -> None:
        """An append that has begun settles as itself: who cancelled its caller finds all of it."""
        gated = Gated(world.open())
        async with SessionPersistence(gated) as service:
            await service.create(header())
            gate = gated.hold("append")
            writer = asyncio.ensure_future(service.append(ID, turn(0)))
            await asyncio.to_thread(gate.arrived.wait, 60)
            writer.cancel()
            with pytest.raises(asyncio.CancelledError):
                await writer
            gate.let_go()
            await service.append(ID, turn(6, 2))
            assert len((await service.load(ID)).events) == 12


class Preparing:
    """Reservations, and the sessions that are kept ready."""

    @told
    async def test_a_look_and_a_resume_read_once(self, world: LogWorld) -> None:
        """Inspect, inspect again and prepare of an unchanged session share one read of its log."""
        async with SessionPersistence(world.open()) as service:
            await stored(service, turn(0))
        gated = Gated(world.open())
        async with SessionPersistence(gated) as service:
            first = await service.inspect(ID)
            assert (await service.inspect(ID)).events is first.events
            with await service.prepare(ID) as preparation:
                assert preparation.session.events is first.events
            assert (await service.load(ID)).events is first.events
            assert gated.calls["read"] == 1

    @told
    async def test_a_preparation_keeps_others_out(self, world: LogWorld) -> None:
        """While a session is reserved it can be looked at, not appended to; a second resume waits for the first."""
        async with SessionPersistence(world.open()) as service:
            await stored(service, turn(0))
            preparation = await service.prepare(ID)
            with pytest.raises(SessionReservedError):
                await service.append(ID, turn(6, 2))
            assert len((await service.inspect(ID)).events) == 6
            second = asyncio.ensure_future(service.prepare(ID))
            loading = asyncio.ensure_future(service.load(ID))
            for _ in range(20):
                await asyncio.sleep(0)
            assert not second.done()
            assert not loading.done()
            preparation.dispose()
            preparation.dispose()
            (await second).dispose()
            assert len((await loading).events) == 6
            await service.append(ID, turn(6, 2))

    @told
    async def test_a_cancelled_resume_reserves_nothing(self, world: LogWorld) -> None:
        """Whoever is cancelled while a session is prepared leaves it free, repaired and ready."""
        async with SessionPersistence(world.open()) as service:
            await stored(service, opened(0))
        gated = Gated(world.open())
        async with SessionPersistence(gated) as service:
            gate = gated.hold("append")
            resume = asyncio.ensure_future(service.prepare(ID))
            await asyncio.to_thread(gate.arrived.wait, 60)
            resume.cancel()
            with pytest.raises(asyncio.CancelledError):
                await resume
            gate.let_go()
            await service.append(ID, turn(5, 2))
            assert len((await service.read_from(ID, 0)).events) == 11

    @told
    async def test_few_sessions_are_kept_ready(self, world: LogWorld) -> None:
        """The least recently used one is let go at the bound; one that is reserved doesn't count and stays."""
        names = [f"s{n}" for n in range(4)]
        async with SessionPersistence(world.open()) as service:
            for name in names:
                await stored(service, turn(0), name)
        gated = Gated(world.open())
        async with SessionPersistence(gated, prepared_max=2) as service:
            preparation = await service.prepare("s0")
            for name in ("s1", "s2", "s1", "s3"):  # s2 is then the oldest
                await service.inspect(name)
            reads = gated.calls["read"]
            for name in ("s1", "s3", "s0"):
                await service.inspect(name)
            assert gated.calls["read"] == reads
            await service.inspect("s2")
            assert gated.calls["read"] == reads + 1
            preparation.dispose()
        for bad in (0, -1, 1.5, True):
            with pytest.raises(InvalidInputError):
                SessionPersistence(world.open(), prepared_max=bad)  # type: ignore[arg-type]

    @told
    async def test_a_changed_log_is_read_again(self, world: LogWorld) -> None:
        """An append, ours or a stranger's, makes what was kept of a log useless."""
        async with SessionPersistence(world.open()) as service:
            await stored(service, turn(0))
        backend = world.open()
        gated = Gated(backend)
        async with SessionPersistence(gated) as service:
            await service.inspect(ID)
            await service.append(ID, turn(6, 2))
            assert len((await service.inspect(ID)).events) == 12
            backend.append(ID, header(), 12, turn(12, 3))  # behind the service's back
            assert len((await service.inspect(ID)).events) == 18
            with await service.prepare(ID) as preparation:
                assert len(preparation.session.events) == 18

    @told
    async def test_a_stranger_s_append_is_found_out(self, world: LogWorld) -> None:
        """A batch at a head that a stranger has passed is refused with the true head, and the next one fits."""
        backend = world.open()
        async with SessionPersistence(backend) as service:
            await stored(service, turn(0))
            backend.append(ID, header(), 6, turn(6, 2))
            with pytest.raises(SequenceMismatchError) as refused:
                await service.append(ID, turn(6, 2, "mine"))
            assert refused.value.expected == 12
            await service.append(ID, turn(12, 3))

    @told
    async def test_a_failed_read_is_not_kept(self, world: LogWorld) -> None:
        """An error of one read reaches its readers; the next reader reads anew."""
        async with SessionPersistence(world.open()) as service:
            await stored(service, turn(0))
        gated = Gated(world.open())
        async with SessionPersistence(gated) as service:
            gated.fail("read", StoreUnhealthyError("the disk is away"))
            with pytest.raises(StoreUnhealthyError):
                await service.inspect(ID)
            assert len((await service.inspect(ID)).events) == 6

    @told
    async def test_a_failed_append_can_be_repeated(self, world: LogWorld) -> None:
        """A batch that is absent, or whose fate nobody knows, is offered again and is there once (B121)."""
        gated = Gated(world.open())
        async with SessionPersistence(gated) as service:
            await service.create(header())
            gated.fail("append", StoreUnhealthyError("full"), WriteUnknownError("lost"))
            with pytest.raises(StoreUnhealthyError):
                await service.append(ID, turn(0))
            with pytest.raises(WriteUnknownError):
                await service.append(ID, turn(0))
            await service.append(ID, turn(0))
            gated.fail_late("append", WriteUnknownError("written, and the answer lost"))
            with pytest.raises(WriteUnknownError):
                await service.append(ID, turn(6, 2))
            await service.append(ID, [*turn(6, 2), *turn(12, 3)])
            assert [e.seq for e in (await service.load(ID)).events] == list(range(18))


class LiveOwner:
    """An owner of sessions in memory, as small as one can be: what is live is what it was told."""

    def __init__(self) -> None:
        self.live: dict[str, list[Event]] = {}
        self.flushed: list[str] = []
        self.appended: list[tuple[str, int]] = []

    def is_live(self, session_id: str) -> bool:
        """Whether it was told so."""
        return session_id in self.live

    def restore(self, options: RestoredSessionOptions) -> Any:
        """The options themselves."""
        return options

    async def snapshot(self, session_id: str) -> SessionInspection:
        """What it was told."""
        return SessionInspection(header(session_id), freeze_events(self.live[session_id]))

    async def flush(self, session_id: str) -> None:
        """Remembered."""
        self.flushed.append(session_id)

    async def retired(self, session_id: str) -> None:
        """It lets go of none."""

    async def append(self, session_id: str, events: Sequence[Event]) -> None:
        """Remembered, and taken into the live session."""
        self.appended.append((session_id, len(events)))
        self.live[session_id] += events


class Owning:
    """A live session is its owner's; others look at it, or ask the owner."""

    @told
    async def test_a_live_session_is_shown_as_it_is(self, world: LogWorld) -> None:
        """Inspect borrows the owner's view, open turn and all, and adds no closers."""
        owner = LiveOwner()
        async with SessionPersistence(world.open(), owner=owner) as service:
            await stored(service, turn(0))
            owner.live[ID] = [*turn(0), *opened(6, 2)]
            assert len((await service.inspect(ID)).events) == 9
            assert len((await service.read_from(ID, 0)).events) == 6

    @told
    async def test_an_open_live_turn_is_never_closed_by_load(self, world: LogWorld) -> None:
        """Load flushes a live session; it gives the balanced one and refuses the open one (coordinator 2)."""
        owner = LiveOwner()
        async with SessionPersistence(world.open(), owner=owner) as service:
            await stored(service, opened(0))
            owner.live[ID] = [*opened(0)]
            with pytest.raises(SessionLiveError):
                await service.load(ID)
            owner.live[ID] += ended(3)
            assert len((await service.load(ID)).events) == 6
            assert owner.flushed == [ID, ID, ID]  # the last: what it shows is durable
            assert len((await service.read_from(ID, 0)).events) == 3
            owner.live["empty"] = []
            with pytest.raises(LogNotFoundError):
                await service.load("empty")

    @told
    async def test_liveness_is_asked_again_after_waiting(self, world: LogWorld) -> None:
        """A session that becomes live while its operation waits is not repaired or reserved (coordinator 3)."""
        async with SessionPersistence(world.open()) as service:
            await stored(service, opened(0))
        gated, owner = Gated(world.open()), LiveOwner()
        async with SessionPersistence(gated, owner=owner) as service:
            gate = gated.hold("read")
            ahead = asyncio.ensure_future(service.read_from(ID, 0))
            await asyncio.to_thread(gate.arrived.wait, 60)
            behind = [asyncio.ensure_future(step) for step in (service.load(ID), service.prepare(ID))]
            adding = asyncio.ensure_future(service.append(ID, turn(5, 2)))
            for _ in range(20):
                await asyncio.sleep(0)
            owner.live[ID] = [*opened(0)]
            gate.let_go()
            await ahead
            for late in (*behind, adding):
                with pytest.raises(SessionLiveError):
                    await late
            assert gated.calls["append"] == 0

    @told
    async def test_a_live_session_is_changed_through_its_owner(self, world: LogWorld) -> None:
        """An append to a live session goes to its owner, whose own writing reaches the log."""
        owner = LiveOwner()
        async with SessionPersistence(world.open(), owner=owner) as service:
            await service.create(header())
            owner.live[ID] = []
            await service.append(ID, turn(0))
            assert owner.appended == [(ID, 6)]
            with pytest.raises(LogNotFoundError):
                await service.read_from(ID, 0)
            await service.append(ID, owner.live[ID], by=owner)
            assert len((await service.read_from(ID, 0)).events) == 6
            with pytest.raises(SessionLiveError):
                await service.prepare(ID)

    @told
    async def test_a_claim_writes_what_is_missing(self, world: LogWorld) -> None:
        """A live log that begins with what is stored claims it, and its rest is appended (coordinator 25, 27, 28)."""
        async with SessionPersistence(world.open()) as service:
            lazy, session = header("lazy"), object()
            await service.create(lazy)
            assert await service.claim(lazy, turn(0), session) == 0
            await stored(service, turn(0))
            await service.load(ID)
            assert await service.claim(header(), turn(0), session) == 6
            assert await service.claim(header(), turn(0), session) == 6
            await service.release(ID, session)
            assert await service.claim(header(), [*turn(0), *opened(6, 2)], session) == 6
            await service.append(ID, opened(6, 2))
            assert len((await service.read_from(ID, 0)).events) == 9

    @told
    async def test_an_open_turn_is_not_closed_by_a_claim(self, world: LogWorld) -> None:
        """A live session that is taken up by a new service goes on in its turn (coordinator 18-20)."""
        async with SessionPersistence(world.open()) as service:
            await stored(service, opened(0))
        async with SessionPersistence(world.open()) as service:
            assert await service.claim(header(), [*opened(0), *ended(3)], object()) == 3
            await service.append(ID, ended(3))
            assert (await service.load(ID)).events == tuple(turn(0))

    @told
    async def test_a_stranger_in_a_live_log_closes_no_turn(self, world: LogWorld) -> None:
        """An owner whose log somebody else has continued is refused each time, and its open turn is left alone."""
        owner, backend = LiveOwner(), world.open()
        async with SessionPersistence(backend, owner=owner) as service:
            session = object()
            await service.claim(header(), opened(0), session)
            await service.append(ID, opened(0), by=owner)
            backend.append(ID, header(), 3, [event("todo/write", 3)])
            for _ in range(2):
                with pytest.raises(SequenceMismatchError) as refused:
                    await service.append(ID, ended(3), by=owner)
                assert refused.value.expected == 4
            assert len((await service.read_from(ID, 0)).events) == 4
            await service.release(ID, session)

    @told
    async def test_a_claim_must_fit_what_is_stored(self, world: LogWorld) -> None:
        """Another object's id, another beginning, or no beginning at all is refused (coordinator 21, 26)."""
        other = [*turn(0)]
        other[1] = event("user/message", 1, turn=1, text="other")
        async with SessionPersistence(world.open()) as service:
            await stored(service, turn(0))
            for events in ([], turn(0)[:5], other, [*other, *turn(6, 2)]):
                with pytest.raises(LogExistsError):
                    await service.claim(header(), events, object())
            mine = object()
            await service.claim(header(), turn(0), mine)
            with pytest.raises(SessionLiveError):
                await service.claim(header(), turn(0), object())
            await service.release(ID, object())
            with pytest.raises(SessionLiveError):
                await service.claim(header(), turn(0), object())

    @told
    async def test_a_claim_keeps_to_its_folder(self, world: LogWorld) -> None:
        """Another working directory is another session's, lazy or stored, with or without one (coordinator 29-31)."""
        async with SessionPersistence(world.open()) as service:
            await service.create(header("lazy", cwd="/srv/a"))
            await stored(service, turn(0), cwd="/srv/a")
            await stored(service, turn(0), "none")
            for session_id, cwd in (("lazy", "/srv/b"), (ID, "/srv/b"), (ID, None), ("none", "/srv/b")):
                events = [] if session_id == "lazy" else turn(0)
                with pytest.raises(LogExistsError):
                    await service.claim(header(session_id, cwd=cwd), events, object())

    @told
    async def test_only_the_prepared_object_is_published(self, world: LogWorld) -> None:
        """A reservation gives way to its own session object alone; its disposal then does nothing."""
        async with SessionPersistence(world.open(), owner=LiveOwner()) as service:
            await stored(service, turn(0))
            preparation = await service.prepare(ID)
            with pytest.raises(SessionReservedError):
                await service.claim(header(), turn(0), object())
            assert await service.claim(header(), turn(0), preparation.session) == 6
            preparation.dispose()
            await service.append(ID, turn(6, 2))
            assert len((await service.inspect(ID)).events) == 12

    @told
    async def test_an_abandoned_id_can_be_used_again(self, world: LogWorld) -> None:
        """An id that never stored anything is free when its live session has gone (coordinator 22)."""
        async with SessionPersistence(world.open()) as service:
            session = object()
            await service.claim(header(), [], session)
            with pytest.raises(LogExistsError):
                await service.create(header())
            await service.release(ID, session)
            await stored(service, turn(0))


class Refusing:
    """What this version can't read faithfully, and what isn't what was written."""

    @told
    async def test_a_newer_format_asks_for_an_upgrade(self, world: LogWorld) -> None:
        """A log of a newer format is refused with that direction, on every path, unchanged (coordinator 36; B118)."""
        needs(world, "version")
        await self._refused(world, SESSION_FORMAT_VERSION + 1, "upgrade")

    @pytest.mark.parametrize("version", [0, -1, "2", None, 1.5])
    def test_an_older_or_strange_format_has_no_path(self, world: LogWorld, version: Any) -> None:
        """Any other version is refused as one without a path, never as damage (coordinator 37; B118)."""
        needs(world, "version")
        asyncio.run(self._refused(world, version, "no path"))

    async def _refused(self, world: LogWorld, version: Any, direction: str) -> None:
        async with SessionPersistence(world.open()) as service:
            await stored(service, turn(0))
            await stored(service, turn(0), "sound")
        world.set_version(ID, version)
        backend = world.open()
        async with SessionPersistence(backend) as service:
            revision = backend.revision(ID)
            for refused in (service.load(ID), service.inspect(ID), service.prepare(ID), service.read_from(ID, 0),
                            service.append(ID, turn(6, 2)), service.inspect(ID, salvage=True),
                            *([service.read_raw(ID)] if service.supports_raw_artifacts else [])):  # fmt: skip
                with pytest.raises(SessionFormatUnsupportedError) as error:
                    await refused
                assert error.value.direction == direction
                if service.supports_raw_artifacts:
                    assert error.value.location is not None
            assert backend.revision(ID) == revision
            page = await service.survey()
            assert [s.header.id for s in page.snapshots] == ["sound"]
            assert [type(p.error) for p in page.problems] == [SessionFormatUnsupportedError]
            assert [h.id for h in await service.list()] == ["sound"]

    @told
    async def test_an_unknown_event_must_be_marked(self, world: LogWorld) -> None:
        """An unknown type is refused on every reading path unless it is marked ignorable (coordinator 38)."""
        strange = SessionEvent("plugin/odd", 6, 0, {"x": 1})
        async with SessionPersistence(world.open()) as service:
            await stored(service, [*turn(0), SessionEvent("plugin/odd", 6, 0, {"x": 1}, True)])
            await stored(service, [*turn(0), strange], "b")
            assert len((await service.inspect(ID)).events) == 7
            assert (await service.read_from(ID, 6)).events[0].ignorable
            for refused in (service.load("b"), service.inspect("b"), service.prepare("b"),
                            service.read_from("b", 0), service.read_from("b", 7)):  # fmt: skip
                with pytest.raises(SessionFormatUnsupportedError, match="plugin/odd") as error:
                    await refused
                assert error.value.direction == "upgrade"
            await service.append("b", turn(7, 2))  # a live session's durability is never refused for it
            partial = await service.inspect("b", salvage=True)
            assert (partial.partial, len(partial.events)) == (True, 12)
            assert len(await service.list()) == 2

    @told
    async def test_damage_is_told_and_never_written_over(self, world: LogWorld) -> None:
        """A damaged log is refused on every path, stays as it is, and shows what can be trusted as partial."""
        needs(world, "damage")
        async with SessionPersistence(world.open()) as service:
            await stored(service, turn(0, text="damage me"))
            for number in (1, 2):
                await service.append(ID, turn(6 * number, number + 1))
            await stored(service, turn(0), "sound")
        world.damage(ID)
        async with SessionPersistence(world.open()) as service:
            for refused in (service.load(ID), service.inspect(ID), service.prepare(ID), service.read_from(ID, 0),
                            service.append(ID, turn(18, 4))):  # fmt: skip
                with pytest.raises(SessionPersistenceCorruptionError):
                    await refused
            partial = await service.inspect(ID, salvage=True)
            assert partial.partial
            assert partial.problems
            # Memory checks a log as a whole, so there is nothing of it left to trust.
            assert [e.seq for e in partial.events] in (list(range(6, 18)), [])
            assert "damage me" not in repr(partial.events)
            assert len((await service.load("sound")).events) == 6
            assert (await service.inspect("sound", salvage=True)).partial is False


class LogContract(RoundTrips, Appending, Recovering, Reading, Preparing, Owning, Refusing):
    """Every claim."""
