"""Queueing, commands, suspension and wakes."""

from __future__ import annotations

import pytest

from seriatim.batch import Rules
from seriatim.commands import NOTHING_TO_STOP_TEXT, parse_command
from seriatim.effects import Ack, CancelTurn, Deliver, DropDelivery, Finished, Nack, RunTurn
from seriatim.limits import COMMIT_BYTES_MAX, COMMIT_MESSAGES_MAX
from seriatim.mail import AttemptWanted
from seriatim.outbox import Channel
from seriatim.queueing import Entry, place

from .bench import Bench


def claims(bench: Bench) -> list[list[str]]:
    """The claims of every turn that was started."""
    return [[data["id"] for data, _ in run.claims] for run in bench.all(RunTurn)]


def replies(bench: Bench) -> list[str]:
    """Every reply that was owed, by its first part."""
    return [deliver.parts[0] for deliver in bench.all(Deliver)]


# --- slot and overflow ------------------------------------------------------------------------------------


def test_follow_ups_merge_in_order() -> None:
    """A busy lane's follow-ups collapse into one turn, in order, losing nothing."""
    bench = Bench()
    first = bench.said("a")
    rest = [bench.said("b"), bench.said("c"), bench.said("d")]
    bench.answer()
    assert claims(bench) == [[first], rest]
    assert [ack.outcome for ack in bench.all(Ack)] == ["accepted", "accepted", "merged", "merged"]


def test_replace_drops_the_older_follow_up() -> None:
    """Collapse = replace: the newest follow-up stays, the older is dropped{superseded}."""
    bench = Bench(Rules(collapse="replace"))
    first, older, newer = bench.said("a"), bench.said("b"), bench.said("c")
    bench.answer()
    assert bench.outcome(older) == "dropped (superseded)"
    assert claims(bench) == [[first], [newer]]


def test_only_equals_are_merged() -> None:
    """Messages of different authorisation never share a turn."""
    bench = Bench()
    bench.said("a")
    one, other = bench.said("b"), bench.said("c", role_authorized=True)
    bench.answer()
    bench.answer()
    assert claims(bench)[1:] == [[one], [other]]


def test_queue_items_have_a_turn_each_in_order() -> None:
    """/queue: exactly one full turn each, FIFO, never merged, however the turn before ended."""
    bench = Bench()
    bench.said("a")
    items = [bench.said(f"/queue {n}") for n in range(3)]
    bench.answer()
    bench.tell(bench.end(None, "failed"))
    bench.tell(bench.end(None))
    bench.answer()
    assert claims(bench)[1:] == [[item] for item in items]


def test_a_follow_up_behind_a_queue_item_joins_the_tail() -> None:
    """A follow-up that meets a /queue item joins a follow-up at the tail, or becomes the tail."""
    bench = Bench()
    bench.said("a")
    item, one, other = bench.said("/queue q"), bench.said("b"), bench.said("c")
    bench.answer()
    bench.answer()
    assert claims(bench)[1:] == [[item], [one, other]]


def test_a_queue_item_behind_a_follow_up_is_not_displaced() -> None:
    """A follow-up in the slot takes later ones in; the /queue item keeps its place and its turn."""
    bench = Bench()
    bench.said("a")
    follow, item, late = bench.said("b"), bench.said("/queue q"), bench.said("c")
    bench.answer()
    bench.answer()
    assert claims(bench)[1:] == [[follow, late], [item]]


def test_no_follow_up_overtakes_an_earlier_one() -> None:
    """With a follow-up further back in the queue, a newcomer goes behind it, not into the slot."""
    human, queued = Entry("human", ("h",), ""), Entry("queue", ("q",), "")
    newcomer = Entry("human", ("n",), "")
    assert place([human, queued, human, queued], newcomer, "merge") == "tail"
    assert place([human, queued, human], newcomer, "merge") == "join"
    assert place([human, queued], newcomer, "merge") == "join"
    assert place([queued], newcomer, "merge") == "tail"
    assert place([], newcomer, "merge") == "slot"


def test_a_merged_entry_has_bounds() -> None:
    """What one turn claims fits one commit: a full follow-up takes nobody in, the next one starts another."""
    full = Entry("human", tuple(map(str, range(COMMIT_MESSAGES_MAX))), "")
    large = Entry("human", ("l",), "", COMMIT_BYTES_MAX)
    newcomer = Entry("human", ("n",), "", 1)
    assert place([full], newcomer, "merge") == "tail"
    assert place([large], newcomer, "merge") == "tail"
    assert place([full], newcomer, "replace") == "replace"


def test_a_burst_into_a_busy_lane_needs_few_commits() -> None:
    """Five hundred messages while a commit is in flight: two commits, two entries, all acknowledged."""
    bench = Bench()
    bench.said("a")
    commits = len(bench.disk.ids)
    bench.forget()
    for _ in range(500):
        bench.say("b")
    bench.drain()
    assert len(bench.all(Ack)) == 500
    assert len(bench.disk.ids) - commits == 3
    assert [len(entry.ids) for entry in bench.gate.durable.queue] == [256, 244]


def test_a_full_queue_refuses_messages_but_not_commands() -> None:
    """Beyond the bound inbound is refused; /new and /stop still get through, or nobody could clear it."""
    bench = Bench(Rules(waiting_max=3))
    for text in ("a", "b", "c", "d", "/queue e"):
        bench.said(text)
    assert [nack.reason for nack in bench.all(Nack)] == ["queue_full", "queue_full"]
    bench.said("/new")
    assert len(bench.all(Nack)) == 2
    assert bench.gate.durable.queue == []


# --- commands -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("/stop", ("stop", "")),
        ("/STOP ", ("stop", "")),
        ("/queue  do it ", ("queue", "do it")),
        ("/queue\ndo it\nall", ("queue", "do it\nall")),
        ("/queue\tx", ("queue", "x")),
        ("/ stop", None),
        ("/", None),
        ("stop", None),
        (" /stop", None),
        ("/usr/bin", None),
        ("/1", None),
        ("/" + "a" * 33, None),
    ],
)
def test_what_is_a_command(text: str, command: tuple[str, str] | None) -> None:
    """The prefix and letters at the very beginning; any white space ends the name."""
    assert parse_command(text, "/") == command
    assert parse_command(text, "") is None


@pytest.mark.parametrize("text", ["/status", "/help", "/frobnicate", "/queue", "/stop", "/new"])
def test_commands_are_answered_in_their_own_commit(text: str) -> None:
    """A command is accepted, done, answered and its reply owed in one commit; it never becomes user text."""
    bench = Bench()
    bench.said("hi")
    bench.answer()
    bench.forget()
    command = bench.said(text)
    assert len({permit.commit for permit in bench.permits}) == 1
    assert [type(effect) for effect in bench.effects if getattr(effect, "id", "") == command] == [Ack, Finished]
    assert len(replies(bench)) == 1
    assert bench.outcome(command) == "answered"
    assert all(e.data["id"] != command for e in bench.session_events() if e.type == "user/message")


def test_a_command_may_be_the_first_word() -> None:
    """A lane that has no session yet answers commands."""
    bench = Bench()
    bench.said("/status")
    bench.said("/stop")
    bench.said("/new")
    assert len(replies(bench)) == 3


def test_new_clears_human_work_and_starts_afresh() -> None:
    """/new ends the turn, drops follow-ups and /queue items, binds a fresh session; the next turn knows."""
    bench = Bench()
    running, follow, item = bench.said("a"), bench.said("b"), bench.said("/queue c")
    old = bench.gate.durable.bound
    bench.said("/new")
    assert [bench.outcome(i) for i in (running, follow, item)] == ["answered", "dropped (reset)", "dropped (reset)"]
    assert bench.gate.durable.bound != old
    assert [e.data["reason"] for e in bench.session_events(old) if e.type == "turn/end"] == [
        {"kind": "aborted", "detail": "new"}
    ]
    bench.said("d")
    run = bench.all(RunTurn)[-1]
    assert (run.boundary, run.had_activity, run.number) == ("fresh", True, 1)
    bench.answer()
    bench.said("e")
    assert bench.all(RunTurn)[-1].boundary == "none"


def test_wakes_survive_new() -> None:
    """/new drops people's work, not wakes: the wake starts at once, in the fresh session."""
    bench = Bench()
    bench.said("a")
    bench.said("b")
    wake = bench.wake()
    bench.said("/new")
    assert claims(bench)[-1] == [wake]
    assert bench.all(RunTurn)[-1].session == bench.gate.durable.bound


def test_stop_ends_the_turn_and_drops_the_slot_only() -> None:
    """/stop: the turn is aborted{user}, the slot's follow-up dropped; a wake takes its place, /queue items run."""
    bench = Bench()
    running, follow, item = bench.said("a"), bench.said("b"), bench.said("/queue c")
    wake = bench.wake()
    session = bench.gate.durable.bound
    bench.said("/stop")
    assert (bench.outcome(running), bench.outcome(follow)) == ("answered", "dropped (stop)")
    assert [cancel.generation for cancel in bench.all(CancelTurn)] == [1]
    assert claims(bench)[-1] == [wake]
    bench.answer()
    assert claims(bench)[-1] == [item]
    assert {run.session for run in bench.all(RunTurn)} == {session}


def test_stop_leaves_a_queue_item_in_the_slot() -> None:
    """A /queue item that holds the slot is not dropped by /stop."""
    bench = Bench()
    bench.said("a")
    item = bench.said("/queue b")
    bench.said("/stop")
    assert claims(bench)[-1] == [item]


def test_after_stop_the_first_human_message_starts_afresh() -> None:
    """The stopped session is suspended: a wake runs in it, the next person's message in a new one."""
    bench = Bench()
    bench.said("a")
    stopped = bench.gate.durable.bound
    bench.said("/stop")
    bench.wake()
    assert bench.all(RunTurn)[-1].session == stopped
    bench.answer()
    assert bench.gate.durable.suspended_at is not None
    bench.said("b")
    run = bench.all(RunTurn)[-1]
    assert (run.session != stopped, run.boundary) == (True, "suspended")
    assert bench.gate.durable.suspended_at is None


def test_stop_does_not_suspend_when_told_not_to() -> None:
    """commands.stop_suspends = false: the conversation goes on."""
    bench = Bench(Rules(stop_suspends=False))
    bench.said("a")
    session = bench.gate.durable.bound
    bench.said("/stop")
    bench.said("b")
    assert bench.all(RunTurn)[-1].session == session


def test_an_idle_stop_changes_nothing() -> None:
    """/stop with nothing to stop says so and suspends nothing."""
    bench = Bench()
    bench.said("a")
    bench.answer()
    bench.said("/stop")
    assert replies(bench)[-1] == NOTHING_TO_STOP_TEXT
    assert bench.gate.durable.suspended_at is None


def test_a_second_stop_does_not_reach_back() -> None:
    """What was queued after the first /stop starts afresh, even if a second /stop comes before its turn."""
    bench = Bench()
    bench.said("a")
    before = bench.said("/queue b")
    stopped = bench.gate.durable.bound
    bench.said("/stop")
    after = bench.said("/queue c")
    bench.said("/stop")
    runs = {tuple(ids): run.session for ids, run in zip(claims(bench), bench.all(RunTurn), strict=True)}
    assert runs[before,] == stopped
    assert runs[after,] != stopped


def test_stop_after_the_end_is_too_late() -> None:
    """/stop behind T4 suspends nothing and gives up only what surely nobody has tried to send."""
    bench = Bench(Rules(separate_attempt=True))
    bench.said("a")
    bench.answer()
    delivery = bench.all(Deliver)[0].delivery
    bench.said("/stop")
    assert bench.gate.durable.suspended_at is None
    assert [drop.delivery for drop in bench.all(DropDelivery)] == [delivery]
    assert [e.data["reason"] for e in bench.lane_events("delivery/abandoned")] == ["stop"]


@pytest.mark.parametrize("how", ["recorded with the debt", "recorded by itself", "idempotent"])
def test_stop_never_abandons_what_may_have_been_sent(how: str) -> None:
    """A reply with any recorded attempt, or whose debt is its attempt, survives /stop."""
    bench = Bench(Rules(separate_attempt=how == "recorded by itself"), channel=Channel(True, how == "idempotent"))
    bench.said("a")
    bench.answer()
    if how == "recorded by itself":
        bench.tell(AttemptWanted(bench.all(Deliver)[0].delivery, 0))
    bench.channel = Channel()  # the adapter is gone now: what it was still counts
    bench.said("/stop")
    assert bench.lane_events("delivery/abandoned") == []


def test_arrival_order_is_kept_by_commands() -> None:
    """A message and a /stop in one commit: the message is started, then stopped."""
    bench = Bench()
    bench.said("/help")
    bench.say("/help")
    message = bench.say("do X")
    bench.say("/stop")
    bench.drain()
    kinds = [type(effect) for effect in bench.effects if isinstance(effect, RunTurn | CancelTurn)]
    assert kinds == [RunTurn, CancelTurn]
    assert bench.outcome(message) == "answered"


def test_a_draining_lane_accepts_and_waits() -> None:
    """While draining no turn starts, and nothing is refused."""
    bench = Bench()
    bench.now.draining = True
    inbox_id = bench.said("a")
    assert len(bench.all(Ack)) == 1
    assert bench.all(RunTurn) == []
    bench.now.draining = False
    bench.reopen()
    assert claims(bench) == [[inbox_id]]
