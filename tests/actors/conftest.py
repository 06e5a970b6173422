"""Fixtures of the engine's tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .worlds import KINDS, World, world_of


@pytest.fixture(params=KINDS)
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    """One world per dispatcher: what holds must hold on each."""
    with world_of(request.param) as made:
        yield made
