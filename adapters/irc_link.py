"""One live IRC connection: it reads, writes at a pace, confirms what it sent, and notices silence.

Everything runs on the gateway's event loop. A link is used for one connection and thrown away; what it sent and
could not confirm ends as ambiguous when it closes.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, Final, NoReturn

from seriatim.adapters import irc_wire as wire
from seriatim.adapters.irc_options import IrcOptions
from seriatim.adapters.irc_sending import UNCONFIRMED_LINES_MAX, Job, TokenBucket, Unconfirmed
from seriatim.adapters.irc_session import Closing, Echoed, IrcSession, Ponged, Refused, Said
from seriatim.adapters.lines import LineBuffer
from seriatim.errors import SendError
from seriatim.limits import IRC_LINE_BYTES_MAX, IRC_SENDS_MAX
from seriatim.model import Sent

GOODBYE_S: Final = 1.0
"""How long a QUIT may take; the process is about to end and must not hang on a dead server."""


class LinkLostError(Exception):
    """The connection is over: refused, closed, silent or ended by the server. The adapter connects again."""


async def race(*work: Coroutine[Any, Any, None]) -> None:
    """Run all until the first ends, cancel the others, and raise what any of them raised."""
    tasks = [asyncio.ensure_future(each) for each in work]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, Exception):
            raise outcome


class IrcLink:
    """One connection from open stream to close.

    ``said`` gets each thing that a person says, in order; while it waits (the runtime is behind), nothing more
    is read, so that TCP slows the server down. ``changed`` is called whenever ``session`` may have news.
    """

    def __init__(
        self,
        options: IrcOptions,
        *,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        bucket: TokenBucket,
        said: Callable[[Said], Awaitable[None]],
        changed: Callable[[], None],
    ) -> None:
        self.session = IrcSession(options)
        self._options = options
        self._reader = reader
        self._writer = writer
        self._bucket = bucket
        self._said = said
        self._changed = changed
        self._loop = asyncio.get_running_loop()
        self._heard_at = self._loop.time()
        self._reading = True
        self._jobs: deque[Job] = deque()
        self._unconfirmed = Unconfirmed()
        self._wake = asyncio.Event()
        self._lost = False

    async def run(self) -> NoReturn:
        """Talk until the connection ends. Raises LinkLostError or OSError, or ConfigError; never returns.

        When cancelled, says QUIT first. However it ends, no send is left waiting.
        """
        try:
            self._writer.writelines(self.session.hello())
            await race(self._read(), self._write_jobs(), self._watch(), self._amend())
            raise LinkLostError("ended")
        except asyncio.CancelledError:
            await self._goodbye()
            raise
        finally:
            self._lose("connection lost before it was confirmed")
            self._writer.transport.abort()

    async def send(self, target: str, lines: tuple[bytes, ...]) -> Sent:
        """Write ``lines`` when their turn comes; returns once the server has processed them.

        Raises SendError: ambiguous when the connection ended after the first line was written.
        """
        if self._lost or len(self._jobs) >= IRC_SENDS_MAX:
            raise SendError("not connected" if self._lost else "too many messages wait for this connection")
        job = Job(self.session.fold(target), lines, self._loop.create_future())
        self._jobs.append(job)
        self._wake.set()
        return await job.done

    # Inbound

    async def _read(self) -> None:
        buffer = LineBuffer(IRC_LINE_BYTES_MAX)
        while chunk := await self._reader.read(65536):
            self._heard_at = self._loop.time()
            for raw in buffer.feed(chunk):
                await self._take(raw)
            await self._writer.drain()
        raise LinkLostError("closed by the server")

    async def _take(self, raw: bytes) -> None:
        line = wire.parse(raw)
        if line is None:
            return
        fed = self.session.feed(line)
        self._writer.writelines(fed.replies)
        match fed.news:
            case Said() as said:
                self._reading = False
                await self._said(said)
                self._reading = True
                self._heard_at = self._loop.time()
            case Ponged(token):
                self._unconfirmed.ponged(token)
                self._wake.set()
            case Refused(target, reason, wait_s):
                self._unconfirmed.refused(target, reason, wait_s)
            case Echoed(target, message_id):
                self._unconfirmed.echoed(target, message_id)
            case Closing(reason):
                raise LinkLostError(reason)
            case None:
                self._changed()

    # Outbound

    async def _write_jobs(self) -> None:
        while True:
            while not self._jobs:
                self._close_window()
                await self._wait()
            job = self._jobs[0]
            if self._unconfirmed.clashes(job):
                self._close_window()
            for index, line in enumerate(job.lines):
                await self._leave()
                if job.done.done():
                    break  # its sender gave up, or an earlier line of it was refused
                self._unconfirmed.wrote(job)
                self._writer.write(line)
                if not index:
                    self._jobs.popleft()
                await self._writer.drain()
            if self._jobs and self._jobs[0] is job:
                self._jobs.popleft()

    async def _leave(self) -> None:
        """Wait until one line more may be written: the pace allows it and the server isn't too far behind."""
        while len(self._unconfirmed) >= UNCONFIRMED_LINES_MAX:
            self._close_window()
            await self._wait()
        while (wait_s := self._bucket.take(self._loop.time())) > 0:
            self._close_window()
            await asyncio.sleep(wait_s)

    async def _wait(self) -> None:
        self._wake.clear()
        await self._wake.wait()

    def _close_window(self) -> None:
        if self._unconfirmed.is_open:
            self._writer.write(wire.message("PING", self._unconfirmed.close()))

    def _lose(self, reason: str) -> None:
        self._lost = True
        self._unconfirmed.lose(reason)
        for job in self._jobs:
            job.fail("connection lost before it was written")
        self._jobs.clear()

    # Time

    async def _watch(self) -> None:
        """End a connection on which nothing is heard, or that takes longer than that to register.

        Asks with a PING at half time. Our own pauses (the runtime is behind) are not the server's silence.
        """
        limit_s = self._options.ping_timeout_s
        register_by = self._loop.time() + limit_s
        asked_at = float("-inf")
        while True:
            now = self._loop.time()
            silent_s = now - self._heard_at if self._reading else 0.0
            if silent_s >= limit_s or (not self.session.registered and now >= register_by):
                raise LinkLostError("the server is silent" if self.session.registered else "registration took too long")
            if silent_s >= limit_s / 2 and asked_at < self._heard_at:
                asked_at = now
                self._writer.write(wire.message("PING", "alive"))
            await asyncio.sleep(limit_s / 8)

    async def _amend(self) -> None:
        while True:
            await asyncio.sleep(self._options.regain_s)
            self._writer.writelines(self.session.amends())

    async def _goodbye(self) -> None:
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(GOODBYE_S):
                self._writer.write(wire.message("QUIT", "bye"))
                await self._writer.drain()
                while await self._reader.read(65536):
                    pass
