"""The agent of the killed gateways: its replies name the messages that they answer, so that they can be matched.

A message carries its id (``m17``) and words that ask for something: ``tool`` for a tool call with an effect outside,
``long`` for a reply of three lines. The reply to m17 and m18 is ``re m17,m18 1/1``, one such line for each part.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Awaitable, Callable
from typing import Any

from seriatim import Turn
from tests.kill.failpoints import Failpoints

ID = re.compile(r"\bm\d+\b")
REPLY = re.compile(r"re (m\d+(?:,m\d+)*) (\d+)/(\d+)")
LONG_LINES = 3

Note = Callable[[dict[str, Any]], None]


def named(text: str) -> str:
    """The id that a message carries."""
    found = ID.search(text)
    if found is None:
        raise ValueError(text)
    return found.group()


def echoing(points: Failpoints, note: Note, think_s_max: float, rng: random.Random) -> Callable[[Turn], Awaitable[str]]:
    """An agent that thinks for up to ``think_s_max``; ``note`` tells the world of its turns and its tools' effects."""

    async def answer(turn: Turn) -> str:
        texts = [claim.text for claim in turn.events]
        ids = [named(text) for text in texts]
        note({"began": {"session": turn.session, "turn": turn.number, "ids": ids}})
        await asyncio.sleep(rng.uniform(0, think_s_max))
        points.hit("mid-turn")
        for wanted in [name for name, text in zip(ids, texts, strict=True) if " tool" in text]:

            async def touch(message: str) -> str:
                note({"effect": {"message": message}})
                points.hit("in-tool")
                await asyncio.sleep(rng.uniform(0, think_s_max / 4))
                return "touched"

            await turn.step("").call("touch", {"message": wanted}, touch)
        lines = LONG_LINES if any(" long" in text for text in texts) else 1
        return "\n".join(f"re {','.join(ids)} {line}/{lines}" for line in range(1, lines + 1))

    return answer
