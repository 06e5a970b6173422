"""What a host hands in, looked at before anything is made of it: an argument that can't work is told by its name."""

from __future__ import annotations

from typing import Any, Final

from seriatim.config import GatewayConfig
from seriatim.errors import InvalidInputError

IDS: Final = ("fresh", "session")
"""What a source of ids can do."""


def check_config(config: Any) -> None:
    """A configuration, or None. Raises InvalidInputError, as all here."""
    if config is not None and not isinstance(config, GatewayConfig):
        raise InvalidInputError("config", f"a GatewayConfig is needed, not {_kind_of(config)}")


def check_functions(**functions: object) -> None:
    """What is called is a function, or None."""
    for name, given in functions.items():
        if given is not None and not callable(given):
            raise InvalidInputError(name, f"a function is needed, not {type(given).__name__}")


def check_port(name: str, given: Any, methods: tuple[str, ...], wanted: str) -> None:
    """What stands in for a part of the library's own has what is asked of that; or None."""
    lacks = [method for method in methods if not callable(getattr(given, method, None))]
    if given is not None and (lacks or isinstance(given, type)):
        what = f"{type(given).__name__} has no {lacks[0]}" if lacks else f"{given.__name__} is its class"
        raise InvalidInputError(name, f"{wanted} is needed: {what}")


def _kind_of(given: Any) -> str:
    return f"the class {given.__name__}" if isinstance(given, type) else type(given).__name__
