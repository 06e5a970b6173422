"""Questions: what the host asks of a lane, decided among its other mail and answered when that is durable.

A question is a frozen value; its rule, in the room that owns it, drafts what becomes true and returns the answer. A
question whose lane died before it was answered is decided again by the next incarnation, so its rule must bear that;
or its class says ``once``: then one that was being written is answered by WriteUnknownError.
One that the caller got wrong raises SeriatimError before anything is drafted; the caller gets it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from seriatim.approvals import ListApprovals, ResolveApproval, list_approvals, resolve_approval
from seriatim.batch import Batch
from seriatim.effects import Answered
from seriatim.errors import SeriatimError
from seriatim.mail import Ask
from seriatim.queue_edits import (
    CancelMessage,
    ClearQueue,
    EditMessage,
    ExpireQueue,
    ListQueue,
    MoveMessage,
    cancel_message,
    clear_queue,
    edit_message,
    expire_queue,
    list_queue,
    move_message,
)
from seriatim.store_calls import MUTATIONS
from seriatim.undelivered import (
    AbandonDelivery,
    RetryDelivery,
    SendAgain,
    abandon_delivery,
    retry_delivery,
    send_again,
)

QUESTIONS: Final[dict[type[Any], Callable[[Batch, Any], Any]]] = {
    ListQueue: list_queue,
    ListApprovals: list_approvals,
    ResolveApproval: resolve_approval,
    EditMessage: edit_message,
    MoveMessage: move_message,
    CancelMessage: cancel_message,
    ClearQueue: clear_queue,
    ExpireQueue: expire_queue,
    **MUTATIONS,
    RetryDelivery: retry_delivery,
    AbandonDelivery: abandon_delivery,
    SendAgain: send_again,
}


def ask(batch: Batch, m: Ask) -> None:
    """Decide a question; the caller starts the next turn."""
    try:
        value = QUESTIONS[type(m.question)](batch, m.question)
    except SeriatimError as error:
        batch.internal.append(Answered(m.token, None, error))
    else:
        batch.after.append(Answered(m.token, value))
