"""The committed list of known faults against the tests that ran: one verdict an id."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from attrs import frozen

from tests.proof import Proof, Verdict

ID: Final = r"\bB\d{2,3}\b"
_ROWS: Final = Path(__file__).with_name("rows.toml")


@frozen
class Row:
    """``later``: what it still needs, of its own or (``shared``) because its whole section waits."""

    id: str
    section: int
    later: str | None
    shared: bool


def rows(text: str | None = None) -> list[Row]:
    """The committed list, in order. Raises ValueError where an id comes twice or a row isn't listed."""
    found: list[Row] = []
    sections: dict[str, dict[str, Any]] = tomllib.loads(_ROWS.read_text() if text is None else text)
    for number, section in sections.items():
        own: dict[str, str] = section.get("rows", {})
        if strange := own.keys() - set(section["ids"]):
            raise ValueError(f"section {number} puts off rows that it doesn't list: {sorted(strange)}")
        shared = section.get("later")
        found += [Row(i, int(number), own.get(i, shared), i not in own) for i in section["ids"]]
    ids = [row.id for row in found]
    if len(set(ids)) < len(ids):
        raise ValueError("an id is listed twice")
    return found


def judge(listed: Iterable[Row], proofs: Mapping[str, Proof], known: Iterable[str]) -> list[Verdict]:
    """A verdict for each listed row, then one for each id that tests name and ``known`` doesn't hold."""
    verdicts = [_judge(row, proofs.get(row.id)) for row in listed]
    return verdicts + [
        Verdict(proof.id, "unknown", " ".join(proof.tests))
        for proof in sorted(proofs.values(), key=lambda p: p.id)
        if proof.id not in set(known)
    ]


def _judge(row: Row, proof: Proof | None) -> Verdict:
    if proof is not None:
        bad = [test for test, result in proof.tests.items() if result != "pass"]
        if bad and proof.result != "not run":
            return Verdict(row.id, proof.result, " ".join(bad))
        if row.later is None or row.shared:
            return Verdict(row.id, "pass" if not bad else "not run", _named(list(proof.tests)))
    if row.later is not None:
        return Verdict(row.id, "later", row.later)
    return Verdict(row.id, "missing", "no test names it")


def _named(tests: list[str]) -> str:
    """The tests without their parameters, each once."""
    return " ".join(dict.fromkeys(test.split("[")[0] for test in tests))
