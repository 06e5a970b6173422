"""The agent of the served gateways, by name: ``agent.factory = "tests.e2e.agent:make"``."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable

from seriatim import Turn
from tests.kill.agent import echoing
from tests.kill.failpoints import Failpoints

THINK_S_MAX = 0.02
_POINTS = Failpoints.from_environment()


def make(session: str) -> Callable[[Turn], Awaitable[str]]:
    """One for each session; its replies name the messages that they answer."""
    return echoing(_POINTS, lambda note: None, THINK_S_MAX, random.Random())
