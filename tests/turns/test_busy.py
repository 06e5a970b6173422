"""What becomes of a message while a turn runs: interrupt, steer, refuse."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from seriatim import GatewayConfig
from seriatim.batch import Rules
from seriatim.config import QueueConfig
from seriatim.effects import CancelTurn, Finished, Nack, RunTurn, WishAnswered
from seriatim.turn import Delegate, DelegationEnded, Steer, TurnAsks
from tests.core.bench import Bench
from tests.gateway.bots import bot, run, until


def busy(policy: Any) -> Bench:
    """A lane whose turn for "one" runs."""
    bench = Bench(Rules(busy=policy))
    bench.said("one")
    return bench


def ends(bench: Bench) -> list[str]:
    """How the bound session's turns have ended."""
    return [event.data["reason"]["kind"] for event in bench.session_events() if event.type == "turn/end"]


def asks(bench: Bench, wish: Any, token: str = "1") -> None:
    """The running agent wants something."""
    running = bench.gate.durable.running
    assert running is not None
    bench.tell(TurnAsks(running.turn, running.generation, token, wish))


def test_interrupt_ends_the_running_turn_with_the_message_that_it_yields_to() -> None:
    """One commit: the follow-up is accepted, the turn aborted and its message answered, the next turn claimed."""
    bench = busy("interrupt")
    one = bench.lane_events("inbox/accepted")[0].data["id"]
    bench.forget()
    two = bench.say("two")
    assert bench.offered is not None
    types = [event.type for part in bench.offered.parts for event in part.events]
    assert {"inbox/accepted", "turn/end", "inbox/answered", "inbox/claimed", "turn/start"} <= set(types)
    bench.drain()
    assert ends(bench) == ["aborted"]
    [end] = [event for event in bench.session_events() if event.type == "turn/end"]
    assert end.data["reason"] == {"kind": "aborted", "detail": "interrupt"}
    assert [(end.id, end.reason) for end in bench.all(Finished)] == [(one, "aborted")]
    assert bench.all(CancelTurn)[0].why == "interrupt"
    assert [claim["id"] for turn in bench.all(RunTurn) for claim, _ in turn.claims] == [two]
    assert bench.fold() == bench.gate.durable


def test_what_was_interrupted_stays_in_the_conversation() -> None:
    """Nothing said is lost: the interrupted message and what had been shown of its answer are in the next history."""
    bench = busy("interrupt")
    bench.now.streamed = lambda lane, generation: "It beg" if generation == 1 else ""
    bench.said("two")
    texts = [event.data["text"] for event in bench.session_events() if "text" in event.data]
    assert texts == ["one", "It beg", "two"]


@pytest.mark.parametrize("what", ["wake", "queue item runs", "queue item next", "delegation"])
def test_interrupt_waits_where_it_must(what: str) -> None:
    """Wakes interrupt nothing; a /queue item's turn, one that stands before, and background work aren't broken into."""
    if what == "queue item runs":
        bench = Bench(Rules(busy="interrupt"))
        bench.said("/queue one")
    else:
        bench = busy("interrupt")
    if what == "queue item next":
        bench.said("/queue first")
    if what == "delegation":
        asks(bench, Delegate("work"))
    if what == "wake":
        bench.wake()
    else:
        bench.said("two")
    assert ends(bench) == []
    if what == "delegation":  # and once that is over, it does
        [work] = bench.gate.durable.delegations
        bench.tell(DelegationEnded(work.id, "completed", ""))
        bench.said("three")
        assert ends(bench) == ["aborted"]


def test_steered_messages_are_the_running_turns_own() -> None:
    """What the agent is handed is durably claimed by its turn first, stands in it, and shares its end."""
    bench = busy("steer")
    two, three = bench.said("two"), bench.said("three")
    bench.forget()
    asks(bench, Steer())
    [answer] = bench.all(WishAnswered)
    assert [data["text"] for data, _ in answer.value] == ["two", "three"]
    assert bench.fold().queue == []
    said = [
        (event.data["turn"], event.data["text"]) for event in bench.session_events() if event.type == "user/message"
    ]
    assert said == [(1, "one"), (1, "two"), (1, "three")]
    bench.answer()
    assert (bench.outcome(two), bench.outcome(three)) == ("merged", "merged")
    assert bench.fold() == bench.gate.durable


def test_an_interrupted_turn_keeps_what_was_steered_into_it() -> None:
    """After a crash the turn runs again for all of its messages, and the conversation holds each once."""
    bench = busy("steer")
    bench.said("two")
    asks(bench, Steer())
    bench.forget()
    bench.reopen()
    assert [claim["text"] for turn in bench.all(RunTurn) for claim, _ in turn.claims] == ["one", "two"]
    assert [event.data["text"] for event in bench.session_events() if event.type == "user/message"] == ["one", "two"]


@pytest.mark.parametrize(
    ("policy", "waits"), [("queue", "two"), ("steer", "/queue two"), ("steer", ""), ("steer", "role")]
)
def test_only_an_equals_follow_up_is_steered(policy: str, waits: str) -> None:
    """An agent gets nothing under another policy, nor /queue items, wakes, or what others are authorised for."""
    bench = busy(policy)
    if waits == "role":
        bench.said("two", role_authorized=True)
    elif waits:
        bench.said(waits)
    else:
        bench.wake()
    bench.forget()
    asks(bench, Steer())
    assert [answer.value for answer in bench.all(WishAnswered)] == [()]
    assert len(bench.fold().queue) == 1


def test_an_agent_that_never_asks_leaves_the_follow_up_waiting() -> None:
    """With "steer", a follow-up that nobody takes has the next turn."""
    bench = busy("steer")
    two = bench.said("two")
    bench.answer()
    running = bench.gate.durable.running
    assert running is not None
    assert running.ids == (two,)


def test_refuse_takes_nothing_while_there_is_work() -> None:
    """A follow-up is refused, typed, and leaves no trace; commands, wakes and an idle lane's message are taken."""
    bench = busy("refuse")
    two = bench.said("two")
    assert [(no.id, no.reason) for no in bench.all(Nack)] == [(two, "busy")]
    assert len(bench.lane_events("inbox/accepted")) == 1
    bench.said("/status")
    bench.wake()
    bench.answer()
    bench.answer()
    bench.said("three")
    assert len(bench.lane_events("inbox/accepted")) == 4
    assert len(bench.all(Nack)) == 1


def test_a_running_agent_is_steered_through_the_gateway(tmp_path: Path) -> None:
    """An async agent between its steps gets what people said meanwhile, and answers all of it."""

    async def scenario() -> None:
        begun: list[Any] = []

        async def agent(turn: Any) -> str:
            begun.append(turn)
            while len(turn.events) < 2:
                await turn.steering()
            return " + ".join(claim.text for claim in turn.events)

        config = GatewayConfig(queue=QueueConfig(busy="steer"))
        async with bot(agent, tmp_path, config=config) as world:
            world.say("one")
            await until(lambda: begun)
            world.say("two")
            assert await world.heard(1) == ["one + two"]
            await world.at_rest()
            assert len(begun) == 1

    run(scenario())


def test_who_is_refused_is_told(tmp_path: Path) -> None:
    """The person hears why nothing happens; the receipt says busy."""

    async def scenario() -> None:
        let_go: list[bool] = []

        async def agent(turn: Any) -> str:
            await until(lambda: let_go)
            return "done"

        config = GatewayConfig(queue=QueueConfig(busy="refuse"))
        async with bot(agent, tmp_path, config=config) as world:
            first = await world.accept("one")
            second = await world.accept("two")
            assert (second.outcome, second.reason) == ("refused", "busy")
            world.say("one", chat_id="9")
            await until(lambda: world.health["turns_running"] == 2)
            world.say("two", chat_id="9")
            assert "say that again" in (await world.heard(1, "9"))[0]
            let_go.append(True)
            assert (await first.answered()).text == "done"

    run(scenario())
