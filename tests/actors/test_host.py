"""The host's own Pykka actors are none of our business, whatever goes wrong in ours."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pykka
import pytest

from seriatim.actors.contained import ContainedMailbox
from seriatim.actors.pooled import PooledActor
from seriatim.actors.system import Ref
from seriatim.errors import ActorError

from .worlds import WAIT_S, Recorder, World

KINDS_OF_ERROR = (ValueError, asyncio.CancelledError, GeneratorExit, KeyboardInterrupt, SystemExit, BaseException)


class Hosted(pykka.ThreadingActor):
    """One of the host's."""

    use_daemon_thread = True

    def on_receive(self, message: Any) -> Any:
        """Echo."""
        return message


@pytest.fixture
def hosts() -> Iterator[list[pykka.ActorRef[Any]]]:
    """Two actors of the host: on a thread of its own, and a plain one of our class."""
    refs: list[pykka.ActorRef[Any]] = [Hosted.start(), Recorder.start()]
    yield refs
    pykka.ActorRegistry.stop_all()


class Faulty(PooledActor):
    """Raises in the hook that it was made for."""

    def __init__(self, where: str, error: BaseException) -> None:
        super().__init__()
        self.where = where
        self.error = error
        self._at("init")

    def _at(self, where: str) -> None:
        if where in self.where:
            raise self.error

    def on_start(self) -> None:
        """See Pykka."""
        self._at("start")

    def on_receive(self, message: Any) -> Any:
        """Raise for "receive", and where a later hook needs it."""
        self._at("receive")
        if message == "stop yourself":
            self.stop()
        if self.where == "failure":
            raise self.error
        return message

    def on_drained(self) -> None:
        """See PooledActor."""
        self._at("drained")

    def on_stop(self) -> None:
        """See Pykka."""
        self._at("stop")

    def on_failure(self, exception_type: Any, exception_value: Any, traceback: Any) -> None:
        """See Pykka."""
        self._at("failure")

    def method(self) -> None:
        """What a proxy calls."""
        raise self.error


def _tell(ref: Ref[Any]) -> None:
    ref.tell("x")


def _ask(ref: Ref[Any]) -> None:
    ref.ask("x", block=False)


def _proxy(ref: Ref[Any]) -> None:
    ref.proxy().method()


def _stop_itself(ref: Ref[Any]) -> None:
    ref.tell("stop yourself")


FAILURES: dict[str, tuple[str, Callable[[Ref[Any]], object]]] = {
    "handler, told": ("receive", _tell),
    "handler, asked": ("receive", _ask),
    "proxied call": ("nowhere", _proxy),
    "runtime mail": ("receive", lambda ref: ref.signal("x")),
    "on_start": ("start", _tell),
    "on_drained": ("drained", _tell),
    "on_stop": ("stop", lambda ref: ref.stop()),
    "on_stop, at once": ("stop", lambda ref: ref.stop_now()),
    "on_stop, by itself": ("stop", _stop_itself),
    "on_failure": ("failure", _tell),
    "on_failure and handler": ("failure receive", _tell),
}


def untouched(hosts: list[pykka.ActorRef[Any]]) -> None:
    """All of them live, are registered, and answer."""
    assert [ref.is_alive() for ref in hosts] == [True] * len(hosts)
    assert set(pykka.ActorRegistry.get_all()) == set(hosts)
    assert [ref.ask("still there", timeout=WAIT_S) for ref in hosts] == ["still there"] * len(hosts)


@pytest.mark.parametrize("kind_of_error", KINDS_OF_ERROR)
@pytest.mark.parametrize("failure", FAILURES)
def test_no_failure_of_ours_reaches_the_hosts_actors(
    world: World, hosts: list[pykka.ActorRef[Any]], failure: str, kind_of_error: type[BaseException]
) -> None:
    """Every kind of error, in every hook, by every way in: one crash of ours, and the host's actors go on (B141)."""
    if world.kind == "simulation" and kind_of_error is KeyboardInterrupt:
        return  # this is the main thread: a Ctrl-C is the test runner's; test_containment has that case
    where, cause = FAILURES[failure]
    ref = world.start(Faulty, where, kind_of_error("ours"))
    try:
        cause(ref)
    except ActorError:
        assert where in ("start", "drained"), "it was dead before the cause came"
    crash = world.crash()
    assert type(crash.error) is kind_of_error
    assert not ref.is_alive()
    untouched(hosts)


@pytest.mark.parametrize("kind_of_error", KINDS_OF_ERROR)
def test_an_error_in_init_reaches_the_starter_only(
    world: World, hosts: list[pykka.ActorRef[Any]], kind_of_error: type[BaseException]
) -> None:
    """__init__ runs on the starter's thread, so its error is the starter's, whatever it is."""
    with pytest.raises(kind_of_error):
        world.start(Faulty, "init", kind_of_error("ours"))
    assert len(world.system) == 0
    untouched(hosts)


@pytest.mark.parametrize("kind_of_error", [ValueError, SystemExit, asyncio.CancelledError])
def test_failing_reports_touch_nobody(
    world: World, hosts: list[pykka.ActorRef[Any]], kind_of_error: type[BaseException]
) -> None:
    """on_crash and on_dead_letter of the system may raise: logged, and nothing else stops."""

    def fail(_: object) -> None:
        raise kind_of_error("ours")

    world.system._on_crash = fail
    world.system._on_dead_letter = fail
    first, second = world.start(Faulty, "receive", ValueError()), world.start(Recorder)
    world.run()
    first.tell("x")
    first.signal("lost with it")
    second.tell("x")
    second.stop_now()
    world.run()
    assert world.start(Recorder).ask("x", timeout=WAIT_S) == "x"
    untouched(hosts)


def test_stopping_all_of_ours_stops_none_of_theirs(world: World, hosts: list[pykka.ActorRef[Any]]) -> None:
    """stop_all is the system's; Pykka's registry knows nothing of it."""
    for _ in range(5):
        world.start(Recorder)
    stopped = world.system.stop_all(now=True)
    world.run()
    stopped.get(timeout=WAIT_S)
    untouched(hosts)


def test_stopping_all_of_theirs_stops_none_of_ours(world: World, hosts: list[pykka.ActorRef[Any]]) -> None:
    """The host may empty Pykka's registry at any time; our actors are not in it."""
    ref = world.start(Recorder)
    pykka.ActorRegistry.stop_all()
    assert isinstance(ref.actor_inbox, ContainedMailbox)
    assert ref.ask("x", timeout=WAIT_S) == "x"
