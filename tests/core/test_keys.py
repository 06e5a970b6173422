"""Session keys: the seed's text byte for byte, and an identity that nobody else can have."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import frozen
from hypothesis import given
from hypothesis import strategies as st

from seriatim.errors import InvalidInputError
from seriatim.keys import SessionKey, build_session_key, is_shared_multi_user_session, parse_session_key
from seriatim.model import SessionSource
from tests.core.many_keys import run


@frozen
class Settings:
    """The two settings, at the seed's defaults."""

    group_sessions_per_user: bool = True
    thread_sessions_per_user: bool = False


def source(platform: str, chat_type: str, **fields: Any) -> SessionSource:
    """A source; no id unless given."""
    return SessionSource(platform, chat_type=chat_type, **fields)


SEED_ROWS = [
    ("telegram", "dm", {"chat_id": "12345", "user_id": "u"}, True, False, "agent:main:telegram:dm:12345"),
    (
        "telegram",
        "dm",
        {"chat_id": "12345", "thread_id": "thread_678"},
        True,
        False,
        "agent:main:telegram:dm:12345:thread_678",
    ),
    ("signal", "dm", {"user_id": "user_abc"}, True, False, "agent:main:signal:dm:user_abc"),
    ("telegram", "dm", {}, True, False, "agent:main:telegram:dm"),
    ("whatsapp", "dm", {"chat_id": "491701234567"}, True, False, "agent:main:whatsapp:dm:491701234567"),
    (
        "telegram",
        "group",
        {"chat_id": "-10012345", "user_id": "user_abc"},
        False,
        False,
        "agent:main:telegram:group:-10012345",
    ),
    (
        "telegram",
        "group",
        {"chat_id": "-10012345", "user_id": "user_abc"},
        True,
        False,
        "agent:main:telegram:group:-10012345:user_abc",
    ),
    (
        "discord",
        "group",
        {"chat_id": "12345", "thread_id": "thread_678", "user_id": "user_abc"},
        True,
        False,
        "agent:main:discord:group:12345:thread_678",
    ),
    (
        "discord",
        "group",
        {"chat_id": "12345", "thread_id": "thread_678", "user_id": "user_abc"},
        True,
        True,
        "agent:main:discord:group:12345:thread_678:user_abc",
    ),
    ("slack", "channel", {"chat_id": "C12345", "user_id": "U1"}, False, False, "agent:main:slack:channel:C12345"),
    (
        "whatsapp",
        "group",
        {"chat_id": "120363", "user_id": "4917"},
        True,
        False,
        "agent:main:whatsapp:group:120363:4917",
    ),
]


@pytest.mark.parametrize(("platform", "chat_type", "fields", "per_group", "per_thread", "text"), SEED_ROWS)
def test_each_row_of_the_seed(
    platform: str, chat_type: str, fields: dict[str, Any], per_group: bool, per_thread: bool, text: str
) -> None:
    """Every row of the gateway seed's two tables gives its text, byte for byte."""
    assert build_session_key(source(platform, chat_type, **fields), per_group, per_thread) == text


def test_participant_is_the_stable_id_first() -> None:
    """A participant is named by user_id_alt, else by user_id."""
    both = source("signal", "group", chat_id="g", user_id="u", user_id_alt="uuid")
    assert build_session_key(both, True, False) == "agent:main:signal:group:g:uuid"


@pytest.mark.parametrize(
    ("chat_type", "thread", "per_group", "per_thread", "shared"),
    [
        ("dm", None, False, False, False),
        ("dm", "t", True, True, False),
        ("group", None, True, False, False),
        ("group", None, False, False, True),
        ("channel", None, True, True, False),
        ("group", "t", True, False, True),
        ("group", "t", False, True, False),
        ("thread", "t", True, False, True),
    ],
)
def test_who_shares_a_lane(chat_type: str, thread: str | None, per_group: bool, per_thread: bool, shared: bool) -> None:
    """The seed's three lines: DMs never, threads unless per user, groups if not per user."""
    where = source("x", chat_type, chat_id="c", thread_id=thread, user_id="u")
    found = is_shared_multi_user_session(where, group_sessions_per_user=per_group, thread_sessions_per_user=per_thread)
    assert found is shared


def test_missing_sender_ids_count_as_shared() -> None:
    """A per-user group lane without sender ids is shared in fact, and says so."""
    key = SessionKey.from_source(source("x", "group", chat_id="c"), Settings())
    assert key.shared


def test_no_chat_id_is_not_a_chat_called_none() -> None:
    """A chat id of None is no id, never a chat of that name that strangers share."""
    assert SessionSource("signal", None, chat_type="dm").chat_id == ""


def test_scope_and_account_keep_equal_ids_apart() -> None:
    """Equal ids in two guilds, or received by two bot accounts, are two lanes with one text."""
    here = source("discord", "group", chat_id="1", guild_id="a", user_id="u")
    there = source("discord", "group", chat_id="1", guild_id="b", user_id="u")
    keys = {
        SessionKey.from_source(here, Settings()).canonical,
        SessionKey.from_source(there, Settings()).canonical,
        SessionKey.from_source(here, Settings(), account="second").canonical,
    }
    assert len(keys) == 3
    assert SessionKey.from_source(here, Settings()).text == SessionKey.from_source(there, Settings()).text


NASTY = st.text(alphabet=st.sampled_from([":", "%", "3", "A", "2", "5", "a", "\n", "ä", "\U0001f600"]), max_size=8)
PARTS = st.tuples(*[NASTY] * 7)


def _key(parts: tuple[str, ...]) -> SessionKey:
    platform, chat_type, scope, account, chat_id, thread, participant = parts
    shared = chat_type != "dm" and not participant
    return SessionKey(platform, chat_type, scope, account, chat_id, thread, participant, shared)


@given(PARTS, PARTS)
def test_canonical_keys_are_injective(one: tuple[str, ...], other: tuple[str, ...]) -> None:
    """Two different identities never share a canonical key, whatever colons and percents their ids hold."""
    assert (_key(one).canonical == _key(other).canonical) is (one == other)


@given(PARTS)
def test_canonical_keys_come_back(parts: tuple[str, ...]) -> None:
    """Parsing is the inverse of the canonical form."""
    assert parse_session_key(_key(parts).canonical) == _key(parts)


@given(st.text(max_size=60) | PARTS.map(lambda parts: "lane:" + ":".join(parts)))
def test_parsing_accepts_only_what_it_would_write(text: str) -> None:
    """Whatever parses is written back unchanged; anything else is refused, typed."""
    try:
        key = parse_session_key(text)
    except InvalidInputError:
        return
    assert key.canonical == text


IDS = st.text(min_size=1, max_size=6, alphabet=":%ab")


@given(IDS, IDS, IDS, st.booleans())
def test_sources_of_two_people_never_share_a_private_lane(chat: str, user: str, other: str, dm: bool) -> None:
    """Different people (or different DM chats) get different lanes under the default settings."""
    if dm:
        a, b = source("x", "dm", chat_id=chat + user), source("x", "dm", chat_id=chat + other)
    else:
        a, b = (source("x", "group", chat_id=chat, user_id=who) for who in (user, other))
    keys = [SessionKey.from_source(where, Settings()).canonical for where in (a, b)]
    assert (keys[0] == keys[1]) is (user == other)


def test_chat_type_is_checked_like_any_id() -> None:
    """A chat type that can't be stored is refused at the door, not by the disk."""
    for bad in ("\ud800", 5, ""):
        with pytest.raises(InvalidInputError):
            SessionSource("x", "c", chat_type=bad)  # type: ignore[arg-type]


def test_many_hostile_sources() -> None:
    """Among sources whose ids try to look like others' no two share a canonical key, each parses back, and each
    text is the seed's (B15). ``python -m tests.core.many_keys`` tries a million.
    """
    counted = run(20_000, seed=7)

    assert counted.is_good, counted
