"""The command ``seriatim undelivered``: replies that have not reached their people, and what to do about them.

Listing only reads the home, beside a gateway that is running too. To retry or abandon one it owns the home: stop its
gateway first, or use ``gateway.retry_delivery`` and ``gateway.abandon_delivery`` inside it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import Callable
from typing import Any

import attrs

from seriatim.actors.clockwork import SystemClock
from seriatim.actors.ids import Ids
from seriatim.actors.offline import answer_offline
from seriatim.errors import HomeError, InvalidInputError
from seriatim.storage.home import Home
from seriatim.storage.ledger import find, undelivered
from seriatim.storage.sqlite import SqliteStore
from seriatim.storage.sqlite_reader import SqliteReader
from seriatim.undelivered import AbandonDelivery, RetryDelivery, SendAgain, Undelivered

SHOWN_CHARS = 60


def add(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], home_of: Callable[[argparse.Namespace], str]
) -> argparse.ArgumentParser:
    """Add the command; ``home_of`` gives the folder of the home that the arguments mean."""
    command = commands.add_parser("undelivered", help="list replies that have not arrived; retry or abandon one")
    command.set_defaults(command=lambda arguments: _run(arguments, home_of(arguments)))
    command.add_argument("--json", action="store_true", help="print JSON")
    command.add_argument("--given-up", action="store_true", help="list also replies that are no longer tried")
    command.add_argument("--text", action="store_true", help="show what they say; without it only where they go")
    what = command.add_mutually_exclusive_group()
    what.add_argument("--retry", metavar="ID", help="try it on at the next start, its age beginning again")
    what.add_argument("--abandon", metavar="ID", help="never send it; says what it would do, and does it with --yes")
    command.add_argument("--yes", action="store_true", help="do it")
    return command


def _run(arguments: argparse.Namespace, folder: str) -> int:
    name = arguments.retry or arguments.abandon
    try:
        return _list(arguments, folder) if name is None else _change(arguments, folder, name)
    except InvalidInputError as error:
        raise HomeError(folder, error.reason) from error


def _list(arguments: argparse.Namespace, folder: str) -> int:
    reader = SqliteReader(Home.database_of(folder))
    try:
        found = undelivered(reader, given_up=arguments.given_up)
    finally:
        reader.close()
    if arguments.json:
        print(json.dumps([_plain(reply, arguments.text) for reply in found], ensure_ascii=False))
        return 0
    for reply in found:
        print(_line(reply, arguments.text))
    print(f"{len(found)} undelivered." if found else "Nothing is undelivered.")
    return 0


def _change(arguments: argparse.Namespace, folder: str, name: str) -> int:
    path = Home.database_of(folder)
    if arguments.abandon and not arguments.yes:
        reader = SqliteReader(path)
        try:
            reply, _ = find(reader, name)
        finally:
            reader.close()
        print(f"{_line(reply, arguments.text)}\nWould be abandoned for good; add --yes.")
        return 0
    with Home.tended(folder) as home:
        print(_own_change(home, arguments, name))
    return 0


def _own_change(home: Home, arguments: argparse.Namespace, name: str) -> str:
    store = SqliteStore(home.database)
    loop = asyncio.new_event_loop()
    try:
        reader = store.reader()
        try:
            reply, doubtful = find(reader, name)
        finally:
            reader.close()
        question: Any
        if arguments.abandon:
            question, done = AbandonDelivery(reply.delivery), "Abandoned"
        elif reply.state == "given up":
            question, done = SendAgain(reply, doubtful), "Owed again; the next start sends it"
        else:
            question, done = RetryDelivery(reply.delivery), "The next start tries it on"
        clock = SystemClock(loop)
        changed = answer_offline(store, reply.lane, question, clock, Ids(clock))
        return f"{reply.delivery}: {done}." if changed else f"{reply.delivery}: nothing of it is owed any more."
    finally:
        loop.close()
        store.close()


def _plain(reply: Undelivered, text: bool) -> dict[str, Any]:
    told = attrs.asdict(reply, filter=lambda field, _: field.name not in ("target", "texts"))
    told["target"] = reply.target.to_data()
    told["missing"] = len(reply.texts)
    if text:
        told["texts"] = list(reply.texts)
    return told


def _line(reply: Undelivered, text: bool) -> str:
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(reply.since / 1000))
    to = reply.target
    where = f"{to.platform} {to.account} {to.chat_id}" + (f" thread {to.thread_id}" if to.thread_id else "")
    state = f"{reply.state} ({reply.reason})" if reply.reason else reply.state
    line = f"{reply.delivery}  {since} UTC  {where}  {state}, {len(reply.texts)} of {reply.parts} parts"
    if reply.until:
        line += f", not before {time.strftime('%Y-%m-%d %H:%M:%S', time.gmtime(reply.until / 1000))} UTC"
    if not text:
        return line
    said = " ".join(" ".join(reply.texts).split())
    return f"{line}: {said if len(said) <= SHOWN_CHARS else said[: SHOWN_CHARS - 1] + '…'}"
