"""``python -m tests.core.many_keys``: a million hostile sources against a reference model of the keys.

Ids are drawn from the characters that could confuse a joined key, short enough that unescaped forms would meet all
the time. For each source and each setting of the two flags: canonical forms meet exactly where identities do, parse
back, and the text is what the seed's rules, written down once more below, say.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from typing import Any, Final

from attrs import asdict, define

from seriatim.keys import SessionKey, build_session_key, parse_session_key
from seriatim.model import SessionSource

PIECES: Final = (
    "",
    ":",
    "%",
    "%3A",
    "%25",
    "a",
    "b",
    "1",
    "dm",
    "group",
    "thread",
    "!r:hs",
    "/",
    "\n",
    "é",
    "e\u0301",
    "%3a",
    "::",
)
PLATFORMS: Final = ("telegram", "irc", "matrix", "tele:gram")
TYPES: Final = ("dm", "dm", "group", "channel", "thread", "forum", "d:m")


@define
class Flags:
    """The two settings."""

    group_sessions_per_user: bool
    thread_sessions_per_user: bool


@define
class Counted:
    """What a run saw."""

    sources: int = 0
    lanes: int = 0
    texts: int = 0
    collisions: int = 0
    not_parsed: int = 0
    other_texts: int = 0

    @property
    def is_good(self) -> bool:
        """Whether nothing was wrong, and something was tried: fewer texts than lanes means that texts do meet."""
        return not (self.collisions or self.not_parsed or self.other_texts) and 0 < self.texts < self.lanes


def hostile(rng: random.Random) -> SessionSource:
    """A source of ids that try to look like others."""

    def some() -> str:
        return rng.choice(PIECES) + rng.choice(PIECES)

    def maybe() -> str | None:
        return some() if rng.random() < 0.6 else None

    return SessionSource(
        rng.choice(PLATFORMS),
        some(),
        chat_type=rng.choice(TYPES),
        user_id=maybe(),
        user_id_alt=maybe(),
        thread_id=maybe(),
        guild_id=maybe(),
    )


def identity(source: SessionSource, account: str, flags: Flags) -> tuple[str, ...]:
    """Who shares a lane, in the words of the seed's §§4-5."""
    participant = source.user_id_alt or source.user_id or ""
    if source.chat_type == "dm":
        alone = not source.chat_id
    else:
        alone = flags.thread_sessions_per_user if source.thread_id else flags.group_sessions_per_user
    return (
        source.platform.name,
        source.chat_type,
        source.guild_id or "",
        account,
        source.chat_id,
        source.thread_id or "",
        participant if alone else "",
    )


def seed_text(who: tuple[str, ...]) -> str:
    """The seed's text form of an identity, colons and percent signs escaped inside its parts."""
    platform, chat_type, _, _, chat, thread, participant = who
    tail = (chat or participant, thread) if chat_type == "dm" else (chat, thread, participant)
    parts = [platform, chat_type, *filter(None, tail)]
    return "agent:main:" + ":".join(part.replace("%", "%25").replace(":", "%3A") for part in parts)


def run(sources: int, seed: int) -> Counted:
    """Try ``sources`` sources."""
    rng = random.Random(seed)
    lanes: dict[str, tuple[str, ...]] = {}
    owners: dict[tuple[str, ...], str] = {}
    texts: set[str] = set()
    counted = Counted()
    for _ in range(sources):
        source, account = hostile(rng), rng.choice(("", "work", "a:b"))
        flags = Flags(rng.random() < 0.5, rng.random() < 0.5)
        who = identity(source, account, flags)
        key = SessionKey.from_source(source, flags, account)
        canonical = key.canonical
        counted.sources += 1
        counted.collisions += lanes.setdefault(canonical, who) != who or owners.setdefault(who, canonical) != canonical
        counted.not_parsed += parse_session_key(canonical) != key
        text = build_session_key(source, flags.group_sessions_per_user, flags.thread_sessions_per_user)
        counted.other_texts += not text == key.text == seed_text(who)
        texts.add(text)
    counted.lanes, counted.texts = len(lanes), len(texts)
    return counted


def main() -> int:
    """Print what was seen; exit 1 when anything was wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.core.many_keys", description=__doc__)
    parser.add_argument("--sources", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    counted = run(options.sources, options.seed)
    told: dict[str, Any] = asdict(counted)
    print(json.dumps(told) if options.json else ", ".join(f"{name} {count}" for name, count in told.items()))
    return 0 if counted.is_good else 1


if __name__ == "__main__":
    sys.exit(main())
