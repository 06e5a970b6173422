"""Two people in one shared thread, a direct message each, and a group with a lane each: a hundred things said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from seriatim.events import lane_log, session_log
from seriatim.keys import SessionKey
from seriatim.model import SessionSource
from seriatim.storage.projections import folded
from seriatim.storage.sqlite_reader import SqliteReader
from seriatim.surface import fold
from seriatim.testing.fake_platform import FakePlatform
from tests.commands.conversations import ROUNDS, Lane, Script, answer
from tests.gateway.bots import Bot, balance_holds, bot, run, until

PEOPLE = ("alice", "bob")
THREAD = {"chat_id": "-5", "chat_type": "group", "thread_id": "9"}
GROUP = {"chat_id": "-5", "chat_type": "group"}


def lanes() -> list[tuple[Lane, dict[str, str]]]:
    """The five lanes, each with where it is."""
    private = [(Lane(f"dm {who}", (who,), False), {"chat_id": who}) for who in PEOPLE]
    grouped = [(Lane(f"group {who}", (who,), False), GROUP) for who in PEOPLE]
    return [(Lane("thread", PEOPLE, True), THREAD), *private, *grouped]


def heard(platform: FakePlatform, lane: Lane, where: dict[str, str]) -> list[str]:
    """The bot's words in one lane, told apart by what it was sent to alone."""
    texts = []
    for got in platform.received:
        to = got.out.target
        mine = (to.chat_id, to.thread_id) == (where["chat_id"], where.get("thread_id")) and to.user_id in lane.speakers
        texts += [got.out.text] if mine else []
    return texts


async def talk(b: Bot, script: Script, world: list[tuple[Lane, dict[str, str]]]) -> None:
    """Rounds in which somebody says something in every lane, all at once; then every reply is what it must be."""
    wanted: dict[str, list[str]] = {lane.name: [] for lane, _ in world}
    for _ in range(ROUNDS):
        for lane, where in world:
            speaker, text = script.next(lane)
            wanted[lane.name].append(lane.hear(speaker, text))
            b.platform.say(text, user_id=speaker, user_name=speaker, **where)
        for lane, where in world:
            count = len(wanted[lane.name])
            await until(lambda: len(heard(b.platform, lane, where)) >= count)  # noqa: B023  (waited for at once)
    for lane, where in world:
        assert heard(b.platform, lane, where) == wanted[lane.name], lane.name
    await b.at_rest()


class _Flags:
    group_sessions_per_user = True
    thread_sessions_per_user = False


def shown(reader: SqliteReader, lane: Lane, where: dict[str, Any]) -> list[str]:
    """What the store says that the lane's conversation shows."""
    source = SessionSource("fake", user_id=lane.speakers[0], **where)
    key = SessionKey.from_source(source, _Flags(), "fake").canonical
    bound = folded(reader, lane_log(key)).bound
    events = [] if bound is None else reader.read(session_log(bound))
    texts = {event.seq: str(event.data.get("text")) for event in events}
    return [texts[seq] for seq in fold(events).seqs()]


@pytest.mark.parametrize("seed", range(3))
def test_everybody_has_exactly_their_own(tmp_path: Path, seed: int) -> None:
    """Replies, their places and the transcripts are those of a plain model: nothing of one lane shows in another."""
    world = lanes()
    script = Script(seed, [lane for lane, _ in world])

    async def story() -> None:
        async with bot(answer, tmp_path) as b:
            await talk(b, script, world)
            assert b.errors == []

    run(story())
    assert balance_holds(tmp_path)
    reader = SqliteReader(tmp_path / "state.db")
    for lane, where in world:
        assert shown(reader, lane, where) == lane.shows(), lane.name
    reader.close()
    assert sum(len(talk.turns) for lane, _ in world for talk in lane.talks) > 10
