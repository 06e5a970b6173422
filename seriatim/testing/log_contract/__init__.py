"""The contract of the event-log service, as tests that run over any backend.

Derive from `LogContract` in a test module, name the class ``Test…`` and give it a fixture ``world``: a `LogWorld`,
one medium with what it can do. A claim that needs more than a medium can do is skipped, with the capability's name.
The claims of one guarantee stand together in a class of their own, so that a part can be run alone.
The numbers in docstrings are those of the event-log seed's public contract.
"""

from __future__ import annotations

from .appending import Appending
from .owning import LiveOwner, Owning
from .preparing import Preparing
from .reading import Reading
from .recovering import Recovering
from .refusing import Refusing
from .round_trips import RoundTrips
from .whole import LogContract
from .world import ID, Capability, LogWorld, ended, event, header, kinds, needs, next_life, opened, stored, told, turn

__all__ = [
    "ID",
    "Appending",
    "Capability",
    "LiveOwner",
    "LogContract",
    "LogWorld",
    "Owning",
    "Preparing",
    "Reading",
    "Recovering",
    "Refusing",
    "RoundTrips",
    "ended",
    "event",
    "header",
    "kinds",
    "needs",
    "next_life",
    "opened",
    "stored",
    "told",
    "turn",
]
