"""Who shares a conversation with whom, and who doesn't, through a real gateway; the table of aliases by itself."""

from __future__ import annotations

import inspect
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seriatim import GatewayConfig, MessageEvent, Platform, SessionEntry, SessionKey, SessionSource, build_session_key
from seriatim.adapters.base import Capabilities
from seriatim.aliases import Alias, AliasTable
from seriatim.config import AdmissionConfig
from seriatim.errors import InvalidInputError
from seriatim.events import Event
from seriatim.keys import canonical_key, parse_session_key
from seriatim.model import Target
from seriatim.testing.fake_platform import FakePlatform
from tests.core.many_keys import PIECES, PLATFORMS, TYPES
from tests.gateway.bots import Bot, bot, run, until


async def count(turn: Any) -> str:
    """Say how many messages of a person came before in this conversation."""
    return str(sum(1 for message in turn.history if message.role == "user"))


async def ask(it: Bot, text: str = "hi", **source: Any) -> tuple[str | None, str]:
    """The answer to a message, and its lane."""
    where = SessionSource(Platform("fake"), **source)
    receipt = await it.gateway.accept(MessageEvent(text, where, account="fake"))
    return (await receipt.answered()).text, receipt.session_key


def test_two_people_never_share_a_direct_chat(tmp_path: Path) -> None:
    """B01: different chats, or without a chat id different people, are different lanes; without any id a direct message
    is refused with its reason and counted.
    """

    async def main() -> None:
        async with bot(count, tmp_path) as it:
            for ids in ({"chat_id": "111"}, {"chat_id": "222"}, {"user_id": "u1"}, {"user_id": "u2"}):
                assert (await ask(it, **ids))[0] == "0"
            for ids in ({"chat_id": "111"}, {"chat_id": "222"}, {"user_id": "u1"}, {"user_id": "u2"}):
                assert (await ask(it, **ids))[0] == "1"
            refused = await it.gateway.accept(MessageEvent("hi", SessionSource("fake"), account="fake"))
            assert (refused.outcome, refused.reason) == ("refused", "dm_without_ids")
            assert it.gateway.balance()["refused"] == 1

    run(main())


def test_direct_messages_without_ids_may_share(tmp_path: Path) -> None:
    """B01: one shared lane for them where the setting says so."""
    config = GatewayConfig(admission=AdmissionConfig(dm_without_ids="shared"))

    async def main() -> None:
        async with bot(count, tmp_path, config=config) as it:
            assert [(await ask(it))[0] for _ in range(2)] == ["0", "1"]

    run(main())


def test_each_topic_is_a_conversation(tmp_path: Path) -> None:
    """B03: two topics and the chat itself are three lanes; a topic is everybody's, the chat is each person's own."""

    async def main() -> None:
        async with bot(count, tmp_path) as it:
            lanes: dict[str | None, list[tuple[str | None, str]]] = {}
            for thread in ("42", "43", None):
                for user in ("u1", "u2"):
                    told, lane = await ask(it, chat_id="-100", chat_type="group", thread_id=thread, user_id=user)
                    lanes.setdefault(thread, []).append((told, lane))
            assert [told for told, _ in lanes["42"]] == ["0", "1"]
            assert [told for told, _ in lanes["43"]] == ["0", "1"]
            assert [told for told, _ in lanes[None]] == ["0", "0"]
            assert len({lane for told in lanes.values() for _, lane in told}) == 4

    run(main())


@pytest.mark.parametrize(
    ("able", "forum", "lanes"), [(True, None, 3), (True, False, 1), (False, None, 1), (False, True, 3)]
)
def test_threads_that_are_none(able: bool, forum: bool | None, lanes: int, tmp_path: Path) -> None:
    """B04: where a chat has no topics, a thread id of a reply makes no conversation; the source says so, else the
    adapter's capabilities. The reply still goes under the message.
    """
    platform = FakePlatform(capabilities=Capabilities(replay="ack", threads=able))

    async def main() -> None:
        async with bot(count, tmp_path, platform) as it:
            for thread in (None, "77", "78"):
                it.platform.say("hi", chat_type="group", chat_id="g", thread_id=thread, is_forum=forum)
                await it.at_rest()
            await until(lambda: len(platform.received) == 3)
            assert len(set(await _lanes(it))) == lanes
            assert [got.out.target.thread_id for got in platform.received] == [None, "77", "78"]

    run(main())


async def _lanes(it: Bot) -> list[str]:
    runtime = it.gateway._runtime
    assert runtime is not None
    return list(runtime.directory.live)


def test_a_chat_has_one_id_before_any_key_is_built(tmp_path: Path) -> None:
    """What the adapter's chat_id_key makes of a chat's id is its id in keys and in replies."""

    class Folding(FakePlatform):
        def chat_id_key(self, chat_id: str) -> str:
            return chat_id.lower()

    platform = Folding()

    async def main() -> None:
        async with bot(count, tmp_path, platform) as it:
            for n, chat in enumerate(("#Garden", "#garden", "#GARDEN")):
                it.platform.say("hi", chat_id=chat)
                await until(lambda n=n: len(platform.received) == n + 1)  # type: ignore[misc]
            assert platform.texts("#garden") == ["0", "1", "2"]

    run(main())


SOURCES = st.builds(
    SessionSource,
    platform=st.sampled_from([*PLATFORMS, "whatsapp", "signal"]),
    chat_id=st.sampled_from(PIECES),
    chat_type=st.sampled_from(TYPES),
    user_id=st.none() | st.sampled_from(PIECES),
    user_id_alt=st.none() | st.sampled_from(PIECES),
    thread_id=st.none() | st.sampled_from(PIECES),
    guild_id=st.none() | st.sampled_from(PIECES),
    chat_id_alt=st.none() | st.sampled_from(PIECES),
    user_name=st.none() | st.text(max_size=5),
    is_bot=st.booleans(),
    role_authorized=st.booleans(),
    is_forum=st.none() | st.booleans(),
)


@given(SOURCES, st.booleans(), st.booleans())
def test_the_key_outlives_the_record(source: SessionSource, group: bool, thread: bool) -> None:
    """B06: serialise, load, rebuild the key: the same for every source, also by way of an entry; and nothing is lost of
    who was let in.
    """
    config = GatewayConfig(group_sessions_per_user=group, thread_sessions_per_user=thread)
    loaded = SessionSource.from_dict(source.to_dict())
    assert loaded == source
    assert (loaded.is_bot, loaded.role_authorized) == (source.is_bot, source.role_authorized)
    key = SessionKey.from_source(source, config, "bot")
    assert SessionKey.from_source(loaded, config, "bot") == key
    assert canonical_key(loaded, config, "bot") == key.canonical
    assert parse_session_key(key.canonical) == key
    assert build_session_key(loaded, group, thread) == key.text
    when = "2026-01-02T03:04:05+00:00"
    record = {"session_key": key.canonical, "session_id": "s", "created_at": when, "origin": source.to_dict()}
    origin = SessionEntry.from_dict(record).origin
    assert origin is not None
    assert SessionKey.from_source(origin, config, "bot") == key


def test_every_way_in_has_one_key(tmp_path: Path) -> None:
    """B06, B10: a message, its wake and its restored record reach one lane, which the receipt names; a key that this
    configuration doesn't make is refused, never served by a sibling.
    """

    async def main() -> None:
        async with bot(count, tmp_path) as it:
            places = ({"chat_id": "g", "chat_type": "group", "thread_id": "t"}, {"chat_id": "d"})
            for ids in places:
                _, lane = await ask(it, user_id="u", **ids)
                woken = await it.gateway.wake(lane, "time is up")
                assert woken.session_key == lane
                assert (await woken.answered()).outcome == "answered"
                assert (await ask(it, user_id="u", **ids))[0] == "2"
                await it.at_rest()
                assert {got.out.target.chat_id for got in it.platform.received[-3:]} == {ids["chat_id"]}
            foreign = SessionKey.from_source(
                SessionSource("fake", "g", chat_type="group", thread_id="t", user_id="u"),
                GatewayConfig(thread_sessions_per_user=True),
                "fake",
            )
            with pytest.raises(InvalidInputError):
                await it.gateway.wake(foreign.canonical, "no")

    run(main())


def test_no_key_without_the_configuration(tmp_path: Path) -> None:
    """B07: whatever builds a key needs both settings; and what /undo removes in a shared group is gone for the next."""
    for function in (build_session_key, SessionKey.from_source):
        parameters = [p for p in inspect.signature(function).parameters.values() if p.name != "account"]
        assert all(p.default is inspect.Parameter.empty for p in parameters)

    async def main() -> None:
        async with bot(count, tmp_path, config=GatewayConfig(group_sessions_per_user=False)) as it:
            place = {"chat_id": "g", "chat_type": "group"}
            assert (await ask(it, user_id="u1", **place))[0] == "0"
            assert (await ask(it, user_id="u2", **place))[0] == "1"
            await ask(it, "/undo", user_id="u2", **place)
            assert (await ask(it, user_id="u1", **place))[0] == "1"

    run(main())


def test_a_wake_answers_where_it_was_made(tmp_path: Path) -> None:
    """B09: in a shared lane a wake's reply goes to the lane's chat, whoever spoke last, also after the adapter was
    down.
    """
    place = {"chat_id": "g", "chat_type": "group", "thread_id": "t"}

    async def main() -> None:
        async with bot(count, tmp_path) as it:
            _, lane = await ask(it, user_id="owner", **place)
            await ask(it, user_id="b", **place)
            it.platform.go_down()
            woken = await it.gateway.wake(lane, "the job is done")
            await woken.answered()
            it.platform.come_back()
            await until(lambda: len(it.platform.received) == 3)
            target = it.platform.received[-1].out.target
            assert target == Target("fake", "fake", "g", "group", "t", target.user_id, None)
            assert target.user_id != "b"

    run(main())


def test_nobody_chooses_a_key(tmp_path: Path) -> None:
    """B13: what a caller says in any field of its message leads to no other caller's lane; a message has no key."""
    config = GatewayConfig()
    mine = {"user_id": "u1", "chat_id": "dm-1"}
    theirs = SessionKey.from_source(SessionSource("fake", "dm-2", user_id="u2"), config, "fake")
    assert "session_key" not in inspect.signature(MessageEvent).parameters
    for field in ("chat_id", "thread_id", "chat_name", "user_name", "guild_id", "message_id", "chat_topic"):
        for told in (theirs.canonical, theirs.text, "x:" + theirs.canonical):
            source = SessionSource.from_dict({"platform": "fake", **mine, field: told})
            assert canonical_key(source, config, "fake") != theirs.canonical

    async def main() -> None:
        async with bot(count, tmp_path) as it:
            await ask(it, chat_id="dm-2", user_id="u2")
            assert (await ask(it, chat_id=theirs.canonical, user_id="u1"))[0] == "0"

    run(main())


ODD = ["!a:b", "a%3Ab", "a/b", "a\nb", "", "x" * 4096, "\u00e9", "e\u0301", ":", "%", "::", "dm", "agent:main"]


def test_ids_that_hold_separators_tell_lanes_apart() -> None:
    """B15: chat `!a:b` of user `c` isn't chat `!a` of thread or user `b:c`; no two of such sources share a key, each
    parses back, and lengths are bounded.
    """
    config = GatewayConfig()
    keys: dict[str, tuple[str, str | None, str]] = {}
    for chat in ODD:
        for thread in (None, *ODD):
            for user in ODD:
                source = SessionSource("matrix", chat, chat_type="group", thread_id=thread, user_id=user)
                key = SessionKey.from_source(source, config)
                told = (chat, thread or None, "" if thread else user)
                assert keys.setdefault(key.canonical, told) == told
                assert parse_session_key(key.canonical) == key
    with pytest.raises(InvalidInputError):
        SessionSource("matrix", "x" * 4097)


# --- the table of aliases --------------------------------------------------------------------------------


def lane(chat: str = "c", user: str = "", platform: str = "fake", chat_type: str = "group", scope: str = "") -> str:
    """A lane's key."""
    return SessionKey(platform, chat_type, scope, "", chat, "", user, shared=not user).canonical


def test_an_alias_holds_in_its_scope_only() -> None:
    """Platform, bot account, scope and kind keep aliases apart."""
    table = AliasTable()
    table.learn(Alias("fake", "a", "b", scope="s"))

    assert table.present(lane(user="a", scope="s")) == lane(user="b", scope="s")
    for other in (lane(user="a"), lane(user="a", platform="irc", scope="s"), lane(chat="a", scope="s")):
        assert table.present(other) == other


def test_a_person_s_chat_is_called_as_the_person_is() -> None:
    """Where a direct chat has its other side's id, the person's alias is the chat's; elsewhere it isn't."""
    table = AliasTable()
    for platform in ("whatsapp", "telegram"):
        table.learn(Alias(platform, "9@lid", "491701234567"))

    direct = lane("9@lid", platform="whatsapp", chat_type="dm")
    assert table.present(direct) == lane("491701234567", platform="whatsapp", chat_type="dm")
    assert list(table.variants(table.present(direct))) == [direct]
    other = lane("9@lid", platform="telegram", chat_type="dm")
    assert table.present(other) == other


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.sampled_from("abcdef"), st.booleans()), max_size=12))
def test_circles_of_aliases_come_to_rest(pairs: list[tuple[str, str, bool]]) -> None:
    """However pairs come, every id of a group leads to one name, which is a fixed point; what a table learnt, it tells
    again from its log; and telling known pairs again changes nothing.
    """
    table, again = AliasTable(), AliasTable()
    for n, (old, new, chat) in enumerate(pairs):
        alias = Alias("fake", old, new, "chat" if chat else "user")
        table.learn(alias)
        assert table.knows(alias)
        again.apply(Event("alias/learnt", n, 0, alias.to_data()))
    assert again.head == len(pairs)
    for one in "abcdef":
        for key in (lane(chat=one), lane(user=one)):
            name = table.present(key)
            assert table.present(name) == name == again.present(key)
            assert key == name or key in set(table.variants(name))
    known = [
        alias for old, new, chat in pairs if table.knows(alias := Alias("fake", new, old, "chat" if chat else "user"))
    ]
    names = [table.present(lane(chat=one)) for one in "abcdef"]
    for alias in random.Random(1).sample(known, len(known)):
        table.learn(alias)
    assert [table.present(lane(chat=one)) for one in "abcdef"] == names
