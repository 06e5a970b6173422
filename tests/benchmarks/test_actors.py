"""The actors' benchmark runs, says who is missing, and its machine-independent figures hold."""

from __future__ import annotations

import importlib.util

import pytest

from benchmarks.actor_memory import in_child
from benchmarks.actor_peers import PEERS, MissingError, optional
from benchmarks.actors import contenders, throughput


def test_every_contender_does_the_work_or_says_why_not() -> None:
    """Each contender counts all its messages; one of the bench extra that isn't installed is named with the way in."""
    told, missing = throughput(actors=8, per_actor=40, rounds=1)

    assert set(told) | set(missing) == set(contenders())
    assert min(told.values()) > 0
    extra = {"autogen": "autogen_core", "thespian": "thespian"}
    assert set(missing) == {name for name, module in extra.items() if importlib.util.find_spec(module) is None}
    assert all("pip install -e '.[bench]'" in text for text in missing.values())
    assert set(PEERS) <= set(contenders())


def test_a_missing_peer_is_named() -> None:
    """An optional import that fails says which package is missing and how to get it."""
    with pytest.raises(MissingError, match=r"no_such_peer is not installed: pip install"):
        optional("no_such_peer.actors")


def test_an_idle_actor_is_small() -> None:
    """A bare idle actor, registry and name included, costs at most 1600 resident bytes."""
    assert in_child("idle", 20_000) <= 1600


def test_an_idle_session_is_small() -> None:
    """A lane after its first turn, ready to be put to rest, costs at most 4096 bytes of actor, gate and state."""
    assert in_child("sessions", 1000)["session"] <= 4096
