"""Replies that have not reached their people: what is owed still, what was given up, and the operator's two words.

Rules and readings of logs only; ``gateway.undelivered()`` and ``seriatim undelivered`` use both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, Final, Literal

from attrs import frozen

from seriatim.batch import Batch
from seriatim.effects import Deliver
from seriatim.events import Data, Event
from seriatim.inbox import abandon
from seriatim.lane import LaneState, Owed
from seriatim.model import Target
from seriatim.outbox import marked
from seriatim.recovery import take_up

OPERATOR: Final = "operator"

REFUSALS: Final = frozenset({"gone", "blocked", "too_long", "refused", "anchor", "thread"})
"""Reasons that are a platform's own: it didn't take the part."""


@frozen
class Undelivered:
    """One reply that has not arrived, or not whole.

    ``delivery``: its id. ``lane``: the session key. ``texts``: the parts that are missing, of ``parts`` in all.
    ``since``: epoch ms of the debt, or of the last time that an operator had it tried on. ``state``: "waiting" (surely
    nothing of what is missing has arrived), "in doubt" (some of it may have) or "given up". ``attempts``: at the part
    that is next. ``until``: epoch ms before which its platform wants nothing, 0 without. ``reason``: why it was given
    up, "" while it isn't.
    """

    delivery: str
    lane: str
    target: Target
    texts: tuple[str, ...]
    parts: int
    since: int
    state: Literal["waiting", "in doubt", "given up"]
    attempts: int
    until: int = 0
    reason: str = ""
    turn: int = 0


@frozen
class RetryDelivery:
    """Question: try an owed reply on, at once, its age beginning again. Answered with whether it is owed."""

    delivery: str


@frozen
class AbandonDelivery:
    """Question: give an owed reply up; nobody is told. Answered with whether it was owed."""

    delivery: str


@frozen
class SendAgain:
    """Question: owe a reply that was given up once more. Answered with True."""

    reply: Undelivered
    doubtful: bool


# --- the operator's words --------------------------------------------------------------------------------


def retry_delivery(batch: Batch, question: RetryDelivery) -> bool:
    """Record the wish, and have the delivery hear of it."""
    if question.delivery not in batch.state.owed:
        return False
    batch.lane("delivery/retried", {"id": question.delivery})
    batch.after.append(take_up(batch.state.owed[question.delivery]))
    return True


def abandon_delivery(batch: Batch, question: AbandonDelivery) -> bool:
    """Give up what is left of it. A part on its way may still arrive."""
    owed = batch.state.owed.get(question.delivery)
    if owed is None:
        return False
    abandon(batch, owed, next(at for at, part in enumerate(owed.states) if not part.done), OPERATOR)
    return True


def send_again(batch: Batch, question: SendAgain) -> bool:
    """A debt of its own, of the parts that are missing; marked where one of them may have arrived."""
    reply = question.reply
    parts = tuple(map(marked, reply.texts)) if question.doubtful else reply.texts
    delivery = batch.now.fresh_id()
    data: Data = {"id": delivery, "parts": list(parts), "to": reply.target.to_data(), "again": reply.delivery}
    if reply.turn:
        data["turn"] = reply.turn
    batch.lane("delivery/owed", data)
    batch.after.append(Deliver(delivery, parts, reply.target, tuple(range(len(parts))), False, batch.time))
    return True


# --- what the logs tell ----------------------------------------------------------------------------------


def owed_of(state: LaneState) -> Iterator[Undelivered]:
    """What the lane owes, oldest first."""
    for owed in state.owed.values():
        yield _told(state.key, owed)


def _told(lane: str, owed: Owed) -> Undelivered:
    due = [at for at, part in enumerate(owed.states) if not part.done]
    next_one = owed.states[due[0]]
    return Undelivered(
        owed.id,
        lane,
        owed.target,
        tuple(owed.texts[at] for at in due),
        len(owed.texts),
        owed.since,
        "in doubt" if any(owed.states[at].doubts > 0 for at in due) else "waiting",
        next_one.attempts + next_one.first,
        owed.until,
        turn=owed.turn,
    )


def given_up_of(lane: str, events: Iterable[Event]) -> Iterator[tuple[Undelivered, bool]]:
    """The lane's replies that were given up and not sent again, oldest first, each with whether it may have arrived.

    A lane whose log was compacted tells only of those since.
    """
    owed: dict[str, Event] = {}
    missing: dict[str, dict[int, str]] = {}
    doubts: Counter[tuple[str, int]] = Counter()
    reasons: dict[str, str] = {}
    for event in events:
        data: Any = event.data
        name = data.get("id", "")
        match event.type:
            case "delivery/owed":
                owed[name], missing[name] = event, dict(enumerate(data["parts"]))
                reasons.pop(data.get("again", ""), None)
                for part in range(min(data.get("first", len(data["parts"])), len(data["parts"]))):
                    doubts[name, part] = int(data.get("attempt", 0) == 1)
            case "delivery/attempt":
                doubts[name, data["part"]] += 1
            case "delivery/failed":
                doubts[name, data["part"]] -= 1
            case "delivery/settled" if name in missing:
                missing[name].pop(data["part"], None)
            case "delivery/abandoned" if name in owed:
                if data["reason"] in REFUSALS and name not in reasons:
                    doubts[name, data["part"]] -= 1  # that attempt surely didn't arrive
                reasons[name] = data["reason"]
            case _:
                pass
    for name, reason in reasons.items():
        data = owed[name].data
        texts, target = tuple(missing[name].values()), Target.from_data(data["to"])
        doubtful = any(doubts[name, part] > 0 for part in missing[name])
        since, turn = owed[name].time, data.get("turn", 0)
        reply = Undelivered(
            name, lane, target, texts, len(data["parts"]), since, "given up", 0, reason=reason, turn=turn
        )
        yield reply, doubtful
