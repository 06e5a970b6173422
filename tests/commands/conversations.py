"""What people should see: a plain model of a few lanes, and a script of messages and commands by a seed.

The agent of these tests answers "<messages before it>|<what it was asked>", so that each reply tells how much of the
conversation it was given. The model keeps conversations as lists and knows nothing of logs.
"""

from __future__ import annotations

import random
from typing import Any, Final

from attrs import Factory, define

ROUNDS: Final = 20
TALK: Final = (
    *("say", "say", "say", "say", "undo", "redo", "retry", "new", "titled", "title"),
    *("resume", "theirs", "stop", "unknown"),
)


async def answer(turn: Any) -> str:
    """How many messages the agent sees before this turn, and what it is asked."""
    return f"{len(turn.history)}|{turn.text}"


@define
class Talk:
    """One conversation: its title, and its turns as the agent was asked and answered."""

    title: str = ""
    turns: list[tuple[str, str]] = Factory(list)
    undone: list[tuple[str, str]] = Factory(list)


@define
class Lane:
    """One lane. ``speakers``: who may write there; ``shared``: their texts carry their names."""

    name: str
    speakers: tuple[str, ...]
    shared: bool
    prefix: str = "/"
    talks: list[Talk] = Factory(list)
    now: Talk | None = None
    told: int = 0

    def hear(self, speaker: str, text: str) -> str:
        """The reply that ``text`` must get here."""
        if not text.startswith(self.prefix):
            return self._turn(f"[{speaker}] {text}" if self.shared else text, text)
        name, _, args = text.removeprefix(self.prefix).partition(" ")
        reply: str = getattr(self, f"_{name}")(args)
        return reply

    def shows(self) -> list[str]:
        """What the model sees of the lane's conversation."""
        return [] if self.now is None else [said for turn in self.now.turns for said in turn]

    def _turn(self, asked: str, text: str) -> str:
        if self.now is None:
            self._begin("")
        assert self.now is not None
        reply = f"{2 * len(self.now.turns)}|{asked}"
        self.now.turns.append((text, reply))
        self.now.undone.clear()
        return reply

    def _begin(self, title: str) -> None:
        self.now = Talk(title)
        self.talks.append(self.now)

    def _new(self, title: str) -> str:
        self._begin(title)
        return f"New conversation: {title}." if title else "New conversation."

    def _undo(self, args: str) -> str:
        if self.now is None or not self.now.turns:
            return "There is nothing to take back."
        turn = self.now.turns.pop()
        self.now.undone.append(turn)
        return f"Taken back: the last turn, from: “{turn[0]}”. {self.prefix}redo brings it back."

    def _redo(self, args: str) -> str:
        if self.now is None or not self.now.undone:
            return "There is nothing to bring back."
        self.now.turns.append(self.now.undone.pop())
        return "Brought back."

    def _retry(self, args: str) -> str:
        if self.now is None or not self.now.turns:
            return "There is no question to ask again."
        text, reply = self.now.turns.pop()
        self.now.turns.append((text, reply))
        self.now.undone.clear()
        return reply

    def _title(self, title: str) -> str:
        if self.now is None:
            return "There is no conversation yet."
        self.now.title = title
        return f"This conversation is now called {title}."

    def _resume(self, title: str) -> str:
        named = [talk for talk in self.talks if talk.title == title]
        if not named:
            return f"There is no conversation “{title}” to take up again."
        if named[-1] is self.now:
            return "You are in it already."
        self.now = named[-1]
        return f"Taken up again: {title}."

    def _stop(self, args: str) -> str:
        return "No active task to stop."

    def _frob(self, args: str) -> str:
        return f"There is no command {self.prefix}frob. {self.prefix}help tells what there is."


class Script:
    """Who says what: in each round something in every lane. Titles are unique, so that each names one conversation."""

    def __init__(self, seed: int, lanes: list[Lane]) -> None:
        self._dice = random.Random(seed)
        self._lanes = lanes
        self._count = 0

    def next(self, lane: Lane) -> tuple[str, str]:
        """Speaker and text."""
        self._count += 1
        speaker = self._dice.choice(lane.speakers)
        kind = self._dice.choice(TALK)
        words = {
            "say": f"word {self._count}",
            "new": f"{lane.prefix}new",
            "titled": f"{lane.prefix}new t{self._count}",
            "title": f"{lane.prefix}title n{self._count}",
            "resume": f"{lane.prefix}resume {self._title_of([lane])}",
            "theirs": f"{lane.prefix}resume {self._title_of(self._strangers(lane))}",
            "unknown": f"{lane.prefix}frob",
        }
        return speaker, words.get(kind, lane.prefix + kind)

    def _strangers(self, lane: Lane) -> list[Lane]:
        """Lanes whose conversations nobody may take up in this one."""
        return [
            other for other in self._lanes if other is not lane and (lane.shared or other.speakers != lane.speakers)
        ]

    def _title_of(self, lanes: list[Lane]) -> str:
        titles = [talk.title for lane in lanes for talk in lane.talks if talk.title]
        return self._dice.choice(titles) if titles else "nothing"
