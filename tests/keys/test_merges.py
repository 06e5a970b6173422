"""Lanes that become one and sessions that move, through a real gateway: real store, real loop, a platform beside it."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from seriatim import Gateway, MessageEvent, Platform, SessionSource
from seriatim.actors.merging import MoveAnswer, MoveSession
from seriatim.actors.runtime import unique_key
from seriatim.adapters.base import Capabilities
from seriatim.aliases import ALIASES
from seriatim.errors import InvalidInputError, SendError
from seriatim.events import lane_log, session_log
from seriatim.keys import canonical_key
from seriatim.mail import Inbound
from seriatim.model import Outbound, Sent
from seriatim.storage.audit import audit
from seriatim.storage.sqlite_reader import SqliteReader
from seriatim.testing.fake_platform import FakePlatform
from tests.gateway.bots import Bot, bot, run, until


class Agent:
    """Answers with its session's number of messages; a text that begins with "hold" waits for ``go``."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.seen: list[tuple[str, str]] = []

    async def run(self, turn: Any) -> str:
        """Remember, perhaps wait, answer."""
        self.seen.append((turn.session, turn.text))
        if turn.text.startswith("hold"):
            await self.go.wait()
        return f"{len(turn.history) // 2}: {turn.text}"

    @property
    def sessions(self) -> list[str]:
        """In which sessions turns ran."""
        return [session for session, _ in self.seen]


def source(chat_id: str, platform: str = "fake", **more: Any) -> SessionSource:
    """Where somebody writes."""
    return SessionSource(Platform(platform), chat_id, **more)


def said(text: str, where: SessionSource, message_id: str | None = None) -> MessageEvent:
    """A message of the fake platform's account."""
    return MessageEvent(text, where, account="fake", message_id=message_id)


async def answers(platform: FakePlatform, count: int) -> None:
    """Wait until the platform got so many."""
    await until(lambda: len(platform.texts()) == count)


def balanced(home: Path) -> bool:
    """Whether law 1 holds in the files, by counters and by logs."""
    reader = SqliteReader(home / "state.db")
    try:
        found = audit(reader)
        return found.holds and not found.logs.waiting
    finally:
        reader.close()


def test_an_upgraded_group_goes_on_under_its_new_id(tmp_path: Path) -> None:
    """B16: same session under the new key; what waits and what is owed goes to the new chat, and its redelivery, under
    the old id, is still known.
    """
    old = source("-5", chat_type="group", user_id="u")
    new = source("-1005", chat_type="group", user_id="u")

    async def main() -> None:
        agent = Agent()
        async with bot(agent, tmp_path) as it:
            gateway, platform = it.gateway, it.platform
            assert (await (await gateway.accept(said("one", old, "m1"))).answered()).text == "0: one"
            platform.go_down()
            await (await gateway.accept(said("two", old, "m2"))).answered()
            held = await gateway.accept(said("hold three", old, "m3"))
            later = await gateway.accept(said("/queue four", old, "m4"))
            learning = asyncio.ensure_future(gateway.learn_alias("fake", "-5", "-1005", kind="chat", account="fake"))
            await learning
            five = await gateway.accept(said("five", new, "m5"))
            agent.go.set()
            platform.come_back()
            assert (await held.answered()).text == "2: hold three"
            assert (await later.answered()).text == "3: four"
            assert (await five.answered()).text == "4: five"
            assert later.session_key == five.session_key
            assert len(set(agent.sessions)) == 1
            await until(lambda: "4: five" in platform.texts("-1005"))  # and, before it, the place of four
            assert platform.texts("-5") == ["0: one"]
            assert (await gateway.accept(said("four", old, "m4"))).outcome == "duplicate"
            again = await gateway.accept(said("six", old, "m6"))
            assert (await again.answered()).text == "5: six"
            await until(lambda: platform.texts("-1005")[-1] == "5: six")
        assert balanced(tmp_path)

    run(main())


def test_a_send_that_is_told_the_new_id_moves_the_chat(tmp_path: Path) -> None:
    """B16: a platform that refuses a send with the chat's new id makes the same move: the reply arrives there once, and
    the conversation goes on.
    """

    class Upgraded(FakePlatform):
        async def send(self, out: Outbound) -> Sent:
            if out.target.chat_id == "-5":
                raise SendError("the chat has moved", moved_to="-1005")
            return await super().send(out)

    old, new = (source(chat, chat_type="group", user_id="u") for chat in ("-5", "-1005"))

    async def main() -> None:
        agent = Agent()
        platform = Upgraded()
        async with bot(agent, tmp_path, platform) as it:
            await (await it.gateway.accept(said("one", old, "m1"))).answered()
            await until(lambda: platform.texts("-1005") == ["0: one"])
            assert (await (await it.gateway.accept(said("two", new, "m2"))).answered()).text == "1: two"
            await until(lambda: platform.texts("-1005") == ["0: one", "1: two"])
            assert len(set(agent.sessions)) == 1
        assert balanced(tmp_path)

    run(main())


def test_the_stable_id_comes_on_some_events_only(tmp_path: Path) -> None:
    """B18: user id only, then both, then the stable one only: one lane, by an alias that is an event of a log."""
    able = Capabilities(replay="ack", lasting_user_ids=True)

    async def main() -> None:
        agent = Agent()
        platform = FakePlatform(capabilities=able)
        async with bot(agent, tmp_path, platform):
            for count, ids in enumerate(({"user_id": "u"}, {"user_id": "u", "user_id_alt": "A"}, {"user_id_alt": "A"})):
                where = source("g", chat_type="group", **ids)
                platform.post(said(f"m{count}", where, f"m{count}"))
                await answers(platform, count + 1)
            assert platform.texts() == ["0: m0", "1: m1", "2: m2"]
            assert len(set(agent.sessions)) == 1
        reader = SqliteReader(tmp_path / "state.db")
        [learnt] = reader.read(ALIASES)
        assert (learnt.type, learnt.data["old"], learnt.data["new"]) == ("alias/learnt", "u", "A")
        reader.close()
        # And in a new process, which reads the table from its log.
        async with bot(agent, tmp_path, platform):
            platform.post(said("m3", source("g", chat_type="group", user_id="u"), "m3"))
            await until(lambda: platform.texts()[-1] == "3: m3")

    run(main())


def test_ids_that_pass_to_others_are_no_aliases(tmp_path: Path) -> None:
    """Where a platform's user ids can change hands, what one message says of two ids tells nothing."""

    async def main() -> None:
        agent = Agent()
        async with bot(agent, tmp_path) as it:
            for count, ids in enumerate(({"user_id": "u"}, {"user_id": "u", "user_id_alt": "A"})):
                it.platform.post(said(f"m{count}", source("g", chat_type="group", **ids), f"m{count}"))
                await answers(it.platform, count + 1)
            assert len(set(agent.sessions)) == 2

    run(main())


def test_a_lid_becomes_a_number(tmp_path: Path) -> None:
    """A WhatsApp person known by a LID keeps the conversation when the bridge learns the number, in either direction
    and however often it tells; replies still go to the id that the person wrote from.
    """
    lid, phone = "123@lid", "4917012345678@s.whatsapp.net"

    async def main() -> None:
        agent = Agent()
        platform = FakePlatform("whatsapp")
        async with bot(agent, tmp_path, platform) as it:
            for n, chat in enumerate((lid, lid)):
                platform.post(said(f"m{n}", source(chat, "whatsapp", user_id=chat), f"m{n}"))
                await answers(platform, n + 1)
            for pair in ((phone, lid), (lid, phone), (lid, "+49 170 12345678")):
                await it.gateway.learn_alias("whatsapp", *pair, account="fake")
            platform.post(said("m2", source(phone, "whatsapp", user_id=phone), "m2"))
            await until(lambda: platform.texts(phone) == ["2: m2"])
            platform.post(said("m3", source(lid, "whatsapp", user_id=lid), "m3"))
            await until(lambda: platform.texts(lid)[-1] == "3: m3")
            assert len(set(agent.sessions)) == 1
        assert balanced(tmp_path)

    run(main())


def test_a_turn_that_runs_is_waited_for_and_can_be_stopped(tmp_path: Path) -> None:
    """Until its turn has ended a lane serves under its old key, so /stop reaches it; then both are one."""
    old, new = source("o", user_id="u"), source("n", user_id="u")

    async def main() -> None:
        agent = Agent()
        async with bot(agent, tmp_path) as it:
            gateway = it.gateway
            held = await gateway.accept(said("hold", old, "m1"))
            await until(lambda: agent.seen)
            await gateway.learn_alias("fake", "o", "n", kind="chat", account="fake")
            waits = await gateway.accept(said("waits", new, "m2"))
            assert waits.end is None
            stop = await gateway.accept(said("/stop", old, "m3"))
            assert (await held.answered()).reason == "aborted"
            assert "Stopped" in str((await stop.answered()).text)
            assert (await waits.answered()).outcome == "answered"
            assert stop.session_key != waits.session_key
            after = await gateway.accept(said("after", old, "m4"))
            assert after.session_key == waits.session_key
            await after.answered()
        assert balanced(tmp_path)

    run(main())


def test_an_alias_that_cannot_be_is_refused(tmp_path: Path) -> None:
    """An empty id and an unknown kind are errors of the caller; the table stays as it is."""

    async def main() -> None:
        async with bot(Agent(), tmp_path) as it:
            with pytest.raises(InvalidInputError):
                await it.gateway.learn_alias("fake", "", "x")
            with pytest.raises(InvalidInputError):
                await it.gateway.learn_alias("fake", "x", "y", kind="group")  # type: ignore[arg-type]
            await it.gateway.learn_alias("fake", "x", "x")

    run(main())


def test_what_an_alias_came_to_is_told(tmp_path: Path) -> None:
    """Learnt, known, or, of a chat that is told to have moved back, reversed: then replies go on to the newer id."""

    async def main() -> None:
        async with bot(Agent(), tmp_path) as it:
            learn = partial(it.gateway.learn_alias, "fake", account="fake")
            assert await learn("o", "n", kind="chat") == "learnt"
            assert await learn("o", "n", kind="chat") == "known"
            assert await learn("n", "o", kind="chat") == "reversed"
            assert await learn("n", "n2", kind="chat") == "learnt"
            assert await learn("o", "n", kind="chat") == "known"
            assert await learn("n2", "o", kind="chat") == "reversed"
            await (await it.gateway.accept(said("hi", source("o", user_id="u"), "m1"))).answered()
            await until(lambda: it.platform.texts("n2") == ["0: hi"])
            assert await learn("a", "b") == "learnt"
            assert await learn("b", "a") == "known"  # of a person neither id is the old one

    run(main())


def _key(gateway: Gateway, where: SessionSource) -> str:
    return canonical_key(where, gateway.config, "fake")


async def moved(it: Bot, session: str, to: SessionSource, **more: Any) -> MoveAnswer:
    """Ask for a move and wait for the answer."""
    answer: asyncio.Future[MoveAnswer] = asyncio.get_running_loop().create_future()
    order = MoveSession(session, _key(it.gateway, to), "switch", done=answer.set_result, **more)
    runtime = it.gateway._runtime
    assert runtime is not None
    runtime.move_session(order)
    return await answer


def test_a_session_moves_to_another_lane(tmp_path: Path) -> None:
    """The lane goes on where the session stands; the one that had it starts fresh; who was wrong about it is told."""
    one, other = source("1", user_id="u"), source("2", user_id="u")

    async def main() -> None:
        agent = Agent()
        async with bot(agent, tmp_path) as it:
            gateway = it.gateway
            for n in range(2):
                await (await gateway.accept(said(f"a{n}", one, f"a{n}"))).answered()
            receipt = await gateway.accept(said("b", other, "b"))
            await receipt.answered()
            session, mine = agent.sessions[0], agent.sessions[-1]
            assert (await moved(it, "nobody's", other)).outcome == "unknown"
            assert await moved(it, session, other, expected_session="another") == MoveAnswer("changed", mine)
            assert await moved(it, session, other, expected_session=mine) == MoveAnswer("moved", session, mine)
            assert (await moved(it, session, other)).outcome == "same"
            end = await (await gateway.accept(said("c", other, "c"))).answered()
            assert end.text == "2: c"
            end = await (await gateway.accept(said("d", one, "d"))).answered()
            assert end.text == "0: d"
            held = await gateway.accept(said("hold", other, "e"))
            await until(lambda: agent.seen[-1][1] == "hold")
            assert (await moved(it, session, one)).outcome == "busy"
            agent.go.set()
            await held.answered()
            assert (await moved(it, session, one)).outcome == "moved"
        reader = SqliteReader(tmp_path / "state.db")
        assert reader.binding(session_log(session)) == lane_log(_key(gateway, one))
        reader.close()
        assert balanced(tmp_path)

    run(main())


def test_moves_of_one_lane_are_made_one_after_another(tmp_path: Path) -> None:
    """Asked for at once, each is made as it would be alone; nobody is told that a turn runs where none does."""
    one, other, third = source("1", user_id="u"), source("2", user_id="u"), source("3", user_id="u")

    async def main() -> None:
        agent = Agent()
        async with bot(agent, tmp_path) as it:
            for n, where in enumerate((one, other, third)):
                await (await it.gateway.accept(said("a", where, f"a{n}"))).answered()
            mine, theirs, last = agent.sessions
            first, second = await asyncio.gather(moved(it, theirs, one), moved(it, last, one))
            assert first == MoveAnswer("moved", theirs, mine)
            assert second == MoveAnswer("moved", last, theirs)
            assert (await (await it.gateway.accept(said("b", one, "b"))).answered()).text == "1: b"
            assert agent.sessions[-1] == last
            both = await asyncio.gather(moved(it, mine, other), moved(it, mine, third))
            assert [answer.outcome for answer in both] == ["moved", "moved"]
        assert balanced(tmp_path)

    run(main())


def test_a_command_is_answered_by_the_move_that_it_asked_for(tmp_path: Path) -> None:
    """A command given along is accepted and answered in the move's commit, or told why nothing moved."""
    one, other = source("1", user_id="u"), source("2", user_id="u")

    async def main() -> None:
        agent = Agent()
        async with bot(agent, tmp_path) as it:
            await (await it.gateway.accept(said("a", one, "a"))).answered()
            await (await it.gateway.accept(said("b", other, "b"))).answered()
            for inbox_id, text, outcome in (("i1", "Here we are.", "moved"), ("i2", "Again.", "same")):
                event = said("/resume x", other, inbox_id)
                command = Inbound(inbox_id, unique_key(event), event, 9, "resume", "x")
                answer = await moved(it, agent.sessions[0], other, command=command, text=text)
                assert answer.outcome == outcome
            await until(lambda: len(it.platform.texts("2")) == 3)
            assert it.platform.texts("2") == ["0: b", "Here we are.", "That is the conversation that you are in."]
        assert balanced(tmp_path)

    run(main())
