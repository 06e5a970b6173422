"""``python -m tests.queue.histories``: random histories of lanes against the reference model, by seed.

Each is a run of the simulator, shipped actors and all, with people, a host that wakes and steers, endings of every kind
and crashes; at its end every lane's log is followed by the model. Prints the differences: there must be none.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import time
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any

from attrs import Factory, define

from seriatim.batch import Rules
from seriatim.model import MessageEvent, SessionSource
from seriatim.queue_edits import CancelMessage, ClearQueue, EditMessage, ExpireQueue, MoveMessage
from seriatim.testing.chance import Dice, Plan
from seriatim.testing.simulator import Simulator, Violation
from seriatim.testing.witness import all_logs
from tests.queue.follow import Follower
from tests.queue.model import Model

CHUNK = 50
WORDS = ("plain", "plain", "plain", "plain", "tool", "fail", "silent", "never", "late", "stuck")
COMMANDS = ("/stop", "/stop", "/new", "/reset", "/status", "/help", "/what")


def plan_of(seed: int) -> Plan:
    """A small, crowded world: one or two lanes, few slots, much said while turns run."""
    dice = Dice(seed)

    def one(*choices: Any) -> Any:
        return dice.pick("history", choices)

    crashes = dice.roll("history") < 0.7
    return Plan(
        lanes=one(1, 2, 2),
        shared=one(True, True, False),
        acts=one(8, 14, 20),
        people=one(0.3, 1.0, 3.0),
        lulls=one(0.0, 0.1, 0.3),
        steps=900,
        slots=one(1, 2, 8),
        rules=Rules(
            collapse=one("merge", "merge", "replace"),
            stop_suspends=one(True, True, False),
            freshness_ms=one(3_600_000, 700),
        ),
        timers=one(0.05, 0.3),
        writer=one(0.3, 1.0, 3.0),
        refused=one(0.0, 0.05),
        unknown=one(0.0, 0.05),
        lane_crash=one(0.0, 0.01) if crashes else 0.0,
        process_crash=one(0.002, 0.006, 0.012) if crashes else 0.0,
        rests=one(0.0, 0.03),
        repeats=one(0.0, 0.02),
    )


class History(Simulator):
    """One history; ``follow()`` after ``run()`` tells how it differs from the model."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, plan_of(seed), words=WORDS)
        self.did: Counter[str] = Counter()
        self._sessions: dict[str, list[str]] = {}
        self.outside.act = self._act  # type: ignore[method-assign]

    def _act(self) -> None:
        outside, pick = self.outside, self.dice.pick
        outside.acts -= 1
        outside.lull = self.dice.hits("lull", self.plan.lulls)
        source = pick("who", outside.sources)
        what = self.dice.roll("what")
        if what < 0.07:
            self.did["albums"] += 1
            self._album(source)
        elif what < 0.14:
            self.did["edits"] += 1
            self._edit()
        elif what < 0.45:
            self.did["messages"] += 1
            for _ in range(pick("burst", (1, 1, 2, 3))):
                outside.say(source, pick("word", WORDS))
        elif what < 0.6:
            self.did["/queue"] += 1
            outside.say(source, "/queue " + pick("word", WORDS))
        elif what < 0.75:
            self.did["commands"] += 1
            outside.say(source, pick("word", COMMANDS))
        elif what < 0.9:
            self.did["wakes"] += 1
            self._wake(source)
        else:
            self.did["steering"] += 1
            self._steer()

    def _wake(self, source: SessionSource) -> None:
        """The host wakes a lane; half of the wakes are for a session, that of now or one of before."""
        pin = None
        if self.dice.hits("pin", 0.6):
            for gate in self.process.runtime.directory.gates():
                known = self._sessions.setdefault(gate.durable.key, [])
                if gate.durable.bound is not None and gate.durable.bound not in known:
                    known.append(gate.durable.bound)
            name = self._lane_of(source)
            known = self._sessions.get(name) or ["nobody's"]
            pin = self.dice.pick("session", (known[-1], known[-1], known[-1], known[-2:][0]))
        outside = self.outside
        outside._said += 1
        event = MessageEvent(
            f"plain {outside._said}", source, account="fake", message_id=f"in{outside._said}", internal=True,
            wake_session_id=pin,
        )  # fmt: skip
        outside._giving.append(outside.platform.post(event))

    def _post(self, text: str, source: SessionSource, **fields: Any) -> None:
        """Somebody's message of a further kind comes to the platform."""
        outside = self.outside
        outside._said += 1
        event = MessageEvent(text, source, account="fake", message_id=f"in{outside._said}", **fields)
        outside._giving.append(outside.platform.post(event))

    def _album(self, source: SessionSource) -> None:
        """Two or three items, the first now and then for /queue; what others say may come between them."""
        name = f"album {self.outside._said}"
        first = self.dice.pick("caption", ("plain", "plain", "/queue plain"))
        for number in range(self.dice.pick("items", (2, 3))):
            self._post(f"{first if number == 0 else 'plain'} {self.outside._said + 1}", source, album_id=name)
            if self.dice.hits("between", 0.3):
                self.outside.say(self.dice.pick("who", self.outside.sources), "plain")

    def _edit(self) -> None:
        """Somebody changes a message, or takes it back."""
        said = [p.event for p in self.outside.platform.posted if not p.event.internal and p.event.edit_of is None]
        said = [event for event in said if not event.text.startswith("/") or event.text.startswith("/queue ")]
        if said:
            event = self.dice.pick("which", said[-4:])
            deleted = self.dice.hits("deleted", 0.3)
            self._post(
                "" if deleted else f"{event.text} edited", event.source, edit_of=event.message_id, deleted=deleted
            )

    def _lane_of(self, source: SessionSource) -> str:
        return next((key for key, name in self.names.items() if name == source.chat_id), "")

    def _steer(self) -> None:
        """The host changes what waits somewhere."""
        runtime, pick = self.process.runtime, self.dice.pick
        waiting = [
            (gate.durable.key, inbox_id, held.data["text"])
            for gate in runtime.directory.gates()
            for inbox_id, held in gate.durable.waiting.items()
        ]
        if not waiting:
            return
        key, inbox_id, text = pick("which", waiting)
        question = pick(
            "how",
            (
                CancelMessage(inbox_id),
                CancelMessage(inbox_id),
                MoveMessage(inbox_id, pick("where", (1, 2, 9))),
                EditMessage(inbox_id, f"{text} edited"),
                ClearQueue(),
                ExpireQueue(self.process.clock.now_ms() - 50),
            ),
        )
        runtime.ask(key, question, lambda value, error: None)

    def follow(self) -> tuple[int, list[str]]:
        """How often lane and model were compared, and where they differ."""
        reader = self.process.reader()
        rules = self.plan.rules
        compared, differences = 0, []
        for log in all_logs(reader):
            if log.startswith("lane:"):
                follower = Follower(Model(rules.collapse, rules.stop_suspends, rules.freshness_ms))
                follower.read(self.whole(reader, log))
                compared += follower.compared
                differences += [f"{log}: {text}" for text in follower.differences]
        return compared, differences


@define
class Totals:
    """What came of some histories."""

    histories: int = 0
    compared: int = 0
    crashes: int = 0
    steps: int = 0
    did: Counter[str] = Factory(Counter)
    differences: dict[int, str] = Factory(dict)

    def add(self, other: Totals) -> None:
        """Add those of other seeds."""
        self.histories += other.histories
        self.compared += other.compared
        self.crashes += other.crashes
        self.steps += other.steps
        self.did.update(other.did)
        self.differences |= other.differences

    def told(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "histories": self.histories,
            "differences": len(self.differences),
            "differing_seeds": sorted(self.differences)[:20],
            "first": next((self.differences[seed] for seed in sorted(self.differences)), None),
            "compared": self.compared,
            "crashes": self.crashes,
            "steps": self.steps,
            "did": dict(sorted(self.did.items())),
        }


def run_histories(seeds: Sequence[int]) -> Totals:
    """Run them one after the other."""
    totals = Totals()
    for seed in seeds:
        world = History(seed)
        totals.histories += 1
        try:
            report = world.run()
        except Violation as violation:
            totals.differences[seed] = str(violation)
            continue
        compared, differences = world.follow()
        totals.compared += compared
        totals.crashes += report.crashes
        totals.steps += report.steps
        totals.did.update(world.did)
        if differences:
            totals.differences[seed] = f"seed {seed}: {differences[0]}"
    return totals


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print, and fail where anything differs."""
    parser = argparse.ArgumentParser(prog="python -m tests.queue.histories", description=__doc__)
    parser.add_argument("--histories", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    began = time.monotonic()
    seeds = range(options.first, options.first + options.histories)
    chunks = [seeds[at : at + CHUNK] for at in range(0, len(seeds), CHUNK)]
    totals = Totals()
    with multiprocessing.get_context("spawn").Pool(options.workers) as pool:
        for part in pool.imap_unordered(partial(run_histories), chunks):
            totals.add(part)
    told = totals.told() | {"seconds": round(time.monotonic() - began, 1)}
    if options.json:
        print(json.dumps(told, indent=1))
    else:
        print(f"{told['histories']} histories, compared {told['compared']} times, differences: {told['differences']}")
        if told["first"]:
            print(told["first"])
    return 1 if totals.differences else 0


if __name__ == "__main__":
    sys.exit(main())
