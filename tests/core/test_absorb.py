"""Nothing that an absorbed lane held is lost: field by field of a lane's state, for any two lanes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from seriatim.events import Data, Event
from seriatim.facts import Facts, Used
from seriatim.lane import (
    Approval,
    Delegation,
    LaneState,
    Owed,
    PartState,
    Running,
    SessionPart,
    Unreached,
    Waiting,
    apply_lane,
)
from seriatim.merging import Pair, merge
from seriatim.model import Target
from seriatim.queueing import Entry

CHATS: Final = {"old": "new"}
"""The chat that the platform has replaced, in every merge here."""

TIMES = st.integers(1, 1_000)


def accepted(name: str, chat: str, kind: str = "human") -> Data:
    """A waiting message's data."""
    source = {"platform": "fake", "chat_id": chat, "user_id": "u"}
    return {"id": name, "kind": kind, "place": "slot", "text": f"text of {name}", "source": source}


@st.composite
def lanes(draw: st.DrawFn, name: str) -> LaneState:
    """A lane without a running turn; its ids begin with its name, but for the questions', which each lane counts."""
    chats = st.sampled_from(["old", "kept"])
    state = LaneState(name, head=draw(st.integers(0, 1)) * 500)
    ids = [f"{name}{n}" for n in range(draw(st.integers(0, 6)))]
    for n, inbox_id in enumerate(ids):
        state.waiting[inbox_id] = Waiting(accepted(inbox_id, draw(chats)), n, draw(TIMES))
    cut = draw(st.integers(0, len(ids)))
    state.queue = [Entry(draw(st.sampled_from(["human", "queue", "wake"])), (i,), "a", 3) for i in ids[:cut]]
    state.interrupted = tuple(Running((i,), "human", f"{name} s", 1, 1, 1, draw(TIMES)) for i in ids[cut:])
    state.accepted = len(ids)
    claims = [turn.ids[0] for turn in state.interrupted]
    asked = draw(st.lists(st.sampled_from(["1-1", "1-2", "1-1a", "1-1b"]), unique=True, max_size=len(claims)))
    state.approvals = tuple(
        Approval(question, claim, "1 approve", f"{name} {question}?", 5, draw(st.sampled_from(["", "approved"])))
        for question, claim in zip(asked, claims, strict=False)
    )
    state.drafts = tuple((claim, f"shows {claim}") for claim in claims if draw(st.booleans()))
    for n in range(draw(st.integers(0, 2))):
        to = Target("fake", "fake", draw(chats)).to_data()
        state.owed[f"{name} d{n}"] = Owed(f"{name} d{n}", ("x",), to, (PartState(first=True),), 9, 1, 0, "draft")
    several = st.integers(0, 3)
    source = accepted("x", draw(chats))["source"]
    state.delegations = tuple(
        Delegation(f"{name} w{n}", "dig", f"{name} s", {"source": source}) for n in range(draw(several))
    )
    state.unreached = tuple(Unreached(f"{name} u{n}", draw(TIMES), "expired") for n in range(draw(several)))
    state.bounced = tuple(f"{name} b{n}" for n in range(draw(several)))
    state.notes = tuple((accepted(f"{name} n{n}", draw(chats), "note"), draw(TIMES)) for n in range(draw(several)))
    state.titles = tuple((f"{name} t{n}", f"title {n}") for n in range(draw(several)))
    state.listed = tuple(f"{name} l{n}" for n in range(draw(several)))
    state.bots = draw(several)
    state.bots_at = draw(TIMES) if state.bots else 0  # says nothing without them
    state.generation, state.interruptions, state.active_at = draw(several), draw(several), draw(TIMES)
    if draw(st.booleans()):
        state.resume_reason, state.resume_marked_at = f"{name} reason", draw(TIMES)
    if draw(st.booleans()):
        state.bound, state.session = f"{name} s", SessionPart(f"{name} s", 9, draw(st.integers(1, 4)), used=Used(3))
        state.boundary, state.had_activity = draw(st.sampled_from(["none", "fresh", "suspended"])), draw(st.booleans())
        state.suspended_at = draw(st.sampled_from([None, -1, 2]))
        origin = draw(st.none() | st.just(source))
        state.facts = Facts(draw(TIMES), origin, f"{name}'s", True, 7, 8, Used(1, 2))
    return state


def full(name: str, turns: int) -> LaneState:
    """A lane in which everything is held that can be."""
    data = {inbox_id: Waiting(accepted(inbox_id, "kept"), 0, 5) for inbox_id in (f"{name}1", f"{name}2")}
    to = Target("fake", "fake", "kept").to_data()
    return LaneState(
        name,
        head=500,
        bound=f"{name} s",
        generation=3,
        interrupted=(Running((f"{name}2",), "human", f"{name} s", 1, 1, 1, 4),),
        interruptions=2,
        waiting=data,
        queue=[Entry("human", (f"{name}1",), "a", 3)],
        owed={f"{name} d": Owed(f"{name} d", ("x",), to, (PartState(),), 9, 1, 0, "draft")},
        suspended_at=-1,
        resume_reason="restart_interrupted",
        resume_marked_at=4,
        boundary="fresh",
        had_activity=True,
        accepted=2,
        session=SessionPart(f"{name} s", 9, turns),
        unreached=(Unreached(f"{name} u", 3, "expired"),),
        drafts=((f"{name}2", "shows it"),),
        bots=2,
        bots_at=8,
        bounced=(f"{name} b",),
        active_at=5_000,
        facts=Facts(6, None, f"{name}'s"),
        titles=((f"{name} t", "title"),),
        notes=((accepted(f"{name} n", "kept", "note"), 3),),
        listed=(f"{name} l",),
        approvals=(Approval("1-1", f"{name}2", "1 approve", "May I?", 5),),
        delegations=(Delegation(f"{name} w", "dig", f"{name} s", {"source": accepted("x", "kept")["source"]}),),
    )


def merged(into: LaneState, gone: LaneState) -> Pair:
    """Their merge, at a time of its own."""
    return merge(into, gone, now_ms=2_000, commit_id="c", incarnation=1, chats=CHATS)


# --- what becomes of each field ----------------------------------------------------------------------------

Check = Callable[[LaneState, LaneState, LaneState], None]
"""Called with the lane that stays and the one that goes, as they were, and the one that stays as it is."""


def goes_on(into: LaneState, gone: LaneState) -> bool:
    """Whether the conversation that goes on is the absorbed lane's: it has more turns."""
    return gone.session is not None and (into.session is None or gone.session.turns > into.session.turns)


def moved(source: Mapping[str, Any]) -> dict[str, Any]:
    """A source, where its chat is now."""
    chat = source["chat_id"]
    return {**source, "chat_id": CHATS.get(chat, chat)}


def its_chat(state: LaneState, claim: str) -> str:
    """Where a waiting message was said."""
    chat: str = state.waiting[claim].data["source"]["chat_id"]
    return chat


def kept(field: str) -> Check:
    """All of the absorbed lane's values are among those of the one that stays, beside its own."""

    def check(into: LaneState, gone: LaneState, after: LaneState) -> None:
        both = (*getattr(into, field), *getattr(gone, field))
        assert sorted(getattr(after, field), key=str) == sorted(both, key=str)

    return check


def with_its_conversation(field: str) -> Check:
    """As it was in the lane whose conversation goes on."""

    def check(into: LaneState, gone: LaneState, after: LaneState) -> None:
        assert getattr(after, field) == getattr(gone if goes_on(into, gone) else into, field)

    return check


def no_less(field: str) -> Check:
    """What counts or guards is as high as in either."""

    def check(into: LaneState, gone: LaneState, after: LaneState) -> None:
        assert getattr(after, field) >= max(getattr(into, field), getattr(gone, field))

    return check


def waiting(into: LaneState, gone: LaneState, after: LaneState) -> None:
    """Each message, with its time; said where the chat is now."""
    assert list(after.waiting) == [*into.waiting, *gone.waiting]
    for inbox_id, held in gone.waiting.items():
        now = after.waiting[inbox_id]
        assert (now.data, now.time) == ({**held.data, "source": moved(held.data["source"])}, held.time)


def queue(into: LaneState, gone: LaneState, after: LaneState) -> None:
    """Both in their order, nothing else."""
    assert len(after.queue) == len(into.queue) + len(gone.queue)
    for before in (into.queue, gone.queue):
        assert [entry for entry in after.queue if entry in before] == before


def owed(into: LaneState, gone: LaneState, after: LaneState) -> None:
    """Each debt, owed where the chat is now; a message there is nobody's draft."""
    assert after.owed.keys() == into.owed.keys() | gone.owed.keys()
    for name, debt in gone.owed.items():
        was = debt.target.chat_id
        now = replace(debt, to={**debt.to, "chat_id": CHATS.get(was, was)})
        assert after.owed[name] == (now if was not in CHATS else replace(now, draft=""))


def drafts(into: LaneState, gone: LaneState, after: LaneState) -> None:
    """Each that is still in its chat."""
    assert after.drafts == (*into.drafts, *(shown for shown in gone.drafts if its_chat(gone, shown[0]) not in CHATS))


def suspended_at(into: LaneState, gone: LaneState, after: LaneState) -> None:
    """The conversation that goes on is stopped if it was."""
    stopped = (gone if goes_on(into, gone) else into).suspended_at
    assert (after.suspended_at is None) == (stopped is None)
    assert (after.suspended_at == -1) == (stopped == -1)


def resumed(into: LaneState, gone: LaneState, after: LaneState) -> None:
    """Marked, as one of them was: this lane's own mark goes only with its conversation."""
    marks = [(gone.resume_reason, gone.resume_marked_at)] if gone.resume_reason else []
    if into.resume_reason and not goes_on(into, gone):
        marks.insert(0, (into.resume_reason, into.resume_marked_at))
    if marks:
        assert (after.resume_reason, after.resume_marked_at) == marks[0]
    else:
        assert after.resume_reason is None


def accepted_count(into: LaneState, gone: LaneState, after: LaneState) -> None:
    """What waits counts where it will get its outcome."""
    assert after.accepted == into.accepted + len(gone.waiting)


def facts(into: LaneState, gone: LaneState, after: LaneState) -> None:
    """The record of the conversation that goes on; where it began is where people know this lane."""
    if not goes_on(into, gone):
        assert after.facts == into.facts
        return
    theirs = gone.facts.origin
    origin = into.facts.origin or (theirs and moved(theirs))
    assert after.facts == replace(gone.facts, origin=origin)


def notes(into: LaneState, gone: LaneState, after: LaneState) -> None:
    """Each edit, oldest first."""
    told = [({**note, "source": moved(note["source"])}, time) for note, time in gone.notes]
    assert sorted(after.notes, key=str) == sorted((*into.notes, *told), key=str)
    if gone.notes:
        assert [time for _, time in after.notes] == sorted(time for _, time in after.notes)


def listed(into: LaneState, gone: LaneState, after: LaneState) -> None:
    """The list that people saw where they were active last."""
    theirs = bool(gone.listed) and (not into.listed or gone.active_at > into.active_at)
    assert after.listed == (gone if theirs else into).listed


def approvals(into: LaneState, gone: LaneState, after: LaneState) -> None:
    """Each question as it was; the names that were both lanes', and only those, are new ones, and no two are alike."""
    assert len({asked.id for asked in after.approvals}) == len(after.approvals)
    both = {asked.id for asked in into.approvals} & {asked.id for asked in gone.approvals}
    for before, now in zip((*into.approvals, *gone.approvals), after.approvals, strict=True):
        assert replace(now, id=before.id) == before
        assert (now.id == before.id) == (before.id not in both)
        assert now.id.startswith(before.id)


def delegations(into: LaneState, gone: LaneState, after: LaneState) -> None:
    """All work, told where the chat is now."""
    theirs = [replace(work, origin={"source": moved(work.origin["source"])}) for work in gone.delegations]
    assert list(after.delegations) == [*into.delegations, *theirs]


def interrupted(into: LaneState, gone: LaneState, after: LaneState) -> None:
    """All turns, oldest first."""
    assert sorted(after.interrupted, key=str) == sorted((*into.interrupted, *gone.interrupted), key=str)
    assert [turn.since for turn in after.interrupted] == sorted(turn.since for turn in after.interrupted)


CHECKS: Final[dict[str, Check]] = {
    "bound": with_its_conversation("bound"),
    "session": with_its_conversation("session"),
    "boundary": with_its_conversation("boundary"),
    "had_activity": with_its_conversation("had_activity"),
    "suspended_at": suspended_at,
    "facts": facts,
    "generation": no_less("generation"),
    "interruptions": no_less("interruptions"),
    "bots": no_less("bots"),
    "bots_at": no_less("bots_at"),
    "active_at": no_less("active_at"),
    "accepted": accepted_count,
    "waiting": waiting,
    "queue": queue,
    "interrupted": interrupted,
    "owed": owed,
    "resume_reason": resumed,
    "resume_marked_at": resumed,
    "unreached": kept("unreached"),
    "bounced": kept("bounced"),
    "titles": kept("titles"),
    "drafts": drafts,
    "notes": notes,
    "listed": listed,
    "approvals": approvals,
    "delegations": delegations,
}
"""What holds of each field after a merge."""

STAYS: Final = {
    "key": "each lane's own",
    "head": "each lane's own",
    "running": "no turn runs in a lane that is merged",
    "answered": "an outcome counts where it came",
    "merged": "an outcome counts where it came",
    "dropped": "an outcome counts where it came",
    "phase": "follows from the rest",
    "since": "follows from the rest",
    "merged_into": "a lane that has gone isn't merged again",
}
"""Fields of which nothing moves, and why."""


def test_each_field_of_a_lane_is_judged() -> None:
    """Whoever adds a field says here what becomes of it when its lane goes, and what a lane that holds it is like."""
    names = {field.name for field in attrs.fields(LaneState)}
    assert CHECKS.keys() | STAYS.keys() == names
    assert not CHECKS.keys() & STAYS.keys()
    held, nothing = full("y", 5), LaneState("y")
    assert [name for name in CHECKS if getattr(held, name) == getattr(nothing, name)] == []


@pytest.mark.parametrize("field", CHECKS)
def test_a_field_that_is_lost_is_seen(field: str) -> None:
    """A merge that left the field as it was in the lane that stays, or empty, would be noticed."""
    into, gone = LaneState("x"), full("y", 5)
    after = merged(into, gone).lane
    CHECKS[field](into, gone, after)
    setattr(after, field, getattr(into, field))
    with pytest.raises((AssertionError, KeyError, ValueError)):
        CHECKS[field](into, gone, after)


@settings(max_examples=300, deadline=None)
@given(lanes("x"), lanes("y"))
def test_nothing_that_the_absorbed_lane_held_is_lost(into: LaneState, gone: LaneState) -> None:
    """For any two lanes each field's rule holds, and the event says the same after a way through text."""
    pair = merged(into, gone)
    for check in CHECKS.values():
        check(into, gone, pair.lane)
    here, there = (part.events[0] for part in pair.commit.parts)
    for state, event, believed in ((into, here, pair.lane), (gone, there, pair.other)):
        read = Event(event.type, event.seq, event.time, json.loads(json.dumps(event.data)))
        told = state.fork()
        apply_lane(told, read)
        assert believed is not None
        told.session = believed.session
        assert told == believed
    left = pair.other
    assert left is not None
    assert not any((left.waiting, left.queue, left.owed, left.interrupted, left.approvals, left.delegations))
    assert left.accepted == gone.accepted - len(gone.waiting)
