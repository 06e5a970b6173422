"""What becomes of an adapter's message before any key is built of it.

An adapter may have, besides its port, ``chat_id_key(chat_id) -> str``: one form for a chat that its platform calls by
several (letter case, a prefix that comes and goes). It must be an id that the adapter can send to.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from seriatim.adapters.base import Adapter
from seriatim.aliases import Alias
from seriatim.model import MessageEvent


class Normaliser:
    """One adapter's. ``idle``: there is nothing to do for this adapter's messages."""

    def __init__(self, adapter: Adapter) -> None:
        self._chat_id_key: Callable[[str], str] | None = getattr(adapter, "chat_id_key", None)
        self._threads = adapter.capabilities.threads
        self._lasting = adapter.capabilities.lasting_user_ids
        self.idle = self._chat_id_key is None and self._threads and not self._lasting

    def event(self, event: MessageEvent) -> MessageEvent:
        """The message with its chat's one id, and told whether its thread is one."""
        source = event.source
        changes: dict[str, Any] = {}
        if self._chat_id_key is not None and (chat := self._chat_id_key(source.chat_id)) != source.chat_id:
            changes["chat_id"] = chat
        if not self._threads and source.thread_id is not None and source.is_forum is None:
            changes["is_forum"] = False
        return replace(event, source=source.changed(**changes)) if changes else event

    def alias(self, event: MessageEvent) -> Alias | None:
        """What the message tells about its author's ids, on a platform where an id never passes to somebody else."""
        source = event.source
        if not self._lasting or not source.user_id or not source.user_id_alt:
            return None
        scope = source.guild_id or ""
        return Alias(source.platform.name, source.user_id, source.user_id_alt, "user", event.account, scope)
