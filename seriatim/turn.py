"""What an agent sees and gives back: the turn's data, the reply, silence.

The live object handed to an agent (`Turn`) is built by the turn runner around `TurnJob`; what travels is
plain data.
"""

from __future__ import annotations

from typing import Any, Literal

from attrs import Factory, frozen

from seriatim.model import SessionSource

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


@frozen
class Claim:
    """One accepted message that the turn answers: its inbox id, text and origin."""

    id: str
    text: str
    source: SessionSource
    message_id: str | None
    time: int
    kind: Literal["human", "queue", "wake"]


@frozen
class TurnJob:
    """Everything a runner needs to run one turn, as plain data.

    ``lane``: canonical key; ``session``: session id; ``number``: the turn's number in its session, from 1.
    ``generation`` fences: results of another generation of the lane are late. ``attempt``: 1 for the first
    run of these claims, more after interruptions; ``resumed_from``: number of the turn that was interrupted.
    ``idempotency_key``: the same for every attempt at these claims. ``history``: messages before this turn.
    """

    lane: str
    session: str
    number: int
    generation: int
    attempt: int
    claims: tuple[Claim, ...]
    history: tuple[Message, ...]
    boundary: Boundary
    had_activity: bool
    resumed_from: int | None
    idempotency_key: str
    shared: bool


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
    """From the runner: the model's message of a step with its calls; they start after the commit (T2)."""

    turn: int
    generation: int
    text: str
    calls: tuple[ToolCall, ...]


@frozen
class ToolFinished:
    """From the runner: one call's result (T3). ``error``: the tool raised; ``content`` says what."""

    turn: int
    generation: int
    call_id: str
    content: Any
    error: bool = False


@frozen
class TurnEnded:
    """From the runner: the turn is over. ``text`` None with reason "completed" means silence.

    ``detail``: the silence's reason, or the error's class and text for "failed".
    """

    turn: int
    generation: int
    reason: EndReason
    text: str | None
    usage: Usage | None = None
    finish: str | None = None
    detail: str | None = None
