"""One run: lives one after the other on the files that each death leaves, until one comes to rest."""

from __future__ import annotations

import shutil
import tempfile
import traceback
from functools import cache
from pathlib import Path

from attrs import Factory, define

from seriatim.storage.sqlite import SqliteStore
from seriatim.testing.clock import START_MS
from seriatim.testing.judge import judge
from seriatim.testing.snapshot import snapshot_files
from tests.crash.ground import Ground
from tests.crash.life import Life
from tests.crash.points import Fate
from tests.crash.scenario import Scenario

LIVES_MAX = 8


@define
class Trace:
    """What a run was: of each life its points, envelopes (of lanes, of others) and WAL frames of commits."""

    wrong: list[str]
    labels: list[list[str]] = Factory(list)
    envelopes: list[int] = Factory(list)
    others: list[int] = Factory(list)
    frames: list[dict[int, tuple[int, int]]] = Factory(list)
    steps: int = 0


@cache
def _folder() -> Path:
    """Where the files lie: in memory if there is such a place, since a kill needs no disk."""
    memory = Path("/dev/shm")
    return memory if memory.is_dir() else Path(tempfile.gettempdir())


@cache
def _template() -> bytes:
    """A store without logs, as a file."""
    with tempfile.TemporaryDirectory(dir=_folder()) as folder:
        path = Path(folder) / "state.db"
        SqliteStore(path).close()
        return path.read_bytes()


def run(scenario: Scenario, plan: tuple[Fate, ...] = (), seed: int = 1) -> Trace:
    """Play ``scenario``; the life of each number meets the plan's fate of that number, later ones meet none.

    An error of the machinery or of the product that nobody contains is a violation like the others.
    """
    ground = Ground(scenario)
    trace = Trace(ground.wrong)
    with tempfile.TemporaryDirectory(prefix="seriatim-crash-", dir=_folder()) as folder:
        path = Path(folder) / "0" / "state.db"
        path.parent.mkdir()
        path.write_bytes(_template())
        try:
            _lives(ground, trace, path, plan, seed)
        except Exception as error:  # noqa: BLE001 - a finding, not an accident
            where = traceback.extract_tb(error.__traceback__)[-1]
            ground.complain(f"{type(error).__name__} in {Path(where.filename).name}:{where.lineno}: {error}")
    return trace


def _lives(ground: Ground, trace: Trace, path: Path, plan: tuple[Fate, ...], seed: int) -> None:
    start_ms = START_MS
    durable: dict[str, int] = {}
    for number in range(LIVES_MAX):
        ground.life = number
        fate = plan[number] if number < len(plan) else Fate()
        life = Life(ground, path, fate, seed + number, start_ms)
        life.durable = durable
        try:
            trace.labels.append(life.points.labels)
            trace.frames.append(life.frames)
            try:
                life.run()
            finally:
                trace.envelopes.append(life.points.envelopes)
                trace.others.append(life.points.others)
                trace.steps += life.steps
            for error in life.errors:
                ground.complain(f"unexpected: {error}")
            if not life.points.dead and not life.stopped:
                judge(ground, life)
                return
            ground.deaths += life.points.dead
            frames = fate.frames
            if fate.torn and life.points.dead:
                frames = sum(life.frames.get(len(life.points.labels) - 1, (0, 0))) // 2
            path = Path(snapshot_files(path, path.parent.parent / str(number + 1), frames=frames))
            # A commit that was cut short had not been answered yet.
            durable = life.witness.heads if frames is None else {}
            start_ms = life.clock.now_ms() + ground.scenario.away_ms
        finally:
            life.close()
        shutil.rmtree(path.parent.parent / str(number))
    ground.complain("it dies in every life")
