"""What a scenario is made of: what people say and when, and what the world has in store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from attrs import Factory, frozen

from seriatim.actors.upkeep import Growth
from seriatim.adapters.base import Capabilities
from seriatim.batch import Rules
from seriatim.commits import Commit
from seriatim.testing.fake_platform import Fault as SendFault
from seriatim.testing.fake_platform import FaultKind
from seriatim.testing.faulty_store import Fault as StoreFault

if TYPE_CHECKING:
    from tests.crash.points import Fate

When = Literal["now", "running", "tool", "ended", "sent", "resting", "quiet"]


@frozen
class Say:
    """Somebody writes ``text``, or the host wakes the lane (``wake``); "?" stands for the last question's id.

    ``when``: at once after what came before; or as soon as, after that, a turn runs, a tool has run, a turn's end was
    told, a send arrived, a lane is asked to rest; each at the latest when everything is quiet, so that no crash stops
    the script. ``album``: it is an item of that; ``edit_of``: it changes the message of that id (``in1`` is the first).
    ``topic``: it stands in that thread of the chat, which is a lane of its own.
    """

    text: str
    when: When = "now"
    chat: str = "1"
    wake: bool = False
    album: str | None = None
    edit_of: str | None = None
    topic: str | None = None


@frozen
class Again:
    """The platform gives its message of this number (from 1) once more, acked or not."""

    number: int
    when: When = "now"


@frozen
class Same:
    """The platform tells that chat ``old`` has the id ``new`` now, and tells it again until that was taken in."""

    old: str
    new: str
    when: When = "now"


@frozen
class Switch:
    """The host wants the conversation of chat ``of`` in chat ``to``; asked once."""

    of: str
    to: str
    when: When = "quiet"


@frozen
class Stop:
    """The process is asked to stop. ``waits``: running turns get the time to end; else the drain runs out at once, and
    they stay open for the next start. Then the next life begins.
    """

    reason: Literal["shutdown", "restart"] = "shutdown"
    when: When = "now"
    waits: bool = False


Step = Say | Again | Same | Switch | Stop
Strike = Callable[[Counter[str], Commit], StoreFault | None]


@frozen
class Scenario:
    """One small script.

    ``sends``: what the platform's next sends meet. ``strike``: the store's faults, with a counter that outlives
    crashes. ``storms``: fates, life by life, besides those taken from the trace. ``slow_writer``: the writer goes
    last and short timers come first, so that commits hang in flight. ``seeds``: orders to try. ``growth``: when logs
    get checkpoints and are compacted.
    """

    name: str
    script: tuple[Step, ...]
    capabilities: Capabilities = Capabilities(replay="ack", text_max=4000)  # noqa: RUF009
    rules: Rules = Rules()  # noqa: RUF009
    slots_max: int = 4
    warm_max: int = 64
    sends: tuple[FaultKind | SendFault | None, ...] = ()
    strike: Strike | None = None
    storms: tuple[tuple[Fate, ...], ...] = ()
    slow_writer: bool = False
    seeds: tuple[int, ...] = Factory(lambda: (1,))
    growth: Growth = Growth()  # noqa: RUF009
    age_ms_max: int = 86_400_000
    """How old an unsent reply may become."""
    away_ms: int = 2_000
    """How long the process stays away, by the wall clock; less than nothing where that was set back."""
