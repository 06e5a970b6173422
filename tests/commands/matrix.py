"""The command matrix: what each command does in each state of a lane, as ``matrix.toml`` says it, against the rules.

``python -m tests.commands.matrix`` prints the count and what is missing. A cell names the rule that it follows and what
one can see of it. What it doesn't name is unchanged: the turn, what waits, the session, what the model sees.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from attrs import fields_dict, frozen

from seriatim.actors.surfaces import read_messages
from seriatim.batch import Rules
from seriatim.effects import Deliver, RestartGateway, RunTurn
from seriatim.events import session_log
from seriatim.lane import LaneState
from tests.core.bench import Bench

FILE: Final = Path(__file__).with_name("matrix.toml")
STATES: Final = ("idle", "running", "queued", "slot_human", "slot_queued", "slot_wake", "draining", "recovering")
OPERATOR: Final = "root"


@frozen
class Seen:
    """What one can see of a command in a state.

    ``says``: what the reply begins with, "" for none. ``turn``: what becomes of the running turn (none, runs, aborted).
    ``starts``: what the turn that begins now answers. ``waits`` and ``dropped``: texts. ``session``: same, new or
    other (the older one). ``shows``: what the model sees of the lane's session then; None: what it saw. ``does``: an
    effect that leaves.
    """

    says: str
    turn: str
    starts: tuple[str, ...]
    waits: tuple[str, ...]
    dropped: tuple[str, ...]
    session: str
    shows: tuple[str, ...] | None
    does: str


@frozen
class Cell:
    """One command in one state. ``command``: the row's name; ``rule``: a key of the file's rules; ``wanted``: what
    one must see.
    """

    command: str
    state: str
    text: str
    user: str
    rule: str
    wanted: Seen


@frozen
class Matrix:
    """The file. ``missing``: cells that nobody has written; ``strange``: what it holds that nothing knows."""

    cells: tuple[Cell, ...]
    rules: dict[str, dict[str, str]]
    missing: tuple[str, ...]
    strange: tuple[str, ...]


_START: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    "idle": ("none", ()),
    "running": ("runs", ()),
    "queued": ("runs", ("q1", "q2", "five")),
    "slot_human": ("runs", ("four",)),
    "slot_queued": ("runs", ("q1",)),
    "slot_wake": ("runs", ("ping",)),
    "draining": ("runs", ("four",)),
    "recovering": ("runs", ()),
}
"""Of each state: the running turn, and what waits."""


def read(text: str | None = None) -> Matrix:
    """The matrix as it is written. Raises KeyError for a cell without rule or words."""
    file: dict[str, Any] = tomllib.loads(FILE.read_text() if text is None else text)
    rules = file["rules"]
    cells: list[Cell] = []
    missing: list[str] = []
    strange: list[str] = []
    used: set[str] = set()
    for command, row in file["commands"].items():
        strange += [f"{command}.{name}" for name in row.keys() - {*STATES, "text", "user"}]
        for state in STATES:
            written = row.get(state)
            if not written:
                missing.append(f"{command}.{state}")
                continue
            turn, waits = _START[state]
            strange += [f"{command}.{state}.{name}" for name in written.keys() - _FIELDS]
            if written["rule"] not in rules:
                strange.append(f"{command}.{state}: rule {written['rule']}")
            used.add(written["rule"])
            shows = written.get("shows")
            wanted = Seen(
                says=written["says"],
                turn=written.get("turn", turn),
                starts=tuple(written.get("starts", ())),
                waits=tuple(written.get("waits", waits)),
                dropped=tuple(written.get("dropped", ())),
                session=written.get("session", "same"),
                shows=None if shows is None else tuple(shows),
                does=written.get("does", ""),
            )
            cells.append(Cell(command, state, row["text"], row.get("user", "u"), written["rule"], wanted))
    strange += [f"rule {name} is nobody's" for name in rules.keys() - used]
    return Matrix(tuple(cells), rules, tuple(missing), tuple(strange))


_FIELDS: Final = {"rule", *fields_dict(Seen)}


MID_TURN: Final = tuple(
    cell.text for cell in read().cells if cell.state == "running" and cell.command != "queue" and cell.user == "u"
)
"""Each command as one may type it while a turn runs, but for the one that is a message."""


class Stage:
    """One lane in one of the states, and what a command does to it."""

    def __init__(self, state: str) -> None:
        self.recovering = state == "recovering"
        self.bench = bench = Bench(Rules(operators=frozenset({f"sim:{OPERATOR}"})), free=100)
        self.older: str | None = None
        self._say("/new old", "zero")
        bench.answer("re zero")
        self.older = bench.gate.durable.bound
        self._say("/new", "one")
        bench.answer("re one")
        self._say("two")
        bench.answer("re two")
        if state != "idle":
            self._say("three")
        if state in _PREPARE:
            _PREPARE[state](self)
        self.before = bench.gate.durable.fork()
        self.saw = self._shows()
        bench.forget()

    def command(self, text: str, user: str) -> Seen:
        """Give the command, and look."""
        bench = self.bench
        bench.say(text.replace("OLDER", self.older or ""), user=user)
        if self.recovering:  # the command stood behind the recovery's commit
            bench.settle()
            self.before, self.saw = bench.gate.durable.fork(), self._shows()
            bench.forget()
        bench.drain()
        return self._seen()

    def _say(self, *texts: str) -> None:
        for text in texts:
            self.bench.said(text)

    def _seen(self) -> Seen:
        bench, before = self.bench, self.before
        after = bench.gate.durable
        dropped = [i for event in bench.lane_events("inbox/dropped") for i in event.data["ids"]]
        told = {e.data["id"]: e.data["text"] for e in bench.lane_events("inbox/accepted")}
        runs = bench.all(RunTurn)
        shows = self._shows()
        return Seen(
            says="\n".join(text for deliver in bench.all(Deliver) for text in deliver.parts),
            turn=_fate(before, after),
            starts=tuple(data["text"] for run in runs for data, _ in run.claims),
            waits=tuple(told[i] for entry in after.queue for i in entry.ids),
            dropped=tuple(told[i] for i in dropped),
            session=self._session(),
            shows=None if shows == self.saw and after.bound == before.bound else shows,
            does="restart" if bench.all(RestartGateway) else "",
        )

    def _session(self) -> str:
        bound = self.bench.gate.durable.bound
        return "same" if bound == self.before.bound else "other" if bound == self.older else "new"

    def _shows(self) -> tuple[str, ...]:
        part = self.bench.gate.durable.session
        if part is None:
            return ()
        messages, _ = read_messages(self.bench.store.reader(), session_log(part.id), part.head)
        return tuple(event.data["text"] for event in messages)


def _fate(before: LaneState, after: LaneState) -> str:
    if before.running is None:
        return "none"
    running = after.running
    return "runs" if running is not None and running.generation == before.running.generation else "aborted"


def _wait(*texts: str) -> Callable[[Stage], None]:
    def prepare(stage: Stage) -> None:
        stage._say(*texts)

    return prepare


def _wake(stage: Stage) -> None:
    stage.bench.wake("ping")


def _drain(stage: Stage) -> None:
    stage._say("four")
    stage.bench.now.draining = True


def _recover(stage: Stage) -> None:
    """The process died in mid-turn; its successor's recovery is in flight when the command comes."""
    bench = stage.bench
    bench.reads = False
    bench.store = type(bench.store)(bench.disk)
    bench.incarnation = 0
    tell, bench.tell = bench.tell, bench.offer  # type: ignore[method-assign]
    bench.start()
    bench.tell = tell  # type: ignore[method-assign]
    bench.reads = True


_PREPARE: Final[dict[str, Callable[[Stage], None]]] = {
    "queued": _wait("/queue q1", "/queue q2", "five"),
    "slot_human": _wait("four"),
    "slot_queued": _wait("/queue q1"),
    "slot_wake": _wake,
    "draining": _drain,
    "recovering": _recover,
}


def main() -> int:
    """Print the count."""
    matrix = read()
    rows = len({cell.command for cell in matrix.cells})
    print(f"{len(matrix.cells)} cells: {rows} commands x {len(STATES)} states, {len(matrix.rules)} rules")
    for name in matrix.missing:
        print("empty:", name)
    for name in matrix.strange:
        print("strange:", name)
    return 1 if matrix.missing or matrix.strange else 0


if __name__ == "__main__":
    sys.exit(main())
