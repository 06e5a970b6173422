"""Broken variants of the shipped modules: what the enumerator is worth is that it catches each of them.

See ``tests.planted`` for how.
"""

from __future__ import annotations

from typing import Any, Final

from attrs import frozen

from seriatim import (
    absorb,
    approvals,
    batch,
    breaking,
    closers,
    commands,
    decide,
    gate,
    lane,
    queueing,
    recovery,
    snapshots,
)
from seriatim.actors import deaths, delivery, lane_record, loading, merging, runtime, steps, supervisor, upkeep
from seriatim.storage import sqlite, sqlite_growth
from tests.crash.enumeration import FULL, Tally, enumerate_scenario
from tests.crash.run import run
from tests.crash.scenarios import SCENARIOS
from tests.planted import early, planted

RUNS_MAX: Final = 300
"""Runs after which a mutant counts as missed."""


@frozen
class Mutant:
    """``function`` with each ``old`` text replaced by its ``new``; ``scenarios`` are tried first to last."""

    name: str
    function: Any
    changes: tuple[tuple[str, str], ...]
    scenarios: tuple[str, ...]


_EVENTS_FIRST: Final = """\
connection.execute("DELETE FROM commits WHERE log = ? AND first < ?", [
        _place(connection, archive.log)[0], archive.base])
    connection.execute("BEGIN IMMEDIATE")"""

MUTANTS: Final = (
    Mutant(
        "a doubt about an earlier send is forgotten",
        lane.PartState.doubts.fget,  # type: ignore[attr-defined]
        (("return self", "return 0 if self.last_failed else self"),),
        ("doubt, then a clear failure", "clear failure, then doubt"),
    ),
    Mutant(
        "a turn's result is treated as refusable",
        gate.Gate._unavailable,
        (("self._kept.append(message)", "type(message) is TurnEnded or self._kept.append(message)"),),
        ("end refused, and nobody stops",),
    ),
    Mutant(
        "no fence",
        supervisor.SupervisorActor._fence,
        (
            (
                "self._ports.writer.tell(Fence(lane_log(lane.key), lane.incarnation, self.own_ref))",
                "self._ask_to_read(lane)",
            ),
        ),
        ("slow writer, given again",),
    ),
    Mutant(
        "a log is compacted while something is open",
        snapshots.is_at_rest,
        (('return state.phase == "idle" and not state.waiting', "return True"),),
        ("long logs",),
    ),
    Mutant(
        "events go before their archive is durable",
        sqlite_growth.compact,
        (('connection.execute("BEGIN IMMEDIATE")', _EVENTS_FIRST),),
        ("long logs",),
    ),
    Mutant(
        "an archive leaves out what came since the one before",
        upkeep.UpkeepActor._checked,
        (("return Archive(work.log, work.wish.base,", "return Archive(work.log, max(6, work.wish.base - 6),"),),
        ("long logs",),
    ),
    Mutant(
        "the first event after a checkpoint is passed over",
        loading._read_lane,
        (("tail = reader.read(log, kept.seq)", "tail = reader.read(log, kept.seq)[1:]"),),
        ("long logs",),
    ),
    Mutant("acked before it is durable", gate.Gate._stage, early("Ack"), ("one message", "slow writer")),
    Mutant("the agent starts before its turn is durable", gate.Gate._stage, early("RunTurn"), ("slow writer",)),
    Mutant("sent before it is owed durably", gate.Gate._stage, early("Deliver"), ("slow writer",)),
    Mutant("cancelled before the end is durable", gate.Gate._stage, early("CancelTurn"), ("slow writer, stop",)),
    Mutant("the agent goes on before the result is durable", gate.Gate._stage, early("Proceed"), ("one tool",)),
    Mutant(
        "a tool runs before its call is durable",
        steps._start,
        (('if gated.tool.effects != "write"', "if True"),),
        ("one tool", "slow writer"),
    ),
    Mutant(
        "an attempt of unknown outcome is taken for none",
        lane.PartState.doubts.fget,  # type: ignore[attr-defined]
        (("return self", "return 0 and self"),),
        ("one message",),
    ),
    Mutant(
        "the debt doesn't count as the first attempt",
        batch.Batch.owe,
        (('data["attempt"] = 1', "pass"),),
        ("one message",),
    ),
    Mutant(
        "a resumed turn repeats the user message", decide._start, (("told = held.ids", "told = ()"),), ("one message",)
    ),
    Mutant(
        "an interrupted turn isn't closed",
        recovery.recover,
        (('close_turn(batch, "interrupted")', "pass"),),
        ("one message", "one tool"),
    ),
    Mutant(
        "a recorded call is told as not started",
        closers.closing,
        (("NOT_STARTED_TEXT) if recorded is None", "NOT_STARTED_TEXT) if True"),),
        ("one tool",),
    ),
    Mutant(
        "unknown is taken for refused",
        gate.Gate.settled,
        (
            ("elif type(outcome) is Unknown:", "elif False:"),
            (
                "assert type(outcome) is Refused",
                (
                    "from seriatim.errors import StoreUnhealthyError; "
                    "outcome = outcome if type(outcome) is Refused else Refused(commit.id, StoreUnhealthyError(''))"
                ),
            ),
        ),
        ("accepting unknown, done", "end unknown, done"),
    ),
    Mutant(
        "an interruption doesn't count",
        recovery.recover,
        (("state.interruptions >= INTERRUPTIONS_MAX", "False"),),
        ("three deaths in one turn",),
    ),
    Mutant(
        "a message given again is taken for a new one",
        runtime.unique_key,
        (("if event.edit_of is None and event.message_id is None", "if True"),),
        ("given again",),
    ),
    Mutant(
        "mail held while a lane goes to rest is forgotten",
        supervisor.SupervisorActor._passivated,
        (("if lane.held or", "if"),),
        ("rest and a message",),
    ),
    Mutant(
        "a merged lane's debts are forgotten",
        absorb.absorb,
        (("state.owed |= ", "_ = "),),
        ("a chat gets a new id while replies are owed",),
    ),
    Mutant(
        "a merged lane's messages count in both",
        absorb.leave,
        (("state.accepted -= len(state.waiting)", "pass"),),
        ("a chat gets a new id in mid-turn",),
    ),
    Mutant(
        "an interrupted turn is forgotten when its lane is merged",
        absorb.absorb,
        (("(*state.interrupted, *interrupted)", "state.interrupted"),),
        ("a chat gets a new id in mid-turn",),
    ),
    Mutant(
        "mail for a halted lane is forgotten",
        merging.Merger._hand_on,
        (("held, lane.held = lane.held, []", "held, lane.held = [], []"),),
        ("a chat gets a new id in mid-turn",),
    ),
    Mutant(
        "a halted lane's mail is taken up newest first",
        lane_record.LaneRecord.take_over,
        (("for mail in left", "for mail in reversed(left)"),),
        ("a chat gets a new id while people write under both",),
    ),
    Mutant(
        "of two lanes that become one, one's mail comes before the other's",
        merging.woven,
        (("heapq.merge(_placed(one), _placed(other), key=itemgetter(0))", "(*_placed(one), *_placed(other))"),),
        ("a chat gets a new id while people write under both",),
    ),
    Mutant(
        "who waits for a lane that never was waits for it still",
        merging.Merger._goes_into,
        (("self._ports.receipts.moved(gone, into)", "pass"),),
        ("two chats of one turn slot become one",),
    ),
    Mutant(
        "a dead actor's mail is forgotten",
        deaths.Deaths.crashed,
        (("[*self._leftover(lane), *struck, *crash.signals, *crash.mail]", "[]"),),
        ("two merged",),
    ),
    Mutant(
        "another lane's answer to a command dies with the lane that asked",
        deaths.Deaths._inherit,
        (("if type(m) in _FORWARDED", 'if type(m) in _FORWARDED and not hasattr(m, "command") or type(m) is Inbound'),),
        ("a conversation taken up in another topic",),
    ),
    Mutant(
        "what is told to a lane whose death isn't known yet is forgotten",
        supervisor.SupervisorActor._forward,
        (("lane.held.append(mail)  # its", "pass  # its"),),
        ("a conversation taken up in another topic",),
    ),
    Mutant(
        "what is said behind a command that another lane decides doesn't wait",
        gate.Gate._wait_for,
        (("self._wanted = wanted", "self._wanted = wanted if type(wanted) is Wanted else None"),),
        ("what is said behind a command that another lane decides",),
    ),
    Mutant(
        "a lane that begins anew doesn't wait for another's answer",
        supervisor.SupervisorActor._read,
        (("self._merger.is_answering(lane.key)", "False"),),
        ("a command that another lane decides while both get a new id",),
    ),
    Mutant("a stopped turn keeps its slot", breaking.end_running, (("batch.return_slot()", "pass"),), ("stop a turn",)),
    Mutant(
        "the end of a stopped turn ends the next one",
        decide._turn_ended,
        (("running is None or running.generation != m.generation", "running is None"),),
        ("stop a turn that answers late", "stop with queue and wake"),
    ),
    Mutant(
        "replies leave newest first",
        delivery.DeliveryActor._file,
        ((".jobs.append(job)", ".jobs.insert(0, job)"),),
        ("send refused, then taken",),
    ),
    Mutant(
        "a /queue item joins a follow-up",
        queueing.join_target,
        (('if entry.kind == "human"', "if True"),),
        ("queue in order",),
    ),
    Mutant(
        "/new spares what waits",
        commands._new,
        (("_drop_where(batch,", "(lambda *_: None)(batch,"),),
        ("new with everything waiting",),
    ),
    Mutant("a merge isn't counted", lane._merged, (("state.merged += 1", "pass"),), ("two merged",)),
    Mutant(
        "a commit's parts are written one by one",
        sqlite.SqliteStore._insert,
        (
            (
                "connection.execute(statement(size), values)",
                (
                    "[connection.execute(statement(1), values[n : n + len(COLUMNS)])"
                    " for n in range(0, rows * len(COLUMNS), len(COLUMNS))]"
                ),
            ),
        ),
        ("one message",),
    ),
    Mutant(
        "a turn that runs again asks its people again",
        approvals.approval_wanted,
        (("if asked is None:", "if True:"),),
        ("a question and its answer",),
    ),
    Mutant(
        "background work that a crash cut off is forgotten",
        decide._recover,
        (("close_lost(batch, m)", "pass"),),
        ("background work", "background work is stopped"),
    ),
    Mutant(
        "a steered message stays in the queue",
        lane._steered,
        (("if not gone.issuperset(entry.ids)", ""),),
        ("steer",),
    ),
    Mutant(
        "background work begins before its start is durable",
        gate.Gate._stage,
        early("WishAnswered"),
        ("background work",),
    ),
)


def caught_by(mutant: Mutant) -> tuple[str, int]:
    """The first violation that gives the mutant away and the runs that it took; "" if none did.

    A run that goes wrong without the mutant too gives nothing away.
    """
    runs = 0
    for name in mutant.scenarios:
        scenario = next(scenario for scenario in SCENARIOS if scenario.name == name)
        for seed in scenario.seeds:
            with planted(mutant):
                tally: Tally = enumerate_scenario(scenario, seed, FULL, first_only=True)
            runs += tally.runs
            for violation in tally.violations[:1]:
                if not run(scenario, violation.plan, seed).wrong:
                    return violation.text, runs
            if runs > RUNS_MAX:
                return "", runs
    return "", runs
