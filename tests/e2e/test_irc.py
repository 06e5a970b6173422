"""A gateway on a real ngIRCd that is SIGKILLed three times, as three people on IRC see it.

IRC gives nothing again, so people speak only while the bot is present, and only what the store says was accepted
counts. A reply counts when it was read from a client's socket.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.e2e.irc_bot import BOT, ROOM, IrcBot
from tests.irc_client import IrcClient
from tests.kill.judge import Post, Said, Verdict, World, judge, read_logs
from tests.kill.process import Armed
from tests.servers import Server, ngircd_server

PEOPLE = ("alice", "bob", "carol")
MESSAGES = 200
BURST = 5
WAIT_S_MAX = 60.0
HALTS = (Armed("mid-turn", 12), Armed("reply-unsent", 12), Armed("sent-unsettled", 12))


class Irc:
    """Three people in a room with the bot, who also talk to it directly: six lanes.

    ``present`` is set while the bot is there. ``said`` is what they said, in order.
    """

    def __init__(self, clients: list[IrcClient]) -> None:
        self.clients = clients
        self.present = asyncio.Event()
        self.said: list[Said] = []
        self._arrivals = 0
        self._departures = 0

    async def arrived(self) -> None:
        """Everybody has seen the bot join once more."""
        self._arrivals += 1
        await self._all_saw(lambda line: line.startswith(f":{BOT}!") and " JOIN " in line, self._arrivals)
        self.present.set()

    async def gone(self) -> None:
        """Everybody has seen the bot quit once more."""
        self._departures += 1
        await self._all_saw(lambda line: line.startswith(f":{BOT}!") and " QUIT " in line, self._departures)

    async def talk(self, client: IrcClient, target: str, count: int) -> None:
        """One lane: bursts and single messages in turn, each single one waiting for its answer."""
        while count > 0:
            await self.present.wait()
            names = [self._say(client, target) for _ in range(min(BURST, count))]
            count -= len(names)
            for _ in range(min(BURST, count)):
                await self.present.wait()
                name = self._say(client, target)
                count -= 1
                await self._answered(client, name)

    def posts(self) -> list[Post]:
        """What came from the bot: direct messages as each one read them, the room's as the first client did."""
        heard = [(client, line.split(" ", 3)) for client in self.clients for line in client.lines]
        return [
            Post(words[2], words[3].removeprefix(":"))
            for client, words in heard
            if len(words) == 4
            and words[0].startswith(f":{BOT}!")
            and words[1] == "PRIVMSG"
            and (words[2] == client.nick or client is self.clients[0])
        ]

    def _say(self, client: IrcClient, target: str) -> str:
        name = f"m{len(self.said) + 1}"
        chat = client.nick if target == BOT else target
        self.said.append(Said(name, f"{chat}/{client.nick}", chat))
        client.say(target, f"{name} hello")
        return name

    async def _answered(self, client: IrcClient, name: str) -> None:
        def answered() -> bool:
            return not self.present.is_set() or any(name in re_names(line) for line in client.lines)

        await until(client, answered)

    async def _all_saw(self, wanted: Callable[[str], bool], times: int) -> None:
        for client in self.clients:
            await until(client, lambda lines=client.lines: sum(map(wanted, lines)) >= times)  # type: ignore[misc]


def re_names(line: str) -> list[str]:
    """The ids that a line of the bot answers."""
    _, found, rest = line.partition("re m")
    return f"m{rest}".split(" ")[0].split(",") if found else []


async def until(client: IrcClient, wanted: Callable[[], bool]) -> None:
    """Wait until a line that ``client`` reads makes ``wanted`` true."""
    async with asyncio.timeout(WAIT_S_MAX), client._arrived:
        await client._arrived.wait_for(wanted)


async def scenario(folder: Path, server: Server) -> tuple[Verdict, list[str]]:
    """The whole story; the verdict, and the points at which the bot was killed."""
    bot = IrcBot(folder, server, "tests.e2e.agent:make")
    killed_at: list[str] = []
    async with AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(IrcClient.connect(server.host, server.port, nick, ROOM)) for nick in PEOPLE
        ]
        irc = Irc(clients)
        lanes = [(client, target) for client in clients for target in (BOT, ROOM)]
        shares = [MESSAGES // len(lanes) + (number < MESSAGES % len(lanes)) for number in range(len(lanes))]
        talks = [
            asyncio.ensure_future(irc.talk(client, target, share))
            for (client, target), share in zip(lanes, shares, strict=True)
        ]
        try:
            for armed in (*HALTS, None):
                async with bot.serving(armed) as child:
                    await irc.arrived()
                    if armed is not None:
                        killed_at.append(await asyncio.wait_for(asyncio.shield(child.halted), WAIT_S_MAX))
                        irc.present.clear()
                    else:
                        await asyncio.wait_for(asyncio.gather(*talks), WAIT_S_MAX)
                        await bot.at_rest()
                        for client in clients:
                            await client.settled()
                        child.process.send_signal(signal.SIGTERM)
                        assert await asyncio.wait_for(child.process.wait(), WAIT_S_MAX) == 0, bot.log.read_text()
                await irc.gone()
        finally:
            for talk in talks:
                talk.cancel()
            await asyncio.gather(*talks, return_exceptions=True)
        world = World(said=irc.said, posts=irc.posts(), replays=False)
    return judge(world, read_logs(bot.home / "state.db")), killed_at


@pytest.mark.server
@pytest.mark.slow
def test_nothing_accepted_is_lost_when_the_bot_is_killed_three_times(tmp_path: Path) -> None:
    """200 messages, half in bursts: every accepted one is answered, in order, and every repeat says so."""
    with ngircd_server(tmp_path) as server:
        verdict, killed_at = asyncio.run(scenario(tmp_path, server))
    print(f"killed at {killed_at}: {verdict.figures()}")
    assert verdict.findings == []
    assert killed_at == [armed.point for armed in HALTS]
    assert verdict.sent == MESSAGES
    assert verdict.accepted > MESSAGES * 0.75  # what was on its way to a bot that halts dies with it
    assert verdict.merged > 0
    assert verdict.repeated_marked > 0
