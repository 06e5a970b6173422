"""Whose conversations one may take up again: titles and ids resolve inside this scope and nowhere else.

A lane's own, always. From a lane that is one person's alone also those of that person's other such lanes on the same
account: one cannot learn, by a title or an id, that anybody else's conversation exists. What was said in a direct
message stays out of rooms, where the answers would be read by everybody.
"""

from __future__ import annotations

from seriatim.errors import InvalidInputError
from seriatim.identity import canonical_whatsapp_identifier
from seriatim.keys import SessionKey, parse_session_key
from seriatim.model import SessionSource


def asker_of(source: SessionSource) -> str:
    """The stable id by which lanes know a person, "" without one."""
    participant = source.user_id_alt or source.user_id or ""
    return canonical_whatsapp_identifier(participant) if source.platform.name == "whatsapp" else participant


def in_scope(key: str, asker: str, other: str) -> bool:
    """Whether ``asker``, who writes in the lane ``key``, may take up conversations of the lane ``other``."""
    if key == other:
        return True
    try:
        here, there = parse_session_key(key), parse_session_key(other)
    except InvalidInputError:
        return False
    if here.shared or there.shared or _place(here) != _place(there):
        return False
    if here.chat_type == "dm":
        if there.chat_type == "dm":  # the topics of one chat
            return bool(here.chat_id) and here.chat_id == there.chat_id
        return bool(asker) and there.participant == asker
    return there.chat_type != "dm" and bool(asker) and here.participant == there.participant == asker


def prefix_of(key: str) -> str | None:
    """What the logs of all lanes in scope begin with; None where only the lane itself is."""
    try:
        here = parse_session_key(key)
    except InvalidInputError:
        return None
    if here.shared:
        return None
    head, platform, _ = key.split(":", 2)
    return f"lane:{head}:{platform}:"


def _place(key: SessionKey) -> tuple[str, str, str]:
    return key.platform, key.scope, key.account
