"""Short scenarios for faults that random runs meet too seldom. Each raises Violation when the core is broken."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from seriatim.batch import Rules
from seriatim.effects import AckDuplicate, Deliver, Nack, ReturnSlot, SendPart
from seriatim.errors import OwnershipLostError
from seriatim.mail import AttemptWanted, PartFailed
from tests.core.bench import Bench

from .oracle import require


def doubt_sticks() -> None:
    """A reply sent doubtfully, then surely not: the third attempt is marked."""
    bench = Bench(Rules(separate_attempt=True))
    bench.said("hi")
    bench.answer()
    delivery = bench.all(Deliver)[0].delivery
    bench.tell(AttemptWanted(delivery, 0))  # arrived, its answer got lost
    bench.tell(AttemptWanted(delivery, 0))
    bench.offer(PartFailed(delivery, 0, "surely not"))
    bench.tell(AttemptWanted(delivery, 0))
    marks = [send.marked for send in bench.all(SendPart)]
    require(marks == [False, True, True], "marks:", marks)


def turn_end_is_kept() -> None:
    """The disk is full when a turn ends: its reply is written when there is space again."""
    bench = Bench()
    bench.said("hi")
    bench.offer(bench.end())
    bench.refuse()
    require(bench.gate.durable.running is not None, "the turn ended without a commit")
    bench.tick(10_000)
    bench.drain()
    require(bench.gate.durable.running is None, "the turn's end is lost")
    require(len(bench.all(Deliver)) == 1, "the reply is lost")


def fence_holds() -> None:
    """A dead incarnation's commit reaches the writer after its successor has read the log: refused."""
    bench = Bench()
    bench.said("hi")
    bench.offer(bench.end())
    late = bench.offered
    require(late is not None, "nothing was offered")
    assert late is not None
    bench.start()
    before = bench.lane_events()
    [outcome] = bench.store.commit([late])
    require(isinstance(getattr(outcome, "error", None), OwnershipLostError), "no fence:", outcome)
    require(bench.lane_events() == before, "a dead incarnation wrote")
    # And where the successor has written nothing yet, so that no head betrays the late one.
    bench = Bench()
    bench.say("hi")
    late = bench.offered
    bench.start()
    assert late is not None
    bench.store.commit([late])
    require(bench.lane_events() == [], "a dead incarnation wrote")


def duplicate_is_acked() -> None:
    """A message that is known already is acknowledged, never refused."""
    bench = Bench()
    bench.said("hi", key="m1")
    again = bench.said("hi", key="m1")
    require([a.id for a in bench.all(AckDuplicate)] == [again], "acks:", bench.effects)
    require(bench.all(Nack) == [], "nacked:", bench.internal)


def flight_is_single() -> None:
    """While a commit is in flight and not unknown, no tick offers it again."""
    bench = Bench()
    bench.said("hi")
    bench.offer(bench.end())
    bench.say("next")
    bench.refuse()  # the turn's end waits for its back-off, "next" goes on at once
    require(bench.offered is not None, "the stash was left lying")
    require(bench.tick(10_000).commit is None, "a second copy is in flight")


def two_interruptions_are_held() -> None:
    """A stale interrupted message still waits when the wake that ran meanwhile is interrupted too."""
    bench = Bench(Rules(freshness_ms=1_000))
    human = bench.said("hi")
    bench.now.time += 5_000
    bench.reopen()
    bench.wake()
    bench.reopen()
    bench.answer()
    bench.said("and?")
    bench.answer()
    require(bench.outcome(human) == "answered", "the first interrupted message:", bench.outcome(human))


def slots_come_back() -> None:
    """A refused commit's slot and an ended turn's slot are both given back."""
    bench = Bench(free=1)
    bench.say("hi")
    bench.refuse()
    require(bench.slots_back == 1, "slots back:", bench.slots_back)
    bench.said("again")
    bench.answer()
    require(len(bench.all(ReturnSlot)) == 1, "the turn's slot")


DIRECTED: Final[tuple[Callable[[], None], ...]] = (
    doubt_sticks,
    turn_end_is_kept,
    fence_holds,
    duplicate_is_acked,
    flight_is_single,
    two_interruptions_are_held,
    slots_come_back,
)
