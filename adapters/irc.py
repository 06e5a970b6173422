"""IRC: one account on one network, on asyncio streams alone.

A message is confirmed by a PING that follows it (`irc_sending`). IRC never gives a message again, so what
people say while the bot is away is gone (`replay="none"`). Identity is the nick; where the server tells accounts
(account-tag), the account is the stable id beside it.
"""

from __future__ import annotations

import asyncio
import logging
import random
import ssl

from seriatim.adapters import irc_wire as wire
from seriatim.adapters.base import Capabilities, Inbox
from seriatim.adapters.irc_link import IrcLink, LinkLostError, race
from seriatim.adapters.irc_options import IrcOptions
from seriatim.adapters.irc_sending import TokenBucket, backoff_s
from seriatim.adapters.irc_session import IrcSession, Said
from seriatim.errors import InvalidInputError, SendError
from seriatim.limits import IRC_INBOUND_MAX
from seriatim.model import MessageEvent, Outbound, Platform, Sent, SessionSource, Target

__all__ = ["IrcAdapter", "IrcOptions"]

_log = logging.getLogger(__name__)


class IrcAdapter:
    """The adapter port over one IRC account; see `base.Adapter`.

    ``rng`` chooses the jitter of reconnecting. All methods belong to the gateway's event loop.
    """

    platform = "irc"
    capabilities = Capabilities(
        replay="none", idempotent_send=False, pii_safe=False, text_max=512, text_unit="bytes", multiline=False
    )

    def __init__(self, options: IrcOptions, *, rng: random.Random | None = None) -> None:
        self.options = options
        self.account = options.account or f"{options.nick}@{options.host}"
        self.connections = 0
        self.malformed = 0
        self._rng = rng or random.Random()
        self._bucket = TokenBucket(options.lines_per_s, options.burst)
        self._link: IrcLink | None = None
        self._ready = asyncio.Event()
        self._unlinked = asyncio.Event()
        self._unlinked.set()
        self._session = IrcSession(options)
        self._events: asyncio.Queue[MessageEvent] = asyncio.Queue(IRC_INBOUND_MAX)

    async def run(self, inbox: Inbox) -> None:
        """Stay connected and accept what people say, in order; ends only by cancelling or ConfigError.

        When cancelled, says QUIT and closes. What was heard and not yet accepted is lost then, as on any
        disconnect: IRC has no acknowledgement.
        """
        await race(self._accept_all(inbox), self._stay_connected())

    async def wait_ready(self) -> None:
        """Return once registered, and in each channel that let us in."""
        await self._ready.wait()

    async def wait_lost(self) -> None:
        """Return once there is no connection."""
        await self._unlinked.wait()

    @property
    def nick(self) -> str:
        """The nick that we have now, which is another than the wanted one while that is taken."""
        return self._session.nick

    @property
    def own_id(self) -> str | None:
        """The nick, as it is compared."""
        return self._session.fold(self._session.nick)

    @property
    def connected(self) -> bool:
        """Whether we are registered, and in each channel that let us in."""
        return self._ready.is_set()

    @property
    def command_prefix(self) -> str | None:
        """IRC clients eat lines that begin with "/", so another prefix is needed."""
        return self.options.command_prefix

    def text_max(self, target: Target) -> int:
        """UTF-8 bytes of one message that reach ``target`` uncut, our own prefix as relayed included."""
        return self._session.text_max(target.chat_id)

    async def send(self, out: Outbound) -> Sent:
        """Send one part; returns when the server has processed it, with its id where the server gives ids.

        A part that doesn't fit (it was cut for another host or nick of ours) goes out as several lines.
        Raises SendError: plain while not connected or not in the channel yet; permanent when the server refuses
        this target or there is nothing to send; ambiguous when the connection ends before the confirmation.
        """
        target = out.target.chat_id
        text = wire.sanitise(out.text)
        if not text.strip() or not target or target != wire.sanitise(target) or set(" ,") & set(target):
            raise SendError("nothing to send" if target else "no target", permanent=True)
        link = self._link
        if link is None or not link.session.registered:
            raise SendError("not connected")
        session = link.session
        if session.is_channel(target) and session.is_configured(target) and not session.is_joined(target):
            raise SendError(f"not in {target} now")
        pieces = wire.cut(text, session.text_max(target))
        return await link.send(target, tuple(wire.message("PRIVMSG", target, piece) for piece in pieces))

    async def typing(self, target: Target) -> None:
        """IRC can't show it."""

    # Connecting

    async def _stay_connected(self) -> None:
        options, loop, failures = self.options, asyncio.get_running_loop(), 0
        while True:
            began = loop.time()
            reason = await self._connect()
            # A connection that held for a while forgives earlier failures; one that is thrown out at once doesn't.
            held = loop.time() - began > options.reconnect_max_ms / 1000
            failures = 1 if held else failures + 1
            wait_s = backoff_s(failures, options.reconnect_min_ms, options.reconnect_max_ms, self._rng)
            _log.warning("irc %s: %s; connecting again in %.1f s", self.account, reason, wait_s)
            await asyncio.sleep(wait_s)

    async def _connect(self) -> str:
        """One connection from open to its end; returns why it ended."""
        options = self.options
        try:
            async with asyncio.timeout(options.ping_timeout_s):
                reader, writer = await asyncio.open_connection(options.host, options.port, ssl=self._tls())
            link = IrcLink(
                options, reader=reader, writer=writer, bucket=self._bucket, said=self._heard, changed=self._changed
            )
            self._link, self._session = link, link.session
            self._unlinked.clear()
            self.connections += 1
            await link.run()
        except (LinkLostError, OSError) as error:
            return str(error) or type(error).__name__
        finally:
            self._link = None
            self._ready.clear()
            self._unlinked.set()

    def _tls(self) -> ssl.SSLContext | None:
        if not self.options.tls:
            return None
        context = ssl.create_default_context()
        if not self.options.tls_verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context

    def _changed(self) -> None:
        if self._session.settled:
            self._ready.set()

    # Accepting

    async def _heard(self, said: Said) -> None:
        """Normalise at once, while the connection's nick and case mapping still hold, and wait for room."""
        try:
            event = self._event(said)
        except InvalidInputError as error:
            self.malformed += 1
            _log.warning("irc %s: a message was left out, bad %s", self.account, error.field)
            return
        if event is not None:
            await self._events.put(event)

    async def _accept_all(self, inbox: Inbox) -> None:
        while True:
            event = await self._events.get()
            await inbox.accept(event)

    def _event(self, said: Said) -> MessageEvent | None:
        """What the runtime gets; None for a line of a channel that isn't for us."""
        session, line = self._session, said.line
        text = f"* {line.nick} {said.text}" if said.action else said.text
        if said.channel is not None:
            addressed = wire.addressed_to(session.nick, said.text)
            if addressed is None and self.options.addressed == "mention":
                return None
            text = text if addressed is None or said.action else addressed
        if not text.strip():
            return None
        user = session.fold(line.nick)
        account = line.tags.get("account")
        source = SessionSource(
            platform=Platform(self.platform),
            chat_id=user if said.channel is None else session.fold(said.channel),
            chat_name=line.nick if said.channel is None else said.channel,
            chat_type="dm" if said.channel is None else "channel",
            user_id=user,
            user_name=line.nick,
            # ":" can't be in a nick, so nobody can take an account's identity by choosing a nick.
            user_id_alt=f"account:{session.fold(account)}" if account else None,
            guild_id=self.account,
            is_bot="bot" in line.tags,
        )
        return MessageEvent(
            text=text,
            source=source,
            account=self.account,
            message_id=line.tags.get("msgid"),
            received_at=wire.epoch_ms(line.tags.get("time", "")),
        )
