"""Notices: the one thing that may be said in a chat without a commit (law 2): that messages can't be served now.

Best effort, once in a while per chat. Loop thread only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from seriatim.actors.delivery import SendDone, Sender
from seriatim.clock import Clock
from seriatim.limits import NOTICE_MS, NOTICES_MAX
from seriatim.model import MessageEvent, Outbound, Target

REFUSED: Final = "Messages can't be taken right now, because their storage fails. Please try again later."
KEPT: Final = (
    "Your message is kept safely, but it can't be answered right now, because storage is unavailable. It will be "
    "answered as soon as that works again."
)


REFUSALS: Final = {
    "storage_unavailable": REFUSED,
    "queue_full": "Too much waits in this conversation already, so your message was not taken. Please try again later.",
    "notes_full": "Too many changes to earlier messages wait here already, so this one was not taken. "
    "Please say it in a message.",
    "lane_busy": "Too much is coming in at once, so your message was not taken. Please try again later.",
    "busy": "One thing after the other: please say that again when the answer to what came before is there.",
    "over_budget": "You have used what you may use here for now, so your message was not taken.",
}
"""What a chat is told by the reason of a refusal; others say nothing that a person could act on."""


class Notices:
    """Tells each chat at most once in ``NOTICE_MS``, whatever the notice."""

    def __init__(self, clock: Clock, fresh_id: Callable[[], str]) -> None:
        self._clock = clock
        self._fresh_id = fresh_id
        self._senders: dict[tuple[str, str], Sender] = {}
        self._told: dict[Target, float] = {}

    def add(self, platform: str, account: str, sender: Sender) -> None:
        """Chats of this account are told through ``sender``."""
        self._senders[platform, account] = sender

    def tell(self, event: MessageEvent, text: str) -> None:
        """Tell the chat that ``event`` came from, unless it was told lately or can't be reached now."""
        source = event.source
        sender = self._senders.get((source.platform.name, event.account))
        if sender is None or event.internal:
            return
        chat = Target(
            source.platform.name, event.account, source.chat_id, source.chat_type, source.thread_id, source.user_id
        )
        now = self._clock.monotonic_ms()
        last = self._told.get(chat)
        if (last is not None and now - last < NOTICE_MS) or not sender.channel(chat).up:
            return
        self._told.pop(chat, None)
        self._told[chat] = now
        if len(self._told) > NOTICES_MAX:
            del self._told[next(iter(self._told))]
        notice = self._fresh_id()
        sender.send(Outbound(notice, 0, 1, text, chat, notice, 1), _sent)


def _sent(done: SendDone) -> None:
    """Nothing hangs on it: the next message of the chat may bring the notice again, after a while."""
