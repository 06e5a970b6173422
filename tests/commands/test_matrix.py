"""The command matrix, each cell against the real rules, and a sample of it through a whole gateway."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from seriatim.commands import COMMANDS
from seriatim.testing.fake_platform import FakePlatform
from tests.commands.matrix import FILE, STATES, Cell, Stage, read
from tests.gateway.bots import balance_holds, bot, run, until

MATRIX = read()


def test_no_cell_is_empty() -> None:
    """Each command has a cell for each state, and each cell names a rule of the list."""
    assert MATRIX.missing == ()
    assert MATRIX.strange == ()
    assert len(MATRIX.cells) == len({cell.command for cell in MATRIX.cells}) * len(STATES)


def test_each_command_has_a_row() -> None:
    """A command that nobody thought through can't be added."""
    rows = {cell.text.split()[0].removeprefix("/") for cell in MATRIX.cells}
    assert COMMANDS.keys() - rows == set()
    assert rows - COMMANDS.keys() == {"stpo"}


def test_an_empty_cell_is_found() -> None:
    """A cell that is left out, or empty, and a rule that isn't there, are told by name."""
    text = FILE.read_text()
    without = read(text.replace('idle = { rule = "stop_idle", says = "No active task to stop." }\n', "", 1))
    assert "stop.idle" in without.missing
    wrong = read(text.replace('rule = "stop_idle"', 'rule = "nothing"', 1))
    assert "stop.idle: rule nothing" in wrong.strange


@pytest.mark.parametrize("cell", MATRIX.cells, ids=lambda cell: f"{cell.command}-{cell.state}")
def test_the_rules_do_what_the_cell_says(cell: Cell) -> None:
    """Reply, turn, queue, session and what the model sees are the cell's; the command is no user text."""
    stage, wanted = Stage(cell.state), cell.wanted
    seen = stage.command(cell.text, cell.user)
    assert seen.says.startswith(wanted.says)
    assert bool(seen.says) == bool(wanted.says)
    assert evolve(seen, says=wanted.says) == wanted
    if cell.command != "queue":
        said = [e.data["text"] for e in stage.bench.session_events() if e.type == "user/message"]
        assert cell.text not in said
    state = stage.bench.gate.durable
    assert state.accepted == state.answered + state.merged + state.dropped + len(state.waiting)
    assert stage.bench.fold() == state


SAMPLE = [cell for cell in MATRIX.cells if cell.state not in ("draining", "recovering") and cell.user == "u"]


WAITS = {
    "queued": ("/queue q1", "/queue q2", "five"),
    "slot_human": ("four",),
    "slot_queued": ("/queue q1",),
}


class Held:
    """An agent that answers at once, but for "three"."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.running: list[str] = []

    async def run(self, turn: Any) -> str:
        """Answer, or wait."""
        self.running.append(turn.text)
        if turn.text not in ("zero", "one", "two"):
            await self.go.wait()
        return f"re {turn.text}"


@pytest.mark.parametrize("cell", SAMPLE[::5], ids=lambda cell: f"{cell.command}-{cell.state}")
def test_a_gateway_does_what_the_cell_says(tmp_path: Path, cell: Cell) -> None:
    """Through adapter, actors and files: the same reply, the same turns, and law 1 in the end."""
    agent, platform = Held(), FakePlatform()

    async def story() -> None:
        async with bot(agent, tmp_path, platform) as b:

            async def said(text: str) -> None:
                count = len(platform.texts())
                b.say(text)
                await b.heard(count + 1)

            for text in ("/new old", "zero", "/new", "one", "two"):
                await said(text)
            if cell.state != "idle":
                b.say("three")
                await until(lambda: "three" in agent.running)
            for number, text in enumerate(WAITS.get(cell.state, ()), 2):
                told = len(platform.texts()) + text.startswith("/queue")  # its place is told
                b.say(text)
                await until(lambda: b.gateway.balance()["waiting"] == number)  # noqa: B023  (waited for at once)
                await b.heard(told)
            if cell.state == "slot_wake":
                runtime = b.gateway._runtime
                assert runtime is not None
                [key] = runtime.directory.live
                await b.gateway.wake(key, "ping")
            session = _session(b)
            count, ran = len(platform.texts()), len(agent.running)
            b.say(cell.text.replace("OLDER", _older(b)))
            if cell.wanted.says:
                assert (await b.heard(count + 1))[-1].startswith(cell.wanted.says)
            if cell.wanted.starts:
                await until(lambda: len(agent.running) == ran + 1)
                assert agent.running[-1] == cell.wanted.starts[0]
            else:
                assert len(agent.running) == ran
            assert (_session(b) == session) == (cell.wanted.session == "same")
            agent.go.set()
            await b.at_rest()
            assert b.errors == []

    run(story())
    assert balance_holds(tmp_path)


def _state(b: Any) -> Any:
    [gate] = b.gateway._runtime.directory.gates()
    return gate.durable


def _session(b: Any) -> str:
    bound: str = _state(b).bound
    return bound


def _older(b: Any) -> str:
    session: str = _state(b).titles[0][0]
    return session
