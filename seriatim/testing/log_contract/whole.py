"""All claims in one class."""

from __future__ import annotations

from .appending import Appending
from .owning import Owning
from .preparing import Preparing
from .reading import Reading
from .recovering import Recovering
from .refusing import Refusing
from .round_trips import RoundTrips


class LogContract(RoundTrips, Appending, Recovering, Reading, Preparing, Owning, Refusing):
    """All claims. Give the subclass a fixture ``world``."""
