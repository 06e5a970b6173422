"""A gateway whose memory is short: who is let go of, who stays, and what is told of it."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from seriatim.actors.supervisor import PassivateLane
from seriatim.limits import PRESSURE_MS, PRESSURE_PASS_MS_MAX
from seriatim.pressure import MIB
from tests.gateway.bots import balance_holds, event, run, until
from tests.pressure.machine import ScriptedMachine
from tests.pressure.worlds import SIZE, world


def test_the_longest_unused_are_let_go_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over the budget the longest unused lanes and their agents go, each hook once; a running turn and the most recent
    stay; who comes back goes on where they were.
    """

    async def main() -> None:
        async with world(tmp_path, monkeypatch, protect_recent=2) as w:
            held = await w.it.accept("hold", "busy")
            await w.fill("a", "b", "c", "d")
            w.machine.used, w.machine.trimmed = 300, 90
            await w.look()

            assert w.live == {"busy", "c", "d"}
            assert w.machine.trims == 1
            assert [hook for hook, _ in w.hooks] == ["commit", "release"] * 2
            memory = w.memory
            assert {name: memory[name] for name in ("over", "asked", "released", "refused")} == {
                "over": 1,
                "asked": 2,
                "released": 2,
                "refused": 0,
            }
            assert memory["released_bytes"] == 2 * (SIZE + len("hi") + len("0"))
            assert [memory[name] for name in ("budget", "before", "after", "used")] == [
                mib * MIB for mib in (100, 300, 90, 90)
            ]
            w.go.set()
            assert (await held.answered()).text == "0"
            assert (await w.it.ask("again", "a")).text == "2"
            assert len(set(w.served)) == 5
        assert balance_holds(tmp_path)

    run(main())


def test_within_the_budget_nobody_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is anything given back: that would only cost time."""

    async def main() -> None:
        async with world(tmp_path, monkeypatch, ScriptedMachine(100)) as w:
            await w.fill("a", "b")
            await w.look()
            assert (w.live, w.machine.trims, w.memory["over"]) == ({"a", "b"}, 0, 0)

    run(main())


def test_a_pass_lets_go_of_so_many_at_most(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rest is the next look's, if memory is still short then."""

    async def main() -> None:
        async with world(tmp_path, monkeypatch, ScriptedMachine(300), max_evictions_per_pass=2) as w:
            w.machine.trimmed = 300
            await w.fill("a", "b", "c", "d", "e")
            await w.look()
            assert w.live == {"c", "d", "e"}
            await w.look()
            assert w.live == {"e"}

    run(main())


def test_what_is_not_durable_is_not_let_go_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lane whose reply isn't settled in its log yet isn't asked; once it is written, it is."""

    async def main() -> None:
        async with world(tmp_path, monkeypatch, ScriptedMachine(300)) as w:
            w.it.say("hi", "a")
            await w.it.heard(1)
            runtime = w.runtime
            await until(lambda: not runtime.deliveries.pending)
            [lane] = runtime.directory.live
            assert runtime.directory.stays(lane) == "open work"
            await w.look()
            assert (len(w.runtime.directory.live), w.memory["asked"]) == (1, 0)
            await w.flushed()
            await w.look()
            assert (len(w.runtime.directory.live), w.memory["released"]) == (0, 1)

    run(main())


def test_mail_that_comes_first_keeps_its_lane(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lane that was free when it was chosen, and has mail by the time it is asked, serves that and stays."""

    async def main() -> None:
        async with world(tmp_path, monkeypatch, ScriptedMachine(300)) as w:
            await w.fill("a")
            receipts: list[Any] = []
            w.machine.before_look = lambda: w.runtime.accept(event("hold", "a"), "/", receipts.append)
            await w.look()
            assert (w.live, w.memory["refused"], w.memory["released"], w.machine.trims) == ({"a"}, 1, 0, 0)
            w.go.set()
            await until(lambda: receipts)
            assert (await receipts[0].answered()).text == "2"

    run(main())


def test_memory_is_looked_at_every_minute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the clock, whatever the lanes do."""

    async def main() -> None:
        async with world(tmp_path, monkeypatch) as w:
            await w.fill("a")  # so that all actors have started
            for looks in (1, 2, 3):
                w.clock.advance(PRESSURE_MS)
                await until(lambda looks=looks: w.machine.looks == looks)  # type: ignore[misc]

    run(main())


def test_growth_brings_on_a_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Conversations that have grown by a step of the budget are worth a look before its time, at the end of the turn
    that has let them grow; small ones aren't.
    """

    async def main() -> None:
        async with world(tmp_path, monkeypatch, memory_high_mb=1) as w:
            await w.fill("a", "b")
            assert w.machine.looks == 0
            await w.it.ask("at length", "a")
            await until(lambda: w.machine.looks == 1)
            await w.passed()
            await w.fill("a", "b")
            assert w.machine.looks == 1

    run(main())


@pytest.mark.parametrize("off", [{"memory_high_mb": 0}, {"memory_high_mb": "auto"}])
def test_without_a_budget_nothing_is_let_go_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, off: Any
) -> None:
    """Off is off; and of a machine with 700 MiB no budget is made by itself, which is said once."""
    caplog.set_level(logging.INFO, "seriatim.memory")

    async def main() -> None:
        async with world(tmp_path, monkeypatch, ScriptedMachine(690, 700), **off) as w:
            await w.fill("a", "b")
            for _ in range(2):
                w.clock.advance(PRESSURE_MS)
                await w.passed()
            assert (w.live, w.memory["budget"], w.memory["over"]) == ({"a", "b"}, None, 0)
            assert w.machine.looks == (0 if off["memory_high_mb"] == 0 else 2)

    run(main())
    assert len(caplog.records) == (0 if off["memory_high_mb"] == 0 else 1)


def test_a_pass_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """What was in use, how many went, what is in use now; no names."""
    caplog.set_level(logging.INFO, "seriatim.memory")

    async def main() -> None:
        async with world(tmp_path, monkeypatch, ScriptedMachine(300)) as w:
            w.machine.trimmed = 80
            await w.fill("a", "b", "c")
            await w.look()
            await w.look()

    run(main())
    assert [record.getMessage() for record in caplog.records] == [
        (
            "300 MiB of memory were in use, the budget is 100 MiB: 3 conversations were let go of (0 MiB of text and "
            "agents); 80 MiB are in use now"
        )
    ]


def test_a_budget_that_cannot_be_held_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Everything is busy or protected: one warning, and another one only after memory was well within its budget."""
    caplog.set_level(logging.INFO, "seriatim.memory")

    async def main() -> None:
        async with world(tmp_path, monkeypatch, ScriptedMachine(300), protect_recent=8) as w:
            held = await w.it.accept("hold", "busy")
            await w.fill("a")
            for used in (300, 95, 300, 300, 90, 300):
                w.machine.used = used
                await w.look()
            assert (w.live, w.memory["over"], w.memory["asked"], w.machine.trims) == ({"busy", "a"}, 4, 0, 0)
            w.go.set()
            await held.answered()

    run(main())
    said = (
        "300 MiB of memory are in use and the budget is 100 MiB, but none of 2 warm conversations can be let go of: "
        "1 are the most recent ones, the others are busy"
    )
    assert [record.getMessage() for record in caplog.records] == [said, said]


def test_a_machine_that_says_nothing_is_told_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is let go of on a guess; the host hears of it, and again only after it has worked."""

    async def main() -> None:
        async with world(tmp_path, monkeypatch, ScriptedMachine(300)) as w:
            await w.fill("a", "b")
            error = w.machine.error = OSError("no /proc")
            await w.look()
            await w.look()
            assert w.it.errors == [("memory", error)]
            assert w.live == {"a", "b"}
            w.machine.error, w.machine.used = None, 50
            await w.look()
            w.machine.error = error
            await w.look()
            assert w.it.errors == [("memory", error)] * 2

    run(main())


def test_a_hook_that_never_ends_holds_no_pass_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pass waits for agents' hooks, so that what they free is given back; but not for ever, nor does the next one."""

    async def main() -> None:
        async with world(tmp_path, monkeypatch, ScriptedMachine(300), max_evictions_per_pass=1) as w:
            await w.fill("a", "b")
            w.may_release.clear()
            w.runtime.look_at_memory()
            await until(lambda: w.hooks and w.live == {"b"})
            assert w.memory["doing"] == "asking"
            w.clock.advance(PRESSURE_PASS_MS_MAX)
            await w.passed()
            assert (w.memory["asked"], w.memory["released"]) == (1, 0)
            w.may_release.set()
            await until(lambda: w.memory["released"] == 1)
            await w.look()
            assert (w.live, w.memory["released"]) == (set(), 2)

    run(main())


def test_a_message_during_a_slow_eviction_is_served_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """B133: a message comes when its lane has been asked to rest, others while the agent's release takes its time, and
    the lane is asked to rest once more. Each is answered once, in order, by the next incarnation, with all that was
    said before; its agent is made when the old one's end is through, which is its own.
    """

    async def main() -> None:
        async with world(tmp_path, monkeypatch, ScriptedMachine(300)) as w:
            await w.fill("a")
            w.may_release.clear()
            receipts: list[Any] = []
            settled: list[Any] = []
            runtime = w.runtime
            remove = runtime.directory.remove

            def removed(lane: str) -> None:
                remove(lane)
                if not receipts:
                    receipts.append(runtime.accept(event("0", "a"), "/", settled.append))

            monkeypatch.setattr(runtime.directory, "remove", removed)
            runtime.look_at_memory()
            await until(lambda: settled and w.hooks)
            receipts += [await w.it.accept(str(number), "a") for number in (1, 2)]
            runtime.directory.supervisor.signal(PassivateLane(receipts[0].session_key, "again"))
            await until(lambda: w.it.health["turns_running"] == 1)
            assert w.made == [0]
            w.may_release.set()
            ends = [await receipt.answered() for receipt in receipts]
            assert [end.outcome for end in ends] == ["answered", "answered", "merged"]
            assert [end.text for end in ends] == ["2", "4", "4"]
            assert w.hooks == [("commit", w.served[0]), ("release", w.served[0])]
            assert (w.made, len(set(w.served))) == ([0, 2], 1)
        assert balance_holds(tmp_path)

    run(main())
