"""A lane's log, read with plain eyes: rules of this file's own, beside the product's fold, so that a fault there shows.

What a judge needs of it is told field by field; what breaks a rule inside one log is noted while it is read.
"""

from __future__ import annotations

from collections import Counter

from attrs import define, field

from seriatim.compressing import COMPRESSING_TEXT
from seriatim.events import Data, Event, LogId
from seriatim.limits import INTERRUPTIONS_MAX
from seriatim.queue_commands import QUEUED_TEXT
from seriatim.queueing import authority

__all__ = ["ToldLane", "ToldMessage"]


@define
class ToldMessage:
    """An accepted message: what it was, where it stood, and what became of it."""

    id: str
    kind: str
    command: str
    text: str
    platform_id: str
    by_receipt: bool
    authority: str
    seq: int
    ends: list[str] = field(factory=list)
    claims: list[str] = field(factory=list)
    """The session of each claim."""
    moved: bool = False
    """Came with another lane, so its place in this log isn't its place in line."""
    album: str = ""
    """It stands with the other items of that, wherever they stand."""
    again: str = ""
    """What a /retry asks once more."""


class ToldLane:
    """A lane log, read with plain eyes."""

    def __init__(self, log: LogId, events: list[Event]) -> None:
        self.log = log
        self.events = events
        self.messages: dict[str, ToldMessage] = {}
        self.owed: dict[str, Event] = {}
        self.settled: set[tuple[str, int]] = set()
        self.abandoned: dict[tuple[str, int], str] = {}
        self.interruptions: Counter[str] = Counter()
        self.in_a_row = 0
        self.to_give_up: set[str] = set()
        self.turns = 0
        self.undecided = 0
        self.aborted = False
        self.asked: set[tuple[str, str]] = set()
        self.works: set[str] = set()
        self.told_of = 0
        self.steered = False
        self.session = ""
        self.stopped_at: int | None = None
        self.passed_on: list[str] = []
        """Texts that another lane owes now."""
        self.redirected: set[str] = set()
        """Debts that came with another lane, perhaps when they had arrived at their former address."""
        self.joins: list[int] = []
        """The first place after each word that another lane went into this one: its debts are older than that."""
        self.wrong: list[str] = []

    def read(self) -> None:
        """Follow the events; what breaks a rule is noted."""
        for event in self.events:
            method = getattr(self, "_" + event.type.replace("/", "_").replace("-", "_"), None)
            if method is not None:
                method(event)
        if self.aborted:
            self.wrong.append("a turn was aborted and nobody asked for it")
        if self.works:
            self.wrong.append(f"background work never ended: {self.works}")
        wakes = sum(message.text.startswith("[delegation ") for message in self.messages.values())
        if wakes != self.told_of:
            self.wrong.append(f"{self.told_of} pieces of background work have ended, {wakes} wakes tell of it")
        if self.undecided:
            self.wrong.append(f"{self.undecided} answers without owed or none")

    def _inbox_accepted(self, event: Event) -> None:
        self._take(event.data, event.seq)

    def _take(self, data: Data, seq: int) -> ToldMessage:
        message = self.messages[data["id"]] = ToldMessage(
            data["id"],
            data["kind"],
            data.get("command", ""),
            data["text"],
            data.get("messageId", ""),
            data.get("door") == "receipt",
            authority(data),
            seq,
            album=data.get("album", ""),
            again=" ".join(asked["text"] for asked in data.get("asks", ())),
        )
        return message

    def _lane_merged(self, event: Event) -> None:
        data = event.data
        if "into" in data:
            for inbox_id in data["ids"]:
                del self.messages[inbox_id]
            for delivery, owed in list(self.owed.items()):
                if any((delivery, part) not in self.ended for part in range(len(owed.data["parts"]))):
                    del self.owed[delivery]
                    self.passed_on += owed.data["parts"]
            self.session = ""
            return
        for told, _, _ in data["waiting"]:
            self._take(told, event.seq).moved = True
        for delivery, texts, to, parts, *_ in data["owed"]:
            self.owed[delivery] = Event(
                "delivery/owed", event.seq, event.time, {"id": delivery, "parts": texts, "to": to}
            )
            self.settled.update((delivery, part) for part, told in enumerate(parts) if told[4])
            self.redirected.add(delivery)
        self.in_a_row = max(self.in_a_row, data["interruptions"])
        if "session" in data:
            self.session = data["session"]
            self.stopped_at = -1 if data.get("suspended") else None
        self.joins.append(event.seq + 1)

    def _route_released(self, event: Event) -> None:
        self.session = ""
        self.stopped_at = None

    @property
    def ended(self) -> set[tuple[str, int]]:
        """The parts of which the log tells the end."""
        return self.settled | self.abandoned.keys()

    def _route_bound(self, event: Event) -> None:
        self.session = event.data["session"]
        self.stopped_at = None

    def _route_suspended(self, event: Event) -> None:
        if event.data["reason"] == "quarantined":
            self.undecided += 1  # the notice of it
            self.in_a_row = 0
            self.stopped_at = -1
        elif self.stopped_at is None:
            self.stopped_at = -1 if event.data["reason"] == "interrupted" else event.seq

    def _queue_moved(self, event: Event) -> None:
        """Its order is no longer that of arrival, unless the first wake comes before what isn't one."""
        moved = self.messages[event.data["id"]]
        earlier = [m for m in self.messages.values() if m.kind == "wake" and m.seq < moved.seq]
        if moved.kind != "wake" or event.data["to"] or any(not m.ends and not m.claims for m in earlier):
            self.steered = True

    def _inbox_claimed(self, event: Event) -> None:
        claimed = [self.messages[inbox_id] for inbox_id in event.data["ids"]]
        self.turns += 1
        kinds = {message.kind for message in claimed}
        one_album = len({message.album for message in claimed}) == 1 and claimed[0].album
        if len(claimed) > 1 and kinds != {"human"} and not one_album:
            self.wrong.append(f"a turn claims {sorted(kinds)} together")
        for message in claimed:
            if message.ends:
                self.wrong.append(f"{message.id} is claimed after its end")
            if not (message.claims or self.steered) and any(
                other.seq < message.seq
                and not other.claims
                and not other.ends
                and other not in claimed
                and not (other.moved or message.moved or message.album)
                for other in self.messages.values()
                if other.kind == message.kind and (other.authority == message.authority or message.kind == "queue")
            ):
                self.wrong.append(f"{message.id} overtakes an earlier message of its kind")
            message.claims.append(event.data["session"])
        if event.data["session"] != self.session:
            self.wrong.append(f"a turn runs in {event.data['session']}, not in the bound session")
        if self.stopped_at is not None and kinds != {"wake"} and max(m.seq for m in claimed) > self.stopped_at:
            self.wrong.append("a message accepted after /stop runs in the stopped session")

    def _inbox_steered(self, event: Event) -> None:
        for inbox_id in event.data["ids"]:
            message = self.messages[inbox_id]
            if message.ends or message.claims or message.kind != "human":
                self.wrong.append(f"{message.kind} {inbox_id} is steered into a turn")
            message.claims.append(self.session)

    def _approval_asked(self, event: Event) -> None:
        self.undecided += 1  # the question itself
        name = (event.data["claim"], event.data["token"])
        if name in self.asked:
            self.wrong.append(f"{name[1]} was asked twice")
        self.asked.add(name)

    def _delegation_started(self, event: Event) -> None:
        self.works.add(event.data["id"])

    def _delegation_ended(self, event: Event) -> None:
        self.works.remove(event.data["id"])
        self.told_of += 1

    def _inbox_answered(self, event: Event) -> None:
        message = self.messages[event.data["id"]]
        message.ends.append(f"answered {event.data['end']}")
        if event.data["by"] == "edit":
            return  # it says nothing, and nothing is owed for it
        self.undecided += 1
        if message.command in ("new", "reset", "stop"):
            self.aborted = False
        elif self.aborted:
            self.wrong.append("a turn was aborted and nobody asked for it")
        if event.data["end"] == "aborted":
            # Asked for by a command that is answered next, or by the message that was accepted right before.
            latest = next(reversed(self.messages.values()))
            self.aborted = latest.kind != "human" or latest is message
        if event.data["by"] == "turn":
            self.in_a_row = 0
        if message.command in ("new", "reset"):
            for other in self.messages.values():
                if other.seq < message.seq and not other.ends and other.kind != "wake":
                    self.wrong.append(f"{other.kind} {other.id} outlives /new")

    def _inbox_merged(self, event: Event) -> None:
        for inbox_id in event.data["ids"]:
            message = self.messages[inbox_id]
            message.ends.append("merged")
            if message.kind != "human" and not message.album:
                self.wrong.append(f"{message.kind} {inbox_id} was merged")

    def _inbox_dropped(self, event: Event) -> None:
        reason = event.data["reason"]
        for inbox_id in event.data["ids"]:
            message = self.messages[inbox_id]
            message.ends.append(f"dropped {reason}")
            if message.kind == "wake" and reason in ("reset", "stop") and not message.claims:
                self.wrong.append(f"wake {inbox_id} was dropped by {reason}")
            if message.kind == "queue" and reason == "stop" and not message.claims:
                self.wrong.append(f"/queue item {inbox_id} was dropped by /stop")
        if reason == "interrupted":
            if self.in_a_row < INTERRUPTIONS_MAX:
                self.wrong.append(f"{event.data['ids']} were given up after {self.in_a_row} interruptions")
            self.undecided += 1
            self.in_a_row = 0
        self.to_give_up.difference_update(event.data["ids"])

    def _inbox_interrupted(self, event: Event) -> None:
        self.interruptions.update(event.data["ids"])
        if "waited" in event.data:
            return  # for a person, at a stop
        self.in_a_row += 1
        if self.in_a_row >= INTERRUPTIONS_MAX:
            self.to_give_up.update(event.data["ids"])

    def _delivery_owed(self, event: Event) -> None:
        self.owed[event.data["id"]] = event
        # Not what is said ahead of an answer: before a turn's, at a compression's begin, of a place in the queue.
        if "tells" not in event.data and not _is_ahead(event.data["parts"][0]):
            self.undecided -= 1

    def _delivery_none(self, event: Event) -> None:
        self.undecided -= 1

    def _delivery_settled(self, event: Event) -> None:
        self.settled.add((event.data["id"], event.data["part"]))

    def _delivery_abandoned(self, event: Event) -> None:
        self.abandoned[event.data["id"], event.data["part"]] = event.data["reason"]


def _is_ahead(text: str) -> bool:
    return text.startswith((COMPRESSING_TEXT.partition("{")[0], QUEUED_TEXT.partition("{")[0]))
