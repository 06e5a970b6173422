"""What the engine needs of Pykka. A failure here says what to change when Pykka has changed."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path
from typing import Any

import pykka
from pykka import messages
from pykka._envelope import Envelope

from seriatim.actors.futures import PooledFuture

from .worlds import WAIT_S, Recorder

HINT = "Pykka has changed: run `python -m tests.pykka_suite`, then mend actors/pooled.py or lower the bound on pykka"


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
        raise AssertionError(f"{HINT}: an asker got no error; compare PlainMailbox._handle")
    assert ref.is_alive(), f"{HINT}: an error under ask stopped the actor; compare PlainMailbox._handle"
    ref.tell("x")
    assert ref.actor_stopped.wait(WAIT_S), f"{HINT}: an error under tell didn't stop it; see _handle_failure"
    registered = pykka.ActorRegistry.get_by_urn(ref.actor_urn)
    assert registered is None, f"{HINT}: _handle_failure no longer unregisters; do it in PlainMailbox._handle"


def test_a_ref_asks_its_actor_nothing_but_what_ours_has() -> None:
    """ActorRef reads urn, class, inbox and stop flag of the actor, and puts envelopes into the inbox."""
    source = inspect.getsource(pykka.ActorRef)
    for part in ("actor_urn", "actor_inbox", "actor_stopped", ".put(Envelope("):
        assert part in source, f"{HINT}: ActorRef no longer uses {part}; compare Mailbox.put and Ref"
    assert {"message", "reply_to"} <= set(inspect.signature(Envelope).parameters), (
        f"{HINT}: an Envelope has other fields; Mailbox.put reads message and reply_to"
    )


def test_each_pin_says_what_to_do() -> None:
    """Whoever meets a failing pin is told what changed and where to look: no assertion here is without its text."""
    tree = ast.parse(Path(__file__).read_text())
    pins = [node for function in tree.body[:-1] for node in ast.walk(function) if isinstance(node, ast.Assert)]
    assert len(pins) > 10, f"{HINT}: the pins are gone"
    silent = [node.lineno for node in pins if node.msg is None or "HINT" not in ast.unparse(node.msg)]
    assert silent == [], f"without {HINT!r}: lines {silent}"
