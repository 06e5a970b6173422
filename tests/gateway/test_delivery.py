"""Owed replies on a platform that misbehaves, on a clock of ours: waits, outages, refusals, parts, anchors, drafts."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest
from msgspec.structs import replace

from seriatim import GatewayConfig, Turn
from seriatim.actors.delivery import DeliveryActor
from seriatim.adapters.base import Capabilities
from seriatim.config import DeliveryConfig, StopConfig
from seriatim.events import Event
from seriatim.limits import REPLY_PARTS_MAX
from seriatim.model import Outbound, Sent
from seriatim.outbox import CUT_NOTE, RECOVERED_NOTICE
from seriatim.storage.sqlite_reader import SqliteReader
from seriatim.testing.clock import VirtualClock
from seriatim.testing.fake_platform import FakePlatform, Fault

from .bots import Bot, bot, echo, run, until

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
NARROW = Capabilities(replay="ack", text_max=160, multiline=False)


async def settle(it: Bot) -> None:
    """Let everything happen that needs no time: mail, turns, commits on their way, sends that end."""
    runtime = it.gateway._runtime
    assert runtime is not None
    lanes = runtime.directory.live
    (account, _) = runtime.deliveries._accounts["fake", "fake"]
    jobs: Any = account._box.actor._jobs
    loop: Any = account._box.dispatcher

    def at_rest() -> bool:
        # Those on other threads first: what they said before they came to rest is then seen at the loop.
        boxes = sorted((ref._box for ref in runtime.system), key=lambda box: box.dispatcher is loop)
        has_mail = any(box.idle.locked() for box in boxes) or loop._resting.locked()
        in_flight = any(ref._box.actor._gate._in_flight for ref in lanes.values())
        busy = has_mail or in_flight or runtime.slots.held
        return not (busy or any(job.asked or job.sending for job in jobs.values()))

    for _ in range(5):
        await asyncio.sleep(0)
        await until(at_rest)


async def passes(it: Bot, clock: VirtualClock, ms: float) -> None:
    """Time passes, timer by timer."""
    await settle(it)
    end = clock.monotonic_ms() + ms
    while (due := clock.next_due_ms()) is not None and due <= end:
        clock.fire_next()
        await settle(it)
    clock.advance(end - clock.monotonic_ms())
    await settle(it)


async def goes_on(it: Bot, clock: VirtualClock, ms: float) -> None:
    """Time passes until nothing is owed; it must be within ``ms``."""
    end = clock.monotonic_ms() + ms
    await settle(it)
    while it.health["replies_pending"]:
        due = clock.next_due_ms()
        if due is None:
            await asyncio.sleep(0.001)  # something is on its way by a thread of its own
        else:
            assert due <= end, "still owed"
            clock.fire_next()
        await settle(it)


def lane_events(home: Path, *types: str) -> list[Event]:
    """All lanes' events of these types, once the writer has them."""
    reader = SqliteReader(home / "state.db")
    try:
        return [event for log in reader.logs("lane:") for event in reader.read(log) if event.type in types]
    finally:
        reader.close()


def config(**delivery: Any) -> GatewayConfig:
    """Of a gateway that stops soon."""
    return GatewayConfig(delivery=DeliveryConfig(**delivery), stop=StopConfig(drain_s=1.0, watchdog_s=10.0))


@asynccontextmanager
async def timed(
    answer: Any, home: Path, platform: FakePlatform | None = None, clock: VirtualClock | None = None, **more: Any
) -> AsyncIterator[tuple[Bot, VirtualClock]]:
    """A bot whose time is ours; at its end the lazy records are flushed by the stop."""
    clock = VirtualClock() if clock is None else clock
    async with bot(answer, home, platform, clock=clock, config=more.pop("config", None) or config(), **more) as it:
        yield it, clock


def crash_image(home: Path, to: Path) -> Path:
    """What a SIGKILL would leave of a home whose gateway goes on: its files, without its lock."""
    shutil.copytree(home, to, ignore=shutil.ignore_patterns("lock", "*-shm"))
    return to


async def owed(it: Bot, count: int = 1) -> None:
    """So many replies are owed."""
    await until(lambda: it.health["replies_pending"] >= count)


# --- while the process lives -----------------------------------------------------------------------------


def test_a_refused_send_is_tried_on_by_the_live_process(tmp_path: Path) -> None:
    """Five sure failures in a row, no restart: tried on with growing waits, delivered once, unmarked (B77)."""

    async def main() -> None:
        platform = FakePlatform()
        platform.fail_next(*[Fault("plain")] * 5)
        async with timed(echo, tmp_path, platform) as (it, clock):
            it.say("hi")
            await until(lambda: platform.sends == 1)
            began = clock.monotonic_ms()
            assert it.health["replies_pending"] == 1
            await goes_on(it, clock, MINUTE_MS)
            assert platform.texts() == ["echo hi"]
            assert platform.sends == 6
            assert clock.monotonic_ms() - began > 500 * 0.75

    run(main())
    kinds = [event.type for event in lane_events(tmp_path, "delivery/attempt", "delivery/failed", "delivery/settled")]
    assert kinds == ["delivery/failed", "delivery/attempt"] * 5 + ["delivery/settled"]


def test_a_reply_waits_behind_what_its_chat_owes(tmp_path: Path) -> None:
    """A group's first reply was refused and rests: that to another person there is not sent before it, another chat's
    is; in the end nothing is pending.
    """

    async def main() -> None:
        platform = FakePlatform()
        platform.fail_next(Fault("plain"))
        async with timed(echo, tmp_path, platform) as (it, clock):
            for text, chat in (("a", "1"), ("b", "1"), ("c", "2")):
                platform.say(text, chat_id=chat, user_id=text, chat_type="group")
                await settle(it)
            assert platform.texts() == ["echo c"]
            assert it.health["replies_pending"] == 2
            await goes_on(it, clock, MINUTE_MS)
            assert platform.texts() == ["echo c", "echo a", "echo b"]

    run(main())


class AtOnce(FakePlatform):
    """A platform whose sends never wait."""

    async def send(self, out: Outbound) -> Sent:
        """It has it."""
        self.receive(out)
        return Sent(out.idempotency_key)


def test_what_was_sent_at_once_is_owed_no_longer(tmp_path: Path) -> None:
    """Sends that end at their first step: nothing is pending after them, and each is settled under its id."""

    async def main() -> None:
        platform = AtOnce()
        async with timed(echo, tmp_path, platform) as (it, _):
            for text in ("a", "b"):
                it.say(text)
                await settle(it)
            assert platform.texts() == ["echo a", "echo b"]
            assert it.health["replies_pending"] == 0

    run(main())
    settled = lane_events(tmp_path, "delivery/settled")
    assert [event.data["messageId"] for event in settled] == [f"{event.data['id']}.0" for event in settled]
    assert len(settled) == 2


def test_an_outage_is_waited_out(tmp_path: Path) -> None:
    """Three hours without the platform: nothing is tried, nothing is lost, the order per chat holds (B78)."""

    async def main() -> None:
        platform = FakePlatform()
        async with timed(echo, tmp_path, platform) as (it, clock):
            for chat in ("1", "2"):
                for text in ("a", "b"):
                    it.say(text, chat)
                    await settle(it)
            await it.heard(4)
            platform.go_down()
            for chat in ("1", "2"):
                await it.gateway.accept(platform.post(replace(_said(platform, chat, "c"))).event)
                await it.gateway.accept(platform.post(replace(_said(platform, chat, "d"))).event)
            await owed(it, 2)
            sends = platform.sends
            await passes(it, clock, 3 * HOUR_MS)
            assert platform.sends == sends
            platform.come_back()
            await goes_on(it, clock, MINUTE_MS)
            for chat in ("1", "2"):
                assert platform.texts(chat)[:2] == ["echo a", "echo b"]
                assert "".join(platform.texts(chat)[2:]).replace("echo ", "").replace("\n", "") == "cd"

    run(main())
    assert lane_events(tmp_path, "delivery/abandoned") == []


def _said(platform: FakePlatform, chat: str, text: str) -> Any:
    posted = platform.say(text, chat_id=chat)
    platform.posted.remove(posted)
    return replace(posted.event, message_id=f"{chat}{text}")


def test_a_flood_wait_is_honoured_and_holds_nobody_else_up(tmp_path: Path) -> None:
    """A wait of 223 s: that chat waits so long and no longer, others go on meanwhile (B78)."""

    async def main() -> None:
        platform = FakePlatform()
        async with timed(echo, tmp_path, platform) as (it, clock):
            platform.fail_next(Fault("plain", wait_s=223))
            it.say("hi", "slow")
            await until(lambda: platform.sends == 1)
            it.say("hi", "quick")
            assert await it.heard(1) == ["echo hi"]
            assert platform.received[0].out.target.chat_id == "quick"
            await passes(it, clock, 222_900)
            assert platform.texts("slow") == []
            await passes(it, clock, 1_000)
            await until(lambda: platform.texts("slow"))
            assert platform.sends == 3

    run(main())


def test_a_flood_wait_outlives_a_restart(tmp_path: Path) -> None:
    """The platform asked for ten minutes, the gateway starts again after one: nothing is sent before they are over."""
    clock, platform = VirtualClock(), FakePlatform()

    async def first() -> None:
        async with timed(echo, tmp_path, platform, clock) as (it, _):
            platform.fail_next(Fault("plain", wait_s=600))
            it.say("hi")
            await until(lambda: platform.sends == 1)
            await passes(it, clock, MINUTE_MS)

    async def second() -> None:
        async with timed(echo, tmp_path, platform, clock) as (it, _):
            await owed(it)
            await passes(it, clock, 8 * MINUTE_MS)
            assert platform.sends == 1
            await passes(it, clock, 2 * MINUTE_MS)
            assert await it.heard(1) == ["echo hi"]

    run(first())
    run(second())


def test_what_is_too_old_is_given_up_and_told_with_the_next_turn(tmp_path: Path) -> None:
    """Refused for as long as a reply may wait: given up with its reason, only then; the next turn's answer comes
    behind a line that says so, once (B78).
    """

    async def main() -> None:
        platform = FakePlatform()
        platform.fail_next(*[Fault("plain")] * 500)
        async with timed(echo, tmp_path, platform, config=config(max_age_s=7200)) as (it, clock):
            it.say("hi")
            await until(lambda: platform.sends == 1)
            await passes(it, clock, HOUR_MS)
            assert it.health["replies_pending"] == 1
            await passes(it, clock, HOUR_MS + 2 * MINUTE_MS)
            assert it.health["replies_pending"] == 0
            platform._faults.clear()
            it.say("again")
            assert await it.heard(2) == ["An earlier reply could not be delivered (too old).", "echo again"]
            it.say("and again")
            assert (await it.heard(3))[2:] == ["echo and again"]

    run(main())
    [abandoned] = lane_events(tmp_path, "delivery/abandoned")
    assert abandoned.data["reason"] == "too old"


@pytest.mark.parametrize("jump_ms", [365 * 24 * HOUR_MS, -365 * 24 * HOUR_MS])
def test_a_wall_clock_that_is_set_makes_no_reply_old_or_young(tmp_path: Path, jump_ms: int) -> None:
    """What waits for its retry ages with the process: it is not given up at once, nor kept beyond its time."""

    async def main() -> None:
        platform = FakePlatform()
        async with timed(echo, tmp_path, platform, config=config(max_age_s=7200)) as (it, clock):
            for faults, heard in ((1, ["echo hi"]), (500, [])):
                platform.received.clear()
                platform.fail_next(*[Fault("plain")] * faults)
                it.say("hi")
                await until(lambda: it.health["replies_pending"])
                await settle(it)
                clock.jump_wall(jump_ms)
                await passes(it, clock, HOUR_MS)
                assert platform.texts() == heard
                assert it.health["replies_pending"] == (not heard)
            await passes(it, clock, HOUR_MS + 2 * MINUTE_MS)
            assert it.health["replies_pending"] == 0

    run(main())
    [abandoned] = lane_events(tmp_path, "delivery/abandoned")
    assert abandoned.data["reason"] == "too old"


def test_a_wait_longer_than_its_age_ends_with_the_age(tmp_path: Path) -> None:
    """A platform that asks for a year is not waited for: the reply is given up at its age."""

    async def main() -> None:
        platform = FakePlatform()
        async with timed(echo, tmp_path, platform, config=config(max_age_s=3600)) as (it, clock):
            platform.fail_next(Fault("plain", wait_s=1e9))
            it.say("hi")
            await until(lambda: platform.sends == 1)
            await passes(it, clock, HOUR_MS + MINUTE_MS)
            assert it.health["replies_pending"] == 0

    run(main())


@pytest.mark.parametrize("code", ["gone", "blocked", "too_long", None])
def test_a_refusal_for_good_ends_with_its_kind(tmp_path: Path, code: Any) -> None:
    """Given up at once, with a reason for programs and the platform's words; the chat goes on."""

    async def main() -> None:
        platform = FakePlatform()
        async with timed(echo, tmp_path, platform) as (it, clock):
            platform.fail_next(Fault("permanent", code=code))
            it.say("hi")
            await until(lambda: platform.sends == 1)
            await goes_on(it, clock, MINUTE_MS)
            it.say("more")
            assert (await it.heard(2))[1:] == ["echo more"]

    run(main())
    [abandoned] = lane_events(tmp_path, "delivery/abandoned")
    assert (abandoned.data["reason"], abandoned.data["detail"]) == (code or "refused", "refused")


def test_a_late_failure_is_recorded_and_told_once(tmp_path: Path) -> None:
    """The platform took a reply and reports a failure afterwards, three times: one record, nothing sent again by
    itself, no turn of its own; the next turn's answer comes behind a line that says so, once (B87).
    """
    turns: list[str] = []

    async def counted(turn: Turn) -> str:
        turns.append(turn.text)
        return f"echo {turn.text}"

    async def main() -> None:
        platform = FakePlatform()
        async with timed(counted, tmp_path, platform) as (it, clock):
            it.say("hi")
            await it.heard(1)
            await passes(it, clock, 1_000)
            for _ in range(3):
                platform.bounce(platform.received[0])
                await passes(it, clock, HOUR_MS)
            assert turns == ["hi"]
            assert platform.sends == 1
            it.say("more")
            told = await it.heard(3)
            assert told[1:] == [
                "An earlier reply could not be delivered (the platform reported a failure).",
                "echo more",
            ]
            platform.bounce(platform.received[0])
            it.say("and more")
            assert (await it.heard(4))[3:] == ["echo and more"]

    run(main())
    assert [event.data["reason"] for event in lane_events(tmp_path, "delivery/bounced")] == ["bounced"]


# --- parts -------------------------------------------------------------------------------------------------


async def in_parts(turn: Turn) -> str:
    """Four parts on a narrow platform."""
    return "\n".join(f"{turn.text} {part} " + "x" * 90 for part in range(4))


def parts_of(platform: FakePlatform) -> list[str]:
    """What arrived, each part by its first two words, with a star where it says that it may be a repeat."""
    texts = platform.texts()
    return [("*" if t.startswith(RECOVERED_NOTICE) else "") + " ".join(_plain(t).split()[:2]) for t in texts]


def _plain(text: str) -> str:
    return text.removeprefix(RECOVERED_NOTICE)


@pytest.mark.parametrize(
    ("faults", "arrived"),
    [
        ((None, None, "plain", "plain"), ["m 0", "m 1", "m 2", "m 3"]),
        ((None, "lost"), ["m 0", "*m 1", "m 2", "m 3"]),
        ((None, "arrived"), ["m 0", "m 1", "*m 1", "m 2", "m 3"]),
    ],
)
def test_a_long_reply_goes_on_where_it_surely_had_not_arrived(
    tmp_path: Path, faults: tuple[Any, ...], arrived: list[str]
) -> None:
    """Part 3 refused: on from part 3. Part 2 of unknown outcome: that part again, marked; no other twice (B81)."""

    async def main() -> None:
        platform = FakePlatform(capabilities=NARROW)
        async with timed(in_parts, tmp_path, platform) as (it, clock):
            platform.fail_next(*faults)
            it.say("m")
            await until(lambda: platform.sends >= len(faults) - 1)
            await goes_on(it, clock, MINUTE_MS)
            assert parts_of(platform) == arrived

    run(main())


def test_two_replies_to_a_chat_don_t_mix(tmp_path: Path) -> None:
    """Two people of one chat are answered at once in four parts each, one of them with a pause: one after another."""

    async def main() -> None:
        platform = FakePlatform(capabilities=NARROW)
        async with timed(in_parts, tmp_path, platform) as (it, clock):
            platform.fail_next(None, "plain")
            for user in ("u", "v"):
                platform.say(user, chat_id="g", user_id=user, chat_type="group")
            await until(lambda: platform.sends >= 2)
            await goes_on(it, clock, MINUTE_MS)
            told = parts_of(platform)
            first = told[0][0]
            assert told == [f"{who} {part}" for who in (first, "uv".replace(first, "")) for part in range(4)]

    run(main())


@pytest.mark.parametrize(
    ("able", "arrived"),
    [
        (NARROW, ["m 0", "m 1", "*m 1", "m 2", "m 3"]),
        (attrs.evolve(NARROW, idempotent_send=True), ["m 0", "m 1", "m 2", "m 3"]),
        (attrs.evolve(NARROW, lookup=True), ["m 0", "m 1", "m 2", "m 3"]),
    ],
    ids=["neither", "idempotent", "lookup"],
)
def test_a_crash_between_parts_repeats_only_what_is_in_doubt(
    tmp_path: Path, able: Capabilities, arrived: list[str]
) -> None:
    """Killed with part 2 arrived and not yet recorded: that part again, marked where the platform can neither
    deduplicate nor look it up, and the rest once; the turn isn't run again (B75, B81).
    """
    turns: list[str] = []

    async def counted(turn: Turn) -> str:
        turns.append(turn.text)
        return await in_parts(turn)

    clock, platform = VirtualClock(), FakePlatform(capabilities=able)

    async def first() -> None:
        async with timed(counted, tmp_path / "home", platform, clock) as (it, _):
            platform.fail_next(None, "arrived")
            it.say("m")
            await until(lambda: platform.sends == 2)
            await passes(it, clock, 250)  # the first part's arrival is recorded
            await until(lambda: lane_events(tmp_path / "home", "delivery/settled"))
            crash_image(tmp_path / "home", tmp_path / "image")
            platform.go_down()

    async def second() -> None:
        platform.come_back()
        async with timed(counted, tmp_path / "image", platform, clock) as (it, _):
            await until(lambda: it.health["replies_pending"] or len(platform.received) >= 4)
            await goes_on(it, clock, MINUTE_MS)

    run(first())
    run(second())
    assert parts_of(platform) == arrived
    assert turns == ["m"]


def test_a_lookup_that_finds_nothing_sends_plainly(tmp_path: Path) -> None:
    """Where the platform can say that it has no such message, a repeat needs no mark."""

    async def main() -> None:
        platform = FakePlatform(capabilities=Capabilities(replay="ack", lookup=True))
        async with timed(echo, tmp_path, platform) as (it, clock):
            platform.fail_next("lost", "arrived", "lost")
            it.say("hi")
            await until(lambda: platform.sends == 1)
            await goes_on(it, clock, MINUTE_MS)
            assert platform.texts() == ["echo hi"]

    run(main())


def test_ambiguous_sends_are_bounded(tmp_path: Path) -> None:
    """At most three sends of unknown outcome for a part; then it is given up, and the next turn says so."""

    async def main() -> None:
        platform = FakePlatform()
        async with timed(echo, tmp_path, platform) as (it, clock):
            platform.fail_next(*[Fault("lost")] * 9)
            it.say("hi")
            await until(lambda: platform.sends == 1)
            await goes_on(it, clock, HOUR_MS)
            assert platform.sends == 3
            platform._faults.clear()
            it.say("more")
            told = await it.heard(2)
            assert "too many attempts of unknown outcome" in told[0]

    run(main())


def test_a_degenerate_reply_is_bounded_in_parts(tmp_path: Path) -> None:
    """200,000 characters: at most forty messages, the last says that it was cut, and the ledger shows as many (B86)."""

    async def main() -> None:
        platform = FakePlatform(capabilities=Capabilities(replay="ack", text_max=400))

        async def endless(turn: Turn) -> str:
            return "again and again " * 12_500

        async with timed(endless, tmp_path, platform) as (it, clock):
            it.say("hi")
            await it.heard(1)
            await goes_on(it, clock, MINUTE_MS)
            assert len(platform.received) == REPLY_PARTS_MAX
            assert platform.texts()[-1] == CUT_NOTE

    run(main())
    [event] = lane_events(tmp_path, "delivery/owed")
    assert len(event.data["parts"]) == REPLY_PARTS_MAX


# --- what a reply hangs on -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gone", "left"),
    [((), ("t", "q")), (("q",), ("t", None)), (("t",), (None, None)), (("t", "q"), (None, None))],
    ids=["all there", "message gone", "thread gone", "both gone"],
)
def test_thread_and_anchor_are_kept_through_a_restart(
    tmp_path: Path, gone: tuple[str, ...], left: tuple[str | None, str | None]
) -> None:
    """A reply owed in a thread, to a message, is sent there after a restart; what is gone falls back to the thread,
    then to the chat (B80).
    """
    clock, platform = VirtualClock(), FakePlatform()

    async def first() -> None:
        async with timed(echo, tmp_path, platform, clock):
            platform.fail_next(Fault("plain", wait_s=30))
            event = replace(platform.say("hi", thread_id="t").event, message_id="q")
            platform.posted[0].event = event
            await until(lambda: platform.sends == 1)

    async def second() -> None:
        platform.gone.update(gone)
        async with timed(echo, tmp_path, platform, clock) as (it, _):
            await until(lambda: it.health["replies_pending"] or platform.received)
            await goes_on(it, clock, MINUTE_MS)
            [got] = platform.received
            assert got.out.text == "echo hi"
            assert (got.out.target.thread_id, got.out.target.reply_to_id) == left

    run(first())
    run(second())


def test_a_reply_belongs_to_its_lane_not_to_a_connection(tmp_path: Path) -> None:
    """The platform goes away while the turn runs and is back under a new connection: the reply arrives (B89)."""

    async def main() -> None:
        platform = FakePlatform()
        begun, finish = asyncio.Event(), asyncio.Event()

        async def slow(turn: Turn) -> str:
            begun.set()
            await finish.wait()
            return "done"

        async with timed(slow, tmp_path, platform) as (it, clock):
            it.say("hi")
            await begun.wait()
            platform.go_down()
            finish.set()
            await owed(it)
            await passes(it, clock, HOUR_MS)
            platform.come_back()
            await goes_on(it, clock, MINUTE_MS)
            assert platform.texts() == ["done"]

    run(main())


# --- a stop ------------------------------------------------------------------------------------------------


def test_a_send_that_hangs_does_not_cost_the_stop_its_time(tmp_path: Path) -> None:
    """An adapter whose send never ends and ignores its cancellation: the stop is over in three seconds, names it, and
    the reply is still owed; the loop of ``run`` ends, too.
    """

    async def main() -> tuple[float, list[str]]:
        platform = FakePlatform()
        platform.fail_next("hang")
        loop = asyncio.get_running_loop()
        async with bot(echo, tmp_path, platform, config=config()) as it:
            it.say("hi")
            await until(lambda: platform.sends == 1)
            began = loop.time()
            await it.gateway.stop()
            return loop.time() - began, [where for where, _ in it.errors]

    seconds, errors = run(main())
    assert seconds < 3.5
    assert errors == ["send fake"]

    async def again() -> list[str]:
        async with bot(echo, tmp_path) as it:
            return await it.heard(1)

    assert run(again()) == [RECOVERED_NOTICE + "echo hi"]


def test_an_actor_waits_for_the_platform_with_one_timer(tmp_path: Path) -> None:
    """Fifty chats without their platform: one look a second for all of them, not one each."""

    async def main() -> None:
        platform = FakePlatform()
        seen = 0
        look_again = DeliveryActor._look_again

        def counted(actor: DeliveryActor) -> None:
            nonlocal seen
            seen += 1
            look_again(actor)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(DeliveryActor, "_look_again", counted)
            async with timed(echo, tmp_path, platform) as (it, clock):
                platform.go_down()
                for chat in range(50):
                    await it.gateway.accept(_said(platform, str(chat), "hi"))
                await owed(it, 50)
                await passes(it, clock, 60_000)
                assert 55 <= seen <= 65
                platform.come_back()
                await goes_on(it, clock, MINUTE_MS)
                assert len(platform.received) == 50

    run(main())
