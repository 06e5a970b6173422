"""One IRC connection's protocol state, without I/O: lines in, lines to answer and news out.

It registers, negotiates IRCv3 capabilities, keeps nick and channels, and says what a line means. The link
(`irc_link`) owns the socket and time; tests feed it lines.
"""

from __future__ import annotations

from typing import Final

from attrs import frozen

from seriatim.adapters import irc_wire as wire
from seriatim.adapters.irc_options import CHANNEL_MARKS, IrcOptions
from seriatim.errors import ConfigError

WANTED_CAPS: Final = ("message-tags", "server-time", "account-tag", "echo-message", "batch")

_NICK_REFUSED: Final = {"432", "433", "436", "437"}
_JOIN_REFUSED: Final = {"403", "405", "437", "471", "473", "474", "475", "476", "477", "479", "480", "489"}
_NEVER: Final = {
    *("401", "402", "403", "404", "406", "407", "408", "411", "412", "413", "414", "415"),
    *("477", "486", "489", "492", "505", "531", "716"),
}
"""Numerics that refuse a PRIVMSG for good; their second parameter is the target."""
_LATER: Final = {"439"}
"""Target change too fast: the server wants a pause. Servers name it in prose only, so we take a fixed one."""
PAUSE_S: Final = 30.0
_HISTORY_BATCHES: Final = {"chathistory", "znc.in/playback"}

USER_BYTES_MAX: Final = 20
HOST_BYTES_MAX: Final = 64
"""Assumed for our own prefix until the server shows it (InspIRCd's USERLEN and HOSTLEN, the widest in use)."""


@frozen
class Said:
    """Somebody said ``text``; ``channel`` is None in a direct message. ``action``: a /me."""

    line: wire.Line
    text: str
    channel: str | None
    action: bool


@frozen
class Refused:
    """The server refused a message to ``target`` (folded): for good, or (``wait_s``) for so many seconds."""

    target: str
    reason: str
    wait_s: float | None


@frozen
class Ponged:
    """The server answered our PING ``token``: it has processed everything written before it."""

    token: str


@frozen
class Echoed:
    """The server shows us our own message to ``target`` (folded), with the id that it gave it."""

    target: str
    message_id: str


@frozen
class Closing:
    """The server ends the connection and says why."""

    reason: str


News = Said | Refused | Ponged | Echoed | Closing


@frozen
class Fed:
    """What one line led to: lines to write at once, and at most one piece of news."""

    replies: tuple[bytes, ...] = ()
    news: News | None = None


_NOTHING = Fed()


class IrcSession:
    """Protocol state from connect to close; a new connection begins with a new one."""

    def __init__(self, options: IrcOptions) -> None:
        self._options = options
        self.nick = options.nick
        self.registered = False
        self.mapping: wire.CaseMapping = "rfc1459"
        self.joined: set[str] = set()
        self.asked: set[str] = set()
        self.caps: set[str] = set()
        self._channels = tuple(entry.partition(" ")[0] for entry in options.channels)
        self._offered: set[str] = set()
        self._tried = 0
        self._first_refusal = ""
        self._user_bytes = USER_BYTES_MAX
        self._host_bytes = HOST_BYTES_MAX
        self._chantypes: tuple[str, ...] = CHANNEL_MARKS
        self._statusmsg = ""
        self._history: set[str] = set()

    # What the link asks

    def hello(self) -> tuple[bytes, ...]:
        """The lines that open the conversation."""
        options = self._options
        password = (wire.message("PASS", options.password),) if options.password else ()
        return (
            *password,
            wire.message("CAP", "LS", "302"),
            wire.message("NICK", self.nick),
            wire.message("USER", options.username, "0", "*", options.realname),
        )

    @property
    def settled(self) -> bool:
        """Registered, and each configured channel was joined or refused."""
        return self.registered and not self.asked

    def fold(self, name: str) -> str:
        """``name`` as ids are made of it."""
        return wire.fold(name, self.mapping)

    def is_channel(self, name: str) -> bool:
        """Whether ``name`` is a channel, a message to its operators only ("@#name") included."""
        return name.lstrip(self._statusmsg).startswith(self._chantypes)

    def is_joined(self, channel: str) -> bool:
        """Whether we are in ``channel`` now."""
        return self.fold(channel.lstrip(self._statusmsg)) in self.joined

    def is_configured(self, channel: str) -> bool:
        """Whether ``channel`` is one that we join, and join again."""
        return self.fold(channel.lstrip(self._statusmsg)) in map(self.fold, self._channels)

    def text_max(self, target: str) -> int:
        """UTF-8 bytes that reach ``target`` uncut; the same under each nick that we may have."""
        nick_bytes = max(len(nick.encode()) for nick in (self.nick, *self._options.nicks))
        return wire.room_for_text(
            target, nick_bytes=nick_bytes, user_bytes=self._user_bytes, host_bytes=self._host_bytes
        )

    def amends(self) -> tuple[bytes, ...]:
        """What to try again from time to time: the wanted nick, channels that we are not in."""
        if not self.registered:
            return ()
        nick = () if self.nick == self._options.nick else (wire.message("NICK", self._options.nick),)
        return (*nick, *self._joins())

    # What the server says

    def feed(self, line: wire.Line) -> Fed:
        """Take one line. Raises ConfigError when the server refuses us for what the operator has set."""
        command = line.command
        if command == "PING":
            return Fed((wire.message("PONG", line.param(-1)),))
        if command in ("PRIVMSG", "NOTICE"):
            return self._message(line)
        if command == "PONG":
            return Fed(news=Ponged(line.param(-1)))
        if command == "ERROR" or (command == "KILL" and self._is_me(line.param(0))):
            return self._closing(line)
        if command.isdigit():
            return self._numeric(line)
        if command == "CAP":
            return self._cap(line)
        return self._membership(line)

    def _closing(self, line: wire.Line) -> Fed:
        if not self.registered and "password" in line.param(-1).lower():  # ngIRCd has no numeric for it
            raise ConfigError("password", f"refused by {self._options.host}: {line.param(-1)}")
        return Fed(news=Closing(f"{line.command} {line.param(-1)}"))

    def _is_me(self, nick: str) -> bool:
        return self.fold(nick) == self.fold(self.nick)

    def _numeric(self, line: wire.Line) -> Fed:
        command = line.command
        if command == "001":
            self._welcome(line)
        elif command == "005":
            self._isupport(line.params[1:-1])
        elif command in ("376", "422") and not self.registered:
            self.registered = True
            return Fed(self._joins())
        elif command == "396":
            self._host_bytes = len(line.param(1).rpartition("@")[2].encode())
        elif command == "464":
            raise ConfigError("password", f"refused by {self._options.host}: {line.param(-1)}")
        elif not self.registered:
            return Fed(self._next_nick(line)) if command in _NICK_REFUSED else _NOTHING
        return self._refusal(line)

    def _welcome(self, line: wire.Line) -> None:
        self.nick = line.param(0) or self.nick
        _, at, mask = line.param(-1).rpartition(" ")[2].partition("!")
        if at:
            self._learn_prefix(mask)

    def _learn_prefix(self, mask: str) -> None:
        user, at, host = mask.partition("@")
        if at:
            self._user_bytes, self._host_bytes = len(user.encode()), len(host.encode())

    def _isupport(self, tokens: tuple[str, ...]) -> None:
        for token in tokens:
            key, _, value = token.partition("=")
            if key == "CASEMAPPING":
                self.mapping = wire.case_mapping(value)
            elif key == "CHANTYPES" and value:
                self._chantypes = tuple(value)
            elif key == "STATUSMSG":
                self._statusmsg = value

    def _next_nick(self, line: wire.Line) -> tuple[bytes, ...]:
        self._first_refusal = self._first_refusal or line.command
        self._tried += 1
        if self._tried < len(self._options.nicks):
            self.nick = self._options.nicks[self._tried]
            return (wire.message("NICK", self.nick),)
        if self._first_refusal == "432":
            raise ConfigError("nick", f"refused by {self._options.host}: {line.param(-1)}")
        return (wire.message("QUIT", "no nick is free"),)

    def _refusal(self, line: wire.Line) -> Fed:
        command, target = line.command, self.fold(line.param(1))
        if command in _JOIN_REFUSED and target in self.asked:
            self.asked.discard(target)
            return _NOTHING
        if command in _NEVER or command in _LATER:
            return Fed(news=Refused(target, f"{command} {line.param(-1)}", PAUSE_S if command in _LATER else None))
        return _NOTHING

    def _joins(self) -> tuple[bytes, ...]:
        lines: list[bytes] = []
        for entry in self._options.channels:
            name, _, key = entry.partition(" ")
            if self.fold(name) not in self.joined:
                self.asked.add(self.fold(name))
                lines.append(wire.message("JOIN", name, key) if key else wire.message("JOIN", name))
        return tuple(lines)

    def _cap(self, line: wire.Line) -> Fed:
        verb = line.param(1).upper()
        words = {word.partition("=")[0] for word in line.param(-1).split()}
        if verb == "LS":
            self._offered |= words
            if line.param(2) == "*" and len(line.params) > 3:
                return _NOTHING
            wanted = " ".join(cap for cap in WANTED_CAPS if cap in self._offered)
            return Fed((wire.message("CAP", "REQ", wanted) if wanted else wire.message("CAP", "END"),))
        if verb == "DEL":
            self.caps -= words
        elif verb == "ACK":
            self.caps |= words
        return Fed((wire.message("CAP", "END"),)) if verb in ("ACK", "NAK") else _NOTHING

    def _membership(self, line: wire.Line) -> Fed:
        command, channel, mine = line.command, self.fold(line.param(0)), self._is_me(line.nick)
        if command == "JOIN" and mine:
            self._learn_prefix(line.source.partition("!")[2])
            self.joined.add(channel)
            self.asked.discard(channel)
        elif (command == "PART" and mine) or (command == "KICK" and self._is_me(line.param(1))):
            self.joined.discard(channel)
        elif command == "NICK" and mine:
            self.nick = line.param(0) or self.nick
        elif command in ("NICK", "QUIT") and self.fold(line.nick) == self.fold(self._options.nick):
            return Fed((wire.message("NICK", self._options.nick),))
        elif command == "BATCH":
            self._batch(line)
        return _NOTHING

    def _batch(self, line: wire.Line) -> None:
        mark, name = line.param(0)[:1], line.param(0)[1:]
        if mark == "+" and line.param(1) in _HISTORY_BATCHES:
            self._history.add(name)
        elif mark == "-":
            self._history.discard(name)

    def _message(self, line: wire.Line) -> Fed:
        """A person's words, or our own shown back. NOTICE is what bots and servers say: never answered."""
        target, text = line.param(0), line.param(1)
        if self._is_me(line.nick):
            shown = line.command == "PRIVMSG" and "echo-message" in self.caps and "msgid" in line.tags
            return Fed(news=Echoed(self.fold(target), line.tags["msgid"])) if shown else _NOTHING
        from_server = "!" not in line.source
        if line.command == "NOTICE" or from_server or line.tags.get("batch") in self._history:
            return _NOTHING
        action = text.startswith("\x01ACTION ")
        if text.startswith("\x01") and not action:
            return _NOTHING  # CTCP asks for facts about our program; answering feeds floods, silence is allowed
        said = wire.plain(text.removeprefix("\x01ACTION ").rstrip("\x01"))
        channel = target if self.is_channel(target) else None
        return Fed(news=Said(line, said, channel, action))
