"""What a platform gives late: commands that do nothing, texts that are left."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from seriatim.batch import Rules
from seriatim.effects import Deliver, RunTurn

from .bench import Bench

HOUR_MS = 3_600_000
START_MS = 100 * HOUR_MS


def sent(bench: Bench, text: str, ago_ms: int | None) -> str:
    """A message that was sent so long ago comes to the door; its outcome in the log."""
    bench.now.time = START_MS
    message = bench.message(text)
    at = None if ago_ms is None else START_MS - ago_ms
    bench.tell(replace(message, event=replace(message.event, received_at=at)))
    return bench.outcome(message.id)


@pytest.mark.parametrize("text", ["/stop", "/new", "/help", "/nonsense", "/queue"])
@pytest.mark.parametrize(
    ("ago_ms", "told"),
    [(600_001, "10 minutes"), (HOUR_MS, "1 hour"), (50 * HOUR_MS, "2 days")],
)
def test_an_old_command_is_answered_and_does_nothing(text: str, ago_ms: int, told: str) -> None:
    """No turn is stopped, no session is left, nothing is refused: the answer says why."""
    bench = Bench()
    bench.said("long")
    bound = bench.gate.durable.bound

    assert sent(bench, text, ago_ms) == "answered"
    assert f"{told} ago and was not carried out" in bench.all(Deliver)[-1].parts[0]
    assert bench.gate.durable.running is not None
    assert bench.gate.durable.bound == bound


@pytest.mark.parametrize("ago_ms", [None, 0, 600_000, -HOUR_MS])
def test_a_command_of_now_acts(ago_ms: int | None) -> None:
    """Young enough, without a time, or from a clock ahead of ours: it is carried out."""
    bench = Bench()
    bench.said("long")
    sent(bench, "/stop", ago_ms)

    assert bench.gate.durable.running is None


@pytest.mark.parametrize("text", ["hello", "/queue hello"])
def test_an_old_text_is_dropped_only_where_the_settings_say_so(text: str) -> None:
    """Accepted and dropped as stale, in the log; by default any age is answered."""
    strict, plain = Bench(Rules(text_age_ms_max=HOUR_MS)), Bench()

    assert sent(strict, text, HOUR_MS + 1) == "dropped (stale)"
    assert strict.all(RunTurn) == []
    assert strict.gate.durable.waiting == {}
    assert sent(strict, text, HOUR_MS) == ""
    assert len(strict.all(RunTurn)) == 1
    assert sent(plain, text, 99 * HOUR_MS) == ""
    assert len(plain.all(RunTurn)) == 1


def test_the_order_at_the_door_is_kept_around_a_stale_message() -> None:
    """It goes by, and what waits behind a running turn stays as it was."""
    bench = Bench(Rules(text_age_ms_max=HOUR_MS))
    bench.said("one")
    waits = bench.said("two")
    sent(bench, "old", 2 * HOUR_MS)
    bench.answer()

    assert [data["id"] for data, _ in bench.all(RunTurn)[-1].claims] == [waits]
