"""What must hold of a run that has come to rest: read from the logs with plain eyes, from the platform and the tools.

Beside the product: the logs are followed by rules of this file's own, so that a fault in the fold shows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import combinations
from typing import Any, Protocol

import attrs
from attrs import define, field

from seriatim.actors.receipts import Receipt
from seriatim.actors.runtime import Runtime
from seriatim.compressing import COMPRESSING_TEXT
from seriatim.errors import SeriatimError
from seriatim.events import Data, Event, LogId, lane_log, session_log
from seriatim.lane import LaneState, fold
from seriatim.limits import INTERRUPTIONS_MAX
from seriatim.outbox import RECOVERED_NOTICE
from seriatim.queue_commands import QUEUED_TEXT
from seriatim.queueing import authority
from seriatim.recovery import GIVEN_UP_TEXT
from seriatim.snapshots import lane_from_snapshot
from seriatim.storage.audit import audit
from seriatim.storage.contract import StoreReader
from seriatim.testing.fake_platform import FakePlatform
from seriatim.testing.scripted import Ran, ScriptedRunner
from seriatim.testing.witness import DRAFT, all_logs

Logs = dict[LogId, list[Event]]


class Ground(Protocol):
    """What outlives a process: the platform, what tools did, what was refused, and how often anything died."""

    platform: FakePlatform
    tools: list[Ran]
    refused: set[str]
    given: list[dict[str, str]]
    """Of each life of the process: the messages in the order in which it was given them, each with the lane that served
    its people then."""
    joined: dict[LogId, list[int]]
    """Of each lane log: how long it was when people who had written to another lane were told that this one serves."""
    deaths: int
    checked: Counter[str]
    """How often each invariant was judged."""

    def complain(self, text: str) -> None:
        """Note what doesn't hold."""
        ...

    def echoed(self, text: str) -> bool:
        """Whether the agent repeats this text of a message in its reply."""
        ...

    def whole(self, reader: StoreReader, log: LogId) -> list[Event]:
        """All events of a log, those that its archive stands for included."""
        ...


class Process(Protocol):
    """The process that has come to rest; ``receipts``: of what it was given."""

    runtime: Runtime
    runner: ScriptedRunner
    receipts: list[Receipt]

    @property
    def sending(self) -> Sequence[Any]:
        """Sends on their way."""
        ...

    def reader(self) -> StoreReader:
        """A reader of its store."""
        ...


def judge(ground: Ground, process: Process) -> None:
    """Hold everything against a run that has come to rest; what doesn't hold is told to ``ground``."""
    reader = process.reader()
    try:
        logs: Logs = {log: ground.whole(reader, log) for log in all_logs(reader)}
        _check_archives(ground, reader, logs)
    except SeriatimError as error:
        ground.complain(f"the store can't be read: {error}")
        return
    found = audit(reader)
    ground.checked["law_1"] += 1
    if not found.holds or found.logs.waiting:
        ground.complain(f"law 1: {found.logs}, counted {found.counters}, {found.problems}")
    if work := reader.open_work():
        ground.complain(f"open work at rest: {work}")
    _check_rest(ground, process)
    judge_live(ground, process, reader)
    lanes = [_Lane(log, events) for log, events in logs.items() if log.startswith("lane:")]
    for log, events in logs.items():
        _check_numbering(ground, log, events)
        if log.startswith("session:"):
            _check_session(ground, log, events)
    for lane in lanes:
        lane.read()
        ground.checked["queue_fifo"] += lane.turns
        for text in lane.wrong:
            ground.complain(f"{text} in {lane.log}")
        _check_attempts(ground, lane)
        _check_replies(ground, lane)
    _check_inbox(ground, lanes)
    _check_order(ground, lanes)
    _check_receipts(ground, process, lanes)
    _check_repeats(ground)
    _check_tools(ground, logs)


# --- the process at rest ---------------------------------------------------------------------------------


def _check_rest(ground: Ground, process: Process) -> None:
    runtime = process.runtime
    left = {
        "turns of the runner": process.runner.live,
        "slots held": runtime.slots.held,
        "lanes waiting for a slot": runtime.slots.waiting,
        "deliveries pending": runtime.deliveries.pending,
        "receipts open": len(runtime.receipts),
        "sends on their way": len(process.sending),
    }
    for what, count in left.items():
        if count:
            ground.complain(f"at rest, and {count} {what}")


def judge_live(ground: Ground, process: Process, reader: StoreReader) -> None:
    """At any rest, turns may be running: each live lane is what its logs tell, and none has work that lies idle."""
    runtime = process.runtime
    full = runtime.slots.held >= runtime.settings.slots_max
    for gate in runtime.directory.gates():
        state = gate.durable
        told = fold(
            state.key,
            ground.whole(reader, lane_log(state.key)),
            lambda session: ground.whole(reader, session_log(session)),
        )
        ground.checked["fold_is_live"] += 1
        if not gate.quiescent():
            ground.complain(f"at rest, and the gate of {state.key} isn't")
        if told != state:
            ground.complain(f"the live state of {state.key} isn't what its logs tell: {state}, not {told}")
        if state.key not in runtime.directory.quarantined:  # there it waits for the next start
            _check_idle(ground, state, full=full, draining=runtime.switches.draining)
    for log, hot in reader.open_work():
        key = log.removeprefix("lane:")
        served = key in runtime.directory.live or key in runtime.directory.quarantined
        if not served and not runtime.switches.draining:
            ground.complain(f"{key} has open work and is not live: {hot}")
    memory = runtime.memory
    ground.checked["who_was_asked_answers"] += 1
    if memory.doing != "nothing" or memory.asked != memory.released + memory.refused:
        ground.complain(f"at rest, and the pass over the warm lanes isn't through: {memory}")
    for receipt in process.receipts:
        ground.checked["no_lost_mail"] += 1
        if receipt.outcome == "pending":
            ground.complain(f"whoever gave {receipt.message_id} in {receipt.session_key} was never told")


def _check_idle(ground: Ground, state: LaneState, *, full: bool, draining: bool) -> None:
    ground.checked["no_idle_work"] += 1
    if state.running is None and state.queue and not full and not draining:
        ground.complain(f"work waits in an idle lane: {state.queue} of {state.key}")


def _check_archives(ground: Ground, reader: StoreReader, logs: Logs) -> None:
    """An archive is the fold of the events that it stands for."""
    for log, events in logs.items():
        archive = reader.archive(log)
        if archive is not None:
            key = log.removeprefix("lane:")
            told = lane_from_snapshot(key, archive.version, archive.data)
            if told != attrs.evolve(fold(key, events[: archive.base], lambda _: []), session=None):
                ground.complain(f"the archive of {log} isn't the fold of what it stands for")


# --- logs ------------------------------------------------------------------------------------------------


def _check_numbering(ground: Ground, log: LogId, events: list[Event]) -> None:
    if [event.seq for event in events] != list(range(len(events))):
        ground.complain(f"{log} isn't numbered in order")


def _check_session(ground: Ground, log: LogId, events: list[Event]) -> None:
    """Turns one after the other, each closed, with a result for each call; each user message once."""
    said: Counter[str] = Counter()
    turn = step = None
    turns = 0
    calls: dict[str, bool] = {}
    for event in events:
        data = event.data
        bad = False
        match event.type:
            case "turn/start":
                bad = turn is not None or data["turn"] != turns + 1
                turn = turns = data["turn"]
            case "turn/end":
                bad = turn != data["turn"] or step is not None or bool(calls)
                turn = None
            case "step/start":
                bad = turn is None or step is not None
                step = data["step"]
            case "step/end":
                bad = step != data["step"] or bool(calls)
                step = None
            case "user/message":
                bad = turn is None
                said[data["id"]] += 1
            case "assistant/message":
                bad = step is None
                calls |= {call["id"]: False for call in data.get("calls", ())}
            case "tool/call":
                bad = calls.get(data["id"]) is not False
                calls[data["id"]] = True
            case "tool/result":
                recorded = calls.pop(data["id"], None)
                bad = recorded is None or (data.get("outcome") == "not started") is recorded
            case _:
                pass
        if bad:
            ground.complain(f"{event.type} at {event.seq} has no place there in {log}")
    if turn is not None:
        ground.complain(f"turn {turn} is open in {log}")
    for inbox_id, count in said.items():
        if count > 1:
            ground.complain(f"the user message {inbox_id} stands {count} times in {log}")


@define
class _Message:
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
    again: str = ""
    """What a /retry asks once more."""
    """It stands with the other items of that, wherever they stand."""


class _Lane:
    """A lane log, read with plain eyes."""

    def __init__(self, log: LogId, events: list[Event]) -> None:
        self.log = log
        self.events = events
        self.messages: dict[str, _Message] = {}
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

    def _take(self, data: Data, seq: int) -> _Message:
        message = self.messages[data["id"]] = _Message(
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


def _check_attempts(ground: Ground, lane: _Lane) -> None:
    """Nothing is tried more often than the third interruption allows, and nothing is blamed on no death."""
    for inbox_id in sorted(lane.to_give_up):
        ground.complain(f"{inbox_id} was not given up after {INTERRUPTIONS_MAX} interruptions in a row")
    if max(lane.interruptions.values(), default=0) > ground.deaths:
        ground.complain("turns were interrupted more often than anything died")


# --- replies ---------------------------------------------------------------------------------------------


def _is_ahead(text: str) -> bool:
    return text.startswith((COMPRESSING_TEXT.partition("{")[0], QUEUED_TEXT.partition("{")[0]))


def _check_replies(ground: Ground, lane: _Lane) -> None:
    """Each owed part arrived, unless it was abandoned for a reason; in the order of the debts."""
    received = ground.platform.received
    first: dict[tuple[str, int], int] = {}
    for at, got in enumerate(received):
        first.setdefault((got.out.delivery, got.out.part), at)
    places: list[int] = []
    for delivery, event in lane.owed.items():
        for part, text in enumerate(event.data["parts"]):
            name = (delivery, part)
            if name not in lane.settled and name not in lane.abandoned:
                ground.complain(f"part {part} of {delivery} is neither settled nor abandoned")
            if name in lane.abandoned:
                if lane.abandoned[name] == "stop" and name in first:
                    ground.complain(f"part {part} of {delivery} was given up by /stop, and yet it had been sent")
                continue
            if name not in first:
                ground.complain(f"part {part} of {delivery} never arrived")
                continue
            places.append(first[name])
            said = received[first[name]].out
            elsewhere = said.target.to_data() != event.data["to"] and delivery not in lane.redirected
            if said.text.removeprefix(RECOVERED_NOTICE) != text or elsewhere:
                ground.complain(f"part {part} of {delivery} arrived changed")
    ground.checked["reply_order"] += len(places)
    if places != sorted(places) and not lane.joins:
        ground.complain(f"replies of {lane.log} arrived out of order")
    texts = " ".join((*lane.passed_on, *(text for event in lane.owed.values() for text in event.data["parts"])))
    for message in lane.messages.values():
        if message.by_receipt:
            continue
        echoed = message.kind not in ("command", "edit") and bool(message.text) and ground.echoed(message.text)
        if message.ends == ["answered completed"] and echoed and message.text not in texts:
            ground.complain(f"{message.text!r} was answered without a word of it")
        if "dropped interrupted" in message.ends and GIVEN_UP_TEXT.format(times=INTERRUPTIONS_MAX) not in texts:
            ground.complain(f"{message.text!r} was given up and nobody told")


def _check_inbox(ground: Ground, lanes: list[_Lane]) -> None:
    """What the platform saw acked was accepted once; what it wasn't told, it gets told; nothing refused is there."""
    accepted: Counter[str] = Counter()
    for lane in lanes:
        for message in lane.messages.values():
            accepted[message.platform_id] += 1
            ground.checked["no_lost_mail"] += 1
            if len(message.ends) != 1:
                ground.complain(f"{message.text!r} has the ends {message.ends}")
            if message.id in ground.refused:
                ground.complain(f"{message.text!r} was refused and accepted")
    for posted in ground.platform.posted:
        name = posted.event.message_id or ""
        if posted.acked and accepted[name] != 1:
            ground.complain(f"{name} was acked and accepted {accepted[name]} times")
        if not posted.acked and accepted[name] > 1:
            ground.complain(f"{name} was accepted {accepted[name]} times")
        if not posted.acked and ground.platform.capabilities.replay != "none":
            ground.complain(f"{name} is not acked at rest")


def _check_order(ground: Ground, lanes: list[_Lane]) -> None:
    """A lane accepts in the order in which its messages came to the door.

    Also those that were given to a lane which then went into it, and had not accepted them: they stand among the others
    as they came. But what either of two lanes had accepted when they became one stands before all that is accepted
    afterwards; so a message may stand behind a later one of the other lane's, with their joining in between, and only
    so. Of a lane that had accepted nothing no log tells that it went: then those who wait are the witnesses.
    """
    for lane in lanes:
        joins = [*lane.joins, *ground.joined.get(lane.log, ())]
        for given in ground.given:
            known = ((lane.messages[inbox_id], door) for inbox_id, door in given.items() if inbox_id in lane.messages)
            came = [(message.seq, door) for message, door in known if not message.moved]
            ground.checked["no_overtaking"] += len(came)
            places = [place for place, _ in came]
            if places == sorted(places):
                continue
            if any(_overtakes(late, early, joins) for early, late in combinations(came, 2)):
                ground.complain(f"messages overtook each other at the door of {lane.log}: {places}")


def _overtakes(late: tuple[int, str], early: tuple[int, str], joins: list[int]) -> bool:
    """Whether what came later stands before what came earlier, and no joining explains it. Each: place and lane."""
    if early[0] < late[0]:
        return False
    return late[1] == early[1] or not any(late[0] < joined <= early[0] for joined in joins)


def _check_receipts(ground: Ground, process: Process, lanes: list[_Lane]) -> None:
    """Whoever waits for a message hears what the log says, whatever died in between."""
    ends = {message.id: message.ends for lane in lanes for message in lane.messages.values()}
    homes = {inbox_id: lane.log for lane in lanes for inbox_id in lane.messages}
    for receipt in process.receipts:
        end = receipt.end
        if end is None:
            ground.complain(f"{receipt.session_key}: {receipt.message_id} is over, its receipt {receipt.outcome}")
        elif end.outcome in ("answered", "merged", "dropped"):
            told = ends.get(receipt.message_id, [])
            if lane_log(receipt.session_key) != homes.get(receipt.message_id):
                ground.complain(f"the receipt of {receipt.message_id} names {receipt.session_key}, which hasn't got it")
            if not told or not told[0].startswith(end.outcome):
                ground.complain(f"{receipt.session_key}: a receipt says {end.outcome}, the log {told}")
            if (
                told == ["answered completed"]
                and end.text is None
                and "silent" not in _texts(lanes, receipt.message_id)
            ):
                ground.complain(f"{receipt.session_key}: the receipt of {receipt.message_id} has lost the reply")


def _texts(lanes: list[_Lane], inbox_id: str) -> str:
    found = [lane.messages[inbox_id] for lane in lanes if inbox_id in lane.messages]
    return " ".join(message.text or message.again for message in found)


def _check_repeats(ground: Ground) -> None:
    """A second arrival says that it may be one; a first arrival says so only if another attempt was in doubt."""
    arrived: Counter[tuple[str, int]] = Counter()
    for got in ground.platform.received:
        name = (got.out.delivery, got.out.part)
        if name[0].startswith(DRAFT):
            continue  # nobody's answer: a draft that no end was edited into
        marked = got.out.text.startswith(RECOVERED_NOTICE)
        ground.checked["no_unmarked_repeat"] += 1
        if arrived[name] and not marked:
            ground.complain(f"part {name[1]} of {name[0]} arrived again, unmarked")
        if marked and got.out.attempt < 2:
            ground.complain(f"part {name[1]} of {name[0]} is marked at its first attempt")
        arrived[name] += 1


# --- tools -----------------------------------------------------------------------------------------------


def _check_tools(ground: Ground, logs: Logs) -> None:
    """No recorded call runs twice, and one that ran is never told as not started."""
    runs = Counter((ran.session, ran.call) for ran in ground.tools if ran.effects == "write")
    for (session, call), count in runs.items():
        if count > 1:
            ground.complain(f"call {call} of {session} ran {count} times")
        results = [
            event.data
            for event in logs.get(session_log(session), [])
            if event.type == "tool/result" and event.data["id"] == call
        ]
        if len(results) != 1 or results[0].get("outcome") == "not started":
            ground.complain(f"call {call} of {session} ran, and the log says {results}")
