"""A chat-completions server whose every answer is scripted: latency, chunking, refusals, broken streams."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from attrs import Factory, define


@define
class Answer:
    """One scripted answer.

    ``status`` with ``headers`` and ``body`` when it isn't 200. Otherwise ``pieces`` are streamed; ``hold``:
    wait after the first piece until ``Stub.go_on`` is set or the client leaves; ``drop``: close the
    connection in the middle; ``raw``: send these bytes as the body instead.
    """

    pieces: tuple[str, ...] = ("Hello", " there")
    finish: str | None = "stop"
    usage: dict[str, Any] | None = Factory(
        lambda: {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9, "prompt_tokens_details": None}
    )
    status: int = 200
    headers: dict[str, str] = Factory(dict)
    body: str = ""
    hold: bool = False
    drop: bool = False
    raw: bytes | None = None
    content_type: str = "text/event-stream"


class Stub:
    """The server's side: what it was asked, how many answers are under way, how many clients left."""

    def __init__(self, answers: list[Answer]) -> None:
        self.answers = answers
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.busy = 0
        self.left = 0
        self.go_on = asyncio.Event()
        self.changed = asyncio.Condition()
        self.url = ""

    async def until(self, wanted: Any) -> None:
        """Wait until ``wanted()`` holds of this stub."""
        async with asyncio.timeout(60), self.changed:
            await self.changed.wait_for(wanted)

    async def _note(self, **by: int) -> None:
        async with self.changed:
            for name, step in by.items():
                setattr(self, name, getattr(self, name) + step)
            self.changed.notify_all()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, one request."""
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            fields = [line.split(": ", 1) for line in head.split("\r\n")[1:] if ": " in line]
            headers = {name.lower(): value for name, value in fields}
            body = await reader.readexactly(int(headers.get("content-length", "0")))
            self.headers.append(headers)
            self.requests.append(json.loads(body))
            await self._note(busy=1)
            try:
                await self._answer(self.answers.pop(0), reader, writer)
            finally:
                await self._note(busy=-1)
        except (ConnectionError, asyncio.IncompleteReadError):
            await self._note(left=1)
        finally:
            writer.close()

    async def _answer(self, answer: Answer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        lines = [f"HTTP/1.1 {answer.status} X", "connection: close"]
        lines += [f"{name}: {value}" for name, value in answer.headers.items()]
        lines.append(f"content-type: {answer.content_type}")
        if answer.status == 200 and answer.raw is None:
            lines.append("transfer-encoding: chunked")
        writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())
        if answer.status != 200 or answer.raw is not None:
            writer.write(answer.raw if answer.raw is not None else answer.body.encode())
            await writer.drain()
            return
        for at, piece in enumerate(answer.pieces):
            self._event(writer, {"choices": [{"index": 0, "delta": {"content": piece}, "finish_reason": None}]})
            await writer.drain()
            if at == 0 and answer.hold:
                await self._hold(reader)
        if answer.drop:
            writer.transport.abort()
            return
        if answer.finish is not None:
            self._event(writer, {"choices": [{"index": 0, "delta": {}, "finish_reason": answer.finish}]})
        if answer.usage is not None:
            self._event(writer, {"choices": [], "usage": answer.usage})
        _chunk(writer, b"data: [DONE]\n\n")
        writer.write(b"0\r\n\r\n")
        await writer.drain()

    async def _hold(self, reader: asyncio.StreamReader) -> None:
        """A model at work: it goes on when told, and stops when its client has gone."""
        gone = asyncio.ensure_future(reader.read(1))
        told = asyncio.ensure_future(self.go_on.wait())
        await asyncio.wait({gone, told}, return_when=asyncio.FIRST_COMPLETED)
        told.cancel()
        if gone.done():
            raise ConnectionError("the client left")
        gone.cancel()

    def _event(self, writer: asyncio.StreamWriter, event: dict[str, Any]) -> None:
        _chunk(writer, b"data: " + json.dumps(event, ensure_ascii=False).encode() + b"\n\n")


def _chunk(writer: asyncio.StreamWriter, data: bytes) -> None:
    # In two halves, so that a line, and a character, may be cut anywhere.
    for half in (data[: len(data) // 2], data[len(data) // 2 :]):
        if half:
            writer.write(f"{len(half):x}\r\n".encode() + half + b"\r\n")


@asynccontextmanager
async def stub(*answers: Answer) -> AsyncIterator[Stub]:
    """A listening stub that gives these answers, one a request."""
    made = Stub(list(answers))
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    try:
        yield made
    finally:
        server.close()
