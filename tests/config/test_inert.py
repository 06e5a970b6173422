"""Settings of older gateways: taken, without effect, told once; and what a home channel may be."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from seriatim import GatewayConfig, Platform
from seriatim.config import parse_config
from seriatim.configfile import load_config
from seriatim.context import HomeChannel
from seriatim.errors import ConfigError

OLD = """
[session_reset]
mode = "daily"
at_hour = 4
[reset_by_platform.telegram]
mode = "idle"
"""


def test_old_timers_are_inert_and_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Timer settings of file and environment change nothing; one warning names each of them."""
    file = tmp_path / "seriatim.toml"
    file.write_text(OLD)

    made = load_config(file, {"SERIATIM_SESSION_RESET__IDLE_MINUTES": "5"})

    assert made == GatewayConfig()
    [record] = caplog.records
    assert record.levelno == logging.WARNING
    for key in ("session_reset.mode", "session_reset.at_hour", "reset_by_platform.telegram.mode", "idle_minutes"):
        assert key in record.getMessage()


def test_without_old_timers_nothing_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """A configuration of today draws no warning."""
    load_config(environ={})

    assert caplog.records == []


def test_home_channels() -> None:
    """A platform's home is a chat's id, or a table with id and name."""
    made = parse_config({"home_channels": {"telegram": "-100", "irc": {"chat_id": "#bots", "name": "Bots"}}}, {})

    assert made.home_channels == (
        HomeChannel(Platform("telegram"), "-100"),
        HomeChannel(Platform("irc"), "#bots", "Bots"),
    )


@pytest.mark.parametrize(
    ("told", "key"),
    [
        ({"irc": 5}, "home_channels.irc"),
        ({"irc": {"name": "x"}}, "home_channels.irc"),
        ({"irc": {"chat_id": "c", "nam": "x"}}, "home_channels.irc.nam"),
        ({"irc": {"chat_id": "c", "name": 1}}, "home_channels.irc.name"),
        ({"": "c"}, "home_channels."),
        ("x", "home_channels"),
    ],
)
def test_what_is_no_home_channel(told: object, key: str) -> None:
    """Whatever is wrong is refused with its dotted key."""
    with pytest.raises(ConfigError) as refused:
        parse_config({"home_channels": told}, {})

    assert refused.value.key == key
