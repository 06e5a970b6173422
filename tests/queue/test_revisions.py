"""Edits and deletions of messages: queued, running, over; by policy; never a command."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from seriatim import MessageEvent, SessionSource
from seriatim.actors.runtime import unique_key
from seriatim.batch import Rules
from seriatim.effects import Ack, CancelTurn, Finished, Nack, RunTurn
from seriatim.errors import InvalidInputError
from seriatim.limits import MEDIA_MAX, NOTES_MAX
from seriatim.mail import Inbound
from seriatim.media import Media
from tests.core.bench import Bench
from tests.gateway.bots import bot, run

HERE = SessionSource("sim", "chat", user_id="u")
ALICE = SessionSource("sim", "chat", chat_type="group", user_id="a", user_name="Same")
BOB = SessionSource("sim", "chat", chat_type="group", user_id="b", user_name="Same")
NOBODY = SessionSource("sim", "chat", chat_type="group")


def say(bench: Bench, name: str, text: str, source: SessionSource = HERE, media: tuple[Media, ...] = ()) -> str:
    """A message with a name of the platform's."""
    message = bench.message(text, key=f"key {name} {source.user_id}")
    event = MessageEvent(text, source, message_id=name, media=media)
    bench.tell(Inbound(message.id, message.key, event, len(text), message.command, message.args))
    return message.id


def edit(
    bench: Bench,
    name: str,
    text: str = "",
    source: SessionSource = HERE,
    *,
    deleted: bool = False,
    media: tuple[Media, ...] = (),
) -> str:
    """Somebody changes it, or takes it back; how that ended, or why it was refused."""
    inbox_id = bench.fresh("e")
    event = MessageEvent(text, source, edit_of=name, deleted=deleted, media=media)
    bench.tell(Inbound(inbox_id, f"edit {inbox_id}", event, len(text), prefix="/"))
    assert bench.fold() == bench.gate.durable
    refused = [nack.reason for nack in bench.internal if isinstance(nack, Nack) and nack.id == inbox_id]
    return "".join([end.reason for end in bench.all(Finished) if end.id == inbox_id] + refused)


def texts(bench: Bench) -> list[list[str]]:
    """What each turn's agent was given."""
    return [[data["text"] for data, _ in run.claims] for run in bench.all(RunTurn)]


def test_an_edit_replaces_what_waits_in_its_place() -> None:
    """The order is kept; the turn says the new words only (B150)."""
    bench = Bench()
    say(bench, "1", "run")
    for name, text in (("2", "a"), ("3", "b"), ("4", "c")):
        say(bench, name, text)
    assert edit(bench, "3", "B") == "replaced"
    bench.answer()
    assert texts(bench)[-1] == ["a", "B", "c"]


def test_a_deleted_message_that_waits_is_removed() -> None:
    """Its receipt hears of it, and the others stay (B150)."""
    bench = Bench()
    say(bench, "1", "run")
    gone, kept = say(bench, "2", "a"), say(bench, "3", "b")
    assert edit(bench, "2", deleted=True) == "removed"
    assert bench.outcome(gone) == "dropped (deleted)"
    bench.answer()
    assert [data["id"] for data, _ in bench.all(RunTurn)[-1].claims] == [kept]


def test_a_queue_items_edit_is_its_new_text() -> None:
    """Whether the author edits the command's line or the text alone; it stays a turn of its own."""
    bench = Bench()
    say(bench, "1", "run")
    say(bench, "2", "/queue a")
    say(bench, "3", "/queue b")
    assert edit(bench, "2", "/queue A") == "replaced"
    assert edit(bench, "3", "B") == "replaced"
    bench.answer()
    bench.answer()
    assert texts(bench)[1:] == [["A"], ["B"]]


@pytest.mark.parametrize("state", ["queued", "running", "over"])
@pytest.mark.parametrize("policy", ["ignore", "note", "turn"])
def test_an_edit_never_starts_a_command(state: str, policy: Any) -> None:
    """/stop typed into an old message is text, in every state and under every policy (B149)."""
    bench = Bench(Rules(edit_running=policy, edit_after=policy))
    say(bench, "1", "run")
    if state == "queued":
        say(bench, "2", "wait")
    elif state == "over":
        bench.answer()
    edit(bench, "2" if state == "queued" else "1", "/stop")
    assert bench.all(CancelTurn) == []
    assert bench.lane_events("route/suspended") == []
    assert [e for e in bench.lane_events("inbox/accepted") if e.data["kind"] == "command"] == []


@pytest.mark.parametrize("state", ["queued", "running", "over"])
def test_an_edit_that_changes_no_word_does_nothing(state: str) -> None:
    """A link's preview, a reaction, a pin: platforms tell such as edits (B149)."""
    bench = Bench(Rules(edit_running="turn", edit_after="turn"))
    say(bench, "1", "run")
    if state == "queued":
        say(bench, "2", "run")
    elif state == "over":
        bench.answer()
    before = len(texts(bench))
    assert edit(bench, "2" if state == "queued" else "1", "run") == "ignored"
    while bench.gate.durable.running is not None:
        bench.answer()
    assert len(texts(bench)) == before + (state == "queued")


def test_an_edit_of_a_running_message_has_a_turn_of_its_own() -> None:
    """queue.edit_running = "turn": the new words wait like any other message (B150)."""
    bench = Bench()
    say(bench, "1", "run")
    assert edit(bench, "1", "run faster") == ""
    bench.answer()
    assert texts(bench) == [["run"], ["run faster"]]


def test_an_edit_of_an_answered_message_is_noted() -> None:
    """queue.edit_after = "note": nobody is answered for it, the next turn is told (B150)."""
    bench = Bench()
    say(bench, "1", "meet at nine")
    bench.answer()
    assert edit(bench, "1", "meet at ten") == "noted"
    assert bench.gate.durable.running is None
    assert not bench.gate.durable.waiting
    say(bench, "2", "ok?")
    assert texts(bench)[-1] == ["ok?", "[edited] meet at ten"]
    told = [e.data for e in bench.session_events() if e.data.get("note")]
    assert [data["text"] for data in told] == ["[edited] meet at ten"]
    bench.answer()
    say(bench, "3", "more")
    assert texts(bench)[-1] == ["more"]


def test_a_deletion_of_what_runs_or_is_over_is_noted() -> None:
    """There is nothing to take out any more; a turn of its own would have nothing to say."""
    bench = Bench(Rules(edit_running="turn", edit_after="turn"))
    say(bench, "1", "secret")
    assert edit(bench, "1", deleted=True) == "noted"
    bench.answer()
    assert edit(bench, "1", deleted=True) == "noted"
    say(bench, "2", "hi")
    assert texts(bench)[-1] == ["hi", "[deleted] secret", "[deleted] secret"]


def test_a_policy_of_nothing_does_nothing() -> None:
    """It is accepted and logged all the same (B150)."""
    bench = Bench(Rules(edit_running="ignore", edit_after="ignore"))
    say(bench, "1", "a")
    assert edit(bench, "1", "b") == "ignored"
    bench.answer()
    assert edit(bench, "1", "c") == "ignored"
    assert [e.data["editOf"] for e in bench.lane_events("inbox/accepted") if e.data["kind"] == "edit"] == ["1", "1"]
    assert bench.gate.durable.accepted == bench.gate.durable.answered == 3


def test_an_edit_of_what_nobody_said_is_ignored() -> None:
    """Before the bot was there, in another conversation, or undone since."""
    bench = Bench(Rules(edit_after="turn"))
    assert edit(bench, "never", "x") == "ignored"
    say(bench, "1", "a")
    bench.answer()
    bench.said("/new")
    assert edit(bench, "1", "b") == "ignored"
    assert texts(bench) == [["a"]]


def test_notes_belong_to_their_conversation() -> None:
    """A fresh one isn't told of edits in the one before."""
    bench = Bench()
    say(bench, "1", "a")
    bench.answer()
    edit(bench, "1", "b")
    bench.said("/new")
    say(bench, "2", "c")
    assert texts(bench)[-1] == ["c"]


def test_a_caption_and_its_photo_are_replaced_together() -> None:
    """An edit may bring other media; without any, those that are there stay."""
    bench = Bench()
    say(bench, "1", "run")
    say(bench, "2", "a")
    assert edit(bench, "2", "b", media=(Media("photo", url="u"),)) == "replaced"
    assert edit(bench, "2", "c") == "replaced"
    bench.answer()
    [(data, _)] = bench.all(RunTurn)[-1].claims
    assert (data["text"], data["media"]) == ("c", [{"kind": "photo", "url": "u"}])


def test_an_emptied_message_stays_as_it_was() -> None:
    """To take it back is another thing."""
    bench = Bench()
    say(bench, "1", "run")
    say(bench, "2", "a")
    assert edit(bench, "2", " ") == "ignored"
    bench.answer()
    assert texts(bench)[-1] == ["a"]


def test_edits_are_known_by_what_they_say() -> None:
    """Given again it is one; changed again, or at another time, it is another; a message's own key is not touched."""

    def key(text: str = "a", at: int | None = 1, **fields: Any) -> str:
        return unique_key(MessageEvent(text, HERE, edit_of="1", received_at=at, **fields))

    same = {key(), key(), key(message_id="1")}
    others = [key("b"), key(at=2), key(deleted=True), key(message_id="own"), unique_key(MessageEvent("a", HERE))]
    assert len(same) == 1
    assert len({*same, *others}) == 6
    assert unique_key(MessageEvent("a", HERE, message_id="1")) not in same


def test_an_edit_needs_its_message() -> None:
    """A deletion of nothing, and an edit by the host itself, are slips."""
    slips: tuple[dict[str, Any], ...] = ({"deleted": True}, {"edit_of": ""}, {"edit_of": "1", "internal": True})
    for fields in slips:
        with pytest.raises(InvalidInputError):
            MessageEvent("a", HERE, **fields)


def test_an_edit_given_twice_counts_once(tmp_path: Path) -> None:
    """Through a real gateway: accepted, acked, deduplicated, counted (B149)."""

    async def main() -> None:
        async def agent(turn: Any) -> str:
            return f"re: {turn.text}"

        here = SessionSource("host", "1", user_id="7")
        async with bot(agent, tmp_path) as it:
            first = await it.gateway.accept(MessageEvent("nine", here, message_id="m1"))
            assert (await first.answered()).text == "re: nine"
            change = MessageEvent("ten", here, edit_of="m1", received_at=5)
            receipts = [await it.gateway.accept(change), await it.gateway.accept(change)]
            assert [receipt.outcome for receipt in receipts] == ["accepted", "duplicate"]
            assert (await receipts[0].answered()).reason == "noted"
            told = await it.gateway.accept(MessageEvent("ok", here, message_id="m2"))
            assert (await told.answered()).text == "re: ok\n[edited] ten"
            await it.at_rest()
            assert it.gateway.balance()["waiting"] == 0

    run(main())


def test_only_the_ack_is_told() -> None:
    """An edit owes no reply of its own."""
    bench = Bench()
    say(bench, "1", "a")
    bench.answer()
    bench.forget()
    edit(bench, "1", "b")
    assert [type(effect) for effect in bench.effects] == [Ack, Finished]


@pytest.mark.parametrize("state", ["queued", "running", "over"])
@pytest.mark.parametrize("policy", ["note", "turn"])
def test_new_words_for_anothers_message_reach_nobody(state: str, policy: Any) -> None:
    """In a shared lane an edit counts only from who wrote the message, whatever state that is in and whatever name the
    other bears; its receipt says why it did nothing. The author's own counts.
    """
    bench = Bench(Rules(edit_running=policy, edit_after=policy))
    say(bench, "1", "run", ALICE)
    if state == "queued":
        say(bench, "2", "mine", ALICE)
    elif state == "over":
        bench.answer()
    name = "2" if state == "queued" else "1"
    assert edit(bench, name, "EVIL", BOB) == "not_author"
    assert bench.gate.durable.notes == ()
    assert edit(bench, name, "better", ALICE) == ("replaced" if state == "queued" else "noted" * (policy == "note"))
    if state != "over":
        bench.answer()
    say(bench, "3", "next", BOB)
    while bench.gate.durable.running is not None:
        bench.answer()
    assert "EVIL" not in str(texts(bench))
    assert "better" in str(texts(bench))


def test_a_name_that_two_messages_bear_means_the_editors_own() -> None:
    """Some clients choose the ids of their messages: whoever takes another's neither gets at that message nor keeps its
    author from it.
    """
    bench = Bench()
    say(bench, "1", "run", ALICE)
    say(bench, "2", "a", ALICE)
    say(bench, "2", "b", BOB)
    assert edit(bench, "2", "B", BOB) == "replaced"
    assert edit(bench, "2", "A", ALICE) == "replaced"
    say(bench, "1", "c", BOB)
    bench.answer()
    assert texts(bench)[-1] == ["A", "B", "c"]


def test_a_deletion_is_the_platforms_word() -> None:
    """A moderator takes back what another wrote, waiting or over."""
    bench = Bench()
    say(bench, "1", "run", ALICE)
    gone = say(bench, "2", "a", ALICE)
    assert edit(bench, "2", source=BOB, deleted=True) == "removed"
    assert bench.outcome(gone) == "dropped (deleted)"
    bench.answer()
    assert edit(bench, "1", source=BOB, deleted=True) == "noted"


def test_an_edit_without_an_editor_is_taken_for_the_authors() -> None:
    """Some platforms tell no user with an edit."""
    bench = Bench()
    say(bench, "1", "run", ALICE)
    say(bench, "2", "a", ALICE)
    assert edit(bench, "2", "A", NOBODY) == "replaced"
    bench.answer()
    assert edit(bench, "1", "RUN", NOBODY) == "noted"


def test_an_edit_that_its_turn_has_no_room_for_waits_anew() -> None:
    """Nothing is passed over: the old words are dropped as superseded, the new ones have a turn, and a later edit finds
    them.
    """
    bench = Bench()
    say(bench, "0", "run")
    old = [say(bench, f"{n}", f"old{n}") for n in range(1, 7)]
    large = "y" * 250_000
    ends = [edit(bench, f"{n}", f"new{n}{large}") for n in range(1, 7)]
    assert ends == ["replaced"] * 4 + [""] * 2
    assert [bench.outcome(inbox_id) for inbox_id in old[4:]] == ["dropped (superseded)"] * 2
    assert edit(bench, "6", "newest6") == "replaced"
    bench.answer()
    bench.answer()
    told = [[text[:7] for text in said] for said in texts(bench)]
    assert told == [["run"], ["new1yyy", "new2yyy", "new3yyy", "new4yyy"], ["new5yyy", "newest6"]]


def test_media_that_its_turn_has_no_room_for_wait_anew() -> None:
    """An edit's attachments count like a message's, so no commit refers to more content than it may; an edit of words
    alone keeps those that are there.
    """
    bench = Bench()
    say(bench, "0", "run")
    photos = (Media("photo", url="u"),) * MEDIA_MAX
    for n in range(20):
        say(bench, f"{n + 1}", "a")
    ends = [edit(bench, f"{n + 1}", "b", media=photos) for n in range(20)]
    assert ends.count("replaced") == 14
    assert all(entry.size <= 1024 * 1024 for entry in bench.gate.durable.queue)
    assert edit(bench, "14", "y" * 250_000) == ""
    last = list(bench.gate.durable.waiting.values())[-1].data
    assert (last["text"][:3], len(last["media"])) == ("yyy", MEDIA_MAX)


def test_an_edit_that_cant_be_noted_is_refused() -> None:
    """Where as many wait to be told as may, the next has a typed refusal, and is taken when they have been told."""
    bench = Bench()
    say(bench, "1", "a")
    bench.answer()
    ends = [edit(bench, "1", f"b{n}") for n in range(NOTES_MAX + 1)]
    assert ends == ["noted"] * NOTES_MAX + ["notes_full"]
    assert edit(bench, "1", deleted=True) == "notes_full"
    say(bench, "2", "ok?")
    assert edit(bench, "1", "c") == "noted"
