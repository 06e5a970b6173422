"""Adapters by the name of their type."""

from __future__ import annotations

import pytest

from seriatim.adapters.irc import IrcAdapter
from seriatim.adapters.registry import build
from seriatim.adapters.terminal import TerminalAdapter
from seriatim.errors import ConfigError


def test_each_type_is_built_from_its_table() -> None:
    """The options reach the adapter; nothing is connected by building it."""
    irc = build("irc", "net", {"host": "irc.example", "nick": "bot", "channels": ["#a"], "port": 6667})
    assert isinstance(irc, IrcAdapter)
    assert (irc.account, irc.options.channels, irc.options.port) == ("bot@irc.example", ("#a",), 6667)
    assert build("irc", "net", {"host": "h", "nick": "n", "account": "main"}).account == "main"
    assert isinstance(build("terminal", "here", {}), TerminalAdapter)


@pytest.mark.parametrize(
    ("kind", "options", "key", "says"),
    [
        ("ircc", {}, "adapters.net.type", "did you mean irc?"),
        ("carrier-pigeon", {}, "adapters.net.type", "there are: irc, terminal"),
        ("irc", {"hots": "h", "nick": "n"}, "adapters.net.hots", "did you mean adapters.net.host?"),
        ("irc", {"nick": "n"}, "adapters.net.host", "is missing"),
        ("irc", {"host": "h", "nick": "n", "port": "x"}, "adapters.net.port", "must be"),
        ("irc", {"host": "h", "nick": "n", "addressed": "never"}, "adapters.net.addressed", "must be"),
        ("terminal", {"promt": ""}, "adapters.net.promt", "did you mean adapters.net.prompt?"),
    ],
)
def test_what_is_wrong_is_named(kind: str, options: dict[str, object], key: str, says: str) -> None:
    """An unknown type, an unknown key and a wrong value each name their dotted key and what to do."""
    with pytest.raises(ConfigError) as caught:
        build(kind, "net", options)
    assert caught.value.key == key
    assert says in caught.value.reason
