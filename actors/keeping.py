"""Keeping what messages carry: content that a platform won't give again is a blob before the message is accepted."""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from seriatim.actors.calling import on_thread
from seriatim.media import Media
from seriatim.model import MessageEvent
from seriatim.storage.contract import Store


async def with_blobs(event: MessageEvent, store: Store, now_ms: int) -> MessageEvent:
    """The event with the content of its media kept in the store, off the loop. Raises StoreError."""
    kept: list[Media] = []
    for media in event.media:
        if media.data is not None:
            blob = await asyncio.wrap_future(on_thread("seriatim-blob", store.put_blob, media.data, now_ms))
            kept.append(media.kept_as(blob))
        else:
            kept.append(media)
    return replace(event, media=kept)


async def content_of(media: Media, store: Store) -> bytes:
    """The kept content of an attachment, read off the loop. Raises BlobNotFoundError, CorruptionError."""

    def read() -> bytes:
        reader = store.reader()
        try:
            return reader.blob(media.blob or "")
        finally:
            reader.close()

    content: bytes = await asyncio.wrap_future(on_thread("seriatim-blob", read))
    return content
