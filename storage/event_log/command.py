"""The commands ``seriatim export``, ``import`` and ``verify``: a home's sessions as files, and back.

Export and verify only read the home, beside a gateway that is running too. Import owns it: stop the gateway first.
"""

from __future__ import annotations

import argparse
import contextlib
import json
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from seriatim.commits import Commit, Outcome, Refused
from seriatim.errors import HomeError, ReadOnlyError
from seriatim.storage.contract import StoreReader
from seriatim.storage.home import DATABASE, Home
from seriatim.storage.memory import MemoryStore
from seriatim.storage.sqlite import SqliteStore
from seriatim.storage.sqlite_reader import SqliteReader

from .jsonl import JsonlLogs
from .seed_export import export_seed
from .store_logs import StoreLogs
from .transfer import Report, copy, import_seed, verify

HomeOf = Callable[[argparse.Namespace], str]


class ReadStore:
    """A database that is only read, in the shape of a store: whatever would write is refused."""

    def __init__(self, path: str) -> None:
        self._path = path

    def reader(self) -> StoreReader:
        """A reader of the database."""
        return SqliteReader(self._path)

    def commit(self, commits: Sequence[Commit]) -> list[Outcome]:
        """Refused."""
        refusal = ReadOnlyError(f"{self._path}: was opened for reading")
        return [Refused(commit.id, refusal) for commit in commits]

    def close(self) -> None:
        """Nothing is held."""


def add(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], home_of: HomeOf
) -> list[argparse.ArgumentParser]:
    """Add the three commands; ``home_of`` gives the folder of the home that the arguments mean."""
    export = commands.add_parser("export", help="write a home's sessions to files (zstd or raw JSONL)")
    take_in = commands.add_parser("import", help="take sessions from files into a home; stop its gateway first")
    check = commands.add_parser("verify", help="compare a home's sessions with exported files")
    for command, run in ((export, _export), (take_in, _import), (check, _verify)):
        command.set_defaults(command=lambda arguments, run=run: run(arguments, home_of(arguments)))
        command.add_argument("files", metavar="DIR", type=Path, help="folder of JSONL files, one a session")
        command.add_argument("--json", action="store_true", help="print JSON")
        command.add_argument("--encoding", choices=("zstd", "raw"), default="zstd", help="of the files (default: zstd)")
        command.add_argument("--session", metavar="ID", action="append", help="only this one; may be repeated")
    for command in (export, take_in):
        command.add_argument("--dry-run", action="store_true", help="say what would be written, write nothing")
    take_in.add_argument(
        "--seed", action="store_true", help="DIR is a root of the event-log seed's system, or its SQLite file"
    )
    export.add_argument(
        "--seed", action="store_true", help="write raw JSONL of the event-log seed's system, undone turns left out"
    )
    return [export, take_in, check]


def _export(arguments: argparse.Namespace, home: str) -> int:
    source = StoreLogs(ReadStore(Home.database_of(home)))
    try:
        if arguments.seed:
            report = export_seed(source, arguments.files, arguments.session, dry_run=arguments.dry_run)
            return _tell(arguments, report)
        return _tell(arguments, copy(source, _files(arguments), arguments.session, dry_run=arguments.dry_run))
    finally:
        source.close()


def _verify(arguments: argparse.Namespace, home: str) -> int:
    source = StoreLogs(ReadStore(Home.database_of(home)))
    try:
        return _tell(arguments, verify(source, _files(arguments), arguments.session))
    finally:
        source.close()


def _import(arguments: argparse.Namespace, home: str) -> int:
    try:
        if not arguments.files.exists():
            raise HomeError(str(arguments.files), "is not there")
        if not (arguments.seed or arguments.files.is_dir()):
            raise HomeError(str(arguments.files), "is not a folder")
    except OSError as error:
        raise HomeError(str(arguments.files), f"can't be looked at ({error.strerror})") from error
    with contextlib.ExitStack() as stack:
        if arguments.dry_run:
            target = StoreLogs(_as_it_is(home))
        else:
            owned = Home.own(home)
            stack.callback(owned.close, clean=owned.was_clean)
            target = StoreLogs(SqliteStore(owned.database))
        stack.callback(target.close)
        if arguments.seed:
            report = import_seed(arguments.files, target, dry_run=arguments.dry_run)
        else:
            report = copy(_files(arguments), target, arguments.session, dry_run=arguments.dry_run)
    return _tell(arguments, report)


def _as_it_is(home: str) -> ReadStore | MemoryStore:
    """What a home holds, or would hold, for one who writes nothing: neither a lock nor a database is made."""
    database = Path(home) / DATABASE
    try:
        there = database.exists()
    except OSError as error:
        raise HomeError(home, f"can't be looked at ({error.strerror}); choose another home") from error
    return ReadStore(str(database)) if there else MemoryStore()


def _files(arguments: argparse.Namespace) -> JsonlLogs:
    return JsonlLogs(arguments.files, arguments.encoding)


def _tell(arguments: argparse.Namespace, report: Report) -> int:
    problems = [f"{problem.where}: {problem.error}" for problem in report.problems]
    if arguments.json:
        told = {"holds": report.holds, "sessions": report.results, "events": report.events, "problems": problems}
        print(json.dumps(told))
    else:
        counts = Counter(report.results.values())
        print(", ".join(f"{count} {result}" for result, count in counts.items()) or "no sessions", end="")
        print(f" ({report.events} events)" + (", nothing written: a dry run" if _is_dry(arguments) else ""))
        for session_id, result in report.results.items():
            if result in ("missing", "differs"):
                print(f"{result}: {session_id}")
        for problem in problems:
            print(f"problem: {problem}")
    return 0 if report.holds else 1


def _is_dry(arguments: argparse.Namespace) -> bool:
    return bool(getattr(arguments, "dry_run", False))
