"""The parts that a gateway is made of, looked at before anything is made of them.

What can't work is told by name at the constructor, not by an actor later on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from seriatim.actors.calling import entry_of
from seriatim.arguments import IDS, check_config, check_functions, check_port
from seriatim.errors import InvalidInputError
from seriatim.storage.files import check_path

_ADAPTER: Final = ("platform", "account", "capabilities")
_ADAPTER_METHODS: Final = ("run", "send", "text_max")
_CLOCK: Final = ("now_ms", "monotonic_ms", "call_later")
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
    if home is not None:
        check_path("home", home)
    check_config(config)
    if not isinstance(adapters, Sequence):
        raise InvalidInputError("adapters", f"a sequence of adapters is needed, not {type(adapters).__name__}")
    for adapter in adapters:
        methods = all(callable(getattr(adapter, name, None)) for name in _ADAPTER_METHODS)
        if not methods or not all(hasattr(adapter, name) for name in _ADAPTER):
            raise InvalidInputError("adapters", f"{type(adapter).__name__} is no adapter")


def check_ports(store: Any, clock: Any, ids: Any) -> None:
    """What is handed in instead of the gateway's own has what the gateway asks of it."""
    if not callable(store):
        check_port("store", store, _STORE, "a store, or a function that opens one,")
    check_port("clock", clock, _CLOCK, "a clock")
    check_port("ids", ids, IDS, "a source of ids")
