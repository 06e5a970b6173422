"""K1 to K60: where a bot may be killed, or its surroundings fail it, and which runs prove each row's right outcome.

A row is proved by the runs of some scenarios that were struck at its point (``at``: a pattern in the point's label;
``torn``: inside that commit), by every run of scenarios whose script is the fault itself, or by an enumeration of its
own in ``environment``. What is right at any point, nothing lost, nothing repeated in silence, each message with one
end, is what ``judge`` holds every one of those runs against.
"""

from __future__ import annotations

import re
from typing import Final

from attrs import frozen

from tests.crash.points import Fate


@frozen
class Proof:
    """Runs that prove a row: of the scenarios whose name begins so; struck there, or all of them."""

    scenarios: tuple[str, ...]
    at: str | None = None
    torn: bool = False

    def holds(self, scenario: str, plan: tuple[Fate, ...], labels: list[list[str]]) -> bool:
        """Whether this run is one of them."""
        if not scenario.startswith(self.scenarios):
            return False
        if self.at is None:
            return True
        struck = zip(plan, labels, strict=False)  # lives without a fate of their own come after those of the plan
        return any(
            fate.at is not None
            and (fate.torn or fate.frames is not None) == self.torn
            and re.search(self.at, told[-1]) is not None
            for fate, told in struck
            if told
        )


@frozen
class KillPoint:
    """One row. ``killed``: where; ``right``: what must come of it; ``later``: what it needs while nothing proves it."""

    name: str
    killed: str
    right: str
    proofs: tuple[Proof, ...] = ()
    environment: str = ""
    later: str = ""

    def is_proved_by(self, scenario: str, plan: tuple[Fate, ...], labels: list[list[str]]) -> bool:
        """Whether this run is one that proves it."""
        return any(proof.holds(scenario, plan, labels) for proof in self.proofs)


def _at(pattern: str, *scenarios: str, torn: bool = False) -> tuple[Proof, ...]:
    return (Proof(scenarios, pattern, torn),)


def _whole(*scenarios: str) -> tuple[Proof, ...]:
    return (Proof(scenarios),)


_T4: Final = "commit .*inbox/answered delivery/owed"
_NEW: Final = "commit inbox/accepted inbox/answered .*route/bound"
_STOP: Final = "commit inbox/accepted inbox/answered .*turn/end"
_CLOSERS: Final = "commit inbox/interrupted"

KILL_POINTS: Final = (
    # --- inbound and routing
    KillPoint("K1", "before the lane's first commit", "given again", _at("^before commit route/bound", "one message")),
    KillPoint(
        "K2",
        "between binding and accepting",
        "one commit: there is no between",
        _at("commit route/bound", "one message", "two merged", torn=True),
    ),
    KillPoint(
        "K3", "inside T0", "rolled back, given again", _at("commit inbox/accepted", "burst", "queue in", torn=True)
    ),
    KillPoint(
        "K4",
        "after T0, before the ack",
        "the repetition is acked, accepted once",
        _at("^(after commit .*inbox/accepted|before ack)", "one message", "two merged", "given again"),
    ),
    KillPoint("K5", "after the ack, before T1", "runs, in its order", _at("^after ack in[234]", "burst", "queue in")),
    KillPoint(
        "K6",
        "before T0, and the platform never repeats",
        "lost, as its adapter says",
        _at("^before commit .*inbox/accepted", "never given again"),
    ),
    KillPoint(
        "K7",
        "several accepted, not yet one turn",
        "joined when claimed",
        _at("^before commit .*inbox/claimed", "burst", "two merged"),
    ),
    KillPoint(
        "K8", "a /queue item is promoted", "one turn each, in order", _at("commit .*inbox/claimed", "queue in order")
    ),
    KillPoint("K9", "/new, before it is bound", "the command runs", _at(f"^before {_NEW}", "new with", "two news")),
    KillPoint(
        "K10",
        "/new, bound, the old session not closed",
        "one commit: there is no between",
        _at(_NEW, "new with", "two news", torn=True) + _at(f"^after {_NEW}", "new with", "two news"),
    ),
    KillPoint(
        "K11",
        "/stop during a turn",
        "aborted, never resumed",
        _at(f"{_STOP}|cancel", "stop a turn", "stop with queue"),
    ),
    KillPoint("K12", "the platform's cursor lags", "told apart by their ids", _whole("given again from a cursor")),
    # --- turn
    KillPoint("K13", "inside T1", "as before it", _at("commit .*inbox/claimed", "burst", "queue in", torn=True)),
    KillPoint("K14", "after T1, before the agent", "closed and run again", _at("^before start", "one message")),
    KillPoint("K15", "the agent works", "closed and run again", _at("^after start", "one message", "one tool")),
    KillPoint(
        "K16",
        "a draft is out, its id isn't stored",
        "a new message",
        _at("^(after (arrival|news) draft|before commit .*delivery/draft)", "draft"),
    ),
    KillPoint("K17", "a draft's id is stored", "the end edits it", _at("^after commit .*delivery/draft", "draft")),
    KillPoint(
        "K18", "the model has asked, before T2", "asked again", _at("^before commit assistant/message", "one tool")
    ),
    KillPoint("K19", "inside T2", "as before it", _at("commit assistant/message tool/call", "one tool", torn=True)),
    KillPoint(
        "K20",
        "after T2, the tool isn't entered",
        "outcome unknown",
        _at("^(after commit assistant/message tool/call|before release|before tool)", "one tool"),
    ),
    KillPoint(
        "K21",
        "the tool ran, before T3",
        "outcome unknown, never repeated",
        _at("^(after tool|before commit tool/result)", "one tool", "parallel tools"),
    ),
    KillPoint(
        "K22", "asked for, not begun", "told as not started", _at("^before commit tool/result tool/call", "serial")
    ),
    KillPoint(
        "K23", "parallel calls, some ended", "each by its record", _at("commit tool/result( inbox.*)?$", "parallel")
    ),
    KillPoint(
        "K24",
        "after T3, before the model",
        "goes on from the result",
        _at("^(after commit tool/result step/end|before proceed)", "one tool", "rounds"),
    ),
    KillPoint(
        "K25",
        "an approval is asked",
        "the question and its answer are durable",
        _at("approval/", "a question"),
        later="approvals",
    ),
    KillPoint(
        "K26",
        "a delegation runs",
        "its end comes as a wake",
        _whole("background work"),
        later="delegations",
    ),
    # --- reply
    KillPoint("K27", "the reply is made, before T4", "run again", _at(f"^before {_T4}", "one message", "one tool")),
    KillPoint("K28", "inside T4", "as before it", _at(_T4, "one message", "one tool", torn=True)),
    KillPoint("K29", "after T4, before T5", "sent plainly", _at(f"^after {_T4}", "separate attempt")),
    KillPoint(
        "K30",
        "after T5, before it leaves",
        "sent with a notice",
        _at("^(after commit delivery/attempt|before send)", "separate attempt"),
    ),
    KillPoint(
        "K31",
        "it arrived, nobody wrote so",
        "one marked repeat",
        _at("^(after arrival|after news|before commit delivery/settled)", "one message", "separate attempt"),
    ),
    KillPoint("K32", "between a reply's parts", "goes on there", _at(r"(send|arrival) \S+\.[12]#", "long reply")),
    KillPoint("K33", "after T6", "nothing", _at("^after commit delivery/settled", "one message")),
    KillPoint("K34", "refused for good", "abandoned, the lane goes on", _whole("send refused for good")),
    KillPoint("K35", "the platform is down", "tried until it is too old", _whole("platform down")),
    KillPoint("K36", "silence was decided", "nothing is sent", _whole("agent is silent")),
    # --- recovery, upkeep, surroundings
    KillPoint(
        "K37",
        "inside recovery's closers",
        "the same again",
        _at(_CLOSERS, "deaths inside") + _at(_CLOSERS, "deaths inside", torn=True),
    ),
    KillPoint(
        "K38", "closed, not yet run again", "decided again", _at(f"^after {_CLOSERS}", "recovery without a slot")
    ),
    KillPoint("K39", "the third interruption", "given up, said so", _whole("three deaths", "three drains")),
    KillPoint("K40", "a wake is given twice", "once", _whole("wake given again")),
    KillPoint(
        "K41",
        "/undo",
        "whole or not at all",
        _at("commit .*surface/reset", "undo") + _at("commit .*surface/reset", "undo", torn=True),
    ),
    KillPoint("K42", "compaction", "before or after it", _at("compact", "long logs")),
    KillPoint(
        "K43",
        "/retry, reset, not begun",
        "one commit: there is no between",
        _at("commit .*surface/reset", "retry") + _at("commit .*surface/reset", "retry", torn=True),
    ),
    KillPoint("K44", "a fork is copied", "whole or not at all", environment="forks"),
    KillPoint(
        "K45",
        "the index is written",
        "same transaction",
        _at("commit", "one message", "queue in order", "new with", torn=True),
    ),
    KillPoint("K46", "the search index lags", "goes on, or is made anew", later="search"),
    KillPoint("K47", "a blob without its commit", "swept", environment="blobs"),
    KillPoint("K48", "one person's data is erased", "finished at the next start", later="erasing"),
    KillPoint("K49", "the drain runs out", "open, and resumed", _whole("drain runs out", "three drains")),
    KillPoint("K50", "after the clean marker", "the log decides", environment="marker"),
    KillPoint(
        "K51",
        "the disk is full",
        "refused, nothing lost",
        _whole("accepting refused", "end refused", "tool refused", "attempt refused", "recovery refused"),
    ),
    KillPoint(
        "K52",
        "fsync fails",
        "found out before anything else",
        _whole("accepting unknown", "end unknown", "result unknown", "settling unknown", "recovery unknown"),
    ),
    KillPoint("K53", "the disk lied", "the rest is whole", environment="lying_disk"),
    KillPoint("K54", "a second process opens", "refused with the owner's name; may read", environment="second_opener"),
    KillPoint("K55", "the owner wakes after a takeover", "it writes nothing more", environment="woken_owner"),
    KillPoint("K56", "a backup is restored", "nothing is repeated in silence", later="backups"),
    KillPoint("K57", "the clock jumps", "order by number, ages never negative", _whole("clock")),
    KillPoint("K58", "bit rot in the middle", "that lane is refused, others go on", environment="bit_rot"),
    KillPoint("K59", "an event of a newer program", "read only; nothing is written", environment="newer_format"),
    KillPoint("K60", "an upgrade half done", "old or new, and ended by the next start", environment="half_upgrade"),
)


def proved(scenario: str, plan: tuple[Fate, ...], labels: list[list[str]]) -> list[str]:
    """The rows that this run is a proof of."""
    return [row.name for row in KILL_POINTS if row.is_proved_by(scenario, plan, labels)]


def is_kill_point(scenario: str, label: str, *, torn: bool = False) -> bool:
    """Whether a row wants a run of this scenario that is struck at the point of this label."""
    plan = (Fate(at=0, torn=torn),)
    return any(
        proof.at is not None and proof.holds(scenario, plan, [[label]]) for row in KILL_POINTS for proof in row.proofs
    )
