"""The built-in agent without a model: it knows this conversation's history, and nothing else.

It answers from ``turn.history`` alone, so what it says shows what the runtime kept: through restarts, and of
this conversation only. Same history and question, same answer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Final

from seriatim.actors.live_turn import Turn
from seriatim.turn import Message, inert_label

_LAST_MAX: Final = 50
_FOUND_MAX: Final = 10
_LINE_CHARS_MAX: Final = 120


HELP: Final = """\
I am not a language model. I am the built-in history agent: I know what was said in this conversation and nothing else.
  last [n]               the last n messages (5 unless you say)
  search <words>         messages that hold all the words
  when did I say <words> the same, of yours only, with the time
  who                    who has spoken, and how often
  count                  how much I remember, and since when
  help                   this text
Anything else I only remember."""


class HistoryAgent:
    """An agent that answers from the conversation's own history. Stateless: one instance serves all lanes."""

    async def run(self, turn: Turn) -> str:
        """Answer the last line that is asked, or say what is remembered."""
        asked = turn.events[-1].text.strip()
        line = " ".join(asked.split()).rstrip("?!. ")
        said = [message for message in turn.history if message.role != "tool"]
        for pattern, answer in _QUESTIONS:
            match = pattern.fullmatch(line)
            if match is not None:
                return answer(turn, said, (match.group(1) or "").strip() if pattern.groups else "")
        return _noted(turn, said)


def _help(_turn: Turn, said: Sequence[Message], _words: str) -> str:
    return f"{HELP}\n{_remembered(said)}"


def _noted(turn: Turn, said: Sequence[Message]) -> str:
    count = len(turn.events)
    noted = "Noted" if count == 1 else f"Noted, all {count} of them"
    start = ""
    if turn.boundary != "none":
        start = " This is a new conversation; I know nothing of the one before."
    hint = "" if said else ' I am the history agent, not a language model; say "help" for what I can do.'
    return f"{noted}.{start} {_remembered(said)}{hint}"


def _count(turn: Turn, said: Sequence[Message], _words: str) -> str:
    if not said:
        return "Nothing was said in this conversation before your message."
    mine = sum(1 for message in said if message.role == "assistant")
    turns = len({message.turn for message in said})
    shares = f"{_many(len(said) - mine, 'message')} of yours, {_many(mine, 'answer')} of mine"
    since = f"since {_stamp(said[0].time)} ({_ago(said[0].time, _now(turn))})"
    return f"{_remembered(said)} {shares}, in {_many(turns, 'turn')}, {since}."


def _who(_turn: Turn, said: Sequence[Message], _words: str) -> str:
    counts: dict[str, int] = {}
    for message in said:
        counts[_name(message)] = counts.get(_name(message), 0) + 1
    if not counts:
        return "Nobody has spoken in this conversation before your message."
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return "\n".join(f"{name}: {_many(count, 'message')}" for name, count in ranked)


def _last(turn: Turn, said: Sequence[Message], words: str) -> str:
    wanted = int(words) if words else 5
    if wanted > _LAST_MAX:
        return f"I show at most {_LAST_MAX} at once. {_last(turn, said, str(_LAST_MAX))}"
    if not said or wanted == 0:
        return _remembered(said)
    return "\n".join(_line(at, message) for at, message in list(enumerate(said, 1))[-wanted:])


def _search(_turn: Turn, said: Sequence[Message], words: str) -> str:
    # What I said myself would only find earlier answers of mine that quote the same words.
    return _found([(at, m) for at, m in enumerate(said, 1) if m.role == "user" and _holds(m.text, words)], words)


def _when(turn: Turn, said: Sequence[Message], words: str) -> str:
    mine = {_name_of_asker(turn)} if turn.shared else None
    hits = [
        (at, m)
        for at, m in enumerate(said, 1)
        if m.role == "user" and _holds(m.text, words) and (mine is None or _name(m) in mine) and not _asks(m.text)
    ]
    if not hits:
        return f"I have no message of yours with {_quoted(words)}."
    at, first = hits[-1]
    more = f" ({_many(len(hits), 'time')} in all, first {_stamp(hits[0][1].time)})" if len(hits) > 1 else ""
    return f"{_ago(first.time, _now(turn)).capitalize()}, {_stamp(first.time)}{more}:\n{_line(at, first)}"


def _found(hits: list[tuple[int, Message]], words: str) -> str:
    if not hits:
        return f"Nothing here holds {_quoted(words)}."
    shown = "\n".join(_line(at, message) for at, message in hits[-_FOUND_MAX:])
    more = f" The last {_FOUND_MAX}:" if len(hits) > _FOUND_MAX else ""
    holds = "holds" if len(hits) == 1 else "hold"
    return f"{_many(len(hits), 'message')} {holds} {_quoted(words)}.{more}\n{shown}"


def _holds(text: str, words: str) -> bool:
    lower = text.casefold()
    return all(word in lower for word in words.casefold().split())


def _asks(text: str) -> bool:
    line = " ".join(text.split()).rstrip("?!. ")
    return any(pattern.fullmatch(line) for pattern, _ in _QUESTIONS)


def _remembered(said: Sequence[Message]) -> str:
    return f"I remember {_many(len(said), 'message')} from before this one."


def _line(at: int, message: Message) -> str:
    text = " ".join(message.text.split())
    if len(text) > _LINE_CHARS_MAX:
        text = text[: _LINE_CHARS_MAX - 1] + "…"
    return f"{at:>4}  {_stamp(message.time)}  {_name(message)}: {text}"


def _name(message: Message) -> str:
    if message.role == "assistant":
        return "me"
    return inert_label(message.author) if message.author else "you"


def _name_of_asker(turn: Turn) -> str:
    source = turn.events[-1].source
    return inert_label(source.user_name or source.user_id or "unknown")


def _quoted(words: str) -> str:
    return f'"{words}"'


def _many(count: int, thing: str) -> str:
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"


def _now(turn: Turn) -> int:
    return turn.events[-1].time


def _stamp(time_ms: int) -> str:
    try:
        return f"{datetime.fromtimestamp(time_ms / 1000, UTC):%Y-%m-%d %H:%M} UTC"
    except (ValueError, OverflowError, OSError):
        return "at an unknown time"


def _ago(time_ms: int, now_ms: int) -> str:
    seconds = max(0, now_ms - time_ms) // 1000
    for size, unit in ((86_400, "day"), (3600, "hour"), (60, "minute")):
        if seconds >= size:
            return f"{_many(seconds // size, unit)} ago"
    return "just now"


_Answer = Callable[[Turn, Sequence[Message], str], str]
_QUESTIONS: Final[tuple[tuple[re.Pattern[str], _Answer], ...]] = (
    (re.compile(r"(?:help|hello|hi|who are you|what are you|what can you do)", re.IGNORECASE), _help),
    (re.compile(r"(?:count|how many|how many messages|how much(?: do you remember)?)", re.IGNORECASE), _count),
    (re.compile(r"(?:who|who spoke|who has spoken|who said what)", re.IGNORECASE), _who),
    (re.compile(r"last(?: ([0-9]{1,9}))?", re.IGNORECASE), _last),
    (re.compile(r"(?:search|find) (.+)", re.IGNORECASE), _search),
    (re.compile(r"when did i (?:say|mention|talk about) (.+)", re.IGNORECASE), _when),
)
