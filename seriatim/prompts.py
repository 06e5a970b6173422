"""What an agent's input says about places and people: one gateway's settings, applied to a turn. Pure.

The block of the system prompt depends on nothing but the source's lasting facts and the settings, so a session's prompt
keeps its bytes, and a model's prompt cache holds. Whatever changes from turn to turn rides on the turn's own text.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Sequence
from typing import Final

from attrs import Factory, field, frozen

from seriatim.context import (
    PII_SAFE,
    HomeChannel,
    Redaction,
    build_session_context,
    build_session_context_prompt,
)
from seriatim.model import Platform, SessionSource
from seriatim.privacy import Pseudonyms
from seriatim.turn import Claim, Message, inert_label, speaker_label, with_speaker, words_of

RAW_IDS: Final = frozenset({"discord"})
"""Platforms on which an agent needs the id of the message that it answers, whatever the adapter says."""
_HANDLE: Final = 4


@frozen
class Prompts:
    """``connected``: platforms that have an adapter. ``secret``: of the installation. ``redact``: hide ids of platforms
    in ``safe``. ``wants_message_id``: platforms whose agents need the triggering message's id.
    """

    group_sessions_per_user: bool = True
    thread_sessions_per_user: bool = False
    connected: tuple[Platform, ...] = ()
    home_channels: tuple[HomeChannel, ...] = ()
    redact: bool = False
    secret: bytes = field(default=b"", repr=False)
    safe: frozenset[str] = PII_SAFE
    wants_message_id: frozenset[str] = Factory(lambda: RAW_IDS)

    def context(self, source: SessionSource) -> str:
        """The block for the system prompt."""
        redaction = Redaction(Pseudonyms(self._secret), self.safe) if self.redact else None
        return build_session_context_prompt(build_session_context(source, self), redaction)

    def note(self, source: SessionSource, message_id: str | None) -> str:
        """The line that tells a model which message it answers; "" where nobody needs it. Never stored."""
        if message_id is None or source.platform.name not in self.wants_message_id:
            return ""
        return f"\n[Triggering message id: {inert_label(message_id)}]"

    def handle(self, lane: str, speaker: str) -> str:
        """A short name for a person of a lane: the same at each message, another in each lane, and no id of theirs."""
        told = f"{lane}\0{speaker}".encode("utf-8", "surrogatepass")
        return hmac.new(self._secret, told, hashlib.sha256).hexdigest()[:_HANDLE]

    @property
    def _secret(self) -> bytes:
        return self.secret or b"no installation"


@frozen
class Speakers:
    """Who is who in one turn of a shared session: people of the same name get their handles beside it.

    ``doubles``: labels that more than one person of the conversation bears.
    """

    prompts: Prompts
    lane: str
    doubles: frozenset[str]

    @classmethod
    def of(cls, prompts: Prompts, lane: str, claims: Sequence[Claim], history: Iterable[Message]) -> Speakers:
        """From all that the turn shows."""
        bearers: dict[str, set[str]] = {}
        for claim in claims:
            bearers.setdefault(speaker_label(claim.source), set()).add(id_of(claim.source))
        for message in history:
            if message.role == "user" and (speaker := message.data.get("speaker")) is not None:
                bearers.setdefault(inert_label(message.author or "unknown"), set()).add(speaker)
        return cls(prompts, lane, frozenset(label for label, ids in bearers.items() if len(ids) > 1))

    def label(self, label: str, speaker: str) -> str:
        """``Ann``, or ``Ann #3f2a`` where there are two."""
        return f"{label} #{self.prompts.handle(self.lane, speaker)}" if speaker and label in self.doubles else label

    def said(self, claim: Claim) -> str:
        """A claim's text as the model reads it; nobody said a wake's."""
        if claim.kind == "wake":
            return claim.text
        return with_speaker(
            self.label(speaker_label(claim.source), id_of(claim.source)), words_of(claim.text, claim.media)
        )

    def told(self, message: Message) -> str:
        """A user message of the history as the model reads it."""
        label = self.label(inert_label(message.author or "unknown"), message.data.get("speaker", ""))
        return with_speaker(label, message.text)


def id_of(source: SessionSource) -> str:
    """The stable id of who wrote."""
    return source.user_id_alt or source.user_id or ""
