"""Real threads: any actor dies at any message; lanes are put to rest while mail is on its way to them."""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from seriatim import GatewayConfig, Turn
from seriatim.actors.delivery import DeliveryActor
from seriatim.actors.loading import LaneReader
from seriatim.actors.persistence import PersistenceActor
from seriatim.actors.pooled import PooledActor
from seriatim.actors.receipts import End
from seriatim.actors.session import Passivated, SessionActor, Stay
from seriatim.actors.supervisor import SupervisorActor
from seriatim.actors.warden import CacheWardenActor
from seriatim.config import AgentCacheConfig, AgentConfig, StopConfig
from seriatim.outbox import RECOVERED_NOTICE
from seriatim.storage.audit import audit
from seriatim.storage.sqlite_reader import SqliteReader
from seriatim.testing.fake_platform import FakePlatform

from .bots import WAIT_S, Bot, bot, event, run, until

CHATS = ("a", "b", "c")
TEXTS = ("one", "two")
SAMPLES = 5
CLASSES: tuple[type[PooledActor], ...] = (
    SessionActor,
    SupervisorActor,
    DeliveryActor,
    PersistenceActor,
    LaneReader,
    CacheWardenActor,
)


def config() -> GatewayConfig:
    """One conversation may stay warm: the others are put to rest all the time."""
    return GatewayConfig(
        agent=AgentConfig(agent_cache=AgentCacheConfig(max_size=1)), stop=StopConfig(drain_s=1.0, watchdog_s=10.0)
    )


class Killer:
    """Raises at one message of one class of actors, counted over all of them."""

    def __init__(self, patch: pytest.MonkeyPatch, actor_class: type[PooledActor], at: int) -> None:
        self.seen = 0
        self.killed: Any = None
        receive = actor_class.on_receive

        def on_receive(actor: Any, message: Any) -> None:
            self.seen += 1
            if self.seen == at:
                self.killed = message
                raise RuntimeError(f"killed at {type(message).__name__}")
            receive(actor, message)

        patch.setattr(actor_class, "on_receive", on_receive)


async def scenario(home: Path, platform: FakePlatform) -> bool:
    """People talk until all are answered or the gateway has failed; whether it went on to the end."""

    async def answer(turn: Turn) -> str:
        await asyncio.sleep(0)
        return f"re {turn.text}"

    async with bot(answer, home, platform, config=config()) as it:
        for text in TEXTS:
            for chat in CHATS:
                platform.say(f"{text} in {chat}", chat_id=chat)
            await until(lambda: _failed(it) or _all_done(it))
            if _failed(it):
                return False
        return True


def _all_done(it: Bot) -> bool:
    """Everything that was posted is acked, and nothing waits, runs or is owed."""
    runtime = it.gateway._runtime
    assert runtime is not None
    if runtime.busy or not all(posted.acked for posted in it.platform.posted):
        return False
    return it.gateway.balance()["waiting"] == 0


def _failed(it: Bot) -> bool:
    return bool(it.health["state"] == "failed")


def messages_of(actor_class: type[PooledActor], home: Path) -> int:
    """How many messages such actors get when nobody dies."""
    with pytest.MonkeyPatch.context() as patch:
        killer = Killer(patch, actor_class, at=0)
        assert run(scenario(home, FakePlatform()))
        return killer.seen


@pytest.mark.parametrize("actor_class", CLASSES, ids=lambda actor_class: actor_class.__name__)
def test_any_actor_may_die_at_any_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, actor_class: type[PooledActor]
) -> None:
    """Wherever it strikes, the lane restarts, or the gateway fails and the next start recovers: everything accepted
    is answered, in order, and a reply that comes twice says so (B140).
    """
    monkeypatch.setattr("seriatim.actors.deaths.RESTART_MS", (0,))
    monkeypatch.setattr("seriatim.stopping.SETTLE_S_MAX", 0.1)
    total = messages_of(actor_class, tmp_path / "dry")
    assert total > 0
    for sample in range(SAMPLES):
        at = 1 + sample * (total - 1) // max(1, SAMPLES - 1)
        home, platform = tmp_path / f"at{at}", FakePlatform()
        with pytest.MonkeyPatch.context() as patch:
            killer = Killer(patch, actor_class, at)
            ended = run(scenario(home, platform))
            assert ended or killer.killed is not None
        if not ended:
            assert actor_class is not SessionActor, "a lane's death must not end the gateway"
            platform.redeliver()
        # What was not said before the end is said now, what was not acked is given again.
        assert run(scenario(home, platform)), f"{actor_class.__name__} at {at}"
        for chat in CHATS:
            _judge(platform.texts(chat), chat, f"{actor_class.__name__} at {at}: {killer.killed!r:.200}")
        reader = SqliteReader(home / "state.db")
        try:
            assert audit(reader).holds, f"{actor_class.__name__} at {at}"
            assert reader.open_work() == []
        finally:
            reader.close()


def _judge(told: list[str], chat: str, where: str) -> None:
    """Each text answered, first "one", then "two"; each run of the scenario says them once more, so up to twice."""
    plain = [text for text in told if not text.startswith(RECOVERED_NOTICE)]
    for text in TEXTS:
        answers = [said for said in told if f"{text} in {chat}" in said]
        assert answers, f"{where}: {text} was never answered"
        assert sum(said.count(f"{text} in {chat}") for said in plain) <= 2, f"{where}: an unmarked repeat in {told}"
    first = [next(n for n, said in enumerate(told) if f"{text} in {chat}" in said) for text in TEXTS]
    assert first == sorted(first), f"{where}: out of order: {told}"


def test_lookup_races_passivation_and_mail_is_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads send to lanes that are put to rest all the time: every message is answered, in its sender's order, no
    two incarnations of a lane serve at once, and both ends of the handshake are seen.
    """
    lanes, senders, each = 8, 3, 12
    serving: defaultdict[str, list[SessionActor]] = defaultdict(list)
    seen: defaultdict[str, int] = defaultdict(int)
    doubles: list[str] = []
    start, receive = SessionActor.on_start, SupervisorActor.on_receive

    def on_start(actor: SessionActor) -> None:
        doubles.extend(actor.key for other in serving[actor.key] if not other._over)
        serving[actor.key].append(actor)
        start(actor)

    def on_receive(actor: SupervisorActor, message: Any) -> None:
        if type(message) in (Passivated, Stay):
            seen[type(message).__name__] += 1
        receive(actor, message)

    monkeypatch.setattr(SessionActor, "on_start", on_start)
    monkeypatch.setattr(SupervisorActor, "on_receive", on_receive)
    turns: defaultdict[str, list[str]] = defaultdict(list)

    async def answer(turn: Turn) -> str:
        turns[str(turn.source.chat_id)].extend(turn.text.split("\n"))
        await asyncio.sleep(0)
        return "ok"

    async def main() -> None:
        ends: list[End] = []
        async with bot(answer, tmp_path, config=config()) as it:

            def send(sender: int) -> None:
                for number in range(each):
                    for lane in range(lanes):  # at its own pace, so that lanes come to rest in between
                        receipt = it.gateway.submit(event(f"{sender}:{number}", f"lane{lane}")).result()
                        ends.append(receipt.wait(WAIT_S))

            threads = [threading.Thread(target=send, args=(k,)) for k in range(senders)]
            for thread in threads:
                thread.start()
            await until(lambda: not any(thread.is_alive() for thread in threads))
            assert len(ends) == lanes * senders * each
            assert {end.outcome for end in ends} <= {"answered", "merged"}
            await it.at_rest()
            assert it.gateway.balance()["accepted"] == lanes * senders * each
            assert it.health["lane_restarts"] == 0

    run(main())
    assert doubles == []
    assert seen["Passivated"] > lanes, seen
    for texts in turns.values():
        for sender in range(senders):
            mine = [int(text.split(":")[1]) for text in texts if text.startswith(f"{sender}:")]
            assert mine == list(range(each))
