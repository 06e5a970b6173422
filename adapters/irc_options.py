"""What an operator sets for one IRC account."""

from __future__ import annotations

from typing import Final, Literal

import attrs

from seriatim.errors import ConfigError
from seriatim.settings import REQUIRED, choice, flag, number, setting, text, texts, whole

CHANNEL_MARKS: Final = ("#", "&", "+", "!")

_WORD: Final = r"[^\s:\x00-\x1f][^\s\x00-\x1f]*"
_LINE: Final = r"[^\x00-\x1f\x7f]*"
_CHANNEL: Final = r"[#&+!][^\s,\x00-\x1f]+( [^\s,\x00-\x1f]+)?"
_CHANNELS: Final = texts(matching=_CHANNEL, says='a list of "#name" or "#name key"')


@attrs.frozen(kw_only=True)
class IrcOptions:
    """One account on one IRC network. Raises ConfigError, with the field's name, for what can't be."""

    host: str = setting(REQUIRED, text(matching=_WORD, says="one word"), doc="Name or address of the server.")
    nick: str = setting(
        REQUIRED, text(matching=_WORD, says="one word"), doc="Wanted nick; while it is taken, one with underscores."
    )
    port: int = setting(6697, whole(1, 65535), doc="TCP port.")
    tls: bool = setting(True, flag(), doc="Whether to talk TLS.")
    tls_verify: bool = setting(True, flag(), doc="Whether the server's certificate must be valid.")
    password: str = setting("", text(matching=_LINE, says="one line", empty=True), doc="The server's.", secret=True)
    channels: tuple[str, ...] = setting(
        (),
        _CHANNELS,
        doc="Where to be, and to come back after a kick.",
        secret=True,  # the keys of channels are
    )
    username: str = setting("seriatim", text(matching=_WORD, says="one word"), doc="Before the @ of our address.")
    realname: str = setting("Seriatim", text(matching=_LINE, says="one line"), doc="Shown by /whois.")
    account: str = setting(
        "",
        text(matching=_LINE, says="one line", empty=True),
        doc="Names this account in every key of its conversations; nick@host if empty. It should outlive a new nick.",
    )
    addressed: Literal["always", "mention"] = setting(
        "mention", choice("always", "mention"), doc='Lines of a channel taken: all, or those that begin with "nick:".'
    )
    command_prefix: str = setting(
        "!", text(matching=r"[^\s/]{1,8}", says="one to eight characters without space or /"), doc="Begins a command."
    )
    lines_per_s: float = setting(1.0, number(above=0), doc="Messages a second, once the burst is spent.")
    burst: int = setting(5, whole(1), doc="Messages sent at once before that pace holds.")
    reconnect_min_ms: int = setting(1_000, whole(1), doc="Shortest wait before connecting again.")
    reconnect_max_ms: int = setting(60_000, whole(1), doc="Longest; the wait doubles from failure to failure.")
    ping_timeout_s: float = setting(
        120.0, number(above=0), doc="Silence after which the connection counts as dead; also the longest handshake."
    )
    regain_s: float = setting(
        30.0, number(above=0), doc="How often the wanted nick, or a channel that we are not in, is tried again."
    )

    def __attrs_post_init__(self) -> None:
        if self.reconnect_min_ms > self.reconnect_max_ms:
            raise ConfigError("reconnect_max_ms", "must not be smaller than reconnect_min_ms")

    @property
    def nicks(self) -> tuple[str, ...]:
        """The wanted nick and what is tried, in order, while it is taken; the last ones suit a short NICKLEN."""
        nick = self.nick
        return tuple(dict.fromkeys([nick, nick + "_", nick + "__", nick[:8] + "_", nick[:7] + "__"]))
