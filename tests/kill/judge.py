"""What came of a killed gateway's messages: the platform's memory held against the logs.

It trusts neither side alone. From the platform: what was said, what was acked, what was posted, in order, which tools
had an effect. From the logs: what was accepted, what came of each, which posts and effects they explain.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs
from attrs import Factory, define, frozen

from seriatim.events import Event, LogId
from seriatim.outbox import RECOVERED_NOTICE
from seriatim.recovery import GIVEN_UP_TEXT
from seriatim.storage.contract import Balance, StoreReader
from seriatim.storage.sqlite_reader import SqliteReader
from tests.kill.agent import REPLY, named

GIVEN_UP = GIVEN_UP_TEXT.partition("{")[0]


@frozen
class Said:
    """One message that somebody said. ``lane``: what it must stay in order with; ``chat``: where the answer goes."""

    id: str
    lane: str
    chat: str
    kind: str = "human"


@frozen
class Post:
    """One message that the platform got from the bot."""

    chat: str
    text: str


@define
class World:
    """What the platform remembers. ``replays``: it gives again what wasn't acked, so nothing said may be missing.

    ``keeps_refused``: also what was refused; else nothing may come of that; its sender says it again under a new id.
    """

    said: list[Said] = Factory(list)
    acked: set[str] = Factory(set)
    posts: list[Post] = Factory(list)
    effects: list[str] = Factory(list)
    began: list[tuple[str, int]] = Factory(list)
    refused: Counter[str] = Factory(Counter)
    replays: bool = True
    keeps_refused: bool = True


@define
class Logs:
    """What the home's logs tell, messages by the ids that they carry."""

    accepted: Counter[str] = Factory(Counter)
    answered: set[str] = Factory(set)
    merged: set[str] = Factory(set)
    dropped: dict[str, str] = Factory(dict)
    owed: set[str] = Factory(set)
    tools: Counter[str] = Factory(Counter)
    turns: set[tuple[str, int]] = Factory(set)
    abandoned: list[str] = Factory(list)
    interruptions: int = 0
    balance: Balance = Factory(lambda: Balance(0, 0, 0, 0, 0))


@define
class Verdict:
    """The figures, and a line about each thing that should not be."""

    sent: int = 0
    accepted: int = 0
    answered: int = 0
    merged: int = 0
    dropped: int = 0
    repeated_marked: int = 0
    marked_without_cause: int = 0
    lost: int = 0
    unmarked_repeats: int = 0
    order_breaks: int = 0
    unexplained: int = 0
    findings: list[str] = Factory(list)

    def figures(self) -> dict[str, int]:
        """All counts by name."""
        return {name: value for name, value in attrs.asdict(self).items() if name != "findings"}

    @property
    def good(self) -> bool:
        """Whether nothing was found."""
        return not self.findings


def read_logs(database: Path) -> Logs:
    """Fold what is needed out of the logs in ``database``; its gateway is dead or stopped."""
    reader = SqliteReader(database)
    try:
        logs = Logs(balance=reader.counters())
        names: dict[str, str] = {}
        for log in _pages(reader, "lane:"):
            for event in reader.read(log):
                _lane_event(logs, names, event)
        for log in _pages(reader, "session:"):
            for event in reader.read(log):
                if event.type == "tool/call":
                    logs.tools[event.data["args"]["message"]] += 1
                elif event.type == "turn/start":
                    logs.turns.add((log.removeprefix("session:"), event.data["turn"]))
    finally:
        reader.close()
    return logs


def _pages(reader: StoreReader, prefix: str) -> Iterator[LogId]:
    after = ""
    while page := reader.logs(prefix, after):
        yield from page
        after = page[-1]


def _lane_event(logs: Logs, names: dict[str, str], event: Event) -> None:
    data: dict[str, Any] = event.data
    match event.type:
        case "inbox/accepted":
            names[data["id"]] = named(data["text"])
            logs.accepted[names[data["id"]]] += 1
        case "inbox/answered":
            logs.answered.add(names[data["id"]])
        case "inbox/merged":
            logs.merged.update(names[one] for one in data["ids"])
        case "inbox/dropped":
            logs.dropped.update((names[one], data["reason"]) for one in data["ids"])
        case "inbox/interrupted":
            logs.interruptions += 1
        case "delivery/owed":
            logs.owed.update(data["parts"])
        case "delivery/abandoned":
            logs.abandoned.append(data["reason"])
        case _:
            pass


def judge(world: World, logs: Logs) -> Verdict:
    """Hold the one against the other."""
    verdict = Verdict(
        sent=len(world.said),
        accepted=logs.accepted.total(),
        answered=len(logs.answered),
        merged=len(logs.merged),
        dropped=len(logs.dropped),
    )
    posts = [(post, unmarked(post.text)) for post in world.posts]
    _balance(verdict, logs)
    verdict.findings += [f"a reply was abandoned: {reason}" for reason in logs.abandoned]
    _lost(verdict, world, logs, posts)
    _repeats(verdict, posts)
    _order(verdict, world.said, [text for _, text in posts])
    _explained(verdict, world, logs, posts)
    return verdict


def unmarked(text: str) -> str:
    """A post without the notice of a possible repeat."""
    return text.removeprefix(RECOVERED_NOTICE)


def reply_of(text: str) -> tuple[list[str], int, int] | None:
    """The ids that a reply answers, the number of its part and how many there are."""
    found = REPLY.fullmatch(unmarked(text))
    return None if found is None else (found[1].split(","), int(found[2]), int(found[3]))


def _balance(verdict: Verdict, logs: Logs) -> None:
    counted, told = (
        logs.balance,
        Balance(logs.accepted.total(), len(logs.answered), len(logs.merged), len(logs.dropped), 0),
    )
    if not counted.holds or counted != told:
        verdict.findings.append(f"the counters say {counted}, the logs {told}")
    for name, times in logs.accepted.items():
        if times > 1:
            verdict.unmarked_repeats += 1
            verdict.findings.append(f"{name} was accepted {times} times")


def _lost(verdict: Verdict, world: World, logs: Logs, posts: Sequence[tuple[Post, str]]) -> None:
    whole = _answered_whole(text for _, text in posts)
    notices = Counter(post.chat for post, text in posts if text.startswith(GIVEN_UP))

    def lose(said: Said, why: str) -> None:
        verdict.lost += 1
        verdict.findings.append(f"{said.id} ({said.kind} in {said.lane}) is lost: {why}")

    for said in world.said:
        name = said.id
        if name in world.refused and not world.keeps_refused:
            if world.refused[name] > 1 or name in logs.accepted or name in whole:
                verdict.findings.append(f"{name} was refused {world.refused[name]} times, or yet taken or answered")
        elif name not in logs.accepted:
            if name in world.acked:
                lose(said, "acked, but not in the logs")
            elif world.replays:
                lose(said, "never accepted, though the platform kept it")
        elif name in logs.dropped:
            if logs.dropped[name] != "interrupted" or not notices[said.chat]:
                lose(said, f"dropped ({logs.dropped[name]}), and nobody was told")
        elif name not in logs.answered and name not in logs.merged:
            lose(said, "accepted, and still without an outcome")
        elif name not in whole:
            lose(said, "it has an outcome, but its whole reply never arrived")


def _answered_whole(texts: Iterable[str]) -> set[str]:
    """The messages of whose reply every part has arrived."""
    parts: dict[tuple[str, int], set[int]] = {}
    for text in texts:
        reply = reply_of(text)
        if reply is not None:
            ids, part, of = reply
            for name in ids:
                parts.setdefault((name, of), set()).add(part)
    return {name for (name, of), seen in parts.items() if len(seen) == of}


def _repeats(verdict: Verdict, posts: Sequence[tuple[Post, str]]) -> None:
    seen: set[tuple[str, str]] = set()
    answered: dict[tuple[str, int], str] = {}
    for post, text in posts:
        marked = post.text != text
        repeated = (post.chat, text) in seen and reply_of(text) is not None
        seen.add((post.chat, text))
        if marked and repeated:
            verdict.repeated_marked += 1
        elif marked:
            verdict.marked_without_cause += 1
        elif repeated:
            verdict.unmarked_repeats += 1
            verdict.findings.append(f"{text!r} was posted again without saying so")
        ids, part, _ = reply_of(text) or ([], 0, 0)
        for name in ids:
            if answered.setdefault((name, part), text) != text:
                verdict.unmarked_repeats += 1
                verdict.findings.append(f"{name} was answered by {answered[name, part]!r} and by {text!r}")


def _order(verdict: Verdict, said: Sequence[Said], texts: Sequence[str]) -> None:
    """First appearances only: a marked repeat comes later by its nature."""
    places = {one.id: (one.lane, one.kind, number) for number, one in enumerate(said)}
    last: dict[tuple[str, str], int] = {}
    parts: dict[str, int] = {}
    seen: set[str] = set()
    for text in texts:
        reply = reply_of(text)
        if reply is None or text in seen:
            continue
        seen.add(text)
        ids, part, _ = reply
        if part != parts.get(ids[0], 0) + 1:
            verdict.order_breaks += 1
            verdict.findings.append(f"{text!r} came before the part that it follows")
        parts[ids[0]] = part
        if part > 1:
            continue
        for name in ids:
            lane, kind, number = places[name]
            if number < last.get((lane, kind), -1):
                verdict.order_breaks += 1
                verdict.findings.append(f"{name} was answered after a later message of {lane}")
            last[lane, kind] = number


def _explained(verdict: Verdict, world: World, logs: Logs, posts: Sequence[tuple[Post, str]]) -> None:
    """Law 2, as seen from outside: nothing happened in the world that no commit explains."""
    unknown = [f"the post {text!r}" for _, text in posts if text not in logs.owed]
    unknown += [f"turn {turn} of {session}" for session, turn in world.began if (session, turn) not in logs.turns]
    effects = Counter(world.effects)
    unknown += [f"the effect for {name}" for name, times in effects.items() if times > logs.tools[name]]
    verdict.unexplained = len(unknown)
    verdict.findings += [f"no commit explains {what}" for what in unknown]
