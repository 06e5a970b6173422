"""/resume: by number, title or id, and never anybody else's conversation."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from seriatim.effects import MoveHere, RunTurn
from seriatim.keys import SessionKey
from seriatim.mail import Inbound, MoveRefused
from seriatim.model import SessionSource
from seriatim.resuming import ALREADY_TEXT
from seriatim.scope import asker_of, in_scope, prefix_of
from tests.commands.test_surface_commands import shows, talk
from tests.core.bench import Bench
from tests.core.test_lanes import replies


def two(bench: Bench) -> list[str]:
    """Two titled conversations with a turn each; their ids."""
    made = []
    for title in ("plan", "trip"):
        bench.said(f"/new {title}")
        talk(bench, f"about {title}")
        assert bench.gate.durable.bound is not None
        made.append(bench.gate.durable.bound)
    return made


@pytest.mark.parametrize("how", ["2", "plan", "PLAN", "“plan”", "id"])
def test_a_conversation_is_taken_up_by_number_title_or_id(how: str) -> None:
    """The lane goes on with it: what it shows, its numbers, its title."""
    bench = Bench()
    plan, _ = two(bench)
    bench.said("/resume")
    assert "1. trip" in replies(bench)[-1]
    assert "2. plan" in replies(bench)[-1]
    bench.said(f"/resume {plan if how == 'id' else how}")
    assert "plan" in replies(bench)[-1]
    assert bench.gate.durable.bound == plan
    talk(bench, "more")
    run = bench.all(RunTurn)[-1]
    assert (run.session, run.number, run.boundary) == (plan, 2, "none")
    assert shows(bench) == ["about plan", "re about plan", "more", "re more"]
    bench.reopen()
    assert bench.gate.durable.bound == plan
    assert shows(bench)[-1] == "re more"


def test_a_number_means_what_the_last_list_said() -> None:
    """A conversation that gets a title meanwhile doesn't move the numbers that people see."""
    bench = Bench()
    _, trip = two(bench)
    bench.said("/resume")
    bench.said("/new third")
    bench.said("/resume 1")
    assert bench.gate.durable.bound == trip


def test_a_stopped_conversation_is_taken_up_again() -> None:
    """/stop names the way back; after it the next message goes on in the same session."""
    bench = Bench()
    talk(bench, "a")
    bound = bench.gate.durable.bound
    bench.said("b")
    bench.said("/stop")
    assert f"/resume {bound}" in replies(bench)[-1]
    bench.said(f"/resume {bound}")
    assert bench.gate.durable.suspended_at is None
    bench.said("c")
    assert bench.all(RunTurn)[-1].session == bound
    bench.answer("re c")
    bench.said(f"/resume {bound}")
    assert replies(bench)[-1] == ALREADY_TEXT


def test_a_busy_lane_refuses() -> None:
    """B45: while a turn runs nothing is switched; all that the turn writes stays in its own session."""
    bench = Bench()
    plan, trip = two(bench)
    bench.said("more")
    bench.said(f"/resume {plan}")
    assert "/stop" in replies(bench)[-1]
    bench.answer("re more")
    assert bench.gate.durable.bound == trip
    assert shows(bench) == ["about trip", "re about trip", "more", "re more"]


def test_what_is_not_there_is_not_found() -> None:
    """An id or a title that doesn't exist, and a number that no list said, get the same answer and change nothing."""
    bench = Bench()
    _, trip = two(bench)
    for wanted in ("nothing", "s999", "7", "../etc", "x" * 500):
        bench.said(f"/resume {wanted}")
        assert "There is no conversation" in replies(bench)[-1]
    assert bench.gate.durable.bound == trip


def test_without_titles_there_is_nothing_to_list() -> None:
    """The answer says how to give one."""
    bench = Bench()
    talk(bench, "a")
    bench.said("/resume")
    assert "/title" in replies(bench)[-1]


class _Flags:
    group_sessions_per_user = True
    thread_sessions_per_user = False


def key(account: str = "bot", **source: object) -> str:
    """A lane's key."""
    return SessionKey.from_source(SessionSource(**source), _Flags(), account).canonical  # type: ignore[arg-type]


DM = {"platform": "telegram", "chat_id": "1", "user_id": "alice"}
ROOM = {"platform": "telegram", "chat_id": "-5", "chat_type": "group", "user_id": "alice"}


def test_scope_is_what_is_ones_own() -> None:
    """From a direct message: its topics, and one's own lanes in groups. From such a lane: the others of the kind."""
    dm, room = key(**DM), key(**ROOM)
    assert in_scope(dm, "alice", dm)
    assert in_scope(dm, "alice", key(**DM, thread_id="7"))
    assert in_scope(dm, "alice", room)
    assert in_scope(room, "alice", key(**{**ROOM, "chat_id": "-6"}))


def test_nobody_elses_conversation_is_in_scope() -> None:
    """B12: another person, another platform, account or workspace, a shared lane, or a direct message from a room."""
    dm, room, thread = key(**DM), key(**ROOM), key(**{**ROOM, "thread_id": "9"})
    assert not in_scope(dm, "alice", key(**{**DM, "chat_id": "2", "user_id": "bob"}))
    assert not in_scope(dm, "alice", key(**{**ROOM, "user_id": "bob"}))
    assert not in_scope(dm, "alice", key(**{**ROOM, "platform": "signal"}))
    assert not in_scope(dm, "alice", key("other", **ROOM))
    assert not in_scope(room, "alice", key(**{**ROOM, "guild_id": "g"}))
    assert not in_scope(room, "alice", dm)
    assert not in_scope(dm, "alice", thread)
    assert not in_scope(thread, "alice", dm)
    assert not in_scope(room, "bob", key(**{**ROOM, "chat_id": "-6"}))
    assert not in_scope(dm, "", key(**{**ROOM, "user_id": ""}))
    assert not in_scope("no key", "alice", dm)


def test_no_turn_starts_while_a_session_is_being_moved_here() -> None:
    """What comes behind the command waits for the supervisor's answer: refused, it is said in the old conversation."""
    place = {"platform": "sim", "chat_id": "chat", "user_id": "u"}
    bench, foreign = Bench(), Bench()
    bench.key = key(**place)
    bench.start()
    talk(bench, "mine")
    foreign.store, foreign.disk, foreign.key = bench.store, bench.disk, key(**place, thread_id="7")
    foreign._ids = 1_000
    foreign.start()
    talk(foreign, "theirs")
    bench.forget()
    bench.say("/status")
    bench.say(f"/resume {foreign.gate.durable.bound}")
    bench.say("next")
    bench.drain()
    [move] = bench.all(MoveHere)
    assert bench.all(RunTurn) == []
    assert [mail.event.text for mail in bench.gate.leftover() if isinstance(mail, Inbound)] == ["next"]
    bench.tell(MoveRefused(move.command, "busy"))
    assert [run.session for run in bench.all(RunTurn)] == [bench.gate.durable.bound]
    assert "busy" in replies(bench)[-1]


def test_a_command_behind_one_that_another_lane_decides_acts_where_that_leads() -> None:
    """/undo takes nothing back of a conversation that is being left, and is taken in behind the command before it."""
    place = {"platform": "sim", "chat_id": "chat", "user_id": "u"}
    bench, foreign = Bench(), Bench()
    bench.key = key(**place)
    bench.start()
    talk(bench, "mine")
    foreign.store, foreign.disk, foreign.key = bench.store, bench.disk, key(**place, thread_id="7")
    foreign._ids = 1_000
    foreign.start()
    talk(foreign, "theirs")
    bench.forget()
    bench.say(f"/resume {foreign.gate.durable.bound}")
    bench.say("/undo")
    bench.drain()
    [move] = bench.all(MoveHere)
    assert shows(bench) == ["mine", "re mine"]
    assert bench.gate.may_end()  # as it has to, for the move to be made
    bench.tell(MoveRefused(replace(move.command, id="another"), "busy"))
    assert shows(bench) == ["mine", "re mine"]
    bench.tell(MoveRefused(move.command, "busy"))
    assert shows(bench) == []
    taken = [event.data.get("command") for event in bench.lane_events() if event.type == "inbox/accepted"][-2:]
    assert taken == ["resume", "undo"]


def test_only_ones_own_platform_is_looked_through() -> None:
    """The prefix holds every lane in scope; a shared lane has none."""
    dm = key(**DM)
    prefix = prefix_of(dm)
    assert prefix is not None
    assert ("lane:" + key(**ROOM)).startswith(prefix)
    assert prefix_of(key(**{**ROOM, "thread_id": "9"})) is None
    assert asker_of(SessionSource("whatsapp", "1", user_id="+49 1@s.whatsapp.net")) != ""
