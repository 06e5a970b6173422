"""The adapter port: what a chat platform gives to, and takes from, the runtime.

An adapter only normalises and accepts. Ordering, deduplication, splitting, retries and the ledger of owed
replies belong to the runtime. Everything here runs on the gateway's event loop.
"""

from __future__ import annotations

from collections.abc import Awaitable
from contextlib import AbstractContextManager
from typing import Literal, Protocol

from attrs import frozen

from seriatim.model import MessageEvent, Outbound, Sent, SessionSource, Target


@frozen
class Capabilities:
    """What a platform can do; fixed for the life of an adapter.

    ``replay``: how the platform gives a message again that was not acknowledged: "ack" (until acked),
    "cursor" (from a position the adapter stores after ``accept``) or "none" (what arrives while the bot is
    away is gone). ``idempotent_send``: a repeated idempotency key does not post twice. ``pii_safe``: raw
    ids are not needed in the prompt. ``text_max`` counted in ``text_unit``; 0 means no limit. ``multiline``:
    one message may hold line breaks. ``threads`` False: a ``thread_id`` only says under which message to answer, except
    where a source says that its chat is a forum; all of a chat is one conversation. ``lasting_user_ids``: an id never
    passes to another person, so that the ids of one message (``user_id``, ``user_id_alt``) are learnt to be the same.
    ``edit``: the adapter has ``edit`` (see ``Edits``), so replies can be shown while they are made. ``lookup``: it has
    ``lookup`` (see ``Lookup``), which says whether a send of unknown outcome arrived. ``typing``: its ``typing`` shows
    something.
    """

    replay: Literal["ack", "cursor", "none"] = "none"
    idempotent_send: bool = False
    pii_safe: bool = False
    text_max: int = 0
    text_unit: Literal["bytes", "codepoints", "utf16"] = "codepoints"
    multiline: bool = True
    threads: bool = True
    lasting_user_ids: bool = False
    edit: bool = False
    lookup: bool = False
    typing: bool = False


class AcceptReceipt(Protocol):
    """What an adapter needs of a receipt: the outcome, known once ``accept`` returned."""

    @property
    def outcome(self) -> str:
        """accepted, merged, duplicate (all three may be acked) or refused (must not be)."""
        ...

    @property
    def reason(self) -> str | None:
        """Why it was refused."""
        ...


class Inbox(Protocol):
    """The runtime's door, handed to ``Adapter.run``."""

    def accept(self, event: MessageEvent) -> Awaitable[AcceptReceipt]:
        """Return once the message is durable (or refused, or known already). Raises InvalidInputError.

        An edit (``edit_of``) bears in ``source`` the ids of who edits: its words count only where these are the
        author's, and where the platform tells none they are taken for the author's. A deletion is taken whoever asks
        for it (moderators may), so hand in none that the platform itself doesn't carry out.
        """
        ...

    def expecting(self, source: SessionSource, album_id: str) -> AbstractContextManager[None]:
        """While the block lasts, an item of this album is being downloaded; accept it inside the block.

        Its turn waits for it, ten seconds at most.
        """
        ...

    def learn_alias(
        self, old: str, new: str, *, kind: Literal["user", "chat"] = "user", scope: str = ""
    ) -> Awaitable[None]:
        """Tell that two ids of the platform mean the same person, or that a chat has a new id; returns once durable.

        The lanes that this makes one are merged. Raises InvalidInputError.
        """
        ...


class Adapter(Protocol):
    """One account on one platform."""

    @property
    def platform(self) -> str:
        """The platform's name as in SessionSource."""
        ...

    @property
    def account(self) -> str:
        """Which account, unique per platform in a gateway; MessageEvent.account of what it accepts."""
        ...

    @property
    def capabilities(self) -> Capabilities:
        """What the platform can do."""
        ...

    @property
    def connected(self) -> bool:
        """Whether a send has a chance now; while not, nothing is tried and owed replies wait."""
        ...

    @property
    def command_prefix(self) -> str | None:
        """What a command begins with here; None: as the configuration says."""
        ...

    async def run(self, inbox: Inbox) -> None:
        """Connect, receive and accept until cancelled; reconnect by itself with back-off.

        Acks a message, or moves its cursor, only after ``accept`` returned. Returning means that the
        source has ended (end of input); raising means that it can't go on.
        """
        ...

    def text_max(self, target: Target) -> int:
        """How much text, in ``capabilities.text_unit``, one message to ``target`` can hold; 0: no limit."""
        ...

    async def send(self, out: Outbound) -> Sent:
        """Send one part and return when the platform has it.

        Raises SendError: ``permanent``, ``ambiguous`` (it may have arrived) or plain (surely not sent), with a
        ``code`` where it is known what it was about, and what the platform asked to wait.
        While disconnected, raises a plain SendError at once; the runtime retries.
        """
        ...

    async def typing(self, target: Target) -> None:
        """Show that an answer is being made, where the platform can. Never raises."""
        ...


class Edits(Protocol):
    """What an adapter has besides, where its capabilities say ``edit``."""

    async def edit(self, out: Outbound) -> Sent | None:
        """Replace the text of the message ``out.edits`` by ``out.text``; the same edit twice is the same as once.

        Raises SendError as ``send`` does; ``permanent`` when there is no such message any more.
        """
        ...


class Lookup(Protocol):
    """What an adapter has besides, where its capabilities say ``lookup``."""

    async def lookup(self, out: Outbound) -> Sent | None:
        """Whether an earlier attempt at this part (the same ``idempotency_key``) arrived; None when surely not.

        Raises SendError when the platform can't say now; the part is then tried again later.
        """
        ...


class Bounces(Protocol):
    """What the runtime's inbox has besides, for platforms that accept a message and report a failure later."""

    def bounced(self, lane: str, delivery: str, part: int, reason: str) -> None:
        """The part (named as its ``Outbound`` did) was taken and can't be delivered after all.

        Told once for a reply, however often it is reported: nothing is sent again by itself, and the lane's next turn
        says so. On the gateway's loop; dropped while the gateway can't take it.
        """
        ...


class KnowsItself(Protocol):
    """What an adapter may have besides: the account's own id, by which its own messages are recognised.

    What the platform shows back under that id never starts a turn, whatever the adapter hands in.
    """

    @property
    def own_id(self) -> str | None:
        """The ``user_id`` (or ``user_id_alt``) of the account there; None while it isn't known."""
        ...
