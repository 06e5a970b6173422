"""Wakes: where one stands after a command, and whether one that is pinned to a session may still run.

A pinned wake (``wakeSession``) runs if its session is still the lane's, or was only stopped. Otherwise it is dropped,
and what it had to say is kept: in the session that /new leaves, or in the lane's log where the session is gone already.
"""

from __future__ import annotations

from typing import Final

from seriatim.batch import Batch
from seriatim.effects import Ack, Finished
from seriatim.events import Data

SESSION_LEFT: Final = "session_left"
"""Why a pinned wake is dropped."""


def refuse_pin(batch: Batch, data: Data) -> bool:
    """Accept a wake whose session isn't the lane's, with notice and end; False when it may wait for its turn."""
    pin = data.get("wakeSession")
    if pin is None or pin == batch.state.bound:
        return False
    batch.lane("inbox/accepted", data)
    batch.after.append(Ack(data["id"], "accepted", batch.state.bound or "", 0))
    _drop(batch, (data["id"],), data["text"])
    return True


def promote_wake(batch: Batch) -> None:
    """The follow-up that held the slot is gone: the first wake behind it comes next."""
    for at, entry in enumerate(batch.state.queue):
        if entry.kind == "wake":
            if at:
                batch.lane("queue/moved", {"id": entry.ids[0], "to": 0})
            return


def leave_session(batch: Batch) -> None:
    """The lane's session is about to be left for good: the wakes pinned to it leave their notice there."""
    state = batch.state
    for ids in _waiting_wakes(batch):
        data = state.waiting[ids[0]].data
        if data.get("wakeSession") == state.bound and state.session is not None:
            notice: Data = {"id": data["id"], "text": data["text"]}
            if "wakeKind" in data:
                notice["kind"] = data["wakeKind"]
            batch.session("wake/notice", notice)
            _drop(batch, ids)


def drop_left(batch: Batch) -> None:
    """Drop the wakes that are next and whose session the lane has left meanwhile; fail closed."""
    state = batch.state
    for ids in _waiting_wakes(batch):
        data = state.waiting[ids[0]].data
        pin = data.get("wakeSession")
        # A session suspended as a whole is left by whatever runs next.
        if pin is not None and (pin != state.bound or state.suspended_at == -1):
            _drop(batch, ids, data["text"])


def _waiting_wakes(batch: Batch) -> list[tuple[str, ...]]:
    state = batch.state
    interrupted = [turn.ids for turn in state.interrupted if turn.kind == "wake"]
    return interrupted + [entry.ids for entry in state.queue if entry.kind == "wake"]


def _drop(batch: Batch, ids: tuple[str, ...], notice: str | None = None) -> None:
    data: Data = {"ids": list(ids), "reason": SESSION_LEFT}
    if notice is not None:
        data["notice"] = notice
    batch.lane("inbox/dropped", data)
    batch.after.extend(Finished(inbox_id, "dropped", None, SESSION_LEFT) for inbox_id in ids)
