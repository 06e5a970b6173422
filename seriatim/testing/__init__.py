"""What tests and simulations use in place of the world. Stands above all layers: nothing in the library imports it.

For those who build on Seriatim: ``store_contract``, ``log_contract`` and ``adapter_contract`` prove a store, a backend
of the event-log service, an adapter of their own; ``clock``, ``fake_platform``, ``scripted``, ``faulty_store`` and
``wrapped_store`` stand in for the world, ``log_gates`` arranges a race over a backend, ``snapshot`` a kill over a file;
``simulator`` runs the shipped actors in a world that a seed decides. The others are the simulator's parts.
"""

from seriatim.testing.clock import VirtualClock
from seriatim.testing.fake_platform import FakePlatform
from seriatim.testing.simulator import Simulator

__all__ = [
    "FakePlatform",
    "Simulator",
    "VirtualClock",
]
