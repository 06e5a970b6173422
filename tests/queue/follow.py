"""A lane's log against the reference model: what happened is told to the model, what follows compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final

from seriatim.events import Data, Event
from tests.queue.model import Fact, Model, Said

STEERED = frozenset({"cancelled", "cleared", "expired", "deleted"})


class Follower:
    """Reads one lane's log in order; ``differences``: where lane and model part, which ends the comparison."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.differences: list[str] = []
        self.compared = 0
        self._before: list[Fact] = []
        self._due: Counter[Fact] = Counter()
        self._at = ""
        self._binding: str | None = None

    def read(self, events: Iterable[Event]) -> None:
        """Follow the events up to the first difference."""
        for event in events:
            self._at = f"{event.type} at {event.seq}"
            self._take(event)
            if self.differences:
                return
        self._settled()

    # --- comparing -----------------------------------------------------------------------------------------

    def _differ(self, text: str) -> None:
        self.differences.append(f"{self._at}: {text}")

    def _settled(self) -> None:
        """A new thing happens: what was due must have come."""
        if self._due:
            self._differ(f"the model expects {sorted(self._due)}")
        if self._before:
            self._differ(f"the model doesn't expect {self._before}")

    def _expect(self, before: Iterable[Fact], due: Iterable[Fact]) -> None:
        self.compared += 1
        wanted, came = Counter(before), Counter(self._before)
        if wanted != came:
            self._differ(f"before it came {sorted(came)}, the model expects {sorted(wanted)}")
        if self._due:
            self._differ(f"the model expects {sorted(self._due)} first")
        self._before = []
        self._due = Counter(due)
        if self._binding is not None:
            self.model.bound(self._binding)
            self._binding = None

    def _came(self, *facts: Fact) -> None:
        """Something followed; or, with nothing due, it belongs to what comes next."""
        for fact in facts:
            if self._due[fact] > 0:
                self._due[fact] -= 1
            elif self._due.total():
                self._differ(f"came {fact}, the model expects {sorted(+self._due)}")
            else:
                self._before.append(fact)
        self._due = +self._due

    # --- events --------------------------------------------------------------------------------------------

    def _take(self, event: Event) -> None:
        method = _METHODS.get(event.type)
        if method is not None:
            method(self, event.data, event.time)

    def _accepted(self, data: Data, time: int) -> None:
        del time
        if data["kind"] == "command":
            self._command(data["id"], data["command"])
            return
        if data["kind"] == "edit":
            self._expect((), ())
            return
        source = data["source"]
        rank = f"{source.get('role_authorized')} {source.get('is_bot')}"
        place, before, due = self.model.say(
            Said(data["id"], data["kind"], rank, data.get("wakeSession"), data.get("album"))
        )
        if place != data["place"]:
            self._differ(f"placed {data['place']}, the model says {place}")
        self._expect(before, due)

    def _command(self, inbox_id: str, name: str) -> None:
        due: list[Fact] = []
        if name == "stop":
            due = self.model.stop()
        elif name in ("new", "reset"):
            due = self.model.new()
        self._expect((), [*due, ("command", inbox_id)])

    def _claimed(self, data: Data, time: int) -> None:
        turn, before = self.model.start(time)
        if turn is None or (turn.kind, turn.ids) != (data["kind"], tuple(data["ids"])):
            self._differ(f"claims {data['kind']} {data['ids']}, the model {turn}")
        self._expect(before, ())
        if data["session"] != self.model.session:
            self._differ(f"runs in {data['session']}, the model says {self.model.session}")

    def _answered(self, data: Data, time: int) -> None:
        del time
        if data["by"] == "edit":
            return
        fact = ("command" if data["by"] == "command" else "answered", data["id"])
        if data["by"] == "command" or self._due[fact]:
            self._came(fact)
            if fact[0] == "command" and self._due:
                self._differ(f"the command is answered, and the model expects {sorted(self._due)} before that")
            return
        due = self.model.ended(data["id"])
        if due is None:
            self._differ("the model has no such turn running")
        self._expect((), due or ())

    def _merged(self, data: Data, time: int) -> None:
        del time
        self._came(*(("merged", inbox_id) for inbox_id in data["ids"]))

    def _interrupted(self, data: Data, time: int) -> None:
        del data, time
        self._expect((), self.model.interrupted())

    def _dropped(self, data: Data, time: int) -> None:
        del time
        ids, reason = tuple(data["ids"]), data["reason"]
        facts = [("dropped", reason, inbox_id) for inbox_id in ids]
        if all(self._due[fact] for fact in facts) or reason == "superseded":
            self._came(*facts)
        elif reason == "session_left":
            if not self.model.left(ids):
                self._differ("the model would let that wake run")
        elif reason in STEERED:
            if not self.model.take_out(ids):
                self._differ("the model has no such messages waiting")
            self._expect((), ())
        else:
            self._came(*facts)

    def _moved(self, data: Data, time: int) -> None:
        del time
        fact = ("moved", data["id"], str(data["to"]))
        if self._due[fact]:
            self._came(fact)
        elif not self.model.move(data["id"], data["to"]):
            self._differ("the model can't move it there")
        else:
            self._expect((), ())

    def _bound(self, data: Data, time: int) -> None:
        del time
        reason = data["reason"]
        due = self._due.total() > 0
        self._came(("bound", reason if reason in ("first", "suspended") else "command"))
        if due:
            self.model.bound(data["session"])
        else:
            self._binding = data["session"]  # what it belongs to comes next, and finds the lane as it was

    def _suspended(self, data: Data, time: int) -> None:
        del time
        if data["reason"] == "quarantined":
            self.model.give_up()
        else:
            self._came(("suspended", data["reason"]))


_METHODS: Final[dict[str, Callable[[Follower, Data, int], None]]] = {
    "inbox/accepted": Follower._accepted,
    "inbox/claimed": Follower._claimed,
    "inbox/answered": Follower._answered,
    "inbox/merged": Follower._merged,
    "inbox/interrupted": Follower._interrupted,
    "inbox/dropped": Follower._dropped,
    "queue/moved": Follower._moved,
    "route/bound": Follower._bound,
    "route/suspended": Follower._suspended,
}
