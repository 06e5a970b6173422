"""The parts that a gateway is made of, looked at before anything is made of them.

What can't work is told by name at the constructor, not by an actor later on.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Final

from seriatim.actors.calling import entry_of
from seriatim.config import GatewayConfig
from seriatim.errors import InvalidInputError

_ADAPTER: Final = ("platform", "account", "run", "send")
_CLOCK: Final = ("now_ms", "monotonic_ms", "call_later")
_IDS: Final = ("fresh", "session")
_STORE: Final = ("commit", "fence", "keep", "reader", "health", "close")


def check_agent(answer: Any, agent_factory: Any) -> None:
    """Exactly one of the two, and it can be called as an agent. Raises InvalidInputError, as all here."""
    if (answer is None) == (agent_factory is None):
        raise InvalidInputError("answer", "exactly one of answer and agent_factory is needed")
    if agent_factory is None:
        entry_of(answer)
    else:
        check_functions(agent_factory=agent_factory)


def check_types(home: Any, config: Any, adapters: Any) -> None:
    """A path, a configuration, adapters."""
    if home is not None and (not isinstance(home, (str, os.PathLike)) or not str(home)):
        raise InvalidInputError("home", "the path of a folder is needed")
    if config is not None and not isinstance(config, GatewayConfig):
        raise InvalidInputError("config", f"a GatewayConfig is needed, not {type(config).__name__}")
    if not isinstance(adapters, Sequence):
        raise InvalidInputError("adapters", f"a sequence of adapters is needed, not {type(adapters).__name__}")
    for adapter in adapters:
        if not all(hasattr(adapter, name) for name in _ADAPTER):
            raise InvalidInputError("adapters", f"{type(adapter).__name__} is no adapter")


def check_ports(store: Any, clock: Any, ids: Any) -> None:
    """What is handed in instead of the gateway's own has what the gateway asks of it."""
    if not callable(store):
        _check_port("store", store, _STORE, "a store, or a function that opens one,")
    _check_port("clock", clock, _CLOCK, "a clock")
    _check_port("ids", ids, _IDS, "a source of ids")


def check_functions(**functions: object) -> None:
    """What is called is a function."""
    for name, given in functions.items():
        if given is not None and not callable(given):
            raise InvalidInputError(name, f"a function is needed, not {type(given).__name__}")


def _check_port(name: str, given: Any, methods: tuple[str, ...], wanted: str) -> None:
    lacks = [method for method in methods if not callable(getattr(given, method, None))]
    if given is not None and (lacks or isinstance(given, type)):
        what = f"{type(given).__name__} has no {lacks[0]}" if lacks else f"{given.__name__} is its class"
        raise InvalidInputError(name, f"{wanted} is needed: {what}")
