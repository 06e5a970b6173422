"""What random runs meet too seldom, and what they found once: each case by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from seriatim.actors.directory import Directory
from seriatim.actors.persistence import Compact
from seriatim.actors.receipts import Receipts
from seriatim.actors.session import Passivate
from seriatim.actors.simulation import Envelope
from seriatim.actors.supervisor import PassivateLane
from seriatim.actors.upkeep import CompactLane, Growth
from seriatim.batch import Rules
from seriatim.commits import Durable
from seriatim.effects import AckDuplicate, Deliver, Nack, ReturnSlot, SendPart
from seriatim.errors import GatewayClosedError, OwnershipLostError
from seriatim.limits import COMMIT_RETRY_MS, PRESSURE_PASS_MS_MAX
from seriatim.mail import AttemptWanted, Inbound, PartFailed
from seriatim.model import MessageEvent, SessionSource
from seriatim.testing.chance import Plan
from seriatim.testing.process import BY_US, MEMORY_BYTES
from seriatim.testing.simulator import Simulator
from seriatim.turn import StepOffered, ToolCall, ToolFinished
from tests.core.bench import Bench


def test_doubt_sticks() -> None:
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
    assert marks == [False, True, True]


def test_turn_end_is_kept() -> None:
    """The disk is full when a turn ends: its reply is written when there is space again."""
    bench = Bench()
    bench.said("hi")
    bench.offer(bench.end())
    bench.refuse()
    assert bench.fold().running is not None
    bench.tick(10_000)
    bench.drain()
    assert bench.fold().running is None
    assert len(bench.all(Deliver)) == 1


def test_fence_holds() -> None:
    """A dead incarnation's commit reaches the writer after its successor has read the log: refused."""
    bench = Bench()
    bench.said("hi")
    bench.offer(bench.end())
    late = bench.offered
    assert late is not None
    assert late is not None
    bench.start()
    before = bench.lane_events()
    [outcome] = bench.store.commit([late])
    assert isinstance(getattr(outcome, "error", None), OwnershipLostError)
    assert bench.lane_events() == before
    # And where the successor has written nothing yet, so that no head betrays the late one.
    bench = Bench()
    bench.say("hi")
    late = bench.offered
    bench.start()
    assert late is not None
    bench.store.commit([late])
    assert bench.lane_events() == []


def test_duplicate_is_acked() -> None:
    """A message that is known already is acknowledged, never refused."""
    bench = Bench()
    bench.said("hi", key="m1")
    again = bench.said("hi", key="m1")
    assert [a.id for a in bench.all(AckDuplicate)] == [again]
    assert bench.all(Nack) == []


def test_flight_is_single() -> None:
    """While a commit is in flight and not unknown, no tick offers it again."""
    bench = Bench()
    bench.said("hi")
    bench.offer(bench.end())
    bench.say("next")
    bench.refuse()  # the turn's end waits for its back-off, "next" goes on at once
    assert bench.offered is not None
    assert bench.tick(10_000).commit is None


def test_two_interruptions_are_held() -> None:
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
    assert bench.outcome(human) == "answered"


def test_slots_come_back() -> None:
    """A refused commit's slot and an ended turn's slot are both given back."""
    bench = Bench(free=1)
    bench.say("hi")
    bench.refuse()
    assert bench.slots_back == 1
    bench.said("again")
    bench.answer()
    assert len(bench.all(ReturnSlot)) == 1


def test_what_a_turn_reports_keeps_its_order_when_the_store_refuses() -> None:
    """The step is refused and waits for its back-off; the result of its call, told meanwhile, comes after it."""
    bench = Bench()
    bench.said("hi")
    call = ToolCall("c1", "look", {}, effects="read")
    bench.offer(StepOffered(1, 1, "let me", (call,)))
    bench.refuse()
    bench.tell(ToolFinished(1, 1, "c1", "found"))
    assert bench.offered is None
    bench.tick(COMMIT_RETRY_MS[0])
    bench.drain()
    told = [event.type for event in bench.session_events()][-5:]
    assert told == ["assistant/message", "tool/call", "tool/result", "step/end", "step/start"]


class _Ref:
    """Stands for an actor: keeps what it is sent."""

    def __init__(self) -> None:
        self.mail: list[Any] = []

    def tell(self, mail: Any) -> None:
        """Keep it."""
        self.mail.append(mail)

    def signal(self, mail: Any) -> bool:
        """Keep it."""
        self.mail.append(mail)
        return True


def test_no_mail_overtakes_what_waits_for_the_supervisor() -> None:
    """A lane has become live; what was routed to it before is placed first, then mail goes there directly."""
    directory = Directory()
    supervisor: Any = _Ref()
    lane: Any = _Ref()
    gate: Any = None
    directory.supervisor = supervisor
    event = MessageEvent("hi", SessionSource("fake", "1", user_id="u"))
    first, second, third = (Inbound(name, "", event, 1) for name in ("a", "b", "c"))
    directory.submit("lane", first)
    directory.add("lane", lane, gate)
    directory.submit("lane", second)
    assert [route.mail for route in supervisor.mail] == [first, second]
    directory.routed("lane")
    directory.routed("lane")
    directory.submit("lane", third)
    assert lane.mail == [third]


class _Struck(Simulator):
    """A quiet world in which the lane's actor dies at the message of this number, so many times."""

    def __init__(self, number: int, times: int, **plan: Any) -> None:
        super().__init__(1, Plan(lanes=1, acts=0, lulls=0.0, timers=0.02, **plan))
        self.times = times
        self._number = f"in{number}"

    def before_envelope(self, envelope: Envelope) -> BaseException | None:
        """Strike."""
        error = super().before_envelope(envelope)
        message = envelope.message
        struck = type(message) is Inbound and message.event.message_id == self._number
        if not (struck and self.times and envelope.ref.name.startswith("lane:")):
            return error
        self.times -= 1
        self.deaths += 1
        return RuntimeError(BY_US)


def test_a_crash_keeps_the_order_of_messages() -> None:
    """The lane dies at its fourth message while two wait behind a commit: the successor takes them up in order."""
    world = _Struck(4, 1, writer=0.05)
    for _ in range(6):
        world.outside.say(world.outside.sources[0], "plain")
    world.run()
    assert world.times == 0
    assert world.checked["no_overtaking"] >= 7


class _Scripted(Simulator):
    """A world without chance's faults in which these things happen, each when all is at rest."""

    def __init__(self, *acts: Callable[[_Scripted], object], **plan: Any) -> None:
        super().__init__(1, Plan(acts=len(acts), timers=0.02, **plan))
        self.heard: list[Any] = []
        self._acts = iter(acts)
        self.outside.act = self._act  # type: ignore[method-assign]
        self.outside.lull = True  # until all is at rest

    def _act(self) -> None:
        self.outside.acts -= 1
        self.outside.lull = True
        next(self._acts)(self)

    def before_envelope(self, envelope: Envelope) -> BaseException | None:
        """Listen."""
        self.heard.append(envelope.message)
        return super().before_envelope(envelope)


def _says(person: int, text: str) -> Callable[[_Scripted], object]:
    return lambda world: world.outside.say(world.outside.sources[person], text)


def _rests(lane: int) -> Callable[[_Scripted], object]:
    return lambda world: world.process.rest(lane, lambda key: PassivateLane(key, BY_US))


class _Unheard(_Scripted):
    """A lane's actor dies as it hears, for the first time, that something of its is durable."""

    def before_envelope(self, envelope: Envelope) -> BaseException | None:
        """Strike once."""
        error = super().before_envelope(envelope)
        if type(envelope.message) is not Durable or self.deaths:
            return error
        self.deaths += 1
        return RuntimeError(BY_US)


def test_a_commands_answer_survives_its_lane() -> None:
    """The lane dies with the answer durable and untold: whoever holds the receipt gets the words all the same."""
    world = _Unheard(_says(3, "/status"), lanes=3)
    world.run()
    end = world.process.receipts[0].end
    assert world.deaths == 1
    assert end is not None
    assert (end.outcome, end.reason) == ("answered", "completed")
    assert end.text


class _DiesAtRest(_Scripted):
    """The first lane that is asked to rest dies of it."""

    def before_envelope(self, envelope: Envelope) -> BaseException | None:
        """Strike once."""
        error = super().before_envelope(envelope)
        if type(envelope.message) is not Passivate or self.deaths:
            return error
        self.deaths += 1
        return RuntimeError(BY_US)


def test_a_pass_under_memory_pressure_ends_although_a_lane_dies_of_it() -> None:
    """Two are asked and the most recent stays; one dies when it is asked, which is no answer of its own: the pass is
    through all the same, without waiting for its time, and each lane answers afterwards.
    """
    looks: list[float] = []

    def look(world: _Scripted) -> None:
        world.process.machine.used = 10 * MEMORY_BYTES
        world.process.runtime.look_at_memory()
        looks.append(world.process.clock.monotonic_ms())

    def through(world: _Scripted) -> None:
        memory = world.process.runtime.memory
        looks.append(world.process.clock.monotonic_ms())
        assert (memory.over, memory.asked, memory.released, memory.refused) == (1, 2, 1, 1)

    world = _DiesAtRest(
        *(_says(person, "plain") for person in (0, 1, 2)),
        look,
        through,
        *(_says(person, "plain") for person in (0, 1, 2)),
        lanes=3,
    )
    world.run()
    assert world.deaths == 1
    assert looks[1] - looks[0] < PRESSURE_PASS_MS_MAX


def test_a_lane_at_rest_waits_for_no_slot() -> None:
    """It asked for one, lost its message to /new and went to rest: its next incarnation asks anew, and is served."""
    waiting: list[int] = []
    world = _Scripted(
        _says(0, "never"),
        _says(1, "plain"),
        lambda world: waiting.append(world.process.runtime.slots.waiting),
        _says(1, "/new"),
        lambda world: [world.process.rest(n, lambda key: PassivateLane(key, BY_US)) for n in range(2)],
        lambda world: waiting.append(world.process.runtime.slots.waiting),
        _says(1, "plain"),
        _says(0, "/stop"),
        lanes=2,
        slots=1,
    )
    world.run()
    assert waiting == [1, 0]
    assert world.checked["no_idle_work"] > 0


def test_a_compaction_asked_for_twice_is_done_once() -> None:
    """By an incarnation that doesn't know what the one before had asked: no error, nothing archived again."""
    archives: list[int] = []

    def again(world: _Scripted) -> None:
        [wish] = [message for message in world.heard if type(message) is CompactLane]
        archives.append(sum(type(message) is Compact for message in world.heard))
        world.process.runtime.system.get("upkeep").signal(wish)  # type: ignore[union-attr]

    def look(world: _Scripted) -> None:
        archives.append(sum(type(message) is Compact for message in world.heard))

    growth = Growth(compact_events=12)
    world = _Scripted(*[_says(0, "plain")] * 4, _rests(0), again, look, lanes=1, growth=growth)
    world.run()
    assert archives[0] > 0
    assert archives[1] == archives[0]


def test_a_stop_does_not_guess() -> None:
    """A message whose commit has no outcome when the gateway stops is neither accepted nor refused."""
    receipts = Receipts()
    told: list[str] = []
    receipt = receipts.open("a", "lane", lambda receipt: told.append(receipt.outcome))
    receipts.close()
    assert told == ["pending"]
    assert not receipts.refused
    try:
        receipt.wait(0)
    except GatewayClosedError:
        return
    raise AssertionError("whoever waits is not told")
