"""The scenarios: each thin, together spanning."""

from __future__ import annotations

from collections import Counter
from typing import Final

from seriatim.actors.upkeep import Growth
from seriatim.adapters.base import Capabilities
from seriatim.batch import Rules
from seriatim.commits import Commit
from seriatim.testing.faulty_store import Fault
from tests.crash.points import Fate
from tests.crash.scenario import Again, Same, Say, Scenario, Stop, Strike, Switch

_IDEMPOTENT: Final = Capabilities(replay="ack", text_max=4000, idempotent_send=True)
_IRC: Final = Capabilities(replay="none", text_max=400, text_unit="bytes", multiline=False)
_CURSOR: Final = Capabilities(replay="cursor", text_max=4000)
_EDITS: Final = Capabilities(replay="ack", text_max=4000, edit=True)
_SHORT: Final = Capabilities(replay="ack", text_max=150)
_SHORT_IDEMPOTENT: Final = Capabilities(replay="ack", text_max=150, idempotent_send=True)


def _struck(event_type: str, fault: Fault, times: int) -> Strike:
    """Strike the first so many commits that hold an event of that type."""

    def strike(struck: Counter[str], commit: Commit) -> Fault | None:
        if struck[event_type] >= times:
            return None
        if not any(event.type == event_type for part in commit.parts for event in part.events):
            return None
        struck[event_type] += 1
        return fault

    return strike


def _dies(label: str, times: int) -> tuple[Fate, ...]:
    return (Fate(at=label),) * times


SCENARIOS: Final = (
    Scenario("one message", (Say("hello"),), seeds=(1, 2)),
    Scenario("two merged", (Say("one"), Say("two"), Say("three")), seeds=(1, 2, 3)),
    Scenario("burst into a turn", (Say("tool one"), Say("two", "running"), Say("three"), Say("four")), seeds=(1, 2)),
    Scenario("one after the other", (Say("one"), Say("two", "quiet"), Say("three", "quiet"))),
    Scenario(
        "queue in order",
        (Say("tool one"), Say("/queue two", "running"), Say("three"), Say("/queue four"), Say("five")),
        seeds=(1, 2),
    ),
    Scenario("stop a turn", (Say("never one"), Say("two", "running"), Say("/stop"), Say("three", "quiet"))),
    Scenario("stop a turn that answers late", (Say("late one"), Say("/stop", "tool"), Say("two", "ended"))),
    Scenario("stop at the end", (Say("one"), Say("/stop", "ended"), Say("two", "quiet")), seeds=(1, 2, 3, 4)),
    Scenario(
        "stop with queue and wake",
        (
            Say("never one"),
            Say("/queue two", "running"),
            Say("wake up", wake=True),
            Say("/stop"),
            Say("three", "quiet"),
        ),
    ),
    Scenario("stop idle", (Say("one"), Say("/stop", "quiet"), Say("two"))),
    Scenario(
        "stop a long reply",
        (Say("long one"), Say("/stop", "sent"), Say("two")),
        capabilities=_SHORT,
        rules=Rules(separate_attempt=True),
        seeds=(1, 2),
    ),
    Scenario(
        "stop a long reply that fails",
        (Say("long one"), Say("/stop", "ended"), Say("two")),
        capabilities=_SHORT,
        rules=Rules(separate_attempt=True),
        sends=("plain", "arrived", "plain"),
        seeds=(1, 2, 3),
    ),
    Scenario(
        "new with everything waiting",
        (
            Say("never one"),
            Say("two", "running"),
            Say("/queue three"),
            Say("wake up", wake=True),
            Say("/new"),
            Say("four", "quiet"),
        ),
        seeds=(1, 2),
    ),
    Scenario(
        "an album", (Say("one", album="a"), Say("two", album="a"), Say("three"), Say("four", album="a")), seeds=(1, 2)
    ),
    Scenario("edits", (Say("never one"), Say("two", "running"), Say("TWO", edit_of="in2"), Say("/stop", "quiet"))),
    Scenario("an edit of what is over", (Say("one"), Say("ONE", "quiet", edit_of="in1"), Say("two", "quiet"))),
    Scenario("two news and an order", (Say("one"), Say("/new", "running"), Say("two"), Say("/new"), Say("three"))),
    Scenario("other commands", (Say("/status"), Say("one"), Say("/help", "running"), Say("/nonsense"), Say("/queue"))),
    Scenario(
        "undo, redo, retry",
        (
            Say("one"),
            Say("tool two", "quiet"),
            Say("/undo", "quiet"),
            Say("three"),
            Say("/redo", "quiet"),
            Say("/undo", "quiet"),
            Say("/redo"),
            Say("/retry", "quiet"),
            Say("four", "running"),
        ),
    ),
    Scenario("retry without a slot", (Say("one"), Say("tool two", "quiet", "2"), Say("/retry")), slots_max=1),
    Scenario(
        "a conversation taken up again",
        (Say("/new plan"), Say("one"), Say("/new", "quiet"), Say("two"), Say("/resume plan", "quiet"), Say("three")),
    ),
    Scenario("one tool", (Say("tool one"),), seeds=(1, 2)),
    Scenario("parallel tools", (Say("tools one"), Say("two", "tool"))),
    Scenario("serial tools", (Say("serial one"),)),
    Scenario("rounds of tools", (Say("rounds one"), Say("two", "tool"))),
    Scenario("long reply", (Say("long one"), Say("two", "sent")), capabilities=_SHORT),
    Scenario(
        "long reply, separate attempts",
        (Say("long one"), Say("two", "sent")),
        capabilities=_SHORT,
        rules=Rules(separate_attempt=True),
    ),
    Scenario(
        "draft, then stopped",
        (Say("draft one"), Say("/stop", "sent"), Say("two", "quiet")),
        capabilities=_EDITS,
        rules=Rules(separate_attempt=True),
    ),
    Scenario("draft, unclear", (Say("draft one"), Say("/stop", "quiet")), capabilities=_EDITS, sends=("arrived",)),
    Scenario("long reply, idempotent", (Say("long one"),), capabilities=_SHORT_IDEMPOTENT),
    Scenario("idempotent", (Say("one"), Say("two", "sent")), capabilities=_IDEMPOTENT),
    Scenario("idempotent, unclear", (Say("one"),), capabilities=_IDEMPOTENT, sends=("arrived", "lost")),
    Scenario("separate attempt", (Say("one"), Say("two", "running")), rules=Rules(separate_attempt=True)),
    Scenario("send refused, then taken", (Say("one"), Say("two")), sends=("plain", "plain")),
    Scenario("send refused for good", (Say("one"), Say("two", "quiet")), sends=("permanent",)),
    Scenario("send arrived, unclear", (Say("one"), Say("two")), sends=("arrived",)),
    Scenario("send lost, unclear", (Say("one"),), sends=("lost",)),
    Scenario("doubt, then a clear failure", (Say("one"),), sends=("arrived", "plain")),
    Scenario("clear failure, then doubt", (Say("one"),), sends=("plain", "arrived", "plain")),
    Scenario("doubt without end", (Say("one"), Say("two", "quiet")), sends=("lost", "arrived", "lost", "lost")),
    Scenario(
        "two lanes, one slot",
        (Say("tool one"), Say("two", chat="2"), Say("three"), Say("four", chat="2")),
        slots_max=1,
        seeds=(1, 2),
    ),
    Scenario(
        "stop frees the slot",
        (Say("never one"), Say("two", "running", chat="2"), Say("/stop"), Say("three", "quiet")),
        slots_max=1,
    ),
    Scenario("given again", (Say("one"), Again(1), Again(1, "running"), Again(1, "quiet")), seeds=(1, 2)),
    Scenario("given again from a cursor", (Say("one"), Say("two"), Again(1, "ended")), capabilities=_CURSOR),
    Scenario("never given again", (Say("one"), Say("two", "running"), Say("three", "quiet")), capabilities=_IRC),
    Scenario("agent fails", (Say("fail one"), Say("two", "running"))),
    Scenario("agent is silent", (Say("silent one"), Say("two", "quiet"))),
    Scenario(
        "three deaths in one turn",
        (Say("tool one"), Say("two", "quiet"), Say("three", "quiet")),
        storms=(
            _dies("after start", 3),
            _dies("before start", 3),
            _dies("after tool", 3),
            _dies("after start", 4),
            (*_dies("after start", 3), Fate(at="before send")),
            (*_dies("after start", 3), Fate(at=0), Fate(at=1)),
            (*_dies("after start", 2), Fate(at="after arrival")),
        ),
    ),
    Scenario(
        "three deaths with a queue",
        (Say("tool one"), Say("/queue two", "running"), Say("three")),
        storms=(
            _dies("after start", 3),
            _dies("after start", 5),
            _dies("before tool", 3),
        ),
    ),
    Scenario(
        "accepting unknown, done", (Say("one"), Say("two")), strike=_struck("inbox/accepted", Fault.UNKNOWN_DONE, 2)
    ),
    Scenario(
        "accepting unknown, lost", (Say("one"), Say("two")), strike=_struck("inbox/accepted", Fault.UNKNOWN_LOST, 2)
    ),
    Scenario("accepting refused", (Say("one"), Say("two")), strike=_struck("inbox/accepted", Fault.REFUSED, 2)),
    Scenario("end unknown, done", (Say("one"), Say("two", "ended")), strike=_struck("turn/end", Fault.UNKNOWN_DONE, 3)),
    Scenario("end unknown, lost", (Say("one"), Say("two", "ended")), strike=_struck("turn/end", Fault.UNKNOWN_LOST, 3)),
    Scenario(
        "end refused", (Say("one"), Say("two", "ended"), Say("/stop")), strike=_struck("turn/end", Fault.REFUSED, 3)
    ),
    Scenario(
        "end refused, and nobody stops", (Say("one"), Say("two", "ended")), strike=_struck("turn/end", Fault.REFUSED, 3)
    ),
    Scenario("tool refused", (Say("tool one"),), strike=_struck("tool/call", Fault.REFUSED, 2)),
    Scenario("result unknown, done", (Say("serial one"),), strike=_struck("tool/result", Fault.UNKNOWN_DONE, 2)),
    Scenario(
        "attempt refused",
        (Say("one"),),
        rules=Rules(separate_attempt=True),
        strike=_struck("delivery/attempt", Fault.REFUSED, 2),
    ),
    Scenario(
        "settling unknown, lost",
        (Say("one"), Say("two", "sent")),
        strike=_struck("delivery/settled", Fault.UNKNOWN_LOST, 2),
    ),
    Scenario(
        "recovery refused",
        (Say("tool one"), Say("two", "running")),
        strike=_struck("inbox/interrupted", Fault.REFUSED, 2),
    ),
    Scenario(
        "recovery unknown",
        (Say("tool one"), Say("two", "running")),
        strike=_struck("inbox/interrupted", Fault.UNKNOWN_DONE, 2),
    ),
    Scenario(
        "rest and a message",
        (
            Say("one"),
            Say("two", "quiet", chat="2"),
            Say("three", "resting"),
            Say("four", "quiet", chat="2"),
            Say("five", "resting"),
        ),
        warm_max=1,
        seeds=(1, 2, 3, 4),
    ),
    Scenario(
        "long logs",
        (
            Say("one"),
            Say("two", "quiet"),
            Say("tool three", "quiet"),
            Say("/queue four", "running"),
            Say("five", "quiet", chat="2"),
            Say("six", "resting"),
            Say("seven", "quiet", chat="2"),
            Say("eight", "quiet"),
        ),
        warm_max=1,
        growth=Growth(events=6, rest_events=1, compact_events=9, step_commits=2),
        seeds=(1, 2),
    ),
    Scenario(
        "a chat gets a new id",
        (Say("one"), Say("two", "quiet"), Same("1", "2", "quiet"), Say("three", chat="2"), Say("four", "quiet")),
        seeds=(1, 2, 3),
    ),
    Scenario(
        "a chat gets a new id in mid-turn",
        (
            Say("tool one"),
            Same("1", "2", "running"),
            Say("/queue two"),
            Say("three", chat="2"),
            Say("four"),
            Say("five", "quiet", chat="2"),
        ),
        seeds=(1, 2, 3),
    ),
    Scenario(
        "a chat gets a new id while replies are owed",
        (Say("long one"), Say("two", chat="2"), Same("1", "2", "sent"), Say("three", "quiet")),
        capabilities=_SHORT,
        rules=Rules(separate_attempt=True),
        sends=("plain", "arrived", "plain"),
        seeds=(1, 2, 3),
    ),
    Scenario(
        "two chats of one turn slot become one",
        (Say("tool one"), Say("two", chat="2"), Same("1", "2"), Same("2", "1"), Say("three"), Say("/stop", chat="2")),
        slots_max=1,
        seeds=(1, 2),
    ),
    Scenario(
        "a chat gets a new id while people write under both",
        (
            Say("tool one"),
            Same("1", "2", "running"),
            Say("two", "ended", chat="2"),
            Say("three"),
            Say("/queue four", chat="2"),
            Say("five"),
            Say("six", chat="2"),
            Say("seven"),
        ),
        seeds=(16, 5, 61),
    ),
    Scenario(
        "merging refused",
        (Say("one"), Same("1", "2", "quiet"), Say("two", chat="2")),
        strike=_struck("lane/merged", Fault.REFUSED, 2),
    ),
    Scenario(
        "merging unknown, done",
        (Say("one"), Same("1", "2", "quiet"), Say("two", chat="2")),
        strike=_struck("lane/merged", Fault.UNKNOWN_DONE, 2),
    ),
    Scenario(
        "an alias unknown, lost",
        (Say("one"), Same("1", "2", "quiet"), Say("two", chat="2")),
        strike=_struck("alias/learnt", Fault.UNKNOWN_LOST, 2),
    ),
    Scenario(
        "a conversation moves",
        (
            Say("one"),
            Say("two", "quiet", chat="2"),
            Switch("1", "2"),
            Say("three", chat="2"),
            Say("four"),
            Switch("2", "1"),
            Say("five", "quiet"),
        ),
        seeds=(1, 2),
    ),
    Scenario(
        "a conversation taken up in another topic",
        (
            Say("/new plan"),
            Say("one"),
            Say("two", "quiet", topic="7"),
            Say("tool three", "quiet"),
            Say("/resume plan", "running", topic="7"),
            Say("/resume plan", "quiet", topic="7"),
            Say("four", "quiet", topic="7"),
            Say("five", "quiet"),
        ),
        seeds=(1, 2),
    ),
    Scenario(
        "what is said behind a command that another lane decides",
        (
            Say("/new plan"),
            Say("one"),
            Say("two", "quiet", topic="7"),
            Say("tool three", "quiet"),
            Say("/resume plan", "running", topic="7"),
            Say("four", topic="7"),
            Say("/undo", topic="7"),
            Say("/resume plan", "quiet", topic="7"),
            Say("/queue five", topic="7"),
            Say("six", topic="7"),
            Say("seven"),
        ),
        seeds=(1, 2),
    ),
    Scenario(
        "a command that another lane decides while both get a new id",
        (
            Say("/new plan"),
            Say("one"),
            Say("two", "quiet", topic="7"),
            Same("1", "2", "quiet"),
            Say("/resume plan", topic="7"),
            Say("three", topic="7"),
            Say("/undo", topic="7"),
            Say("four"),
        ),
        seeds=(6, 8),
    ),
    Scenario("undo", (Say("one"), Say("tool two", "quiet"), Say("/undo", "quiet"), Say("three"))),
    Scenario("undo amid a turn", (Say("one"), Say("tool two", "quiet"), Say("/undo", "running"), Say("three"))),
    Scenario("retry", (Say("tool one"), Say("/retry", "quiet"), Say("two", "running"))),
    Scenario("drain runs out", (Say("tool one"), Stop("restart", "running"), Say("two", "quiet"))),
    Scenario("drain runs out with a queue", (Say("tool one"), Say("/queue two", "running"), Say("three"), Stop())),
    Scenario("drain waits for the turn", (Say("tool one"), Say("two", "running"), Stop(waits=True), Say("three"))),
    Scenario(
        "three drains run out in one turn",
        (
            Say("tool one"),
            Stop("restart", "running"),
            Stop("shutdown", "running"),
            Stop("restart", "running"),
            Say("two"),
        ),
    ),
    Scenario(
        "deaths inside recovery",
        (Say("tool one"), Say("two", "quiet")),
        storms=tuple(
            (Fate(at="after tool"), second)
            for second in (
                Fate(at="before commit inbox/interrupted"),
                Fate(at="after commit inbox/interrupted"),
                Fate(at="after commit inbox/interrupted", torn=True),
                Fate(at="before start"),
            )
        ),
    ),
    Scenario(
        "recovery without a slot",
        (Say("tool one"), Say("tool two", chat="2"), Say("three", "quiet")),
        slots_max=1,
        storms=(
            _dies("after start", 2),
            (Fate(at="after start"), Fate(at="after commit inbox/interrupted")),
            (Fate(at="after start"), Fate(at="after commit inbox/interrupted"), Fate(at="after start")),
        ),
    ),
    Scenario("wake given again", (Say("never one"), Say("wake up", "running", wake=True), Again(2), Say("/stop"))),
    Scenario(
        "platform down for hours",
        (Say("one"), Say("two", "sent"), Say("three", "quiet")),
        sends=("plain",) * 6,
    ),
    Scenario(
        "platform down for longer than a reply may wait",
        (Say("one"), Say("two", "quiet")),
        sends=("plain",) * 8,
        age_ms_max=120_000,
    ),
    Scenario("clock set back", (Say("tool one"), Say("two", "sent"), Say("three", "quiet")), away_ms=-86_400_000),
    Scenario(
        "clock ahead by days",
        (Say("tool one"), Say("two", "sent"), Say("three", "quiet")),
        rules=Rules(freshness_ms=10 * 86_400_000),
        away_ms=3 * 86_400_000,
    ),
    Scenario("a question and its answer", (Say("ask one"), Say("/approve ?", "quiet"), Say("two")), seeds=(1, 2)),
    Scenario(
        "a question, and a stop",
        (Say("ask one"), Say("two", "quiet"), Say("/stop"), Say("/approve ?"), Say("three", "quiet")),
    ),
    Scenario(
        "interrupt",
        (Say("never one"), Say("two", "running"), Say("/stop", "quiet"), Say("three", "quiet")),
        rules=Rules(busy="interrupt"),
        seeds=(1, 2),
    ),
    Scenario("steer", (Say("steer one"), Say("two"), Say("three", "tool")), rules=Rules(busy="steer"), seeds=(1, 2, 3)),
    Scenario("background work", (Say("delegate one"), Say("two", "quiet")), seeds=(1, 2)),
    Scenario("background work is stopped", (Say("watch one"), Say("/stop", "quiet"), Say("two", "quiet"))),
    Scenario("background work and a new conversation", (Say("watch one"), Say("/new", "quiet"), Say("two"))),
    Scenario("slow writer", (Say("one"), Say("two"), Say("tool three", "quiet")), slow_writer=True),
    Scenario("slow writer, given again", (Say("one"), Again(1)), slow_writer=True),
    Scenario("slow writer, stop", (Say("tool one"), Say("/stop", "running"), Say("two")), slow_writer=True),
)
"""Seeds beyond the first are orders of the same script in which other things meet."""
