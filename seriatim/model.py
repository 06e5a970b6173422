"""The values a host hands in and gets back: where a message came from, the message, its receipt's facts.

Field meanings follow the gateway seed (§1, "SessionSource"). All are plain frozen data.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter
from typing import Any, Literal

import attrs
from attrs import field, frozen
from msgspec import Struct
from msgspec.structs import force_setattr

from seriatim.errors import InvalidInputError
from seriatim.events import SAFE_INTEGER_MAX, mend_text
from seriatim.limits import ID_CHARS_MAX, MEDIA_MAX, TEXT_BYTES_MAX
from seriatim.media import Media


def _platform_name(name: object) -> str:
    return str(name).strip().lower()


@frozen(order=True)
class Platform:
    """A messaging platform by its lower-case name ("telegram", "irc", "local", …).

    Two platforms of one name are equal. Raises InvalidInputError for an empty or oversized name.
    """

    name: str = field(converter=_platform_name)

    def __attrs_post_init__(self) -> None:
        if not self.name or len(self.name) > ID_CHARS_MAX or not self.name.isprintable():
            raise InvalidInputError("platform", "a short printable name is needed")

    def __str__(self) -> str:
        return self.name


_OPTIONAL_TEXTS = (
    "chat_name",
    "user_id",
    "user_name",
    "thread_id",
    "chat_topic",
    "user_id_alt",
    "chat_id_alt",
    "guild_id",
    "parent_chat_id",
    "message_id",
)


def _platform(platform: Platform | str) -> Platform:
    return platform if isinstance(platform, Platform) else Platform(platform)


def _id_text(chat_id: object) -> str:
    return "" if chat_id is None else str(chat_id)


_NAMES = ("chat_name", "user_name", "chat_topic")

_optional_texts = attrgetter(*_OPTIONAL_TEXTS)


@frozen
class SessionSource:
    """Where a message came from (gateway seed §1); used for routing, isolation and context.

    ``platform`` and ``chat_id`` as the adapter names them. ``chat_type``: "dm", "group", "channel" or
    "thread" (others are treated like groups). ``user_id_alt``: a stable id of the author where ``user_id``
    may change. Names and topics are for the eyes only: what JSON can't carry in them is replaced, and endless ones
    are cut (``mended`` says so); ids that can't be kept raise InvalidInputError. ``guild_id``: the scope (server,
    workspace) that keeps equal ids apart. ``is_bot``: the author is a bot. ``role_authorized``: a platform role let
    the author in. ``is_forum`` False: the chat has no threads of its own, so ``thread_id`` only says under which
    message to answer and tells no lanes apart; None counts as True unless the adapter's capabilities say otherwise.
    """

    platform: Platform = field(converter=_platform)
    chat_id: str = field(default="", converter=_id_text)
    chat_name: str | None = None
    chat_type: str = "dm"
    user_id: str | None = None
    user_name: str | None = None
    thread_id: str | None = None
    chat_topic: str | None = None
    user_id_alt: str | None = None
    chat_id_alt: str | None = None
    is_bot: bool = False
    guild_id: str | None = None
    parent_chat_id: str | None = None
    message_id: str | None = None
    role_authorized: bool = False
    is_forum: bool | None = None
    mended: bool = field(default=False, init=False, eq=False, repr=False)

    def __attrs_post_init__(self) -> None:
        for name in _NAMES:
            value = getattr(self, name)
            if value is not None and _needs_mending(value):
                object.__setattr__(self, name, mend_text(value[:ID_CHARS_MAX].replace("\0", "\ufffd"))[0])
                object.__setattr__(self, "mended", True)
        _check_id("chat_id", self.chat_id)
        _check_id("chat_type", self.chat_type)
        if not self.chat_type:
            raise InvalidInputError("chat_type", "a short text is needed")
        for name, value in zip(_OPTIONAL_TEXTS, _optional_texts(self), strict=True):
            if value is not None:
                _check_id(name, value)

    def changed(self, **changes: Any) -> SessionSource:
        """The same with other fields. Raises as the class."""
        twin = attrs.evolve(self, **changes)
        if self.mended:
            object.__setattr__(twin, "mended", True)
        return twin

    @property
    def thread(self) -> str | None:
        """The thread that is a conversation of its own, if the message stands in one."""
        return None if self.is_forum is False else self.thread_id

    @property
    def description(self) -> str:
        """A line for people: "DM with Alice", "group: My Group, thread: 12345"."""
        if self.platform.name == "local":
            return "CLI terminal"
        if self.chat_type == "dm":
            text = f"DM with {self.user_name or self.user_id or 'user'}"
        elif self.chat_type in ("group", "channel"):
            text = f"{self.chat_type}: {self.chat_name or self.chat_id}"
        else:
            text = self.chat_name or self.chat_id
        return f"{text}, thread: {self.thread}" if self.thread else text

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data; fields at their default are left out, nothing else is lost."""
        # One by one, since each message pays for it: a loop over the names takes four times as long.
        data: dict[str, Any] = {"platform": self.platform.name, "chat_id": self.chat_id, "chat_type": self.chat_type}
        if self.chat_name is not None:
            data["chat_name"] = self.chat_name
        if self.user_id is not None:
            data["user_id"] = self.user_id
        if self.user_name is not None:
            data["user_name"] = self.user_name
        if self.thread_id is not None:
            data["thread_id"] = self.thread_id
        if self.chat_topic is not None:
            data["chat_topic"] = self.chat_topic
        if self.user_id_alt is not None:
            data["user_id_alt"] = self.user_id_alt
        if self.chat_id_alt is not None:
            data["chat_id_alt"] = self.chat_id_alt
        if self.guild_id is not None:
            data["guild_id"] = self.guild_id
        if self.parent_chat_id is not None:
            data["parent_chat_id"] = self.parent_chat_id
        if self.message_id is not None:
            data["message_id"] = self.message_id
        if self.is_bot:
            data["is_bot"] = True
        if self.role_authorized:
            data["role_authorized"] = True
        if self.is_forum is not None:
            data["is_forum"] = self.is_forum
        return data

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> SessionSource:
        """The inverse of ``to_dict``; unknown keys are left aside, malformed ones raise InvalidInputError."""
        if "platform" not in data:
            raise InvalidInputError("source", "a platform is needed")
        known = {name: data[name] for name in _SOURCE_FIELDS if name in data}
        return cls(**known)


_SOURCE_FIELDS = (*_OPTIONAL_TEXTS, "platform", "chat_id", "chat_type", "is_bot", "role_authorized", "is_forum")


def _needs_mending(name: object) -> bool:
    if type(name) is not str:
        return False  # for _check_id to refuse
    return len(name) > ID_CHARS_MAX or "\0" in name or (not name.isascii() and mend_text(name)[1])


def _check_id(name: str, value: Any) -> None:
    if type(value) is not str:
        raise InvalidInputError(name, f"text is needed, not {type(value).__name__}")
    if len(value) > ID_CHARS_MAX:
        raise InvalidInputError(name, f"longer than {ID_CHARS_MAX} characters")
    if "\0" in value:
        raise InvalidInputError(name, "holds a NUL")
    if not value.isascii() and mend_text(value)[1]:
        raise InvalidInputError(name, "holds a lone surrogate")


def _media(media: Any) -> tuple[Media, ...]:
    if not isinstance(media, Iterable):
        raise InvalidInputError("media", f"a sequence of Media is needed, not {type(media).__name__}")
    return tuple(media)


class MessageEvent(Struct, frozen=True):
    """One inbound message, as an adapter or a host hands it in.

    ``account``: which of the host's bot accounts received it. ``message_id``: the platform's id of the
    message; with it, a redelivery is recognised for ever. ``received_at``: epoch ms at which the
    platform had it, kept with the message; None when it didn't say.
    ``internal``: made by the host itself (a wake), not by a person. ``wake_session_id``: the session that it is for;
    where the lane has left that one, it doesn't run. ``wake_kind``: what it is about, in a word of the host's.
    ``media``: what it carries besides its text, which may be empty then. ``album_id``: the platform's id of the album
    that it is an item of; its items share a turn and are one event to the agent. ``edit_of``: the platform's id of an
    earlier message that says this now, or, with ``deleted``, that was taken back; it never starts a command. New words
    count only where ``source`` has an id of who wrote that message, or none at all; a deletion is taken from the
    platform, whoever asked for it (moderators may). Lone surrogates in ``text`` are replaced and the stored event says
    so (``mended``).
    """

    text: str
    source: SessionSource
    account: str = ""
    message_id: str | None = None
    reply_to_id: str | None = None
    internal: bool = False
    received_at: int | None = None
    wake_session_id: str | None = None
    wake_kind: str | None = None
    media: tuple[Media, ...] = ()
    album_id: str | None = None
    edit_of: str | None = None
    deleted: bool = False

    def __post_init__(self) -> None:
        if type(self.text) is not str:
            raise InvalidInputError("text", f"text is needed, not {type(self.text).__name__}")
        # Four bytes a character at most: shorter text needs no encoding to be measured.
        if len(self.text) > TEXT_BYTES_MAX // 4 and len(self.text.encode("utf-8", "replace")) > TEXT_BYTES_MAX:
            raise InvalidInputError("text", f"larger than {TEXT_BYTES_MAX} bytes")
        if not isinstance(self.source, SessionSource):
            raise InvalidInputError("source", "a SessionSource is needed")
        account, message_id = self.account, self.message_id
        if not (
            type(account) is str
            and type(message_id) is str
            and len(ids := account + message_id) <= ID_CHARS_MAX
            and ids.isascii()
            and "\0" not in ids
        ):  # seldom: nearly all are short and plain, both in one look
            _check_id("account", account)
            if message_id is not None:
                _check_id("message_id", message_id)
        if self.reply_to_id is not None:
            _check_id("reply_to_id", self.reply_to_id)
        if type(self.media) is not tuple:
            force_setattr(self, "media", _media(self.media))
        if (
            self.media
            or self.deleted
            or self.album_id is not None
            or self.edit_of is not None
            or self.wake_session_id is not None
            or self.wake_kind is not None
        ):
            self._check_further()
        at = self.received_at
        if at is not None and (type(at) is not int or not 0 <= at <= SAFE_INTEGER_MAX):
            raise InvalidInputError("received_at", "epoch milliseconds are needed")

    def _check_further(self) -> None:
        if self.media and (len(self.media) > MEDIA_MAX or not all(isinstance(media, Media) for media in self.media)):
            raise InvalidInputError("media", f"at most {MEDIA_MAX} Media are needed")
        if self.album_id is not None:
            _check_id("album_id", self.album_id)
            if not self.album_id or self.internal:
                raise InvalidInputError("album_id", "a text is needed, and a person's message")
        if self.edit_of is not None:
            _check_id("edit_of", self.edit_of)
            if not self.edit_of or self.internal:
                raise InvalidInputError("edit_of", "a message's id is needed, and a person who changed it")
        elif self.deleted:
            raise InvalidInputError("deleted", "edit_of has to name the message")
        if self.wake_session_id is not None or self.wake_kind is not None:
            if not self.internal:
                raise InvalidInputError("wake_session_id", "only an internal event is a wake")
            _check_id("wake_session_id", self.wake_session_id or "")
            _check_id("wake_kind", self.wake_kind or "")


class Target(Struct, frozen=True, gc=False):
    """Where a reply goes; recorded when the message is accepted, never "the last sender".

    ``account`` names the adapter's account; the rest are the platform's own ids.
    """

    platform: str
    account: str
    chat_id: str
    chat_type: str = "dm"
    thread_id: str | None = None
    user_id: str | None = None
    reply_to_id: str | None = None

    def to_data(self) -> dict[str, Any]:
        """Plain JSON data without the empty fields."""
        data: dict[str, Any] = {"platform": self.platform, "account": self.account, "chat_id": self.chat_id}
        if self.chat_type != "dm":
            data["chat_type"] = self.chat_type
        if self.thread_id is not None:
            data["thread_id"] = self.thread_id
        if self.user_id is not None:
            data["user_id"] = self.user_id
        if self.reply_to_id is not None:
            data["reply_to_id"] = self.reply_to_id
        return data

    @classmethod
    def from_data(cls, data: dict[str, Any]) -> Target:
        """The inverse of ``to_data``."""
        return cls(
            data["platform"],
            data["account"],
            data["chat_id"],
            data.get("chat_type", "dm"),
            data.get("thread_id"),
            data.get("user_id"),
            data.get("reply_to_id"),
        )


class Outbound(Struct, frozen=True):
    """One part of one owed reply, ready to be sent.

    ``delivery`` and ``part`` (from 0, of ``parts``) name it in the ledger. ``idempotency_key`` is the same
    at each attempt. ``attempt`` counts from 1. ``look``: an earlier attempt may have arrived, so ask the platform
    first. ``edits``: the platform's id of a message that becomes this one, "" where it is a new one. ``lane``: the
    session key of the lane that owes it, for a failure that is reported later (``adapters.base.Bounces``).
    """

    delivery: str
    part: int
    parts: int
    text: str
    target: Target
    idempotency_key: str
    attempt: int
    look: bool = False
    edits: str = ""
    lane: str = ""


class Sent(Struct, frozen=True):
    """The platform confirmed the part; ``message_id`` is its id there, when it gives one."""

    message_id: str | None = None


AcceptOutcome = Literal["accepted", "duplicate", "merged", "refused"]
