"""The simulator finds nothing in the shipped code, replays by seed anywhere, and finds what is planted."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import attr
import attrs
import pykka
import pytest

import tests
from seriatim.testing.chance import plan_of
from seriatim.testing.scripted import Script, ScriptCall, ScriptStep
from seriatim.testing.simulator import Simulator
from seriatim.turn import TurnJob
from tests.planted import planted

from .campaign import Totals, hunt_all, run_seeds
from .mutants import BUGS
from .shrink import shrink, story

SEEDS = range(40)
REPLAYED = range(5)
NAMED = {
    *("lost update", "stale revive", "double activation", "promote race", "missed wake", "overtaking"),
    *("late finish of a fenced turn", "ack before durable"),
}


@pytest.fixture(scope="module")
def totals() -> Totals:
    """Some seeds, run once."""
    return run_seeds(SEEDS)


def test_random_worlds_break_no_invariant(totals: Totals) -> None:
    """Every world comes to rest with every law intact."""
    assert totals.failing == {}


@pytest.mark.parametrize("seed", [151, 249])
def test_a_retry_of_what_had_no_words_is_answered_without_words(seed: int) -> None:
    """A world whose people ask a silent message's answer again is none in which a receipt has lost the reply."""
    assert run_seeds([seed]).failing == {}


def test_no_run_is_trivial(totals: Totals) -> None:
    """Each run has a hundred steps, most have a crash, and every invariant is judged many times."""
    assert totals.least["steps"] >= 100
    assert totals.with_a_crash >= len(SEEDS) / 2
    assert totals.total["unknowns"] > 0
    assert totals.total["timers_while_runnable"] > 0
    assert all(count > 10 * len(SEEDS) for count in totals.evaluations.values())
    assert len(totals.evaluations) >= 10
    assert min(totals.fewest.values()) > 0, totals.fewest


def test_a_sum_tells_the_least_of_its_parts(totals: Totals) -> None:
    """However the seeds are cut; an invariant that one seed never judged has the minimum 0."""
    parts = Totals()
    for at in range(0, len(SEEDS), 8):
        parts.add(run_seeds(SEEDS[at : at + 8]))
    assert parts.fewest == totals.fewest

    silent = Totals(seeds=1)
    parts.add(silent)
    assert set(parts.fewest.values()) == {0}


def test_a_seed_replays() -> None:
    """The same seed gives the same steps; another one gives others."""
    first, second, other = (Simulator(seed).run() for seed in (7, 7, 8))

    assert first == second
    assert first.checksum != other.checksum


_STAND_INS = """
import json
import sys
import attr
from types import SimpleNamespace
from unittest.mock import MagicMock
try:
    import backports.zstd
except ImportError:  # compiled for another version; the log files that need it are not simulated
    import backports
    backports.zstd = sys.modules["backports.zstd"] = MagicMock()
try:
    import msgspec
except ImportError:  # compiled, too; plain data reads the same whoever wrote it
    def encode(value):
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    def encode_lines(values):
        return b"".join(encode(value) + b"\\n" for value in values)
    coder = SimpleNamespace(encode=encode, encode_lines=encode_lines, decode=json.loads)
    class Struct:
        def __init_subclass__(cls, frozen=False, eq=True, gc=True):
            if hasattr(cls, "__post_init__"):
                cls.__attrs_post_init__ = cls.__post_init__
            attr.s(cls, auto_attribs=True, frozen=frozen, eq=eq)
            cls.__struct_fields__ = tuple(field.name for field in attr.fields(cls))
            for name in cls.__struct_fields__:
                setattr(cls, name, None)  # a struct's class shows its fields, as slots do
    def field(default_factory):
        return attr.ib(factory=default_factory)
    sys.modules["msgspec"] = SimpleNamespace(
        DecodeError=ValueError, json=SimpleNamespace(Encoder=lambda: coder, Decoder=lambda: coder),
        Struct=Struct, field=field,
    )
    sys.modules["msgspec.structs"] = SimpleNamespace(
        replace=attr.evolve, astuple=lambda it: attr.astuple(it, recurse=False), force_setattr=object.__setattr__
    )
"""


def _interpreters() -> dict[str, str]:
    """One Python of each supported version that runs on this machine."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    versions = [f"3.{minor}" for minor in range(11, 15)]
    named = [(v, path) for v in versions for path in (*pyenv.glob(f"{v}.*/bin/python"), shutil.which(f"python{v}"))]
    return {v: str(path) for v, path in named if path is not None and _says(str(path), "print(1)") == "1"}


def _says(python: str, code: str, **env: str) -> str:
    ran = subprocess.run([python, "-c", code], env=os.environ | env, capture_output=True, text=True, check=False)
    return ran.stdout.strip() or ran.stderr[-300:]


def test_a_seed_replays_under_any_hash_seed_and_version() -> None:
    """One checksum, whatever the interpreter and however it hashes strings."""
    expected = str(run_seeds(REPLAYED).checksum)
    code = f"{_STAND_INS}\nfrom tests.sim.campaign import run_seeds; print(run_seeds({REPLAYED!r}).checksum)"
    # What the simulator needs of others is pure Python: another version takes it from here.
    path = os.pathsep.join(str(Path(module.__file__ or "").parents[1]) for module in (tests, attr, attrs, pykka))
    cases = [(sys.executable, "0"), (sys.executable, "1"), *((python, "random") for python in _interpreters().values())]

    said = {case: _says(case[0], code, PYTHONPATH=path, PYTHONHASHSEED=case[1]) for case in cases}

    assert said == dict.fromkeys(cases, expected)


def test_a_failing_seed_is_made_small_and_told() -> None:
    """Shrinking leaves a smaller plan that fails as well, and its story ends with what broke."""
    bug = next(bug for bug in BUGS if bug.name == "promote race")
    with planted(bug):
        plan, violation = shrink(0)
        told = story(0, plan)

    assert plan.acts < plan_of(0).acts
    assert sum(1 for value in attrs.astuple(plan, recurse=False) if value == 0) > 8
    assert any("says" in line for line in told)
    assert told[-1] == str(violation)


@pytest.mark.slow
def test_planted_bugs_are_found() -> None:
    """Each bug planted in the shipped code fails one of two thousand seeds, likely ones first."""
    hunts = hunt_all()
    for found in hunts:
        print(f"{found.name}: seed {found.seed}, try {found.tries}: {found.seen[:100]}")

    assert {bug.name for bug in BUGS} >= NAMED
    assert [found.name for found in hunts if found.seed is None] == []


def test_a_host_runs_its_own_agent() -> None:
    """An agent's script, what people say to it and the settings are a host's to choose."""
    turns: list[str] = []

    def agent(job: TurnJob) -> Script:
        turns.append(job.claims[0].text)
        return Script("fine, thanks", steps=(ScriptStep("let me look", (ScriptCall("look", 1),)),))

    report = Simulator(3, agent=agent, words=("how are you?",)).run()

    assert report.steps > 100
    assert any(text.startswith("how are you?") for text in turns)
