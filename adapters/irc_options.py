"""What an operator sets for one IRC account."""

from __future__ import annotations

from typing import Any, Literal

from attrs import Attribute, field, frozen

from seriatim.errors import InvalidInputError

CHANNEL_MARKS = ("#", "&", "+", "!")


def _one_word(instance: object, attribute: Attribute[str], value: str) -> None:
    del instance
    if not value or not value.isprintable() or " " in value or value.startswith(":"):
        raise InvalidInputError(attribute.name, f"one word is needed, not {value!r}")


def _one_line(instance: object, attribute: Attribute[str], value: str) -> None:
    del instance
    if not value.isprintable():
        raise InvalidInputError(attribute.name, "one printable line is needed")


def _above_zero(instance: object, attribute: Attribute[Any], value: float) -> None:
    del instance
    if not value > 0:
        raise InvalidInputError(attribute.name, f"a number above 0 is needed, not {value!r}")


def _port(instance: object, attribute: Attribute[int], value: int) -> None:
    del instance
    if not 0 < value < 65536:
        raise InvalidInputError(attribute.name, f"a port from 1 to 65535 is needed, not {value!r}")


def _channels(instance: object, attribute: Attribute[tuple[str, ...]], value: tuple[str, ...]) -> None:
    del instance
    for entry in value:
        name, _, key = entry.partition(" ")
        if not name.startswith(CHANNEL_MARKS) or "," in entry or " " in key or not entry.isprintable():
            raise InvalidInputError(attribute.name, f'"#name" or "#name key" is needed, not {entry!r}')


@frozen
class IrcOptions:
    """One account on one IRC network.

    ``host``, ``port``, ``tls``: the server; the certificate is verified unless ``tls_verify`` is off.
    ``nick``: the wanted nick; while it is taken, the bot uses it with underscores and tries to get it back.
    ``password``: the server's (PASS). ``channels``: "#name" or "#name key". ``account``: names this account to
    the runtime and in every key of its conversations, so it should outlive a change of nick; default nick@host.
    ``addressed``: whether the bot takes every line of a channel ("always") or those that begin with its nick.
    ``lines_per_s`` and ``burst``: outbound pace, messages per second once ``burst`` were sent at once.
    ``reconnect_min_ms`` and ``reconnect_max_ms``: the wait before connecting again grows between them.
    ``ping_timeout_s``: silence after which the connection counts as dead, and the bound of each handshake.
    ``regain_s``: how often the wanted nick, or a channel that refused, is tried again.
    """

    host: str = field(validator=_one_word)
    nick: str = field(validator=_one_word)
    port: int = field(default=6697, validator=_port)
    tls: bool = True
    tls_verify: bool = True
    password: str = field(default="", repr=False, validator=_one_line)
    channels: tuple[str, ...] = field(default=(), converter=tuple, validator=_channels)
    username: str = field(default="seriatim", validator=_one_word)
    realname: str = field(default="Seriatim", validator=_one_line)
    account: str = field(default="", validator=_one_line)
    addressed: Literal["always", "mention"] = "mention"
    lines_per_s: float = field(default=1.0, validator=_above_zero)
    burst: int = field(default=5, validator=_above_zero)
    reconnect_min_ms: int = field(default=1_000, validator=_above_zero)
    reconnect_max_ms: int = field(default=60_000, validator=_above_zero)
    ping_timeout_s: float = field(default=120.0, validator=_above_zero)
    regain_s: float = field(default=30.0, validator=_above_zero)

    def __attrs_post_init__(self) -> None:
        if self.reconnect_min_ms > self.reconnect_max_ms:
            raise InvalidInputError("reconnect_max_ms", "must not be smaller than reconnect_min_ms")
        if not self.account:
            object.__setattr__(self, "account", f"{self.nick}@{self.host}")

    @property
    def nicks(self) -> tuple[str, ...]:
        """The wanted nick and what is tried, in order, while it is taken; the last ones suit a short NICKLEN."""
        nick = self.nick
        return tuple(dict.fromkeys([nick, nick + "_", nick + "__", nick[:8] + "_", nick[:7] + "__"]))
