"""Pseudonyms: what a model or a log may see instead of a platform's ids (gateway seed §9).

The seed's forms, by HMAC-SHA-256 under a key of the installation: without the key a phone number can't be found by
trying all of them. The same id has the same pseudonym for as long as the key stands.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Final

from attrs import field, frozen

from seriatim.errors import InvalidInputError

KEY_BYTES_MIN: Final = 16
_HEX: Final = 12


@frozen
class Pseudonyms:
    """Makes them. ``key``: secret of the installation, at least 16 bytes. Raises InvalidInputError."""

    key: bytes = field(repr=False)

    def __attrs_post_init__(self) -> None:
        if len(self.key) < KEY_BYTES_MIN:
            raise InvalidInputError("key", f"at least {KEY_BYTES_MIN} bytes are needed")

    def user(self, user_id: str) -> str:
        """``user_<12hex>``."""
        return f"user_{self._digest('user', user_id)}"

    def chat(self, chat_id: str, platform: str = "") -> str:
        """``<platform>:<12hex>``, or the digits alone where the platform is said elsewhere. The whole id is hashed:
        a part before a colon (a federated name, say) would tell who it is.
        """
        digest = self._digest("chat", chat_id)
        return f"{platform}:{digest}" if platform else digest

    def _digest(self, kind: str, text: str) -> str:
        # The kind keeps a chat's pseudonym from telling that it is this user's.
        return hmac.new(self.key, f"{kind}\0{text}".encode(), hashlib.sha256).hexdigest()[:_HEX]
