"""``docs/configuration.md``, made from ``seriatim.config`` and the options of the adapters."""

from __future__ import annotations

import json
from itertools import groupby
from typing import Any, Final

from seriatim.adapters.irc_options import IrcOptions
from seriatim.adapters.registry import TerminalOptions
from seriatim.config import INERT, GatewayConfig
from seriatim.settings import REQUIRED, described

_HEAD: Final = """\
# Configuration

Made from `seriatim/config.py` and the adapters' options by `python -m tests.pages`; a test holds them equal.

One TOML file (`--config FILE`; without it `seriatim.toml` here, if there is one), and over it environment variables
named `SERIATIM_<SECTION>__<KEY>`: `SERIATIM_AGENT__MODEL` is `agent.model`, `SERIATIM_HOME` is `home`. Inside the
file's texts `${NAME}` stands for an environment variable. What isn't understood is refused with its key, and nothing is
started. In a program it is `GatewayConfig(...)`, held to the same rules.
"""


def keys_page() -> str:
    """The page."""
    rows = sorted(described(GatewayConfig), key=lambda row: "." in row[0])  # the file's top level must come first
    parts = [_HEAD, f"{len(rows)} keys.\n"]
    for table, group in groupby(rows, key=lambda row: row[0].rpartition(".")[0]):
        parts.append(_table(f"`[{table}]`" if table else "Top level", group, table))
    for name, options in (("irc", IrcOptions), ("terminal", TerminalOptions)):
        parts.append(_table(f'`[adapters.<name>]` with `type = "{name}"`', described(options), ""))
    inert = ", ".join(f"`{name}`" for name in sorted(INERT))
    parts.append(f"Taken from older configurations, without any effect, and named in one warning: {inert}.\n")
    return "\n".join(parts)


def _table(title: str, rows: Any, table: str) -> str:
    told = "".join(
        f"| `{key.removeprefix(f'{table}.')}` | {_default(default)} | {_cell(says)} | {_cell(doc)} |\n"
        for key, default, says, doc in rows
    )
    return f"## {title}\n\n| key | default | must be | meaning |\n|---|---|---|---|\n{told}"


def _default(value: object) -> str:
    if value is REQUIRED:
        return "*required*"
    return "none" if value in (None, ()) else f"`{json.dumps(value)}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
