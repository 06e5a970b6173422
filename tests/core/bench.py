"""A gate on a bench: one lane over a store in memory, driven by hand, with everything that left it kept."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from seriatim.actors.lookup import looked_up
from seriatim.actors.surfaces import read_shown
from seriatim.batch import Now, Rules
from seriatim.commands import parse_command
from seriatim.commits import Commit, Outcome, Refused, Unknown
from seriatim.effects import Effect, Permit, ReadShown
from seriatim.errors import StoreUnhealthyError
from seriatim.events import Event, lane_log, session_log
from seriatim.gate import Gate, Out
from seriatim.lane import LaneState, fold
from seriatim.mail import Inbound, Mail, Recover
from seriatim.model import MessageEvent, SessionSource
from seriatim.outbox import Channel
from seriatim.shown import Loaded
from seriatim.storage.memory import MemoryDisk, MemoryStore
from seriatim.turn import EndReason, TurnEnded
from seriatim.vocabulary import EVENT_TYPES

E = TypeVar("E")
FULL = StoreUnhealthyError("the disk is full")


def check_told(events: Iterable[Event]) -> None:
    """Hold every event that the rules draft to what the vocabulary (and so docs/events.md) tells of it."""
    for event in events:
        fields = EVENT_TYPES[event.type].fields
        assert event.data.keys() <= {name.removesuffix("?") for name in fields}, event
        assert {name for name in fields if not name.endswith("?")} <= event.data.keys(), event


class Bench:
    """``now`` and ``channel`` may be changed between steps. ``free``: turn slots."""

    def __init__(self, rules: Rules | None = None, *, free: int = 8, channel: Channel | None = None) -> None:
        self.disk = MemoryDisk()
        self.store = MemoryStore(self.disk)
        self.rules = Rules() if rules is None else rules
        self.key = "lane-x"
        self.free = self._slots = free
        self.channel = Channel(up=True) if channel is None else channel
        self.now = Now(1_000, lambda: self.fresh("d"), lambda: self.fresh("s"), self._take, lambda to: self.channel)
        self._ids = 0
        self.incarnation = 0
        self.offered: Commit | None = None
        self.effects: list[Effect] = []
        self.permits: list[Permit] = []
        self.internal: list[Effect] = []
        self.slots_back = 0
        self.out = Out()
        self.reads = True
        """Whether what the gate wants to read is read at once."""
        self.start()

    def fresh(self, kind: str) -> str:
        """A new id."""
        self._ids += 1
        return f"{kind}{self._ids}"

    def _take(self) -> bool:
        if self.free > 0:
            self.free -= 1
            return True
        return False

    # --- an incarnation's life -------------------------------------------------------------------------

    def start(self, live_generation: int = 0) -> None:
        """Fence, fold, recover: a new incarnation. What the one before had in flight is not settled."""
        self.free = self._slots - bool(live_generation)
        self.incarnation += 1
        self.store.fence(lane_log(self.key), self.incarnation)
        self.gate = Gate(self.incarnation, self.fold(), self.rules, lambda: self.fresh("k"))
        self.offered = None
        self.tell(Recover(live_generation))

    def fold(self) -> LaneState:
        """The lane as its logs tell it."""
        reader = self.store.reader()
        return fold(self.key, reader.read(lane_log(self.key)), lambda s: reader.read(session_log(s)))

    def reopen(self) -> None:
        """The process dies and starts again."""
        self.store = MemoryStore(self.disk)
        self.incarnation = 0
        self.start()

    # --- steps -----------------------------------------------------------------------------------------

    def offer(self, mail: Mail) -> Out:
        """Give one message to the gate."""
        return self._took(self.gate.offer(mail, self.now))

    def settle(self, outcome: Outcome | None = None) -> Out:
        """Write the commit in flight, or give the gate another outcome of it."""
        assert self.offered is not None, "nothing is in flight"
        commit, self.offered = self.offered, None
        if outcome is None:
            [outcome] = self.store.commit([commit])
        return self._took(self.gate.settled(outcome, self.now))

    def refuse(self, error: Any = FULL, keys: tuple[str, ...] = ()) -> Out:
        """The commit in flight is surely absent."""
        assert self.offered is not None
        return self.settle(Refused(self.offered.id, error, keys))

    def doubt(self, *, written: bool) -> Out:
        """Nobody knows what became of the commit in flight."""
        assert self.offered is not None
        if written:
            self.store.commit([self.offered])
        return self.settle(Unknown(self.offered.id, "EIO"))

    def tick(self, later_ms: int = 0) -> Out:
        """Time passes."""
        self.now.time += later_ms
        return self._took(self.gate.tick(self.now))

    def drain(self) -> None:
        """Write until nothing is in flight."""
        while self.offered is not None:
            self.settle()

    def tell(self, mail: Mail) -> Out:
        """Offer and write."""
        out = self.offer(mail)
        self.drain()
        return out

    def _took(self, out: Out) -> Out:
        self.out = out
        for permit, effect in out.effects:
            self.permits.append(permit)
            self.effects.append(effect)
        self.internal.extend(out.internal)
        self.slots_back += out.slots_back
        self.free += out.slots_back
        for effect in out.internal:
            if type(effect) is ReadShown and self.reads:
                self.read(effect)
        if out.commit is not None:
            check_told(event for part in out.commit.parts for event in part.events)
            self.offered = out.commit
        return out

    def read(self, effect: ReadShown) -> Out:
        """Give the gate the session that it asked for."""
        reader = self.store.reader()
        shown = read_shown(reader, effect.session, whole=effect.whole) if effect.session else None
        found = None if effect.besides is None else looked_up(reader, effect.besides)
        loaded = Loaded(effect.session, effect.whole, shown, None, effect.besides, found)
        return self._took(self.gate.read(loaded, self.now))

    # --- words -----------------------------------------------------------------------------------------

    def message(self, text: str, *, key: str | None = None, user: str = "u", **source: Any) -> Inbound:
        """A message at the door."""
        origin = SessionSource("sim", "chat", user_id=user, **source)
        inbox_id = self.fresh("i")
        command = parse_command(text, "/") or ("", "")
        return Inbound(
            inbox_id, "key " + inbox_id if key is None else key, MessageEvent(text, origin), len(text), *command
        )

    def say(self, text: str, **more: Any) -> str:
        """Offer a message; its inbox id."""
        message = self.message(text, **more)
        self.offer(message)
        return message.id

    def said(self, text: str, **more: Any) -> str:
        """Offer a message and write; its inbox id."""
        inbox_id = self.say(text, **more)
        self.drain()
        return inbox_id

    def wake(self, text: str = "wake", *, session: str | None = None) -> str:
        """The host has something to say; ``session``: what it is pinned to."""
        inbox_id = self.fresh("w")
        event = MessageEvent(text, SessionSource("sim", "chat"), internal=True, wake_session_id=session)
        self.tell(Inbound(inbox_id, "", event, len(text)))
        return inbox_id

    def end(self, text: str | None = "reply", reason: EndReason = "completed", *, generation: int = 0) -> TurnEnded:
        """The running turn's last word (or that of ``generation``)."""
        running = self.gate.durable.running
        if not generation:
            assert running is not None
            generation = running.generation
        return TurnEnded(1 if running is None else running.turn, generation, reason, text)

    def answer(self, text: str | None = "reply") -> None:
        """The running turn ends, durably."""
        self.tell(self.end(text))

    def all(self, kind: type[E]) -> list[E]:
        """Every effect of ``kind`` that has left."""
        return [effect for effect in (*self.effects, *self.internal) if type(effect) is kind]

    def forget(self) -> None:
        """Look only at what comes from now on."""
        self.effects.clear()
        self.permits.clear()
        self.internal.clear()
        self.slots_back = 0

    def lane_events(self, *types: str) -> list[Event]:
        """The lane log's events of these types (all without any)."""
        events = self.store.reader().read(lane_log(self.key))
        return [event for event in events if not types or event.type in types]

    def session_events(self, session: str | None = None) -> list[Event]:
        """A session's log; the bound one's by default."""
        bound = self.gate.durable.bound if session is None else session
        return [] if bound is None else self.store.reader().read(session_log(bound))

    def outcome(self, inbox_id: str) -> str:
        """A message's terminal outcomes in the log, joined; "" while it waits."""
        return self.outcomes().get(inbox_id, "")

    def outcomes(self) -> dict[str, str]:
        """The same of every message that has one: the log is read once."""
        found: dict[str, list[str]] = {}
        for event in self.lane_events("inbox/answered", "inbox/merged", "inbox/dropped"):
            reason = event.data.get("reason")
            for inbox_id in {event.data.get("id"), *event.data.get("ids", ())} - {None}:
                found.setdefault(inbox_id, []).append(event.type[6:] + (f" ({reason})" if reason else ""))
        return {inbox_id: " and ".join(outcomes) for inbox_id, outcomes in found.items()}
