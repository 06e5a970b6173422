"""Which adapter a configuration's ``type`` names, and how it is made of its options."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

import attrs

from seriatim.adapters.base import Adapter
from seriatim.adapters.irc import IrcAdapter
from seriatim.adapters.irc_options import IrcOptions
from seriatim.adapters.terminal import TerminalAdapter
from seriatim.errors import ConfigError
from seriatim.settings import build as build_settings
from seriatim.settings import setting, text, unknown_key

T = TypeVar("T")

Factory = Callable[[str, Mapping[str, object]], Adapter]
"""Takes the dotted key of the options ("adapters.<name>"), for errors, and the options as written."""


@attrs.frozen(kw_only=True)
class TerminalOptions:
    """The terminal as a platform."""

    prompt: str = setting("> ", text(empty=True), doc="Shown on a terminal when it is the user's turn.")


def _irc(at: str, options: Mapping[str, object]) -> Adapter:
    return IrcAdapter(build_settings(IrcOptions, options, at=at))


def _terminal(at: str, options: Mapping[str, object]) -> Adapter:
    return TerminalAdapter(prompt=build_settings(TerminalOptions, options, at=at).prompt)


FACTORIES: Mapping[str, Factory] = {"irc": _irc, "terminal": _terminal}
"""The adapters that come with the library, by the configuration's ``type``."""


def build(
    kind: str, name: str, options: Mapping[str, object], *, factories: Mapping[str, Factory] = FACTORIES
) -> Adapter:
    """Make the adapter of one ``[adapters.<name>]`` table; nothing is connected yet.

    Args:
        kind: the table's ``type``.
        name: the table's name.
        options: its other keys, as written.
        factories: the known types; a host adds its own.

    Raises:
        ConfigError: an unknown type, or an option that is unknown, missing or wrong, with its dotted key.

    """
    at = f"adapters.{name}"
    if kind not in factories:
        meant = unknown_key(kind, factories).reason.partition("; ")[2]
        known = ", ".join(sorted(factories))
        raise ConfigError(f"{at}.type", f'no adapter is called "{kind}"; {meant or f"there are: {known}"}')
    return factories[kind](at, options)
