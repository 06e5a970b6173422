"""The way out: what the delivery of one account asks of its adapter (the port ``actors.delivery.Sender``)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import NoReturn

import attrs

from seriatim.actors.delivery import SendDone
from seriatim.actors.eager import begin
from seriatim.actors.outlet import Report
from seriatim.adapters.base import Adapter
from seriatim.errors import SendError
from seriatim.model import Outbound, Sent, Target
from seriatim.outbox import Channel

SEND_S_MAX = 60.0
"""A send that has not ended by then may or may not have arrived."""


class AdapterSender:
    """The delivery's port to an adapter: each send is a task on the loop, begun at once where Python can.

    A send that ends without waiting, as over an open connection most do, then costs neither a pass of the loop nor a
    timer.
    """

    def __init__(self, adapter: Adapter, loop: asyncio.AbstractEventLoop, on_error: Report) -> None:
        self._adapter = adapter
        self._loop = loop
        self._on_error = on_error
        self._pending: dict[asyncio.Task[SendDone], tuple[asyncio.TimerHandle, Callable[[SendDone], None]]] = {}
        self._late: set[asyncio.Task[SendDone]] = set()
        able = adapter.capabilities
        self._channel = Channel(idempotent=able.idempotent_send, unit=able.text_unit, multiline=able.multiline)

    def send(self, out: Outbound, done: Callable[[SendDone], None]) -> SendDone | None:
        """Begin to send; whatever happens, its end is returned now or told to ``done`` later."""
        task = begin(self._loop, self._send(out))
        if task.done():
            return None if task.cancelled() else task.result()
        self._pending[task] = (self._loop.call_later(SEND_S_MAX, self._too_long, task), done)
        task.add_done_callback(self._ended)
        return None

    def _too_long(self, task: asyncio.Task[SendDone]) -> None:
        self._late.add(task)
        task.cancel()

    def _ended(self, task: asyncio.Task[SendDone]) -> None:
        timer, done = self._pending.pop(task)
        timer.cancel()
        self._late.discard(task)
        if not task.cancelled():  # else the loop is being closed
            done(task.result())

    async def _send(self, out: Outbound) -> SendDone:
        message_id: str | None = None
        error: SendError | None = None
        try:
            sent: Sent | None = await self._adapter.send(out)
            message_id = None if sent is None else sent.message_id
        except SendError as refused:
            error = refused
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task in self._late:
                error = SendError(f"no answer within {SEND_S_MAX:.0f} s", ambiguous=True)
            elif task is not None and task.cancelling():
                raise  # the loop is being closed
            else:
                error = SendError("the adapter cancelled its own send", ambiguous=True)
        except GeneratorExit:
            raise  # the loop is gone
        except BaseException as failed:  # noqa: BLE001
            # What an adapter's bug left behind nobody knows: the part may have arrived.
            self._on_error(f"send {self._adapter.account}", failed)
            error = SendError(type(failed).__name__, ambiguous=True)
            if isinstance(failed, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
                self._loop.call_soon(_raise, failed)  # may be a real Ctrl-C: recorded first, and then the host's
        return SendDone(out.delivery, out.part, message_id, error)

    def channel(self, target: Target) -> Channel:
        """The way to ``target`` as of now."""
        try:
            up, text_max = self._adapter.connected, self._adapter.text_max(target)
        except Exception as error:  # noqa: BLE001
            self._on_error(f"adapter {self._adapter.account}", error)
            return Channel()
        channel = self._channel
        if channel.up is not up or channel.text_max != text_max:
            channel = self._channel = attrs.evolve(channel, up=up, text_max=text_max)
        return channel


def _raise(error: BaseException) -> NoReturn:
    raise error
