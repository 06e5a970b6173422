"""``python -m tests.pages``: write the made pages of ``docs/`` anew; ``--check`` only says which are out of date."""

from __future__ import annotations

import argparse
import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.pages.commands import commands_page
from tests.pages.events import events_page
from tests.pages.features import features_page
from tests.pages.keys import keys_page

PAGES: Final[dict[str, Callable[[], str]]] = {
    "docs/commands.md": commands_page,
    "docs/configuration.md": keys_page,
    "docs/events.md": events_page,
    "docs/features-event-log.md": functools.partial(features_page, "event_log"),
    "docs/features-gateway.md": functools.partial(features_page, "gateway"),
}
ROOT: Final = Path(__file__).resolve().parents[2]


def stale_pages() -> list[str]:
    """Pages that aren't what the source says now."""
    return [
        name
        for name, make in PAGES.items()
        if not (ROOT / name).exists() or (ROOT / name).read_text(encoding="utf-8") != make()
    ]


def main() -> int:
    """Write, or check."""
    parser = argparse.ArgumentParser(prog="python -m tests.pages", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when a page is out of date")
    options = parser.parse_args()
    stale = stale_pages()
    for name in stale:
        if not options.check:
            (ROOT / name).write_text(PAGES[name](), encoding="utf-8")
        print("out of date:" if options.check else "written:", name)
    return 1 if stale and options.check else 0


if __name__ == "__main__":
    sys.exit(main())
