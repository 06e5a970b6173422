"""Background work of turns: begun once its start is durable, ended by its lane, told when it is over.

A function, coroutine function, or generator of either kind; what a generator yields is its output so far. Plain ones
run on daemon threads; one that doesn't hear that it was ended keeps its thread and is heard no more.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Mapping
from typing import Any

from attrs import frozen

from seriatim.actors.calling import call_blocking, is_async, on_thread, resolve
from seriatim.actors.endings import error_text
from seriatim.actors.outlet import Report, Tell
from seriatim.actors.steps import recordable
from seriatim.turn import DelegationEnded, Reply


@frozen
class Planned:
    """Work that waits for its start to be durable: ``fn(**args)``; ``tell`` reaches its lane."""

    fn: Callable[..., Any]
    args: Mapping[str, Any]
    tell: Tell


class _Work:
    """One piece of work that runs: what generators give as they go, and whether it was ended."""

    def __init__(self, lane: str) -> None:
        self.lane = lane
        self.cancelled = threading.Event()
        self.texts: list[str] = []
        self.task: asyncio.Task[None] | None = None

    def emit(self, text: str) -> None:
        """A piece of the output. Any thread."""
        if text and not self.cancelled.is_set():
            self.texts.append(text)

    @property
    def output(self) -> str:
        return "".join(self.texts)


class Delegations:
    """The background work of all lanes. Loop thread only, but for ``plan``."""

    def __init__(self, loop: asyncio.AbstractEventLoop, report: Report) -> None:
        self._loop = loop
        self._report = report
        self._planned: dict[tuple[str, int, str], Planned] = {}
        self._works: dict[str, _Work] = {}
        self._closed = False

    def plan(self, lane: str, generation: int, token: str, planned: Planned) -> None:
        """Keep work until its lane answers. Any thread."""
        self._planned[lane, generation, token] = planned

    def forget(self, lane: str, generation: int) -> None:
        """The turn was cancelled: what it planned and its lane has not begun never begins."""
        for name in [name for name in self._planned if name[:2] == (lane, generation)]:
            self._planned.pop(name, None)

    def begin(self, lane: str, generation: int, token: str, name: Any) -> None:
        """The start is durable (``name``: its id) or was refused (None). Also after the turn has ended."""
        planned = self._planned.pop((lane, generation, token), None)
        if planned is None or name is None or self._closed:
            return
        work = self._works[name] = _Work(lane)
        work.task = self._loop.create_task(self._run(name, work, planned))

    def end(self, names: tuple[str, ...]) -> None:
        """Stop work whose end is durable already, whoever its lane is now; it is heard no more. Others are ignored."""
        for name in names:
            work = self._works.pop(name, None)
            if work is not None:
                work.cancelled.set()
                if work.task is not None:
                    work.task.cancel()

    def live(self, lane: str) -> frozenset[str]:
        """The ids of the lane's work that goes on."""
        return frozenset(name for name, work in self._works.items() if work.lane == lane)

    def output(self, name: str) -> str:
        """What the work has given so far; "" for unknown work."""
        work = self._works.get(name)
        return "" if work is None else work.output

    def close(self) -> None:
        """The process ends: stop everything and tell nothing; the next start finds what was open."""
        self._closed = True
        self.end(tuple(self._works))

    async def _run(self, name: str, work: _Work, planned: Planned) -> None:
        try:
            if is_async(planned.fn):
                made = planned.fn(**planned.args)
            else:
                entry = _entry(planned)
                made = await asyncio.wrap_future(on_thread("seriatim-delegation", call_blocking, entry, work))
            ended = DelegationEnded(name, "completed", _text(await resolve(made, work)))  # type: ignore[arg-type]
        except (asyncio.CancelledError, GeneratorExit) as exc:
            if work.cancelled.is_set():
                return
            ended = DelegationEnded(name, "interrupted", work.output or error_text(exc))
        except BaseException as exc:  # whatever it raised is its end, and may not reach the loop
            self._report("delegation", exc)
            output = work.output
            ended = DelegationEnded(name, "failed", f"{output}\n{error_text(exc)}" if output else error_text(exc))
        if self._works.get(name) is work:
            del self._works[name]
            planned.tell(ended)


def _entry(planned: Planned) -> Callable[[Any], Any]:
    return lambda _: planned.fn(**planned.args)


def _text(result: Any) -> str:
    if result is None:
        return ""
    if isinstance(result, Reply):
        result = result.text
    content = recordable(result)
    return content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
