"""A session's header is checked field by field."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from seriatim.errors import InvalidInputError
from seriatim.storage.event_log.header import SESSION_FORMAT_VERSION, SessionHeader, make_header

WHOLE = SessionHeader(
    id="child",
    created_at=1_767_225_600_000,
    cwd="/srv/é",
    parent_session="parent",
    seed_length=3,
    origin="subagent",
    delegation_depth=1,
    agent_preset="reviewer",
)
BAD: list[tuple[str, Any]] = [
    *(("version", value) for value in (-1, 1.0, True, "1", None)),
    *(("id", value) for value in ("", "a\0b", "\ud800", "x" * 5000, 7, None)),
    *(("created_at", value) for value in (-1, 0.5, -0.0, 2**53, True, "0", None)),
    *(("cwd", value) for value in ("relative", "", "/a\0b", "/\ud800", 7)),
    *(("parent_session", value) for value in ("", "\udfff", 7)),
    *(("seed_length", value) for value in (-1, 0.5, -0.0, True, "0")),
    *(("origin", value) for value in ("user", "", 7)),
    *(("delegation_depth", value) for value in (-1, 0.5, -0.0, True, "0")),
    *(("agent_preset", value) for value in (7, "\ud800", "x" * 5000)),
]


def test_a_header_comes_back_from_its_stored_form() -> None:
    """A header equals what its stored object gives; the keys are the seed's."""
    stored = WHOLE.to_json()

    assert list(stored) == [
        "version", "id", "createdAt", "cwd", "parentSession", "seedLength", "origin", "delegationDepth", "agentPreset",
    ]  # fmt: skip
    assert SessionHeader.from_json(stored) == WHOLE


def test_absent_fields_are_not_stored() -> None:
    """What a header doesn't say is left out of its stored form."""
    stored = make_header("a", 5).to_json()

    assert stored == {"version": SESSION_FORMAT_VERSION, "id": "a", "createdAt": 5}


@pytest.mark.parametrize(("name", "value"), BAD, ids=lambda value: ascii(value)[:20])
def test_each_field_has_its_own_refusal(name: str, value: Any) -> None:
    """A malformed field is refused by name."""
    with pytest.raises(InvalidInputError) as refused:
        attrs.evolve(WHOLE, **{name: value})

    assert refused.value.field == name


@pytest.mark.parametrize("key", ["version", "id", "createdAt"])
def test_a_stored_header_without_its_core_is_refused(key: str) -> None:
    """Version, id and time must be there."""
    stored = WHOLE.to_json()
    del stored[key]

    with pytest.raises(InvalidInputError):
        SessionHeader.from_json(stored)


def test_a_new_header_takes_no_field_of_the_store() -> None:
    """Version and id are the store's to set; so is nothing that a header doesn't have."""
    for name in ("id", "version", "colour"):
        with pytest.raises(InvalidInputError):
            make_header("a", 5, {name: "b"})
