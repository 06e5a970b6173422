"""Server-sent events of a streamed chat completion, as far as a chat needs them."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

from seriatim.errors import ModelError
from seriatim.limits import STREAM_LINE_BYTES_MAX


async def lines_of(chunks: AsyncIterator[bytes]) -> AsyncGenerator[str, None]:
    """Lines without their end. Only CR and LF end a line: JSON text may hold U+2028 and its kin as they are.

    Raises ModelError for a line beyond STREAM_LINE_BYTES_MAX.
    """
    rest = b""
    async for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield line.rstrip(b"\r").decode("utf-8", "replace")
        if len(rest) > STREAM_LINE_BYTES_MAX:
            raise ModelError("the model's server sent an endless line")
    if rest:
        yield rest.rstrip(b"\r").decode("utf-8", "replace")


async def events_of(chunks: AsyncIterator[bytes]) -> AsyncGenerator[dict[str, Any] | None, None]:
    """The JSON object of each data line; None for the closing ``[DONE]``. Raises ModelError."""
    async for line in lines_of(chunks):
        if not line.startswith("data:"):
            continue  # comments, event names, keep-alives
        data = line[5:].strip()
        if data == "[DONE]":
            yield None
            return
        try:
            event = json.loads(data)
        except ValueError:
            raise ModelError("the model's server sent a line that is not JSON") from None
        if isinstance(event, dict):
            yield event
