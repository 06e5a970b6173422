"""What readers of a log get can't be changed, and is still JSON."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from seriatim.errors import LosslessJsonError
from seriatim.events import Event
from seriatim.frozen import FrozenDict, FrozenList, freeze, snapshot, thaw
from seriatim.storage.event_log.values import SessionEvent, freeze_event

DATA: dict[str, Any] = {"a": [1, {"b": [None, 2.5]}], "c": {"d": "é"}, "e": []}

CHANGES: list[Callable[[Any], Any]] = [
    lambda v: v.__setitem__("a", 1),
    lambda v: v.__delitem__("a"),
    lambda v: v.pop("a"),
    lambda v: v.popitem(),
    lambda v: v.update(a=1),
    lambda v: v.setdefault("z", 1),
    lambda v: v.clear(),
    lambda v: v.__ior__({"z": 1}),
    lambda v: v["a"].append(1),
    lambda v: v["a"].__setitem__(0, 1),
    lambda v: v["a"].__delitem__(0),
    lambda v: v["a"].extend([1]),
    lambda v: v["a"].insert(0, 1),
    lambda v: v["a"].pop(),
    lambda v: v["a"].remove(1),
    lambda v: v["a"].clear(),
    lambda v: v["a"].sort(),
    lambda v: v["a"].reverse(),
    lambda v: v["a"].__iadd__([1]),
    lambda v: v["a"].__imul__(2),
    lambda v: v["a"][1]["b"].append(1),
    lambda v: v["c"].__setitem__("d", 1),
]


@pytest.mark.parametrize("change", CHANGES, ids=range(len(CHANGES)))
def test_nothing_frozen_can_be_changed(change: Callable[[Any], Any]) -> None:
    """Every way to change a dict or list, at any depth, is refused and changes nothing."""
    frozen = freeze(DATA)

    with pytest.raises(TypeError, match="can't be changed"):
        change(frozen)

    assert frozen == DATA


def test_frozen_data_is_still_json() -> None:
    """Frozen data equals the original, has the same text, and its copies are ordinary and apart."""
    frozen = freeze(DATA)

    assert (frozen, json.dumps(frozen)) == (DATA, json.dumps(DATA))
    for copied in (copy.deepcopy(frozen), thaw(frozen)):
        assert type(copied) is dict
        copied["a"][1]["b"].append(3)
        assert frozen == DATA
    assert type(copy.copy(frozen)) is dict
    assert type(copy.copy(frozen["a"])) is list
    assert type(copy.deepcopy(frozen["a"])) is list
    assert (type(pickle.loads(pickle.dumps(frozen))), pickle.loads(pickle.dumps(frozen))) == (FrozenDict, DATA)


def test_a_snapshot_keeps_the_moment() -> None:
    """A later change of the caller's data doesn't reach the snapshot, and frozen data isn't copied again."""
    mine = copy.deepcopy(DATA)
    frozen = snapshot("x", mine)
    mine["a"][1]["b"].append("late")

    assert frozen == DATA
    assert snapshot("x", frozen) is frozen
    assert type(frozen["a"]) is FrozenList


def test_a_snapshot_refuses_what_json_would_change() -> None:
    """Data that isn't lossless JSON is refused by the event's type."""
    with pytest.raises(LosslessJsonError, match="some/type"):
        freeze_event(Event("some/type", 0, 0, {"a": (1,)}))
    with pytest.raises(LosslessJsonError, match="some/type"):
        freeze_event(Event("some/type", 0, 0, []))  # type: ignore[arg-type]


def test_a_session_event_is_an_event_that_stays() -> None:
    """It equals an event of the same fields, either way round, has a hash, and can't be changed."""
    plain, kept = Event("x", 1, 2, {"a": 1}), freeze_event(Event("x", 1, 2, {"a": 1}))

    assert plain == kept
    assert kept == plain
    assert kept == SessionEvent("x", 1, 2, {"a": 1})
    assert kept != Event("x", 1, 2, {"a": 2})
    assert kept != 1
    assert len({kept, freeze_event(plain)}) == 1
    with pytest.raises(AttributeError):
        kept.seq = 7  # type: ignore[misc]
