"""Albums and media: items accepted one by one, one turn, one event to the agent."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import attrs
import pytest

from seriatim import GatewayConfig, Media, MessageEvent, SessionSource
from seriatim.albums import grouped
from seriatim.batch import Rules
from seriatim.commands import parse_command
from seriatim.config import QueueConfig
from seriatim.effects import Ack, RunTurn
from seriatim.errors import InvalidInputError
from seriatim.limits import ALBUM_MS_MAX, MEDIA_MAX
from seriatim.mail import Inbound
from seriatim.storage.sqlite_reader import SqliteReader
from seriatim.turn import words_of
from tests.core.bench import Bench
from tests.gateway.bots import bot, run, until

HERE = SessionSource("sim", "chat", user_id="u")


def item(bench: Bench, number: int, text: str = "", *, album: str | None = "A", **source: Any) -> str:
    """One item comes in, with a photo."""
    event = MessageEvent(
        text,
        attrs.evolve(HERE, **source),
        message_id=str(number),
        album_id=album,
        media=(Media("photo", url=f"http://x/{number}"),),
    )
    inbox_id = bench.fresh("i")
    command = parse_command(text, "/") or ("", "")
    bench.tell(Inbound(inbox_id, f"key {number}", event, len(text), *command))
    return inbox_id


def runs(bench: Bench) -> list[list[str]]:
    """The claims of each turn."""
    return [[data["id"] for data, _ in run.claims] for run in bench.all(RunTurn)]


def said(bench: Bench) -> list[Any]:
    """The user messages of the session."""
    return [event.data for event in bench.session_events() if event.type == "user/message"]


def test_a_turn_waits_until_its_album_is_quiet() -> None:
    """Each item extends the wait; one turn takes them all (B147)."""
    bench = Bench()
    ids = []
    for number, gap in enumerate((0, 100, 700)):
        bench.tick(gap)
        ids.append(item(bench, number))
    assert runs(bench) == []
    assert bench.out.wake_at == bench.now.time + 800
    bench.tick(799)
    assert runs(bench) == []
    bench.tick(1)
    bench.drain()
    assert runs(bench) == [ids]
    assert [ack.outcome for ack in bench.all(Ack)] == ["accepted", "merged", "merged"]
    assert bench.fold() == bench.gate.durable


def test_an_album_is_one_event_with_its_captions() -> None:
    """One user message, one claim: media in the platform's order, captions kept, equal ones once."""
    bench = Bench()
    for number, text in ((12, ""), (10, "look"), (11, "look"), (9, "and this")):
        item(bench, number, text)
    bench.tick(800)
    bench.drain()
    [message] = said(bench)
    assert message["text"] == "and this\n\nlook"
    assert [media["url"] for media in message["media"]] == [f"http://x/{n}" for n in (9, 10, 11, 12)]
    [(data, _)] = grouped(bench.all(RunTurn)[0].claims)
    assert data["items"] == message["items"]
    assert len(data["items"]) == 4


def test_the_wait_for_an_album_has_an_end() -> None:
    """Items that keep coming hold the turn back for ten seconds at most; what comes later has the next turn."""
    bench = Bench()
    ids = [item(bench, 0)]
    for number in range(1, 30):
        bench.tick(500)
        bench.drain()
        ids.append(item(bench, number))
    [first] = runs(bench)
    assert len(first) == ALBUM_MS_MAX // 500
    assert first == ids[: len(first)]
    bench.answer()
    bench.tick(ALBUM_MS_MAX)
    bench.drain()
    assert [i for claims in runs(bench) for i in claims] == ids


def test_a_slow_download_holds_its_album() -> None:
    """While an item is on its way in, a pause longer than the window doesn't split the album (B147)."""
    bench = Bench()
    bench.now.expects = lambda lane, album: album == "A"
    ids = [item(bench, 1)]
    for _ in range(3):
        bench.tick(800)
        bench.drain()
    assert runs(bench) == []
    ids.append(item(bench, 2))
    bench.now.expects = lambda lane, album: False
    bench.tick(800)
    bench.drain()
    assert runs(bench) == [ids]


def test_a_download_that_never_ends_holds_nobody_for_ever() -> None:
    """Ten seconds after its first item the album's turn starts all the same."""
    bench = Bench()
    bench.now.expects = lambda lane, album: True
    ids = [item(bench, 1)]
    for _ in range(ALBUM_MS_MAX // 800 + 1):
        bench.tick(800)
        bench.drain()
    assert runs(bench) == [ids]


def test_text_between_items_keeps_its_order() -> None:
    """An unrelated text is claimed with the album, behind it, as an event of its own (B147)."""
    bench = Bench()
    first = item(bench, 1, "one")
    text = bench.said("hello")
    second = item(bench, 3, "three")
    bench.tick(800)
    bench.drain()
    assert runs(bench) == [[first, text, second]]
    assert [message["text"] for message in said(bench)] == ["one\n\nthree", "hello"]


def test_items_find_their_album_past_others() -> None:
    """Somebody else's message is at the tail: the item joins its own album's turn."""
    bench = Bench(Rules(album_window_ms=800))
    bench.said("running")
    first = item(bench, 1)
    other = bench.said("other", role_authorized=True)
    second = item(bench, 2)
    bench.answer()
    bench.tick(800)
    bench.drain()
    bench.answer()
    assert runs(bench)[1:] == [[first, second], [other]]


def test_a_queued_album_is_one_full_turn() -> None:
    """/queue as the caption of an album's first item: its other items belong to that turn, nothing else does."""
    bench = Bench()
    bench.said("running")
    first = item(bench, 1, "/queue look")
    text = bench.said("hello")
    second = item(bench, 2)
    bench.answer()
    bench.tick(800)
    bench.drain()
    bench.answer()
    assert runs(bench)[1:] == [[first, second], [text]]


def test_replacing_leaves_an_album_whole() -> None:
    """With collapse = replace an item doesn't displace its own siblings; the album displaces what was there."""
    bench = Bench(Rules(collapse="replace"))
    bench.said("running")
    older = bench.said("older")
    ids = [item(bench, 1), item(bench, 2)]
    bench.answer()
    bench.tick(800)
    bench.drain()
    assert bench.outcome(older) == "dropped (superseded)"
    assert runs(bench)[1:] == [ids]


def test_a_crash_in_the_window_loses_no_item() -> None:
    """After the restart the window begins anew, for the platform gives again what it had no ack for (B147)."""
    bench = Bench()
    ids = [item(bench, 1)]
    bench.tick(400)
    bench.now.time += 3_000
    bench.now.started = bench.now.time
    bench.reopen()
    assert runs(bench) == []
    ids.append(item(bench, 2))
    bench.tick(800)
    bench.drain()
    assert runs(bench) == [ids]


def test_a_clock_that_is_set_back_holds_nobody() -> None:
    """An hour back is no reason to wait an hour."""
    bench = Bench()
    bench.now.time += 3_600_000
    item(bench, 1)
    bench.now.time -= 3_600_000
    item(bench, 2)
    bench.tick(801)
    bench.drain()
    bench.said("and?")
    assert runs(bench)


def test_no_window_no_wait() -> None:
    """queue.album_window_ms = 0: the first item starts its turn at once."""
    bench = Bench(Rules(album_window_ms=0))
    first = item(bench, 1)
    assert runs(bench) == [[first]]


def test_media_are_checked() -> None:
    """At most so many, of the right kind; a message may say nothing beside them."""
    assert MessageEvent("", HERE, media=(Media("photo"),)).media[0].kind == "photo"
    for bad in ((Media("photo"),) * (MEDIA_MAX + 1), ("photo",)):
        with pytest.raises(InvalidInputError):
            MessageEvent("", HERE, media=bad)  # type: ignore[arg-type]
    slips: tuple[dict[str, Any], ...] = (
        {"kind": ""},
        {"kind": "a", "size": -1},
        {"kind": "a", "url": 1},
        {"kind": "a", "data": "text"},
    )
    for fields in slips:
        with pytest.raises(InvalidInputError):
            Media(**fields)


def test_a_wordless_message_is_named_for_the_model() -> None:
    """Where only text goes, what it carries stands for it, in a form that imitates nobody."""
    media = (Media("photo"), Media("file", name="a]\n[b.pdf"))
    assert words_of(" ", media) == "[photo] [file: a) (b.pdf]"
    assert words_of("hi", media) == "hi"


def test_what_a_link_would_lose_is_kept_before_the_ack(tmp_path: Path) -> None:
    """The content is a blob by the time the message is accepted; both logs refer to it; the agent can read it."""

    async def main() -> None:
        seen: list[Any] = []
        histories: list[list[str]] = []

        async def agent(turn: Any) -> str:
            seen.extend(turn.media)
            histories.append([message.text for message in turn.history])
            return str(turn.text)

        async with bot(agent, tmp_path) as it:
            event = MessageEvent(
                "", SessionSource("host", "1", user_id="7"), media=(Media("photo", data=b"pixels", name="p.png"),)
            )
            receipt = await it.gateway.accept(event)
            reader = SqliteReader(tmp_path / "state.db")
            blobs = reader.blob(next(iter(_blobs(tmp_path))))
            reader.close()
            assert blobs == b"pixels"
            assert (await receipt.answered()).text == "[photo: p.png]"
            [media] = seen
            assert (media.data, media.size) == (None, 6)
            assert await it.gateway.read_media(media) == b"pixels"
            again = await it.accept("what was it?")
            assert (await again.answered()).text == "what was it?"
            assert histories == [[], ["[photo: p.png]", "[photo: p.png]"]]
            with pytest.raises(InvalidInputError):
                await it.gateway.read_media(Media("photo", url="http://x"))

    run(main())


def _blobs(home: Path) -> list[str]:
    return [path.name for path in (home / "blobs").rglob("*") if path.is_file()]


def test_an_adapters_slow_item_shares_the_turn(tmp_path: Path) -> None:
    """Through a real gateway: an item announced by its adapter is waited for, although the window is long over."""

    async def main() -> None:
        turns: list[list[int]] = []

        async def agent(turn: Any) -> str:
            turns.append([len(claim.media) for claim in turn.events])
            return "seen"

        config = GatewayConfig(queue=QueueConfig(album_window_ms=20))
        async with bot(agent, tmp_path, config=config) as it:
            here = SessionSource("host", "1", user_id="7")

            def one(number: int) -> MessageEvent:
                return MessageEvent(
                    "", here, message_id=str(number), album_id="A", media=(Media("photo", url=f"u{number}"),)
                )

            with it.gateway.expecting(here, "A"):
                first = await it.gateway.accept(one(1))
                waited = asyncio.Event()
                asyncio.get_running_loop().call_later(0.2, waited.set)
                await waited.wait()
                assert turns == []
                second = await it.gateway.accept(one(2))
            assert (await second.answered()).outcome == "merged"
            assert (await first.answered()).outcome == "answered"
            await until(lambda: turns == [[2]])

    run(main())


def test_an_interrupted_album_goes_on_at_once() -> None:
    """Its turn had begun, so no item can join it any more: nothing is waited for."""
    bench = Bench()
    ids = [item(bench, 1), item(bench, 2)]
    bench.tick(800)
    bench.drain()
    bench.now.started = bench.now.time
    bench.reopen()
    assert runs(bench) == [ids, ids]
