"""Runs Pykka's own test suite over PooledActor.

``python -m tests.pykka_suite [--versions lowest,latest]``. "lowest" is the bound in pyproject.toml, "latest" what pip
finds. For each version a fresh environment gets that Pykka and, from its sdist, that version's tests; one fixture file
is patched so that "pooled" stands beside "threading" among the runtimes. Needs a package index, so it is a command of
its own, which CI runs, and not part of the ordinary test run.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
POOLED = """
from seriatim.actors.futures import PooledFuture
from seriatim.actors.pooled import PooledActor

RUNTIMES["pooled"] = pytest.param(
    Runtime(
        name="pooled",
        actor_class=PooledActor,
        event_class=threading.Event,
        future_class=PooledFuture,
        sleep_func=time.sleep,
    ),
    id="pooled",
)


@pytest.fixture(scope="session", params=RUNTIMES.values())
"""
RUNTIME_FIXTURE = '\n@pytest.fixture(scope="session", params=RUNTIMES.values())\n'


def requirements() -> dict[str, str]:
    """What the library depends on, by name: each as pyproject.toml has it."""
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    return {line.partition(">")[0].partition("=")[0].strip(): line for line in listed}


def lowest() -> str:
    """The lowest Pykka that the library accepts."""
    bound = requirements()["pykka"].removeprefix("pykka>=")
    return bound + ".0" * (2 - bound.count("."))


def run(version: str, where: Path) -> int:
    """Fetch that version and run its tests; pytest's exit code."""
    venv.create(where / "venv", with_pip=True)
    python = str(where / "venv" / "bin" / "python")
    pin = "pykka" if version == "latest" else f"pykka=={version}"
    pip = [python, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    ours = [line for name, line in requirements().items() if name != "pykka"]
    builders = ["hatchling", "poetry-core"]  # its sdists are built by the one, since 4.2 by the other
    subprocess.run([*pip, "install", pin, *ours, "pytest", "pytest-mock", "pytest-timeout", *builders], check=True)
    fetch = [*pip, "download", "--no-deps", "--no-binary", ":all:", "--no-build-isolation", "--dest", str(where), pin]
    subprocess.run(fetch, check=True)
    (sdist,) = where.glob("pykka-*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(where, filter="data")
    suite = where / sdist.name.removesuffix(".tar.gz")
    conftest = suite / "tests" / "conftest.py"
    text = conftest.read_text()
    if text.count(RUNTIME_FIXTURE) != 1:
        print(f"pykka {version}: tests/conftest.py has another shape; adapt {__file__}", file=sys.stderr)
        return 1
    conftest.write_text(text.replace(RUNTIME_FIXTURE, POOLED))
    print(f"== {suite.name}", flush=True)
    command = [python, "-m", "pytest", "-q", "--timeout", "60", "-p", "no:cacheprovider", "tests"]
    # The sdist's own src stays off the path: what is tested is what pip installed.
    environment = {**os.environ, "PYTHONPATH": f"{suite}{os.pathsep}{ROOT}", "PYTHONDONTWRITEBYTECODE": "1"}
    code = subprocess.run(command, cwd=suite, env=environment, check=False).returncode
    if code:
        print(f"pykka {version}: compare actors/pooled.py with the release's notes, or bound pykka in pyproject.toml")
    return code


def main() -> int:
    """Command line; 0 if every version passed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--versions", default="lowest,latest", help="comma separated")
    names = [name.strip() for name in parser.parse_args().versions.split(",")]
    worst = 0
    for version in dict.fromkeys(lowest() if name == "lowest" else name for name in names):
        with tempfile.TemporaryDirectory() as where:
            worst = max(worst, run(version, Path(where)))
    return worst


if __name__ == "__main__":
    sys.exit(main())
