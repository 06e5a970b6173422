"""WhatsApp's many names of one account."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seriatim.identity import Aliases, canonical_whatsapp_identifier
from seriatim.keys import build_session_key
from seriatim.model import SessionSource

PHONE = "491701234567"


@pytest.mark.parametrize(
    "form",
    [
        PHONE,
        f"+{PHONE}",
        "+49 170 123-4567",
        "+49 (170) 123.4567",
        f"{PHONE}@s.whatsapp.net",
        f"+{PHONE}@s.whatsapp.net",
        f"{PHONE}:12@s.whatsapp.net",
        f"{PHONE}@c.us",
        f"{PHONE}:3",
        f"  {PHONE} ",
    ],
)
def test_a_phone_has_one_form(form: str) -> None:
    """Every way to write a phone number gives its digits."""
    assert canonical_whatsapp_identifier(form) == PHONE


@pytest.mark.parametrize(
    "odd",
    [
        "alice_b",
        "status@broadcast",
        "120363@newsletter",
        "\uff11\uff12\uff13\uff14\uff15\uff16",
        "",
        "@",
        "a b",
        "1234",
        "++491701234567",
    ],
)
def test_odd_ids_pass_unharmed(odd: str) -> None:
    """An id of no known form comes back as it is, and never raises."""
    assert canonical_whatsapp_identifier(odd) == odd


def test_a_group_loses_its_server() -> None:
    """A group's id is what stands before @g.us, hyphens included."""
    assert canonical_whatsapp_identifier("4917012-1612345@g.us") == "4917012-1612345"


def test_a_lid_is_no_phone() -> None:
    """A LID of the same digits as a phone stays another account, whichever device wrote."""
    assert canonical_whatsapp_identifier(f"{PHONE}:7@lid") == f"{PHONE}@lid"


@given(st.text(alphabet="+@:.- 1234567890abcglidsuwhtpne", max_size=30) | st.text(max_size=20))
def test_twice_is_once(identifier: str) -> None:
    """What is canonical stays as it is."""
    once = canonical_whatsapp_identifier(identifier)
    assert canonical_whatsapp_identifier(once) == once


def test_an_alias_learnt_late_names_what_to_merge() -> None:
    """Learning that a LID is a phone makes the phone the name and tells which name has gone."""
    table = Aliases()
    assert table.canonical("77@lid") == "77@lid"

    assert table.learn("77:2@lid", f"+{PHONE}") == ("77@lid",)
    assert table.canonical("77@lid") == PHONE
    assert table.learn(PHONE, "77@lid") == ()


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.sampled_from("abcdef"))))
def test_cycles_and_order_do_not_matter(pairs: list[tuple[str, str]]) -> None:
    """Circular and repeated pairs, in any order, give the groups that they connect, each with one name."""
    table, reverse = Aliases.of(pairs), Aliases.of((b, a) for a, b in reversed(pairs))
    group = {name: {name} for name in "abcdef"}
    for _ in "abcdef":
        for one, other in pairs:
            joined = group[one] | group[other]
            for member in joined:
                group[member] = joined

    for name in "abcdef":
        assert table.canonical(name) == reverse.canonical(name) == min(group[name])


@pytest.mark.parametrize("chat_type", ["dm", "group"])
def test_keys_know_one_account_by_one_name(chat_type: str) -> None:
    """Lane keys of a phone's forms are equal, for a chat as for a group's member."""
    forms = (PHONE, f"{PHONE}:4@s.whatsapp.net", f"+{PHONE}")
    keys = {
        build_session_key(
            SessionSource(
                "whatsapp",
                chat_id=form if chat_type == "dm" else "1203@g.us",
                chat_type=chat_type,
                user_id=form,
            ),
            group_sessions_per_user=True,
            thread_sessions_per_user=False,
        )
        for form in forms
    }
    tail = PHONE if chat_type == "dm" else f"1203:{PHONE}"
    assert keys == {f"agent:main:whatsapp:{chat_type}:{tail}"}


def test_a_signal_group_has_its_canonical_id() -> None:
    """A Signal group known by two ids has one lane, named by the canonical one."""
    key = build_session_key(
        SessionSource("signal", chat_id="v2-id", chat_id_alt="group.abc", chat_type="group", user_id="u"),
        group_sessions_per_user=False,
        thread_sessions_per_user=False,
    )
    assert key == "agent:main:signal:group:group.abc"
