"""Planting a bug in the shipped code: one function gets another body for a while.

The text of the function is changed and the shipped function gets the code of the changed one, so that every reference
to it, tables included, meets the bug. A text that isn't there any more is an error, not a miss.
"""

from __future__ import annotations
import __future__

import inspect
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FunctionType
from typing import Any, Protocol


class Bug(Protocol):
    """``function`` (or a property) with each ``old`` text replaced by its ``new``."""

    @property
    def name(self) -> str:
        """For people."""
        ...

    @property
    def function(self) -> Any:
        """Which."""
        ...

    @property
    def changes(self) -> tuple[tuple[str, str], ...]:
        """Old text, new text."""
        ...


@contextmanager
def planted(bug: Bug) -> Iterator[None]:
    """The shipped function has the bug's code while this lasts."""
    function = _function(bug.function)
    original = function.__code__
    function.__code__ = _changed(function, bug).__code__
    try:
        yield
    finally:
        function.__code__ = original


def _function(named: Any) -> FunctionType:
    function = named.fget if isinstance(named, property) else named
    assert isinstance(function, FunctionType)
    return function


def _changed(function: FunctionType, bug: Bug) -> FunctionType:
    source = textwrap.dedent(inspect.getsource(function))
    for old, new in bug.changes:
        if source.count(old) != 1:
            raise LookupError(f"{bug.name}: {old!r} stands {source.count(old)} times in {function.__qualname__}")
        source = source.replace(old, new)
    space: dict[str, Any] = {}
    flags = __future__.annotations.compiler_flag
    exec(compile(source, f"<{bug.name}>", "exec", flags), function.__globals__, space)
    changed: Callable[..., Any] = space[function.__name__]
    return _function(changed)


def early(effect: str) -> tuple[tuple[str, str], ...]:
    """Changes for ``Gate._stage``: such effects leave when their commit is offered, not when it is durable."""
    old = "self._in_flight = out.commit ="
    new = (
        "early = [e for e in batch.after if type(e).__name__ == '" + effect + "']; "
        "batch.after = [e for e in batch.after if e not in early]; "
        "out.effects.extend((Permit('', self.lane, 0), e) for e in early); "
    )
    return ((old, new + old),)
