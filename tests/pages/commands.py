"""``docs/commands.md``, made from ``seriatim.catalog``."""

from __future__ import annotations

from typing import Final

from seriatim.catalog import CATALOG, Told

_HEAD: Final = """\
# Commands

Made from `seriatim/catalog.py` by `python -m tests.pages`; a test holds them equal.

A command is a prefix and a name at the very beginning of a message. The prefix is `/` (setting `commands.prefix`);
an account may have another one, as IRC's does (`command_prefix`, `!`), because IRC clients keep `/` for themselves.
Names may be written in capitals. In brackets stands what may be left out, in capitals what one writes oneself.

What holds for all of them:

- A command never becomes part of the conversation: the agent doesn't see it.
- It keeps its place among the messages of its lane, and is served while a turn runs.
- It is done, and its answer owed, in the commit that takes it in. After a crash it is either done or was never taken
  in; nothing is done late by a start, and a redelivery of the message does nothing.
- One that there isn't is answered with the nearest name that there is.
- While the gateway stops, commands are refused like all messages, and the platform may give them again later.
"""


def commands_page() -> str:
    """The page."""
    return "\n".join([_HEAD, f"{len(CATALOG)} commands.\n", *map(_section, CATALOG.values())])


def _section(told: Told) -> str:
    usage = f"/{told.name} {told.usage}".rstrip()
    only = " Only operators may use it (setting `operators`)." if told.operators else ""
    does = told.does[0].upper() + told.does[1:]
    return f"## `{usage}`\n\n{does}. {told.rule}{only}\n"
