"""The reference model: what waits in a lane, what runs next and what becomes of each message, in the design's words.

Written apart from the rules and in another shape: plain lists, no events, no commits, no time but the freshness of what
broke off. It is told what happens to a lane and says what must follow; ``histories`` holds real lanes to it.
"""

from __future__ import annotations

from typing import Literal

from attrs import Factory, define

Fact = tuple[str, ...]
"""Something that must stand in the log: its name, then what tells it from others."""

GIVEN_UP_AFTER = 3


@define
class Said:
    """A message. ``rank``: what its author may do; ``pin``: the session that a wake is for; ``album``: its album."""

    id: str
    kind: Literal["human", "queue", "wake"]
    rank: str = ""
    pin: str | None = None
    album: str | None = None


@define
class Coming:
    """A turn that is to come, runs, or broke off (then ``since`` it began)."""

    said: list[Said]
    since: int = 0

    @property
    def kind(self) -> str:
        """Of all its messages."""
        return self.said[0].kind

    @property
    def ids(self) -> tuple[str, ...]:
        """Of its messages."""
        return tuple(said.id for said in self.said)


@define
class Model:
    """One lane. Methods are what happens; they return the facts that must follow (or, of ``say`` and ``start``, come
    right before).
    """

    collapse: str = "merge"
    stop_suspends: bool = True
    freshness_ms: int = 3_600_000
    line: list[Coming] = Factory(list)
    running: Coming | None = None
    broken: list[Coming] = Factory(list)
    breaks: int = 0
    session: str | None = None
    old: set[str] | None = None
    """While the session is stopped: what may still run in it. None: it isn't."""
    wakes_too: bool = True
    """Whether wakes may run in the stopped session."""

    # --- messages ----------------------------------------------------------------------------------------

    def say(self, said: Said) -> tuple[str, list[Fact], list[Fact]]:
        """A message is accepted: its place, what must have come right before, what must follow."""
        if said.kind == "wake" and said.pin is not None and said.pin != self.session:
            return "none", [], [("dropped", "session_left", said.id)]
        before: list[Fact] = [("bound", "first")] if self.session is None else []
        for turn in self.line if said.album is not None else ():
            if any((other.album, other.rank) == (said.album, said.rank) for other in turn.said):
                turn.said.append(said)
                return "album", before, []
        if not self.line:
            self.line.append(Coming([said]))
            return "slot", before, []
        if said.kind == "human":
            # The newest follow-up of an equal, if nothing that keeps its place stands in between.
            equals = [n for n, c in enumerate(self.line) if c.kind == "human" and c.said[0].rank == said.rank]
            if equals and equals[-1] == 0 and self.collapse == "replace":
                gone = self.line.pop(0)
                self.line.insert(0, Coming([said]))
                return "slot", [*before, *(("dropped", "superseded", i) for i in gone.ids)], []
            if equals and equals[-1] in (0, len(self.line) - 1):
                self.line[equals[-1]].said.append(said)
                return "join", before, []
        self.line.append(Coming([said]))
        return "tail", before, []

    # --- commands ----------------------------------------------------------------------------------------

    def stop(self) -> list[Fact]:
        """/stop: ends what runs or would run again, drops a person's follow-up in the slot; the rest goes on."""
        facts = self._abort()
        stopped = bool(facts) or bool(self.broken)
        for turn in self.broken:
            facts += [("dropped", "stop", i) for i in turn.ids]
        self.broken.clear()
        if self.line and self.line[0].kind == "human":
            facts += [("dropped", "stop", i) for i in self.line.pop(0).ids]
            wake = next((c for c in self.line if c.kind == "wake"), None)
            if wake is not None and self.line[0] is not wake:
                self.line.remove(wake)
                self.line.insert(0, wake)
                facts.append(("moved", wake.ids[0], "0"))
        if stopped and self.stop_suspends:
            facts.append(("suspended", "stop"))
            if self.old is None:
                self.old = {i for c in self.line for i in c.ids}
                self.wakes_too = True
        return facts

    def new(self) -> list[Fact]:
        """/new, /reset: ends everything that people want; wakes stay, but for those of the session that is left."""
        facts = self._abort()
        for turns in (self.broken, self.line):
            for turn in list(turns):
                left = turn.kind == "wake" and turn.said[0].pin is not None and turn.said[0].pin == self.session
                if turn.kind != "wake" or left:
                    turns.remove(turn)
                    facts += [("dropped", "session_left" if left else "reset", i) for i in turn.ids]
        return [*facts, ("bound", "command")]

    def _abort(self) -> list[Fact]:
        if self.running is None:
            return []
        first, *others = self.running.ids
        self.running = None
        self.breaks = 0
        return [("answered", first), *(("merged", i) for i in others)]

    def bound(self, session: str) -> None:
        """The lane has this session from here on."""
        self.session = session
        self.old = None

    # --- turns -------------------------------------------------------------------------------------------

    def start(self, now: int) -> tuple[Coming | None, list[Fact]]:
        """A turn begins: which one it must be, and what must have come right before."""
        turn = self._next(now)
        if turn is None:
            return None, []
        self.running = Coming(turn.said, now)
        if self.old is None:
            return turn, []
        lifts = not self.wakes_too if turn.kind == "wake" else not self.old.issuperset(turn.ids)
        return turn, [("bound", "suspended")] if lifts else []

    def _next(self, now: int) -> Coming | None:
        for turn in self.broken:
            if now - turn.since <= self.freshness_ms or (self.line and turn.kind != "human"):
                self.broken.remove(turn)
                return turn
        if not self.line:
            return None
        if self.broken and self.line[0].kind == "human":
            stale = self.broken.pop(0)
            if stale.said[0].rank == self.line[0].said[0].rank:
                return Coming(stale.said + self.line.pop(0).said)
            return stale
        return self.line.pop(0)

    def left(self, ids: tuple[str, ...]) -> bool:
        """A wake is dropped because its session was left: whether that is so."""
        for turns in (self.broken, self.line):
            for turn in turns:
                if turn.ids == ids:
                    turns.remove(turn)
                    pin = turn.said[0].pin
                    given_up = self.old is not None and not self.wakes_too
                    return turn.kind == "wake" and pin is not None and (pin != self.session or given_up)
        return False

    def ended(self, first: str) -> list[Fact] | None:
        """The running turn is over, however it ended; None where no such turn runs."""
        if self.running is None or self.running.ids[0] != first:
            return None
        return self._abort()[1:]

    def interrupted(self) -> list[Fact]:
        """The process went away while the turn ran; a lane that this happens to again and again gives it up."""
        turn, self.running = self.running, None
        if turn is None:
            return [("no turn was running",)]
        self.breaks += 1
        if self.breaks < GIVEN_UP_AFTER:
            self.broken.append(turn)
            return []
        self.give_up()
        return [*(("dropped", "interrupted", i) for i in turn.ids), ("suspended", "interrupted")]

    def give_up(self) -> None:
        """The conversation is over: whatever comes next starts afresh, a wake too."""
        self.breaks = 0
        self.old, self.wakes_too = set(), False

    # --- steering ----------------------------------------------------------------------------------------

    def take_out(self, ids: tuple[str, ...]) -> bool:
        """Messages are taken back, or have expired; whether all of them waited."""
        found = 0
        for turns in (self.broken, self.line):
            for turn in list(turns):
                kept = [said for said in turn.said if said.id not in ids]
                found += len(turn.said) - len(kept)
                turn.said = kept
                if not kept:
                    turns.remove(turn)
        return found == len(ids)

    def move(self, one: str, to: int) -> bool:
        """A turn is put elsewhere; whether it waited, and there is such a place."""
        for turn in self.line:
            if one in turn.ids:
                self.line.remove(turn)
                self.line.insert(to, turn)
                return 0 <= to < len(self.line)
        return False
