"""What a lane's rules take in: one frozen value for each thing that can happen to a lane.

Inbound messages are *refusable*: if their commit is refused, their sender is told no. All others are
*kept*: what they report has happened and is decided again. *Lazy* ones may wait for the next commit.
The runner's StepOffered, ToolFinished and TurnEnded (seriatim.turn) are kept messages too.
"""

from __future__ import annotations

from typing import Any, Literal

from attrs import frozen
from msgspec import Struct

from seriatim.effects import CompressSession
from seriatim.model import MessageEvent
from seriatim.turn import DelegationEnded, StepOffered, ToolFinished, TurnAsks, TurnEnded


class Inbound(Struct, frozen=True):
    """A message at the door. ``id``: its inbox id, fresh. ``key``: its unique key, or "" without one
    (then a successor that gets it again must know from the log whether it was accepted).

    ``command``: the command's name when the text is one (without ``prefix``), ``args`` what follows it.
    ``size``: characters of its text, for the stash's bound. ``by_receipt``: no adapter serves its account, the
    host that handed it in takes the reply from the receipt. ``wave``: of the door through which it came; a later
    wave turns those before it away where they are still undecided. ``arrival``: its number at this process's door;
    where two lanes become one, their mail is served in this order.
    """

    id: str
    key: str
    event: MessageEvent
    size: int
    command: str = ""
    args: str = ""
    by_receipt: bool = False
    prefix: str = "/"
    wave: int = 0
    arrival: int = 0


@frozen
class Ask:
    """From the host: a question to the lane (see seriatim.asking); answered under ``token``."""

    token: str
    question: Any


@frozen
class Recover:
    """The first message of an incarnation: close what a dead one left open, take up what is owed.

    ``live_generation``: the turn that goes on running in this process (after a refold), else 0.
    ``reason``: restart_interrupted, or what a drain recorded. ``delegations``: ids of background work that goes on, or
    whose end is still to be told.
    """

    live_generation: int = 0
    reason: str = "restart_interrupted"
    delegations: frozenset[str] = frozenset()


@frozen
class MoveRefused:
    """From the supervisor: the session that ``command`` (which no lane has accepted yet) asks for was not moved.

    ``outcome``: same, busy, changed, unknown or unavailable.
    """

    command: Inbound
    outcome: str


@frozen
class SlotGranted:
    """A turn slot for this lane; it is given back if no turn starts."""


@frozen
class HoldOver:
    """From the gate: the time has come for which the next turn was held back."""


@frozen
class TurnBroken:
    """The running turn can't go on: what it said can't be made durable (from the gate), or it is silent for too long.

    ``reason``: how it ends; its agent is told to stop, and whatever that gives is late.
    """

    turn: int
    generation: int
    detail: str
    reason: Literal["failed", "timeout"] = "failed"


@frozen
class AttemptWanted:
    """From delivery: part ``part`` of ``delivery`` is about to be sent (again); record it first (T5)."""

    delivery: str
    part: int


class PartSettled(Struct, frozen=True, gc=False):
    """From delivery: the platform has the part (T6, lazy)."""

    delivery: str
    part: int
    message_id: str | None


@frozen
class PartFailed:
    """From delivery: an attempt at the part surely did not arrive (lazy; stands before the next attempt).

    ``until``: epoch ms before which the platform wants no other, 0 when it didn't say, or not long.
    """

    delivery: str
    part: int
    reason: str
    until: int = 0


@frozen
class PartAbandoned:
    """From delivery: the part will not be sent (refused for good, too old, too many doubtful attempts).

    ``detail``: the platform's own words, if it had any.
    """

    delivery: str
    part: int
    reason: str
    detail: str = ""


@frozen
class Bounced:
    """From an adapter: the platform had taken the part, and says now that it can't be delivered."""

    delivery: str
    part: int
    reason: str


@frozen
class DraftShown:
    """From delivery: what a turn has said so far is shown, as the platform's message ``message_id`` (lazy).

    ``claim``: the turn's first message. ``delivery``: the reply that it has become meanwhile, or "".
    """

    generation: int
    claim: str
    message_id: str
    delivery: str = ""


@frozen
class DraftGone:
    """From delivery: the message into which a reply was to be edited is no longer there (lazy)."""

    delivery: str


@frozen
class ApprovalExpired:
    """Nobody has answered the question in its time."""

    id: str


@frozen
class DrainTimedOut:
    """The gateway stops while the lane's turn runs on; the turn stays open for the next start."""

    reason: str


@frozen
class Quarantine:
    """From the supervisor: the lane keeps dying. Suspend its conversation and tell its user.

    ``last``: the message at which it died last, if it was one; its sender is told where nobody else waits.
    """

    last: Inbound | None


@frozen
class CompressionDue:
    """From the shell: ``session``, as it was after ``turn``, is to be compressed before the turn that waits."""

    session: str
    turn: int


@frozen
class SummaryMade:
    """From the runner: what stands for the messages of ``order``; None where there is nothing, and ``why``."""

    order: CompressSession
    text: str | None
    why: str = ""


Mail = (
    Inbound
    | MoveRefused
    | Recover
    | SlotGranted
    | HoldOver
    | StepOffered
    | ToolFinished
    | TurnEnded
    | TurnBroken
    | TurnAsks
    | DelegationEnded
    | ApprovalExpired
    | AttemptWanted
    | PartSettled
    | PartFailed
    | PartAbandoned
    | Bounced
    | DraftShown
    | DraftGone
    | DrainTimedOut
    | Quarantine
    | CompressionDue
    | SummaryMade
    | Ask
)


def at_the_door(mail: Mail) -> Inbound | None:
    """The message that no lane has accepted yet, and whose sender is to hear of it, if ``mail`` is about one."""
    told = mail.command if type(mail) is MoveRefused else mail
    return told if type(told) is Inbound else None


LAZY = frozenset({PartSettled, PartFailed, DraftShown, DraftGone})
