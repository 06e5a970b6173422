"""The commands as people are told of them: names, arguments, a few words each. ``docs/commands.md`` is made from it."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Final

from attrs import frozen


@frozen
class Told:
    """One command as ``/help`` shows it.

    ``usage``: its arguments; in brackets what may be left out, in capitals what one writes oneself. ``does``: a few
    words, without a full stop. ``rule``: more of it, for the page. ``operators``: only they may use it.
    """

    name: str
    usage: str
    does: str
    rule: str
    operators: bool = False


_TOLD: Final = (
    Told(
        "new",
        "[TITLE]",
        "starts a new conversation",
        "Ends the running turn and drops what people said meanwhile, `queue` items included; wakes go on. The old "
        "conversation keeps its log. With a title the new one is easily found again.",
    ),
    Told("reset", "[TITLE]", "does the same", "Another name for `new`."),
    Told(
        "stop",
        "",
        "ends what is running",
        "Ends the turn, or what waits to be resumed, even if the agent doesn't listen, and drops the follow-up that "
        "waits next. `queue` items and wakes go on. The conversation is suspended (setting `commands.stop_suspends`): "
        "the next message starts a new one. With nothing to stop, it changes nothing.",
    ),
    Told(
        "queue",
        "[TEXT | cancel N | edit N TEXT | move N M | clear]",
        "gives TEXT a turn of its own after the others, or shows and changes what waits",
        "TEXT is never merged with anything, and never displaced; behind something else, one is told its place. "
        "Without a text it lists what waits, by numbers; `cancel`, `edit`, `move` and `clear` change what one has said "
        "oneself, and say how they are written where something is left out. `-- TEXT` queues what looks like one of "
        "these.",
    ),
    Told(
        "undo",
        "[N]",
        "takes back the last turn, or the last N",
        "The agent doesn't see them any more; the log keeps them. What was compressed since then is itself again. What "
        "tools did stays done. Not while anything runs or waits.",
    ),
    Told(
        "redo",
        "",
        "brings back what was taken back last",
        "Until something is said after it. Several can be brought back one by one.",
    ),
    Told(
        "retry",
        "",
        "asks the last question again",
        "With all that came with it. The reply before stays in the log, and the agent doesn't see it; a crash doesn't "
        "lose the question. Not while anything runs or waits, and only for whoever has the rights of who asked.",
    ),
    Told(
        "compress",
        "",
        "lets a summary stand for all but the newest turns",
        "The agent makes it, if it can, beside whatever else happens; one hears of the end, also when it was "
        "interrupted: it isn't begun again by itself. A compression also happens before a turn when the last prompt "
        "was larger than `agent.compress_above_tokens`. The newest `agent.compress_keep_turns` turns stay as they are, "
        "and the log keeps everything.",
    ),
    Told(
        "title",
        "[TITLE]",
        "names this conversation, or tells its name",
        "A title is one line. The newest titles of a lane are kept.",
    ),
    Told(
        "resume",
        "[NUMBER, TITLE or ID]",
        "takes an earlier conversation up again, or lists those with a title",
        "A number means what the last list said. Found are the conversations of this lane and, from a lane of one's "
        "own, of one's other lanes on the same account; nothing of a direct message is found from a room. All else is "
        "answered like what doesn't exist. Not while anything runs or waits here or there.",
    ),
    Told(
        "restart",
        "",
        "starts the gateway anew",
        "Running turns may end first; what waits is answered afterwards.",
        operators=True,
    ),
    Told(
        "approve",
        "ID",
        "allows what a turn asks",
        "Only those whose message the turn answers, and operators, may; no other word allows anything. Without an ID "
        "it tells what is asked.",
    ),
    Told("deny", "ID", "refuses what a turn asks", "As `approve`. What ends the turn refuses, too."),
    Told("status", "", "tells how things stand", "It reads and changes nothing."),
    Told("help", "[COMMAND]", "tells what there is", "With a command's name it tells more about that one."),
)

CATALOG: Final[Mapping[str, Told]] = {told.name: told for told in _TOLD}
"""Every command by its name, in the order in which they are told."""


def help_text(prefix: str, topic: str = "") -> str:
    """All commands, or one of them, as a person would type them."""
    told = CATALOG.get(topic.lower().removeprefix(prefix).removeprefix("/"))
    if told is not None:
        rule = told.rule.replace("`queue`", f"{prefix}queue").replace("`new`", f"{prefix}new").replace("`", "")
        only = " Only operators may use it." if told.operators else ""
        return f"{_typed(prefix, told)} {told.does}. {rule}{only}"
    return "; ".join(f"{_typed(prefix, told)} {told.does}" for told in _TOLD) + "."


def unknown_text(prefix: str, name: str) -> str:
    """The answer to a command that there isn't, with the nearest one that there is."""
    near = difflib.get_close_matches(name, CATALOG, n=1)
    meant = f" Did you mean {prefix}{near[0]}?" if near else ""
    return f"There is no command {prefix}{name}.{meant} {prefix}help tells what there is."


def _typed(prefix: str, told: Told) -> str:
    return f"{prefix}{told.name} {told.usage}".rstrip()
