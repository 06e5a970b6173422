"""Which tests prove what, by the runner's own report: pytest collects, the docstrings name, only these tests run.

A claim of a list elsewhere (a known fault, a promised feature) has an id; a test proves it by carrying the id in its
docstring. ``prove`` runs those tests in this process and tells what became of each, so a test that was skipped,
deselected or renamed proves nothing.
"""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Literal

import pytest
from attrs import Factory, define, frozen

Result = Literal["pass", "fail", "skip", "not run"]
RUN_AS_ONE: Final = ("--no-header", "-q", "-p", "no:cacheprovider", "--tb=short")


@frozen
class Proof:
    """``id``, and what became of each test that names it: the test's node id and its result."""

    id: str
    tests: Mapping[str, Result]

    @property
    def result(self) -> Result:
        """``pass`` if every test that names the id passed, and there is one."""
        results = set(self.tests.values())
        for worst in ("fail", "skip", "not run"):
            if worst in results:
                return worst
        return "pass" if results else "not run"


@frozen
class Verdict:
    """What a row of a list came to. ``state``: pass, fail, skip, not run, missing (no such test), unknown (no such id)
    or later. ``told``: the tests that show it or are to blame, or what it waits for.
    """

    id: str
    state: str
    told: str

    @property
    def is_good(self) -> bool:
        """Whether the row is proved, or honestly put off."""
        return self.state in ("pass", "later")

    def __str__(self) -> str:
        return (
            f"{self.id} later: {self.told}" if self.state == "later" else f"{self.id} {self.state} {self.told}".rstrip()
        )


@define(eq=False)  # pytest keeps plugins in sets
class _Plugin:
    """Keeps the tests that name an id and remembers how they ended."""

    names: Callable[[pytest.Item], set[str]]
    wanted: frozenset[str] | None
    named: dict[str, dict[str, Result]] = Factory(dict)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        kept: list[pytest.Item] = []
        for item in items:
            ids = self.names(item)
            for name in ids:
                self.named.setdefault(name, {})[item.nodeid] = "not run"
            if ids if self.wanted is None else ids & self.wanted:
                kept.append(item)
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = kept

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        for tests in self.named.values():
            if report.nodeid not in tests:
                continue
            if report.failed:
                tests[report.nodeid] = "fail"
            elif report.skipped:
                tests[report.nodeid] = "skip"
            elif report.when == "call" and tests[report.nodeid] == "not run":
                tests[report.nodeid] = "pass"


def prove(
    named: str | Callable[[pytest.Item], set[str]],
    *,
    wanted: Iterable[str] | None = None,
    run: bool = True,
    tests: Iterable[str] = ("tests",),
) -> tuple[dict[str, Proof], str]:
    """Collect the tests, run those that name a ``wanted`` id (None: any), and give the proofs by id with the runner's
    own output. ``named``: a pattern whose matches in a test's docstring are its ids, or what gives a test's ids. With
    ``run=False`` nothing runs.

    Raises RuntimeError when tests can't be collected: then nothing that was found means anything.
    """
    names = _by_docstring(re.compile(named)) if isinstance(named, str) else named
    plugin = _Plugin(names, None if wanted is None else frozenset(wanted))
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        code = pytest.main([*RUN_AS_ONE, *([] if run else ["--collect-only"]), *tests], plugins=[plugin])
    if code in (pytest.ExitCode.INTERRUPTED, pytest.ExitCode.INTERNAL_ERROR, pytest.ExitCode.USAGE_ERROR):
        raise RuntimeError(f"the tests can't be collected:\n{output.getvalue()}")
    return {name: Proof(name, found) for name, found in plugin.named.items()}, output.getvalue()


def by_own_name(item: pytest.Item) -> set[str]:
    """A test's name as people write it: its file below ``tests/``, then ``::`` and the rest, without parameters."""
    return {item.nodeid.split("[")[0].removeprefix("tests/")}


def _by_docstring(pattern: re.Pattern[str]) -> Callable[[pytest.Item], set[str]]:
    return lambda item: set(pattern.findall(getattr(getattr(item, "function", None), "__doc__", None) or ""))
