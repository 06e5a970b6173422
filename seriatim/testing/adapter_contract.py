"""The contract of an adapter, as tests that run against any of them.

Derive from `AdapterContract` in a test module, name the class ``Test…`` and give it a ``world``: the adapter, a
person who talks to it, and the platform in between, real or scripted. A claim that a platform can't have (it has no
channels, it can't be taken down) is left out by its world saying so.
"""

from __future__ import annotations

import abc
import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, nullcontext
from typing import Literal, Protocol, cast

import pytest
from attrs import frozen
from msgspec.structs import replace

from seriatim.adapters.base import Adapter, Edits, Lookup
from seriatim.errors import SendError
from seriatim.model import MessageEvent, Outbound, SessionSource, Target

BURST = 500
WAIT_S_MAX = 30.0
Place = Literal["dm", "channel"]


@frozen
class Answer:
    """What a `RecordingInbox` answers."""

    outcome: str = "accepted"
    reason: str | None = None


class RecordingInbox:
    """An inbox that keeps what it accepted. ``refuse`` makes it refuse; ``hold`` keeps ``accept`` waiting."""

    def __init__(self) -> None:
        self.events: list[MessageEvent] = []
        self.aliases: list[tuple[str, str, str, str]] = []
        self.refuse = False
        self.inside = 0
        self.inside_max = 0
        self._open = asyncio.Event()
        self._open.set()
        self._arrived = asyncio.Condition()

    async def accept(self, event: MessageEvent) -> Answer:
        """The port's door."""
        self.inside += 1
        self.inside_max = max(self.inside, self.inside_max)
        try:
            await self._open.wait()
            async with self._arrived:
                self.events.append(event)
                self._arrived.notify_all()
            return Answer("refused", "a test says so") if self.refuse else Answer()
        finally:
            self.inside -= 1

    def expecting(self, source: SessionSource, album_id: str) -> AbstractContextManager[None]:
        """The port's other door: nothing here waits for an album."""
        del source, album_id
        return nullcontext()

    async def learn_alias(self, old: str, new: str, *, kind: Literal["user", "chat"] = "user", scope: str = "") -> None:
        """The port's other door: keeps what it is told."""
        self.aliases.append((old, new, kind, scope))

    def hold(self) -> None:
        """From now on ``accept`` waits."""
        self._open.clear()

    def let_go(self) -> None:
        """Let them in."""
        self._open.set()

    async def heard(self, count: int) -> list[MessageEvent]:
        """The first ``count`` events, once there are so many."""
        async with asyncio.timeout(WAIT_S_MAX), self._arrived:
            await self._arrived.wait_for(lambda: len(self.events) >= count)
        return self.events[:count]


class World(Protocol):
    """An adapter that is up, and the platform and people around it."""

    @property
    def adapter(self) -> Adapter:
        """The adapter under test; its ``run`` is the contract's business."""
        ...

    @property
    def places(self) -> tuple[Place, ...]:
        """Where one can talk on this platform."""
        ...

    @property
    def missing(self) -> str | None:
        """A chat id that doesn't exist there, or None if there is no telling."""
        ...

    @property
    def can_go_down(self) -> bool:
        """Whether ``go_down`` and ``come_back`` work."""
        ...

    async def ready(self) -> None:
        """Return once the running adapter can receive and send."""
        ...

    async def say(self, place: Place, *texts: str) -> None:
        """A person says something to the bot; returns once the platform has it."""
        ...

    async def hear(self, count: int) -> list[str]:
        """The next ``count`` messages of the bot that the person gets, in either place."""
        ...

    async def go_down(self) -> None:
        """Take the platform away at once; returns when the adapter can have noticed."""
        ...

    async def come_back(self) -> None:
        """Bring it back, the person too; returns once the adapter is ready again."""
        ...


class AdapterContract(abc.ABC):
    """The claims. Each runs on a loop of its own."""

    @abc.abstractmethod
    def world(self) -> AbstractAsyncContextManager[World]:
        """A fresh world."""

    def test_a_burst_is_accepted_in_order_and_one_at_a_time(self) -> None:
        """What a person says is accepted once each, in order, and the next only when the last was accepted."""

        async def story(world: World, inbox: RecordingInbox) -> None:
            texts = [f"number {n}" for n in range(BURST)]
            await world.say("dm", *texts)
            assert [event.text for event in await inbox.heard(BURST)] == texts
            assert inbox.inside_max == 1

        self._tell(story)

    def test_an_answer_finds_its_way_from_the_event_alone(self) -> None:
        """A target built from an event's own source leads back to where the message came from."""

        async def story(world: World, inbox: RecordingInbox) -> None:
            for count, place in enumerate(world.places, start=1):
                await world.say(place, f"from the {place}")
                event = (await inbox.heard(count))[-1]
                assert event.text == f"from the {place}"
                assert event.source.platform.name == world.adapter.platform
                assert event.account == world.adapter.account
                assert (event.source.chat_type == "dm") == (place == "dm")
                await world.adapter.send(outbound(target_of(event), f"to the {place}"))
                assert await world.hear(1) == [f"to the {place}"]

        self._tell(story)

    def test_sends_arrive_in_order(self) -> None:
        """Sends that were begun in order to one chat arrive in that order, each confirmed."""

        async def story(world: World, inbox: RecordingInbox) -> None:
            target = await _met(world, inbox)
            texts = [f"answer {n}" for n in range(BURST)]
            async with asyncio.TaskGroup() as group:
                for text in texts:
                    group.create_task(world.adapter.send(outbound(target, text)))
            assert await world.hear(BURST) == texts

        self._tell(story)

    def test_text_at_the_limit_arrives_whole(self) -> None:
        """Text of exactly ``text_max`` units, of wide characters too, arrives as it was."""

        async def story(world: World, inbox: RecordingInbox) -> None:
            target = await _met(world, inbox)
            for filler in ("x", "é", "語", "🙂"):
                text = _filled(filler, world.adapter.text_max(target), world.adapter.capabilities.text_unit)
                await world.adapter.send(outbound(target, text))
                assert await world.hear(1) == [text]

        self._tell(story)

    def test_over_long_text_is_never_cut(self) -> None:
        """Text above the limit arrives whole, in however many messages, or is refused for good."""

        async def story(world: World, inbox: RecordingInbox) -> None:
            target = await _met(world, inbox)
            limit = world.adapter.text_max(target)
            if not limit:
                return
            text = "語" * limit
            error = await _error_of(world, outbound(target, text))
            assert error is None or error.permanent, error
            heard = "" if error is None else text
            while len(heard) < len(text):
                heard += (await world.hear(1))[0]
            assert heard == text
            await world.adapter.send(outbound(target, "still here"))
            assert await world.hear(1) == ["still here"]

        self._tell(story)

    def test_text_is_no_command(self) -> None:
        """Line breaks and control characters in an answer can't become a command of the platform's protocol."""

        async def story(world: World, inbox: RecordingInbox) -> None:
            target = await _met(world, inbox)
            await world.adapter.send(outbound(target, "one\r\nQUIT :two\n\x01VERSION\x01\0three"))
            heard = (await world.hear(1))[0]
            assert "one" in heard
            assert "three" in heard
            await world.adapter.send(outbound(target, "still here"))
            assert await world.hear(1) == ["still here"]

        self._tell(story)

    def test_a_missing_target_is_refused_for_good(self) -> None:
        """A send to a chat that doesn't exist is permanent, and harms no other send."""

        async def story(world: World, inbox: RecordingInbox) -> None:
            target = await _met(world, inbox)
            if world.missing is None:
                return
            nowhere = Target(target.platform, target.account, world.missing)
            good, bad = await asyncio.gather(
                world.adapter.send(outbound(target, "yes")),
                world.adapter.send(outbound(nowhere, "no")),
                return_exceptions=True,
            )
            assert not isinstance(good, BaseException), good
            assert isinstance(bad, SendError), bad
            assert bad.permanent
            assert not bad.ambiguous
            assert await world.hear(1) == ["yes"]

        self._tell(story)

    def test_a_send_while_the_platform_is_away_fails_plainly(self) -> None:
        """While disconnected a send fails at once, surely not sent and worth repeating; afterwards all works again."""

        async def story(world: World, inbox: RecordingInbox) -> None:
            target = await _met(world, inbox)
            if not world.can_go_down:
                return
            await world.go_down()
            error = await _error_of(world, outbound(target, "anybody there?"))
            assert error is not None
            assert not error.ambiguous
            assert not error.permanent
            await world.come_back()
            count = len(inbox.events)
            await world.say("dm", "are you back?")
            assert (await inbox.heard(count + 1))[-1].text == "are you back?"
            await world.adapter.send(outbound(target, "I am"))
            assert await world.hear(1) == ["I am"]

        self._tell(story)

    def test_what_was_not_accepted_is_given_again(self) -> None:
        """Where the platform replays, a refused message comes again to the next run; an accepted one doesn't."""

        async def story(world: World, inbox: RecordingInbox) -> None:
            await world.say("dm", "kept")
            await inbox.heard(1)
            inbox.refuse = True
            await world.say("dm", "refused")
            await inbox.heard(2)

        async def sequel(world: World, inbox: RecordingInbox) -> None:
            if world.adapter.capabilities.replay != "none":
                assert [event.text for event in await inbox.heard(1)] == ["refused"]

        self._tell(story, sequel)

    def test_a_repeated_key_posts_once_where_the_platform_says_so(self) -> None:
        """With ``idempotent_send`` the second attempt of one part doesn't appear again."""

        async def story(world: World, inbox: RecordingInbox) -> None:
            target = await _met(world, inbox)
            if not world.adapter.capabilities.idempotent_send:
                return
            first = await world.adapter.send(outbound(target, "once", key="k"))
            assert await world.adapter.send(outbound(target, "once", key="k")) == first
            await world.adapter.send(outbound(target, "next"))
            assert await world.hear(2) == ["once", "next"]

        self._tell(story)

    def test_an_edit_may_be_repeated_where_the_platform_can(self) -> None:
        """With ``edit`` a message's text is replaced, by the same edit twice as by one; a message that isn't there is
        refused for good.
        """

        async def story(world: World, inbox: RecordingInbox) -> None:
            target = await _met(world, inbox)
            if not world.adapter.capabilities.edit:
                return
            adapter = cast("Edits", world.adapter)
            sent = await world.adapter.send(outbound(target, "draft"))
            assert sent.message_id
            for _ in range(2):
                edited = await adapter.edit(replace(outbound(target, "done"), edits=sent.message_id))
                assert edited is None or edited.message_id in (None, sent.message_id)
            with pytest.raises(SendError) as refused:
                await adapter.edit(replace(outbound(target, "done"), edits="no such message"))
            assert refused.value.permanent
            assert await world.hear(1) == ["done"]
            await world.adapter.send(outbound(target, "next"))
            assert await world.hear(1) == ["next"]

        self._tell(story)

    def test_a_lookup_knows_what_arrived_where_the_platform_can(self) -> None:
        """With ``lookup`` a part that was sent is found under its key, with its id; one that wasn't is not."""

        async def story(world: World, inbox: RecordingInbox) -> None:
            target = await _met(world, inbox)
            if not world.adapter.capabilities.lookup:
                return
            adapter = cast("Lookup", world.adapter)
            sent = await world.adapter.send(outbound(target, "here", key="k1"))
            assert await adapter.lookup(outbound(target, "here", key="k1")) == sent
            assert await adapter.lookup(outbound(target, "there", key="k2")) is None

        self._tell(story)

    def test_nobody_is_told_what_the_account_says_itself(self) -> None:
        """Our own sends don't come back as messages, or only under the id that the adapter gives as its own."""

        async def story(world: World, inbox: RecordingInbox) -> None:
            for count, place in enumerate(world.places, start=1):
                await world.say(place, f"from the {place}")
                await inbox.heard(count)
                await world.adapter.send(outbound(target_of(inbox.events[-1]), f"to the {place}"))
                await world.hear(1)
            await world.say("dm", "last")
            await inbox.heard(len(world.places) + 1)
            own = getattr(world.adapter, "own_id", None)
            ours = [event for event in inbox.events if event.text.startswith("to the")]
            assert all(own is not None and event.source.user_id == own for event in ours)

        self._tell(story)

    def test_typing_never_raises(self) -> None:
        """The hint is a hint."""

        async def story(world: World, inbox: RecordingInbox) -> None:
            await world.adapter.typing(await _met(world, inbox))
            await world.adapter.typing(Target(world.adapter.platform, world.adapter.account, "no such chat"))

        self._tell(story)

    def test_cancelling_ends_it(self) -> None:
        """A cancelled run is over soon, leaves no task behind, and can be started again."""

        async def main() -> None:
            async with self.world() as world:
                async with running(world.adapter):
                    await world.ready()  # the world's own people are there from now on
                before = asyncio.all_tasks()
                async with running(world.adapter):
                    await world.ready()
                assert asyncio.all_tasks() == before

        asyncio.run(main())

    def _tell(self, *stories: Callable[[World, RecordingInbox], Awaitable[None]]) -> None:
        """Tell the stories in one world, each with a run and an inbox of its own."""

        async def main() -> None:
            async with self.world() as world:
                for story in stories:
                    async with running(world.adapter) as inbox:
                        await world.ready()
                        await story(world, inbox)

        asyncio.run(main())


@asynccontextmanager
async def running(adapter: Adapter) -> AsyncIterator[RecordingInbox]:
    """Run an adapter with an inbox that records; cancel it at the end, and fail if it had ended by itself."""
    inbox = RecordingInbox()
    run = asyncio.ensure_future(adapter.run(inbox))
    try:
        yield inbox
        assert not run.done(), f"run ended by itself: {run}"
    finally:
        run.cancel()
        async with asyncio.timeout(WAIT_S_MAX):
            await asyncio.gather(run, return_exceptions=True)


def outbound(target: Target, text: str, *, key: str | None = None) -> Outbound:
    """One part of a reply of one part."""
    return Outbound("d1", 0, 1, text, target, key if key is not None else f"d1:0:{text}", 1)


def target_of(event: MessageEvent) -> Target:
    """Where the answer to ``event`` goes, as the runtime records it."""
    source = event.source
    return Target(
        source.platform.name,
        event.account,
        source.chat_id,
        source.chat_type,
        source.thread_id,
        source.user_id,
        event.message_id,
    )


async def _met(world: World, inbox: RecordingInbox) -> Target:
    """Where the person is found, as they said something."""
    await world.say("dm", "hello")
    return target_of((await inbox.heard(1))[0])


def _filled(filler: str, limit: int, unit: str) -> str:
    """Exactly ``limit`` units of text that end in ``filler``; any length where there is no limit."""
    size = {"bytes": len(filler.encode()), "utf16": len(filler.encode("utf-16-le")) // 2, "codepoints": 1}[unit]
    count, rest = divmod(limit or 1000, size)
    return "." * rest + filler * count


async def _error_of(world: World, out: Outbound) -> SendError | None:
    try:
        await world.adapter.send(out)
    except SendError as error:
        return error
    return None
