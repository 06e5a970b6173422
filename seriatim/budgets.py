"""Budgets: how many turns, tokens and how much money one person may use within a window, and what follows.

Counted in this process, from what its turns reported: a restart begins anew. Not for several threads.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, Literal

from attrs import Factory, define, frozen
from msgspec import Struct

from seriatim.events import Data
from seriatim.limits import BUDGETS_MAX

Level = Literal["free", "warn", "over"]

WARNED: Final = "You have used most of what you may use here for now."
SLOWED: Final = "You have used what you may use here for now, so answers come more slowly."


@frozen(kw_only=True)
class Limits:
    """What one person may use in ``window_ms``; 0: any amount. ``warn_at``: the share from which on they are told.
    ``over``: what follows when it is used up: nothing but that ("warn"), a pause of ``slow_ms`` before each turn
    ("slow"), or their messages are refused ("block").
    """

    window_ms: int = 3_600_000
    turns: int = 0
    tokens: int = 0
    cost_usd: float = 0.0
    warn_at: float = 0.8
    over: Literal["warn", "slow", "block"] = "warn"
    slow_ms: int = 10_000

    @property
    def any(self) -> bool:
        """Whether there is a limit at all."""
        return bool(self.turns or self.tokens or self.cost_usd)


class Standing(Struct, frozen=True):
    """How somebody stands. ``wait_ms``: before their next turn; ``tell``: what they are to be told, once a window."""

    level: Level
    wait_until: int = 0
    tell: str = ""


FREE: Final = Standing("free")


def unlimited(person: str, now_ms: int) -> Standing:
    """Nobody has a budget."""
    del person, now_ms
    return FREE


Ask = Callable[[str, int], Standing]


@define
class _Used:
    """What one person used: each with its time, and the sums."""

    spent: deque[tuple[int, int, int, float]] = Factory(deque)
    turns: int = 0
    tokens: int = 0
    cost_usd: float = 0.0
    told: set[str] = Factory(set)
    last: int = 0

    def add(self, now_ms: int, turns: int, tokens: int, cost_usd: float) -> None:
        self.spent.append((now_ms, turns, tokens, cost_usd))
        self.turns += turns
        self.tokens += tokens
        self.cost_usd += cost_usd

    def expire(self, before_ms: int) -> None:
        while self.spent and self.spent[0][0] <= before_ms:
            _, turns, tokens, cost_usd = self.spent.popleft()
            self.turns -= turns
            self.tokens -= tokens
            self.cost_usd -= cost_usd
        if not self.spent:
            self.cost_usd = 0.0  # what rounding left
            self.told.clear()


class Budgets:
    """Who used what. Bounded: beyond BUDGETS_MAX people the ones who came first are forgotten."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._people: dict[str, _Used] = {}

    def standing(self, person: str, now_ms: int) -> Standing:
        """How ``person`` stands before a turn."""
        used = self._people.get(person)
        limits = self.limits
        if used is None or not person:
            return FREE
        used.expire(now_ms - limits.window_ms)
        share = max(
            (
                had / limit
                for had, limit in (
                    (used.turns, limits.turns),
                    (used.tokens, limits.tokens),
                    (used.cost_usd, limits.cost_usd),
                )
                if limit
            ),
            default=0.0,
        )
        if share >= 1.0:
            slow = limits.over == "slow"
            tell = SLOWED if slow else WARNED
            wait = min(used.last, now_ms) + limits.slow_ms if slow else 0
            return Standing("over", wait, "" if tell in used.told else tell)
        if share >= limits.warn_at:
            return Standing("warn", 0, "" if WARNED in used.told else WARNED)
        return FREE

    def blocks(self, person: str, now_ms: int) -> bool:
        """Whether the person's messages are refused now."""
        return self.limits.over == "block" and self.standing(person, now_ms).level == "over"

    def began(self, person: str, now_ms: int, told: str = "") -> None:
        """A turn of the person's begins; ``told``: what they were told with it."""
        used = self._used(person)
        used.add(now_ms, 1, 0, 0.0)
        used.last = now_ms
        if told:
            used.told.add(told)

    def spent(self, person: str, now_ms: int, tokens: int, cost_usd: float) -> None:
        """It reported what it used."""
        if tokens or cost_usd:
            self._used(person).add(now_ms, 0, tokens, cost_usd)

    def _used(self, person: str) -> _Used:
        used = self._people.get(person)
        if used is None:
            if len(self._people) >= BUDGETS_MAX:
                del self._people[next(iter(self._people))]
            used = self._people[person] = _Used()
        return used


def person_of(source: Data) -> str:
    """Who a source's person is, over all lanes of a platform; "" where it doesn't say."""
    user = source.get("user_id_alt") or source.get("user_id") or ""
    return f"{source['platform']}:{user}" if user else ""
