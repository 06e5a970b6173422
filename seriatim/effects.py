"""What may leave a lane once the commit that explains it is durable, and what never leaves the process.

The gate hands out each of the first group together with the permit of its commit (law 2).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

from msgspec import Struct

from seriatim.errors import SeriatimError
from seriatim.events import Data, Event, LogId
from seriatim.model import Target
from seriatim.shown import Besides

if TYPE_CHECKING:
    from seriatim.mail import Inbound


class Permit(Struct, frozen=True, gc=False):
    """Proof that a commit is durable; minted by the Gate alone."""

    commit: str
    lane: LogId
    incarnation: int


class Ack(Struct, frozen=True, gc=False):
    """The message is durable: tell its sender. ``outcome``: accepted or merged (the intent at accept)."""

    id: str
    outcome: Literal["accepted", "merged"]
    session: str
    position: int


class Nack(Struct, frozen=True):
    """The message was not accepted; ``reason`` is typed and told. Needs no permit: nothing happened."""

    id: str
    reason: str


class AckDuplicate(Struct, frozen=True):
    """The message was accepted before, durably: ack this delivery of it, do nothing else."""

    id: str


class Finished(Struct, frozen=True, gc=False):
    """A message has its terminal outcome; ``text`` is the reply that answers it, None for silence."""

    id: str
    outcome: Literal["answered", "merged", "dropped"]
    text: str | None
    reason: str


class Answered(Struct, frozen=True):
    """A question of the host's is decided, durably; or, with ``error``, it isn't and nothing came of it."""

    token: str
    value: Any
    error: SeriatimError | None = None


class RunTurn(Struct, frozen=True, gc=False):
    """Run the agent for ``claims`` (the accepted events' data, with their times)."""

    session: str
    number: int
    generation: int
    attempt: int
    claims: tuple[tuple[Data, int], ...]
    boundary: Literal["none", "fresh", "suspended"]
    had_activity: bool
    resumed_from: int | None


class CancelTurn(Struct, frozen=True):
    """Stop the agent of ``generation``; its results are late from now on."""

    generation: int
    why: str


class ReleaseCalls(Struct, frozen=True):
    """The calls are recorded: they may run."""

    generation: int
    calls: tuple[str, ...]


class Proceed(Struct, frozen=True):
    """The call's result is durable: the agent may go on."""

    generation: int
    call_id: str


class WishAnswered(Struct, frozen=True):
    """What the agent asked of its lane is durable; ``value`` depends on the wish (see turn.Wish)."""

    generation: int
    token: str
    value: Any


class ApprovalDue(Struct, frozen=True):
    """The question counts as denied at ``at`` (epoch ms), unless it is answered before."""

    id: str
    at: int


class EndDelegations(Struct, frozen=True):
    """Stop this background work: its end is durable already."""

    ids: tuple[str, ...]


class Deliver(Struct, frozen=True, gc=False):
    """A reply is owed: take it up.

    ``due``: the parts still to be sent. ``first_attempt_recorded``: the first may be sent at once; otherwise each
    attempt is to be recorded first (AttemptWanted). ``since``: epoch ms of the debt. ``until``: epoch ms before which
    nothing may be sent. ``draft``: id of the message that the first part is edited into. ``claim``: first message of
    the turn that made it, "" where none did, by which a draft that is still on its way is found.
    """

    delivery: str
    parts: tuple[str, ...]
    target: Target
    due: tuple[int, ...]
    first_attempt_recorded: bool
    since: int
    until: int = 0
    draft: str = ""
    claim: str = ""


class Owes(Struct, frozen=True):
    """All that the lane owes, from a new incarnation: other deliveries of this lane are over; forget them.

    What told delivery so may have died with the incarnation before.
    """

    deliveries: tuple[str, ...]


class SendPart(Struct, frozen=True):
    """The attempt is recorded: send the part now. ``marked``: an earlier attempt may have arrived, so it says so.

    ``look``: it may have, and the platform is asked first.
    """

    target: Target
    delivery: str
    part: int
    attempt: int
    marked: bool
    look: bool = False


class DropDelivery(Struct, frozen=True):
    """Parts of the delivery are not to be sent: those from ``first`` on; from 0 on, forget it.

    An earlier part that is on its way stays owed: its end is still to be told. ``target`` is None when
    nobody knows any more.
    """

    target: Target | None
    delivery: str
    first: int = 0


class ForgetAgent(Struct, frozen=True):
    """The conversation isn't what the warm agent has seen of it: let go of the agent."""


class MoveHere(Struct, frozen=True):
    """Have the supervisor bind a session of another lane to this one, if it is bound to ``expected`` then.

    ``command``: what asks for it; no lane has accepted it, the move's commit does, and answers it with ``text``.
    Internal.
    """

    session: str
    expected: str | None
    command: Inbound
    text: str


class CompressionWanted(Struct, frozen=True):
    """The lane's next turn waits until its session is compressed, as it was after ``turn``. Internal."""

    session: str
    turn: int


class CompressSession(Struct, frozen=True):
    """Have the agent sum up ``said``; the result comes back as SummaryMade.

    ``seqs``: the messages that it will stand for, in their order, as shown after ``head`` events of the session; the
    last of them belongs to ``turn``. ``asked``: the command that asked for it and waits for the end; "" for none.
    """

    session: str
    head: int
    seqs: tuple[int, ...]
    turn: int
    said: tuple[Event, ...]
    asked: str = ""


class RestartGateway(Struct, frozen=True):
    """An operator wants the gateway drained and started anew."""


class WantSlot(Struct, frozen=True):
    """Ask for a turn slot. Internal: leaves nothing.

    ``person``: for whose message, "" where it doesn't say; ``resumes``: only for a turn that was interrupted.
    """

    person: str = ""
    resumes: bool = False


class ReturnSlot(Struct, frozen=True, gc=False):
    """The turn that held a slot is over. ``silent``: it has ended well, and nothing is owed for it. Internal."""

    silent: bool = False


class ReadShown(Struct, frozen=True):
    """Read what a session shows ("": none), and what else is asked for, off the actor, for the gate. Internal."""

    session: str
    whole: bool
    besides: Besides | None = None


class Routed(Struct, frozen=True):
    """The lane is bound to another session than before, or to none. Internal: mirrors and indexes hear of it."""


ROUTED: Final = Routed()

Effect = (
    Ack
    | Nack
    | AckDuplicate
    | Finished
    | Answered
    | RunTurn
    | CancelTurn
    | ReleaseCalls
    | Proceed
    | WishAnswered
    | ApprovalDue
    | EndDelegations
    | Owes
    | Deliver
    | SendPart
    | DropDelivery
    | ForgetAgent
    | RestartGateway
    | MoveHere
    | CompressionWanted
    | CompressSession
    | WantSlot
    | ReturnSlot
    | ReadShown
    | Routed
)
