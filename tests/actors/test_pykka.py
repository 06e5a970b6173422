"""What the engine needs of Pykka. A failure here says what to change when Pykka has changed."""

from __future__ import annotations

import inspect
from typing import Any

import pykka
from pykka import messages

from seriatim.actors.futures import PooledFuture

from .worlds import WAIT_S, Recorder

HINT = "Pykka has changed: see actors/pooled.py"


def test_the_implementor_hooks_are_there() -> None:
    """Pykka documents three hooks for implementors of new actor types, and calls no others of ours."""
    for hook in ("_create_actor_inbox", "_create_future", "_start_actor_loop"):
        assert hook in pykka.Actor.__abstractmethods__, f"{HINT}: {hook} is no longer an abstract hook"


def test_start_asks_nothing_but_the_hooks() -> None:
    """Actor.start makes the actor, registers its ref and starts the loop; PooledActor relies on that order."""
    source = inspect.getsource(pykka.Actor.start)
    made, registered, started = (source.index(part) for part in ("cls(", "register(", "_start_actor_loop("))
    assert made < registered < started, f"{HINT}: Actor.start has another order"


def test_pykkas_init_sets_what_ours_sets() -> None:
    """PooledActor replaces Actor.__init__: the same attributes must come out of it."""

    class Threaded(pykka.ThreadingActor):
        pass

    ours = set(vars(Recorder()))
    theirs = set(vars(Threaded()))
    assert theirs <= ours, (
        f"{HINT}: Actor.__init__ now also sets {sorted(theirs - ours)}; set it in PooledActor.__init__"
    )


def test_the_loop_handles_the_cases_that_pykkas_loop_handles() -> None:
    """PlainMailbox re-implements the running loop: answer, error under ask, failure, BaseException."""
    source = inspect.getsource(pykka.Actor._actor_loop_running)
    for part in ("_handle_receive", "reply_to.set(", "set_exception", "_handle_failure", "on_failure", "stop_all"):
        assert part in source, f"{HINT}: the loop no longer uses {part}; compare PlainMailbox._handle"
    assert callable(pykka.Actor._stop), f"{HINT}: _stop is gone; PlainMailbox calls it on a BaseException"


def test_the_messages_with_a_meaning_are_known() -> None:
    """_handle_receive treats these classes specially; SPECIAL in contained.py must name them all."""
    source = inspect.getsource(pykka.Actor._handle_receive)
    named = {name for name in dir(messages) if f"messages.{name}" in source}
    assert named == {"_ActorStop", "ProxyCall", "ProxyGetAttr", "ProxySetAttr"}, f"{HINT}: {sorted(named)}"


def test_the_future_leaves_room_for_ours() -> None:
    """PooledFuture uses _get_hook as ThreadingFuture does."""
    assert vars(PooledFuture())["_get_hook"] is None, f"{HINT}: Future no longer has _get_hook"


def test_a_plain_actor_keeps_pykkas_rules() -> None:
    """An error under ask goes to the asker alone, an error under tell stops the actor, and the registry forgets it."""

    class Plain(Recorder):
        def on_receive(self, message: Any) -> Any:
            raise KeyError(message)

    ref = Plain.start()
    for _ in range(2):
        try:
            ref.ask("x", timeout=WAIT_S)
        except KeyError:
            continue
        raise AssertionError("the asker got no error")
    assert ref.is_alive()
    ref.tell("x")
    assert ref.actor_stopped.wait(WAIT_S)
    assert pykka.ActorRegistry.get_by_urn(ref.actor_urn) is None
