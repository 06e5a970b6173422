"""Delegations: background work that a turn begins, and that its lane and session own.

Its start is durable before it begins; its end comes back as a wake for the session that it belongs to, with what it
gave. /stop, /new and /reset end it at once, also when no turn runs: what it had given by then is told, and whatever it
still gives is late. What a crash cut off is told as interrupted at the next start; nothing of it is run again.
"""

from __future__ import annotations

from typing import Final

from seriatim.batch import Batch
from seriatim.effects import EndDelegations, WishAnswered
from seriatim.events import Data, mend_text
from seriatim.lane import Delegation
from seriatim.limits import DELEGATION_OUTPUT_CHARS_MAX, DELEGATIONS_MAX
from seriatim.mail import Recover
from seriatim.queueing import entry_of, place
from seriatim.turn import Delegate, DelegationEnded, TurnAsks
from seriatim.wakes import refuse_pin

WAKE_KIND: Final = "delegation"
CUT_NOTE: Final = "\n[cut: the whole output had {0} characters]"


def delegation_wanted(batch: Batch, m: TurnAsks) -> None:
    """The running turn wants to begin background work; it gets its id, or None where there is too much."""
    state, running = batch.state, batch.state.running
    assert running is not None
    assert isinstance(m.wish, Delegate)
    if len(state.delegations) >= DELEGATIONS_MAX:
        batch.after.append(WishAnswered(m.generation, m.token, None))
        return
    name = batch.now.fresh_id()
    first = state.waiting[running.ids[0]].data
    origin: Data = {key: first[key] for key in ("source", "account", "door") if key in first}
    told: Data = {"id": name, "name": mend_text(m.wish.name)[0], "session": running.session, "turn": running.turn}
    batch.lane("delegation/started", {**told, "origin": origin})
    batch.after.append(WishAnswered(m.generation, m.token, name))


def delegation_ended(batch: Batch, m: DelegationEnded) -> None:
    """Background work is over; late news of what was ended before touches nothing."""
    work = next((work for work in batch.state.delegations if work.id == m.id), None)
    if work is not None:
        _end(batch, work, m.status, m.output)


def end_delegations(batch: Batch) -> bool:
    """Interrupt all background work of the lane, with what it gave so far; whether there was any."""
    works = batch.state.delegations
    for work in works:
        _end(batch, work, "interrupted", batch.now.output(batch.state.key, work.id))
    if works:
        batch.after.append(EndDelegations(tuple(work.id for work in works)))
    return bool(works)


def close_lost(batch: Batch, m: Recover) -> None:
    """Background work that died with its process, or whose lane has become another's: told as interrupted, never begun
    anew.
    """
    lost = [work for work in batch.state.delegations if work.id not in m.delegations]
    for work in lost:
        _end(batch, work, "interrupted", "")
    if lost:
        batch.after.append(EndDelegations(tuple(work.id for work in lost)))


def _end(batch: Batch, work: Delegation, status: str, output: str) -> None:
    state = batch.state
    batch.lane("delegation/ended", {"id": work.id, "status": status})
    text, mended = mend_text(output)
    if len(text) > DELEGATION_OUTPUT_CHARS_MAX:
        text = text[:DELEGATION_OUTPUT_CHARS_MAX] + CUT_NOTE.format(len(text))
    said = f"[delegation {work.name!r}: {status}]"
    data: Data = {
        "id": batch.now.fresh_id(),
        "kind": "wake",
        "place": "none",
        "text": f"{said} {text}" if text else said,
        **work.origin,
        "wakeSession": work.session,
        "wakeKind": WAKE_KIND,
    }
    if mended:
        data["mended"] = True
    batch.size += len(data["text"])
    if refuse_pin(batch, data):
        return  # its session was left: the notice is in the log
    data["place"] = place(state.queue, entry_of(data), batch.rules.collapse)
    batch.lane("inbox/accepted", data)
