"""Seriatim: the session runtime under chat bots and LLM-agent gateways.

One actor per conversation; turns run one after another in a lane and side by side across lanes; what was
accepted is never lost, and no reply is sent twice without saying so.
"""

from seriatim.actors.live_turn import Turn
from seriatim.actors.receipts import End, Receipt
from seriatim.config import GatewayConfig
from seriatim.gateway import Gateway
from seriatim.keys import SessionKey, build_session_key, is_shared_multi_user_session, parse_session_key
from seriatim.model import MessageEvent, Platform, SessionSource
from seriatim.turn import Reply, Silence

__all__ = [
    "End",
    "Gateway",
    "GatewayConfig",
    "MessageEvent",
    "Platform",
    "Receipt",
    "Reply",
    "SessionKey",
    "SessionSource",
    "Silence",
    "Turn",
    "build_session_key",
    "is_shared_multi_user_session",
    "parse_session_key",
]
