"""Steps with tools: what may run when, and when the agent hears of it (T2 and T3).

A tool with effects runs only after the commit that explains it is durable, and its result returns to the
agent only after the result is. The shape that agents use::

    step = turn.step("I'll look that up")
    found = step.call("find", {"q": "pykka"}, find, effects="read")
    saved = step.call("save", {"page": 7}, save)
    answer = use(await found, await saved)

``call`` declares at once. Calls declared without an await in between are one message of the model: offered,
and committed, together. A call declared after that is a message of its own with empty text, so it costs one more
commit; ``turn.step(text, serial=True)`` declares all calls first and lets each start with the commit of the
result before it. Without a running loop (plain functions) ``call`` blocks, and `Step.calls` takes several at once.
"""

from __future__ import annotations

import asyncio
import contextvars
import json
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future, InvalidStateError
from typing import Any, Literal

from attrs import define, field, frozen

from seriatim.actors.calling import is_async, on_thread
from seriatim.actors.endings import error_text
from seriatim.actors.outlet import ENDED, Outlet
from seriatim.errors import InvalidInputError, LosslessJsonError, TurnCancelledError
from seriatim.events import check_lossless, mend_text
from seriatim.limits import STEP_CALLS_MAX, TOOL_RESULT_BYTES_MAX
from seriatim.turn import StepOffered, ToolCall, ToolFinished, TurnJob

Effects = Literal["none", "read", "write"]
_call: contextvars.ContextVar[str | None] = contextvars.ContextVar("seriatim_call", default=None)
_in_tool: contextvars.ContextVar[StepGate | None] = contextvars.ContextVar("seriatim_in_tool", default=None)


def arguments(given: Any) -> dict[str, Any]:
    """The arguments by name for a function. Raises InvalidInputError for what is no mapping."""
    if not isinstance(given, Mapping):
        raise InvalidInputError("args", f"a mapping of names to arguments is needed, not {type(given).__name__}")
    return dict(given)


def is_tool_name(given: Any) -> bool:
    """Whether the log can keep it as a tool's name."""
    return isinstance(given, str) and bool(given) and not mend_text(given)[1]


def running_call() -> str | None:
    """The id of the call whose tool runs here, None outside of tools."""
    return _call.get()


@frozen
class Call:
    """One tool call to make: ``fn(**args)``. ``effects``: "write" unless running it twice harms nobody.

    ``id``: the model's own id of the call, unique in the turn; one is made when it is None.
    """

    name: str
    args: Mapping[str, Any]
    fn: Callable[..., Any]
    effects: Effects = "write"
    id: str | None = None


class Gated:
    """A declared call on its way: may it run, is its result durable, was it started or given up?"""

    __slots__ = ("dropped", "fn", "may_run", "recorded", "started", "tool")

    def __init__(self, tool: ToolCall, fn: Callable[..., Any]) -> None:
        self.tool = tool
        self.fn = fn
        self.may_run: Future[None] = Future()
        self.recorded: Future[None] = Future()
        self.started = False
        self.dropped = False


@define
class Batch:
    """Calls that one message of the model asks for, in order; ``unfinished`` from when it is offered on."""

    text: str
    serial: bool
    calls: list[Gated] = field(factory=list)
    unfinished: list[Gated] = field(factory=list)


class StepGate:
    """The calls of one running turn, between its agent and its lane. Any thread.

    ``loop`` runs coroutine tools of plain functions. Shares the outlet's lock: what is told may be answered
    by release, proceed or cancel before tell returns, and two locks could be taken in either order.
    """

    def __init__(self, job: TurnJob, outlet: Outlet, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self._job = job
        self._outlet = outlet
        self._lock = outlet.lock
        self.loop = loop
        self.tasks: set[asyncio.Task[Any]] = set()
        self._line: list[Batch] = []
        self._calls: dict[str, Gated] = {}
        self._made = 0
        self._closed: str | None = None

    def declare(self, call: Call) -> Gated:
        """Check a call and give it its id. Raises InvalidInputError, TurnCancelledError."""
        if _in_tool.get() is self:
            # It would wait for the step before it, which waits for this very tool.
            raise InvalidInputError("call", "a tool can't call tools of its own turn")
        if not is_tool_name(call.name):
            raise InvalidInputError("name", "the tool's name is needed")
        args = arguments(call.args)
        check_lossless("tool/call", args)
        if not callable(call.fn):
            raise InvalidInputError("fn", "a function is needed")
        if call.effects not in ("none", "read", "write"):
            raise InvalidInputError("effects", 'one of "none", "read", "write"')
        with self._lock:
            self._check_open()
            self._made += 1
            name = call.id or f"t{self._job.number}a{self._job.attempt}c{self._made}"
            if name in self._calls:
                raise InvalidInputError("id", f"{name!r} was used before in this turn")
            gated = Gated(ToolCall(name, call.name, args, call.effects), call.fn)
            self._calls[name] = gated
            return gated

    def offer(self, batch: Batch) -> None:
        """Offer a batch once every call before it has finished. Raises TurnCancelledError."""
        with self._lock:
            self._check_open()
            self._line.append(batch)
            if len(self._line) == 1:
                self._offer_next()

    def finished(self, batch: Batch, gated: Gated, content: Any, *, error: bool) -> None:
        """Record a call's end, once; the next serial call rides with it, or else the next batch may go."""
        with self._lock:
            if self._closed is not None or gated.dropped:
                return
            gated.dropped = True
            if gated not in batch.unfinished:
                return  # given up before it was offered: nobody has heard of it
            batch.unfinished.remove(gated)
            following = [call for call in batch.unfinished[:1] if not call.started]
            tools = tuple(call.tool for call in following)
            said = recordable(content)
            changed = said is not content
            self._outlet.say(
                ToolFinished(self._job.number, self._job.generation, gated.tool.id, said, error, tools, changed)
            )
            _start(following)
            if not batch.unfinished:
                del self._line[0]
                self._offer_next()

    def release(self, calls: tuple[str, ...]) -> None:
        """The commit that explains these calls is durable: they may run. Unknown ids are ignored."""
        for gated in self._known(calls):
            _settle(gated.may_run)

    def proceed(self, calls: tuple[str, ...]) -> None:
        """The commit with these calls' results is durable: the agent may go on."""
        for gated in self._known(calls):
            _settle(gated.recorded)

    def close(self, why: str) -> None:
        """The turn is over: whoever waits for a call gets TurnCancelledError. Idempotent."""
        with self._lock:
            if self._closed is not None:
                return
            self._closed = why
            waiting = list(self._calls.values())
        for gated in waiting:
            _settle(gated.may_run, TurnCancelledError(why))
            _settle(gated.recorded, TurnCancelledError(why))

    def _known(self, calls: tuple[str, ...]) -> list[Gated]:
        with self._lock:
            return [self._calls[name] for name in calls if name in self._calls]

    def _check_open(self) -> None:
        if self._closed is not None:
            raise TurnCancelledError(self._closed)
        if self._outlet.ended:
            raise TurnCancelledError(ENDED)

    def _offer_next(self) -> None:
        while self._line and all(gated.dropped for gated in self._line[0].calls):
            del self._line[0]
        if not self._line:
            return
        batch = self._line[0]
        batch.unfinished = [gated for gated in batch.calls if not gated.dropped]
        first = batch.unfinished[:1] if batch.serial else batch.unfinished
        now = tuple(gated.tool for gated in first)
        later = tuple(gated.tool for gated in batch.unfinished[len(first) :])
        self._outlet.say(StepOffered(self._job.number, self._job.generation, batch.text, now, later))
        _start(first)


class Step:
    """One message of the model with its tool calls; made by ``Turn.step``."""

    def __init__(self, gate: StepGate, text: str, *, serial: bool) -> None:
        self._gate = gate
        self._text = text
        self._serial = serial
        self._batch: Batch | None = None

    def call(
        self,
        name: str,
        args: Mapping[str, Any],
        fn: Callable[..., Any],
        effects: Effects = "write",
        *,
        id: str | None = None,  # noqa: A002 - the model's word for it
    ) -> Any:
        """Run ``fn(**args)`` as a tool call and give back what it returns, once that is durable.

        On a thread with a running loop: declares at once and returns an awaitable. Elsewhere: blocks. Raises
        what the tool raised, InvalidInputError (nothing was run) or TurnCancelledError.
        """
        return self._begin((Call(name, args, fn, effects, id),), many=False)

    def calls(self, *calls: Call) -> Any:
        """Several calls of one message; their results in order, awaitable or blocking like ``call``.

        All are waited for; then the first error, in order, is raised.
        """
        return self._begin(calls, many=True)

    def _begin(self, calls: tuple[Call, ...], *, many: bool) -> Any:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            results = self._blocking(calls)
            return results if many else results[0]
        batch = self._open_batch(loop)
        tasks = [self._spawn(loop, batch, gated) for gated in self._declare(batch, calls)]
        return _all_of(tasks) if many else tasks[0]

    def _open_batch(self, loop: asyncio.AbstractEventLoop) -> Batch:
        # Offered in the loop's next pass, so that calls declared side by side share one commit.
        if self._batch is None:
            self._batch = Batch(self._text, self._serial)
            self._text = ""
            loop.call_soon(self._offer)
        return self._batch

    def _offer(self) -> None:
        batch, self._batch = self._batch, None
        if batch is not None and batch.calls:
            try:
                self._gate.offer(batch)
            except TurnCancelledError:
                return  # each call of it hears the same from the gate

    def _declare(self, batch: Batch, calls: tuple[Call, ...]) -> list[Gated]:
        if len(batch.calls) + len(calls) > STEP_CALLS_MAX:
            raise InvalidInputError("calls", f"more than {STEP_CALLS_MAX} in one step")
        declared = [self._gate.declare(call) for call in calls]
        batch.calls.extend(declared)
        return declared

    def _spawn(self, loop: asyncio.AbstractEventLoop, batch: Batch, gated: Gated) -> asyncio.Task[Any]:
        task = loop.create_task(_run(self._gate, batch, gated))
        self._gate.tasks.add(task)
        task.add_done_callback(self._gate.tasks.discard)
        task.add_done_callback(lambda ended: _seen(self._gate, batch, gated, ended))
        return task

    def _blocking(self, calls: tuple[Call, ...]) -> list[Any]:
        batch = Batch(self._text, self._serial)
        declared = self._declare(batch, calls)
        self._text = ""
        if not declared:
            return []
        self._gate.offer(batch)
        *others, last = declared
        if self._serial:
            return _results([_outcome(self._gate, batch, gated) for gated in declared])
        threads = [on_thread(f"seriatim-tool-{g.tool.name}", _outcome, self._gate, batch, g) for g in others]
        ended = _outcome(self._gate, batch, last)
        return _results([*(thread.result() for thread in threads), ended])


async def _run(gate: StepGate, batch: Batch, gated: Gated) -> Any:
    """One call on a loop: wait for its commit, run it, have its result recorded."""
    try:
        await asyncio.wrap_future(gated.may_run)
        token, called = _in_tool.set(gate), _call.set(gated.tool.id)
        try:
            value = await _invoke(gated)
        finally:
            _in_tool.reset(token)
            _call.reset(called)
    except (asyncio.CancelledError, GeneratorExit):
        gate.finished(batch, gated, "cancelled", error=True)
        raise
    except BaseException as exc:
        gate.finished(batch, gated, error_text(exc), error=True)
        await asyncio.wrap_future(gated.recorded)
        if isinstance(exc, Exception):
            raise
        # KeyboardInterrupt or SystemExit out of a task would stop the host's loop.
        raise RuntimeError(f"the tool raised {type(exc).__name__}") from exc
    gate.finished(batch, gated, value, error=False)
    await asyncio.wrap_future(gated.recorded)
    return value


async def _invoke(gated: Gated) -> Any:
    if is_async(gated.fn):
        return await gated.fn(**gated.tool.args)
    thread = on_thread(f"seriatim-tool-{gated.tool.name}", lambda: gated.fn(**gated.tool.args))
    value = await asyncio.wrap_future(thread)
    return await value if isinstance(value, Coroutine) else value


def _outcome(gate: StepGate, batch: Batch, gated: Gated) -> tuple[Any, BaseException | None]:
    """One call on a plain thread, to its durable end; the error is given back, not raised."""
    try:
        gated.may_run.result()
    except TurnCancelledError as exc:
        return None, exc
    token, called = _in_tool.set(gate), _call.set(gated.tool.id)
    try:
        value = gated.fn(**gated.tool.args)
        if isinstance(value, Coroutine):
            value = _on_loop(gate, value)
    except BaseException as exc:  # a tool's failure is its result, whatever it raised
        gate.finished(batch, gated, error_text(exc), error=True)
        return None, _waited(gated) or exc
    finally:
        _in_tool.reset(token)
        _call.reset(called)
    gate.finished(batch, gated, value, error=False)
    return value, _waited(gated)


def _waited(gated: Gated) -> BaseException | None:
    try:
        gated.recorded.result()
    except TurnCancelledError as exc:
        return exc
    return None


def _on_loop(gate: StepGate, value: Coroutine[Any, Any, Any]) -> Any:
    if gate.loop is None or gate.loop.is_closed():
        value.close()
        raise InvalidInputError("fn", "a coroutine function needs a running loop")
    return asyncio.run_coroutine_threadsafe(value, gate.loop).result()


def _results(outcomes: list[tuple[Any, BaseException | None]]) -> list[Any]:
    for _, error in outcomes:
        if error is not None:
            raise error
    return [value for value, _ in outcomes]


async def _all_of(tasks: list[asyncio.Task[Any]]) -> list[Any]:
    ended = await asyncio.gather(*tasks, return_exceptions=True)
    for outcome in ended:
        if isinstance(outcome, BaseException):
            raise outcome
    return list(ended)


def _seen(gate: StepGate, batch: Batch, gated: Gated, task: asyncio.Task[Any]) -> None:
    if task.cancelled():
        gate.finished(batch, gated, "cancelled", error=True)  # a task cancelled before its first step ran nothing
    else:
        task.exception()  # it is in the log by now; an agent that didn't wait for it needs no second report


def _start(calls: list[Gated]) -> None:
    """What has been told: a harmless call runs at once, another waits for its commit."""
    for gated in calls:
        gated.started = True
        if gated.tool.effects != "write":
            _settle(gated.may_run)


def _settle(future: Future[None], error: BaseException | None = None) -> None:
    if future.done():
        return
    try:
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)
    except InvalidStateError:
        return  # its waiter was cancelled in the same moment


def recordable(content: Any) -> Any:
    """``content`` if a log can hold it unchanged; else its text, cut to TOOL_RESULT_BYTES_MAX with a note."""
    try:
        check_lossless("tool/result", {"content": content})
        text = json.dumps(content, ensure_ascii=False)
    except LosslessJsonError:
        text = content if isinstance(content, str) else repr(content)
        content = text = mend_text(text)[0]
    size = len(text.encode())
    if size <= TOOL_RESULT_BYTES_MAX:
        return content
    kept = text.encode()[: TOOL_RESULT_BYTES_MAX - 100].decode(errors="ignore")
    return f"{kept}\n[cut: the whole result had {size} bytes]"
