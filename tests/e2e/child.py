"""``python -m tests.e2e.child serve --config FILE``: the command line, with failpoints in wrappers around its ports."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from unittest import mock

import seriatim.opening
from seriatim.adapters.irc import IrcAdapter
from seriatim.cli import main
from seriatim.model import Outbound, Sent
from seriatim.storage.sqlite import SqliteStore
from tests.kill.failpoints import Failpoints, HaltingStore, die_with_parent


def _open(points: Failpoints, path: Path) -> HaltingStore:
    return HaltingStore(SqliteStore(path), points)


def run() -> int:
    """The command line's exit code, unless it halts."""
    die_with_parent()
    points = Failpoints.from_environment()
    send = IrcAdapter.send

    async def halting_send(adapter: IrcAdapter, out: Outbound) -> Sent:
        points.hit("reply-unsent")
        sent = await send(adapter, out)
        points.hit("sent-unsettled")
        return sent

    with (
        mock.patch.object(seriatim.opening, "SqliteStore", partial(_open, points)),
        mock.patch.object(IrcAdapter, "send", halting_send),
    ):
        return main(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(run())
