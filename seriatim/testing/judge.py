"""What must hold of a run that has come to rest: read from the logs with plain eyes, from the platform and the tools.

Beside the product: the logs are followed by rules of this file's own, so that a fault in the fold shows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import combinations
from typing import Any, Protocol

import attrs

from seriatim.actors.receipts import Receipt
from seriatim.actors.runtime import Runtime
from seriatim.errors import SeriatimError
from seriatim.events import Event, LogId, lane_log, session_log
from seriatim.lane import LaneState, fold
from seriatim.limits import INTERRUPTIONS_MAX
from seriatim.outbox import RECOVERED_NOTICE
from seriatim.recovery import GIVEN_UP_TEXT
from seriatim.snapshots import lane_from_snapshot
from seriatim.storage.audit import audit
from seriatim.storage.contract import StoreReader
from seriatim.testing.fake_platform import FakePlatform
from seriatim.testing.scripted import Ran, ScriptedRunner
from seriatim.testing.told import ToldLane
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
    lanes = [ToldLane(log, events) for log, events in logs.items() if log.startswith("lane:")]
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


def _check_attempts(ground: Ground, lane: ToldLane) -> None:
    """Nothing is tried more often than the third interruption allows, and nothing is blamed on no death."""
    for inbox_id in sorted(lane.to_give_up):
        ground.complain(f"{inbox_id} was not given up after {INTERRUPTIONS_MAX} interruptions in a row")
    if max(lane.interruptions.values(), default=0) > ground.deaths:
        ground.complain("turns were interrupted more often than anything died")


# --- replies ---------------------------------------------------------------------------------------------


def _check_replies(ground: Ground, lane: ToldLane) -> None:
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


def _check_inbox(ground: Ground, lanes: list[ToldLane]) -> None:
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


def _check_order(ground: Ground, lanes: list[ToldLane]) -> None:
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


def _check_receipts(ground: Ground, process: Process, lanes: list[ToldLane]) -> None:
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


def _texts(lanes: list[ToldLane], inbox_id: str) -> str:
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
