"""What people are told of the commands, and the answers to those that there aren't."""

from __future__ import annotations

import pytest

from seriatim.catalog import CATALOG, help_text, unknown_text
from seriatim.commands import COMMANDS
from tests.core.bench import Bench
from tests.core.test_lanes import replies


def test_every_command_is_told() -> None:
    """The catalog lists exactly the commands that there are."""
    assert CATALOG.keys() == COMMANDS.keys()


@pytest.mark.parametrize("prefix", ["/", "!", "bot:"])
def test_help_is_written_as_one_would_type_it(prefix: str) -> None:
    """/help names every command with the prefix of its own adapter, and no other prefix."""
    text = help_text(prefix)
    assert all(f"{prefix}{name}" in text for name in CATALOG)
    assert prefix == "/" or "/" not in text


def test_help_with_a_name_tells_of_that_one() -> None:
    """/help stop tells more of /stop, with or without its prefix; a name that there isn't gets the list."""
    assert help_text("!", "!STOP") == help_text("!", "stop") != help_text("!")
    assert help_text("!", "stop").startswith("!stop ends")
    assert help_text("!", "nothing") == help_text("!")


def test_an_unknown_command_gets_the_nearest_name() -> None:
    """A typing error is answered with what was meant; what is like nothing, without a guess."""
    assert "Did you mean !queue?" in unknown_text("!", "qeue")
    assert "mean" not in unknown_text("!", "xyzzy")


def test_an_unknown_command_never_becomes_a_prompt() -> None:
    """An unknown command is answered and nothing else: no turn, nothing in the session."""
    bench = Bench()
    bench.said("/stpo now")
    assert "Did you mean /stop?" in replies(bench)[0]
    assert bench.session_events() == []
    assert bench.gate.durable.running is None
