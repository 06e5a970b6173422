"""A rule that needs what a session shows asks first; what waits behind it keeps its order."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from seriatim.answering import accept_command, answer_command
from seriatim.batch import Batch
from seriatim.commands import COMMANDS
from seriatim.edits import undo
from seriatim.effects import Finished, Nack, ReadShown
from seriatim.errors import CorruptionError
from seriatim.mail import Inbound
from seriatim.shown import Loaded, Shown
from tests.core.bench import Bench

SEEN: list[tuple[str, ...]] = []


def texts(shown: Shown) -> tuple[str, ...]:
    """What is shown, as text, oldest first."""
    return tuple(shown.events[seq].data["text"] for seq in shown.surface.seqs())


def peek(batch: Batch, m: Inbound) -> None:
    """A command that looks at the session (its argument, else the bound one)."""
    shown = batch.shown(m.args or None, whole=m.args == "whole")
    SEEN.append(("nothing",) if shown is None else texts(shown))
    accept_command(batch, m)
    answer_command(batch, m, "seen")


def take_back(batch: Batch, m: Inbound) -> None:
    """A command that undoes one turn."""
    shown = batch.shown()
    assert shown is not None
    accept_command(batch, m)
    batch.append(shown.part, undo(shown.surface, 1, batch.time).events)
    again = batch.shown()
    assert again is not None
    SEEN.append(texts(again))
    answer_command(batch, m, "undone")


def go_to(batch: Batch, m: Inbound) -> None:
    """A command that binds the lane to another session of its own."""
    shown = batch.shown(m.args)
    assert shown is not None
    accept_command(batch, m)
    batch.bind_known(shown, "switch")
    answer_command(batch, m, "there")


@pytest.fixture(autouse=True)
def commands(monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands above."""
    rules: dict[str, Callable[[Batch, Inbound], None]] = {"peek": peek, "back": take_back, "goto": go_to}
    for name, rule in rules.items():
        monkeypatch.setitem(COMMANDS, name, rule)
    SEEN.clear()


def talk(bench: Bench, *said: str) -> None:
    """Turns that are over."""
    for text in said:
        bench.said(text)
        bench.answer(f"re {text}")


def test_what_a_session_shows_is_read_when_a_rule_needs_it() -> None:
    """The rule gets the messages up to the lane's own head, and nothing is in flight while they are read."""
    bench = Bench()
    talk(bench, "a", "b")
    bench.reads = False
    command = bench.say("/peek")
    [wanted] = bench.all(ReadShown)
    assert bench.offered is None
    bench.read(wanted)
    bench.drain()
    assert SEEN == [("a", "re a", "b", "re b")]
    assert bench.outcome(command) == "answered"


def test_mail_behind_it_waits_and_keeps_its_order() -> None:
    """What came before the asking message is durable first; what came after is decided after it."""
    bench = Bench()
    talk(bench, "a")
    bench.reads = False
    bench.say("before")  # in flight; the others meet in the stash
    status = bench.say("/status")
    bench.say("/peek")
    after = bench.say("after")
    bench.drain()
    assert bench.offered is None
    assert bench.outcome(status) == "answered"
    assert after not in bench.gate.durable.waiting
    bench.read(bench.all(ReadShown)[-1])
    bench.drain()
    assert SEEN == [("a", "re a", "before")]
    assert after in bench.gate.durable.waiting


def test_a_session_made_in_the_same_commit_needs_no_reading() -> None:
    """After /new in the same batch the session is known to show nothing."""
    bench = Bench()
    talk(bench, "a")
    bench.say("/status")  # in flight
    bench.say("/new")
    bench.say("/peek")
    bench.drain()
    assert SEEN == [()]
    assert bench.all(ReadShown) == []


def test_what_is_read_is_used_for_one_batch_only() -> None:
    """Two looks read twice, so that no rule decides from what a later commit has made old."""
    bench = Bench()
    talk(bench, "a")
    bench.said("/peek")
    talk(bench, "b")
    bench.said("/peek")
    assert SEEN == [("a", "re a"), ("a", "re a", "b", "re b")]
    assert len(bench.all(ReadShown)) == 2


def test_edits_of_a_surface_are_drafted_as_they_were_made() -> None:
    """An undo's events go to the session's log, later looks in the batch see them, and replay equals live."""
    bench = Bench()
    talk(bench, "a", "b")
    bench.said("/back")
    assert SEEN == [("a", "re a")]
    assert bench.gate.durable == bench.fold()
    bench.said("/peek")
    assert SEEN[-1] == ("a", "re a")


def test_a_lane_goes_on_with_an_earlier_session() -> None:
    """Bound again, a session has its head and its turns, live as in replay."""
    bench = Bench()
    talk(bench, "a")
    first = bench.gate.durable.bound
    bench.said("/new")
    talk(bench, "b")
    bench.said(f"/goto {first}")
    assert bench.gate.durable.bound == first
    assert bench.gate.durable == bench.fold()
    talk(bench, "c")
    bench.said("/peek")
    assert SEEN[-1] == ("a", "re a", "c", "re c")
    assert bench.gate.durable == bench.fold()


def test_no_session_of_that_name_is_told_as_none() -> None:
    """A rule can ask for any session; None says that there is none."""
    bench = Bench()
    talk(bench, "a")
    bench.said("/peek nowhere")
    assert SEEN == [("nothing",)]


def test_a_session_that_cannot_be_read_fails_its_asker_alone() -> None:
    """The message is refused with the error's name, and the lane goes on."""
    bench = Bench()
    talk(bench, "a")
    bench.reads = False
    command = bench.say("/peek")
    [wanted] = bench.all(ReadShown)
    error = CorruptionError("session", "is damaged")
    bench._took(bench.gate.read(Loaded(wanted.session, wanted.whole, None, error), bench.now))
    assert bench.all(Nack)[-1] == Nack(command, "error: CorruptionError")
    bench.said("b")
    bench.answer()
    assert [end.outcome for end in bench.all(Finished)][-1] == "answered"


def test_an_incarnation_that_dies_while_it_reads_leaves_the_mail_to_its_successor() -> None:
    """Neither the asking message nor those behind it are lost."""
    bench = Bench()
    talk(bench, "a")
    bench.reads = False
    command, after = bench.say("/peek"), bench.say("after")
    assert [m.id for m in bench.gate.leftover() if isinstance(m, Inbound)] == [command, after]
    assert not bench.gate.quiescent()
