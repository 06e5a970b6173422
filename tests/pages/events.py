"""``docs/events.md``, made from ``seriatim.vocabulary``."""

from __future__ import annotations

from typing import Final

from seriatim.events import DEPTH_MAX, FORMAT_VERSION
from seriatim.vocabulary import EVENT_TYPES, EventType

_HEAD: Final = f"""\
# Events

Made from `seriatim/vocabulary.py` by `python -m tests.pages`; a test holds them equal. Format version {FORMAT_VERSION}.

Each conversation (*session*) has a log, and so has each *lane* (where messages come in and replies go out), and the
store itself (*system*). All are contiguous sequences of events with the same envelope. On disk its keys are:

| key | meaning |
|---|---|
| `type` | one of the names below |
| `seq` | place in the log, from 0, contiguous, never reused |
| `time` | epoch milliseconds; may go backwards, order is `seq` |
| `data` | an object of lossless JSON: no NaN, no -0.0, integers within 2**53-1, nested at most {DEPTH_MAX} deep |
| `ignorable` | only `true`: who doesn't know the type may pass over the event; without the mark the log is refused |
| `surfaceOp` | on surface types: `append` (or absent), or `{{"op": "replace", "start", "end"}}`: two present messages |
| `sourceEventSeqs` | on surface types: earlier events that it is about; a replacement names all that it covers |

A name with `?` may be absent. *version* is that of the data; readers lift older data when they read it.
"""


def events_page() -> str:
    """The page."""
    parts = [_HEAD]
    for log, title in (("session", "Session log"), ("lane", "Lane log"), ("system", "System log")):
        known = [event for event in EVENT_TYPES.values() if event.log == log]
        parts.append(f"## {title}\n\n{len(known)} types.\n")
        parts += map(_section, known)
    return "\n".join(parts)


def _section(event: EventType) -> str:
    marks = [
        "surface" if event.surface else "",
        "ignorable" if event.ignorable else "required",
        f"version {event.version}",
        f"since {event.since}",
    ]
    said = f"### {event.name}\n\n{event.told} *({', '.join(mark for mark in marks if mark)})*\n"
    if not event.fields:
        return f"{said}\nNo data.\n"
    rows = "\n".join(f"| `{name}` | {meaning} |" for name, meaning in event.fields.items())
    return f"{said}\n| data | meaning |\n|---|---|\n{rows}\n"
