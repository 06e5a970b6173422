"""The surface: what the model sees of an append-only log, and how undo, retry and compress change it."""

from __future__ import annotations

import json

import pytest

from seriatim.edits import compress, prune, redo, retry, rewrite, undo, wipe
from seriatim.errors import SurfaceError, SurfaceHorizonError
from seriatim.events import Data, Event
from seriatim.surface import Surface, fold, human_transcript, model_context, visibility
from seriatim.surface_json import surface_from_json, surface_to_json
from tests.persistence.histories import run

TIME = 1_767_225_600_000


def log_of(*said: tuple[str, Data]) -> list[Event]:
    """A log of these types and data."""
    return [Event(kind, seq, TIME, data) for seq, (kind, data) in enumerate(said)]


def turn(number: int, text: str = "hi", *, calls: tuple[str, ...] = ()) -> list[tuple[str, Data]]:
    """A turn: a question, perhaps calls and their results, an answer."""
    said: list[tuple[str, Data]] = [
        ("turn/start", {"turn": number, "claims": []}),
        ("user/message", {"turn": number, "id": f"m{number}", "text": text, "at": TIME}),
    ]
    if calls:
        said.append(("assistant/message", {"turn": number, "text": "", "calls": [{"id": call} for call in calls]}))
        said += [("tool/result", {"turn": number, "id": call, "content": "seen"}) for call in calls]
    said.append(("assistant/message", {"turn": number, "text": "answer"}))
    said.append(("turn/end", {"turn": number, "reason": {"kind": "completed"}}))
    return said


def replace(seq: int, start: int, end: int, sources: tuple[int, ...] | None) -> Event:
    """A summary in the place of a range."""
    operation = {"op": "replace", "start": start, "end": end}
    return Event("assistant/message", seq, TIME, {"text": "in short"}, False, sources, operation)


@pytest.mark.slow
def test_random_histories_equal_the_definition(capsys: pytest.CaptureFixture[str]) -> None:
    """1,500 random histories: surface, views, snapshots and redo equal the plain recursive definition."""
    counts = run(1500, seed=1)
    with capsys.disabled():
        print(f"\nsurface histories: {json.dumps(counts)}")

    assert counts["histories"] == 1500
    done = ("undo", "redo", "retry", "compress", "prune", "rewrite", "wipe", "snapshots", "beyond the horizon")
    assert min(counts[what] for what in done) >= 150


def test_an_undo_crosses_a_summary_exactly() -> None:
    """Undo goes back to the moment before the turn: a summary made since then is undone with it."""
    log = log_of(*turn(1), *turn(2))
    surface = fold(log)
    log.append(compress(surface, 1, 5, "in short", TIME))
    surface.apply(log[-1])
    assert surface.seqs() == [8, 6]

    undone = undo(surface, 1, TIME)
    surface.extend(undone.events)

    assert surface.seqs() == [1, 2]
    assert (undone.turns, undone.target) == (1, 5)  # named, although only the summary still showed it


def test_an_undo_tells_what_goes() -> None:
    """Undo names the messages that go, the first user message among them, and at most the turns that there are."""
    surface = fold(log_of(*turn(1), *turn(2, calls=("c",)), *turn(3)))

    undone = undo(surface, 2, TIME)
    assert [node.seq for node in undone.removed] == [5, 6, 7, 8, 11, 12]
    assert (undone.target, undone.turns) == (5, 2)
    assert undo(surface, 9, TIME).turns == 3


def test_nothing_to_undo_makes_no_event() -> None:
    """On an empty conversation undo, redo, retry and wipe append nothing."""
    surface = Surface()

    assert (undo(surface, 1, TIME).events, redo(surface, TIME), retry(surface, TIME)) == ((), (), ())
    assert wipe(surface, "wipe", TIME) == ()


def test_undos_are_taken_back_one_by_one_until_something_is_said() -> None:
    """Redo takes back the last undo, then the one before; a message after an undo ends that."""
    surface = fold(log_of(*turn(1), *turn(2)))
    whole = surface.seqs()
    surface.extend(undo(surface, 1, TIME).events).extend(undo(surface, 1, TIME).events)
    assert surface.seqs() == []

    surface.extend(redo(surface, TIME))
    assert surface.seqs() == whole[:2]
    surface.extend(redo(surface, TIME))
    assert surface.seqs() == whole
    assert redo(surface, TIME) == ()

    surface.extend(undo(surface, 1, TIME).events)
    surface.apply(Event("turn/start", surface.head, TIME, {"turn": 3}))
    surface.apply(Event("turn/end", surface.head, TIME, {"turn": 3}))
    assert redo(surface, TIME) == ()


def test_a_snapshot_keeps_every_undo() -> None:
    """Two undos, a snapshot, and both can still be taken back."""
    surface = fold(log_of(*turn(1), *turn(2)))
    whole = surface.seqs()
    surface.extend(undo(surface, 1, TIME).events).extend(undo(surface, 1, TIME).events)

    twin = surface_from_json(json.loads(json.dumps(surface_to_json(surface))))
    twin.extend(redo(twin, TIME))
    twin.extend(redo(twin, TIME))

    assert twin.seqs() == whole


def test_a_retry_keeps_the_question_and_counts_as_the_same_turn() -> None:
    """Retry shows the question without its answers; undo then takes back the question with every attempt."""
    surface = fold(log_of(*turn(1), *turn(2)))

    surface.extend(retry(surface, TIME))
    assert surface.seqs() == [1, 2, 5]
    again: list[tuple[str, Data]] = [
        ("turn/start", {"turn": 3, "resumedFrom": 2}),
        ("assistant/message", {"turn": 3, "text": "better"}),
        ("turn/end", {"turn": 3}),
    ]
    for kind, data in again:
        surface.apply(Event(kind, surface.head, TIME, data))

    assert surface.seqs() == [1, 2, 5, 10]
    undone = undo(surface, 1, TIME)
    assert [node.seq for node in undone.removed] == [5, 10]


def test_a_summary_must_name_all_that_it_covers() -> None:
    """A replacement of a range that isn't there, or with sources left out, is refused and changes nothing."""
    surface = fold(log_of(*turn(1), *turn(2)))
    before = surface.seqs()

    for event in (
        replace(8, 1, 6, (1, 2, 5)),
        replace(8, 1, 6, None),
        replace(8, 6, 1, (1, 2, 5, 6)),
        replace(8, 1, 3, (1, 2, 3)),
    ):
        with pytest.raises(SurfaceError):
            surface.apply(event)

    assert (surface.seqs(), surface.head) == (before, 8)


def test_a_summary_parts_no_call_from_its_result() -> None:
    """Compress refuses a range that holds a call without its result, or a result without its call."""
    surface = fold(log_of(*turn(1, calls=("c", "d")), *turn(2)))

    for start, end in ((1, 2), (2, 3), (3, 5), (4, 5)):
        with pytest.raises(SurfaceError, match="part a tool call"):
            compress(surface, start, end, "", TIME)
    assert compress(surface, 2, 4, "", TIME).source_event_seqs == (2, 3, 4)


def test_a_pruned_result_changes_its_content_only() -> None:
    """Prune puts the same result with other content in the place of the old one, and takes nothing but a result."""
    log = log_of(*turn(1, calls=("c",)))
    surface = fold(log)

    pruned = prune(surface, log[3], "(pruned)", TIME)
    surface.apply(pruned)

    assert pruned.data == {**log[3].data, "content": "(pruned)"}
    assert surface.seqs() == [1, 2, pruned.seq, 4]
    with pytest.raises(SurfaceError, match="no tool result"):
        prune(surface, log[1], "", TIME)


def test_a_rewritten_result_answers_the_same_call() -> None:
    """A tool result may replace exactly one result, that of its own call."""
    surface = fold(log_of(*turn(1, calls=("c", "d"))))

    for data, start, end in (({"id": "d"}, 3, 3), ({"id": "c"}, 3, 4), ({"id": "c"}, 1, 1)):
        operation = {"op": "replace", "start": start, "end": end}
        with pytest.raises(SurfaceError, match="same call"):
            surface.apply(Event("tool/result", 7, TIME, data, False, (1, 3, 4), operation))


def test_a_rewrite_can_be_undone_turn_by_turn() -> None:
    """A rewrite shows the given messages instead, as closed turns of their own."""
    surface = fold(log_of(*turn(1), *turn(2)))
    messages: list[tuple[str, Data]] = [
        ("user/message", {"text": "a", "id": "a", "at": TIME}),
        ("assistant/message", {"text": "b"}),
        ("user/message", {"text": "c", "id": "c", "at": TIME}),
    ]

    events = rewrite(surface, messages, 3, TIME)
    surface.extend(events)
    assert [events[seq - 8].data["text"] for seq in surface.seqs()] == ["a", "b", "c"]
    surface.extend(undo(surface, 1, TIME).events)
    assert [events[seq - 8].data["text"] for seq in surface.seqs()] == ["a", "b"]
    assert fold(log_of(*turn(1))).extend(rewrite(fold(log_of(*turn(1))), [], 2, TIME)).seqs() == []


def test_edits_wait_for_the_end_of_the_turn() -> None:
    """While a turn runs, undo, redo, retry, wipe and rewrite are refused; compress and prune aren't."""
    surface = fold(log_of(*turn(1), ("turn/start", {"turn": 2})))

    for edit in (lambda: undo(surface, 1, TIME), lambda: redo(surface, TIME), lambda: retry(surface, TIME)):
        with pytest.raises(SurfaceError, match="turn 2 is running"):
            edit()
    assert compress(surface, 1, 2, "", TIME).surface_op == {"op": "replace", "start": 1, "end": 2}


def test_people_see_what_the_model_no_longer_does() -> None:
    """The transcript for people holds every appended message; the model's context what is on the surface now."""
    log = log_of(*turn(1), *turn(2), ("assistant/message", {"text": ""}))
    surface = fold(log)
    log.append(compress(surface, 1, 2, "in short", TIME))
    surface.apply(log[-1])
    log.extend(undo(surface, 1, TIME).events)
    surface.apply(log[-1])
    log.append(compress(surface, 1, 2, "shorter", TIME))
    surface.apply(log[-1])

    assert [event.seq for event in human_transcript(log)] == [1, 2, 5, 6, 8]
    assert [event.data["text"] for event in model_context(surface, log.__getitem__)] == ["shorter"]
    assert visibility(surface, log) == {
        1: "shadowed", 2: "shadowed", 5: "undone", 6: "undone", 8: "undone", 9: "undone", 11: "current",
    }  # fmt: skip


def test_silent_messages_are_kept_from_the_model() -> None:
    """An assistant message with neither text nor calls is on the surface, and not in the model's context."""
    log = log_of(
        *turn(1), ("assistant/message", {"text": ""}), ("assistant/message", {"text": "", "calls": [{"id": "c"}]})
    )

    assert fold(log).seqs() == [1, 2, 4, 5]
    assert [event.seq for event in model_context(fold(log), log.__getitem__)] == [1, 2, 5]


def test_log_only_events_never_matter() -> None:
    """Events of other types, known or not, change neither surface nor views."""
    log = log_of(*turn(1))
    noisy = log_of(("request/context", {"text": "x"}), *turn(1), ("strange/thing", {"calls": 3}))

    assert [seq - 1 for seq in fold(noisy).seqs()] == fold(log).seqs()


def test_a_log_is_folded_in_order() -> None:
    """An event that was folded already is refused."""
    log = log_of(*turn(1))

    with pytest.raises(SurfaceError, match="4 events"):
        fold(log).apply(log[2])


def test_nobody_goes_back_to_just_any_moment() -> None:
    """A reset leads to a visible turn's start or question, to an undo, or to nothing at all; elsewhere is refused."""
    log = log_of(*turn(1), *turn(2))

    for as_of in (1, 3, 5, 7, 8, 9, -1, True, "1", None):
        with pytest.raises(SurfaceError):
            fold(log).apply(Event("surface/reset", 8, TIME, {"asOf": as_of, "reason": "undo"}))


def test_what_was_forgotten_needs_the_whole_log() -> None:
    """With few turns kept the surface is whole, a near undo works, and a far one asks for the whole log."""
    log = log_of(*(event for number in range(1, 9) for event in turn(number)))
    surface = fold(log)
    surface.forget(2)

    assert surface.seqs() == fold(log).seqs()
    assert surface.forgotten == 6
    assert undo(surface, 2, TIME).turns == 2
    with pytest.raises(SurfaceHorizonError):
        undo(surface, 3, TIME)
    far = undo(fold(log), 3, TIME).events[0]
    with pytest.raises(SurfaceHorizonError):
        surface.apply(far)


def test_a_snapshot_s_size_is_what_can_still_be_reached() -> None:
    """After a summary of the old turns and forgetting them, a snapshot no longer grows with the log."""
    surface = Surface()
    sizes = []
    for number in range(1, 201):
        for kind, data in turn(number):
            surface.apply(Event(kind, surface.head, TIME, data))
        if number % 10 == 0:
            seqs = surface.seqs()
            surface.apply(compress(surface, seqs[0], seqs[-1], "in short", TIME))
            surface.forget(5)
            sizes.append(len(json.dumps(surface_to_json(surface))))

    assert max(sizes[2:]) < 1.2 * sizes[2]


@pytest.mark.parametrize("broken", [{}, {"version": 2}, {"version": 1}, {"version": 1, "nodes": [[5, 1, 0, 1]]}])
def test_a_strange_snapshot_is_refused(broken: Data) -> None:
    """What is no snapshot of this version raises SurfaceError, so that the log is folded instead."""
    with pytest.raises(SurfaceError, match="snapshot"):
        surface_from_json(broken)


def test_a_fork_is_private() -> None:
    """What is applied to a fork doesn't show in the surface that it came from."""
    surface = fold(log_of(*turn(1)))
    twin = surface.fork()
    twin.extend(undo(twin, 1, TIME).events)

    assert (twin.seqs(), surface.seqs()) == ([], [1, 2])


def test_a_very_long_conversation_is_freed_without_recursion() -> None:
    """A surface of 200,000 messages can be made, copied through a snapshot, and let go."""
    surface = Surface()
    for seq in range(200_000):
        surface.apply(Event("user/message", seq, TIME, {"text": "", "turn": 0}))
    twin = surface_from_json(surface_to_json(surface))
    del surface

    assert len(twin.nodes()) == 200_000
