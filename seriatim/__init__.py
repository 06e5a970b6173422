"""Seriatim: the session runtime under chat bots and LLM-agent gateways.

One actor per conversation; turns run one after another in a lane and side by side across lanes; what was
accepted is never lost, and no reply is sent twice without saying so.
"""

from seriatim.actors.live_turn import Turn
from seriatim.actors.receipts import End, Receipt
from seriatim.actors.sessions import SessionStore
from seriatim.config import GatewayConfig
from seriatim.context import (
    HomeChannel,
    Redaction,
    SessionContext,
    build_session_context,
    build_session_context_prompt,
)
from seriatim.entry import SessionEntry
from seriatim.gateway import Gateway
from seriatim.identity import canonical_whatsapp_identifier
from seriatim.keys import SessionKey, build_session_key, is_shared_multi_user_session, parse_session_key
from seriatim.media import Media
from seriatim.model import MessageEvent, Platform, SessionSource
from seriatim.privacy import Pseudonyms
from seriatim.turn import Reply, Silence, Usage

__all__ = [
    "End",
    "Gateway",
    "GatewayConfig",
    "HomeChannel",
    "Media",
    "MessageEvent",
    "Platform",
    "Pseudonyms",
    "Receipt",
    "Redaction",
    "Reply",
    "SessionContext",
    "SessionEntry",
    "SessionKey",
    "SessionSource",
    "SessionStore",
    "Silence",
    "Turn",
    "Usage",
    "build_session_context",
    "build_session_context_prompt",
    "build_session_key",
    "canonical_whatsapp_identifier",
    "is_shared_multi_user_session",
    "parse_session_key",
]
