"""Receipts: what became of each message that came in through this process.

A gateway-level table outside all actors, fed by the lanes' effects, so that an actor's restart loses none.
Loop thread only, except where a method says otherwise.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final, Literal

from msgspec import Struct

from seriatim.actors.waits import waiting_for
from seriatim.effects import Ack, AckDuplicate, Finished
from seriatim.errors import GatewayClosedError, WrongThreadError
from seriatim.model import AcceptOutcome

_log = logging.getLogger("seriatim.receipts")


class End(Struct, frozen=True):
    """A message's terminal outcome. ``text``: the reply, None for silence or where there is none.

    ``reason``: how the turn ended ("completed", "failed", "aborted", …), or why the message was dropped,
    refused or a duplicate.
    """

    outcome: Literal["answered", "merged", "dropped", "refused", "duplicate"]
    text: str | None
    reason: str


class Receipt(Struct, eq=False):
    """What ``accept`` says about a message, and the way to wait for its end.

    ``outcome``: accepted, merged (accepted, and it joined a waiting message), duplicate (accepted before)
    or refused; "pending" until that is known. ``reason``: why it was refused. ``position``: turns before it.
    ``message_id``: its inbox id.
    """

    message_id: str
    session_key: str
    _owner: object = None
    outcome: AcceptOutcome | Literal["pending"] = "pending"
    reason: str | None = None
    position: int = 0
    session_id: str | None = None
    # An adapter never waits for the end: the end itself, until somebody wants a future of it.
    _end: End | Exception | None = None
    _waiter: Future[End] | None = None

    def __repr__(self) -> str:
        return f"<receipt {self.message_id} {self.outcome}{f' ({self.reason})' if self.reason else ''}>"

    @property
    def end(self) -> End | None:
        """The terminal outcome, if it is known by now. Any thread."""
        end = self._end
        return end if isinstance(end, End) else None

    async def answered(self) -> End:
        """Wait for the terminal outcome, on any loop. Raises GatewayClosedError if the gateway stops first.

        The message is safe then all the same: the next start answers it. Raises WaitCycleError inside the very turn
        that has to end first.
        """
        future = asyncio.wrap_future(self._future())
        future.add_done_callback(_heard)
        if self._end is not None:
            return await asyncio.shield(future)
        with waiting_for(self._owner, self.session_key):
            return await asyncio.shield(future)

    def wait(self, timeout_s: float | None = None) -> End:
        """Block the calling thread until the terminal outcome.

        Raises TimeoutError, GatewayClosedError; WrongThreadError on a thread whose event loop it would stall, and
        WaitCycleError inside the very turn that has to end first.
        """
        if self._end is not None:
            return self._future().result()
        if _runs_a_loop():
            raise WrongThreadError("wait() would stall this thread's event loop: await receipt.answered() instead")
        with waiting_for(self._owner, self.session_key):
            return self._future().result(timeout_s)

    def _future(self) -> Future[End]:
        with _waiter_guard:
            waiter = self._waiter
            if waiter is None:
                waiter = self._waiter = Future()
                if self._end is not None:
                    _settle(waiter, self._end)
            return waiter

    def _finish(self, end: End | Exception) -> None:
        _waiter_guard.acquire()  # each message ends here, and a with would cost it twice as much
        try:
            if self._end is not None:
                return
            self._end = end
            waiter = self._waiter
        finally:
            _waiter_guard.release()
        if waiter is not None:
            _settle(waiter, end)


_waiter_guard = threading.Lock()
"""Between the loop that finishes a receipt and a thread that begins to wait for it."""


def _runs_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _heard(future: asyncio.Future[End]) -> None:
    """Whoever waited may have given up: then nobody asks for the error, and that is no fault."""
    if not future.cancelled():
        future.exception()


def _settle(waiter: Future[End], end: End | Exception) -> None:
    if waiter.done():
        return  # somebody cancelled it
    if isinstance(end, End):
        waiter.set_result(end)
    else:
        waiter.set_exception(end)


Settled = Callable[[Receipt], None]
CALLBACK_FAILED: Final = "a receipt's callback failed"


class Receipts:
    """The table: inbox id to receipt, from the door until the terminal outcome."""

    def __init__(self, owner: object = None) -> None:
        """*owner*: tells this gateway's lanes from another's, for turns that wait; its runner."""
        self._owner = owner
        self._accepting: dict[str, tuple[Receipt, Settled]] = {}
        self._open: dict[str, Receipt] = {}
        self.refused: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._accepting) + len(self._open)

    def open(self, inbox_id: str, session_key: str, settled: Settled) -> Receipt:
        """Begin a receipt; ``settled`` is called once: its outcome is known, or "pending" because the gateway stops."""
        receipt = Receipt(inbox_id, session_key, self._owner)
        self._accepting[inbox_id] = (receipt, settled)
        return receipt

    def accepted(self, effect: Ack) -> None:
        """The message is durable."""
        pending = self._accepting.pop(effect.id, None)
        if pending is not None:
            receipt, settled = pending
            receipt.session_id = effect.session or None
            if effect.position:
                receipt.position = effect.position
            receipt.outcome = effect.outcome
            self._open[effect.id] = receipt
            try:  # as _call, which would be a call more of every message
                settled(receipt)
            except Exception:
                _log.exception(CALLBACK_FAILED)

    def duplicate(self, effect: AckDuplicate) -> None:
        """It was durable before."""
        self._settle(effect.id, "duplicate", End("duplicate", None, "accepted before"))

    def finished(self, effect: Finished) -> None:
        """It has its terminal outcome."""
        receipt = self._open.pop(effect.id, None)
        if receipt is not None:
            receipt._finish(End(effect.outcome, effect.text, effect.reason))

    def refuse(self, inbox_id: str, reason: str) -> None:
        """The message was not accepted."""
        if inbox_id in self._accepting:
            self.refused[reason] += 1
            entry = self._accepting[inbox_id][0]
            entry.reason = reason
            self._settle(inbox_id, "refused", End("refused", None, reason))

    def of_lane(self, session_key: str, serving: Callable[[str], str] = str) -> list[str]:
        """The lane's messages that somebody waits to hear of. ``serving`` gives the lane that has what is a key's now:
        a receipt may have been begun, or found again, under the key of a lane that has gone into another.
        """
        waiting = [*(receipt for receipt, _ in self._accepting.values()), *self._open.values()]
        return [receipt.message_id for receipt in waiting if serving(receipt.session_key) == session_key]

    def moved(self, session_key: str, into: str) -> None:
        """Another lane has this lane's messages now: who waits for one waits for that lane."""
        for receipt in (*(receipt for receipt, _ in self._accepting.values()), *self._open.values()):
            if receipt.session_key == session_key:
                receipt.session_key = into

    def found(self, inbox_id: str, session_id: str | None, end: End | None) -> None:
        """The log knows the message: the incarnation that was to say so has died. ``end``: None while it waits."""
        pending = self._accepting.get(inbox_id)
        if pending is not None:
            pending[0].session_id = session_id
            self._settle(inbox_id, "accepted", end)
        elif end is not None and (receipt := self._open.pop(inbox_id, None)) is not None:
            receipt._finish(end)

    def take_up(self, inbox_id: str, session_key: str) -> Receipt:
        """The receipt of a message that the logs know: the one that somebody waits for already, or a new one.

        Take it up before its end is looked for, so that an end that comes meanwhile is heard.
        """
        pending = self._accepting.get(inbox_id)
        if pending is not None:
            return pending[0]
        receipt = self._open.get(inbox_id)
        if receipt is None:
            receipt = self._open[inbox_id] = Receipt(inbox_id, session_key, self._owner)
            receipt.outcome = "accepted"
        return receipt

    def close(self) -> None:
        """The gateway stops: release everybody who waits.

        A message whose commit has no outcome yet keeps the outcome "pending": either answer might be a lie.
        """
        error = GatewayClosedError("the gateway stopped; what was accepted is answered at the next start")
        accepting, self._accepting = self._accepting, {}
        for receipt, settled in accepting.values():
            receipt.reason = "stopping"
            receipt._finish(error)
            _call(settled, receipt)
        for receipt in self._open.values():
            receipt._finish(error)
        self._open.clear()

    def _settle(self, inbox_id: str, outcome: AcceptOutcome, end: End | None) -> None:
        pending = self._accepting.pop(inbox_id, None)
        if pending is None:
            return
        receipt, settled = pending
        receipt.outcome = outcome
        if end is None:
            self._open[inbox_id] = receipt
        else:
            receipt._finish(end)
        _call(settled, receipt)


def _call(settled: Settled, receipt: Receipt) -> None:
    try:
        settled(receipt)
    except Exception:
        _log.exception(CALLBACK_FAILED)
