"""/restart and who may use it."""

from __future__ import annotations

import pytest

from seriatim.batch import Rules
from seriatim.config import parse_config
from seriatim.effects import AckDuplicate, RestartGateway
from seriatim.errors import ConfigError
from seriatim.model import SessionSource
from seriatim.operators import OPERATORS_ONLY_TEXT, is_operator
from tests.core.bench import Bench
from tests.core.test_lanes import replies

OPERATORS = frozenset({"sim:root", "signal:uuid-1"})


def test_only_an_operator_restarts() -> None:
    """An operator's /restart leaves with its commit's permit; anybody else's is refused, also one who took the name."""
    bench = Bench(Rules(operators=OPERATORS))
    bench.said("/restart", user="mallory", user_name="root")
    assert replies(bench)[-1] == OPERATORS_ONLY_TEXT
    assert bench.all(RestartGateway) == []
    bench.said("/restart", user="root")
    assert len(bench.all(RestartGateway)) == 1


def test_a_redelivered_restart_does_nothing() -> None:
    """The platform gives the command again after the restart that it made: it was done already."""
    bench = Bench(Rules(operators=OPERATORS))
    bench.tell(bench.message("/restart", user="root", key="k"))
    bench.reopen()
    bench.forget()
    bench.say("/restart", user="root", key="k")
    bench.drain()
    assert bench.all(RestartGateway) == []
    assert len(bench.all(AckDuplicate)) == 1


def test_operators_are_known_by_stable_ids() -> None:
    """Platform and id, or the alternative id; never a bot, never another platform's equal id."""
    assert is_operator(SessionSource("sim", "1", user_id="root"), OPERATORS)
    assert is_operator(SessionSource("signal", "1", user_id="+49", user_id_alt="uuid-1"), OPERATORS)
    assert not is_operator(SessionSource("signal", "1", user_id="root"), OPERATORS)
    assert not is_operator(SessionSource("sim", "1", user_id="root", is_bot=True), OPERATORS)
    assert not is_operator(SessionSource("sim", "1"), OPERATORS)


def test_operators_are_configured_with_their_platform() -> None:
    """A bare name is refused: it would be anybody's on some platform."""
    assert parse_config({"operators": ["irc:alice"]}, {}).operators == ("irc:alice",)
    with pytest.raises(ConfigError, match="operators"):
        parse_config({"operators": ["alice"]}, {})


@pytest.mark.parametrize(
    ("entries", "told"),
    [
        (["irc:a", "bob"], 'must be a list of "platform:id"; entry 2, "bob", isn\'t one'),
        ([5], 'must be a list of "platform:id"; entry 1, 5, isn\'t one'),
        ("irc:a", 'must be a list of "platform:id", not "irc:a"'),
    ],
)
def test_the_wrong_operator_is_named(entries: object, told: str) -> None:
    """One entry is to blame, and the line says which; where the list is no list, that."""
    with pytest.raises(ConfigError) as refused:
        parse_config({"operators": entries}, {})
    assert refused.value.reason == told
