"""Two gateways on a real ngIRCd, one for each setting of ``group_sessions_per_user``, as two people see them."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from seriatim import Gateway, GatewayConfig
from seriatim.adapters.irc import IrcAdapter
from seriatim.adapters.irc_options import IrcOptions
from seriatim.storage.audit import audit
from seriatim.storage.sqlite_reader import SqliteReader
from seriatim.surface import fold
from tests.commands.conversations import Lane, Script, answer
from tests.irc_client import IrcClient
from tests.servers import ngircd

PEOPLE = ("alice", "bob")
ROUNDS = 13
WAIT_S_MAX = 60.0


class Side:
    """One gateway with its room and its lanes."""

    def __init__(self, name: str, folder: Path, *, per_user: bool) -> None:
        self.bot = name
        self.room = f"#{name}"
        self.home = folder / name
        self.per_user = per_user
        self.people = tuple(who + name[-1] for who in PEOPLE)  # nicks are one network's, so each side has its own
        prefix = "!"
        grouped = (
            [Lane(f"room {who}", (who,), False, prefix) for who in self.people]
            if per_user
            else [Lane("room", self.people, True, prefix)]
        )
        private = [Lane(f"dm {who}", (who,), False, prefix) for who in self.people]
        self.lanes = [*grouped, *private]
        self.script = Script(len(name), self.lanes)

    def gateway(self, host: str, port: int) -> tuple[Gateway, IrcAdapter]:
        """The gateway and its account."""
        adapter = IrcAdapter(
            IrcOptions(
                host=host,
                port=port,
                tls=False,
                nick=self.bot,
                channels=(self.room,),
                addressed="always",
                lines_per_s=100_000.0,
                burst=1000,
            )
        )
        config = GatewayConfig(group_sessions_per_user=self.per_user)
        return Gateway(answer, home=self.home, config=config, adapters=[adapter]), adapter

    async def talk(self, people: dict[str, IrcClient]) -> list[str]:
        """Somebody says something in each lane, one after the other; what came back wrong."""
        wrong = []
        for _ in range(ROUNDS):
            for lane in self.lanes:
                speaker, text = self.script.next(lane)
                wanted = lane.hear(speaker, text)
                client = people[speaker]
                client.say(self.room if lane.name.startswith("room") else self.bot, text)
                [heard] = await client.hear(self.bot)
                if heard != wanted:
                    wrong.append(f"{lane.name}: {text!r} got {heard!r} instead of {wanted!r}")
                if lane.name.startswith("room"):  # everybody in the room reads it
                    other = people[next(who for who in self.people if who != speaker)]
                    assert await other.hear(self.bot) == [heard]
        return wrong

    def transcripts(self) -> list[list[str]]:
        """What every conversation of the home shows, those without words left out."""
        reader = SqliteReader(self.home / "state.db")
        try:
            assert audit(reader).holds
            found = []
            for log in reader.logs("session:"):
                events = reader.read(log)
                texts = {event.seq: event.data.get("text") for event in events}
                found.append([str(texts[seq]) for seq in fold(events).seqs()])
            return sorted(shows for shows in found if shows)
        finally:
            reader.close()

    def wanted(self) -> list[list[str]]:
        """The same by the model."""
        talks = [[said for turn in talk.turns for said in turn] for lane in self.lanes for talk in lane.talks]
        return sorted(shows for shows in talks if shows)


async def story(sides: list[Side], host: str, port: int) -> list[str]:
    """Both gateways at once, the same two people on both."""
    wrong: list[str] = []
    async with AsyncExitStack() as stack, asyncio.timeout(WAIT_S_MAX):
        people = {
            side.bot: {
                who: await stack.enter_async_context(IrcClient.connect(host, port, who, side.room))
                for who in side.people
            }
            for side in sides
        }
        for side in sides:
            gateway, adapter = side.gateway(host, port)
            await stack.enter_async_context(gateway)
            await adapter.wait_ready()
        for found in await asyncio.gather(*(side.talk(people[side.bot]) for side in sides)):
            wrong += found
    return wrong


@pytest.mark.server
def test_each_setting_keeps_people_apart_as_it_says(tmp_path: Path) -> None:
    """Per user: each has a conversation in the room. Shared: one, with everybody's name. Direct messages are alone."""
    sides = [Side("botx", tmp_path, per_user=True), Side("boty", tmp_path, per_user=False)]
    with ngircd(tmp_path) as (host, port):
        assert asyncio.run(story(sides, host, port)) == []
    for side in sides:
        assert side.transcripts() == side.wanted()
