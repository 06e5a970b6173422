"""The vocabulary is whole: what is written is known, what is known is told, and the page says the same."""

from __future__ import annotations

import ast
import re

from seriatim.lane import _LANE_RULES, SESSION_RULES
from seriatim.vocabulary import (
    EVENT_TYPES,
    KNOWN_LANE_EVENT_TYPES,
    KNOWN_SESSION_EVENT_TYPES,
    KNOWN_SYSTEM_EVENT_TYPES,
)
from tests.house.source import library
from tests.pages.__main__ import stale_pages

NAME = re.compile(r"[a-z]+(?:-[a-z]+)*/[a-z]+(?:-[a-z]+)*")
WRITERS = frozenset({"lane", "session", "Event", "draft", "SessionEvent"})


def test_the_pages_are_what_the_source_says() -> None:
    """Each made page of docs/ equals what its source makes now (``python -m tests.pages`` writes it)."""
    assert stale_pages() == []


def test_each_type_that_is_written_is_known() -> None:
    """Every event type that the library's own code drafts stands in the vocabulary."""
    written = {
        node.args[0].value
        for module in library()
        if not module.name.startswith("seriatim.testing")
        for node in ast.walk(module.tree())
        if isinstance(node, ast.Call) and _name(node.func) in WRITERS
        if node.args and isinstance(node.args[0], ast.Constant) and isinstance(node.args[0].value, str)
    }
    drafted = {name for name in written if NAME.fullmatch(name)}

    assert len(drafted) > 20
    assert sorted(drafted - EVENT_TYPES.keys()) == []


def test_each_known_type_has_a_rule() -> None:
    """A reader of a lane or of its session takes exactly the known types, and no log has a type of the other."""
    assert _LANE_RULES.keys() == KNOWN_LANE_EVENT_TYPES
    assert SESSION_RULES.keys() == KNOWN_SESSION_EVENT_TYPES
    assert len(EVENT_TYPES) == sum(
        map(len, (KNOWN_LANE_EVENT_TYPES, KNOWN_SESSION_EVENT_TYPES, KNOWN_SYSTEM_EVENT_TYPES))
    )


def _name(func: ast.expr) -> str:
    return func.attr if isinstance(func, ast.Attribute) else func.id if isinstance(func, ast.Name) else ""
