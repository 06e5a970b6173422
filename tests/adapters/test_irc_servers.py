"""The IRC adapter on real servers: the adapter contract, and what only a real server shows."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from seriatim.adapters.irc import IrcAdapter
from seriatim.errors import ConfigError, SendError
from seriatim.model import Target
from seriatim.testing.adapter_contract import WAIT_S_MAX, AdapterContract, RecordingInbox, outbound, running
from tests.adapters.irc_world import ROOM, IrcWorld, irc_options, irc_world
from tests.irc_client import IrcClient
from tests.servers import Server, inspircd_server, ngircd_server

pytestmark = pytest.mark.server

ALICE = Target("irc", "Bot@127.0.0.1", "alice")


class TestNgircd(AdapterContract):
    """Plain IRC, as on most networks."""

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.folder = tmp_path

    @asynccontextmanager
    async def world(self) -> AsyncIterator[IrcWorld]:
        """A server of its own for each claim."""
        with ngircd_server(self.folder) as server:
            async with irc_world(server) as world:
                yield world


@pytest.mark.slow  # InspIRCd takes about a second to register each client
class TestInspircd(TestNgircd):
    """IRC with ids, server time and echo."""

    @asynccontextmanager
    async def world(self) -> AsyncIterator[IrcWorld]:
        """A server of its own for each claim."""
        with inspircd_server(self.folder) as server:
            async with irc_world(server) as world:
                yield world


def test_ids_and_times_come_from_the_server(tmp_path: Path) -> None:
    """Where the server gives message ids, inbound and sent messages carry them, and inbound ones its time."""

    async def main() -> None:
        with inspircd_server(tmp_path) as server:
            async with irc_world(server) as world, running(world.adapter) as inbox:
                await world.ready()
                await world.say("dm", "one", "two")
                events = await inbox.heard(2)
                ids = {event.message_id for event in events}
                sent = await world.adapter.send(outbound(ALICE, "three"))
                assert len({*ids, sent.message_id} - {None}) == 3
                assert all(event.received_at is not None for event in events)

    asyncio.run(main())


def test_a_taken_nick_is_lent_another_and_regained(tmp_path: Path) -> None:
    """While somebody holds the wanted nick the bot works under another, and has it back once they are gone."""

    async def main() -> None:
        with ngircd_server(tmp_path) as server:
            async with (
                IrcClient.connect(server.host, server.port, "Bot") as holder,
                running(adapter := _adapter(server)) as inbox,
            ):
                await _ready(adapter)
                assert adapter.nick == "Bot_"
                async with IrcClient.connect(server.host, server.port, "Alice", ROOM) as alice:
                    alice.say("Bot_", "who are you?")
                    assert [event.text for event in await inbox.heard(1)] == ["who are you?"]
                    await adapter.send(outbound(ALICE, "Bot, nearly"))
                    assert await alice.hear("Bot_") == ["Bot, nearly"]
                    await holder.close()
                    await alice.wait_for(lambda line: line.startswith(":Bot_!") and " NICK " in line)
                    await adapter.send(outbound(ALICE, "Bot again"))
                    assert await alice.hear("Bot") == ["Bot again"]

    asyncio.run(main())


def test_the_bot_is_back_within_its_back_off(tmp_path: Path) -> None:
    """After the server was killed and started again the bot reconnects by itself, no later than its longest wait."""

    async def main() -> None:
        with ngircd_server(tmp_path) as server:
            async with irc_world(server) as world, running(world.adapter):
                await world.ready()
                loop = asyncio.get_running_loop()
                for _ in range(3):
                    await world.go_down()
                    server.start()
                    up_at = loop.time()
                    await _ready(world.adapter)
                    longest_s = world.adapter.options.reconnect_max_ms / 1000
                    assert loop.time() - up_at < longest_s + 0.5  # half a second for a busy machine
                assert world.adapter.connections == 4

    asyncio.run(main())


def test_a_dm_id_is_the_nick_in_the_servers_own_case(tmp_path: Path) -> None:
    """The same nick in other letters is the same person: ids are folded as the server folds them."""

    async def main() -> None:
        with inspircd_server(tmp_path) as server:
            async with irc_world(server) as world, running(world.adapter) as inbox:
                await world.ready()
                async with IrcClient.connect(server.host, server.port, "Bob[x]") as bob:
                    bob.say("Bot", "hi")
                    [event] = await inbox.heard(1)
                    assert (event.source.chat_id, event.source.user_name) == ("bob{x}", "Bob[x]")
                    await world.adapter.send(outbound(Target("irc", "a", event.source.chat_id), "hi yourself"))
                    assert await bob.hear("Bot") == ["hi yourself"]

    asyncio.run(main())


def test_three_hundred_words_of_text_reach_a_channel_in_pieces(tmp_path: Path) -> None:
    """A part too long for a channel's line goes out as several lines, cut at spaces, and ngIRCd stays with us."""

    async def main() -> None:
        with ngircd_server(tmp_path) as server:
            async with irc_world(server) as world, running(world.adapter):
                await world.ready()
                text = " ".join(f"wört{n}" for n in range(300))
                await world.adapter.send(outbound(Target("irc", "a", ROOM, "channel"), text))
                heard = await world.hear(1)
                while len(" ".join(heard)) < len(text):
                    heard += await world.hear(1)
                assert " ".join(heard) == text
                assert len(heard) > 5
                assert world.adapter.connections == 1

    asyncio.run(main())


def test_a_kicked_bot_comes_back(tmp_path: Path) -> None:
    """A bot that was kicked out of a channel of its own joins again by itself."""

    async def main() -> None:
        with ngircd_server(tmp_path) as server:
            adapter = _adapter(server)
            async with IrcClient.connect(server.host, server.port, "Alice", ROOM) as alice, running(adapter):
                await _ready(adapter)
                alice.write(f"KICK {ROOM} Bot")
                await alice.wait_for(lambda line: " KICK " in line)
                await alice.wait_for(lambda line: line.startswith(":Bot!") and " JOIN " in line)
                await adapter.send(outbound(Target("irc", "a", ROOM, "channel"), "here I am"))
                assert await alice.hear("Bot") == ["here I am"]

    asyncio.run(main())


def test_a_wrong_password_ends_the_run(tmp_path: Path) -> None:
    """What only the operator can mend is an error with its key, not an endless reconnecting."""

    async def main() -> None:
        with ngircd_server(tmp_path, password="right") as server:
            adapter = IrcAdapter(irc_options(server, password="wrong"))
            async with asyncio.timeout(WAIT_S_MAX):
                with pytest.raises(ConfigError, match=r"^password: "):
                    await adapter.run(RecordingInbox())
            async with running(good := IrcAdapter(irc_options(server, password="right"))):
                await _ready(good)

    asyncio.run(main())


def test_cancelling_says_quit(tmp_path: Path) -> None:
    """People see the bot leave at once, not time out."""

    async def main() -> None:
        with ngircd_server(tmp_path) as server:
            async with IrcClient.connect(server.host, server.port, "Alice", ROOM) as alice:
                async with running(adapter := _adapter(server)):
                    await _ready(adapter)
                assert "bye" in await alice.wait_for(lambda line: line.startswith(":Bot!") and " QUIT " in line)
                with pytest.raises(SendError, match="not connected"):
                    await adapter.send(outbound(ALICE, "too late"))

    asyncio.run(main())


def _adapter(server: Server) -> IrcAdapter:
    return IrcAdapter(irc_options(server), rng=random.Random(1))


async def _ready(adapter: IrcAdapter) -> None:
    async with asyncio.timeout(WAIT_S_MAX):
        await adapter.wait_ready()
