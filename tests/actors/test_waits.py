"""No actor waits: what would hang is an error at once, and it names who waits for whom."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from seriatim.actors.pooled import PooledActor
from seriatim.actors.system import Ref
from seriatim.errors import BlockingAskError

from .worlds import WAIT_S, Recorder, World, log_of


class Asker(PooledActor):
    """Asks the actor that it was given, blocking, for whatever it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.other: Ref[Any] | None = None

    def on_receive(self, message: Any) -> Any:
        """Take the other one, or ask it."""
        if isinstance(message, Ref):
            self.other = message
            return None
        assert self.other is not None
        return self.other.ask(message, timeout=WAIT_S)


def test_an_actor_that_asks_itself_is_refused(world: World) -> None:
    """A -> A: the error names the actor twice, and comes without waiting (B136)."""
    ref = world.start(Asker, name="alone")
    ref.tell(ref)
    with pytest.raises(BlockingAskError) as refused:
        ref.ask("x", timeout=WAIT_S)
    assert (refused.value.asker, refused.value.target) == ("Asker 'alone'", "Asker 'alone'")


def test_a_circle_of_asks_is_refused_at_its_first_step(world: World) -> None:
    """A -> B -> A: the first blocking ask inside an actor is refused already, so no circle can close (B136)."""
    first, second = world.start(Asker, name="first"), world.start(Asker, name="second")
    first.tell(second)
    second.tell(first)
    with pytest.raises(BlockingAskError, match=r"Asker 'first' may not block on an answer from Asker 'second'"):
        first.ask("x", timeout=WAIT_S)
    crash = world.crash()
    assert crash.name == "first"
    assert isinstance(crash.error, BlockingAskError)
    assert second.is_alive()


@pytest.mark.parametrize("how", ["stop", "pykka's stop", "stop_now", "stop_all"])
def test_stop_and_wait_from_the_start_hook_is_refused(world: World, how: str) -> None:
    """An actor that waits in on_start for its own stop, or everybody's, gets an error that names it, no hang (B136)."""
    waits: dict[str, Callable[[Starter], object]] = {
        "stop": lambda me: me.own_ref.stop(block=True),
        "pykka's stop": lambda me: me.actor_ref.stop(block=True, timeout=WAIT_S),
        "stop_now": lambda me: me.own_ref.stop_now().get(),
        "stop_all": lambda me: world.system.stop_all().get(),
    }

    class Starter(PooledActor):
        def on_start(self) -> None:
            waits[how](self)

    ref = world.start(Starter, name="impatient")
    crash = world.crash()
    assert (crash.phase, crash.name) == ("start", "impatient")
    assert isinstance(crash.error, BlockingAskError)
    assert "'impatient'" in str(crash.error)
    assert not ref.is_alive()


def test_a_settled_answer_may_be_taken_inside_an_actor(world: World) -> None:
    """Only blocking is refused: a future that has its value gives it to an actor as to anybody."""
    answered = world.start(Recorder).ask("x", block=False)
    world.run()
    assert answered.get(timeout=WAIT_S) == "x"
    ref = world.start(Recorder)
    assert ref.ask(lambda me: answered.get(), timeout=WAIT_S) == "x"


def test_an_actor_answers_another_by_callback(world: World) -> None:
    """What the error advises works: the answer comes as a message, by the future's callback, and nobody waits."""
    answering, asking = world.start(Recorder), world.start(Recorder)
    come = threading.Event()

    def ask(_: Any) -> None:
        def on_answer(future: Any) -> None:
            asking.signal(("answer", future.get()))
            asking.signal(lambda me: come.set())

        answering.ask("question", block=False).add_done_callback(on_answer)

    asking.tell(ask)
    world.wait(come)
    assert log_of(asking) == [("answer", "question")]
