"""What an agent sees and gives back: the turn's data, the reply, silence.

The live object handed to an agent (`Turn`) is built by the turn runner around `TurnJob`; what travels is
plain data.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final, Literal

from attrs import Factory, frozen
from msgspec import Struct

from seriatim.limits import SPEAKER_CHARS_MAX
from seriatim.media import Media
from seriatim.model import SessionSource

_BRACKETS: Final = str.maketrans("[]", "()")
_SPEAKER_LINE: Final = re.compile(r"(?<=[\n\r\v\f\x1c-\x1e\x85\u2028\u2029])\[[^\[\]\n]+\] ")
"""The beginning of a later line that reads like a speaker's: whatever a label can be, and wherever a reader may see a
line break."""

Role = Literal["user", "assistant", "tool"]
Boundary = Literal["none", "fresh", "suspended"]
EndReason = Literal["completed", "failed", "aborted", "timeout", "interrupted"]


@frozen
class Message:
    """One message of a conversation's history, oldest first.

    ``text``: as authored, without prefixes. ``time``: epoch ms. ``turn``: the turn's number. ``author``:
    display name of a user message's author. ``data``: the whole event data, for agents with tools.
    """

    role: Role
    text: str
    time: int
    turn: int
    author: str | None = None
    data: dict[str, Any] = Factory(dict)


class Claim(Struct, frozen=True):
    """One accepted message that the turn answers: its inbox id, text and origin.

    An album is one: ``items`` are the ids of its messages, ``media`` all that they carry, ``text`` their captions.
    ``kind`` "note": no message to answer, but word of one that was changed or taken back.
    """

    id: str
    text: str
    source: SessionSource
    message_id: str | None
    time: int
    kind: Literal["human", "queue", "wake", "note"]
    media: tuple[Media, ...] = ()
    items: tuple[str, ...] = ()


class TurnJob(Struct, frozen=True):
    """Everything a runner needs to run one turn, as plain data.

    ``lane``: canonical key; ``session``: session id; ``number``: the turn's number in its session, from 1.
    ``generation`` fences: results of another generation of the lane are late. ``attempt``: 1 for the first
    run of these claims, more after interruptions; ``resumed_from``: number of the turn that was interrupted.
    ``idempotency_key``: the same for every attempt at these claims. ``history``: messages before this turn.
    ``shared``: several people write here, so texts carry sender prefixes. ``deadline``: epoch ms at which
    a turn that is silent from its start is ended; every sign of life puts it off. None for none.
    """

    lane: str
    session: str
    number: int
    generation: int
    attempt: int
    claims: tuple[Claim, ...]
    history: Sequence[Message]
    boundary: Boundary
    had_activity: bool
    resumed_from: int | None
    idempotency_key: str
    shared: bool
    deadline: int | None = None


@frozen
class Usage:
    """Token counts of one reply; unknown ones are 0."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    total: int = 0
    estimated_cost_usd: float = 0.0
    cost_status: str = "unknown"
    last_prompt_tokens: int = 0


@frozen
class Reply:
    """An agent's answer. ``finish``: why the model stopped, as it said ("stop", "length", …)."""

    text: str
    usage: Usage | None = None
    finish: str | None = None


@frozen
class Silence:
    """The agent decided to say nothing; ``reason`` is stored with the turn's end."""

    reason: str = "silent"


@frozen
class ToolCall:
    """One tool call that a step asks for. ``effects``: "read" tools need not wait for their commit."""

    id: str
    name: str
    args: dict[str, Any]
    effects: Literal["none", "read", "write"] = "write"


@frozen
class StepOffered:
    """From the runner: the model's message of a step with its calls (T2).

    ``calls`` start once this is durable (``TurnRunner.release``); read-only ones have started already.
    ``later``: asked for by the same message, but started one by one by ``ToolFinished.next``. A step is
    offered only after every call of the turn's step before it has been told as finished.
    """

    turn: int
    generation: int
    text: str
    calls: tuple[ToolCall, ...]
    later: tuple[ToolCall, ...] = ()


@frozen
class ToolFinished:
    """From the runner: one call's result (T3). ``error``: the tool raised; ``content`` says what.

    ``content`` is lossless JSON (``mended``: as text, or cut, since the result itself can't be kept). ``next``: calls
    of the step's ``later`` that start with this commit. The agent goes on once it is durable (``TurnRunner.proceed``).
    """

    turn: int
    generation: int
    call_id: str
    content: Any
    error: bool = False
    next: tuple[ToolCall, ...] = ()
    mended: bool = False


@frozen
class TurnDelta:
    """From the runner: a piece of the reply while it is being made. Never stored."""

    turn: int
    generation: int
    text: str


class TurnEnded(Struct, frozen=True):
    """From the runner: the turn is over; exactly one per start, and the last word of that turn.

    ``text`` None with reason "completed" means silence. ``detail``: the silence's reason, or the error's
    class and text for "failed", or why it was cancelled for "aborted" (then ``text`` is what the agent
    answered all the same, too late). "interrupted": the runner went away, by no fault of the turn; it
    stays open for recovery. Calls without a ``ToolFinished`` by now have an unknown outcome.
    """

    turn: int
    generation: int
    reason: EndReason
    text: str | None
    usage: Usage | None = None
    finish: str | None = None
    detail: str | None = None


@frozen
class Steer:
    """Wish for the messages that came in meanwhile; answered with them, they are the turn's from then on."""


@frozen
class Approve:
    """Wish for a person's leave; answered with True or False, once that is durable."""

    question: str


@frozen
class Delegate:
    """Wish to start background work of that name; answered with its id once that is durable, None if it may not."""

    name: str


Wish = Steer | Approve | Delegate


@frozen
class TurnAsks:
    """From the runner: the agent wants something of its lane, and waits for ``TurnRunner.answered``.

    ``token`` names the wish in its turn. A question asked again by a later attempt at the turn has the same token.
    """

    turn: int
    generation: int
    token: str
    wish: Wish


DelegationStatus = Literal["completed", "failed", "interrupted"]


@frozen
class DelegationEnded:
    """From the runner: background work is over. ``output``: what it gave, or had given when it broke off."""

    id: str
    status: DelegationStatus
    output: str


Told = StepOffered | ToolFinished | TurnDelta | TurnEnded | TurnAsks | DelegationEnded


def speaker_label(source: SessionSource) -> str:
    """Who wrote, for a sender prefix: one short inert line that can't imitate a prefix of its own."""
    name = source.user_name or source.user_id_alt or source.user_id or "unknown"
    return inert_label(name)


def inert_label(name: str, chars_max: int = SPEAKER_CHARS_MAX) -> str:
    """``name`` without line breaks, control characters and square brackets, cut to ``chars_max``."""
    swapped = name.translate(_BRACKETS)
    plain = "".join(c if c.isprintable() else " " for c in swapped)
    label = " ".join(plain.split())
    if len(label) > chars_max:
        label = label[: chars_max - 1] + "…"
    return label or "unknown"


def with_speaker(label: str, text: str) -> str:
    """A message as the model reads it in a shared conversation: ``[label] text``.

    A later line of the text that itself has the form of such a beginning stands one space to the right, so that nobody
    can write another's line. All else keeps its bytes, and what comes out depends on the text alone: a message reads
    the same at each turn.
    """
    if "[" in text:
        text = _SPEAKER_LINE.sub(r" \g<0>", text)
    return f"[{label}] {text}"


def words_of(text: str, media: Sequence[Media]) -> str:
    """A message where only text goes: its own, or in brackets what it carries, where it says nothing itself."""
    if not media or text.strip():
        return text
    named = (f"{item.kind}: {inert_label(item.name)}" if item.name else item.kind for item in media)
    return " ".join(f"[{label}]" for label in named)
