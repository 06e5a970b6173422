"""Session keys: which conversation lane a message belongs to (gateway seed §§4-5).

Two forms. ``text`` is the seed's, byte for byte for every row of its tables, with ``:`` and ``%`` escaped
inside parts. ``canonical`` names each part in its place, so that no two different identities share it,
and is what lanes are stored under.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Protocol

from attrs import frozen

from seriatim.errors import InvalidInputError
from seriatim.identity import canonical_whatsapp_identifier
from seriatim.limits import KEYS_REMEMBERED_MAX
from seriatim.model import SessionSource

_TEXT_HEAD = "agent:main"
_CANONICAL_HEAD = "v1"


class KeySettings(Protocol):
    """The two settings that decide who shares a lane; GatewayConfig has them."""

    @property
    def group_sessions_per_user(self) -> bool:
        """Groups and channels: one lane per participant."""
        ...

    @property
    def thread_sessions_per_user(self) -> bool:
        """Threads: one lane per participant."""
        ...


def is_shared_multi_user_session(
    source: SessionSource, *, group_sessions_per_user: bool, thread_sessions_per_user: bool
) -> bool:
    """Whether several people share the lane (gateway seed §5)."""
    if source.chat_type == "dm":
        return False
    if source.thread:
        return not thread_sessions_per_user
    return not group_sessions_per_user


def build_session_key(source: SessionSource, group_sessions_per_user: bool, thread_sessions_per_user: bool) -> str:
    """The seed's text form of the lane's key (gateway seed §4). Both settings are needed, on purpose."""
    return _key(source, "", group_sessions_per_user, thread_sessions_per_user).text


def parse_session_key(text: str) -> SessionKey:
    """The key that a canonical form names.

    The seed's text form is ambiguous by design and is looked up among known lanes instead. Raises
    InvalidInputError for anything else.
    """
    platform, chat_type, scope, account, chat_id, thread_id, participant = key_parts(text)
    shared = chat_type != "dm" and not participant
    key = SessionKey(platform, chat_type, scope, account, chat_id, thread_id, participant, shared)
    if key.canonical != text:
        raise InvalidInputError("session_key", "not a canonical lane key")
    return key


def is_text_form(key: object) -> bool:
    """Whether ``key`` can only be a key in the seed's text form; the canonical form begins otherwise."""
    return isinstance(key, str) and key.startswith(_TEXT_HEAD)


def key_parts(text: str) -> tuple[str, str, str, str, str, str, str]:
    """The parts that a canonical form is made of: platform, chat type, scope, account, chat, thread, participant.

    Raises InvalidInputError for what isn't one.
    """
    if not isinstance(text, str):
        raise InvalidInputError("session_key", f"text is needed, not {type(text).__name__}")
    head, *parts = text.split(":")
    if head != _CANONICAL_HEAD or len(parts) != 7:
        raise InvalidInputError("session_key", "not a canonical lane key (Receipt.session_key, SessionKey.canonical)")
    platform, chat_type, scope, account, chat_id, thread_id, participant = map(_unescape, parts)
    return platform, chat_type, scope, account, chat_id, thread_id, participant


def key_text(*parts: str) -> str:
    """The canonical form of such parts."""
    return _canonical(*parts)


@frozen
class SessionKey:
    """The structured identity of a lane. Empty parts are "". ``shared``: several people write in it."""

    platform: str
    chat_type: str
    scope: str
    account: str
    chat_id: str
    thread_id: str
    participant: str
    shared: bool

    @classmethod
    def from_source(cls, source: SessionSource, config: KeySettings, account: str = "") -> SessionKey:
        """The lane of a message from ``source`` that the bot account ``account`` received."""
        return _key(source, account, config.group_sessions_per_user, config.thread_sessions_per_user)

    @property
    def text(self) -> str:
        """The seed's form: empty parts left out, scope and account not shown."""
        if self.chat_type == "dm":
            tail: tuple[str, ...] = (self.chat_id or self.participant, self.thread_id)
        else:
            tail = (self.chat_id, self.thread_id, self.participant)
        parts = (self.platform, self.chat_type, *(part for part in tail if part))
        return ":".join((_TEXT_HEAD, *map(escape_part, parts)))

    @property
    def canonical(self) -> str:
        """The injective form; ``parse_session_key`` is its inverse."""
        return _canonical(
            self.platform,
            self.chat_type,
            self.scope,
            self.account,
            self.chat_id,
            self.thread_id,
            self.participant,
        )


def canonical_key(source: SessionSource, config: KeySettings, account: str = "") -> str:
    """``SessionKey.from_source(...).canonical``, remembered: every message asks for it."""
    group, thread = config.group_sessions_per_user, config.thread_sessions_per_user
    return escaped(_CANONICAL_HEAD, *_parts(source, account, group, thread))


def _parts(
    source: SessionSource, account: str, group_per_user: bool, thread_per_user: bool
) -> tuple[str, str, str, str, str, str, str]:
    """Platform, chat type, scope, account, chat, thread and participant: what tells lanes apart."""
    chat_type, chat_id = source.chat_type, source.chat_id
    if chat_type == "dm":
        alone = not chat_id
    else:
        alone = not is_shared_multi_user_session(
            source, group_sessions_per_user=group_per_user, thread_sessions_per_user=thread_per_user
        )
    participant = (source.user_id_alt or source.user_id or "") if alone else ""
    scope, thread_id, platform = source.guild_id or "", source.thread or "", source.platform.name
    if platform == "whatsapp":
        chat_id, participant = canonical_whatsapp_identifier(chat_id), canonical_whatsapp_identifier(participant)
    elif platform == "signal" and chat_type != "dm":
        chat_id = source.chat_id_alt or chat_id
    return platform, chat_type, scope, account, chat_id, thread_id, participant


def _canonical(*parts: str) -> str:
    return escaped(_CANONICAL_HEAD, *parts)


@lru_cache(maxsize=2 * KEYS_REMEMBERED_MAX)
def escaped(*parts: str) -> str:
    """``parts`` with colons between them, and none inside; remembered, since every message names its place twice."""
    return ":".join(map(escape_part, parts))


def _key(source: SessionSource, account: str, group_per_user: bool, thread_per_user: bool) -> SessionKey:
    parts = _parts(source, account, group_per_user, thread_per_user)
    return SessionKey(*parts, shared=source.chat_type != "dm" and not parts[-1])


def escape_part(part: str) -> str:
    """``part`` without bare colons, so that it can stand between some."""
    if ":" not in part and "%" not in part:
        return part
    return part.replace("%", "%25").replace(":", "%3A")


def _unescape(part: str) -> str:
    return part.replace("%3A", ":").replace("%25", "%")
