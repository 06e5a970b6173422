"""Random histories of a session, checked against the surface's definition after each action.

    python -m tests.persistence.histories --json [--count 1500] [--seed 1]

Turns with steps, tools, interruptions and resumed attempts; undo, redo, retry, compress, prune, rewrite, wipe in any
order; a snapshot taken at a random moment and folded on; a second surface that forgets old turns. Prints what was
done, so that a history which never did something doesn't pass for one that did.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections import Counter
from collections.abc import Callable, Sequence

from seriatim.edits import compress, prune, redo, retry, rewrite, undo, wipe
from seriatim.errors import SurfaceError, SurfaceHorizonError
from seriatim.events import Data, Event
from seriatim.surface import Surface, fold, human_transcript, model_context, visibility, walk_undos
from seriatim.surface_json import surface_from_json, surface_to_json
from tests.persistence.surface_model import MESSAGES, Shown, Turn, redoable, shown, states

TIME = 1_767_225_600_000
KEEP = 3


class History:
    """One growing log, the surface folded beside it, a twin that goes through snapshots, and one that forgets."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.log: list[Event] = []
        self.surface = Surface()
        self.twin = Surface()
        self.forgetful: Surface | None = Surface()
        self.turns = 0
        self.counts: Counter[str] = Counter()

    # --- what may happen -------------------------------------------------------------------------------

    def turn(self, resumed_from: int | None = None) -> None:
        """A turn with a few steps and calls; sometimes interrupted, and then perhaps resumed."""
        self.turns += 1
        number = self.turns
        start: Data = {"turn": number, "claims": []}
        if resumed_from is not None:
            start["resumedFrom"] = resumed_from
        self.say("turn/start", start)
        asked = self.random.choice((0, 1, 1, 1, 2)) if resumed_from is None else self.random.choice((0, 0, 1))
        for _ in range(asked):
            self.say("user/message", {"turn": number, "id": f"m{len(self.log)}", "text": "hi", "at": TIME})
        for step in range(1, self.random.choice((1, 1, 2, 3)) + 1):
            self.step(number, step)
        interrupted = self.random.random() < 0.15
        self.say("turn/end", {"turn": number, "reason": {"kind": "interrupted" if interrupted else "completed"}})
        self.counts["turns"] += 1
        if interrupted and self.random.random() < 0.7:
            self.counts["resumed"] += 1
            self.turn(number)

    def step(self, turn: int, step: int) -> None:
        """One message of the model, the calls that it asks for, and their results."""
        self.say("step/start", {"turn": turn, "step": step})
        calls = [f"t{turn}s{step}c{n}" for n in range(self.random.choice((0, 0, 1, 2)))]
        said: Data = {"turn": turn, "step": step, "text": self.random.choice(("", "said", "said"))}
        if calls:
            said["calls"] = [{"id": call} for call in calls]
        self.say("assistant/message", said)
        for call in calls:
            self.say("tool/call", {"turn": turn, "step": step, "id": call, "name": "look", "args": {}})
        for call in calls:
            self.say("tool/result", {"turn": turn, "step": step, "id": call, "content": "seen"})
        if self.random.random() < 0.1:
            self.compress()
        self.say("step/end", {"turn": turn, "step": step})

    def undo(self) -> None:
        """Take some turns back."""
        undone = undo(self.surface, self.random.choice((1, 1, 1, 2, 3, 50)), TIME)
        before = shown(self.log, len(self.log))
        assert undone.turns <= len(before.turns)
        self.append("undo", undone.events)
        assert len(shown(self.log, len(self.log)).turns) == len(before.turns) - undone.turns

    def redo(self) -> None:
        """Take an undo back."""
        before = redoable(self.log)
        events = redo(self.surface, TIME)
        assert bool(events) == bool(before)
        self.append("redo", events)
        if events:
            assert shown(self.log, len(self.log)) == shown(self.log, before[-1])

    def retry(self) -> None:
        """Answer the last question anew."""
        events = retry(self.surface, TIME)
        self.append("retry", events)
        if events:
            self.turn(self.surface.visible_turns()[-1].number)

    def compress(self) -> None:
        """Put a summary in the place of a random range."""
        seqs = self.surface.seqs()
        if len(seqs) < 2:
            return
        first = self.random.randrange(len(seqs) - 1)
        last = self.random.randrange(first, len(seqs))
        try:
            event = compress(self.surface, seqs[first], seqs[last], "in short", TIME)
        except SurfaceError:
            self.counts["compress refused"] += 1
        else:
            self.append("compress", (event,))

    def prune(self) -> None:
        """Empty a random tool result that is still shown."""
        results = [node.seq for node in self.surface.nodes() if node.type == "tool/result"]
        if results:
            result = self.log[self.random.choice(results)]
            self.append("prune", (prune(self.surface, result, "(pruned)", TIME),))

    def rewrite(self) -> None:
        """Show other messages instead."""
        count = self.random.choice((0, 1, 2, 5))
        kinds = [self.random.choice(("user/message", "assistant/message")) for _ in range(count)]
        messages: list[tuple[str, Data]] = [(kind, {"text": "written", "at": TIME, "id": "w"}) for kind in kinds]
        events = rewrite(self.surface, messages, self.turns + 1, TIME)
        self.turns += sum(1 for event in events if event.type == "turn/start")
        self.append("rewrite", events)

    def wipe(self) -> None:
        """Show nothing any more."""
        self.append("wipe", wipe(self.surface, "wipe", TIME))

    # --- the log and its judges ------------------------------------------------------------------------

    def say(self, kind: str, data: Data) -> None:
        """Append one event."""
        self.take(Event(kind, len(self.log), TIME, data))

    def append(self, action: str, events: Sequence[Event]) -> None:
        """Append what an action made, and count it when it made something."""
        self.counts[action] += bool(events)
        for event in events:
            self.take(event)

    def take(self, event: Event) -> None:
        """Fold the event into all three surfaces."""
        assert event.seq == len(self.log)
        self.log.append(event)
        self.surface.apply(event)
        if self.random.random() < 0.05:
            self.twin = surface_from_json(json.loads(json.dumps(surface_to_json(self.twin))))
            self.counts["snapshots"] += 1
        self.twin.apply(event)
        if self.forgetful is not None:
            try:
                self.forgetful.apply(event)
            except SurfaceHorizonError:
                self.counts["beyond the horizon"] += 1
                self.forgetful = fold(self.log)  # as a reader would: from the whole log
            if self.random.random() < 0.05:
                self.forgetful.forget(KEEP)
                self.counts["forgotten"] += 1

    def check(self) -> None:
        """Hold every surface and every view equal to the definition."""
        expected = shown(self.log, len(self.log))
        undos = redoable(self.log)
        for surface in (self.surface, self.twin):
            assert told(surface) == expected
            assert [undo.seq for undo in walk_undos(surface.undone)][::-1] == undos
        assert self.forgetful is not None
        partly = told(self.forgetful)
        assert partly.seqs == expected.seqs
        assert partly.turns == expected.turns[self.forgetful.forgotten :]
        assert visibility(self.surface, self.log) == states(self.log)
        model = [e.seq for e in model_context(self.surface, self.log.__getitem__)]
        silent = {e.seq for e in self.log if e.data.get("text") == "" and "calls" not in e.data}
        assert model == [seq for seq in expected.seqs if seq not in silent]
        people = [e.seq for e in human_transcript(self.log)]
        assert people == [e.seq for e in self.log if e.type in MESSAGES and e.surface_op is None]


def told(surface: Surface) -> Shown:
    """What a surface says, in the definition's words."""
    turns = (Turn(turn.start, turn.number, turn.asked) for turn in surface.visible_turns())
    return Shown(tuple(surface.seqs()), tuple(turns))


def run_history(seed: int, made: Callable[[int], History] = History) -> Counter[str]:
    """One history, checked after each action; what happened in it. Raises AssertionError, naming the seed."""
    history = made(seed)
    actions: list[tuple[Callable[[], None], int]] = [
        (history.turn, 40),
        (history.undo, 14),
        (history.redo, 14),
        (history.retry, 8),
        (history.compress, 14),
        (history.prune, 6),
        (history.rewrite, 2),
        (history.wipe, 1),
    ]
    calls, weights = [action for action, _ in actions], [weight for _, weight in actions]
    for _ in range(history.random.randint(5, 30)):
        action = history.random.choices(calls, weights)[0]
        action()
        try:
            history.check()
        except AssertionError as error:
            raise AssertionError(f"history {seed}, after {action.__name__} at {len(history.log)}: {error}") from error
    history.counts.update(histories=1, events=len(history.log))
    return history.counts


def run(count: int, seed: int) -> dict[str, int]:
    """``count`` histories; the sum of what happened."""
    total: Counter[str] = Counter()
    for number in range(count):
        total += run_history(seed * 1_000_000 + number)
    return dict(sorted(total.items()))


def main() -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--count", type=int, default=1500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    counts = run(chosen.count, chosen.seed)
    text = json.dumps(counts) if chosen.json else "\n".join(f"{what}: {n}" for what, n in counts.items())
    sys.stdout.write(text + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
