"""Memory, SQLite and JSONL, raw and compressed, can't be told apart through the service."""

from __future__ import annotations

import asyncio
import math
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from seriatim.errors import SeriatimError
from seriatim.events import SAFE_INTEGER_MAX
from seriatim.storage.event_log.persistence import SessionPersistence
from seriatim.storage.event_log.values import SessionEvent, SessionInspection, SessionPreparation
from seriatim.testing.log_contract import header

from .worlds import MEDIA

TYPES = ("turn/start", "turn/end", "step/start", "step/end", "tool/call", "tool/result", "todo/write", "odd/one")
numbers = st.integers(-SAFE_INTEGER_MAX, SAFE_INTEGER_MAX) | st.floats(allow_nan=False, allow_infinity=False).filter(
    lambda n: n != 0 or math.copysign(1, n) > 0
)
values = st.recursive(
    st.none() | st.booleans() | numbers | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
datas = st.dictionaries(st.sampled_from(["turn", "step", "id", "calls", "x", "é"]), values, max_size=4)
bodies = st.tuples(
    st.sampled_from(TYPES),
    st.integers(-SAFE_INTEGER_MAX, SAFE_INTEGER_MAX),
    datas,
    st.none() | st.tuples(st.integers(0, 9)) | st.just(()),
    st.none() | st.just("append") | st.just({"op": "replace", "start": 0, "end": 1}),
)
IDS = ("a", "B/é")
ids = st.sampled_from(IDS)
steps = st.one_of(
    st.tuples(st.just("append"), ids, st.lists(bodies, min_size=1, max_size=5), st.just(0)),
    st.tuples(st.just("append"), ids, st.lists(bodies, min_size=1, max_size=3), st.sampled_from([-1, 1, 7])),
    st.tuples(st.sampled_from(["create", "load", "inspect", "prepare", "salvage", "reopen", "list"]), ids),
    st.tuples(st.just("read_from"), ids, st.integers(0, 20)),
)


class Side:
    """One medium, its service of now, and the revisions that it told."""

    def __init__(self, number: int, folder: Path) -> None:
        (folder / str(number)).mkdir()
        self.world = MEDIA[number].make(folder / str(number))
        self.service = SessionPersistence(self.world.open())
        self.heads: dict[str, int] = dict.fromkeys(IDS, 0)
        self.revisions: dict[str, Any] = {}

    async def do(self, step: tuple[Any, ...]) -> Any:
        """The answer in a form that can be compared: what was returned, or the error's type and its numbers."""
        try:
            return await self._do(*step)
        except SeriatimError as error:
            return type(error).__name__, getattr(error, "expected", None), getattr(error, "got", None)

    async def _do(self, name: str, session_id: str, *rest: Any) -> Any:
        if name == "append":
            bodies, off = rest
            first = self.heads[session_id] + off
            batch = [
                SessionEvent(kind, first + n, time, data, kind == "odd/one", *rare)
                for n, (kind, time, data, *rare) in enumerate(bodies)
            ]
            await self.service.append(session_id, batch)
            self.heads[session_id] += len(batch)
            return "appended"
        if name == "create":
            await self.service.create(header(session_id))
            return "created"
        if name == "reopen":
            await self.service.close()
            self.service = SessionPersistence(self.world.open())
            return "reopened"
        if name == "list":
            return await self._changed()
        if name == "read_from":
            return self._seen(session_id, await self.service.read_from(session_id, *rest))
        if name == "salvage":
            return self._seen(session_id, await self.service.inspect(session_id, salvage=True))
        return self._seen(session_id, await getattr(self.service, name)(session_id))

    def _seen(self, session_id: str, found: SessionInspection | SessionPreparation[SessionInspection]) -> Any:
        if isinstance(found, SessionPreparation):
            found.dispose()
            found = found.session
        if found.events:
            self.heads[session_id] = max(self.heads[session_id], 0)
        return found.meta, found.events, found.partial

    async def _changed(self) -> list[tuple[str, bool]]:
        """Which sessions there are, and whether each revision is another one than at the last look."""
        now = {s.header.id: s.revision for s in await self.service.list_snapshots()}
        told = [(session_id, self.revisions.get(session_id) != now[session_id]) for session_id in sorted(now)]
        self.revisions = now
        return told


@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.lists(steps, min_size=4, max_size=14))
def test_no_backend_can_be_told_from_another(story: list[tuple[Any, ...]]) -> None:
    """Whatever is created, appended, refused, read, repaired and reopened: four backends give the same answers."""

    async def tell(folder: Path) -> None:
        sides = [Side(number, folder) for number in range(len(MEDIA))]
        try:
            for step in [("create", session_id) for session_id in IDS] + story:
                answers = [await side.do(step) for side in sides]
                assert answers.count(answers[0]) == len(answers), (step, answers)
                for side in sides:  # closers may have been stored: go on after them
                    side.heads = {session_id: await _head(side, session_id) for session_id in IDS}
        finally:
            for side in sides:
                await side.service.close()

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(tell(Path(folder)))


async def _head(side: Side, session_id: str) -> int:
    try:
        return len((await side.service.read_from(session_id, 0)).events)
    except SeriatimError:
        return 0
