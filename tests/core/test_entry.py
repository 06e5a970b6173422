"""SessionEntry: a record that loses nothing on its way to text and back, and survives one that is damaged."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seriatim.entry import RESUME_REASONS, SessionEntry
from seriatim.errors import InvalidInputError
from seriatim.model import Platform, SessionSource

NOW = datetime(2026, 3, 4, 5, 6, 7, 890, UTC)
PLAIN = SessionEntry(
    session_key="agent:main:telegram:dm:1", session_id="20260304_050607_0a1b2c3d", created_at=NOW, updated_at=NOW
)

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
maybe = st.none() | texts
counts = st.integers(0, 2**40)
stamps = st.datetimes(
    min_value=datetime(1971, 1, 1),  # noqa: DTZ001 - the zone is drawn beside it
    max_value=datetime(2100, 1, 1),  # noqa: DTZ001
    timezones=st.sampled_from([UTC, timezone(timedelta(hours=5, minutes=30)), timezone(timedelta(hours=-8))]),
)
sources = st.builds(
    SessionSource,
    platform=st.sampled_from(["telegram", "irc", "of_tomorrow"]),
    chat_id=texts,
    chat_name=maybe,
    chat_type=st.sampled_from(["dm", "group", "channel", "thread", "forum"]),
    user_id=maybe,
    user_name=maybe,
    thread_id=maybe,
    chat_topic=maybe,
    user_id_alt=maybe,
    chat_id_alt=maybe,
    is_bot=st.booleans(),
    guild_id=maybe,
    parent_chat_id=maybe,
    message_id=maybe,
    role_authorized=st.booleans(),
)
entries = st.builds(
    SessionEntry,
    session_key=texts.filter(bool),
    session_id=st.text("0123456789abcdef_", min_size=1, max_size=24),
    created_at=stamps,
    updated_at=stamps,
    origin=st.none() | sources,
    display_name=maybe,
    platform=st.none() | st.sampled_from([Platform("irc"), Platform("of_tomorrow")]),
    chat_type=texts.filter(bool),
    input_tokens=counts,
    output_tokens=counts,
    cache_read_tokens=counts,
    cache_write_tokens=counts,
    total_tokens=counts,
    estimated_cost_usd=st.floats(0, 1e6),
    cost_status=texts.filter(bool),
    last_prompt_tokens=counts,
    was_auto_reset=st.booleans(),
    auto_reset_reason=maybe,
    reset_had_activity=st.booleans(),
    is_fresh_reset=st.booleans(),
    expiry_finalized=st.booleans(),
    suspended=st.booleans(),
    resume_pending=st.booleans(),
    resume_reason=st.none() | st.sampled_from(RESUME_REASONS),
    last_resume_marked_at=st.none() | stamps,
)


def unwelcome(name: str, reason: str) -> None:
    """A report that nobody expects."""
    raise AssertionError(f"{name}: {reason}")


@given(entries)
def test_there_and_back(entry: SessionEntry) -> None:
    """An entry comes back equal from JSON text, its source included, and nothing needs to be reported."""
    text = json.dumps(entry.to_dict())
    assert SessionEntry.from_dict(json.loads(text), unwelcome) == entry


def test_every_field_is_written() -> None:
    """The record names every field, also those at their default."""
    assert set(PLAIN.to_dict()) >= {"expiry_finalized", "cost_status", "origin", "last_resume_marked_at"}
    assert len(PLAIN.to_dict()) == 25


@pytest.mark.parametrize(
    ("field", "bad", "kept"),
    [
        ("updated_at", "yesterday", NOW),
        ("last_resume_marked_at", 12, None),
        ("origin", {"platform": ""}, None),
        ("origin", {"platform": "irc", "chat_type": 4}, None),
        ("origin", "irc", None),
        ("platform", "", None),
        ("platform", {"a": 1}, None),
        ("input_tokens", -1, 0),
        ("input_tokens", True, 0),
        ("total_tokens", "many", 0),
        ("suspended", "yes", False),
        ("resume_reason", 5, None),
        ("resume_reason", "\ud800", None),
        ("auto_reset_reason", "n" * 5000, None),
        ("chat_type", None, "dm"),
        ("cost_status", 0, "unknown"),
        ("estimated_cost_usd", -0.5, 0.0),
    ],
)
def test_a_bad_field_costs_only_itself(field: str, bad: Any, kept: Any) -> None:
    """A field that can't be read is told by name and falls back; the rest of the record stands."""
    told: list[str] = []
    record = PLAIN.to_dict() | {"display_name": "Garden", field: bad}

    entry = SessionEntry.from_dict(record, lambda name, _: told.append(name))

    assert told == [field]
    assert getattr(entry, field) == kept
    assert (entry.session_id, entry.display_name) == (PLAIN.session_id, "Garden")


@pytest.mark.parametrize(
    ("field", "bad"),
    [
        ("session_key", ""),
        ("session_key", None),
        ("session_id", ""),
        ("session_id", 5),
        ("session_id", "../../x"),
        ("session_id", "/etc/v"),
        ("session_id", "C:\\x"),
        ("session_id", "a\nb"),
        ("created_at", None),
        ("created_at", "soon"),
    ],
)
def test_without_identity_there_is_no_entry(field: str, bad: Any) -> None:
    """A record without a usable key, id or time of creation is refused, by field."""
    with pytest.raises(InvalidInputError) as refused:
        SessionEntry.from_dict(PLAIN.to_dict() | {field: bad}, lambda *_: None)
    assert refused.value.field == field


def test_what_is_no_record() -> None:
    """Something else than a table is refused."""
    with pytest.raises(InvalidInputError):
        SessionEntry.from_dict([])  # type: ignore[arg-type]


def test_the_flag_under_its_old_name() -> None:
    """``memory_flushed`` of older records is ``expiry_finalized``; the new name wins."""
    record = PLAIN.to_dict()
    del record["expiry_finalized"]

    assert SessionEntry.from_dict(record | {"memory_flushed": True}).expiry_finalized
    assert not SessionEntry.from_dict(record | {"memory_flushed": True, "expiry_finalized": False}).expiry_finalized


@pytest.fixture
def in_tokyo() -> Iterator[None]:
    """The host's zone is Tokyo's."""
    before = os.environ.get("TZ")
    os.environ["TZ"] = "Asia/Tokyo"
    time.tzset()
    yield
    if before is None:
        del os.environ["TZ"]
    else:
        os.environ["TZ"] = before
    time.tzset()


@pytest.mark.usefixtures("in_tokyo")
def test_a_naive_stamp_is_the_hosts_local_time() -> None:
    """A stamp without a zone, as older systems wrote it, is read in the host's zone."""
    entry = SessionEntry.from_dict(PLAIN.to_dict() | {"updated_at": "2026-03-04T09:00:00"})
    assert entry.updated_at == datetime(2026, 3, 4, 0, 0, tzinfo=UTC)
