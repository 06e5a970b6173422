"""Where a run may be struck, and where this one is."""

from __future__ import annotations

from attrs import frozen

from seriatim.testing.faulty_store import SimulatedCrash

__all__ = ["KILLED", "Fate", "Points", "SimulatedCrash"]

KILLED = "killed by the enumerator"


@frozen
class Fate:
    """What strikes one life of the process.

    ``at``: it dies at the point of this number, or at the first point whose label begins so. ``actor``: a lane's
    actor dies before the lanes' envelope of this number; ``other``: an actor that all lanes need dies before an
    envelope of theirs, and the process with it. ``frames``: of the commit that ended at the point, only so
    many frames of the WAL were written; ``torn``: half of them.
    """

    at: int | str | None = None
    actor: int | None = None
    other: int | None = None
    frames: int | None = None
    torn: bool = False

    def __str__(self) -> str:
        parts = [
            f"{name}={value}"
            for name in ("at", "actor", "other", "frames")
            if (value := getattr(self, name)) is not None
        ]
        if self.torn:
            parts.append("torn=1")
        return "(" + ", ".join(parts) + ")"


class Points:
    """The trace of one life.

    ``labels``: its points so far; ``envelopes`` of lanes and ``others``; ``dead``: the process has died at the last.
    """

    def __init__(self, fate: Fate) -> None:
        self.fate = fate
        self.labels: list[str] = []
        self.envelopes = 0
        self.others = 0
        self.dead = False

    def hit(self, label: str) -> None:
        """A point is reached. Raises SimulatedCrash if the process dies here, or is dead."""
        if self.dead:
            raise SimulatedCrash(label)
        number = len(self.labels)
        self.labels.append(label)
        at = self.fate.at
        if at is not None and (label.startswith(at) if isinstance(at, str) else number == at):
            self.dead = True
            raise SimulatedCrash(label)

    def envelope(self, *, lane: bool) -> BaseException | None:
        """An actor is about to handle an envelope: the error it dies of, if it does."""
        number, struck = (self.envelopes, self.fate.actor) if lane else (self.others, self.fate.other)
        if lane:
            self.envelopes += 1
        else:
            self.others += 1
        return RuntimeError(KILLED) if number == struck else None
