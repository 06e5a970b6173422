"""The command line: ``seriatim`` chat, serve, balance, undelivered, rebuild, sweep, repair, export, import, verify.

Exit codes: 0 all well; 1 the balance or a comparison doesn't hold, a repair lost something, or a stop left turns to be
resumed; 2 the configuration, the home or the arguments are wrong (one line on standard error says what, and nothing was
written); 3 a stop got stuck and was broken off (the log has every thread's stack; open turns go on at the next start);
75 a restart was asked for, and ``stop.on_restart`` leaves it to a supervisor.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import logging
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import attrs

from seriatim.adapters.agents.history import HistoryAgent
from seriatim.adapters.agents.openai import OpenAICompatible
from seriatim.adapters.base import Adapter
from seriatim.adapters.registry import build
from seriatim.adapters.terminal import TerminalAdapter
from seriatim.config import AgentConfig, GatewayConfig
from seriatim.configfile import load_config
from seriatim.errors import ConfigError, HomeError, InvalidInputError, SeriatimError, StoreError
from seriatim.gateway import Gateway
from seriatim.limits import BLOBS_SWEPT_MAX
from seriatim.storage.audit import Audit, audit
from seriatim.storage.event_log import command as logs
from seriatim.storage.files import check_path
from seriatim.storage.home import Home
from seriatim.storage.projections import rebuild
from seriatim.storage.repair import salvage
from seriatim.storage.spool import SpoolSeen, look
from seriatim.storage.sqlite import SqliteStore
from seriatim.storage.sqlite_reader import SqliteReader
from seriatim.undelivered_command import add as add_undelivered

CONFIG_FILE = "seriatim.toml"
SWEEP_DAYS = 7.0
SWEEP_DAYS_MIN = 1.0
"""What has been kept for a message that isn't committed yet looks like what nobody refers to."""
EXIT_RESTART = 75
"""The exit code of a process that asks its supervisor to start it again (sysexits' "try again")."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    arguments = _parser().parse_args(argv)
    logging.basicConfig(
        level=logging.INFO if arguments.verbose else logging.WARNING,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        stream=sys.stderr,
    )
    try:
        code: int = arguments.command(arguments)
    except (ConfigError, HomeError, StoreError) as error:
        print(f"seriatim: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        sys.stderr.close()
        return 1
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="seriatim", description="The session runtime under chat bots.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    chat = commands.add_parser("chat", help="talk to the gateway in this terminal")
    serve = commands.add_parser("serve", help="run the configured adapters until Ctrl-C")
    balance = commands.add_parser("balance", help="check that no accepted message is unaccounted for")
    repair = commands.add_parser("repair", help="copy what is whole in a damaged home into a new one")
    repair.add_argument("--to", metavar="DIR", required=True, help="the new home; must not exist, or be empty")
    rebuild_ = commands.add_parser("rebuild", help="make the index of open work and its counters anew from the logs")
    sweep = commands.add_parser("sweep", help="remove the content of attachments that no log refers to")
    sweep.add_argument("--older-than", metavar="DAYS", type=float, default=SWEEP_DAYS, help="default: %(default)s")
    sweep.add_argument("--dry-run", action="store_true", help="only say what would be removed")
    runs = (
        *((chat, _chat), (serve, _serve), (balance, _balance)),
        *((repair, _repair), (rebuild_, _rebuild), (sweep, _sweep)),
    )
    for command, run in runs:
        command.set_defaults(command=run)
        _add_common(command)
    balance.add_argument("--json", action="store_true", help="print JSON")
    for command in logs.add(commands, lambda arguments: _config(arguments).home):
        _add_common(command)
    _add_common(add_undelivered(commands, lambda arguments: _config(arguments).home))
    return parser


def _add_common(command: argparse.ArgumentParser) -> None:
    command.add_argument("--config", metavar="FILE", help=f"configuration (default: {CONFIG_FILE}, if there is one)")
    command.add_argument("--home", metavar="DIR", help="state home, instead of the configuration's")
    command.add_argument("-v", "--verbose", action="store_true", help="log what happens to standard error")


def _config(arguments: argparse.Namespace) -> GatewayConfig:
    path = arguments.config
    if path is None and Path(CONFIG_FILE).is_file():
        path = CONFIG_FILE
    config = load_config(path)
    if arguments.home is not None:
        config = attrs.evolve(config, home=arguments.home)
    _check_path("home", config.home)
    return config


def _check_path(name: str, path: str) -> None:
    try:
        check_path(name, path)
    except InvalidInputError as error:
        raise ConfigError(error.field, error.reason) from error


def _chat(arguments: argparse.Namespace) -> int:
    config = _config(arguments)
    if sys.stdin is None or sys.stdout is None:
        raise ConfigError("chat", "needs standard input and output; one of them is closed")
    agent = make_agent(config.agent)

    def introduce() -> None:
        if sys.stdin.isatty():
            print(
                f"{_introduction(config.agent)} The conversation is kept in {Path(config.home).resolve()}.\n"
                f"{config.commands.prefix}help tells the commands; Ctrl-C or Ctrl-D ends the chat."
            )

    try:
        return _run(Gateway(config=config, adapters=[TerminalAdapter()], **agent), introduce)
    finally:
        if sys.stdin.isatty() and sys.stdout.isatty():
            print()  # the shell's prompt belongs on a line of its own


def _serve(arguments: argparse.Namespace) -> int:
    config = _config(arguments)
    if not config.adapters:
        raise ConfigError("adapters", 'none is configured; add a table such as [adapters.chat] with type = "irc"')
    adapters: list[Adapter] = [build(table.type, table.name, table.options) for table in config.adapters]
    gateway = Gateway(config=config, adapters=adapters, **make_agent(config.agent))
    served = ", ".join(f"{adapter.platform} {adapter.account}" for adapter in adapters)
    return _run(gateway, lambda: print(f"seriatim: serving {served}; Ctrl-C stops", file=sys.stderr))


def _run(gateway: Gateway, started: Callable[[], None]) -> int:
    clean = gateway.run(started=started)
    if not clean:
        print("seriatim: a turn was still running; it goes on at the next start", file=sys.stderr)
    if not gateway.restart_asked.is_set():
        return 0 if clean else 1
    if gateway.config.stop.on_restart == "exec":
        print("seriatim: starting anew", file=sys.stderr)
        start_anew()
    return EXIT_RESTART


def start_anew() -> None:
    """Put this program, as it is on disk now, in this process's place. Returns only where the system refuses."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):  # closed, or none
            stream.flush()
    try:
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606  (ourselves, as we were started)
    except OSError as error:
        print(f"seriatim: can't start anew ({error.strerror}); start it again", file=sys.stderr)


def _balance(arguments: argparse.Namespace) -> int:
    config = _config(arguments)
    reader = SqliteReader(Home.database_of(config.home))
    try:
        found = audit(reader)
        spool = look(config.home)
        # Those that are in the store already only wait for the rest of their spool.
        keys = [message.key for message in spool.messages]
        waiting = len(keys) - len(reader.has_keys(keys))
    finally:
        reader.close()
    found = _with_spool(found, spool)
    print(json.dumps(_as_json(found, waiting)) if arguments.json else _as_text(found, waiting))
    return 0 if found.holds else 1


def _with_spool(found: Audit, spool: SpoolSeen) -> Audit:
    if not spool.damaged:
        return found
    problem = f"{spool.damaged} lines of the spool are damaged; each may hold a message that was accepted"
    return attrs.evolve(found, problems=(*found.problems, problem))


def _rebuild(arguments: argparse.Namespace) -> int:
    with Home.tended(_config(arguments).home) as home:
        wrong = rebuild(home.database)
    print(f"{wrong} rows of the index were not what the logs tell; they are now. Checkpoints are taken anew.")
    return 0


def _sweep(arguments: argparse.Namespace) -> int:
    folder, days, dry_run = _config(arguments).home, arguments.older_than, arguments.dry_run
    if not SWEEP_DAYS_MIN <= days < 1e6:
        raise ConfigError("--older-than", f"{SWEEP_DAYS_MIN:g} days or more are needed")
    with Home.tended(folder) as home:
        if look(folder).messages:  # which may refer to some, and no log tells of that
            raise HomeError(folder, "messages wait in its spool; start the gateway once, then sweep")
        store = SqliteStore(home.database)
        try:
            before, count, size, more = round((time.time() - days * 86_400) * 1000), 0, 0, True
            while more:
                limit = sys.maxsize if dry_run else BLOBS_SWEPT_MAX
                swept = store.sweep_blobs(before, limit=limit, dry_run=dry_run)
                count, size, more = count + swept.count, size + swept.bytes, swept.more
        finally:
            store.close()
    print(f"{count} attachments ({size} bytes) {'would be removed' if dry_run else 'removed'}; no log refers to them.")
    return 0


def _repair(arguments: argparse.Namespace) -> int:
    folder = _config(arguments).home
    _check_path("--to", arguments.to)
    source = Home.database_of(folder)
    Home.refuse_served(folder)
    home = Home.own(arguments.to)
    try:
        told = salvage(source, home.database)
    finally:
        home.close(clean=False)
    print(f"{home.database}: {told.logs} logs with {told.events} events, {told.keys} known messages")
    if told.spooled:
        print(f"{told.spooled} messages that waited in the spool; the next start takes them in")
    if not told.index_whole:
        print("The index of open work could not be read; it was made anew from the logs.")
    for log, why in sorted(told.lost.items()):
        print(f"lost: {log}: {why}")
    if not told.keys_whole:
        print("lost: some of the known messages; one of them that is given again may be answered again")
    print("Nothing was lost." if told.whole else f"Not everything could be read; {source} is as it was.")
    return 0 if told.whole else 1


def _as_json(found: Audit, waiting: int) -> dict[str, Any]:
    return {
        "holds": found.holds,
        "spooled": waiting,
        "counters": attrs.asdict(found.counters) | {"holds": found.counters.holds},
        "logs": attrs.asdict(found.logs) | {"holds": found.logs.holds},
        "lanes": found.lanes,
        "problems": list(found.problems),
    }


def _as_text(found: Audit, waiting: int) -> str:
    lines = []
    for name, counted in (("counters", found.counters), ("logs", found.logs)):
        sign = "=" if counted.holds else "≠"
        lines.append(
            f"{name + ':':10}accepted {counted.accepted} {sign} answered {counted.answered} + merged {counted.merged}"
            f" + dropped {counted.dropped} + waiting {counted.waiting}"
        )
    if waiting:
        lines.append(
            f"spool:    {waiting} more accepted and waiting, to be taken into the database when it works again"
        )
    lines.extend(f"problem: {problem}" for problem in found.problems)
    lines.append("The balance holds." if found.holds else "The balance does NOT hold.")
    return "\n".join(lines)


def make_agent(config: AgentConfig) -> dict[str, Any]:
    """Gateway's arguments for the configured agent. Raises ConfigError."""
    if config.chosen == "factory":
        assert config.factory is not None
        return {"agent_factory": _load(config.factory)}
    if config.chosen == "openai":
        assert config.base_url is not None
        assert config.model is not None
        try:
            agent = OpenAICompatible(
                config.base_url,
                config.model,
                api_key=config.api_key,
                system_prompt=config.system_prompt,
                timeout_s=config.timeout_s,
            )
        except SeriatimError as error:
            raise ConfigError("agent", str(error)) from error
        return {"answer": agent}
    return {"answer": HistoryAgent()}


def _load(name: str) -> Any:
    module_name, _, attribute = name.partition(":")
    sys.path.insert(0, str(Path.cwd()))  # as python -m does: a bot's module lies beside its configuration
    try:
        found = getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError) as error:
        raise ConfigError("agent.factory", f"can't be loaded: {error}") from error
    finally:
        sys.path.pop(0)
    if not callable(found):
        raise ConfigError("agent.factory", f"{name} can't be called")
    return found


def _introduction(config: AgentConfig) -> str:
    if config.chosen == "openai":
        return f"You talk to {config.model} at {config.base_url}."
    if config.chosen == "factory":
        return f"You talk to an agent made by {config.factory}."
    return "You talk to the built-in history agent, which is not a language model."
