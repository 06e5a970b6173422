"""A question to a lane whose gateway isn't running: the same rules and gate, without actors.

The caller owns the home. What the answer sets free stays undone: the next start finds it in the logs.
"""

from __future__ import annotations

from typing import Any

from seriatim.actors.ids import Ids
from seriatim.batch import Now, Rules
from seriatim.clock import Clock
from seriatim.commits import Commit
from seriatim.effects import Answered
from seriatim.errors import StoreUnhealthyError
from seriatim.events import lane_log
from seriatim.gate import Gate, Out
from seriatim.mail import Ask
from seriatim.outbox import Channel
from seriatim.storage.contract import Store
from seriatim.storage.projections import folded

TRIES_MAX = 3
"""Offers of a commit whose outcome is unknown."""


def answer_offline(store: Store, lane: str, question: Any, clock: Clock, ids: Ids) -> Any:
    """Decide ``question`` and make it durable; its answer. For questions that draft nothing in a session.

    Raises what the rule raises, StoreError for what the store refuses, StoreUnhealthyError where that stays unknown.
    """
    reader = store.reader()
    try:
        state = folded(reader, lane_log(lane))
    finally:
        reader.close()
    nowhere = Channel()
    now = Now(clock.now_ms(), ids.fresh, ids.session, lambda: False, lambda target: nowhere, draining=True)
    gate = Gate(1, state, Rules(), ids.fresh)
    out = gate.offer(Ask("offline", question), now)
    found = _answer(out)
    tries = 0
    commit: Commit | None = out.commit
    while commit is not None:
        tries += 1
        [outcome] = store.commit([commit])
        out = gate.settled(outcome, now)
        found = found or _answer(out)
        now.time = max(now.time, out.wake_at or 0)
        commit = out.commit or (gate.tick(now).commit if found is None and tries < TRIES_MAX else None)
    if found is None:
        raise StoreUnhealthyError("it is not known whether the answer was written; look again")
    if found.error is not None:
        raise found.error
    return found.value


def _answer(out: Out) -> Answered | None:
    told = (*(effect for _, effect in out.effects), *out.internal)
    return next((effect for effect in told if type(effect) is Answered), None)
