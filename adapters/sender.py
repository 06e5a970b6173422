"""The way out: what the delivery of one account asks of its adapter (the port ``actors.delivery.Sender``)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any, NoReturn, cast

import attrs

from seriatim.actors.delivery import SendDone
from seriatim.actors.eager import begin
from seriatim.actors.outlet import Report
from seriatim.adapters.answers import message_id_of, refusal_of, refuse_text_max
from seriatim.adapters.base import Adapter, Edits, Lookup
from seriatim.errors import InvalidInputError, SendError
from seriatim.model import Outbound, Sent, Target
from seriatim.outbox import Channel

SEND_S_MAX = 60.0
"""A send that has not ended by then may or may not have arrived."""

CLOSE_S_MAX = 0.5
"""How long a stop waits for cancelled sends to unwind."""

TYPING_S_MAX = 3.0
"""A hint that takes longer comes too late."""


class AdapterSender:
    """The delivery's port to an adapter: each send is a task on the loop, begun at once where Python can.

    A send that ends without waiting, as over an open connection most do, then costs neither a pass of the loop nor a
    timer.
    """

    def __init__(self, adapter: Adapter, loop: asyncio.AbstractEventLoop, on_error: Report, prefix: str = "/") -> None:
        self._adapter = adapter
        self._loop = loop
        self._on_error = on_error
        self._pending: dict[asyncio.Task[SendDone], tuple[asyncio.TimerHandle, Callable[[SendDone], None]]] = {}
        self._late: set[asyncio.Task[SendDone]] = set()
        able = adapter.capabilities
        self._able = able
        self._hints: dict[Target, asyncio.Task[None]] = {}
        self._channel = Channel(
            idempotent=able.idempotent_send,
            unit=able.text_unit,
            multiline=able.multiline,
            prefix=prefix if adapter.command_prefix is None else adapter.command_prefix,
            lookup=able.lookup,
            edits=able.edit,
        )

    def send(self, out: Outbound, done: Callable[[SendDone], None]) -> SendDone | None:
        """Begin to send; whatever happens, its end is returned now or told to ``done`` later."""
        task = begin(self._loop, self._send(out))
        if task.done():
            return None if task.cancelled() else task.result()
        self._pending[task] = (self._loop.call_later(SEND_S_MAX, self._too_long, task, out), done)
        task.add_done_callback(self._ended)
        return None

    def _too_long(self, task: asyncio.Task[SendDone], out: Outbound) -> None:
        """Whether or not it listens to being cancelled: the reply has waited long enough."""
        _, done = self._pending.pop(task)
        self._late.add(task)
        task.cancel()
        late = SendError(f"no answer within {SEND_S_MAX:.0f} s", ambiguous=True)
        done(SendDone(out.delivery, out.part, None, late))

    def _ended(self, task: asyncio.Task[SendDone]) -> None:
        self._late.discard(task)
        pending = self._pending.pop(task, None)
        if pending is None:
            return  # told as too long by then
        timer, done = pending
        timer.cancel()
        if not task.cancelled():  # else the loop is being closed
            done(task.result())

    async def _send(self, out: Outbound) -> SendDone:
        message_id: str | None = None
        error: SendError | None = None
        try:
            sent = self._adapter.send(out) if not (out.edits or out.look) else self._otherwise(out)
            message_id = message_id_of(await sent if hasattr(sent, "__await__") else sent, self._fault)
        except SendError as refused:
            error = refusal_of(refused, self._fault)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise  # it took too long, which was told, or the loop is being closed
            error = SendError("the adapter cancelled its own send", ambiguous=True)
        except GeneratorExit:
            error = SendError("GeneratorExit", ambiguous=True)  # the loop is gone, and nobody hears it; or it says so
        except BaseException as failed:  # noqa: BLE001
            # What an adapter's bug left behind nobody knows: the part may have arrived.
            self._on_error(f"send {self._adapter.account}", failed)
            error = SendError(type(failed).__name__, ambiguous=True)
            if isinstance(failed, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
                self._loop.call_soon(_raise, failed)  # may be a real Ctrl-C: recorded first, and then the host's
        return SendDone(out.delivery, out.part, message_id, error)

    def _fault(self, error: InvalidInputError) -> None:
        self._on_error(f"send {self._adapter.account}", error)

    async def _otherwise(self, out: Outbound) -> Sent | None:
        """Edit a message into this one; or ask first whether an earlier attempt arrived."""
        if out.edits:
            if not self._able.edit:
                raise SendError("messages can't be edited here any more", permanent=True)
            edited = await cast("Edits", self._adapter).edit(out)
            return Sent(out.edits) if edited is None or edited.message_id is None else edited
        if self._able.lookup:
            found = await cast("Lookup", self._adapter).lookup(out)
            if found is not None:
                return found
        return await self._adapter.send(out)

    def typing(self, target: Target) -> None:
        """Show the hint, unless the last one is still on its way; returns at once and never raises."""
        if target in self._hints:
            return
        task = begin(self._loop, self._type(target))
        if not task.done():
            self._hints[target] = task
            task.add_done_callback(lambda _: self._hints.pop(target, None))

    async def _type(self, target: Target) -> None:
        try:
            async with asyncio.timeout(TYPING_S_MAX):
                await self._adapter.typing(target)
        except TimeoutError:
            pass
        except Exception as failed:  # noqa: BLE001  (a hint is a hint)
            self._on_error(f"typing {self._adapter.account}", failed)

    async def close(self) -> None:
        """Give up what is on its way. A send that doesn't listen is left behind, and named.

        The loop forgets it, too: it would wait for it at its own end, for ever.
        """
        tasks: set[asyncio.Task[Any]] = {*self._pending, *self._late, *self._hints.values()}
        for task in tasks:
            task.cancel()
        if tasks:
            _, deaf = await asyncio.wait(tasks, timeout=CLOSE_S_MAX)
            for task in deaf:
                asyncio._unregister_task(task)  # noqa: SLF001  (told of in the docs of asyncio, "Extending")
                self._on_error(f"send {self._adapter.account}", TimeoutError("ignores that it was cancelled"))

    def channel(self, target: Target) -> Channel:
        """The way to ``target`` as of now."""
        adapter = self._adapter
        try:
            up = adapter.connected
            text_max: Any = adapter.text_max(target)
            if type(text_max) is not int:
                refuse_text_max(text_max)
        except Exception as error:  # noqa: BLE001
            self._on_error(f"adapter {adapter.account}", error)
            return Channel()
        channel = self._channel
        if channel.up is not up or channel.text_max != text_max:
            channel = self._channel = attrs.evolve(channel, up=up, text_max=text_max)
        return channel


def _raise(error: BaseException) -> NoReturn:
    raise error
