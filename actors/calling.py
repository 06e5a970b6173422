"""Calling conventions: what may stand behind a turn, and how each kind is run and stopped.

An agent is a function, coroutine function, generator function, async generator function, or an object with
``run(turn)`` of one of these kinds. A function may also return what another kind would have made (a lambda
around a coroutine function), so the kind is found out from what comes back.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import threading
from collections.abc import AsyncGenerator, Callable, Generator
from concurrent.futures import Future
from contextlib import aclosing
from types import CoroutineType
from typing import TYPE_CHECKING, Any

from seriatim.errors import InvalidInputError, ReplyTooLargeError
from seriatim.limits import REPLY_BYTES_MAX
from seriatim.turn import Reply, Silence

if TYPE_CHECKING:
    from seriatim.actors.live_turn import Turn


def entry_of(agent: Any) -> Callable[[Any], Any]:
    """The function to call with a turn. Raises InvalidInputError for what can't be an agent."""
    if inspect.isclass(agent):
        raise InvalidInputError("agent", f"an instance is needed, not the class {agent.__name__}")
    run = getattr(agent, "run", None)
    if callable(run) and not inspect.isroutine(agent):
        return run  # type: ignore[no-any-return]
    if callable(agent):
        return agent  # type: ignore[no-any-return]
    raise InvalidInputError("agent", f"a function or an object with run(turn) is needed, not {type(agent).__name__}")


def is_async(fn: Any) -> bool:
    """Whether calling ``fn`` only makes a coroutine or an async generator, so that a loop may call it."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    if not inspect.isroutine(fn):
        fn = type(fn).__call__
    return inspect.iscoroutinefunction(fn) or inspect.isasyncgenfunction(fn)


def on_thread(name: str, fn: Callable[..., Any], *args: Any) -> Future[Any]:
    """Run ``fn`` on a daemon thread of its own, in a copy of the caller's context; any error is the future's.

    Not an executor: that joins its threads when the interpreter exits, and one stuck agent would hang it.
    """
    future: Future[Any] = Future()
    future.set_running_or_notify_cancel()  # from here on nobody can cancel it: the thread always answers
    context = contextvars.copy_context()

    def body() -> None:
        try:
            result = context.run(fn, *args)
        except StopIteration:  # no future of asyncio can carry one
            future.set_exception(RuntimeError("raised StopIteration"))
        except BaseException as exc:  # it crosses to the waiting side, whatever it is
            future.set_exception(exc)
        else:
            future.set_result(result)

    try:
        threading.Thread(target=body, name=name, daemon=True).start()
    except RuntimeError as exc:  # the system gives no more threads
        future.set_exception(exc)
    return future


class Chunks:
    """What a generator yields: text is shown as it comes and joined; a Reply or Silence stands for the whole."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self._texts: list[str] = []
        self._chars = 0
        self._whole: Reply | Silence | None = None

    def take(self, item: Any) -> None:
        """Raises InvalidInputError for other types, ReplyTooLargeError once the text is too long."""
        if isinstance(item, Reply | Silence):
            self._whole = item
        elif isinstance(item, str):
            self._turn.emit(item)
            self._texts.append(item)
            self._chars += len(item)
            if self._chars > REPLY_BYTES_MAX:
                raise ReplyTooLargeError(REPLY_BYTES_MAX)
        else:
            raise InvalidInputError("chunk", f"text is needed, the agent yielded {type(item).__name__}")

    def result(self) -> Reply | Silence | str | None:
        """The whole reply; None when nothing was yielded."""
        if self._whole is not None:
            return self._whole
        return "".join(self._texts) if self._texts else None


def call_blocking(entry: Callable[[Any], Any], turn: Turn) -> Any:
    """Call an agent on this thread; a generator is run to its end, or closed at its first yield after cancel."""
    result = entry(turn)
    return drain(result, turn) if isinstance(result, Generator) else result


def drain(made: Generator[Any, None, Any], turn: Turn) -> Any:
    """A generator's whole reply; what it returns, if anything, stands for the whole."""
    chunks = Chunks(turn)
    try:
        while not turn.cancelled.is_set():
            try:
                chunks.take(next(made))
            except StopIteration as end:
                return chunks.result() if end.value is None else end.value
    finally:
        made.close()
    return chunks.result()


async def resolve(result: Any, turn: Turn) -> Any:
    """What a call gave back, brought to its end on the running loop: coroutines and async generators."""
    if type(result) is CoroutineType:  # the common case: no search through abstract classes
        result = await result
        if type(result) is str:
            return result
    result = await resolve_value(result)
    return await _drain_async(result, turn) if isinstance(result, AsyncGenerator) else result


async def resolve_value(result: Any) -> Any:
    """``result``, awaited if it can be."""
    return await result if inspect.isawaitable(result) else result


async def call_contained(fn: Callable[..., Any], *args: Any) -> Any:
    """Call a host's hook: async ones here, plain ones on a thread. Raises only Exceptions and CancelledError."""
    try:
        if is_async(fn):
            return await fn(*args)
        return await resolve_value(await asyncio.wrap_future(on_thread("seriatim-hook", fn, *args)))
    except (KeyboardInterrupt, SystemExit, GeneratorExit) as exc:
        # Out of a task these would stop the host's loop.
        raise RuntimeError(f"raised {type(exc).__name__}") from exc


async def _drain_async(made: AsyncGenerator[Any, None], turn: Turn) -> Any:
    chunks = Chunks(turn)
    async with aclosing(made):
        async for item in made:
            chunks.take(item)
            if turn.cancelled.is_set():
                break
    return chunks.result()
