"""A committed list of features against the tests that ran: one verdict a feature.

A list is a TOML file here: ``title``, ``intro``, ``count`` (how many features it has, so that none goes lost), then a
table per group and in it a line per feature: ``id = {text, tests?, later?, differs?}``. A test is named by its file
below ``tests/`` and its name; of a test with parameters at least one must pass and none may fail.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from attrs import frozen

from tests.proof import Proof, Result, Verdict, by_own_name, prove

_FOLDER: Final = Path(__file__).parent
_HEAD: Final = frozenset({"title", "intro", "count"})


@frozen
class Feature:
    """``text``: what is promised. ``tests``: what shows it; or ``later``: what it waits for. ``differs``: how this
    differs from what asked for it.
    """

    id: str
    group: str
    text: str
    tests: tuple[str, ...]
    differs: str | None = None
    later: str | None = None


@frozen
class FeatureList:
    """One list. ``intro`` stands above its table."""

    title: str
    intro: str
    features: tuple[Feature, ...]


def list_names() -> list[str]:
    """The committed lists."""
    return sorted(file.stem for file in _FOLDER.glob("*.toml"))


def features(name: str, text: str | None = None) -> FeatureList:
    """A list. Raises ValueError for a wrong count, an id that comes twice, a feature with neither tests nor later."""
    stored: dict[str, Any] = tomllib.loads((_FOLDER / f"{name}.toml").read_text() if text is None else text)
    found = [
        Feature(key, group, row["text"], tuple(row.get("tests", ())), row.get("differs"), row.get("later"))
        for group, rows in stored.items()
        if group not in _HEAD
        for key, row in rows.items()
    ]
    if len(found) != stored["count"]:
        raise ValueError(f"{name} has {len(found)} features, not {stored['count']}")
    if len({feature.id for feature in found}) < len(found):
        raise ValueError(f"{name} has an id twice")
    if bare := [feature.id for feature in found if bool(feature.tests) is (feature.later is not None)]:
        raise ValueError(f"{name} has features without a test, or with one that they wait for: {bare}")
    return FeatureList(stored["title"], stored["intro"].strip(), tuple(found))


def run(listed: Iterable[Feature], *, tests: str = "tests") -> tuple[list[Verdict], str]:
    """Run the tests of these features, and nothing else; the verdicts, and the runner's output."""
    listed = list(listed)
    wanted = {test for feature in listed for test in feature.tests}
    files = sorted({f"{tests}/{test.split('::')[0]}" for test in wanted})
    proofs, output = prove(by_own_name, wanted=wanted, tests=[file for file in files if Path(file).exists()])
    return judge(listed, proofs), output


def judge(listed: Iterable[Feature], proofs: Mapping[str, Proof]) -> list[Verdict]:
    """A verdict for each feature."""
    return [_judge(feature, proofs) for feature in listed]


def _judge(feature: Feature, proofs: Mapping[str, Proof]) -> Verdict:
    if feature.later is not None:
        return Verdict(feature.id, "later", feature.later)
    states = {test: _state(proofs.get(test)) for test in feature.tests}
    for worst in ("fail", "missing", "not run", "skip"):
        if blamed := [test for test, state in states.items() if state == worst]:
            return Verdict(feature.id, worst, " ".join(blamed))
    return Verdict(feature.id, "pass", "")


def _state(proof: Proof | None) -> Result | str:
    """A test's: with parameters, one that passed is enough, unless another failed."""
    if proof is None:
        return "missing"
    results = set(proof.tests.values())
    return "pass" if "pass" in results and "fail" not in results else proof.result
