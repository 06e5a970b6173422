"""The IRC adapter when the server misbehaves: confirmations, floods, silence, refusals."""

from __future__ import annotations

import asyncio
import logging
import ssl
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from attrs import evolve

from seriatim.adapters import irc_link
from seriatim.adapters.irc import IrcAdapter, IrcOptions
from seriatim.adapters.irc_sending import UNCONFIRMED_LINES_MAX
from seriatim.errors import ConfigError, SendError
from seriatim.limits import IRC_INBOUND_MAX
from seriatim.model import Sent, Target
from seriatim.testing.adapter_contract import RecordingInbox, outbound, running
from tests.adapters.scripted_irc import ScriptedIrc, Visit
from tests.servers import server_program

OPTIONS = IrcOptions(
    host="127.0.0.1",
    nick="Bot",
    tls=False,
    channels=("#a",),
    lines_per_s=1e6,
    burst=1000,
    reconnect_min_ms=1,
    reconnect_max_ms=20,
)
A, B, C = (Target("irc", "Bot@127.0.0.1", nick) for nick in ("ann", "bob", "cy"))
ROOM = Target("irc", "Bot@127.0.0.1", "#a", "channel")


@pytest.fixture(autouse=True)
def _short_goodbye(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scripted server doesn't answer QUIT."""
    monkeypatch.setattr(irc_link, "GOODBYE_S", 0.01)


Story = Callable[[ScriptedIrc, Visit, IrcAdapter, RecordingInbox], Awaitable[None]]


def tell(story: Story, *caps: str, options: IrcOptions = OPTIONS) -> None:
    """Run a story with a bot that is connected and registered."""

    async def main() -> None:
        async with ScriptedIrc().listening() as server:
            adapter = IrcAdapter(evolve(options, port=server.port))
            async with running(adapter) as inbox:
                visit = await server.visit()
                await visit.register(*caps)
                await story(server, visit, adapter, inbox)

    asyncio.run(main())


def begin(adapter: IrcAdapter, target: Target, text: str) -> asyncio.Task[Sent]:
    """Begin a send."""
    return asyncio.ensure_future(adapter.send(outbound(target, text)))


async def error_of(send: asyncio.Task[Sent]) -> SendError:
    """How a send failed."""
    async with asyncio.timeout(20):
        with pytest.raises(SendError) as caught:
            await send
    return caught.value


async def confirm(visit: Visit) -> None:
    """Answer the bot's next PING."""
    visit.write(f":s PONG s {(await visit.read_command('PING')).split(' ')[1]}")


def test_a_send_ends_with_the_pong_and_not_before() -> None:
    """Writing proves nothing; the PONG to the PING behind the message does."""

    async def story(server: ScriptedIrc, visit: Visit, adapter: IrcAdapter, inbox: RecordingInbox) -> None:
        send = begin(adapter, A, "hi")
        assert await visit.read_command("PRIVMSG") == "PRIVMSG ann :hi"
        await visit.sync()
        assert not send.done()
        assert visit.lines[-2].startswith("PING :w")
        visit.write(f":s PONG s {visit.lines[-2].split(' ')[1]}")
        assert await send == Sent()

    tell(story)


def test_a_connection_lost_before_the_pong_is_ambiguous() -> None:
    """What was written and not confirmed may have arrived; what was not written surely has not."""

    async def story(server: ScriptedIrc, visit: Visit, adapter: IrcAdapter, inbox: RecordingInbox) -> None:
        sends = [begin(adapter, A, f"{n}") for n in range(UNCONFIRMED_LINES_MAX + 1)]
        for _ in range(UNCONFIRMED_LINES_MAX):
            await visit.read_command("PRIVMSG")
        visit.cut()
        errors = [await error_of(send) for send in sends]
        assert [error.ambiguous for error in errors] == [True] * UNCONFIRMED_LINES_MAX + [False]
        assert not any(error.permanent for error in errors)
        again = await server.visit()
        error = await error_of(begin(adapter, A, "too early"))  # connected, but not registered
        assert not error.ambiguous
        await again.register()
        send = begin(adapter, A, "now")
        await confirm(again)
        await send

    tell(story)


def test_a_server_that_confirms_nothing_gets_no_more_than_its_bound() -> None:
    """However many sends wait, only so many lines are ahead of the server, so it can't call it a flood."""

    async def story(server: ScriptedIrc, visit: Visit, adapter: IrcAdapter, inbox: RecordingInbox) -> None:
        sends = [begin(adapter, A, f"{n}") for n in range(3 * UNCONFIRMED_LINES_MAX)]
        while visit.lines.count("PRIVMSG") < UNCONFIRMED_LINES_MAX:
            await visit.read_command("PRIVMSG")
            if sum(line.startswith("PRIVMSG") for line in visit.lines) == UNCONFIRMED_LINES_MAX:
                break
        await visit.sync()
        await visit.sync()
        assert sum(line.startswith("PRIVMSG") for line in visit.lines) == UNCONFIRMED_LINES_MAX
        for send in sends:
            send.cancel()
        await asyncio.gather(*sends, return_exceptions=True)

    tell(story)


def test_one_ping_confirms_messages_to_several_targets() -> None:
    """A burst to different people costs one confirmation, not one each."""

    async def story(server: ScriptedIrc, visit: Visit, adapter: IrcAdapter, inbox: RecordingInbox) -> None:
        sends = [begin(adapter, target, "hi") for target in (A, B, C, ROOM)]
        await confirm(visit)
        await asyncio.gather(*sends)
        assert sum(line.startswith("PING :w") for line in visit.lines) == 1

    tell(story)


def test_a_refusal_finds_its_message() -> None:
    """Of two messages to one target the refused one fails, though the numeric names the target alone."""

    async def story(server: ScriptedIrc, visit: Visit, adapter: IrcAdapter, inbox: RecordingInbox) -> None:
        first, second, other = begin(adapter, ROOM, "1"), begin(adapter, ROOM, "2"), begin(adapter, B, "3")
        await confirm(visit)
        visit.write(":s 404 Bot #A :Cannot send to channel")
        await confirm(visit)
        assert await first == Sent()
        error = await error_of(second)
        assert error.permanent
        assert "404" in error.reason
        assert await other == Sent()

    tell(story)


def test_with_echo_each_message_gets_its_own_id() -> None:
    """Where the server shows messages back, the ids and the refusals are matched in order."""

    async def story(server: ScriptedIrc, visit: Visit, adapter: IrcAdapter, inbox: RecordingInbox) -> None:
        sends = [begin(adapter, A, "1"), begin(adapter, A, "2")]
        await visit.read_command("PING")
        visit.write("@msgid=m1 :Bot!u@h PRIVMSG Ann :1", f":s PONG s {visit.lines[-1].split(' ')[1]}")
        await visit.read_command("PING")
        visit.write("@msgid=m2 :Bot!u@h PRIVMSG Ann :2", f":s PONG s {visit.lines[-1].split(' ')[1]}")
        assert await asyncio.gather(*sends) == [Sent("m1"), Sent("m2")]
        assert inbox.events == []

    tell(story, "message-tags", "echo-message")


def test_a_server_that_wants_a_pause_gets_it() -> None:
    """A refusal with "target change too fast" isn't for good: the error says how long to wait."""

    async def story(server: ScriptedIrc, visit: Visit, adapter: IrcAdapter, inbox: RecordingInbox) -> None:
        send = begin(adapter, A, "hi")
        await visit.read_command("PRIVMSG")
        visit.write(":s 439 Bot ann :Target change too fast. Please wait 20 seconds.")
        error = await error_of(send)
        assert (error.permanent, error.ambiguous) == (False, False)
        assert error.retry_after_s
        await confirm(visit)

    tell(story)


def test_a_send_given_up_before_its_turn_is_never_written() -> None:
    """A cancelled send that still waited for the pace leaves no line behind."""

    async def story(server: ScriptedIrc, visit: Visit, adapter: IrcAdapter, inbox: RecordingInbox) -> None:
        first = begin(adapter, A, "first")
        await confirm(visit)
        await first
        waiting = begin(adapter, A, "waiting")  # the burst is spent
        await visit.sync()
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await visit.sync()
        assert not any("waiting" in line for line in visit.lines)

    tell(story, options=evolve(OPTIONS, burst=1, lines_per_s=0.001))


def test_a_flood_does_not_starve_ping() -> None:
    """While the runtime accepts nothing and people flood, the server's PING is answered at once."""

    async def story(server: ScriptedIrc, visit: Visit, adapter: IrcAdapter, inbox: RecordingInbox) -> None:
        inbox.hold()
        visit.write(*(f":ann!u@h PRIVMSG Bot :{n}" for n in range(IRC_INBOUND_MAX // 2)))
        await visit.sync()
        assert inbox.events == []
        inbox.let_go()
        assert [event.text for event in await inbox.heard(IRC_INBOUND_MAX // 2)] == [
            str(n) for n in range(IRC_INBOUND_MAX // 2)
        ]

    tell(story)


def test_a_runtime_that_is_far_behind_stops_the_reading() -> None:
    """Beyond its bound the adapter reads no more; nothing is lost, and silence of our making ends no connection."""

    async def story(server: ScriptedIrc, visit: Visit, adapter: IrcAdapter, inbox: RecordingInbox) -> None:
        inbox.hold()
        count = 3 * IRC_INBOUND_MAX
        visit.write(*(f":ann!u@h PRIVMSG Bot :{n} {'x' * 400}" for n in range(count)), "PING :behind")
        pong = asyncio.ensure_future(visit.read(lambda line: line == "PONG :behind"))
        done, _ = await asyncio.wait([pong], timeout=3 * adapter.options.ping_timeout_s)
        assert not done
        inbox.let_go()
        await pong
        assert [event.text.split()[0] for event in await inbox.heard(count)] == [str(n) for n in range(count)]
        assert adapter.connections == 1

    tell(story, options=evolve(OPTIONS, ping_timeout_s=0.1))


def test_a_silent_server_is_asked_and_then_left() -> None:
    """A connection on which nothing is heard gets a PING, and is replaced when that stays unanswered."""

    async def story(server: ScriptedIrc, visit: Visit, adapter: IrcAdapter, inbox: RecordingInbox) -> None:
        await visit.read(lambda line: line == "PING :alive")
        await server.visit()

    tell(story, options=evolve(OPTIONS, ping_timeout_s=0.2))


def test_a_server_that_never_lets_us_in_is_left() -> None:
    """A registration that doesn't end is given up and tried again."""

    async def main() -> None:
        async with ScriptedIrc().listening() as server:
            options = evolve(OPTIONS, port=server.port, ping_timeout_s=0.1)
            async with running(IrcAdapter(options)):
                first = await server.visit()
                await first.read(lambda line: line.startswith("USER "))
                first.write(":s NOTICE * :looking you up")
                await server.visit()

    asyncio.run(main())


@pytest.mark.parametrize("farewell", ["ERROR :Closing Link: flood", ":oper!u@h KILL Bot :go away"])
def test_an_end_by_the_server_is_answered_by_coming_back(farewell: str) -> None:
    """ERROR and KILL end the connection; the bot connects again and is in its channels as before."""

    async def story(server: ScriptedIrc, visit: Visit, adapter: IrcAdapter, inbox: RecordingInbox) -> None:
        visit.write(farewell)
        again = await server.visit()
        await again.register()
        await adapter.wait_ready()
        assert "JOIN :#a" in again.lines

    tell(story)


def test_out_of_its_channel_a_send_fails_plainly_and_the_bot_joins_again() -> None:
    """A kick, a ban or a full channel is an outage of that channel: replies are kept, joining is repeated."""

    async def story(server: ScriptedIrc, visit: Visit, adapter: IrcAdapter, inbox: RecordingInbox) -> None:
        visit.write(":op!u@h KICK #a Bot :out")
        await visit.sync()
        error = await error_of(begin(adapter, ROOM, "hello"))
        assert (error.permanent, error.ambiguous) == (False, False)
        await visit.read_command("JOIN")
        visit.write(":s 474 Bot #a :Cannot join channel (+b)")
        await visit.read_command("JOIN")
        visit.write(":Bot!u@h JOIN #a")
        await visit.sync()
        send = begin(adapter, ROOM, "hello")
        await confirm(visit)
        await send

    tell(story, options=evolve(OPTIONS, regain_s=0.02))


def test_a_nick_that_the_server_does_not_allow_ends_the_run() -> None:
    """An erroneous nick is the operator's to mend, not to be tried for ever."""

    async def main() -> None:
        async with ScriptedIrc().listening() as server:
            adapter = IrcAdapter(evolve(OPTIONS, port=server.port))
            run = asyncio.ensure_future(adapter.run(RecordingInbox()))
            visit = await server.visit()
            while not run.done():
                await visit.read(lambda line: line.startswith(("NICK ", "QUIT ")))
                visit.write(":s 432 * Bot :Erroneous nickname")
                if len([line for line in visit.lines if line.startswith("NICK ")]) == len(OPTIONS.nicks):
                    break
            with pytest.raises(ConfigError, match=r"^nick: "):
                await run

    asyncio.run(main())


def test_garbage_is_survived() -> None:
    """Bytes that are no IRC, over-long lines and broken UTF-8 neither end the connection nor hide what follows."""

    async def story(server: ScriptedIrc, visit: Visit, adapter: IrcAdapter, inbox: RecordingInbox) -> None:
        visit.write("", ":", "@", "@a=b", ": ", "   ", "\x00\x01", ":ann!u@h", ":ann!u@h PRIVMSG")
        visit.write(":ann!u@h PRIVMSG Bot :" + "x" * 40_000)
        visit.write(":ann!u@h JOIN", ":s 005", ":s 433", ":s CAP", "BATCH", ":s 001", ":Bot!u@h NICK", "KICK", "PONG")
        visit.write(":ann!u@h PRIVMSG Bot :after")
        await visit.sync()
        assert [event.text for event in await inbox.heard(1)] == ["after"]
        assert adapter.connections == 1

    tell(story)


def test_an_inbox_that_fails_ends_the_run() -> None:
    """An error of the runtime's own isn't swallowed: the run ends with it."""

    class Broken(RecordingInbox):
        async def accept(self, event: object) -> object:  # type: ignore[override]
            raise RuntimeError("broken")

    async def main() -> None:
        async with ScriptedIrc().listening() as server:
            adapter = IrcAdapter(evolve(OPTIONS, port=server.port))
            run = asyncio.ensure_future(adapter.run(Broken()))  # type: ignore[arg-type]
            visit = await server.visit()
            await visit.register()
            visit.write(":ann!u@h PRIVMSG Bot :hi")
            with pytest.raises(RuntimeError, match="broken"):
                await run

    asyncio.run(main())


class Refusal(logging.Handler):
    """Sees the log line in which a certificate is refused."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = asyncio.Event()

    def emit(self, record: logging.LogRecord) -> None:
        """Each log line."""
        if "CERTIFICATE_VERIFY_FAILED" in record.getMessage():
            self.seen.set()


def test_tls_is_verified_unless_told_otherwise(tmp_path: Path) -> None:
    """A certificate that nobody vouches for is refused, and said so; with ``tls_verify`` off it serves."""
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    command = f"req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -keyout {key} -out {certificate}"
    subprocess.run([server_program("openssl"), *command.split()], check=True, capture_output=True)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)

    async def main() -> None:
        async with ScriptedIrc().listening(tls=context) as server:
            strict = evolve(OPTIONS, port=server.port, tls=True)
            async with running(IrcAdapter(strict)), asyncio.timeout(20):
                refusal, logger = Refusal(), logging.getLogger("seriatim.adapters.irc")
                logger.addHandler(refusal)
                await refusal.seen.wait()
                logger.removeHandler(refusal)
            async with running(adapter := IrcAdapter(evolve(strict, tls_verify=False))):
                visit = await server.visit()
                await visit.register()
                send = begin(adapter, A, "secret")
                await confirm(visit)
                await send
                assert "PRIVMSG ann :secret" in visit.lines

    asyncio.run(main())
