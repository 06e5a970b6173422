"""Time, chance and identity are handed in: whoever reads them behind the library's back is listed here, with why."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.house.source import Module, library

READERS = frozenset({
    "time.time", "time.time_ns", "time.monotonic", "time.monotonic_ns", "time.perf_counter", "time.perf_counter_ns",
    "time.localtime", "time.ctime", "time.sleep",
    "datetime.now", "datetime.utcnow", "datetime.today", "date.today",
    "uuid.uuid1", "uuid.uuid4", "os.urandom",
    "threading.Timer",
})  # fmt: skip
"""Calls and names that reach the machine's clock, its chance, or a timer of their own."""

CHANCE = frozenset({"random", "secrets"})
"""Modules of which every function but ``Random`` with a seed is chance."""

ALLOWED = {
    ("actors.clockwork", "time.time_ns"): "the real clock itself",
    ("actors.clockwork", "time.monotonic"): "the real clock itself",
    ("actors.dispatch", "time.perf_counter"): "how long a pass takes is a cost of this machine, not of the model",
    ("actors.dispatch", "time.sleep"): "the yield of the GIL: sleeps for no time",
    ("actors.ids", "secrets.token_hex"): "the real ids themselves; a simulation hands its own token in",
    ("actors.pooled", "uuid.uuid4"): "a plain actor's urn, as Pykka makes it; a system's actors count",
    ("storage.event_log.live", "time.time_ns"): "the clock of a host that brings none, for the service used alone",
    ("storage.event_log.live", "time.monotonic"): "as above",
    ("storage.event_log.store_logs", "uuid.uuid4"): "a commit's id, which no reader sees; the service has no ids port",
    ("storage.files", "time.monotonic"): "how long a lock of another process is waited for: that process knows no port",
    ("storage.files", "time.sleep"): "as above, between two looks at the lock",
    ("storage.schema", "time.monotonic"): "how long a migration has taken is told to the operator, and decides nothing",
    ("storage.sqlite_reader", "time.monotonic"): "readers are time-boxed against the file's own locks, not the model's",
    ("storage.wal", "time.monotonic"): "the default of an argument; tests hand a clock in",
    ("storage.memory", "uuid.uuid4"): "as storage.sqlite: a memory disk has owners, too",
    ("storage.sqlite", "uuid.uuid4"): "tells two owners of a file apart, even where their injected ids agree",
    ("cli", "time.time"): "`sweep` runs alone, without a gateway's clock: its files' ages are this machine's",
    ("opening", "random.Random"): "the composition root makes the generator that it hands down",
    ("adapters.irc", "random.Random"): "the default of an argument; tests hand one in",
    ("adapters.agents.openai", "time.time"): "a server's Retry-After date is wall time of the world outside",
}
"""Module and reader, with the reason why it may."""


def test_time_chance_and_ids_are_handed_in() -> None:
    """No module reads a clock, makes a random number or a unique id, except those that are the source of it."""
    found = {(module.name.removeprefix("seriatim."), name) for module in library() for name in readers(module)}

    assert sorted(found - set(ALLOWED)) == [], "take it from the clock, ids or rng that is handed in"
    assert sorted(set(ALLOWED) - found) == [], "no longer needed: strike it from the list"


def test_the_readers_are_recognised_in_every_spelling() -> None:
    """An alias, a from-import and a reference without a call are all seen; a seeded generator is none."""
    code = (
        "import time as t, random\nfrom uuid import uuid4 as fresh\nfrom datetime import datetime, UTC\n"
        "def f(clock=t.monotonic): return fresh(), datetime.now(UTC)\n"
        "chance = random.random(), random.Random(7), random.Random()"
    )
    assert sorted(set(read_in(ast.parse(code)))) == [
        "datetime.now",
        "random.Random",
        "random.random",
        "time.monotonic",
        "uuid.uuid4",
    ]


def readers(module: Module) -> Iterator[str]:
    """What a module reads of the world."""
    return read_in(module.tree())


def read_in(tree: ast.Module) -> Iterator[str]:
    """The readers among the names that a module uses, each in its canonical spelling."""
    known = _imported(tree)
    seeded = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call) and node.args}
    typed = {id(part) for note in _annotations(tree) for part in ast.walk(note)}
    for node in ast.walk(tree):
        name = _full_name(node, known)
        if name is None or id(node) in typed:
            continue
        short = ".".join(name.split(".")[-2:])
        chance = name.partition(".")[0] in CHANCE and "." in name
        if short in READERS or (chance and not (short == "random.Random" and id(node) in seeded)):
            yield short


def _imported(tree: ast.Module) -> dict[str, str]:
    known: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            known |= {alias.asname or alias.name: alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            known |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    return known


def _annotations(tree: ast.Module) -> Iterator[ast.expr]:
    for node in ast.walk(tree):
        if isinstance(node, ast.arg | ast.AnnAssign) and node.annotation is not None:
            yield node.annotation
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.returns is not None:
            yield node.returns


def _full_name(node: ast.AST, known: dict[str, str]) -> str | None:
    if isinstance(node, ast.Name) and "." in known.get(node.id, ""):
        return known[node.id]
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in known:
        return f"{known[node.value.id]}.{node.attr}"
    return None
